//! The daemon's command line: the original's flags with their defaults, and what this project adds.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ciao_scheduler::flags::{CrlFlags, DEFAULT_CACERT, at_least, duration, mebibytes};
use ciao_scheduler::logging::{Flag, LogFlags, Logs, path_or_nothing};
use ciao_scheduler::net::address::{DEFAULT_HTTP_PORT, DEFAULT_PLACEMENT_PORT, listen_address};
use ciao_scheduler::net::tls::KeyFiles;
use ciao_scheduler::server::{
    DEFAULT_BLOB_QUOTA, DEFAULT_BLOB_RATE, DEFAULT_PORT, HISTORY_BYTES, HISTORY_TIME,
    HistoryLimits, ImagesConfig, PlacementConfig, ReloadConfig, ServerConfig, ServerLimits,
    parse_ratio,
};
use ciao_scheduler::shutdown::Hangups;
use clap::{ArgGroup, Args, Parser, Subcommand};
use proto_frames::Uuid;
use sched_core::{self, Accounting};

use crate::cluster_flags::{ClusterFlags, HaFlags};
use crate::dev_flags::DevFlags;

/// The original's default certificate.
const DEFAULT_CERT: &str = "/etc/pki/ciao/cert-server-localhost.pem";

/// What is spoken over HTTP: what some flags need.
const OVER_HTTP: &str = "over_http";

/// The default certificate of the original's later releases, tried when the first does not exist.
const LATER_DEFAULT_CERT: &str = "/etc/pki/ciao/cert-Scheduler-localhost.pem";

/// The CA certificate beside it, as `ciao-cert -all` names both.
const LATER_DEFAULT_CACERT: &str = "/etc/pki/ciao/CAcert-localhost.pem";

/// Bytes of a MiB.
const MIB: u64 = 1 << 20;

/// The original's log directory.
pub(crate) const LOG_DIR: &str = "/var/lib/ciao/logs/scheduler";

/// Takes in launchers and controllers over SSNTP and gives every START to a node that fits.
///
/// All flags take one dash or two, as in the original: -cert FILE, --cert=FILE. Given twice, the last one counts.
#[derive(Debug, Parser)]
#[command(
    name = "ciao-scheduler",
    version = ciao_scheduler::VERSION,
    args_conflicts_with_subcommands = true,
    args_override_self = true
)]
pub(crate) struct SchedulerFlags {
    /// What to do instead of running the daemon
    #[command(subcommand)]
    pub(crate) command: Option<SchedulerCommand>,
    /// How to run the daemon
    #[command(flatten)]
    pub(crate) daemon: DaemonFlags,
}

/// What the program can do besides being the daemon.
#[derive(Debug, Subcommand)]
pub(crate) enum SchedulerCommand {
    /// Run a whole cluster on this machine: throw-away certificates, the scheduler, three launchers
    Dev(DevFlags),
    /// Show and operate several schedulers behind one name (--cluster). Needs a program built with --features etcd
    Ha(HaFlags),
}

/// The daemon's flags.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new(OVER_HTTP).multiple(true))]
pub(crate) struct DaemonFlags {
    /// Server certificate with its private key
    #[arg(long, value_name = "FILE", default_value = DEFAULT_CERT)]
    pub(crate) cert: PathBuf,
    /// CA certificate
    #[arg(long, value_name = "FILE", default_value = DEFAULT_CACERT)]
    pub(crate) cacert: PathBuf,
    /// Which certificates are revoked
    #[command(flatten)]
    pub(crate) crls: CrlFlags,
    /// Emit status heartbeat text
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value = "false", hide_default_value = true)]
    pub(crate) heartbeat: Flag,
    /// Write a CPU profile (pprof) to this file when the daemon stops
    #[arg(long, value_name = "FILE", value_parser = path_or_nothing())]
    pub(crate) cpuprofile: Option<PathBuf>,
    /// Where the cluster configuration is; one that is named here must exist [default:
    /// file:///etc/ciao/configuration.yaml, if it exists]
    #[arg(long = "configuration-uri", value_name = "URI")]
    pub(crate) configuration_uri: Option<String>,
    /// What counts over what nodes report of themselves; read once, at start: no signal reads it again
    #[arg(long, value_name = "FILE")]
    pub(crate) node_file: Option<PathBuf>,
    /// Accepted for compatibility: there is nothing to install
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value = "false", hide_default_value = true)]
    pub(crate) osprepare: Flag,
    /// Address to listen on, e.g. 127.0.0.1:8888; may be repeated [default: port 8888 on all interfaces]
    #[arg(long, value_name = "ADDR", value_parser = parse_address)]
    pub(crate) listen: Vec<SocketAddr>,
    /// Address to listen on for HTTP, e.g. 127.0.0.1:8443; may be repeated [default: none]
    #[arg(long, value_name = "ADDR", value_parser = parse_http_address, group = OVER_HTTP)]
    pub(crate) http: Vec<SocketAddr>,
    /// Certificate with its private key that is presented over HTTP [default: that of --cert]
    #[arg(long, value_name = "FILE", requires = OVER_HTTP)]
    pub(crate) http_cert: Option<PathBuf>,
    /// Address at which OpenStack's clients may ask as at the Placement API, e.g. 127.0.0.1:8778; HTTP on loopback
    /// addresses, HTTPS on all others; may be repeated [default: none]
    #[arg(long, value_name = "ADDR", value_parser = parse_placement_address, requires = "placement_tokens", group = OVER_HTTP)]
    pub(crate) placement: Vec<SocketAddr>,
    /// File with the tokens that may ask there, and at --http below /placement; one a line
    #[arg(long, value_name = "FILE", requires = OVER_HTTP)]
    pub(crate) placement_tokens: Option<PathBuf>,
    /// Whether it is one of several
    #[command(flatten)]
    pub(crate) cluster: ClusterFlags,
    /// Directory for what survives a restart: the scheduler's UUID, which nodes to wait for, what waits and runs, and the
    /// history of what has ended; with --cluster for the history alone, as etcd keeps the rest
    #[arg(long, value_name = "DIR")]
    pub(crate) state_dir: Option<PathBuf>,
    /// How long the ends of instances are kept on record, with --state-dir; the oldest are deleted first
    #[arg(long, value_name = "TIME", default_value_t = HISTORY_TIME.into(), value_parser = parse_time, requires = "state_dir")]
    pub(crate) history_time: humantime::Duration,
    /// How much room they may take in the state directory, in MiB unless a unit is given, the oldest deleted first
    #[arg(long, value_name = "MIB", default_value_t = HISTORY_BYTES / MIB, value_parser = mebibytes::<u64>(1), requires = "state_dir")]
    pub(crate) history_bytes: u64,
    /// Let in only nodes whose certificate is bound to their UUID (ciao-cert -node); other roles are not asked for it
    #[arg(long)]
    pub(crate) require_uuid_binding: bool,
    /// Refuse a certificate file whose private key others can read, rather than warn of it
    #[arg(long)]
    pub(crate) strict_files: bool,
    /// Read all files again as soon as one has changed, as with SIGHUP
    #[arg(long)]
    pub(crate) watch_files: bool,
    /// Programs that are shipped
    #[command(flatten)]
    pub(crate) images: ImageFlags,
    /// How running instances count
    #[command(flatten)]
    pub(crate) accounting: AccountingFlags,
    /// Limits of connections, queues and waits
    #[command(flatten)]
    pub(crate) limits: LimitFlags,
    /// Where logs go
    #[command(flatten)]
    pub(crate) log: LogFlags,
}

/// Where programs are kept that launchers fetch.
#[derive(Debug, Args)]
#[command(next_help_heading = "Images")]
pub(crate) struct ImageFlags {
    /// Directory for programs that are shipped to nodes (`ciaoctl push`); none are unless given
    #[arg(long, value_name = "DIR")]
    pub(crate) blob_dir: Option<PathBuf>,
    /// What all of them may take, e.g. 512MiB or 10GiB; a number alone is MiB. What no START names goes where there is no
    /// room, least recently used first [default: 10GiB]
    #[arg(long, value_name = "SIZE", requires = "blob_dir", value_parser = mebibytes::<i64>(1))]
    pub(crate) blob_quota: Option<i64>,
    /// What those of one tenant may take [default: half of --blob-quota]
    #[arg(long, value_name = "SIZE", requires = "blob_dir", value_parser = mebibytes::<i64>(1))]
    pub(crate) blob_tenant_quota: Option<i64>,
    /// What all launchers together may fetch in a second; a quarter of it while STARTs come in [default: 64MiB]
    #[arg(long, value_name = "SIZE", requires = "blob_dir", value_parser = mebibytes::<i64>(1))]
    pub(crate) blob_rate: Option<i64>,
}

impl ImageFlags {
    fn config(&self) -> Option<ImagesConfig> {
        let bytes = |mib: i64| mib.unsigned_abs().saturating_mul(1 << 20);
        let quota = self.blob_quota.map_or(DEFAULT_BLOB_QUOTA, bytes);
        let directory = self.blob_dir.clone()?;
        Some(ImagesConfig {
            quota,
            tenant_quota: self.blob_tenant_quota.map_or(quota / 2, bytes),
            rate: self.blob_rate.map_or(DEFAULT_BLOB_RATE, bytes),
            directory,
        })
    }
}

/// How running instances count against their nodes.
#[derive(Debug, Args)]
#[command(next_help_heading = "Accounting")]
pub(crate) struct AccountingFlags {
    /// Count an instance as what it asked for (requested), or as what it uses once it runs (measured)
    #[arg(long, value_name = "HOW", default_value = "requested", value_parser = parse_accounting)]
    pub(crate) accounting: Accounting,
    /// How far measured accounting looks back; 0 = only the latest report counts
    #[arg(long, value_name = "TIME", default_value_t = sched_core::MEASURED_WINDOW.into(), value_parser = parse_window)]
    pub(crate) measured_window: humantime::Duration,
    /// Which percentile of the memory and processor time that an instance used in that time counts; 100 = the peak
    #[arg(long, value_name = "PERCENT", default_value_t = 100, value_parser = clap::value_parser!(u8).range(1..=100))]
    pub(crate) measured_percentile: u8,
    /// Virtual CPUs offered per CPU
    #[arg(long, value_name = "RATIO", default_value_t = sched_core::CPU_RATIO, value_parser = parse_ratio)]
    pub(crate) cpu_ratio: f64,
    /// Memory offered per memory present
    #[arg(long, value_name = "RATIO", default_value_t = 1.0, value_parser = parse_ratio)]
    pub(crate) mem_ratio: f64,
    /// Disk offered per disk present
    #[arg(long, value_name = "RATIO", default_value_t = 1.0, value_parser = parse_ratio)]
    pub(crate) disk_ratio: f64,
    /// Memory of every node that is never offered, e.g. 512MiB or 2GiB; a number alone is MiB
    #[arg(long, value_name = "SIZE", default_value_t = 0, value_parser = mebibytes::<i64>(0))]
    pub(crate) reserved_mem: i64,
    /// Disk of every node that is never offered, e.g. 512MiB or 2GiB; a number alone is MiB
    #[arg(long, value_name = "SIZE", default_value_t = 0, value_parser = mebibytes::<i64>(0))]
    pub(crate) reserved_disk: i64,
}

/// Every limit that can be set.
#[derive(Debug, Args)]
#[command(next_help_heading = "Limits")]
pub(crate) struct LimitFlags {
    /// How long STARTs written to a node that is lost wait for it
    #[arg(long, value_name = "TIME", default_value = "15s", value_parser = parse_wait)]
    pub(crate) in_doubt_time: Duration,
    /// STATS in a row without an instance after which its claim is dropped
    #[arg(long, value_name = "N", default_value_t = sched_core::MISSED_STATS, value_parser = at_least::<u8>(1))]
    pub(crate) missed_stats: u8,
    /// How long after a restart a START that fits nowhere waits for nodes known before (with --state-dir)
    #[arg(long = "settle-time", value_name = "TIME", default_value = "20s", value_parser = parse_wait)]
    pub(crate) recovery_window: Duration,
    /// Handshakes under way at once; further connections wait for a place, eight for each
    #[arg(long, value_name = "N", default_value_t = ServerLimits::default().max_handshakes, value_parser = parse_positive)]
    pub(crate) max_handshakes: usize,
    /// Percentage of the places for handshakes that one source, an IPv4 address or an IPv6 /64 network, may have
    #[arg(long, value_name = "PERCENT", default_value_t = ServerLimits::default().handshake_share, value_parser = clap::value_parser!(u8).range(1..=100))]
    pub(crate) handshake_share: u8,
    /// Connections at once [default: what the limit of open files allows]
    #[arg(long, value_name = "N", value_parser = parse_positive)]
    pub(crate) max_connections: Option<usize>,
    /// How long a peer may take for its first byte, and then for TLS; 1s and 3s while others wait for a place
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = parse_deadline)]
    pub(crate) tls_deadline: Duration,
    /// How long a peer may take for its CONNECT
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = parse_deadline)]
    pub(crate) connect_deadline: Duration,
    /// How long a peer may read nothing while frames wait for it, or take for a frame once begun
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = parse_deadline)]
    pub(crate) progress_deadline: Duration,
    /// How long a node may read nothing before no START is given to it
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_deadline)]
    pub(crate) stall_time: Duration,
    /// How long queued frames may take to leave when the daemon stops
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = parse_wait)]
    pub(crate) drain_deadline: Duration,
    /// Bytes of one controller's frames that may be queued before it is no longer read from
    #[arg(long, value_name = "BYTES", default_value_t = ServerLimits::default().controller_budget, value_parser = parse_positive)]
    pub(crate) controller_budget: usize,
    /// Bytes of one launcher's frames that may be queued before it is no longer read from
    #[arg(long, value_name = "BYTES", default_value_t = ServerLimits::default().launcher_budget, value_parser = parse_positive)]
    pub(crate) launcher_budget: usize,
    /// Bytes queued for a node from which on it is used only where nothing else fits
    #[arg(long, value_name = "BYTES", default_value_t = ServerLimits::default().high_water, value_parser = parse_positive)]
    pub(crate) high_water: usize,
    /// Largest payload of a frame, in bytes
    #[arg(long, value_name = "BYTES", default_value_t = ServerLimits::default().max_payload, value_parser = parse_positive)]
    pub(crate) max_payload: usize,
}

impl DaemonFlags {
    /// What the daemon is started with.
    #[must_use]
    pub(crate) fn server_config(&self, hangups: Hangups, logs: &Logs) -> ServerConfig {
        ServerConfig {
            cert: or_later(&self.cert, DEFAULT_CERT, LATER_DEFAULT_CERT),
            trust: self
                .crls
                .trust(or_later(&self.cacert, DEFAULT_CACERT, LATER_DEFAULT_CACERT)),
            key_files: KeyFiles::new(self.strict_files),
            listen: self.listen.clone(),
            http: self.http.clone(),
            http_cert: self.http_cert.clone(),
            placement: self.placement(),
            configuration_uri: self.configuration_uri.clone(),
            node_file: self.node_file.clone(),
            state_dir: self.state_dir.clone(),
            images: self.images.config(),
            heartbeat: self.heartbeat.0,
            require_uuid_binding: self.require_uuid_binding,
            limits: ServerLimits {
                history: HistoryLimits {
                    time: self.history_time.into(),
                    bytes: self.history_bytes.saturating_mul(MIB),
                },
                ..self.limits.server()
            },
            reload: ReloadConfig {
                hangups,
                watch_files: self.watch_files,
                levels: logs.levels(),
                log: logs.reopen(),
            },
            scheduler: self.scheduler(),
        }
    }

    fn placement(&self) -> Option<PlacementConfig> {
        let tokens = self.placement_tokens.clone()?;
        let listen = self.placement.clone();
        Some(PlacementConfig { listen, tokens })
    }

    fn scheduler(&self) -> sched_core::Config {
        sched_core::Config {
            accounting: self.accounting.accounting,
            measured_window: self.accounting.measured_window.into(),
            measured_percentile: self.accounting.measured_percentile,
            cpu_ratio: self.accounting.cpu_ratio,
            mem_ratio: self.accounting.mem_ratio,
            disk_ratio: self.accounting.disk_ratio,
            reserved_mem_mib: self.accounting.reserved_mem,
            reserved_disk_mib: self.accounting.reserved_disk,
            in_doubt_time: self.limits.in_doubt_time,
            missed_stats: self.limits.missed_stats,
            recovery_window: self.limits.recovery_window,
            ..sched_core::Config::new(Uuid::nil())
        }
    }
}

impl LimitFlags {
    fn server(&self) -> ServerLimits {
        ServerLimits {
            history: HistoryLimits::default(),
            max_handshakes: self.max_handshakes,
            handshake_share: self.handshake_share,
            tls_deadline: self.tls_deadline,
            connect_deadline: self.connect_deadline,
            max_connections: self.max_connections,
            controller_budget: self.controller_budget,
            launcher_budget: self.launcher_budget,
            high_water: self.high_water,
            progress_deadline: self.progress_deadline,
            stall_time: self.stall_time,
            drain_deadline: self.drain_deadline,
            max_payload: self.max_payload,
            fence: None,
            term: None,
            schedulers: None,
            hand_over: None,
        }
    }
}

/// A file that was given; where the default one is not there, the later default if that is.
fn or_later(given: &Path, default: &str, later: &str) -> PathBuf {
    let later = Path::new(later);
    let is_default = given == Path::new(default);
    if is_default && !given.exists() && later.exists() {
        later.to_owned()
    } else {
        given.to_owned()
    }
}

/// Longest time that any wait can be set to: what is longer is a mistake, and sums of times are to stay in range.
const MAX_WAIT: Duration = Duration::from_secs(24 * 60 * 60);

fn parse_wait(text: &str) -> Result<Duration, String> {
    let wait = duration(text)?;
    if wait > MAX_WAIT {
        return Err("expected at most a day".to_owned());
    }
    Ok(wait)
}

/// A wait that ends connections, and so is not to be over before it begins.
fn parse_deadline(text: &str) -> Result<Duration, String> {
    match parse_wait(text)? {
        Duration::ZERO => Err("expected a time above 0".to_owned()),
        deadline => Ok(deadline),
    }
}

fn parse_positive(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) => Err("expected a number above 0".to_owned()),
        Ok(number) => Ok(number),
        Err(error) => Err(error.to_string()),
    }
}

fn parse_address(text: &str) -> Result<SocketAddr, String> {
    listen_address(text, DEFAULT_PORT)
}

fn parse_http_address(text: &str) -> Result<SocketAddr, String> {
    listen_address(text, DEFAULT_HTTP_PORT)
}

fn parse_placement_address(text: &str) -> Result<SocketAddr, String> {
    listen_address(text, DEFAULT_PLACEMENT_PORT)
}

fn parse_accounting(text: &str) -> Result<Accounting, String> {
    match text {
        "requested" => Ok(Accounting::Requested),
        "measured" => Ok(Accounting::Measured),
        _ => Err("expected requested or measured".to_owned()),
    }
}

/// Longest time that measured accounting may look back.
const MAX_WINDOW: Duration = Duration::from_secs(7 * 24 * 3600);

/// A length of time of any kind.
fn parse_time(text: &str) -> Result<humantime::Duration, String> {
    duration(text).map(humantime::Duration::from)
}

fn parse_window(text: &str) -> Result<humantime::Duration, String> {
    match text.parse::<humantime::Duration>() {
        Ok(window) if *window <= MAX_WINDOW => Ok(window),
        Ok(_) => Err("expected at most 7days".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::{SchedulerFlags, or_later};

    #[test]
    fn the_later_default_is_taken_where_the_first_is_not_there_and_nothing_was_given() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        let (default, later) = (path("default"), path("later"));
        let found = |given: &std::path::Path| {
            or_later(given, default.to_str().unwrap(), later.to_str().unwrap())
        };
        assert_eq!(found(&default), default, "it is named in the error");
        std::fs::write(&later, "").unwrap();
        assert_eq!(found(&default), later);
        assert_eq!(found(&path("given")), path("given"));
        std::fs::write(&default, "").unwrap();
        assert_eq!(found(&default), default);
    }

    #[test]
    fn a_port_alone_is_no_address_and_an_address_alone_has_the_port_of_what_is_served() {
        for flag in ["--listen=8889", "--http=8889", "--listen=:8889"] {
            let parsed = SchedulerFlags::try_parse_from(["ciao-scheduler", flag]);
            let error = parsed.unwrap_err().to_string();
            assert!(error.contains("write 127.0.0.1:8889"), "{flag}: {error}");
        }
        let flags = [
            "--listen=::1",
            "--http=::1",
            "--placement=::1",
            "--placement-tokens=t",
        ];
        let words = ["ciao-scheduler"].into_iter().chain(flags);
        let parsed = SchedulerFlags::try_parse_from(words).unwrap().daemon;
        let ports = [parsed.listen, parsed.http, parsed.placement].map(|it| it[0].port());
        assert_eq!(ports, [8888, 8443, 8778]);
    }

    #[test]
    fn limits_that_nothing_could_work_under_are_refused() {
        for flag in [
            "--controller-budget=0",
            "--launcher-budget=0",
            "--high-water=0",
            "--max-payload=0",
            "--max-connections=0",
            "--max-handshakes=0",
            "--handshake-share=0",
            "--handshake-share=101",
            "--stall-time=0s",
            "--progress-deadline=0s",
            "--tls-deadline=0s",
            "--connect-deadline=0s",
            "--drain-deadline=2days",
            "--in-doubt-time=100years",
        ] {
            let parsed = SchedulerFlags::try_parse_from(["ciao-scheduler", flag]);
            let error = parsed.unwrap_err().to_string();
            let is_named = error.contains("expected") || error.contains("is not in 1..=100");
            assert!(is_named, "{flag}: {error}");
        }
        for flag in ["--in-doubt-time=0s", "--settle-time=0s", "--stall-time=1ms"] {
            SchedulerFlags::try_parse_from(["ciao-scheduler", flag]).unwrap();
        }
    }
}
