//! Ends of instances that the scheduler may not know of: none is forgotten before the scheduler has it on record, also
//! where the connection it was told on breaks, or the launcher or the scheduler restarts.
//!
//! ```text
//! here       InstanceStopped 41, STATS {ended: [41]} ───┐ connection lost ┌── STATS {ended: [41, 42]}       forgotten
//!                                                       ✂                 │           \               /EndsRecorded 42
//! scheduler                                                               41 and 42 are heard ── on disk
//! ```
//! Each end has a number, and stands in the record of its instance until EndsRecorded names that number or a later one.
//! On a connection they are told in the order of their numbers, so that a scheduler that has heard of one has heard of
//! all before it: at once in a frame of its own (InstanceStopped, InstanceDeleted, StartFailure) where nothing older is
//! left to tell, and in every STATS until it is on record. A number that is heard twice is one end.
//!
//! A scheduler that does not say in CONNECTED that it records ends gets the frames alone, without numbers. An end
//! counts as told to it once the socket has taken its frame and a report after it ([`super::Input::Written`]).

use std::collections::{BTreeMap, VecDeque};
use std::time::Instant;

use proto_frames::Uuid;
use proto_frames::payload::cut::cut;
use proto_frames::payload::{
    EndFacts, EndKind, EndWhy, EndsRecorded, InstanceDeleted, InstanceEnd, InstanceStopped,
    PayloadError, StartFailure, StartFailureReason,
};
use serde::{Deserialize, Serialize};
use tracing::warn;

use super::instances::{Instance, InstancePhase};
use super::{Agent, Link, Message, Removal};

/// Most ends that are kept until the scheduler has them on record. Beyond it the node takes no START, and so, because
/// every end is that of an instance it has taken, none ever has to be dropped: what runs already ends on top of it.
pub const MAX_UNRECORDED_ENDS: usize = 8192;

/// Most ends in one STATS, those that have waited longest; the others come in the next, once these are on record. With
/// some 250 bytes each they take an eighth of what a payload may have (4 MiB); instances take the rest.
pub const MAX_ENDS_PER_STATS: usize = 2048;

/// Longest text about a failed START that is kept with its end, in bytes.
const MAX_END_DETAIL: usize = 256;

/// Reports whose writing is waited for on one connection, to a scheduler that does not record ends; later ones do not
/// count then.
const MAX_UNWRITTEN_REPORTS: usize = 64;

/// What the ends on a node are numbered by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Numbering {
    /// Whose numbers they are: kept with the node's state, and drawn again where that was lost.
    pub incarnation: Uuid,
    /// The number before the first: above all that launchers with the same incarnation gave before.
    pub after: u64,
}

/// One end, as it is told and kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct End {
    /// Its number.
    pub seq: u64,
    /// How it came.
    pub how: How,
    /// Its process's exit code, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<i32>,
    /// What else is known of the run. Records of earlier launchers lack it.
    #[serde(default, skip_serializing_if = "Ran::is_empty")]
    pub ran: Ran,
    /// What it ran, where the scheduler was not told that while it did. Records of earlier launchers lack it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub program: String,
    /// The labels that its START gave it. Records of earlier launchers lack them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
}

impl End {
    /// What the scheduler is told of it beyond its exit code; `None` where that is nothing.
    fn facts(&self) -> Option<Box<EndFacts>> {
        let facts = EndFacts {
            program: self.program.clone(),
            labels: self.labels.clone(),
            ..self.ran.facts()
        };
        (facts != EndFacts::default()).then(|| Box::new(facts))
    }
}

/// Figures of a run that is over; what is not known is left out. Its supervisor's, as a rule.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Ran {
    /// How long it ran from its first start, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ran_ms: Option<u64>,
    /// What ended it, where that was no command and not itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<Why>,
    /// The most memory that it had at a time, in KiB.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peak_kib: Option<u64>,
    /// Processor time of all its processes, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_ms: Option<u64>,
    /// Bytes that it has written to its output.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_bytes: Option<u64>,
    /// How long the latest run took of what counts for its time limit, in milliseconds: without the time in which it was
    /// frozen, and on the clock that goes on while the machine sleeps.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub counted_ms: Option<u64>,
    /// How much of its time limit it has used, on this node and those before, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time_used_ms: Option<u64>,
    /// How often it was started again here.
    #[serde(skip_serializing_if = "is_none")]
    pub restarts: u32,
}

/// What ended a run, other than itself and commands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Why {
    /// It had run for as long as it may.
    TimeLimit,
    /// It needed more memory than it may have.
    Oom,
}

impl Ran {
    /// Whether nothing is known.
    pub(super) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// What both runs have used together, of which the other came first.
    pub(super) fn after(self, earlier: Self) -> Self {
        let sum = |one: Option<u64>, other: Option<u64>| match (one, other) {
            (Some(one), Some(other)) => Some(one.saturating_add(other)),
            (one, other) => one.or(other),
        };
        Self {
            peak_kib: self.peak_kib.max(earlier.peak_kib),
            cpu_ms: sum(self.cpu_ms, earlier.cpu_ms),
            output_bytes: sum(self.output_bytes, earlier.output_bytes),
            ..self
        }
    }

    /// As the scheduler is told it.
    fn facts(&self) -> EndFacts {
        EndFacts {
            ran_ms: self.ran_ms,
            why: match self.why {
                Some(Why::TimeLimit) => EndWhy::TimeLimit,
                Some(Why::Oom) => EndWhy::Oom,
                None => EndWhy::default(),
            },
            peak_kib: self.peak_kib,
            cpu_ms: self.cpu_ms,
            output_bytes: self.output_bytes,
            restarts: self.restarts,
            time_used_ms: self.time_used_ms,
            program: String::new(),
            labels: BTreeMap::new(),
        }
    }
}

/// Whether a count need not be written.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
fn is_none(count: &u32) -> bool {
    *count == 0
}

/// How an instance ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum How {
    /// By itself.
    Exited,
    /// It was removed.
    Removed(Removal),
    /// It could not be started: its StartFailure.
    Failed {
        /// The protocol's word for why.
        reason: String,
        /// More, for people.
        detail: String,
        /// Whether its START was a restart.
        restart: bool,
    },
}

impl How {
    /// A START that failed, as the scheduler is told of it.
    pub(super) fn failed(failure: &StartFailure) -> Self {
        let detail = failure.detail.as_deref().unwrap_or_default();
        Self::Failed {
            reason: failure.reason.as_str().to_owned(),
            detail: cut(detail, MAX_END_DETAIL).into_owned(),
            restart: failure.restart,
        }
    }
}

/// The ends that are not on record.
#[derive(Debug)]
pub(super) struct Ends {
    numbering: Numbering,
    /// The latest number given.
    last: u64,
    unrecorded: BTreeMap<u64, Unrecorded>,
    /// The latest number told on the present connection, and so all before it.
    told: u64,
    /// Frames handed out on the present connection.
    frames: u64,
    /// The STATS among them that are not known to be written, by the count of frames; oldest first.
    reports: VecDeque<u64>,
}

#[derive(Debug)]
struct Unrecorded {
    instance: String,
    end: End,
    /// When it happened; `None` = not known.
    at: Option<Instant>,
    /// The frame that told it on the present connection, to a scheduler that does not record ends.
    frame: Option<u64>,
}

impl Ends {
    pub(super) fn new(numbering: Numbering) -> Self {
        Self {
            numbering,
            last: numbering.after,
            unrecorded: BTreeMap::new(),
            told: 0,
            frames: 0,
            reports: VecDeque::new(),
        }
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.unrecorded.len()
    }

    /// Ends of these numbers.
    pub(super) fn of<'a>(&'a self, numbers: &'a [u64]) -> impl Iterator<Item = &'a End> {
        let known = numbers.iter().filter_map(|seq| self.unrecorded.get(seq));
        known.map(|unrecorded| &unrecorded.end)
    }

    /// Takes up an end that an earlier launcher kept.
    pub(super) fn recover(&mut self, instance: &str, end: End, at: Option<Instant>) {
        self.last = self.last.max(end.seq);
        self.insert(instance, end, at);
    }

    /// Notes when an end happened that was found later.
    pub(super) fn set_time(&mut self, seq: u64, at: Option<Instant>) {
        if let Some(unrecorded) = self.unrecorded.get_mut(&seq) {
            unrecorded.at = at;
        }
    }

    /// Gives an end the next number and keeps it.
    fn add(&mut self, now: Instant, instance: &str, end: impl FnOnce(u64) -> End) -> u64 {
        self.last += 1;
        let seq = self.last;
        self.insert(instance, end(seq), Some(now));
        seq
    }

    /// Keeps an end that has its number.
    fn insert(&mut self, instance: &str, end: End, at: Option<Instant>) {
        let unrecorded = Unrecorded {
            instance: instance.to_owned(),
            end,
            at,
            frame: None,
        };
        self.unrecorded.insert(unrecorded.end.seq, unrecorded);
    }

    /// A connection begins, on which nothing is told yet.
    fn connected(&mut self) {
        (self.told, self.frames) = (0, 0);
        self.reports.clear();
        for unrecorded in self.unrecorded.values_mut() {
            unrecorded.frame = None;
        }
    }

    /// A frame is handed out.
    pub(super) fn count_frame(&mut self, message: &Message) {
        self.frames += 1;
        if let Message::Stats(_) = message
            && self.reports.len() < MAX_UNWRITTEN_REPORTS
        {
            self.reports.push_back(self.frames);
        }
    }

    /// Whether an end told by a frame now is told after all before it.
    fn is_next(&self, seq: u64) -> bool {
        let before = self.unrecorded.range(..seq).next_back();
        before.is_none_or(|(&before, _)| before <= self.told)
    }

    /// The numbers that are on record once this one is.
    fn up_to(&self, seq: u64) -> Vec<u64> {
        self.unrecorded.range(..=seq).map(|(&seq, _)| seq).collect()
    }

    /// The numbers that count as told, once so many frames have been written.
    fn reported_by(&mut self, written: u64) -> Vec<u64> {
        let mut report = None;
        while let Some(&first) = self.reports.front()
            && first <= written
        {
            report = self.reports.pop_front();
        }
        let Some(report) = report else {
            return Vec::new();
        };
        let is_told = |it: &Unrecorded| it.frame.is_some_and(|frame| frame < report);
        let told = self.unrecorded.iter().filter(|(_, it)| is_told(it));
        told.map(|(&seq, _)| seq).collect()
    }
}

impl Agent {
    /// A connection begins. To a scheduler that does not record ends they are told at once; another finds them in the
    /// first STATS, beside what runs.
    pub(super) fn report_ends(&mut self) {
        self.ends.connected();
        if self.records_ends() {
            return;
        }
        let due: Vec<(u64, String)> = self
            .ends
            .unrecorded
            .iter()
            .map(|(&seq, it)| (seq, it.instance.clone()))
            .collect();
        for (seq, id) in due {
            let is_latest = self
                .instances
                .get(&id)
                .is_some_and(|it| !it.is_live() && it.ends.last() == Some(&seq));
            if is_latest {
                self.report_end(seq, None);
            } else {
                // Without a number it would be taken for the end of what came after it.
                self.recorded(&[seq]);
            }
        }
    }

    /// Numbers the end of an instance, keeps it, and tells it. `failure` tells it where a START failed.
    pub(super) fn ended(
        &mut self,
        now: Instant,
        id: &str,
        how: How,
        code: Option<i32>,
        failure: Option<StartFailure>,
    ) {
        let Some(instance) = self.instances.get_mut(id) else {
            return;
        };
        let ran = std::mem::take(&mut instance.ran);
        let used = instance.usage.take();
        let about = &instance.about;
        let program = match instance.is_introduced {
            true => String::new(),
            false => about.program.clone(),
        };
        let labels = about.labels.clone();
        let end = |seq| End {
            seq,
            how,
            code,
            ran,
            program,
            labels,
        };
        let seq = self.ends.add(now, id, end);
        instance.ends.push(seq);
        instance.return_devices();
        self.give_back(used);
        self.persist(id);
        self.report_end(seq, failure);
        self.report_soon(now);
    }

    /// Tells an end by a frame of its own, unless it has to wait for the next STATS because others come before it.
    fn report_end(&mut self, seq: u64, failure: Option<StartFailure>) {
        let (Link::Up { reported, .. }, Some(unrecorded)) =
            (&self.link, self.ends.unrecorded.get_mut(&seq))
        else {
            return;
        };
        let has_reported = reported.is_some();
        let message = |seq| match failure {
            Some(failure) => Message::StartFailure(StartFailure { seq, ..failure }),
            None => message(&unrecorded.instance, &unrecorded.end, seq),
        };
        if !self.link.records_ends() {
            let message = message(None);
            unrecorded.frame = Some(self.ends.frames + 1);
            return self.send(message);
        }
        // The first STATS says whose numbers these are.
        let message = message(Some(seq));
        if has_reported && self.ends.is_next(seq) {
            self.ends.told = seq;
            self.send(message);
        }
    }

    /// What the next STATS says of ends.
    pub(super) fn ends_to_report(&mut self, now: Instant) -> Reported {
        if !self.records_ends() {
            return Reported::default();
        }
        let rows = self.ends.unrecorded.values().take(MAX_ENDS_PER_STATS);
        let rows: Vec<InstanceEnd> = rows.map(|it| row(it, now)).collect();
        let latest = rows.last().map_or(self.ends.last, |row| row.seq);
        self.ends.told = self.ends.told.max(latest);
        Reported {
            incarnation: self.ends.numbering.incarnation.to_string(),
            seq: Some(self.ends.last),
            rows,
        }
    }

    /// Handles EndsRecorded: forgets all ends up to that number. One for another incarnation is of an earlier state
    /// directory and says nothing. If ends are left that have not been told, the next report has them.
    pub(super) fn ends_recorded(
        &mut self,
        now: Instant,
        recorded: Result<EndsRecorded, PayloadError>,
    ) {
        let recorded = match recorded {
            Ok(recorded) => recorded,
            Err(error) => {
                return warn!(event = "command_unreadable", %error, "unreadable EndsRecorded ignored");
            }
        };
        if recorded.incarnation.parse() != Ok(self.ends.numbering.incarnation) {
            return;
        }
        self.recorded(&self.ends.up_to(recorded.seq));
        if self
            .ends
            .unrecorded
            .first_key_value()
            .is_some_and(|(&seq, _)| seq > self.ends.told)
        {
            self.report_soon(now);
        }
    }

    /// So many frames of this connection have been written to the socket.
    pub(super) fn written(&mut self, frames: u64) {
        let told = self.ends.reported_by(frames);
        if !self.records_ends() {
            self.recorded(&told);
        }
    }

    /// Whether ends wait for the socket to take what was sent ([`super::Input::Written`]).
    #[must_use]
    pub fn waits_for_writes(&self) -> bool {
        let is_up = matches!(self.link, Link::Up { .. });
        is_up && !self.records_ends() && self.ends.len() > 0
    }

    /// Forgets ends that need not be reported any more, and of instances of which nothing else is left.
    fn recorded(&mut self, numbers: &[u64]) {
        for seq in numbers {
            let Some(unrecorded) = self.ends.unrecorded.remove(seq) else {
                continue;
            };
            let id = unrecorded.instance;
            let Some(instance) = self.instances.get_mut(&id) else {
                continue;
            };
            instance.ends.retain(|other| other != seq);
            match instance.state {
                InstancePhase::Gone { .. } if instance.ends.is_empty() => self.forget(&id),
                _ => self.persist(&id),
            }
        }
        if !numbers.is_empty() {
            self.limit_exited();
        }
    }

    /// Ends that the scheduler may not have on record.
    #[must_use]
    pub fn unrecorded_ends(&self) -> usize {
        self.ends.len()
    }

    /// Whether the scheduler of the present connection has said that it records ends.
    pub(super) fn records_ends(&self) -> bool {
        self.link.records_ends()
    }

    /// The ids of the instances that match, in order.
    pub(super) fn ids(&self, matches: impl Fn(&Instance) -> bool) -> Vec<String> {
        let matching = self
            .instances
            .iter()
            .filter(|(_, instance)| matches(instance));
        matching.map(|(id, _)| id.clone()).collect()
    }
}

/// What a STATS says of ends; nothing to a scheduler that does not record them.
#[derive(Debug, Default)]
pub(super) struct Reported {
    /// Whose numbers these are.
    pub(super) incarnation: String,
    /// The latest number given, also of an end that is not among the rows.
    pub(super) seq: Option<u64>,
    /// The oldest ends that are not on record.
    pub(super) rows: Vec<InstanceEnd>,
}

/// The frame that tells an end. The failure of a START is told as such only once, when it happens: a scheduler that was
/// told of the instance by a STATS in between hears that it has stopped.
fn message(instance: &str, end: &End, seq: Option<u64>) -> Message {
    let instance_uuid = instance.to_owned();
    let exit_code = end.code.map(i64::from);
    match end.how {
        How::Removed(Removal::Deleted) => Message::InstanceDeleted(InstanceDeleted {
            instance_uuid,
            exit_code,
            seq,
            facts: end.facts(),
        }),
        How::Exited | How::Removed(Removal::Stopped | Removal::CutOff) | How::Failed { .. } => {
            Message::InstanceStopped(InstanceStopped {
                instance_uuid,
                exit_code,
                cut_off: end.how == How::Removed(Removal::CutOff),
                exited: end.how == How::Exited,
                seq,
                facts: end.facts(),
            })
        }
    }
}

/// An end in STATS.
fn row(unrecorded: &Unrecorded, now: Instant) -> InstanceEnd {
    let Unrecorded {
        instance, end, at, ..
    } = unrecorded;
    let age = at.map(|at| now.saturating_duration_since(at));
    let told = InstanceEnd {
        seq: end.seq,
        instance_uuid: instance.to_owned(),
        age_ms: age.map(|age| u64::try_from(age.as_millis()).unwrap_or(u64::MAX)),
        exit_code: end.code.map(i64::from),
        facts: end.facts(),
        ..InstanceEnd::default()
    };
    let how = match &end.how {
        How::Exited => EndKind::Exited,
        How::Removed(Removal::Deleted) => EndKind::Deleted,
        How::Removed(Removal::Stopped) => EndKind::Stopped,
        How::Removed(Removal::CutOff) => EndKind::CutOff,
        How::Failed {
            reason,
            detail,
            restart,
        } => {
            return InstanceEnd {
                how: EndKind::Failed,
                reason: StartFailureReason::from(reason.as_str()),
                detail: detail.clone(),
                restart: *restart,
                ..told
            };
        }
    };
    InstanceEnd { how, ..told }
}
