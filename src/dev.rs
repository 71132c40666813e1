//! `ciao-scheduler dev`: a whole cluster on this machine, in one process: throw-away certificates, the scheduler on
//! loopback, and launchers that really run processes, each with a share of the machine.
//!
//! Not for production: everything lives in one private directory and ends with the process.

mod cluster;
mod directory;
mod starts;

use std::io::Write;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;

use crate::ctl::exit::Exit;
use crate::logging::{self, Destination, LogFlags};
use crate::shutdown::{self, OnHangup};
use cluster::Cluster;
use directory::Directory;

/// Launchers, unless said otherwise: enough to see placement at work.
const DEFAULT_NODES: NonZeroU32 = NonZeroU32::new(3).expect("three is not zero");

/// Most launchers: each has its share of one machine.
const MAX_NODES: i64 = 64;

/// How to run a cluster on this machine.
#[derive(Debug, Args)]
pub struct DevFlags {
    /// START files to submit at once; shows where each went and how it ended
    #[arg(long, value_name = "FILE", num_args = 1..)]
    pub start: Vec<PathBuf>,
    /// Instances of each START file
    #[arg(long, value_name = "N", default_value = "1", requires = "start")]
    pub count: NonZeroU32,
    /// End once the STARTs have ended, with their output and an exit code that tells how they went
    #[arg(long, requires = "start")]
    pub once: bool,
    /// Longest time to wait for the STARTs to end
    #[arg(long, value_name = "TIME", default_value = "1h", value_parser = humantime::parse_duration)]
    pub timeout: Duration,
    /// Launchers, each with an equal share of the machine, in zones a and b in turn
    #[arg(long, value_name = "N", default_value_t = DEFAULT_NODES, value_parser = nodes)]
    pub nodes: NonZeroU32,
    /// Port on 127.0.0.1 [default: 8888, or any free one if that is taken]
    #[arg(long)]
    pub port: Option<u16>,
    /// Keep certificates, logs and output in this directory [default: a new private one, removed at the end]
    #[arg(long, value_name = "DIR")]
    pub directory: Option<PathBuf>,
    /// Verbosity of the logs, which are in the directory's logs/
    #[command(flatten)]
    pub log: LogFlags,
}

fn nodes(text: &str) -> Result<NonZeroU32, String> {
    let number: NonZeroU32 = text.parse().map_err(|error| format!("{error}"))?;
    if i64::from(number.get()) > MAX_NODES {
        return Err(format!("at most {MAX_NODES} launchers share one machine"));
    }
    Ok(number)
}

/// Runs the cluster until it is told to stop or, with `--once`, until the STARTs have ended.
///
/// # Errors
/// The cluster cannot be brought up, or a START file not be read: says which part, and why.
pub fn run(flags: DevFlags) -> anyhow::Result<ExitCode> {
    let requests = starts::read(&flags.start, flags.count)?;
    let directory =
        Directory::open(flags.directory.clone()).context("cannot make a private directory")?;
    let log = LogFlags {
        log_dir: Some(directory.logs()),
        ..flags.log.clone()
    };
    let _log = logging::init(&log, "ciao-dev", Destination::Stderr)?;
    let runtime = tokio::runtime::Runtime::new().context("cannot start the runtime")?;
    let exit: anyhow::Result<Exit> = runtime.block_on(async {
        let stop = shutdown::requested(OnHangup::Stop).context("cannot listen for signals")?;
        tokio::pin!(stop);
        let cluster = tokio::select! {
            // What is up so far goes down with the runtime.
            () = &mut stop => return Ok(Exit::Done),
            cluster = Cluster::start(&flags, &directory) => cluster?,
        };
        let exit = tokio::select! {
            () = &mut stop => Ok(Exit::Done),
            exit = serve(&flags, &cluster, requests) => exit,
            why = cluster.failure() => Err(anyhow::Error::msg(why)),
        };
        cluster.stop().await;
        exit
    });
    Ok(exit?.into())
}

async fn serve(
    flags: &DevFlags,
    cluster: &Cluster,
    requests: Vec<crate::ctl::start_file::StartRequest>,
) -> anyhow::Result<Exit> {
    let mut out = std::io::stdout();
    writeln!(out, "{}", cluster.greeting())?;
    if !requests.is_empty() {
        let exit = starts::follow(cluster, &requests, flags.timeout, &mut out).await?;
        if flags.once {
            return Ok(exit);
        }
    }
    writeln!(out, "Ctrl-C ends the cluster and everything it runs.")?;
    std::future::pending().await
}
