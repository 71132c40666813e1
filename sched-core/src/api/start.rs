//! A START: what it asks for, and the same with its frame, on its way through the core and to a node.
//!
//! [`StartRequest`] comes in with [`Command::Start`](crate::Command::Start); [`PlacedStart`] goes out with
//! [`Message::Start`](crate::Message::Start), and comes back in [`Input::Disconnected`](crate::Input::Disconnected) where it
//! was not written.

use std::collections::BTreeMap;
use std::sync::Arc;

use sched_model::{OnNodeLoss, Scheduling, Span};
use serde::{Deserialize, Serialize};

use crate::api::array::{ElementId, ElementStart};
use crate::api::content::Content;
use crate::api::ids::{InstanceId, SessionId};
use crate::api::parcel::Parcel;
use crate::api::resources::Resources;
use crate::api::rules::TenantId;
use crate::api::vm_types::VmType;

/// What a START asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StartRequest {
    /// The instance to be.
    pub instance: InstanceId,
    /// What it needs.
    pub asked: Resources,
    /// Whether it needs a network node rather than a compute node.
    pub network_node: bool,
    /// The one node it may run on, by UUID as the payload writes it.
    pub node_id: Option<Box<str>>,
    /// The host it may run on, by name.
    pub hostname: Option<Box<str>>,
    /// Whether it is a restart; only echoed in failures.
    pub restart: bool,
    /// The tenant it belongs to.
    pub tenant: Option<TenantId>,
    /// The image it runs, by name.
    pub image: Option<Box<str>>,
    /// Whether that is one that its launcher has to fetch where it is not there, rather than one of the node's own.
    pub fetches_image: bool,
    /// The further images that its launcher has to fetch, by name; none unless it fetches the first. Which ones they
    /// are does not matter for its placement.
    pub more_images: Box<[Box<str>]>,
    /// What runs it; `None` where that is not known, as of an instance whose START is not.
    pub vm_type: Option<VmType>,
    /// The volumes and ports that it uses, by id.
    pub volumes: Box<[Box<str>]>,
    /// What it says about its placement.
    pub scheduling: Option<Box<Scheduling>>,
    /// What tells it from other STARTs of the instance; `None` where that is not known.
    pub content: Option<Content>,
}

impl StartRequest {
    /// One that asks for nothing, and so could run anywhere.
    #[must_use]
    pub fn plain(instance: InstanceId) -> Self {
        Self {
            instance,
            asked: Resources::ZERO,
            network_node: false,
            node_id: None,
            hostname: None,
            restart: false,
            tenant: None,
            image: None,
            fetches_image: false,
            more_images: Box::default(),
            vm_type: None,
            volumes: Box::default(),
            scheduling: None,
            content: None,
        }
    }

    /// Whether it asks for its instance to be managed: by a priority, a place in the queue, several attempts, relocation, or a
    /// restart elsewhere. STARTs of original controllers never do.
    pub(crate) fn asks_to_be_managed(&self) -> bool {
        self.scheduling.as_deref().is_some_and(|asked| {
            asked.priority.is_some()
                || asked.queue.is_some()
                || asked.attempts.is_some()
                || asked.relocate == Some(true)
                || asked.on_node_loss == OnNodeLoss::Restart
        })
    }
}

/// A START on its way to a node, or waiting to be placed. It holds the frame as it came, so that it can be forwarded
/// byte for byte, and the decoded request beside it, so that no part of the core has to read the frame.
#[derive(Debug, Clone, PartialEq)]
pub struct PlacedStart {
    /// The session that sent it and is answered. After a restart of the scheduler it is `SessionId(0)`, which no
    /// session has: all controllers are answered then.
    pub sender: SessionId,
    /// What it asks for; shared with the queue and with searches, and copied only when it is changed.
    pub request: Arc<StartRequest>,
    /// The frame as it came: what the launcher gets.
    pub parcel: Parcel,
    /// What its payload does not say, because it came to be so since; `None` as long as the payload says it all.
    pub changes: Option<Box<StartChanges>>,
}

impl PlacedStart {
    /// The element of an array that it starts, if it does.
    pub(crate) fn element(&self) -> Option<ElementId> {
        let element = self.changes.as_ref()?.element.as_ref()?;
        Some(element.id)
    }

    /// Makes it a restart, because its instance ran before: a launcher then takes up what is left of it instead of
    /// preparing it again. Does nothing where the START says so itself.
    pub(crate) fn set_restart(&mut self) {
        if !self.request.restart {
            Arc::make_mut(&mut self.request).restart = true;
            self.changes.get_or_insert_default().restart = true;
        }
    }

    /// Has its launcher told that it is started elsewhere when its node is lost, and how long it may run, where its payload
    /// does not say it.
    pub(crate) fn set_added(&mut self, restart_on_loss: bool, time_limit: Option<Span>) {
        if restart_on_loss || time_limit.is_some() {
            let changes = self.changes.get_or_insert_default();
            changes.restart_on_loss |= restart_on_loss;
            changes.time_limit = time_limit.or(changes.time_limit);
        }
    }

    /// Notes how much of its time limit it has used up, for the launcher that gets it next. Does nothing where it has no
    /// limit, or more was known.
    pub(crate) fn set_time_used(&mut self, ms: u64) {
        let asked = self.request.scheduling.as_deref();
        if asked.is_some_and(|asked| asked.time_limit.is_some()) {
            let changes = self.changes.get_or_insert_default();
            changes.time_used_ms = changes.time_used_ms.max(Some(ms));
        }
    }

    /// Makes it ask for other amounts: after an UPDATE, for each further placement. Request and changes are set
    /// together, so that what is claimed is what the launcher is told.
    pub(crate) fn set_demand(&mut self, demand: Demand) {
        let request = Arc::make_mut(&mut self.request);
        request.asked = demand.base();
        let resources = demand.resources.iter();
        let resources = resources.map(|(name, amount)| (name.to_string(), *amount));
        let resources: BTreeMap<_, _> = resources.collect();
        match &mut request.scheduling {
            Some(scheduling) => scheduling.resources = resources,
            None if resources.is_empty() => {}
            none => {
                let scheduling = Scheduling {
                    resources,
                    ..Scheduling::default()
                };
                *none = Some(Box::new(scheduling));
            }
        }
        self.changes.get_or_insert_default().demand = Some(demand);
    }
}

/// What has changed of a START since its payload was written. A launcher gets it as an overrides frame before the
/// START, or, if it takes none, edited into the payload.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StartChanges {
    /// Whether the launcher that is given the START takes them beside the payload ([`Capabilities::OVERRIDES`]). Decided
    /// for each launcher when the START is given to it; `false` before.
    ///
    /// [`Capabilities::OVERRIDES`]: crate::Capabilities::OVERRIDES
    pub as_fields: bool,
    /// Whether it has become a restart.
    pub restart: bool,
    /// Whether it is started elsewhere when its node is lost, though its payload does not say so. Edited into the payload for
    /// every launcher: one that passes it over would go on running it.
    pub restart_on_loss: bool,
    /// How long it may run, where its payload does not say it. Edited into the payload, as the one before.
    pub time_limit: Option<Span>,
    /// The amounts that it asks for since an UPDATE; `None` = those of the payload.
    pub demand: Option<Demand>,
    /// How much of its time limit it has used up on other nodes, in milliseconds; `None` where it has none, or none yet.
    pub time_used_ms: Option<u64>,
    /// The element of an array that it starts: the payload is that of the whole array.
    pub element: Option<Arc<ElementStart>>,
}

/// Amounts an instance asks for, in place of those of its START.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Demand {
    /// Memory, in MiB.
    pub mem_mib: i64,
    /// Virtual CPUs.
    pub vcpus: i64,
    /// Disk, in MiB.
    pub disk_mib: i64,
    /// Custom resources, by name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub resources: BTreeMap<Box<str>, i64>,
}

impl Demand {
    /// Memory, vcpus and disk of it.
    pub(crate) fn base(&self) -> Resources {
        Resources {
            mem_mib: self.mem_mib,
            vcpus: self.vcpus,
            disk_mib: self.disk_mib,
        }
    }
}

/// A START that was kept, read again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RestoredStart {
    /// What it asks for.
    pub request: Arc<StartRequest>,
    /// The same as it is carried on: the record's payload, from the record's sender.
    pub parcel: Parcel,
}
