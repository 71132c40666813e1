//! One task: what is kept of it, the START it becomes, and how far it is.

use std::collections::BTreeMap;

use bytes::Bytes;
use ciao_scheduler::ctl::start_file::StartRequest;
use ciao_scheduler::ctl::track::{Stage, Tracked, Tracker, Until};
use ciao_scheduler::launcher::PLACEHOLDER;
use proto_frames::payload::{
    LifeState, OnNodeLoss, Payload as _, Requirements, Scheduling, Start, StartFailureReason,
};
use serde::{Deserialize, Serialize};

use crate::command::{CommandError, Priority, words};

/// On how many nodes a task is tried before it has failed.
const ATTEMPTS: u32 = 3;

/// A file of a task, as it was when it was accepted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Binary {
    /// What it was called by who gave it; for people alone.
    pub(crate) name: String,
    /// SHA-256 of its contents, in hex.
    pub(crate) sha256: String,
    /// Its length.
    pub(crate) bytes: u64,
}

/// How a task ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Outcome {
    /// Whether it ended with exit status 0.
    pub(crate) succeeded: bool,
    /// How, for people.
    pub(crate) detail: String,
}

/// What is kept of a task over a restart.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Record {
    /// Its number.
    pub(crate) id: u32,
    /// The instance that it is for the scheduler.
    pub(crate) instance: String,
    /// Its class.
    pub(crate) priority: Priority,
    /// Its files; the first is the program.
    pub(crate) files: Vec<Binary>,
    /// A frequency for each file, if it has any.
    pub(crate) frequencies: Vec<String>,
    /// Its arguments.
    pub(crate) args: String,
    /// How it ended, once it has.
    pub(crate) outcome: Option<Outcome>,
}

/// What every task asks for and how it is run.
#[derive(Debug, Clone)]
pub(crate) struct Shape {
    /// Memory, MiB.
    pub(crate) mem_mb: i64,
    /// Tenant.
    pub(crate) tenant: String,
    /// Program that is given the task's file instead of running it, and its arguments; `{}` stands for the file. Empty:
    /// the file is run.
    pub(crate) monitor: Vec<String>,
    /// Whether the arguments are one, as the original gives them to its monitor.
    pub(crate) one_argument: bool,
}

/// A task and how far it is.
#[derive(Debug)]
pub(crate) struct Task {
    pub(crate) record: Record,
    /// What the scheduler said of it.
    tracker: Tracker,
    /// Whether its START may have reached the scheduler.
    pub(crate) is_sent: bool,
    /// The node it was last said to be placed on: UUID.
    pub(crate) told_node: Option<String>,
    /// Whether people were told that it runs there, since it last did not.
    pub(crate) is_told: bool,
    /// Why the scheduler does not have it yet; empty where it has.
    pub(crate) held_back: String,
}

impl Record {
    /// The START, in which the files are found at these paths.
    pub(crate) fn start(&self, shape: &Shape, vcpus: i64, paths: &[String]) -> Bytes {
        self.start_of(shape, vcpus, paths, String::new())
    }

    /// The START in which its one file is an image that the scheduler ships; `None` where it has several files.
    pub(crate) fn shipped_start(&self, shape: &Shape, vcpus: i64) -> Option<Bytes> {
        let [file] = &*self.files else {
            return None;
        };
        let image = format!("sha256:{}", file.sha256);
        Some(self.start_of(shape, vcpus, &[PLACEHOLDER.to_owned()], image))
    }

    fn start_of(&self, shape: &Shape, vcpus: i64, paths: &[String], image: String) -> Bytes {
        let program = paths.first().cloned().unwrap_or_default();
        let mut command: Vec<String> = match &*shape.monitor {
            [] => vec![program],
            words => words.iter().map(|it| it.replace("{}", &program)).collect(),
        };
        command.extend(arguments(&self.args, shape).unwrap_or_default());
        let mut env = BTreeMap::from([("FUNKY_TASK".to_owned(), self.id.to_string())]);
        if !self.frequencies.is_empty() {
            env.insert("FUNKY_BITSTREAMS".to_owned(), paths.join(","));
            env.insert("FUNKY_FREQUENCIES".to_owned(), self.frequencies.join(","));
        }
        let start = Start {
            instance_uuid: self.instance.clone(),
            tenant_uuid: shape.tenant.clone(),
            vm_type: "process".to_owned(),
            image,
            command,
            env,
            requirements: Requirements {
                mem_mb: shape.mem_mb,
                vcpus,
                ..Requirements::default()
            },
            scheduling: Some(Scheduling {
                priority: Some(self.priority.scheduling()),
                queue: Some(proto_frames::payload::scheduling::MAX_QUEUE),
                attempts: Some(ATTEMPTS),
                relocate: true,
                on_node_loss: OnNodeLoss::Restart,
                ..Scheduling::default()
            }),
            ..Start::default()
        };
        start.encode()
    }
}

/// The arguments of a program that are given in one line.
///
/// # Errors
/// A quotation mark is not closed.
pub(crate) fn arguments(line: &str, shape: &Shape) -> Result<Vec<String>, CommandError> {
    match (line, shape.one_argument) {
        ("", _) => Ok(Vec::new()),
        (line, true) => Ok(vec![line.to_owned()]),
        (line, false) => words(line),
    }
}

/// What a task that the scheduler did not start is to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum After {
    /// It has failed.
    Fail,
    /// It is sent again later: the cluster cannot take it at present.
    TryAgain,
}

/// What follows from a reason why a START failed. That there is no room is no fault of the task; only here, for as long as
/// it takes.
pub(crate) fn after_failure(reason: &str) -> After {
    type Why = StartFailureReason;
    match StartFailureReason::from(reason) {
        Why::FullCloud
        | Why::FullComputeNode
        | Why::NodeMaintenance
        | Why::NoComputeNodes
        | Why::NoNetworkNodes
        | Why::QueueTimeout
        | Why::AlreadyRunning
        | Why::InstanceExists
        | Why::NotRecorded => After::TryAgain,
        _ => After::Fail,
    }
}

impl Task {
    /// A task that was just accepted, or, `is_sent`, may be known to the scheduler from before.
    pub(crate) fn new(record: Record, is_sent: bool) -> Self {
        let mut task = Self {
            tracker: tracker(&record),
            record,
            is_sent,
            told_node: None,
            is_told: false,
            held_back: String::new(),
        };
        if is_sent {
            task.tracker.reattach();
        }
        task
    }

    /// What the scheduler said of it.
    pub(crate) fn tracker(&mut self) -> &mut Tracker {
        &mut self.tracker
    }

    /// Forgets what the scheduler said of it: it is sent again.
    pub(crate) fn begin_again(&mut self) {
        self.tracker = tracker(&self.record);
        self.is_sent = false;
        self.told_node = None;
    }

    fn tracked(&self) -> &Tracked {
        &self.tracker.all()[0]
    }

    /// How far the scheduler says it is.
    pub(crate) fn stage(&self) -> &Stage {
        &self.tracked().stage
    }

    /// The node it is on: UUID and host name.
    pub(crate) fn node(&self) -> Option<&(String, String)> {
        match self.stage() {
            Stage::Sent | Stage::Waiting(_) | Stage::Failed { .. } | Stage::Vanished => None,
            _ => self.tracked().node.as_ref(),
        }
    }

    /// Whether it has ended.
    pub(crate) const fn is_over(&self) -> bool {
        self.record.outcome.is_some()
    }

    /// One word for how far it is.
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
                LifeState::Suspended | LifeState::Suspending => "paused",
                LifeState::Resuming => "resuming",
                LifeState::Migrating => "migrating",
                LifeState::Lost => "lost",
                _ => "stopping",
            },
            _ if self.told_node.is_some() => "paused",
            _ => "queued",
        }
    }

    /// More about how far it is, for people.
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

fn tracker(record: &Record) -> Tracker {
    let request = StartRequest {
        name: format!("task {}", record.id),
        instance_uuid: record.instance.clone(),
        payload: Bytes::new(),
    };
    Tracker::new(&[request], Until::Exited)
}
