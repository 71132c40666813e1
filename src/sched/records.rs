//! Instances and nodes as they are put on disk, and taken up again after a restart.

use std::time::{Duration, Instant};

use proto_frames::Uuid;

use super::Scheduler;
use super::ids::InstanceId;
use super::instances::State;
use super::record::{self, InstanceRecord, Life, NodeRecord, Record};

impl Scheduler {
    /// What is put on disk of an instance; `None` if nothing is to be there.
    pub(super) fn instance_record(&self, instance: &InstanceId) -> Option<Record> {
        let kept = self.instances.get(instance)?;
        let start = kept.start.as_deref();
        let events = kept.history.iter().map(|event| record::Event {
            at_ms: self.unix_ms(event.at),
            what: event.what.as_str().into(),
            node: event.node,
            detail: event.detail.as_str().into(),
        });
        let tried = kept.tried.iter().map(|attempt| record::Attempt {
            node: Uuid::try_parse(&attempt.node_uuid).unwrap_or_default(),
            reason: attempt.reason.as_str().into(),
            detail: attempt.detail.as_str().into(),
        });
        let uuid_of = |key| self.nodes.node(key).uuid;
        let target = match kept.state {
            State::Migrating { to, .. } => Some(uuid_of(to)),
            _ => kept.pinned,
        };
        let sender = start.and_then(|start| self.sessions.get(&start.sender));
        Some(Record::Instance(Box::new(InstanceRecord {
            payload: start.map(|start| start.frame.payload.clone()),
            sender: sender.map(|session| session.uuid).unwrap_or_default(),
            priority: kept.priority,
            life: life(&kept.state),
            node: match kept.state {
                State::Lost { node, .. } => Some(node),
                _ => kept.state.node().map(uuid_of),
            },
            target,
            arrived_ms: self.unix_ms(kept.arrived),
            deadline_ms: kept.waits_until.map(|until| self.unix_ms(until)),
            attempts: u32::try_from(kept.tried.len()).unwrap_or(u32::MAX),
            order: kept.order,
            tried: tried.collect(),
            history: events.collect(),
            relocate: kept.relocates,
            updated: start.and_then(|start| start.changes.as_ref()?.demand.clone()),
            ..InstanceRecord::default()
        })))
    }

    /// What is put on disk of a node; `None` if nothing is to be there.
    pub(super) fn node_record(&self, node: Uuid) -> Option<Record> {
        let record = self.cordon_record(node);
        (record != NodeRecord::default()).then_some(Record::Node(record))
    }

    /// Takes up what the process before this one left.
    pub(super) fn restore(&mut self) {
        let _ = std::mem::take(&mut self.config.restored);
    }

    /// A moment as unix time in milliseconds.
    pub(super) fn unix_ms(&self, at: Instant) -> u64 {
        let since = at.saturating_duration_since(self.started);
        let before = self.started.saturating_duration_since(at);
        let ms = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        (self.config.start_unix_ms + ms(since)).saturating_sub(ms(before))
    }
}

fn life(state: &State) -> Life {
    match state {
        State::Waiting | State::Lost { .. } => Life::Waiting,
        State::Placing(_) => Life::Placing,
        State::Running { .. } | State::Updating { .. } => Life::Running,
        State::Suspending { .. } => Life::Suspending,
        State::Suspended { .. } => Life::Suspended,
        State::Resuming { .. } => Life::Resuming,
        State::Stopping { .. } => Life::Stopping,
        State::Migrating { .. } => Life::Migrating,
    }
}
