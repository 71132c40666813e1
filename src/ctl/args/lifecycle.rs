//! Options of the commands that change an instance's state, or take a node out of service and back.

use std::time::Duration;

use clap::Args;
use clap::builder::PossibleValuesParser;
use proto_frames::payload::evacuate::MAX_PARALLEL;
use proto_frames::payload::scheduling::MAX_PRIORITY;
use proto_frames::payload::{EndOutcome, Span};

use super::{HistoryFormat, at_least, duration, mebibytes, placement};
use crate::ctl::moment::{self, Moment, moment};

/// `ciaoctl suspend` and `ciaoctl resume`.
#[derive(Debug, Args)]
pub struct LifecycleArgs {
    /// The instance: name, UUID, or a unique prefix of its UUID
    #[arg(value_name = "INSTANCE")]
    pub instance: String,
    /// Do not wait until it is done
    #[arg(long)]
    pub no_wait: bool,
    /// Accepted for symmetry with other commands: to wait is the default.
    #[arg(long, hide = true, conflicts_with = "no_wait")]
    pub wait: bool,
}

/// `ciaoctl migrate`.
#[derive(Debug, Args)]
pub struct MigrateArgs {
    /// Which instance.
    #[command(flatten)]
    pub life: LifecycleArgs,
    /// Node to move it to: host name, UUID, or a unique prefix of it [default: any that fits]
    #[arg(long, value_name = "NODE")]
    pub to: Option<String>,
    /// How long the move may take, for example 90s; it is cancelled then [default: the scheduler's]
    #[arg(long, value_name = "DURATION", value_parser = span)]
    pub deadline: Option<Span>,
}

/// `ciaoctl update`.
#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("change").required(true).multiple(true))]
pub struct UpdateArgs {
    /// Which instance.
    #[command(flatten)]
    pub life: LifecycleArgs,
    /// Memory it is to have, e.g. 512MiB or 2GiB; a number alone is MiB
    #[arg(long = "mem", alias = "mem-mb", value_name = "SIZE", group = "change", allow_negative_numbers = true, value_parser = mebibytes::<i64>(1))]
    pub mem_mb: Option<i64>,
    /// Virtual CPUs it is to have
    #[arg(long = "cpus", alias = "vcpus", value_name = "N", group = "change", allow_negative_numbers = true, value_parser = at_least::<i64>(1))]
    pub vcpus: Option<i64>,
    /// Local disk it is to have, e.g. 512MiB or 10GiB; a number alone is MiB
    #[arg(long = "disk", alias = "disk-mb", value_name = "SIZE", group = "change", allow_negative_numbers = true, value_parser = mebibytes::<i64>(0))]
    pub disk_mb: Option<i64>,
    /// So much of a further resource, e.g. gpu=1; those not named stay as they are; repeatable
    #[arg(long, value_name = "NAME=N", group = "change", value_parser = placement::amount)]
    pub resource: Vec<(String, i64)>,
    /// Its priority from now on, 0 to 100, higher first
    #[arg(long, value_name = "N", group = "change", value_parser = clap::value_parser!(i64).range(0..=MAX_PRIORITY))]
    pub priority: Option<i64>,
    /// Move it to another node where its own has no room for the difference
    #[arg(long = "move")]
    pub may_move: bool,
}

/// `ciaoctl cordon` and `ciaoctl uncordon`.
#[derive(Debug, Args)]
pub struct CordonArgs {
    /// The node: host name, UUID, or a unique prefix of it
    #[arg(value_name = "NODE")]
    pub node: String,
}

/// `ciaoctl drain`.
#[derive(Debug, Args)]
pub struct DrainArgs {
    /// The node: host name, UUID, or a unique prefix of it
    #[arg(value_name = "NODE")]
    pub node: String,
    /// How long it may take, for example 10m; what is not moved by then stays [default: as long as it takes]
    #[arg(long, value_name = "DURATION", value_parser = span)]
    pub deadline: Option<Span>,
    /// How many instances to move at a time [default: 2]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_PARALLEL)))]
    pub parallel: Option<u32>,
    /// Move nothing; say which instances fit nowhere else
    #[arg(long, conflicts_with_all = ["parallel", "deadline", "abort", "no_wait", "wait"])]
    pub check: bool,
    /// End a drain that is under way; the node stays cordoned
    #[arg(long, conflicts_with_all = ["parallel", "deadline", "no_wait"])]
    pub abort: bool,
    /// Do not wait until it is done
    #[arg(long)]
    pub no_wait: bool,
    /// Accepted for symmetry with other commands: to wait is the default.
    #[arg(long, hide = true, conflicts_with = "no_wait")]
    pub wait: bool,
}

/// `ciaoctl history`.
#[derive(Debug, Args)]
pub struct HistoryArgs {
    /// The instance: name, UUID, or a unique prefix of its UUID; also one that has ended, as far as the scheduler remembers it.
    /// Without it, the ends of all instances are listed, the latest first
    #[arg(value_name = "INSTANCE")]
    pub instance: Option<String>,
    /// Which ends are listed.
    #[command(flatten)]
    pub ends: EndArgs,
    /// Whole UUIDs instead of their beginnings
    #[arg(long, conflicts_with = "instance", help_heading = "Without INSTANCE")]
    pub full: bool,
    /// No line with the columns' names
    #[arg(long)]
    pub no_headers: bool,
    /// How to print it; --json is -o json
    #[arg(short, long = "output", value_name = "FORMAT", value_enum)]
    pub output: Option<HistoryFormat>,
}

/// Which ends `ciaoctl history` lists, and `ciaoctl collect` fetches.
#[derive(Debug, Args)]
#[command(next_help_heading = "Without INSTANCE")]
pub struct EndArgs {
    /// Only what ended since then: 2h (ago), today, yesterday, 2026-11-27, '2026-11-27 18:30', all
    #[arg(long, value_name = "WHEN", default_value = "24h", value_parser = moment, conflicts_with = "instance")]
    pub since: Moment,
    /// Only what ended before then, in the same notation
    #[arg(long, value_name = "WHEN", value_parser = moment::end, conflicts_with = "instance")]
    pub until: Option<Moment>,
    /// Only what ended so; failed is all that went wrong
    #[arg(long, value_name = "STATE", value_parser = PossibleValuesParser::new(EndOutcome::KNOWN), conflicts_with = "instance")]
    pub state: Option<String>,
    /// Only instances of this tenant
    #[arg(long, value_name = "TENANT", conflicts_with = "instance")]
    pub tenant: Option<String>,
    /// Only what was on this node, by host name or UUID
    #[arg(long, value_name = "NODE", conflicts_with = "instance")]
    pub node: Option<String>,
    /// Only what was called so; with a * at the end, what it was called begins so
    #[arg(long, value_name = "NAME", conflicts_with = "instance")]
    pub name: Option<String>,
    /// Only elements of this array, by name or UUID
    #[arg(long, value_name = "ARRAY", conflicts_with = "instance")]
    pub array: Option<String>,
    /// Only what ran this: the first word of the command, with or without directories, or all of it; with a * at the end, the
    /// beginning of it
    #[arg(long, value_name = "PROGRAM", conflicts_with = "instance")]
    pub program: Option<String>,
    /// Only what these ended by command: role and subject of a certificate, or with a * at the end the beginning of that, or
    /// behind a * a part of it
    #[arg(long, value_name = "WHO", conflicts_with = "instance")]
    pub by: Option<String>,
    /// Only what has this label: KEY=VALUE, or KEY for any value; repeatable: all must be there
    #[arg(
        long = "label",
        value_name = "KEY[=VALUE]",
        conflicts_with = "instance"
    )]
    pub labels: Vec<String>,
    /// No more than so many, the latest
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), conflicts_with = "instance")]
    pub limit: Option<u32>,
}

/// Reads a length of time as people write it, for the wire.
///
/// A time beyond what milliseconds in 64 bits hold becomes the longest.
pub(super) fn span(text: &str) -> Result<Span, String> {
    let span: Duration = duration(text)?;
    Ok(Span::from_ms(
        u64::try_from(span.as_millis()).unwrap_or(u64::MAX),
    ))
}

/// `ciaoctl wait`.
#[derive(Debug, Args)]
pub struct WaitArgs {
    /// Instances and arrays: names, UUIDs, or unique prefixes of UUIDs; also those that have ended, as far as the scheduler
    /// remembers them
    #[arg(required = true, value_name = "INSTANCE")]
    pub instances: Vec<String>,
    /// How long to try to connect again where the connection is lost; 0s = not at all
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = duration)]
    pub reconnect: Duration,
}
