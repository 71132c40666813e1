//! The command line of `ciao-launcher`, and what it makes of it: a [`Config`].

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use ciao_scheduler::flags::{CrlFlags, DEFAULT_CACERT, at_least, mebibytes, reported_disk};
use ciao_scheduler::launcher::agent::{Features, PressureLimits, Workloads};
use ciao_scheduler::launcher::simulate::Simulation;
use ciao_scheduler::launcher::supervise::{Program, ProgramError};
use ciao_scheduler::launcher::{
    CacheConfig, Config, DEFAULT_CACHE_QUOTA, DEFAULT_CPU_RATIO, DEFAULT_KEEP_OUTPUT_BYTES,
    DEFAULT_KEEP_OUTPUT_FOR, DEFAULT_LEASE, DEFAULT_PRESSURE_FILE, DEFAULT_PRESSURE_LIMIT,
    DEFAULT_RECONNECT_CAP, DEFAULT_REPORT_INTERVAL, DEFAULT_STOP_GRACE, DEFAULT_SWAP_LIMIT,
    KeepOutput, MachineConfig, Share, ShareError, metrics_address, node_uuid,
};
use ciao_scheduler::logging::LogFlags;
use ciao_scheduler::net::tls::{ClientFiles, ClientTls, KeyFiles, TlsError};
use clap::{Parser, ValueEnum};
use proto_frames::{Encoding, Role, Uuid};
use tracing::warn;

use crate::features::{FeatureFlags, FeaturesError};
use crate::pinning::PinName;
use crate::servers::{self, Servers};

/// Most simulated nodes of one process: far beyond it, a machine runs out of ports for connections to one scheduler.
const MAX_COUNT: u32 = 50_000;

/// Fewest reports in the time of a lease: two may be lost, or late.
const MIN_LEASE_REPORTS: u32 = 3;

/// Reports in the time of a lease that was not chosen, as with the default interval.
const DEFAULT_LEASE_REPORTS: u32 = 5;

/// Roles that a launcher can have.
const LAUNCHER_ROLES: Role = Role(Role::AGENT.0 | Role::NETAGENT.0);

/// Runs workloads on this node for a scheduler.
#[derive(Debug, Parser)]
#[command(name = "ciao-launcher", version = ciao_scheduler::VERSION, args_override_self = true)]
pub(crate) struct Cli {
    /// Certificate and private key of this node, one PEM file
    #[arg(
        long,
        value_name = "FILE",
        default_value = "/etc/pki/ciao/cert-CNAgent-localhost.pem"
    )]
    pub(crate) cert: PathBuf,
    /// CA certificate of the cluster
    #[arg(long, value_name = "FILE", default_value = DEFAULT_CACERT)]
    pub(crate) cacert: PathBuf,
    /// Which certificates are revoked
    #[command(flatten)]
    pub(crate) crls: CrlFlags,
    /// Refuse a certificate file whose private key others can read, rather than warn of it
    #[arg(long)]
    pub(crate) strict_files: bool,
    /// Where the scheduler is: HOST or HOST:PORT, with commas between several; tried before the names in the CA
    /// certificate and localhost
    #[arg(long, value_name = "ADDR")]
    pub(crate) server: Option<Servers>,
    /// Name to expect in the scheduler's certificate, where it is not the one that is dialled
    #[arg(long, value_name = "NAME", requires = "server")]
    pub(crate) server_name: Option<String>,
    /// Roles to claim of those the certificate grants; all of them unless given
    #[arg(long, value_enum, value_delimiter = ',')]
    pub(crate) role: Vec<LauncherRole>,
    /// Encoding to speak: native, or gob as the original's schedulers need
    #[arg(long, value_enum, default_value = "native")]
    pub(crate) encoding: EncodingName,

    /// UUID of this node; the one that its certificate is bound to, or else is kept in the state directory, unless given
    #[arg(long)]
    pub(crate) uuid: Option<Uuid>,
    /// Host name to report; the machine's unless given
    #[arg(long, value_name = "NAME")]
    pub(crate) hostname: Option<String>,
    /// Where to keep what must survive a restart; each launcher needs its own
    #[arg(long, value_name = "DIR", default_value = "/var/lib/ciao/launcher")]
    pub(crate) state_dir: PathBuf,
    /// Time between two reports
    #[arg(long, value_name = "TIME", value_parser = time, default_value_t = DEFAULT_REPORT_INTERVAL.into())]
    pub(crate) report_interval: humantime::Duration,
    /// Time between asking a workload to end (TERM) and killing it
    #[arg(long, value_name = "TIME", default_value_t = DEFAULT_STOP_GRACE.into())]
    pub(crate) stop_grace: humantime::Duration,
    /// How long after a report that the scheduler has heard instances with on_node_loss: restart run; 0 = take none of
    /// them. At least three times the report interval; 30s, or five times the interval if that is more, unless given
    #[arg(long, value_name = "TIME")]
    pub(crate) lease: Option<humantime::Duration>,
    /// Longest wait before the next try to connect
    #[arg(long, value_name = "TIME", value_parser = time, default_value_t = DEFAULT_RECONNECT_CAP.into())]
    pub(crate) reconnect_cap: humantime::Duration,
    /// Serve metrics over plain HTTP at ADDRESS:PORT, or at a port of 127.0.0.1; not at all unless given
    #[arg(long, value_name = "ADDR", value_parser = metrics_address)]
    pub(crate) metrics: Option<SocketAddr>,
    /// How long the output and working directory of an ended instance are kept, whatever ended it; 0 = not at all
    #[arg(long, value_name = "TIME", default_value_t = DEFAULT_KEEP_OUTPUT_FOR.into())]
    pub(crate) keep_output_for: humantime::Duration,
    /// Bytes that what is kept of ended instances may take; it counts as used disk of the node. The newest come first, and
    /// output before working directories
    #[arg(long, value_name = "BYTES", default_value_t = DEFAULT_KEEP_OUTPUT_BYTES)]
    pub(crate) keep_output_bytes: u64,
    /// Where programs are kept that STARTs name by their digest (`ciaoctl push`); `images` in the state directory unless
    /// given; each launcher needs its own
    #[arg(long, value_name = "DIR")]
    pub(crate) blob_cache: Option<PathBuf>,
    /// What they may take, e.g. 512MiB or 4GiB; a number alone is MiB. What no instance runs goes where there is no room,
    /// least recently used first [default: 4GiB]
    #[arg(long, value_name = "SIZE", value_parser = mebibytes::<i64>(1))]
    pub(crate) blob_cache_quota: Option<i64>,
    /// The program to run beside each instance: a ciao-supervisor of the same build; the one beside this program, or else
    /// this program itself, unless given
    #[arg(long, value_name = "PROGRAM")]
    pub(crate) supervisor: Option<PathBuf>,
    /// Stop the workloads when the launcher gets SIGTERM or SIGINT; without this flag they run on
    #[arg(long)]
    pub(crate) stop_on_exit: bool,

    /// Hand out no more memory than this, e.g. 512MiB or 2GiB; a number alone is MiB
    #[arg(long, value_name = "SIZE", value_parser = mebibytes::<i64>(1))]
    pub(crate) mem: Option<i64>,
    /// Hand out no more processors than this
    #[arg(long, value_name = "N", value_parser = at_least::<i64>(1))]
    pub(crate) cpus: Option<i64>,
    /// Hand out no more disk than this, e.g. 10GiB; a number alone is MiB. Nodes report disk in units of 10^6 bytes
    #[arg(long, value_name = "SIZE", value_parser = reported_disk)]
    pub(crate) disk: Option<i64>,
    /// Vcpus to hand out for each processor, where the scheduler does not say
    #[arg(long, value_name = "RATIO", value_parser = ratio, default_value_t = DEFAULT_CPU_RATIO)]
    pub(crate) cpu_ratio: f64,

    /// Take no more work while all processes wait for memory for this part of the time or more, in percent; 0 = never mind
    #[arg(long, value_name = "PERCENT", value_parser = percent, default_value_t = DEFAULT_PRESSURE_LIMIT)]
    pub(crate) pressure_limit: i64,
    /// Take no more work while this part of the swap space or more is in use, in percent; 0 = never mind
    #[arg(long, value_name = "PERCENT", value_parser = percent, default_value_t = DEFAULT_SWAP_LIMIT)]
    pub(crate) swap_limit: i64,
    /// Where the kernel says how long processes wait for memory
    #[arg(long, value_name = "FILE", default_value = DEFAULT_PRESSURE_FILE)]
    pub(crate) pressure_file: PathBuf,

    /// Give each instance a cgroup of its own in this one (version 2); in the launcher's own where that is delegated,
    /// unless given
    #[arg(long, value_name = "DIR")]
    pub(crate) cgroup: Option<PathBuf>,

    /// Give each instance as many processors of its own as it asks for vcpus: whole cores first, or on one NUMA node where
    /// they fit, near the instance's devices. One for which there are not enough runs on all
    #[arg(long, value_enum, value_name = "HOW", default_value = "none")]
    pub(crate) pin: PinName,

    /// The node attributes that READY reports.
    #[command(flatten)]
    pub(crate) features: FeatureFlags,

    /// Make up a machine and run nothing: mem=MIB,cpus=N,disk=MB, run=SECONDS for workloads that end by themselves, and
    /// use=PERCENT for what they use of what they asked for; --label and --resource say what else it has
    #[arg(long, value_name = "RESOURCES")]
    pub(crate) simulate: Option<Simulation>,
    /// Make up so many nodes, each with its own connection and UUID
    #[arg(long, value_name = "N", default_value_t = 1, requires = "simulate", value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_COUNT)))]
    pub(crate) count: u32,

    /// How to log.
    #[command(flatten)]
    pub(crate) log: LogFlags,
}

/// A role on the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum LauncherRole {
    /// AGENT: compute node.
    Agent,
    /// NETAGENT: network node.
    Netagent,
}

/// An encoding on the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum EncodingName {
    /// This project's.
    Native,
    /// The original's.
    Gob,
}

/// Why a command line makes no launcher.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CliError {
    /// A certificate cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The certificate does not make a launcher.
    #[error("{} grants {granted}, which no launcher is; it needs AGENT or NETAGENT (ciao-cert -role agent)", path.display())]
    NoLauncher {
        /// The certificate's file.
        path: PathBuf,
        /// What it grants.
        granted: Role,
    },
    /// The certificate does not grant what was asked for.
    #[error("{} does not grant {wanted}, only {granted}; leave --role out or use another certificate", path.display())]
    NotGranted {
        /// The certificate's file.
        path: PathBuf,
        /// What was asked for.
        wanted: Role,
        /// What it grants.
        granted: Role,
    },
    /// The certificate is bound to another UUID than was given.
    #[error(
        "--uuid {given} is not the UUID that {} is bound to, {bound}; leave --uuid out or use another certificate",
        path.display()
    )]
    OtherUuid {
        /// The certificate's file.
        path: PathBuf,
        /// What it is bound to.
        bound: Uuid,
        /// What was given.
        given: Uuid,
    },
    /// The certificate is bound to another node than the state directory is of.
    #[error(
        "{} is bound to the UUID {bound}, and the state directory {} is that of node {known}; make a certificate for this \
         node (ciao-cert -node NAME -uuid {known}), give another --state-dir, or say --uuid {bound} to make it that node",
        path.display(), state_dir.display()
    )]
    OtherNode {
        /// The certificate's file.
        path: PathBuf,
        /// What it is bound to.
        bound: Uuid,
        /// The state directory.
        state_dir: PathBuf,
        /// The node it is of.
        known: Uuid,
    },
    /// Several nodes are to share a certificate that is bound to one.
    #[error(
        "{} is bound to the UUID {bound}: it is for one node, not for {count}; use one that is not bound (ciao-cert -role)",
        path.display()
    )]
    BoundToOne {
        /// The certificate's file.
        path: PathBuf,
        /// What it is bound to.
        bound: Uuid,
        /// How many nodes there were to be.
        count: u32,
    },
    /// The node cannot say so of itself.
    #[error(transparent)]
    Features(#[from] FeaturesError),
    /// The lease is over before a lost report can be made up for.
    #[error(
        "--lease {lease} must be at least {MIN_LEASE_REPORTS} times --report-interval, which is {interval}"
    )]
    ShortLease {
        /// The lease.
        lease: humantime::Duration,
        /// The time between two reports.
        interval: humantime::Duration,
    },
    /// More is to be handed out than the machine has.
    #[error(transparent)]
    Share(#[from] ShareError),
    /// The program that is to be the supervisor cannot be that.
    #[error("--supervisor: {0}")]
    Supervisor(#[from] ProgramError),
}

impl Cli {
    /// Reads the certificates and makes the configuration.
    ///
    /// # Errors
    /// [`CliError`].
    pub(crate) fn config(self) -> Result<Config, CliError> {
        let key_files = KeyFiles::new(self.strict_files);
        key_files.check(&self.cert, |said| {
            warn!(event = "key_file_open_to_others", "{said}")
        })?;
        let files = ClientFiles {
            cert: self.cert.clone(),
            trust: self.crls.trust(self.cacert.clone()),
        };
        let credentials = files.read()?;
        let role = self.role(credentials.roles)?;
        let (endpoints, servers_said) = servers::endpoints(
            self.server.as_ref(),
            self.server_name.as_deref(),
            &credentials.server_names,
        );
        let machine = self.machine(self.uuid(credentials.bound_uuid)?)?;
        let lease = self.lease()?;
        let found = match machine {
            MachineConfig::Real { .. } => self.features.detect().find(),
            MachineConfig::Simulated { .. } => Features::default(),
        };
        let mut features = self.features.clone().features(found)?;
        if let MachineConfig::Real { .. } = machine {
            features.processors = self.pin.processors(&features);
        }
        Ok(Config {
            servers_said,
            features,
            encoding: match self.encoding {
                EncodingName::Native => Encoding::Native,
                EncodingName::Gob => Encoding::Gob,
            },
            reconnect_cap: self.reconnect_cap.into(),
            report_interval: self.report_interval.into(),
            stop_grace: self.stop_grace.into(),
            lease,
            cpu_ratio: self.cpu_ratio,
            pressure_limits: PressureLimits {
                stalled_percent: Some(self.pressure_limit).filter(|limit| *limit > 0),
                swap_percent: Some(self.swap_limit).filter(|limit| *limit > 0),
            },
            pressure_file: self.pressure_file,
            hostname: self.hostname,
            metrics: self.metrics,
            keep_output: KeepOutput {
                age: self.keep_output_for.into(),
                bytes: self.keep_output_bytes,
            },
            at_shutdown: if self.stop_on_exit {
                Workloads::Stop
            } else {
                Workloads::Leave
            },
            ..Config::new(
                endpoints,
                ClientTls::of_files(files, credentials, role),
                role,
                machine,
            )
        })
    }

    fn role(&self, certified: Role) -> Result<Role, CliError> {
        let granted = Role(certified.0 & LAUNCHER_ROLES.0);
        let path = || self.cert.clone();
        if granted.is_empty() {
            return Err(CliError::NoLauncher {
                path: path(),
                granted: certified,
            });
        }
        let mut wanted = Role::default();
        for role in &self.role {
            wanted |= match role {
                LauncherRole::Agent => Role::AGENT,
                LauncherRole::Netagent => Role::NETAGENT,
            };
        }
        match wanted {
            wanted if wanted.is_empty() => Ok(granted),
            wanted if granted.contains(wanted) => Ok(wanted),
            wanted => Err(CliError::NotGranted {
                path: path(),
                wanted,
                granted,
            }),
        }
    }

    fn lease(&self) -> Result<Option<Duration>, CliError> {
        let interval = *self.report_interval;
        match self.lease.map(Duration::from) {
            None => Ok(Some(DEFAULT_LEASE.max(interval * DEFAULT_LEASE_REPORTS))),
            Some(Duration::ZERO) => Ok(None),
            Some(lease) if lease < interval * MIN_LEASE_REPORTS => Err(CliError::ShortLease {
                lease: lease.into(),
                interval: interval.into(),
            }),
            lease => Ok(lease),
        }
    }

    /// The node's UUID where it is known before its state directory is opened: that of the certificate, if it is bound
    /// to one, since the scheduler takes no other with it.
    fn uuid(&self, bound: Option<Uuid>) -> Result<Option<Uuid>, CliError> {
        let Some(bound) = bound else {
            return Ok(self.uuid);
        };
        let path = || self.cert.clone();
        if let Some(given) = self.uuid.filter(|given| *given != bound) {
            return Err(CliError::OtherUuid {
                path: path(),
                bound,
                given,
            });
        }
        if self.simulate.is_some() {
            return match self.count {
                1 => Ok(Some(bound)),
                count => Err(CliError::BoundToOne {
                    path: path(),
                    bound,
                    count,
                }),
            };
        }
        // With --uuid it is said that the directory is to become this node's.
        match node_uuid(&self.state_dir) {
            Some(known) if known != bound && self.uuid.is_none() => Err(CliError::OtherNode {
                path: path(),
                bound,
                state_dir: self.state_dir.clone(),
                known,
            }),
            _ => Ok(Some(bound)),
        }
    }

    fn share(&self) -> Result<Share, ShareError> {
        let share = Share {
            mem_mb: self.mem,
            cpus: self.cpus,
            disk_mb: self.disk,
        };
        share.check(&self.state_dir)?;
        Ok(share)
    }

    fn machine(&self, uuid: Option<Uuid>) -> Result<MachineConfig, CliError> {
        let given = self.supervisor.as_deref().map(Program::at).transpose()?;
        Ok(match self.simulate {
            Some(simulation) => MachineConfig::Simulated {
                simulation,
                uuids: uuids(uuid, self.count),
            },
            None => MachineConfig::Real {
                state_dir: self.state_dir.clone(),
                uuid,
                share: self.share()?,
                supervisor: given.unwrap_or_else(Program::installed),
                cgroup: self.cgroup.clone(),
                images: self.image_cache(),
            },
        })
    }
}

impl Cli {
    /// Where images are kept, if that or how many was said.
    fn image_cache(&self) -> Option<CacheConfig> {
        if self.blob_cache.is_none() && self.blob_cache_quota.is_none() {
            return None;
        }
        let usual = || self.state_dir.join("images");
        let quota = self.blob_cache_quota.map(i64::unsigned_abs);
        Some(CacheConfig {
            directory: self.blob_cache.clone().unwrap_or_else(usual),
            quota: quota.map_or(DEFAULT_CACHE_QUOTA, |mib| mib.saturating_mul(1 << 20)),
        })
    }
}

/// UUIDs for simulated nodes: the first as given, further ones derived from it, so that the same nodes come back.
fn uuids(first: Option<Uuid>, count: u32) -> Vec<Uuid> {
    let first = first.unwrap_or_else(Uuid::new_v4);
    let further = (1..count).map(|number| Uuid::new_v5(&first, &number.to_be_bytes()));
    std::iter::once(first).chain(further).collect()
}

/// A time that something is repeated after.
fn time(text: &str) -> Result<humantime::Duration, String> {
    let time: humantime::Duration = text
        .parse()
        .map_err(|error: humantime::DurationError| error.to_string())?;
    if *time < Duration::from_millis(100) {
        Err("must be at least 100ms".to_owned())
    } else {
        Ok(time)
    }
}

fn percent(text: &str) -> Result<i64, String> {
    match text.parse() {
        Ok(percent) if (0..=100).contains(&percent) => Ok(percent),
        _ => Err("must be a whole number from 0 to 100".to_owned()),
    }
}

fn ratio(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(ratio) if (0.1..=1000.0).contains(&ratio) => Ok(ratio),
        _ => Err("must be a number from 0.1 to 1000".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, Parser};
    use proto_frames::{Role, Uuid};

    use super::{Cli, CliError, uuids};
    use ciao_scheduler::flags::double_dashes;

    fn cli(args: &[&str]) -> Cli {
        let args = std::iter::once("ciao-launcher").chain(args.iter().copied());
        Cli::try_parse_from(double_dashes(args.map(Into::into), &['h', 'V'])).unwrap()
    }

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn one_dash_is_as_good_as_two() {
        let cli = cli(&[
            "-cert",
            "a.pem",
            "-cacert=b.pem",
            "-server",
            "node:1",
            "-server-name",
            "sched.example",
            "-simulate",
            "mem=1,cpus=1,disk=1",
            "-count=3",
        ]);
        assert_eq!(cli.cert.to_str(), Some("a.pem"));
        assert_eq!(cli.server.unwrap().first().port, 1);
        assert_eq!(cli.server_name.as_deref(), Some("sched.example"));
        assert_eq!(cli.count, 3);
    }

    #[test]
    fn absurd_amounts_are_refused() {
        for args in [
            ["--mem", "0"],
            ["--cpu-ratio", "0"],
            ["--report-interval", "1ms"],
            ["--count", "2"],
            ["--server", "a:b"],
        ] {
            let args = std::iter::once("ciao-launcher").chain(args);
            assert!(
                Cli::try_parse_from(args.clone()).is_err(),
                "{:?}",
                args.collect::<Vec<_>>()
            );
        }
    }

    #[test]
    fn a_lease_outlives_some_reports_and_can_be_switched_off() {
        let lease = |args: &[&str]| {
            cli(args)
                .lease()
                .ok()
                .map(|lease| lease.map(|it| it.as_secs()))
        };
        assert_eq!(lease(&[]), Some(Some(30)));
        assert_eq!(lease(&["--report-interval", "20s"]), Some(Some(100)));
        assert_eq!(lease(&["--lease", "18s"]), Some(Some(18)));
        assert_eq!(lease(&["--lease", "0"]), Some(None));
        assert_eq!(lease(&["--lease", "17s"]), None);
    }

    #[test]
    fn roles_are_the_certificates_unless_fewer_are_asked_for() {
        let both = Role::AGENT | Role::NETAGENT;
        assert_eq!(cli(&[]).role(both | Role::CONTROLLER).unwrap(), both);
        assert_eq!(
            cli(&["--role", "netagent"]).role(both).unwrap(),
            Role::NETAGENT
        );
        assert!(matches!(
            cli(&["--role", "agent"]).role(Role::NETAGENT),
            Err(CliError::NotGranted { .. })
        ));
        assert!(matches!(
            cli(&[]).role(Role::CONTROLLER),
            Err(CliError::NoLauncher { .. })
        ));
    }

    #[test]
    fn simulated_nodes_keep_their_uuids_between_runs() {
        let first = Uuid::new_v4();
        let nodes = uuids(Some(first), 100);
        assert_eq!((nodes.len(), nodes[0]), (100, first));
        assert_eq!(nodes, uuids(Some(first), 100));
        assert_eq!(
            nodes
                .iter()
                .collect::<std::collections::BTreeSet<_>>()
                .len(),
            100
        );
    }
}
