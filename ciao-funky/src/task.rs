//! One task: the record that is kept on disk, the START that it becomes, and how far it is.
//!
//! A pure module without IO. [`coordinator`](crate::coordinator) owns the tasks and decides when they are sent; how far
//! an instance is is found by the [`Tracker`] of `ciaoctl`, which each task has one of.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use ciao_adapter::family::Family;
use ciao_adapter::sent::{self, Sent};
use ciao_adapter::tracking;
use ciao_scheduler::ctl::track::{Stage, Tracked, Tracker};
use ciao_scheduler::launcher::placeholder;
use proto_frames::payload::image::MAX_MORE_IMAGES;
use proto_frames::payload::{
    Group, GroupPolicy, OnNodeLoss, Payload as _, PhaseName, Requirements, Scheduling, Start,
};
use serde::{Deserialize, Serialize};

use crate::command::{CommandError, Priority, words};

/// On how many nodes the scheduler tries to start a task before it reports a failure. A program that cannot be started
/// on three nodes is taken to be at fault itself.
const ATTEMPTS: u32 = 3;

/// A file of a task. Its contents are in the store of [`binaries`](crate::binaries) under `sha256`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Binary {
    /// The path or file name that the client gave; shown to people and used for nothing else.
    pub(crate) name: String,
    /// SHA-256 of its contents in hex, and the name of the copy. Empty for a file that could not be copied, whose task
    /// has failed.
    pub(crate) sha256: String,
    /// Its length in bytes.
    pub(crate) bytes: u64,
}

/// How a task ended. A task with an outcome is not sent again and holds no files.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Outcome {
    /// Whether it ended with exit status 0. An end whose exit status is not known counts as a failure.
    pub(crate) succeeded: bool,
    /// The cause in words, such as `exit status 1`, `ended by signal 9` or the scheduler's reason and explanation.
    pub(crate) detail: String,
}

/// What is kept of a task over a restart: one JSON value in the store. A field that is added needs a default, or the
/// records of older versions cannot be read.
///
/// ```json
/// {"id":7,"instance":"5f0c1e2a-…","priority":"High","files":[{"name":"/bin/a","sha256":"9f86…","bytes":1024}],
///  "frequencies":[],"args":"-x 1","outcome":null,"sent_ms":1764077330000}
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TaskRecord {
    /// The number that clients see: from 1, in the order in which tasks were begun.
    pub(crate) id: u32,
    /// UUID of its instance, which begins with the family. It stays the same when the task is sent again: a START that
    /// the scheduler has already is refused as a duplicate rather than run twice.
    pub(crate) instance: String,
    /// Funky's class; [`Priority::scheduling`] is the number in the START.
    pub(crate) priority: Priority,
    /// Its files, in the order given; the first is the program that is run.
    pub(crate) files: Vec<Binary>,
    /// For each file the frequency that Funky's successor gives with it, as it was written; empty in the original's
    /// form. It is handed to the program unread.
    pub(crate) frequencies: Vec<String>,
    /// Arguments in one line, at most as long as a command; [`arguments`] splits them.
    pub(crate) args: String,
    /// `None` until the task has ended.
    pub(crate) outcome: Option<Outcome>,
    /// When its START was about to be sent for the first time, milliseconds of Unix time by this machine's clock; `None`
    /// = the scheduler has never seen it. Records of versions without this field do not say: those tasks may have been
    /// sent at any time.
    #[serde(default = "sent::at_any_time")]
    pub(crate) sent_ms: Option<u64>,
}

/// What all tasks ask for and how they are run: the flags of this program, the same for every task.
#[derive(Debug, Clone)]
pub(crate) struct Shape {
    /// Memory that each task asks for, MiB.
    pub(crate) mem_mb: i64,
    /// Virtual CPUs that each task asks for.
    pub(crate) vcpus: i64,
    /// The group of which each node runs one member, and each task is one; `None` where a node may run several.
    pub(crate) group: Option<String>,
    /// UUID of the tenant that instances and pushed programs belong to.
    pub(crate) tenant: String,
    /// Program that is run in place of the task's file, and its arguments; `{}` in any of them stands for the file's
    /// path. With an empty list the file itself is run.
    pub(crate) monitor: Vec<String>,
    /// Whether the line of arguments is passed as a single one, as the original passes it to its monitor.
    pub(crate) one_argument: bool,
}

/// A record and what is known of its instance at present. Only the record is kept: after a restart the rest is learned
/// from the scheduler's listing.
#[derive(Debug)]
pub(crate) struct Task {
    /// Shared with what is to be written or sent of it.
    pub(crate) record: Arc<TaskRecord>,
    /// The instance's stage, from events and listings.
    tracker: Tracker,
    /// Whether the scheduler may have its START, and since when. Listings are compared only with such tasks.
    sent: Sent,
    /// UUID of the node that the last line `task N node M` named; `None` before the first.
    pub(crate) announced_node: Option<String>,
    /// Whether that line holds still. It is cleared when the task waits or is suspended, so that its next start is told
    /// even if it is on the same node.
    pub(crate) is_announced: bool,
    /// How often the scheduler has not taken one of its files, since it last took one.
    pub(crate) refusals: u32,
    /// How often each file was pushed, by its place in the record, since the scheduler last answered its START.
    pub(crate) pushes: BTreeMap<usize, u32>,
    /// Why the task is not with the scheduler: not connected, no node, or the reason of the last refusal. Empty once it
    /// is sent.
    pub(crate) held_back: String,
}

impl TaskRecord {
    /// Bytes of its texts that clients choose.
    pub(crate) fn bytes(&self) -> usize {
        let names = self.files.iter().map(|it| it.name.len());
        names.sum::<usize>() + bytes_of(&self.args, &self.frequencies)
    }

    /// The START whose program and files are at these paths, in the order of the record's files.
    pub(crate) fn start(&self, shape: &Shape, paths: &[String]) -> Bytes {
        self.start_of(shape, paths, Vec::new())
    }

    /// The START whose program and files are images that launchers fetch from the scheduler.
    pub(crate) fn shipped_start(&self, shape: &Shape) -> Bytes {
        let digests = self.files.iter().map(|it| format!("sha256:{}", it.sha256));
        let paths: Vec<String> = (0..self.files.len()).map(placeholder).collect();
        self.start_of(shape, &paths, digests.collect())
    }

    /// Whether a START can name all its files as images: it can but for very many.
    pub(crate) fn can_be_shipped(&self) -> bool {
        self.files.len() <= 1 + MAX_MORE_IMAGES
    }

    /// What a file is called where it is told how it gets to the scheduler.
    pub(crate) fn called(&self, file: usize) -> String {
        match self.files.get(file) {
            Some(binary) if file > 0 => format!("its file {}", binary.name),
            _ => "its program".to_owned(),
        }
    }

    /// What its files are called where it does not matter which one it is.
    pub(crate) fn any_file(&self) -> &'static str {
        match self.files.len() {
            0 | 1 => "its program",
            _ => "one of its files",
        }
    }

    /// Encodes the START. `paths` are what the command, `FUNKY_BITSTREAMS` and the monitor's `{}` name: real paths, or
    /// each image's [`placeholder`].
    ///
    /// The scheduling values are Funky's behaviour in the scheduler's terms: wait for room as long as a START may,
    /// resume or run elsewhere when relocated, run again after the loss of a node, and be alone of its kind on a node
    /// where that is asked for.
    fn start_of(&self, shape: &Shape, paths: &[String], images: Vec<String>) -> Bytes {
        let mut images = images.into_iter();
        let program = paths.first().cloned().unwrap_or_default();
        let mut command: Vec<String> = match &*shape.monitor {
            [] => vec![program],
            words => words.iter().map(|it| it.replace("{}", &program)).collect(),
        };
        command.extend(arguments(&self.args, shape).unwrap_or_default());
        let mut env = BTreeMap::from([("FUNKY_TASK".to_owned(), self.id.to_string())]);
        // A program has no other way to the files behind the first.
        if paths.len() > 1 || !self.frequencies.is_empty() {
            env.insert("FUNKY_BITSTREAMS".to_owned(), paths.join(","));
        }
        if !self.frequencies.is_empty() {
            env.insert("FUNKY_FREQUENCIES".to_owned(), self.frequencies.join(","));
        }
        let group = shape.group.as_ref().map(|id| Group {
            id: id.clone(),
            policy: GroupPolicy::AntiAffinity,
            ..Group::default()
        });
        let start = Start {
            instance_uuid: self.instance.clone(),
            tenant_uuid: shape.tenant.clone(),
            vm_type: "process".to_owned(),
            image: images.next().unwrap_or_default(),
            more_images: images.collect(),
            command,
            env,
            requirements: Requirements {
                mem_mb: shape.mem_mb,
                vcpus: shape.vcpus,
                ..Requirements::default()
            },
            scheduling: Some(Scheduling {
                priority: Some(self.priority.scheduling()),
                queue: Some(proto_frames::payload::scheduling::MAX_QUEUE),
                attempts: Some(ATTEMPTS),
                relocate: Some(true),
                on_node_loss: OnNodeLoss::Restart,
                // Better not at all than two on a node.
                must_understand: group.iter().map(|_| "group".to_owned()).collect(),
                group,
                ..Scheduling::default()
            }),
            ..Start::default()
        };
        start.encode()
    }
}

/// The group of which each node runs one task at a time. All tasks of one adapter are in it, whenever they were sent, and
/// those of an adapter with another state directory are in another.
pub(crate) fn group_of(family: Family) -> String {
    format!("ciao-funky-{}", family.prefix())
}

/// Bytes of a task's arguments and frequencies.
pub(crate) fn bytes_of(args: &str, frequencies: &[String]) -> usize {
    args.len() + frequencies.iter().map(String::len).sum::<usize>()
}

/// Splits the line of arguments as [`words`] does, or keeps it as one argument with [`Shape::one_argument`].
///
/// # Errors
/// A quotation mark is not closed. Callers check this before they accept a task, so that [`TaskRecord::start`] cannot
/// fail.
pub(crate) fn arguments(line: &str, shape: &Shape) -> Result<Vec<String>, CommandError> {
    match (line, shape.one_argument) {
        ("", _) => Ok(Vec::new()),
        (line, true) => Ok(vec![line.to_owned()]),
        (line, false) => words(line),
    }
}

impl Task {
    /// A task that was just accepted ([`Sent::No`]), or one from the store, which the scheduler may know from before
    /// the restart. The latter's tracker takes a listing as the full truth.
    pub(crate) fn new(record: TaskRecord, sent: Sent) -> Self {
        let mut task = Self {
            tracker: tracker(&record),
            record: Arc::new(record),
            sent,
            announced_node: None,
            is_announced: false,
            refusals: 0,
            pushes: BTreeMap::new(),
            held_back: String::new(),
        };
        if sent.is_sent() {
            task.tracker.reattach();
        }
        task
    }

    /// The tracker, to hand it an event or a listing. The caller then acts on [`Task::stage`].
    pub(crate) fn tracker(&mut self) -> &mut Tracker {
        &mut self.tracker
    }

    /// The START is handed to the session now.
    pub(crate) fn note_sent(&mut self) {
        self.sent = Sent::now();
        self.held_back.clear();
    }

    /// Whether the scheduler may have its START.
    pub(crate) fn is_sent(&self) -> bool {
        self.sent.is_sent()
    }

    /// How long the scheduler may have had its START; [`Duration::MAX`] where that is not known.
    pub(crate) fn sent_for(&self) -> Duration {
        self.sent.how_long()
    }

    /// Puts the task back to where it was before it was first sent. The instance's UUID stays. The caller puts it among
    /// the unsent tasks.
    pub(crate) fn begin_again(&mut self) {
        self.tracker = tracker(&self.record);
        self.sent = Sent::No;
        self.announced_node = None;
    }

    /// The scheduler has the instance already, and says so of a START that it was sent again: how it is shows in the next
    /// listing.
    pub(crate) fn look_again(&mut self) {
        self.tracker = tracker(&self.record);
        self.tracker.reattach();
        self.sent = Sent::AtAnyTime;
        self.held_back.clear();
    }

    /// The tracker of a task always has exactly one instance.
    fn tracked(&self) -> &Tracked {
        &self.tracker.all()[0]
    }

    /// How far the scheduler says it is.
    pub(crate) fn stage(&self) -> &Stage {
        &self.tracked().stage
    }

    /// UUID and host name of the node it is on. `None` while it waits and after a failed start, also where the tracker
    /// remembers an earlier node.
    pub(crate) fn node(&self) -> Option<&(String, String)> {
        match self.stage() {
            Stage::Sent | Stage::Waiting(_) | Stage::Failed { .. } | Stage::Vanished => None,
            _ => self.tracked().node.as_ref(),
        }
    }

    /// Whether it has ended; then its instance is not looked for in listings.
    pub(crate) fn is_over(&self) -> bool {
        self.record.outcome.is_some()
    }

    /// One word for people and for `ps`: `queued`, `starting`, `running`, `paused`, `resuming`, `migrating`, `lost`,
    /// `stopping`, `succeeded` or `failed`. A task that waits and has run before is `paused`, in Funky's sense, whether
    /// it was suspended or stopped.
    pub(crate) fn word(&self) -> &'static str {
        if let Some(outcome) = &self.record.outcome {
            return if outcome.succeeded {
                "succeeded"
            } else {
                "failed"
            };
        }
        match self.stage() {
            Stage::Placed => "starting",
            Stage::Running => "running",
            Stage::Held { state, .. } => match state {
                PhaseName::Suspended | PhaseName::Suspending => "paused",
                PhaseName::Resuming => "resuming",
                PhaseName::Migrating => "migrating",
                PhaseName::Lost => "lost",
                _ => "stopping",
            },
            _ if self.announced_node.is_some() => "paused",
            _ => "queued",
        }
    }

    /// More about its state for people: how it ended, why it is not with the scheduler, or why it waits; often empty.
    pub(crate) fn detail(&self) -> String {
        if let Some(outcome) = &self.record.outcome {
            return outcome.detail.clone();
        }
        match self.stage() {
            _ if !self.held_back.is_empty() => self.held_back.clone(),
            Stage::Waiting(queued) => queued.detail.clone(),
            Stage::Held { detail, .. } => detail.clone(),
            _ => String::new(),
        }
    }
}

/// A tracker for the task's instance.
fn tracker(record: &TaskRecord) -> Tracker {
    tracking::tracker(format!("task {}", record.id), record.instance.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adapters_with_different_families_have_different_groups() {
        let [one, other] = [1, 2].map(|number| group_of(Family::new(number)));
        assert_eq!(one, group_of(Family::new(1)), "the same after a restart");
        assert_ne!(one, other);
    }
}
