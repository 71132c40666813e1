//! One instance of a controller: what is kept of it, and how it is.

use std::sync::Arc;

use bytes::Bytes;
use ciao_scheduler::ctl::start_file::StartRequest;
use ciao_scheduler::ctl::track::{Stage, Tracker, Until};
use proto_frames::payload::LifeState;
use serde::{Deserialize, Serialize};

use crate::rpc::common::ResourceStatus;

/// What is kept of an instance over a restart.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Record {
    /// What its controller calls it.
    pub(crate) id: String,
    /// What it is for the scheduler: a UUID.
    #[serde(with = "shared")]
    pub(crate) instance: Arc<str>,
    /// Its workload, in its controller's words.
    pub(crate) workload: String,
    /// Its definition, on one line.
    #[serde(with = "shared")]
    pub(crate) definition: Arc<str>,
    /// Who asked for it: the name of the controller's token; empty where there are none.
    #[serde(with = "shared")]
    pub(crate) owner: Arc<str>,
    /// The set that it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) set: Option<Member>,
    /// What is to become of it.
    #[serde(default)]
    pub(crate) fate: Fate,
}

/// A place in a set.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Member {
    /// The definition it was made of, by number: a later one has a higher number.
    pub(crate) generation: u64,
}

/// What is to become of an instance.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Fate {
    /// It is to run.
    #[default]
    Run,
    /// It is to go.
    Destroy,
    /// It failed, for this reason; it stays listed until it is to go.
    Failed(String),
    /// It is over, which no controller has been told.
    Over,
}

/// An instance.
#[derive(Debug)]
pub(crate) struct Instance {
    pub(crate) record: Record,
    tracker: Tracker,
    /// Whether its START may have reached the scheduler.
    pub(crate) is_sent: bool,
    /// Whether it is sent without a name, because another has that.
    pub(crate) is_nameless: bool,
    /// What its worker said of it last, and the worker's node.
    pub(crate) said: Option<Said>,
    /// What controllers were told last.
    pub(crate) told: Option<ResourceStatus>,
    /// Why it is not with the scheduler, for people.
    pub(crate) held_back: String,
}

/// What a worker says of an instance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Said {
    /// The node that the worker is: a UUID.
    pub(crate) node: Arc<str>,
    /// The worker's name.
    pub(crate) worker: Arc<str>,
    /// Its word.
    pub(crate) status: ResourceStatus,
    /// More, as it wrote it.
    pub(crate) metrics: String,
}

impl Instance {
    /// One that was just accepted, or, `is_sent`, may be known to the scheduler from before.
    pub(crate) fn new(record: Record, is_sent: bool) -> Self {
        let mut instance = Self {
            tracker: tracker(&record),
            record,
            is_sent,
            is_nameless: false,
            said: None,
            told: None,
            held_back: String::new(),
        };
        if is_sent {
            instance.tracker.reattach();
        }
        instance
    }

    /// What the scheduler said of it.
    pub(crate) fn tracker(&mut self) -> &mut Tracker {
        &mut self.tracker
    }

    /// Forgets what was said of it: it is sent again.
    pub(crate) fn begin_again(&mut self) {
        self.tracker = tracker(&self.record);
        self.is_sent = false;
        self.said = None;
    }

    /// How far the scheduler says it is.
    pub(crate) fn stage(&self) -> &Stage {
        &self.tracker.all()[0].stage
    }

    /// The node that it is on: a UUID.
    pub(crate) fn node(&self) -> Option<&str> {
        let told = self.tracker.all()[0].node.as_ref();
        let said = self.said.as_ref().map(|it| &*it.node);
        said.or(told.map(|(uuid, _)| &**uuid))
    }

    /// Whether it may still run.
    pub(crate) fn is_living(&self) -> bool {
        matches!(self.record.fate, Fate::Run | Fate::Destroy)
    }

    /// Whether it runs, as far as is known.
    pub(crate) fn is_running(&self) -> bool {
        self.status().0 == ResourceStatus::Running
    }

    /// How it is, for controllers, and more about that.
    pub(crate) fn status(&self) -> (ResourceStatus, String) {
        type Is = ResourceStatus;
        match &self.record.fate {
            Fate::Over => return (Is::Terminated, String::new()),
            Fate::Destroy => return (Is::Destroying, String::new()),
            Fate::Failed(why) => return (Is::Failed, why.clone()),
            Fate::Run => {}
        }
        match (self.stage(), &self.said) {
            _ if !self.is_sent => (Is::Pending, self.held_back.clone()),
            (
                Stage::Sent | Stage::Waiting(_) | Stage::Placed | Stage::Running,
                Some(Said {
                    status: status @ (Is::Running | Is::Creating | Is::Pending),
                    metrics,
                    ..
                }),
            ) => (*status, metrics.clone()),
            (Stage::Waiting(queued), _) => (Is::Pending, queued.detail.clone()),
            (Stage::Held { state, detail }, _) => match state {
                LifeState::Suspended | LifeState::Suspending => (Is::Pending, detail.clone()),
                LifeState::Lost => (Is::Pending, format!("its worker is lost: {detail}")),
                _ => (Is::Pending, detail.clone()),
            },
            (Stage::Placed, _) => (Is::Creating, String::new()),
            (Stage::Running, _) => (Is::Running, String::new()),
            _ => (Is::Pending, String::new()),
        }
    }
}

/// Texts that are held by several, as they are kept.
pub(crate) mod shared {
    use std::sync::Arc;

    use serde::{Deserialize as _, Deserializer, Serializer};

    /// Writes one.
    pub(crate) fn serialize<S: Serializer>(text: &Arc<str>, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(text)
    }

    /// Reads one.
    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Arc<str>, D::Error> {
        String::deserialize(from).map(Arc::from)
    }
}

fn tracker(record: &Record) -> Tracker {
    let request = StartRequest {
        name: String::new(),
        instance_uuid: record.instance.to_string(),
        payload: Bytes::new(),
    };
    Tracker::new(&[request], Until::Exited)
}
