//! What `ciaoctl web` takes.

use std::net::SocketAddr;

use clap::Args;

use crate::net::address::listen_address;

/// `ciaoctl web`.
#[derive(Debug, Args)]
pub struct WebArgs {
    /// Address to listen on, of this machine alone; port 0 is any free one. On an address that other servers have as well,
    /// as 127.0.0.1, browsers send them the page's cookie too [default: one of 127.0.0.0/8 of its own]
    #[arg(long, value_name = "ADDR", value_parser = free_port)]
    pub listen: Option<SocketAddr>,
    /// Where the scheduler serves HTTP, as https://HOST:PORT [default: the host of --server, port 8443]
    #[arg(long, value_name = "URL", env = "CIAO_HTTP", hide_env_values = true)]
    pub http: Option<String>,
    /// Do not open a browser. None is opened either where the output is not a terminal
    #[arg(long)]
    pub no_open: bool,
}

/// Without a port, any free one.
fn free_port(text: &str) -> Result<SocketAddr, String> {
    listen_address(text, 0)
}
