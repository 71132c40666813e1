//! What the scheduler needs to know of a STATS.

use std::borrow::Cow;

use super::figures::{Figures, borrowed, figures_of};
use super::walk::{Found, Place, Sink, walk};
use crate::payload::EndFacts;
use crate::payload::document::Payload;
use crate::payload::error::PayloadError;
use crate::payload::guard::LARGE;
use crate::payload::instance_end::InstanceEnd;
use crate::payload::stats::{InstanceStat, InstanceState, Requested, Stats};
use sched_model::RunProgress;
use sched_model::value::Record;

/// A STATS without its network interfaces, and of each instance what accounting needs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StatsPeek<'a> {
    /// The node; empty where it does not say.
    pub node_uuid: Cow<'a, str>,
    /// `READY`, `FULL` and so on; empty where it does not say.
    pub status: Cow<'a, str>,
    /// What it has.
    pub figures: Figures<'a>,
    /// Its instances.
    pub instances: Vec<InstancePeek<'a>>,
    /// UUID of what counts its ends; empty where nothing does.
    pub ends_incarnation: Cow<'a, str>,
    /// The number of its latest end.
    pub ends_seq: Option<u64>,
    /// Ends that it has not been told are on record.
    pub ended: Vec<InstanceEnd>,
}

/// One instance of a STATS.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct InstancePeek<'a> {
    /// The instance.
    pub instance_uuid: Cow<'a, str>,
    /// How it is.
    pub state: InstanceState,
    /// Memory used, MiB; negative where not known.
    pub memory_usage_mb: i64,
    /// Disk used, in units of 10⁶ bytes; negative where not known.
    pub disk_usage_mb: i64,
    /// CPU used, per cent of what it has; negative where not known.
    pub cpu_usage: i64,
    /// What it asked for, where the launcher says so.
    pub requested: Option<Requested>,
    /// Id of its group; empty for none.
    pub group: Cow<'a, str>,
    /// Whether it is suspended.
    pub suspended: bool,
    /// Its restarts and its time, where it says anything about these.
    pub run: Option<Box<RunProgress>>,
}

/// Reads a STATS; the same as [`Stats::decode`] says, errors included.
///
/// # Errors
/// As [`Stats::decode`].
pub fn stats(payload: &[u8]) -> Result<StatsPeek<'_>, PayloadError> {
    match plain_stats(payload) {
        Some(peek) => Ok(peek),
        None => Stats::decode(payload).map(StatsPeek::from),
    }
}

impl From<Stats> for StatsPeek<'_> {
    fn from(stats: Stats) -> Self {
        Self {
            node_uuid: stats.node_uuid.into(),
            status: stats.status.into(),
            ends_incarnation: stats.ends_incarnation.into(),
            ends_seq: stats.ends_seq,
            ended: stats.ended,
            instances: stats
                .instances
                .into_iter()
                .map(InstancePeek::from)
                .collect(),
            figures: figures_of!(stats),
        }
    }
}

impl From<InstanceStat> for InstancePeek<'_> {
    fn from(stat: InstanceStat) -> Self {
        Self {
            instance_uuid: stat.instance_uuid.into(),
            state: stat.state,
            memory_usage_mb: stat.memory_usage_mb,
            disk_usage_mb: stat.disk_usage_mb,
            cpu_usage: stat.cpu_usage,
            requested: stat.requested,
            group: stat.group.into(),
            suspended: stat.suspended,
            run: stat.run,
        }
    }
}

/// Reads a STATS of the plain block style, which is how peers write it; `None` of any other, or where it is wrong: that is
/// for [`Stats::decode`] to read.
#[must_use]
pub fn plain_stats(payload: &[u8]) -> Option<StatsPeek<'_>> {
    let mut sink = StatsSink {
        peek: StatsPeek::default(),
        any: false,
    };
    walk(payload, Stats::FIELDS, LARGE, &mut sink)?;
    sink.any.then_some(sink.peek)
}

struct StatsSink<'a> {
    peek: StatsPeek<'a>,
    /// Something was found: an empty document is an error.
    any: bool,
}

impl<'a> Sink<'a> for StatsSink<'a> {
    fn found(&mut self, at: &Place<'a>, what: Found<'a>) -> Option<()> {
        self.any = true;
        if at.record == "instances" {
            return match what {
                Found::Mapping => {
                    self.peek.instances.push(InstancePeek::default());
                    Some(())
                }
                what => self.peek.instances.last_mut()?.found(at.key, what),
            };
        }
        if at.outer == "instances" && at.record == "requested" || at.outer == "requested" {
            let requested = &mut self.peek.instances.last_mut()?.requested;
            return requested_found(requested.get_or_insert_default(), at, what);
        }
        if at.outer == "instances" && at.record == "run" {
            let run = &mut self.peek.instances.last_mut()?.run;
            return run_found(run.get_or_insert_default(), at.key, what);
        }
        if at.record == "ended" {
            return match what {
                Found::Mapping => {
                    self.peek.ended.push(InstanceEnd::default());
                    Some(())
                }
                what => end_found(self.peek.ended.last_mut()?, at.key, what),
            };
        }
        if at.outer == "ended" && at.record == "facts" {
            let facts = &mut self.peek.ended.last_mut()?.facts;
            return facts_found(facts.get_or_insert_default(), at.key, what);
        }
        if let ("facts", "labels", Found::Text(text)) = (at.outer, at.record, &what) {
            let facts = &mut self.peek.ended.last_mut()?.facts;
            let value = std::str::from_utf8(text).ok()?.to_owned();
            let labels = &mut facts.get_or_insert_default().labels;
            labels.insert(at.key.to_owned(), value);
            return Some(());
        }
        match (at.record, at.key, what) {
            ("", "ends_incarnation", Found::Text(text)) => {
                self.peek.ends_incarnation = borrowed(text)?;
            }
            ("", "ends_seq", Found::Int(seq)) => {
                self.peek.ends_seq = Some(u64::try_from(seq).ok()?);
            }
            ("", "node_uuid", Found::Text(text)) => self.peek.node_uuid = borrowed(text)?,
            ("", "status", Found::Text(text)) => self.peek.status = borrowed(text)?,
            (_, _, what) => self.peek.figures.found(at, what)?,
        }
        Some(())
    }
}

impl<'a> InstancePeek<'a> {
    fn found(&mut self, key: &str, what: Found<'a>) -> Option<()> {
        match (key, what) {
            ("instance_uuid", Found::Text(text)) => self.instance_uuid = borrowed(text)?,
            ("state", Found::Text(text)) => self.state = std::str::from_utf8(text).ok()?.into(),
            ("memory_usage_mb", Found::Int(used)) => self.memory_usage_mb = used,
            ("disk_usage_mb", Found::Int(used)) => self.disk_usage_mb = used,
            ("cpu_usage", Found::Int(used)) => self.cpu_usage = used,
            ("group", Found::Text(text)) => self.group = borrowed(text)?,
            ("suspended", Found::Bool(suspended)) => self.suspended = suspended,
            _ => {}
        }
        Some(())
    }
}

/// Takes in what was found of an end.
fn end_found(end: &mut InstanceEnd, key: &str, what: Found<'_>) -> Option<()> {
    let word = |text| std::str::from_utf8(text).ok();
    match (key, what) {
        ("seq", Found::Int(seq)) => end.seq = u64::try_from(seq).ok()?,
        ("instance_uuid", Found::Text(text)) => end.instance_uuid = word(text)?.to_owned(),
        ("how", Found::Text(text)) => end.how = word(text)?.into(),
        ("exit_code", Found::Int(code)) => end.exit_code = Some(code),
        ("age_ms", Found::Int(age)) => end.age_ms = Some(u64::try_from(age).ok()?),
        ("reason", Found::Text(text)) => end.reason = word(text)?.into(),
        ("detail", Found::Text(text)) => end.detail = word(text)?.to_owned(),
        ("restart", Found::Bool(restart)) => end.restart = restart,
        _ => {}
    }
    Some(())
}

/// Takes in what was found of the facts of an end.
fn facts_found(facts: &mut EndFacts, key: &str, what: Found<'_>) -> Option<()> {
    match (key, what) {
        ("why", Found::Text(text)) => facts.why = std::str::from_utf8(text).ok()?.into(),
        ("program", Found::Text(text)) => {
            std::str::from_utf8(text)
                .ok()?
                .clone_into(&mut facts.program);
        }
        ("ran_ms", Found::Int(ran)) => facts.ran_ms = Some(u64::try_from(ran).ok()?),
        ("peak_kib", Found::Int(peak)) => facts.peak_kib = Some(u64::try_from(peak).ok()?),
        ("cpu_ms", Found::Int(cpu)) => facts.cpu_ms = Some(u64::try_from(cpu).ok()?),
        ("output_bytes", Found::Int(len)) => facts.output_bytes = Some(u64::try_from(len).ok()?),
        ("restarts", Found::Int(restarts)) => facts.restarts = u32::try_from(restarts).ok()?,
        ("time_used_ms", Found::Int(used)) => facts.time_used_ms = Some(u64::try_from(used).ok()?),
        _ => {}
    }
    Some(())
}

/// Takes in what was found in an instance's `run`, beginning with that there is one.
fn run_found(run: &mut RunProgress, key: &str, what: Found<'_>) -> Option<()> {
    let value = match what {
        Found::Int(value) => value,
        Found::Text(text) if key == "cpus" => {
            std::str::from_utf8(text).ok()?.clone_into(&mut run.cpus);
            return Some(());
        }
        Found::Bool(unpinned) if key == "unpinned" => {
            run.unpinned = unpinned;
            return Some(());
        }
        _ => return Some(()),
    };
    let unsigned = || u64::try_from(value).ok();
    match key {
        "restarts" => run.restarts = u32::try_from(value).ok()?,
        "last_exit_code" => run.last_exit_code = Some(value),
        "next_try_ms" => run.next_try_ms = Some(unsigned()?),
        "time_used_ms" => run.time_used_ms = Some(unsigned()?),
        "time_limit_ms" => run.time_limit_ms = Some(unsigned()?),
        _ => {}
    }
    Some(())
}

/// Takes in what was found in an instance's `requested`, beginning with that there is one.
fn requested_found<'a>(requested: &mut Requested, at: &Place<'a>, what: Found<'a>) -> Option<()> {
    match (at.record, at.key, what) {
        ("requested", "mem_mb", Found::Int(amount)) => requested.mem_mb = amount,
        ("requested", "vcpus", Found::Int(amount)) => requested.vcpus = amount,
        ("requested", "disk_mb", Found::Int(amount)) => requested.disk_mb = amount,
        ("resources", name, Found::Int(amount)) => {
            requested.resources.insert(name.to_owned(), amount);
        }
        _ => {}
    }
    Some(())
}
