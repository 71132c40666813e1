//! `ciaoctl load`: simulated launchers, one driving connection, STARTs as fast as they are taken or one at a time, and
//! an honest account of what became of each.
//!
//! The parts: [`peer`] (lean connections), [`launchers`], [`driver`], [`payloads`], [`record`] (the book), [`process`]
//! (what the server costs), [`report`], [`error`]; and of the options, [`sources`], [`labels`], [`scheduling`].

pub mod driver;
pub mod error;
pub mod labels;
pub mod launchers;
pub mod payloads;
pub mod peer;
pub mod process;
pub mod record;
pub mod report;
pub mod scheduling;
pub mod sources;

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, ValueEnum};
use proto_frames::payload::{Payload, Start};
use proto_frames::{Encoding, Role};
use rustls::pki_types::ServerName;
use tokio::time::Instant;

use crate::flags::{at_least, duration, mebibytes};
use crate::load::driver::{Drive, Driven, Driver};
pub use crate::load::error::LoadError;
use crate::load::labels::Labels;
use crate::load::launchers::{LauncherPlan, Launchers};
use crate::load::payloads::{RUN_LABEL, RunId, StartShape, StartTemplate};
use crate::load::peer::{Dialer, PeerError, client_tls};
use crate::load::process::{Usage, allow_launchers, usage};
use crate::load::record::Recorder;
use crate::load::report::{Report, ServerUsage};
use crate::load::scheduling::Scheduling;
use crate::load::sources::{Sources, Spread};
use crate::net::directory::cert_file;
use crate::net::tls::TrustFiles;

/// Most launchers of a run: five source addresses' worth of ports where Linux gives out as many as it does by default.
pub const MAX_LAUNCHERS: u64 = 100_000;

/// Most STARTs of a run; the book takes 24 bytes for each.
pub const MAX_STARTS: u64 = 10_000_000;

/// Most padding of a START: half of what a frame may carry.
pub const MAX_PAD: u64 = 2 * 1024 * 1024;

/// How long a run waits for missing STARTs after the last news of any, unless `--grace` says otherwise.
const GRACE: Duration = Duration::from_secs(4);

/// The same with `--kill`: a START that a killed launcher had is in doubt for 15 s by default before its failure is
/// told, and a scheduler may be set to more.
const KILL_GRACE: Duration = Duration::from_secs(40);

/// What a load run does.
#[derive(Debug, Clone, Args)]
pub struct LoadArgs {
    /// Simulated launchers
    #[arg(long, default_value_t = 10, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=MAX_LAUNCHERS))]
    pub launchers: u64,
    /// STARTs to send
    #[arg(long, default_value_t = 20_000, value_name = "M", value_parser = clap::value_parser!(u64).range(1..=MAX_STARTS))]
    pub starts: u64,
    /// Keep so many STARTs under way (alone: any number) instead of waiting for each
    #[arg(
        long,
        value_name = "WINDOW",
        num_args = 0..=1,
        require_equals = true,
        default_value = "1",
        default_missing_value = "unlimited"
    )]
    pub pipeline: Window,
    /// What both sides speak; with gob the driving side is a controller and has to be master
    #[arg(long, value_enum, default_value_t = EncodingArg::Native)]
    pub encoding: EncodingArg,
    /// Memory each START asks for, e.g. 512MiB or 2GiB; a number alone is MiB
    #[arg(long, default_value_t = 4096, value_name = "SIZE", value_parser = mebibytes::<u64>(1))]
    pub mem: u64,
    /// Virtual CPUs each START asks for
    #[arg(long, default_value_t = 2, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1 << 20))]
    pub cpus: u64,
    /// Memory each launcher reports, e.g. 512GiB; a number alone is MiB
    #[arg(long, default_value_t = 1 << 40, value_name = "SIZE", value_parser = mebibytes::<u64>(1))]
    pub launcher_mem: u64,
    /// Bytes added to each START's payload
    #[arg(long, default_value_t = 0, value_name = "BYTES", value_parser = clap::value_parser!(u64).range(0..=MAX_PAD))]
    pub pad: u64,
    /// Connect launchers from these addresses of this machine, in turn: a number of loopback addresses from 127.0.0.2
    /// on, or a list [default: as many loopback addresses as they need ports]
    #[arg(long, value_name = "N|ADDRS")]
    pub sources: Option<Sources>,
    /// Labels that launchers report, and how many values each has: of zone=3, launchers have zone-0 to zone-2 in turn
    #[arg(long, value_name = "NAME=N,...")]
    pub labels: Option<Labels>,
    /// The scheduling section of each START: a YAML mapping, or a file with one
    #[arg(long, value_name = "FILE|TEXT")]
    pub scheduling: Option<String>,
    /// STARTs per second at most
    #[arg(long, value_name = "PER_S", value_parser = at_least::<u32>(1))]
    pub rate: Option<u32>,
    /// Run beside nodes and instances that are not the run's own. Its STARTs then require a label that its launchers alone
    /// have, which the scheduler has to look at for each of them
    #[arg(long)]
    pub force: bool,
    /// Cut so many launchers half way
    #[arg(long, default_value_t = 0, value_name = "K")]
    pub kill: u64,
    /// Give up on missing STARTs when nothing has happened for so long [default: 4s, with --kill 40s]
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub grace: Option<Duration>,
    /// Longest time for connecting, and again for sending
    #[arg(long, default_value = "120s", value_name = "DURATION", value_parser = duration)]
    pub time_limit: Duration,
    /// Process of the server, on this machine, whose CPU time and memory to report
    #[arg(long, value_name = "PID")]
    pub pid: Option<u32>,
    /// Threads of the generator
    #[arg(long, default_value = "1", value_name = "N")]
    pub threads: NonZeroUsize,
}

/// How many STARTs may be under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Window {
    /// So many at most.
    Of(NonZeroUsize),
    /// Any number.
    Unlimited,
}

/// The encodings by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum EncodingArg {
    /// This project's
    Native,
    /// The original's
    Gob,
}

/// What a run needs beside its arguments.
#[derive(Debug, Clone)]
pub struct LoadTarget {
    /// Where the scheduler listens.
    pub address: SocketAddr,
    /// The name its certificate is checked for.
    pub name: ServerName<'static>,
    /// Directory with the controller's and the launcher's certificates.
    pub certs: PathBuf,
    /// Files with the CA's certificate and its revocation lists.
    pub trust: TrustFiles,
}

/// A run whose launchers are ready.
struct Run<'a> {
    args: &'a LoadArgs,
    template: StartTemplate,
    recorder: Arc<Recorder>,
    driver: Driver,
    launchers: Launchers,
    connect: Duration,
    /// The server before the first connection.
    idle: Option<Usage>,
}

/// Runs the load and reports.
///
/// # Errors
/// [`LoadError`] where there is nothing to report.
pub async fn run(args: &LoadArgs, target: &LoadTarget) -> Result<Report, LoadError> {
    Run::connect(args, target).await?.measure().await
}

impl<'a> Run<'a> {
    /// Connects both sides and waits until STARTs would be placed.
    async fn connect(args: &'a LoadArgs, target: &LoadTarget) -> Result<Self, LoadError> {
        let id = RunId::new(fastrand::u32(..));
        let template = args.template(id)?;
        let count = args.launchers as usize;
        let sources = Spread::plan(args.sources.as_ref(), count, target.address)?;
        allow_launchers(args.launchers, args.pid)?;
        let controller = client_tls(&cert_file(&target.certs, "Controller"), &target.trust)?;
        let agent = client_tls(&cert_file(&target.certs, "CNAgent"), &target.trust)?;
        let recorder = Arc::new(Recorder::new(args.starts as usize, args.pipeline.limit()));
        let idle = server_usage(args)?;

        let began = Instant::now();
        let deadline = began + args.time_limit;
        let (encoding, role) = args.encoding.driver();
        let dialer =
            |tls, role| Dialer::new(tls, target.name.clone(), target.address, role, encoding);
        let mut driver = Driver::connect(&dialer(controller, role), encoding, id, recorder.clone())
            .await
            .map_err(|source| LoadError::Driver {
                address: target.address,
                source,
            })?;
        let plan = LauncherPlan {
            count,
            victims: args.kill.min(args.launchers) as usize,
            mem_mib: args.launcher_mem,
            run: id,
            sources,
            labels: args.labels.clone().unwrap_or_default(),
            mark: args.force.then(|| (RUN_LABEL.to_owned(), id.mark())),
        };
        let dialer = dialer(agent, Role::AGENT);
        let launchers = Launchers::connect(dialer, plan, recorder.clone(), deadline).await;
        wait_until_ready(&mut driver, &launchers, target, deadline).await?;
        Ok(Self {
            args,
            template,
            recorder,
            driver,
            launchers,
            connect: began.elapsed(),
            idle,
        })
    }

    /// Sends the STARTs and sums up.
    async fn measure(mut self) -> Result<Report, LoadError> {
        let connected = server_usage(self.args)?;
        let own = own_usage();
        let (driven, killed) = self.drive().await;
        let own_cpu_s = own_usage().cpu_s_since(&own);
        // A server that is gone by now has no figures, but the run has.
        let after = server_usage(self.args).ok().flatten();
        let usages = self.idle.zip(connected).zip(after);
        Ok(Report {
            encoding: self.args.encoding.name(),
            pipeline: self.args.pipeline.to_string(),
            launchers: self.args.launchers as usize,
            connected: self.launchers.connected(),
            connect: self.connect,
            connect_errors: self.launchers.errors(),
            cut: self.launchers.cut(),
            killed,
            start_len: self.template.size(),
            totals: self.recorder.totals(),
            span: self.recorder.span(),
            latencies: self.recorder.latencies(),
            spread: self.launchers.spread(),
            own_cpu_s,
            server: usages.map(|((idle, connected), after)| ServerUsage {
                idle,
                connected,
                after,
            }),
            stopped: driven.stopped,
        })
    }

    /// Sends the STARTs, cuts the victims half way, and waits until the fate of each START is known or nothing happens
    /// any more.
    async fn drive(&mut self) -> (Driven, usize) {
        let args = self.args;
        let deadline = Instant::now() + args.time_limit;
        let drive = Drive {
            starts: args.starts as usize,
            template: self.template.clone(),
            rate: args.rate.map(f64::from),
            deadline,
        };
        let mut killed = 0;
        let launchers = &mut self.launchers;
        let driven = self
            .driver
            .drive(&drive, || killed = launchers.kill_victims())
            .await;
        let grace = args
            .grace
            .unwrap_or(if args.kill > 0 { KILL_GRACE } else { GRACE });
        self.driver
            .settle(driven.sent, grace, deadline + grace)
            .await;
        (driven, killed)
    }
}

/// Waits until the scheduler has dealt with every launcher's READY and would take STARTs from the driving side.
async fn wait_until_ready(
    driver: &mut Driver,
    launchers: &Launchers,
    target: &LoadTarget,
    deadline: Instant,
) -> Result<(), LoadError> {
    let connected = launchers.connected();
    if connected == 0 {
        let reason = launchers
            .errors()
            .into_keys()
            .next()
            .unwrap_or_else(|| "no reason given".into());
        return Err(LoadError::NoLauncher {
            address: target.address,
            reason,
        });
    }
    if let Err(ready) = driver.wait_for_reports(connected, deadline).await {
        return Err(match driver.closed() {
            Some(_) => LoadError::Driver {
                address: target.address,
                source: PeerError::Closed,
            },
            None => LoadError::NotReady {
                ready,
                launchers: connected,
            },
        });
    }
    if driver.is_heeded().await {
        Ok(())
    } else {
        Err(LoadError::NotMaster)
    }
}

fn server_usage(args: &LoadArgs) -> Result<Option<Usage>, LoadError> {
    args.pid
        .map(|pid| usage(pid).ok_or(LoadError::NoProcess(pid)))
        .transpose()
}

fn own_usage() -> Usage {
    usage(std::process::id()).unwrap_or_default()
}

impl LoadArgs {
    /// The STARTs that the arguments describe.
    fn template(&self, run: RunId) -> Result<StartTemplate, LoadError> {
        let scheduling = self.scheduling.as_deref().map(Scheduling::read);
        let mut scheduling = scheduling.transpose()?;
        if self.force {
            let own = format!("{RUN_LABEL} = {}", run.mark());
            scheduling = Some(Scheduling::requiring(scheduling.as_ref(), &own)?);
        }
        let shape = StartShape {
            mem_mib: self.mem,
            vcpus: self.cpus,
            node: None,
            pad: self.pad as usize,
            scheduling: scheduling.as_ref(),
        };
        let template = StartTemplate::new(run, shape);
        Start::decode(&template.start(0)).map_err(|e| LoadError::Scheduling {
            reason: format!("no START could be read with it: {e}"),
        })?;
        Ok(template)
    }
}

impl EncodingArg {
    fn driver(self) -> (Encoding, Role) {
        match self {
            Self::Native => (Encoding::Native, Role::OPERATOR),
            Self::Gob => (Encoding::Gob, Role::CONTROLLER),
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Native => "native",
            Self::Gob => "gob",
        }
    }
}

impl Window {
    fn limit(self) -> Option<usize> {
        match self {
            Self::Of(size) => Some(size.get()),
            Self::Unlimited => None,
        }
    }
}

impl FromStr for Window {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "unlimited" => Ok(Self::Unlimited),
            _ => text
                .parse()
                .map(Self::Of)
                .map_err(|_| "a number from 1, or unlimited".into()),
        }
    }
}

impl std::fmt::Display for Window {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Of(NonZeroUsize::MIN) => f.write_str("closed loop"),
            Self::Of(size) => write!(f, "window of {size}"),
            Self::Unlimited => f.write_str("unlimited pipeline"),
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        load: LoadArgs,
    }

    #[test]
    fn pipeline_alone_is_unlimited_and_its_absence_a_closed_loop() {
        for (line, text) in [
            ("x", "closed loop"),
            ("x --pipeline", "unlimited pipeline"),
            ("x --pipeline=unlimited", "unlimited pipeline"),
            ("x --pipeline=64", "window of 64"),
        ] {
            let line = Line::try_parse_from(line.split(' '))
                .map_err(|e| e.to_string())
                .unwrap();
            assert_eq!(line.load.pipeline.to_string(), text);
        }
        for line in [
            "x --pipeline=0",
            "x --pipeline=fast",
            "x --launchers 100001",
            "x --starts 0",
        ] {
            assert!(Line::try_parse_from(line.split(' ')).is_err(), "{line}");
        }
    }
}
