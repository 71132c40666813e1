//! `ciao-scheduler dev`: a whole cluster on this machine, in one process: throw-away certificates, the scheduler on
//! loopback, and launchers that really run processes, each with a share of the machine. Several schedulers are processes of
//! their own, so that they can be killed.
//!
//! Not for production: everything lives in one private directory and ends with the process.
//!
//! ```text
//! run ─▶ read START files ─▶ Directory ─▶ logs ─▶ Cluster::start ─▶ greeting ─▶ starts::follow ─▶ Cluster::stop
//! ```
//! Four things can end it: Ctrl-C or a signal, the STARTs with `--once`, and a part of the cluster that fails. All of
//! them go through `Cluster::stop`, which ends every workload.

mod cluster;
mod context;
mod directory;
mod several;
mod starts;

use std::io::Write;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;

use crate::ctl::exit::Exit;
use crate::logging::{self, Destination, LogFlags};
use crate::shutdown::{self, OnHangup};
use cluster::Cluster;
use directory::Directory;

/// Most launchers: each has its share of one machine.
pub const MAX_NODES: u32 = 64;

/// Most schedulers: as many as there is something to see of.
pub const MAX_SCHEDULERS: u32 = 5;

/// How to run a cluster on this machine.
#[derive(Debug)]
pub struct DevConfig {
    /// START files to submit at once; where each went and how it ended is shown.
    pub start: Vec<PathBuf>,
    /// Instances of each START file.
    pub count: NonZeroU32,
    /// Whether to end once the STARTs have ended, with their output and an exit code that tells how they went.
    pub once: bool,
    /// Longest time to wait for the STARTs to end.
    pub timeout: Duration,
    /// Launchers, each with an equal share of the machine, in zones a and b in turn; [`MAX_NODES`] at most.
    pub nodes: NonZeroU32,
    /// Schedulers behind one name: more than one are processes, with an etcd of their own.
    pub schedulers: NonZeroU32,
    /// Port on 127.0.0.1; 8888, or any free one if that is taken, unless given.
    pub port: Option<u16>,
    /// Where the cluster configuration is, as [`crate::server::ServerConfig::configuration_uri`].
    pub configuration_uri: Option<String>,
    /// Where certificates, logs and output are kept; a new private directory, removed at the end, unless given.
    pub directory: Option<PathBuf>,
    /// The name of the context of `ciaoctl` to write, if any.
    pub context: Option<String>,
    /// How much is logged; the files are in the directory's `logs/`.
    pub log: LogFlags,
}

/// Runs the cluster until it is told to stop or, with `--once`, until the STARTs have ended.
///
/// START files are read before anything is made, so that a wrong one costs nothing. The exit code with `--once` is
/// that of `ciaoctl start --wait` for the same files.
///
/// # Errors
/// The cluster cannot be brought up, or a START file not be read: says which part, and why.
pub fn run(config: &DevConfig) -> anyhow::Result<ExitCode> {
    let requests = starts::read(&config.start, config.count)?;
    let directory =
        Directory::open(config.directory.clone()).context("cannot make a private directory")?;
    let log = LogFlags {
        log_dir: Some(directory.logs()),
        ..config.log.clone()
    };
    let _log = logging::init(&log, "ciao-dev", Destination::Stderr)?;
    let runtime = tokio::runtime::Runtime::new().context("cannot start the runtime")?;
    let exit: anyhow::Result<Exit> = runtime.block_on(async {
        let stop = shutdown::requested(OnHangup::Stop).context("cannot listen for signals")?;
        tokio::pin!(stop);
        let cluster = tokio::select! {
            // What is up so far goes down with the runtime.
            () = &mut stop => return Ok(Exit::Done),
            cluster = Cluster::start(config, &directory) => cluster?,
        };
        let context = config
            .context
            .as_deref()
            .map(|name| cluster.write_context(name));
        let context = context.transpose()?;
        let exit = tokio::select! {
            () = &mut stop => Ok(Exit::Done),
            exit = serve(config, &cluster, requests) => exit,
            () = tell_next(&cluster) => Ok(Exit::Done),
            why = cluster.failure() => Err(anyhow::Error::msg(why)),
        };
        cluster.stop().await;
        // Its scheduler has ended.
        drop(context);
        exit
    });
    Ok(exit?.into())
}

/// Without `--once` it never returns by itself: the caller drops it.
async fn serve(
    config: &DevConfig,
    cluster: &Cluster,
    requests: Vec<crate::ctl::start_file::StartRequest>,
) -> anyhow::Result<Exit> {
    let mut out = std::io::stdout();
    writeln!(out, "{}", cluster.greeting(config.once))?;
    if !requests.is_empty() {
        let exit = starts::follow(cluster, &requests, config.timeout, &mut out).await?;
        if config.once {
            return Ok(exit);
        }
    }
    writeln!(out, "Ctrl-C ends the cluster and everything it runs.")?;
    std::future::pending().await
}

/// Prints the next address of the page whenever one has been used.
///
/// An address of the page can be used once. Never returns.
async fn tell_next(cluster: &Cluster) {
    let mut pages = cluster.pages();
    while pages.changed().await.is_ok() {
        let page = pages.borrow_and_update().clone();
        // With standard output gone, there is no reader.
        let _ = writeln!(std::io::stdout(), "page for another browser: {page}");
    }
    std::future::pending().await
}
