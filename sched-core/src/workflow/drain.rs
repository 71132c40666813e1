//! Nodes go out of service: by the original's EVACUATE, which is their launchers' business, or with their instances
//! moved by the scheduler.
//!
//! A cordoned node gets no new work, and keeps what it has. A drain cordons its node, says in advance what fits
//! elsewhere and what does not (`check`), and moves the instances, the most urgent first and a few at a time. It is
//! done when the node itself has reported all of them gone, and not before; one that cannot get that far ends
//! incomplete, with the reason.
//!
//! ```text
//!  EVACUATE mode   cordon        relocate      check           abort         forget         any other
//!  here            `cordon`      `begin_drain` `check_drain`   `end_drain`   `forget_node`  to the launcher
//! ```
//!
//! A drain has no task of its own: whatever may let it go on (room elsewhere, an instance that has left) marks drains
//! as changed, and at the end of the input [`Scheduler::continue_drains`] takes the next steps. The data of drains are
//! in `cluster::cordons`, so is the limit on moves under way; a drain survives a restart as part of the node's record.

mod check;
mod command;

use std::time::Duration;

use sched_model::{CommandFailureReason, DrainState, Evacuate, Topic, Uuid};

use crate::Scheduler;
use crate::api::action::Message;
use crate::api::cause::Cause;
use crate::api::explained::DrainEnd;
use crate::api::ids::{InstanceId, NodeKey, SessionId, canonical_uuid};
use crate::api::record::NodeRecord;
use crate::api::refused::RefusalCause;
use crate::api::sent::CommandName;
use crate::cluster::cordons::{Drain, Moved, Unmovable};
use crate::instance::{AfterStop, Awaits, MoveRequest, Placing, State};
use crate::peers::session::Session;
use crate::query::drains::Progress;
use crate::timers::Timer;
use crate::workflow::migrate::{MOVE_TIME, MovePlan};

/// Instances of one drain that are tried in one step and fit nowhere, before other work goes on: bounds how long a
/// drain delays everything else.
const UNMOVABLE_PER_LOOK: usize = 64;

impl Scheduler {
    /// The node that an EVACUATE names for a cordon. It need not be connected, or known: the cordon then holds from
    /// when it connects.
    pub(crate) fn node_to_cordon(&mut self, id: SessionId, name: &str) -> Option<Uuid> {
        let uuid = canonical_uuid(name);
        if uuid.is_none() {
            let cause = RefusalCause::NotANode(name.into());
            self.refuse(id, CommandName::Evacuate.into(), cause, None);
        }
        uuid
    }

    /// The node that an EVACUATE names for a drain; it has to be connected.
    pub(crate) fn node_to_drain(&mut self, id: SessionId, name: &str) -> Option<NodeKey> {
        let key = self.cluster.by_name(name);
        let key = key.filter(|&key| self.cluster.session(key).is_some());
        if key.is_none() {
            let cause = RefusalCause::NodeNotConnected(name.into());
            self.refuse(id, CommandName::Evacuate.into(), cause, None);
        }
        key
    }

    /// Cordons a node and records that.
    pub(crate) fn cordon(&mut self, uuid: Uuid) {
        if self.cluster.cordon(uuid, self.clock.unix_ms(self.now)) {
            self.journal.note_node(uuid);
        }
    }

    /// Ends a node's cordon, and a drain with it. Its launcher may still call itself full or in maintenance.
    pub(crate) fn uncordon(&mut self, uuid: Uuid) {
        if self.cluster.drain_of(uuid).is_some() {
            self.end_drain(uuid, DrainState::Aborted, Some(DrainEnd::Uncordoned));
        }
        if self.cluster.uncordon(uuid) {
            self.journal.note_node(uuid);
        }
    }

    /// Restores what is recorded of a node: its cordon, and a drain, which goes on once the node is back and has sent
    /// STATS. The deadline is that of before, whatever time the scheduler was away.
    pub(crate) fn restore_node_record(&mut self, uuid: Uuid, record: NodeRecord) {
        if let Some(ends) = record.ends {
            self.journal.restore_ends(uuid, ends);
        }
        if !record.cordoned || !self.cluster.cordon(uuid, record.cordoned_since_ms) {
            return;
        }
        let Some(drain) = record.drain else { return };
        let now_ms = self.clock.unix_ms(self.now);
        let left = |at_ms: u64| Duration::from_millis(at_ms.saturating_sub(now_ms));
        let due = drain.deadline_ms.map(|at_ms| self.now + left(at_ms));
        let ended = drain.ended as usize;
        let mut drain = Drain::new(due, drain.parallel, drain.total as usize, None);
        drain.count_ended(ended);
        self.cluster.begin_drain(uuid, drain);
        self.timers.put(Timer::Drain(uuid), due);
    }

    /// EVACUATE in mode `relocate`: cordons the node and begins to drain it. The first event, sent at once, says how
    /// many instances would find a place now. Of a drain that is under way the moves go on; deadline, number of moves
    /// at once and asker are the new ones. A deadline of 0 is none.
    pub(crate) fn begin_drain(&mut self, id: SessionId, evacuate: &Evacuate) {
        let Some(key) = self.node_to_drain(id, &evacuate.workload_agent_uuid) else {
            return;
        };
        let uuid = self.cluster.uuid(key);
        self.cordon(uuid);
        let time = evacuate
            .deadline
            .map(|span| Duration::from_millis(span.ms()));
        let time = time.filter(|time| !time.is_zero());
        let due = time.map(|time| self.now + time);
        let drain = Drain::new(due, evacuate.parallel(), self.sight().len_of(key), Some(id));
        let progress = self.check_drain(key);
        self.cluster.begin_drain(uuid, drain);
        self.timers.put(Timer::Drain(uuid), due);
        self.journal.note_node(uuid);
        self.notify_drain(uuid, progress);
    }

    /// Takes the next steps of all drains, if anything has happened that may matter to one; whether it has. Called at
    /// the end of each input, together with the queue.
    pub(crate) fn continue_drains(&mut self) -> bool {
        if !self.cluster.take_stirred_drains() {
            return false;
        }
        for uuid in self.cluster.drained_nodes() {
            self.count_ended(uuid);
            self.continue_drain(uuid);
        }
        true
    }

    /// One step of one drain: sees which moves have ended, begins more, and ends the drain if nothing is left or
    /// nothing can be moved.
    fn continue_drain(&mut self, uuid: Uuid) {
        let Some(key) = self.cluster.by_uuid(uuid) else {
            return;
        };
        let node = self.cluster.node(key);
        // Before it has said what runs on it no one knows what is to be moved.
        if node.session().is_none() || !node.has_listed() {
            return;
        }
        self.note_returned(key, uuid);
        let census = self.sight().census(key, uuid);
        if census.there == 0 {
            return self.end_drain(uuid, DrainState::Done, None);
        }
        let is_all_tried = self.move_some(key, uuid, census.waiting);
        let census = self.sight().census(key, uuid);
        let Some(drain) = self.cluster.drain_of_mut(uuid) else {
            return;
        };
        drain.note_there(census.there);
        let lasting = drain
            .unmovable()
            .values()
            .filter(|it| it.is_lasting)
            .count();
        if lasting == census.there && is_all_tried && !self.recovery.is_open() {
            return self.end_drain(uuid, DrainState::Incomplete, Some(DrainEnd::NothingMovable));
        }
        if drain.say(census.there, census.leaving) {
            let progress = self.sight().progress(uuid, DrainState::Moving, None);
            self.notify_drain(uuid, progress);
        }
    }

    /// Counts those that have left a drained node and are nowhere else now: neither managed, so that they wait or are on
    /// their way, nor on another node.
    fn count_ended(&mut self, uuid: Uuid) {
        let Some(drain) = self.cluster.drain_of_mut(uuid) else {
            return;
        };
        let left = drain.take_left().into_iter();
        let is_over =
            |it: &InstanceId| !self.instances.contains(it) && self.cluster.placement(it).is_none();
        let ended = left.filter(is_over).count();
        if ended > 0
            && let Some(drain) = self.cluster.drain_of_mut(uuid)
        {
            drain.count_ended(ended);
            self.journal.note_node(uuid);
        }
    }

    /// Notes of each move that was begun whether it has ended: elsewhere, or back where the instance was, with the
    /// reason.
    fn note_returned(&mut self, key: NodeKey, uuid: Uuid) {
        let look = self.cluster.drain_looks();
        self.cluster.forget_unmovable_gone(key);
        let Some(drain) = self.cluster.drain_of_mut(uuid) else {
            return;
        };
        let instances = &self.instances;
        drain.settle(look, |instance| {
            let managed = instances.get(instance);
            match managed.map(|managed| (managed.state(), managed.history().last())) {
                Some((State::Migrating { .. } | State::Placing(_), _)) => Moved::NotYet,
                Some((
                    State::Stopping {
                        then: AfterStop::Again(_),
                        ..
                    },
                    _,
                )) => Moved::NotYet,
                Some((State::Running { node, .. } | State::Suspended { node, .. }, last))
                    if *node == key =>
                {
                    let why = last.map(|event| event.cause.clone());
                    Moved::Back(why.unwrap_or_default())
                }
                _ => Moved::Away,
            }
        });
    }

    /// Begins as many moves as may be under way at once; whether all that wait were tried. After [`UNMOVABLE_PER_LOOK`]
    /// that fit nowhere it stops, marks drains as changed, and the rest is tried in a later step.
    fn move_some(&mut self, key: NodeKey, uuid: Uuid, waiting: Vec<InstanceId>) -> bool {
        let (mut found, look) = (0, self.cluster.drain_looks());
        for instance in waiting {
            let Some(drain) = self.cluster.drain_of(uuid) else {
                return false;
            };
            if !drain.may_begin() {
                return false;
            }
            if found >= UNMOVABLE_PER_LOOK {
                self.cluster.stir_drains();
                return false;
            }
            let moved = self.leave(key, &instance);
            let Some(drain) = self.cluster.drain_of_mut(uuid) else {
                return false;
            };
            match moved {
                Ok(()) => drain.begin(instance),
                // It is on its way to some state in which it can be moved, or to its end.
                Err((CommandFailureReason::WrongState, _)) => {}
                Err((_, unmovable)) => {
                    found += 1;
                    let unmovable = Unmovable { look, ..unmovable };
                    drain.note_unmovable(instance, unmovable);
                }
            }
        }
        true
    }

    /// Begins the move of one instance away from a drained node. A START that the node was not sent yet is simply
    /// placed elsewhere.
    fn leave(
        &mut self,
        key: NodeKey,
        instance: &InstanceId,
    ) -> Result<(), (CommandFailureReason, Unmovable)> {
        let state = self.instances.state_of(instance);
        if let Some(State::Placing(Placing {
            node, pending_on, ..
        })) = state
            && node == key
            && pending_on == Awaits::Commit
        {
            // Its node was not sent it yet.
            self.release_and_reschedule(key, instance, &Cause::NodeDrained);
            return Ok(());
        }
        let plan = MovePlan {
            target: None,
            due: self.now + MOVE_TIME,
            move_request: MoveRequest::default(),
            why: Cause::NodeDrained,
        };
        self.move_instance(instance, plan).map_err(|declined| {
            let unmovable = Unmovable {
                why: declined.why.kept(),
                is_lasting: declined.is_lasting,
                look: 0,
            };
            (declined.reason, unmovable)
        })
    }

    /// Ends a drain and reports its outcome. The cordon stays, and moves under way go on.
    pub(crate) fn end_drain(&mut self, uuid: Uuid, state: DrainState, end: Option<DrainEnd>) {
        self.count_ended(uuid);
        let progress = self.sight().progress(uuid, state, end);
        let key = self.cluster.by_uuid(uuid);
        let asker = self.cluster.drain_of(uuid).and_then(Drain::asker);
        if self.cluster.end_drain(uuid).is_some() {
            self.timers.cancel(&Timer::Drain(uuid));
            self.journal.note_node(uuid);
            debug_assert!(key.is_some() || progress.state != DrainState::Done);
            self.notify_progress(asker, &progress);
        }
    }

    /// A drain's deadline is over.
    pub(crate) fn drain_is_late(&mut self, uuid: Uuid) {
        self.end_drain(uuid, DrainState::Incomplete, Some(DrainEnd::TimeOver));
    }

    /// A node that is drained is lost: the drain ends incomplete, because whether its instances are gone cannot be
    /// known.
    pub(crate) fn drained_node_is_lost(&mut self, key: NodeKey) {
        let uuid = self.cluster.uuid(key);
        if self.cluster.drain_of(uuid).is_some() {
            self.end_drain(uuid, DrainState::Incomplete, Some(DrainEnd::NodeLost));
        }
    }

    /// Sends an event about a drain that is under way.
    fn notify_drain(&mut self, uuid: Uuid, progress: Progress) {
        let asker = self.cluster.drain_of(uuid).and_then(Drain::asker);
        self.notify_progress(asker, &progress);
    }

    /// Sends it to native controllers, subscribers of nodes, and the session that asked for the drain.
    fn notify_progress(&mut self, asker: Option<SessionId>, progress: &Progress) {
        let message = || Message::DrainProgress(Box::new(progress.clone()));
        self.notify_controllers(Topic::Nodes, |session| session.is_native().then(message));
        let Some(asker) = asker else { return };
        let asker_alone = self.peers.outside_audience(asker, &Topic::Nodes);
        if asker_alone.is_some_and(Session::is_native) {
            self.send(asker, message());
        }
    }
}
