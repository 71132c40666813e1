//! The command line.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use ciao_adapter::flags::{self, NIL_TENANT};
use ciao_scheduler::flags::{duration, mebibytes};
use ciao_scheduler::net::address::listen_address;
use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::tokens::Role;

/// RIK's two gRPC services in front of a ciao-scheduler.
///
/// RIK's workers and controllers connect with it as with RIK's own scheduler. Each worker is a node of the cluster of a
/// ciao-scheduler, and what controllers ask for is placed by that. A client of the scheduler like ciaoctl, with a
/// controller's certificate, and a launcher for each worker, with a launcher's.
#[derive(Debug, Parser)]
#[command(name = "ciao-rik", version = ciao_scheduler::VERSION, propagate_version = true)]
pub(crate) struct Cli {
    /// Flags and subcommands.
    #[command(flatten)]
    pub(crate) line: CommandLine,
}

/// What the command line says.
pub(crate) type CommandLine = flags::CommandLine<ServeFlags, Command>;

/// What else it can do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Issue, list or ban tokens, also while ciao-rik serves
    #[command(subcommand)]
    Token(TokenCommand),
}

/// `ciao-rik token`.
#[derive(Debug, Subcommand)]
pub(crate) enum TokenCommand {
    /// Make a token and print it; it is kept nowhere
    Issue {
        /// What it is called; a controller's instances belong to that name
        #[arg(value_name = "NAME")]
        name: String,
        /// What it is for
        #[arg(long, value_name = "ROLE")]
        role: Role,
    },
    /// List the names of tokens
    List,
    /// Have a token count no more; streams that were opened with it end
    Ban {
        /// Its name
        #[arg(value_name = "NAME")]
        name: String,
    },
}

/// What is done with instances whose worker is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum OnWorkerLoss {
    /// Their controller is told that they failed
    Report,
    /// They are started on other workers
    Restart,
}

/// What the adapter is told.
#[derive(Debug, Clone, Args)]
pub(crate) struct ServeFlags {
    /// Where workers connect
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:4995", value_parser = worker_address)]
    pub(crate) worker_listen: SocketAddr,
    /// Where controllers connect
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:4996", value_parser = controller_address)]
    pub(crate) controller_listen: SocketAddr,
    /// Serve both with TLS: certificate and key, one PEM file. Otherwise they are in the clear, as RIK's own programs speak
    #[arg(long, value_name = "FILE")]
    pub(crate) tls: Option<PathBuf>,
    /// Ask every call for a token ('ciao-rik token issue')
    #[arg(long)]
    pub(crate) tokens: bool,
    /// Where to keep instances, sets and tokens; each ciao-rik needs its own
    #[arg(
        long,
        global = true,
        value_name = "DIR",
        default_value = "/var/lib/ciao/rik"
    )]
    pub(crate) state_dir: PathBuf,
    /// Certificate and key of a launcher, one PEM file, bound to no UUID: with it workers are nodes
    /// [default: that of --certs, or /etc/pki/ciao/cert-CNAgent-localhost.pem]
    #[arg(long, value_name = "FILE")]
    pub(crate) worker_cert: Option<PathBuf>,
    /// Time between two reports about a worker where nothing changes
    #[arg(long, value_name = "DURATION", default_value = "6s", value_parser = duration)]
    pub(crate) report_interval: Duration,
    /// Memory that an instance asks for unless its definition says it: MiB, or with a unit
    #[arg(long, value_name = "SIZE", default_value = "128MiB", value_parser = mebibytes::<i64>(0))]
    pub(crate) default_mem: i64,
    /// Virtual CPUs that an instance asks for unless its definition says it
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(i64).range(0..))]
    pub(crate) default_cpus: i64,
    /// How long an instance waits for room unless its definition says it; 0s = it is tried again by ciao-rik
    #[arg(long, value_name = "DURATION", default_value = "30d", value_parser = duration)]
    pub(crate) queue: Duration,
    /// What is done with instances whose worker is gone unless their definition says it
    #[arg(long, value_name = "WHAT", value_enum, default_value_t = OnWorkerLoss::Report)]
    pub(crate) on_worker_loss: OnWorkerLoss,
    /// How long after a worker is gone its instances may be started on others
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = duration)]
    pub(crate) lease: Duration,
    /// How long a worker may take to destroy an instance; then it counts as gone
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = duration)]
    pub(crate) stop_grace: Duration,
    /// Most instances of a set that are down at a time for a change of its definition
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) max_down: u32,
    /// Tenant that instances belong to
    #[arg(long, value_name = "UUID", default_value = NIL_TENANT)]
    pub(crate) tenant: String,
    /// How long after a new connection with the scheduler nodes may still bring back an instance that it does not list.
    /// Then the instance is sent again if the scheduler remembers all ends since it was sent, for it never ran; else it
    /// has failed, for how it ended is not known
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = duration)]
    pub(crate) return_time: Duration,
}

/// The port of RIK's own scheduler for workers.
const WORKER_PORT: u16 = 4995;

/// The same for controllers.
const CONTROLLER_PORT: u16 = 4996;

fn worker_address(text: &str) -> Result<SocketAddr, String> {
    listen_address(text, WORKER_PORT)
}

fn controller_address(text: &str) -> Result<SocketAddr, String> {
    listen_address(text, CONTROLLER_PORT)
}
