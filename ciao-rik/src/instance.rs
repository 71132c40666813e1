//! One instance of a controller: the record that is kept, and how it is, from two sources. Without IO;
//! [`crate::coordinator`] owns all of them.

use std::sync::Arc;
use std::time::Duration;

use ciao_adapter::sent::{self, Sent};
use ciao_adapter::tracking;
use ciao_scheduler::ctl::track::{Stage, Tracker};
use proto_frames::payload::PhaseName;
use serde::{Deserialize, Serialize};

use crate::rpc::common::ResourceStatus;

/// What is kept of an instance over a restart: one JSON value in the store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct InstanceRecord {
    /// The controller's id. With `owner` it is unique among the instances that are not over.
    pub(crate) id: String,
    /// UUID of the instance for the scheduler. It begins with the family and stays the same when the START is sent
    /// again.
    #[serde(with = "shared")]
    pub(crate) instance: Arc<str>,
    /// The workload's id, in the controller's words.
    pub(crate) workload: String,
    /// Its definition on one line; empty once it is over.
    #[serde(with = "shared")]
    pub(crate) definition: Arc<str>,
    /// The name of the token of the controller that made it; empty without tokens. Only callers with the same name see
    /// it.
    #[serde(with = "shared")]
    pub(crate) owner: Arc<str>,
    /// `Some` for an instance that a set has made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) set: Option<Member>,
    /// What is to become of it.
    #[serde(default)]
    pub(crate) fate: Fate,
    /// When its START was about to be sent for the first time, milliseconds of Unix time by this machine's clock; `None`
    /// = the scheduler has never seen it. Records of versions without this field do not say: those instances may have
    /// been sent at any time.
    #[serde(default = "sent::at_any_time")]
    pub(crate) sent_ms: Option<u64>,
}

/// Membership in a set. The set itself is found by owner and workload.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Member {
    /// The number of the definition that it was made of; see [`crate::coordinator::sets::Set`].
    pub(crate) generation: u64,
}

/// What is to become of an instance, as its controller wants it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Fate {
    /// It is to run.
    #[default]
    Run,
    /// A DELETE has been or will be sent; it waits for the end.
    Destroy,
    /// It has failed, for this reason, and does not run. It stays listed, and keeps its id, until its controller
    /// destroys it.
    Failed(String),
    /// It has ended as was wanted. It is kept until a controller has read that.
    Over,
}

/// An instance and what is known of it at present. Only the record is on disk.
#[derive(Debug)]
pub(crate) struct Instance {
    pub(crate) record: InstanceRecord,
    /// Its stage, from the scheduler's events and listings.
    tracker: Tracker,
    /// Whether the scheduler may have its START, and since when.
    sent: Sent,
    /// Whether it is sent without a name, because the scheduler refused the START with it.
    pub(crate) is_nameless: bool,
    /// The worker's latest status; `None` once the instance waits or is held elsewhere.
    pub(crate) said: Option<Said>,
    /// The status that controllers were told last; the same without a detail is not told twice in a row.
    pub(crate) notified: Option<ResourceStatus>,
    /// Why it is not with the scheduler, for people.
    pub(crate) held_back: String,
}

/// What a worker said of an instance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Said {
    /// UUID of the node that the worker is.
    pub(crate) node: Arc<str>,
    /// The worker's name.
    pub(crate) worker: Arc<str>,
    /// Its word.
    pub(crate) status: ResourceStatus,
    /// The worker's text beside the status, passed on as it is.
    pub(crate) metrics: String,
}

impl Instance {
    /// An instance that was just made ([`Sent::No`]), or one from the store, which the scheduler may know from before.
    pub(crate) fn new(record: InstanceRecord, sent: Sent) -> Self {
        let mut instance = Self {
            tracker: tracker(&record),
            record,
            sent,
            is_nameless: false,
            said: None,
            notified: None,
            held_back: String::new(),
        };
        if sent.is_sent() {
            instance.tracker.reattach();
        }
        instance
    }

    /// The tracker, to hand it an event or a listing. The caller then acts on [`Instance::stage`].
    pub(crate) fn tracker(&mut self) -> &mut Tracker {
        &mut self.tracker
    }

    /// Puts the instance back to where it was before it was first sent. Its UUID stays.
    pub(crate) fn begin_again(&mut self) {
        self.tracker = tracker(&self.record);
        self.sent = Sent::No;
        self.said = None;
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

    /// Takes note that the scheduler has the instance, and that how far it is has to be learned from a listing.
    pub(crate) fn reattach(&mut self) {
        self.tracker = tracker(&self.record);
        self.tracker.reattach();
        self.sent = Sent::AtAnyTime;
    }

    /// How far the scheduler says it is. The tracker always has exactly one instance.
    pub(crate) fn stage(&self) -> &Stage {
        &self.tracker.all()[0].stage
    }

    /// UUID of the node that it is on: that of the worker which spoke of it last, or else the scheduler's latest.
    pub(crate) fn node(&self) -> Option<&str> {
        let listed = self.tracker.all()[0].node.as_ref();
        let said = self.said.as_ref().map(|it| &*it.node);
        said.or(listed.map(|(uuid, _)| &**uuid))
    }

    /// Whether it may still run, so that events and listings are of interest.
    pub(crate) fn is_living(&self) -> bool {
        matches!(self.record.fate, Fate::Run | Fate::Destroy)
    }

    /// What its fate becomes when it is destroyed: it is over at once if the scheduler has it not, or if it has ended
    /// or failed. `None` if it is being destroyed, or is over.
    pub(crate) fn fate_when_destroyed(&self) -> Option<Fate> {
        let has_ended = matches!(self.stage(), Stage::Failed { .. } | Stage::Ended { .. });
        match self.record.fate {
            Fate::Run if self.is_sent() && !has_ended => Some(Fate::Destroy),
            Fate::Run | Fate::Failed(_) => Some(Fate::Over),
            Fate::Destroy | Fate::Over => None,
        }
    }

    /// Whether controllers are told that it runs.
    pub(crate) fn is_running(&self) -> bool {
        self.status().0 == ResourceStatus::Running
    }

    /// Its status and a text beside it, for controllers.
    ///
    /// The fate comes first. For an instance that is to run, the worker's own status counts as long as the scheduler
    /// agrees that the instance is on its way or runs; otherwise the scheduler's stage is translated. RIK has no status
    /// for what is suspended, lost or moved: that is `Pending`, with the reason in the text.
    pub(crate) fn status(&self) -> (ResourceStatus, String) {
        type Is = ResourceStatus;
        match &self.record.fate {
            Fate::Over => return (Is::Terminated, String::new()),
            Fate::Destroy => return (Is::Destroying, String::new()),
            Fate::Failed(why) => return (Is::Failed, why.clone()),
            Fate::Run => {}
        }
        match (self.stage(), &self.said) {
            _ if !self.is_sent() => (Is::Pending, self.held_back.clone()),
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
                PhaseName::Suspended | PhaseName::Suspending => (Is::Pending, detail.clone()),
                PhaseName::Lost => (Is::Pending, format!("its worker is lost: {detail}")),
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

fn tracker(record: &InstanceRecord) -> Tracker {
    tracking::tracker(String::new(), record.instance.to_string())
}
