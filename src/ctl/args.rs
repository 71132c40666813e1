//! What the commands of `ciaoctl` take: what `clap` parses, and nothing about what is done with it.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use proto_frames::payload::scheduling::{MAX_ALTERNATES, MAX_INSTANCE_NAME_LEN, is_instance_name};
use proto_frames::payload::{Digest, Expression, similar};

use crate::ctl::{event, selection};
use crate::flags::{CrlExpired, at_least, duration, mebibytes};
use crate::net::tls::TrustFiles;

mod arrays;
mod configure;
mod images;
mod leader;
mod lifecycle;
mod list;
mod placement;
mod results;
mod run_limits;
mod sections;
mod set;
mod tools;
mod web;

pub use arrays::{ArrayArgs, ArrayListArgs, ArraySpec, RerunArgs};
pub use configure::ConfigureArgs;
pub use images::{ImagesArgs, ImagesCommand, PushArgs};
pub use leader::LeaderArgs;
pub use lifecycle::{
    CordonArgs, DrainArgs, EndArgs, HistoryArgs, LifecycleArgs, MigrateArgs, UpdateArgs, WaitArgs,
};
pub use list::{HistoryFormat, InstanceListArgs, ListArgs, ListFormat, NodeListArgs, WideListArgs};
pub use placement::PlacementArgs;
pub use results::{CollectArgs, ForgetArgs};
pub use run_limits::RunLimitArgs;
pub use sections::{AggregateCommand, EntryArgs, NameArgs, TenantCommand};
pub use set::{MAX_REPLICAS, SetCommand, SetName};
pub use tools::{ContextCommand, DescribeCommand, LogsArgs, TopArgs};
pub use web::WebArgs;

/// Most instances one `start` or `run` makes: beyond that `ciaoctl load` is the tool.
pub const MAX_COUNT: u32 = 10_000;

/// Options that every command takes, before or after its name.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Global options")]
pub struct GlobalArgs {
    /// Scheduler to connect to, as HOST, HOST:PORT, ADDRESS or `[ADDRESS]:PORT`
    /// [default: localhost:8888]
    #[arg(
        long,
        global = true,
        env = "CIAO_SERVER",
        hide_env_values = true,
        value_name = "ADDR"
    )]
    pub server: Option<String>,
    /// Name to expect in the scheduler's certificate, where it is not the one that is dialled
    #[arg(long, global = true, value_name = "NAME")]
    pub server_name: Option<String>,
    /// Certificate and key of a controller, one PEM file
    /// [default: /etc/pki/ciao/cert-Controller-localhost.pem]
    #[arg(
        long,
        global = true,
        env = "CIAO_CERT",
        hide_env_values = true,
        value_name = "FILE"
    )]
    pub cert: Option<PathBuf>,
    /// CA certificate of the cluster, PEM [default: /etc/pki/ciao/CAcert-localhost.pem]
    #[arg(
        long,
        global = true,
        env = "CIAO_CACERT",
        hide_env_values = true,
        value_name = "FILE"
    )]
    pub cacert: Option<PathBuf>,
    /// Revocation lists (CRLs) of the CAs in the CA file, PEM or DER: a file, or a directory whose files are all read; may be
    /// repeated [default: none, and nothing is revoked]
    #[arg(
        long,
        global = true,
        env = "CIAO_CRL",
        hide_env_values = true,
        value_name = "FILE|DIR"
    )]
    pub crl: Vec<PathBuf>,
    /// What becomes of a scheduler whose CA's list goes out of date while it is in use
    #[arg(
        long,
        global = true,
        value_enum,
        value_name = "ACTION",
        default_value = "refuse"
    )]
    pub crl_expired: CrlExpired,
    /// Directory with CAcert-HOST.pem and cert-ROLE-HOST.pem, as `ciao-cert -all` makes it: those for localhost, or else
    /// the only ones there; --cert and --cacert come first
    #[arg(
        long,
        global = true,
        env = "CIAO_CERTS",
        hide_env_values = true,
        value_name = "DIR"
    )]
    pub certs: Option<PathBuf>,
    /// Context to take the scheduler and certificates from that are not given otherwise [default: the current one]
    #[arg(
        long,
        global = true,
        env = "CIAO_CONTEXT",
        hide_env_values = true,
        value_name = "NAME"
    )]
    pub context: Option<String>,
    /// Refuse a certificate file whose private key others can read, rather than warn of it
    #[arg(long, global = true)]
    pub strict_files: bool,
    /// Longest time to wait, for example 5s or 10m [default: 10s to connect, 30s for an answer, 1h with --wait]
    #[arg(long, global = true, value_name = "DURATION", value_parser = patience)]
    pub timeout: Option<Duration>,
    /// Print JSON for programs: one document, or one line per event with `watch`
    #[arg(long, global = true)]
    pub json: bool,
}

/// Where a scheduler is unless something else is said.
const DEFAULT_SERVER: &str = "localhost:8888";

impl GlobalArgs {
    /// Whose certificates are believed, with this CA file.
    #[must_use]
    pub fn trust(&self, ca: PathBuf) -> TrustFiles {
        TrustFiles {
            ca,
            crls: self.crl.clone(),
            stale_crls: self.crl_expired.into(),
        }
    }

    /// The scheduler to connect to.
    #[must_use]
    pub fn server(&self) -> &str {
        self.server.as_deref().unwrap_or(DEFAULT_SERVER)
    }
}

/// What `ciaoctl` can do in a session with the scheduler.
#[derive(Debug, Subcommand)]
pub enum SessionCommand {
    /// Start the workloads of START files
    Start(StartArgs),
    /// Start a program on some node, or with --node on that one
    Run(RunArgs),
    /// Say where a START would go, or why it does not fit; starts nothing
    Explain(ExplainArgs),
    /// Keep sets of instances of one START file: create, scale, update in order, delete
    #[command(subcommand)]
    Set(SetCommand),
    /// Delete instances and arrays, by name, UUID, or a unique prefix of the UUID
    Delete(InstanceArgs),
    /// Stop instances on their node; controllers hear that they were stopped, as before a move, not deleted
    Stop(InstanceArgs),
    /// Suspend an instance: it keeps its memory and disk and releases its virtual CPUs
    Suspend(LifecycleArgs),
    /// Resume a suspended instance
    Resume(LifecycleArgs),
    /// Move an instance to another node, or a queued one to where it is to run
    Migrate(MigrateArgs),
    /// Change what an instance asks for, where it is or, with --move, on another node
    Update(UpdateArgs),
    /// Stop everything on a node and take it out of service
    Evacuate(EvacuateArgs),
    /// Put an evacuated node back into service
    Restore(NodeArgs),
    /// Keep new instances from a node; those it has stay
    Cordon(CordonArgs),
    /// Let a cordoned node have new instances again
    Uncordon(CordonArgs),
    /// Cordon a node and move its instances to others, those of high priority first
    Drain(DrainArgs),
    /// Wait until instances or arrays have ended; the exit code says how, as that of run --wait
    Wait(WaitArgs),
    /// List the arrays, the latest first
    #[command(mut_arg("matching", |it| it.help("Only those that are called so, or have a UUID that begins so")))]
    Arrays(ArrayListArgs),
    /// Run once more what did not succeed of an array
    Rerun(RerunArgs),
    /// Manage instances whose nodes are lost, and what ended ones left
    #[command(subcommand)]
    Instance(InstanceCommand),
    /// Label nodes, give them custom resources, and forget those that are not connected
    #[command(subcommand)]
    Node(NodeCommand),
    /// List the nodes
    #[command(mut_arg("matching", |it| it.help("Only nodes that have this host name, or a UUID that begins so")))]
    Nodes(NodeListArgs),
    /// List the instances
    #[command(visible_aliases = ["ps", "ls"], alias = "list")]
    Instances(InstanceListArgs),
    /// List the STARTs that wait for room, in the order in which they are tried
    #[command(mut_arg("matching", |it| it.help("Only those whose UUID begins so")))]
    Queue(ListArgs),
    /// Show what became of an instance so far, the oldest first
    History(HistoryArgs),
    /// Show nodes and instances by what they use, again and again on a terminal
    Top(TopArgs),
    /// Show all details of one node or instance
    #[command(subcommand)]
    Describe(DescribeCommand),
    /// Say whether all is well, and if not, what; the exit code says so too
    Status,
    /// List the schedulers behind one name, which leads and which stand by, or have another lead
    #[command(mut_arg("matching", |it| it.help("Only those whose address begins so")))]
    Leader(LeaderArgs),
    /// Have the scheduler read its certificates, keys and all other files again; at a mistake in one all stays as it was
    Reload(ReloadArgs),
    /// Print what an instance has written, read from its node through the scheduler
    Logs(LogsArgs),
    /// Fetch what ended instances have written, and with --files their working directories, into a directory here
    Collect(CollectArgs),
    /// Give the scheduler a program that it ships to the nodes that run it; prints its digest, for `image` in a START
    Push(PushArgs),
    /// List the programs that were pushed, or delete some
    #[command(mut_arg("matching", |it| it.help("Only programs whose digest begins so, with or without sha256:")))]
    Images(ImagesArgs),
    /// Show, compare, check or replace the cluster configuration, or go back to an earlier version
    Configure(ConfigureArgs),
    /// Change aggregates and zones in the cluster configuration
    #[command(subcommand)]
    Aggregate(AggregateCommand),
    /// Change what STARTs of a tenant ask for by default
    #[command(subcommand)]
    Tenant(TenantCommand),
    /// List the controllers and operators
    #[command(mut_arg("matching", |it| it.help("Only those whose UUID begins so")))]
    Controllers(ListArgs),
    /// Show events as they come
    Watch(WatchArgs),
}

/// `ciaoctl instance`.
#[derive(Debug, Subcommand)]
pub enum InstanceCommand {
    /// Remove instances of lost nodes from the list; with --data, delete what ended ones left on their nodes. If a lost node
    /// returns with them, they are listed again
    Forget(ForgetArgs),
}

/// `ciaoctl node`.
#[derive(Debug, Subcommand)]
pub enum NodeCommand {
    /// Give a node labels, over what it reports: rack=r1; old=null takes a reported one away
    Label(EntryArgs),
    /// Give a node custom resources, over what it reports: gpu=4
    Resource(EntryArgs),
    /// Remove a lost node that will not return, with its cordon and the records of its instances
    Forget {
        /// The node: host name, UUID, or a unique prefix of it
        #[arg(value_name = "NODE")]
        node: String,
    },
}

/// Where the help has what a START made from the command line is.
const WORKLOAD: &str = "Workload";

/// Where the help has what nodes it may be placed on.
const PLACEMENT: &str = "Placement";

/// The tenant of what belongs to none.
const NO_TENANT: &str = "00000000-0000-0000-0000-000000000000";

/// How far `start` and `run` wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum WaitFor {
    /// Until the instance runs on its node
    Running,
    /// Until the workload has ended
    Exited,
}

/// Options that `start` and `run` share.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Waiting and output")]
pub struct SubmitArgs {
    /// How many instances to start of each
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_COUNT)))]
    pub count: u32,
    /// Wait until it is running or has exited; the exit code then says how it ended. Without it, one that is queued is
    /// left to wait
    #[arg(
        long,
        value_name = "UNTIL",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "exited"
    )]
    pub wait: Option<WaitFor>,
    /// How long to try to connect again where the connection is lost with --wait, or where the scheduler has closed it in order,
    /// as one that hands over to another: it has not read then what it has not answered; 0s = not at all
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = duration)]
    pub reconnect: Duration,
    /// Print instance UUIDs only, of those that have not failed
    #[arg(short, long)]
    pub quiet: bool,
    /// Show all that is known of why a START failed
    #[arg(short, long, conflicts_with = "quiet")]
    pub verbose: bool,
    /// Start nothing; say where it would go, or why it does not fit, as `explain` does
    #[arg(long, conflicts_with_all = ["wait", "quiet"])]
    pub dry_run: bool,
}

/// What instance a START made from the command line is.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = WORKLOAD)]
pub struct ShapeArgs {
    /// Local disk, e.g. 512MiB or 10GiB, rounded up to whole GiB; a number alone is MiB
    #[arg(long, value_name = "SIZE", default_value_t = 0, allow_negative_numbers = true, value_parser = mebibytes::<i64>(0))]
    pub disk: i64,
    /// Tenant it belongs to
    #[arg(long, value_name = "UUID", default_value = NO_TENANT)]
    pub tenant: String,
}

/// Option of the commands that read START files.
#[derive(Debug, Clone, Copy, Args)]
pub struct StrictArgs {
    /// Refuse a file rather than warn of what in it does not do what it seems to, such as misspelt keys
    #[arg(long)]
    pub strict: bool,
}

/// `ciaoctl start`.
#[derive(Debug, Args)]
pub struct StartArgs {
    /// START payloads (YAML), sent as they are; - is the standard input. An instance UUID is put in where the file has
    /// none or --count asks for several
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// Whether what would be warned of is a mistake.
    #[command(flatten)]
    pub strict: StrictArgs,
    /// What to do with them.
    #[command(flatten)]
    pub submit: SubmitArgs,
}

/// `ciaoctl run`.
#[derive(Debug, Clone, Args)]
pub struct RunArgs {
    /// The program and its arguments, after --
    #[arg(last = true, required_unless_present = "image", value_name = "PROGRAM")]
    pub program: Vec<String>,
    /// Run this image, as `ciaoctl push` prints its digest; what follows -- are its arguments
    #[arg(long, value_name = "DIGEST", help_heading = WORKLOAD)]
    pub image: Option<Digest>,
    /// A further image that it needs; {image.1} and so on in arguments and variables stand for the paths of these files
    /// on the node; repeatable
    #[arg(long = "more-image", value_name = "DIGEST", help_heading = WORKLOAD, requires = "image")]
    pub more_images: Vec<Digest>,
    /// Memory, e.g. 512MiB or 2GiB; a number alone is MiB
    #[arg(long, value_name = "SIZE", help_heading = WORKLOAD, allow_negative_numbers = true, value_parser = mebibytes::<i64>(1))]
    pub mem: i64,
    /// Virtual CPUs
    #[arg(long, value_name = "N", help_heading = WORKLOAD, allow_negative_numbers = true, value_parser = at_least::<i64>(1))]
    pub cpus: i64,
    /// Variable of the program's environment; repeatable
    #[arg(long, value_name = "NAME=VALUE", help_heading = WORKLOAD, value_parser = variable)]
    pub env: Vec<(String, String)>,
    /// Directory of the node to run it in [default: a new one of its own]
    #[arg(long, value_name = "DIR", help_heading = WORKLOAD)]
    pub dir: Option<String>,
    /// Name to call it by, beside its UUID: letters, digits, `.`, `_` and `-`; no other living instance of the tenant may
    /// have it
    #[arg(long, value_name = "NAME", help_heading = WORKLOAD, value_parser = instance_name)]
    pub name: Option<String>,
    /// What else it is.
    #[command(flatten)]
    pub shape: ShapeArgs,
    /// Whether it is one of many.
    #[command(flatten)]
    pub array: ArrayArgs,
    /// What to do with it.
    #[command(flatten)]
    pub submit: SubmitArgs,
    /// Node to run on: host name, UUID, or a unique prefix of it
    #[arg(long, value_name = "NODE", help_heading = PLACEMENT)]
    pub node: Option<String>,
    /// Where it may run.
    #[command(flatten)]
    pub placement: PlacementArgs,
    /// What its launcher does about it while it runs.
    #[command(flatten)]
    pub limits: RunLimitArgs,
}

/// `ciaoctl explain`.
#[derive(Debug, Args)]
pub struct ExplainArgs {
    /// START payloads (YAML), as `start` takes them; - is the standard input
    #[arg(
        value_name = "FILE",
        required_unless_present_any = ["instance", "mem", "cpus", "ShapeArgs", "PlacementArgs", "RunLimitArgs"],
        conflicts_with_all = ["instance", "mem", "cpus", "ShapeArgs", "PlacementArgs", "RunLimitArgs"]
    )]
    pub files: Vec<PathBuf>,
    /// Whether what would be warned of is a mistake.
    #[command(flatten)]
    pub strict: StrictArgs,
    /// Instead of a file: why this instance waits, as its own START asks; name, UUID, or a unique prefix of it
    #[arg(
        short,
        long,
        value_name = "INSTANCE",
        conflicts_with_all = ["node", "count", "alternates", "mem", "cpus", "ShapeArgs", "PlacementArgs", "RunLimitArgs"]
    )]
    pub instance: Option<String>,
    /// Ask about this node alone: host name, UUID, or a unique prefix of it
    #[arg(long, value_name = "NODE")]
    pub node: Option<String>,
    /// Ask how many of so many would fit, and where
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_COUNT)))]
    pub count: Option<u32>,
    /// Name so many further nodes that it could go to instead, best first
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(..=i64::from(MAX_ALTERNATES)))]
    pub alternates: Option<u32>,
    /// Instead of a file: memory, e.g. 512MiB or 2GiB; a number alone is MiB
    #[arg(long, value_name = "SIZE", help_heading = WORKLOAD, allow_negative_numbers = true, value_parser = mebibytes::<i64>(0))]
    pub mem: Option<i64>,
    /// Instead of a file: virtual CPUs
    #[arg(long, value_name = "N", help_heading = WORKLOAD, allow_negative_numbers = true, value_parser = at_least::<i64>(0))]
    pub cpus: Option<i64>,
    /// Instead of a file: what else it is.
    #[command(flatten)]
    pub shape: ShapeArgs,
    /// Instead of a file: where it may run.
    #[command(flatten)]
    pub placement: PlacementArgs,
    /// Instead of a file: what its launcher is to do about it while it runs.
    #[command(flatten)]
    pub limits: RunLimitArgs,
}

/// `ciaoctl delete` and `ciaoctl stop`.
#[derive(Debug, Args)]
pub struct InstanceArgs {
    /// Instances: names, UUIDs, or unique prefixes of UUIDs
    #[arg(value_name = "INSTANCE", required_unless_present_any = ["all", "selector"])]
    pub instances: Vec<String>,
    /// All instances that are listed; asks first
    #[arg(long, conflicts_with_all = ["instances", "selector"])]
    pub all: bool,
    /// All instances for which this holds, e.g. 'host = node-1', 'state = waiting', 'group = web', 'priority < 20'; asks
    /// first; repeatable: all must hold
    #[arg(short = 'l', long, value_name = "EXPR", conflicts_with = "instances", value_parser = instance_expression)]
    pub selector: Vec<Expression>,
    /// Do not ask whether all of them are meant
    #[arg(short, long)]
    pub yes: bool,
    /// Wait until they are gone
    #[arg(long)]
    pub wait: bool,
    /// Accepted for symmetry with other commands: not to wait is the default.
    #[arg(long, hide = true, conflicts_with = "wait")]
    pub no_wait: bool,
}

/// `ciaoctl evacuate` and `ciaoctl restore`.
#[derive(Debug, Args)]
pub struct NodeArgs {
    /// The node: host name, UUID, or a unique prefix of it
    #[arg(value_name = "NODE")]
    pub node: String,
    /// Wait until it is done
    #[arg(long)]
    pub wait: bool,
    /// Accepted for symmetry with other commands: not to wait is the default.
    #[arg(long, hide = true, conflicts_with = "wait")]
    pub no_wait: bool,
}

/// `ciaoctl evacuate`.
#[derive(Debug, Args)]
pub struct EvacuateArgs {
    /// Which node.
    #[command(flatten)]
    pub node: NodeArgs,
    /// Do not ask whether everything on the node is to be stopped
    #[arg(short, long)]
    pub yes: bool,
}

/// `ciaoctl reload`.
#[derive(Debug, Args)]
pub struct ReloadArgs {
    /// Take the configuration from its file although a newer one was set by command
    #[arg(long)]
    pub force: bool,
}

/// `ciaoctl watch`.
#[derive(Debug, Args)]
pub struct WatchArgs {
    /// Topics of the events to print, separated by commas
    #[arg(long, value_delimiter = ',', value_enum, default_values = ["nodes", "instances", "failures", "placements", "scheduler"])]
    pub topics: Vec<TopicArg>,
    /// Only events of these names, as they stand in `event` with --json: for example array_state; separated by commas
    #[arg(long, value_name = "NAME,…", value_delimiter = ',', value_parser = event::NAMES)]
    pub events: Vec<String>,
    /// Run this by `sh -c` for each event, one at a time, in place of printing it: the event is on its standard input as
    /// with --json, and its members are variables, for example CIAO_EVENT, CIAO_EVENT_STATE, CIAO_EVENT_ARRAY_UUID
    #[arg(long, value_name = "COMMAND")]
    pub exec: Option<String>,
    /// End after this many events
    #[arg(long, value_name = "N")]
    pub count: Option<u64>,
}

/// A topic of `watch`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum TopicArg {
    /// Nodes that come, go and are drained
    Nodes,
    /// Instances that end, wait, are suspended or move
    Instances,
    /// What could not be done
    Failures,
    /// Every report of every node
    Stats,
    /// Which node each START is given to
    Placements,
    /// What the scheduler does itself: files that it has read again
    Scheduler,
}

/// Reads an expression over what `instances` lists.
fn instance_expression(text: &str) -> Result<Expression, String> {
    let expression: Expression = text.parse().map_err(|e| format!("{e}"))?;
    if !selection::KEYS.contains(&expression.key()) {
        return Err(format!(
            "column 1: '{}' is nothing that instances can be selected by; there are {}",
            expression.key(),
            selection::KEYS.join(", ")
        ));
    }
    match selection::unknown_state(&expression) {
        None => Ok(expression),
        Some(word) => {
            let known: Vec<&str> = selection::states().collect();
            let meant = similar(word, &known).map(|it| format!("; did you mean '{it}'?"));
            Err(format!(
                "'{word}' is no state of an instance, so that none would ever be selected{}; there are {}",
                meant.unwrap_or_default(),
                known.join(", ")
            ))
        }
    }
}

/// Reads the name of an instance.
fn instance_name(text: &str) -> Result<String, String> {
    if is_instance_name(text) {
        return Ok(text.to_owned());
    }
    Err(format!(
        "a name is 1 to {MAX_INSTANCE_NAME_LEN} letters, digits and . _ -, begins with a letter or digit, and is no UUID"
    ))
}

/// Reads how long to wait at most.
fn patience(text: &str) -> Result<Duration, String> {
    match duration(text)? {
        Duration::ZERO => Err("must be above 0".to_owned()),
        patience => Ok(patience),
    }
}

/// Reads `NAME=VALUE`.
fn variable(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.into(), value.into())),
        _ => Err("write it as NAME=VALUE".into()),
    }
}

#[cfg(test)]
mod tests;
