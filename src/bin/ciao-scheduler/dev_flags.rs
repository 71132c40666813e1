//! The command line of `ciao-scheduler dev`.

use std::num::NonZeroU32;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use ciao_scheduler::dev::{self, DevConfig, MAX_NODES, MAX_SCHEDULERS};
use ciao_scheduler::flags::{at_least, duration};
use ciao_scheduler::logging::LogFlags;
use clap::Args;

/// Launchers, unless said otherwise: enough to see placement at work.
const DEFAULT_NODES: NonZeroU32 = NonZeroU32::new(3).expect("three is not zero");

/// How to run a cluster on this machine.
#[derive(Debug, Args)]
pub(crate) struct DevFlags {
    /// START files to submit at once; shows where each went and how it ended
    #[arg(long, value_name = "FILE", num_args = 1..)]
    start: Vec<PathBuf>,
    /// Instances of each START file
    #[arg(long, value_name = "N", default_value = "1", requires = "start", value_parser = count)]
    count: NonZeroU32,
    /// End once the STARTs have ended, with their output and an exit code that tells how they went
    #[arg(long, requires = "start")]
    once: bool,
    /// Longest time to wait for the STARTs to end
    #[arg(long, value_name = "TIME", default_value = "1h", value_parser = duration)]
    timeout: Duration,
    /// Launchers, each with an equal share of the machine, in zones a and b in turn
    #[arg(long, value_name = "N", default_value_t = DEFAULT_NODES, value_parser = nodes)]
    nodes: NonZeroU32,
    /// Schedulers behind one name, as processes that can be killed: needs etcd, and a program built with --features etcd
    #[arg(long, value_name = "N", default_value_t = NonZeroU32::MIN, conflicts_with = "start", value_parser = schedulers)]
    schedulers: NonZeroU32,
    /// Port on 127.0.0.1 [default: 8888, or any free one if that is taken]
    #[arg(long)]
    port: Option<u16>,
    /// Where the cluster configuration is, with the policy, aggregates and zones, as of the daemon [default:
    /// file:///etc/ciao/configuration.yaml, if it exists]
    #[arg(long = "configuration-uri", value_name = "URI")]
    configuration_uri: Option<String>,
    /// Keep certificates, logs and output in this directory [default: a new private one, removed at the end]
    #[arg(long, value_name = "DIR")]
    directory: Option<PathBuf>,
    /// Write how to reach it as this context of ciaoctl, until it ends; the current context stays as it is, if there is one
    #[arg(long, value_name = "NAME")]
    context: Option<String>,
    /// Verbosity of the logs, which are in the directory's logs/
    #[command(flatten)]
    log: LogFlags,
}

/// Runs the cluster.
///
/// # Errors
/// As [`dev::run`].
pub(crate) fn run(flags: DevFlags) -> anyhow::Result<ExitCode> {
    dev::run(&flags.into())
}

impl From<DevFlags> for DevConfig {
    fn from(flags: DevFlags) -> Self {
        Self {
            start: flags.start,
            count: flags.count,
            once: flags.once,
            timeout: flags.timeout,
            nodes: flags.nodes,
            schedulers: flags.schedulers,
            port: flags.port,
            configuration_uri: flags.configuration_uri,
            directory: flags.directory,
            context: flags.context,
            log: flags.log,
        }
    }
}

fn count(text: &str) -> Result<NonZeroU32, String> {
    let number = at_least::<u32>(1)(text)?;
    NonZeroU32::new(number).ok_or_else(|| "must be at least 1".to_owned())
}

fn schedulers(text: &str) -> Result<NonZeroU32, String> {
    let number = count(text)?;
    match number.get() {
        ..=MAX_SCHEDULERS => Ok(number),
        _ => Err(format!("at most {MAX_SCHEDULERS} schedulers")),
    }
}

fn nodes(text: &str) -> Result<NonZeroU32, String> {
    let number = count(text)?;
    if number.get() > MAX_NODES {
        return Err(format!("at most {MAX_NODES} launchers share one machine"));
    }
    Ok(number)
}
