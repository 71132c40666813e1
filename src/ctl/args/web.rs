//! What `ciaoctl web` takes.

use std::net::{Ipv4Addr, SocketAddr};

use clap::Args;

/// Any free port of this machine's own address.
const ANY_PORT: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// `ciaoctl web`.
#[derive(Debug, Args)]
pub struct WebArgs {
    /// Address to listen on, of this machine alone; port 0 is any free one
    #[arg(long, value_name = "ADDR", default_value_t = ANY_PORT)]
    pub listen: SocketAddr,
    /// Where the scheduler serves HTTP, as https://HOST:PORT [default: the host of --server, port 8443]
    #[arg(long, value_name = "URL", env = "CIAO_HTTP", hide_env_values = true)]
    pub http: Option<String>,
    /// Do not open a browser. None is opened either where the output is not a terminal
    #[arg(long)]
    pub no_open: bool,
}
