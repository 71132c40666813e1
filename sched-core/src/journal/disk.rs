//! A disk that takes no writes, or is too slow: what needs it is told so within [`DISK_PATIENCE`], what does not goes on.
//!
//! Nothing is taken in that would have to survive a restart while nothing can be written: such a START waits at the door
//! ([`Scheduler::hold_for_disk`]) and fails when its time is up; commands are refused. A START that had been taken in
//! when the disk failed fails the same, unless it is on disk or its node has it. What was acknowledged is never given up:
//! instances that are to start again or to move wait for the disk, and nothing is stopped for them meanwhile.

use std::collections::VecDeque;
use std::time::Instant;

use proto_frames::payload::{
    EvacuateMode, RefusalReason, StartFailure, StartFailureReason, StoreState, StoreView,
};
use proto_frames::{Frame, Kind};

use crate::Scheduler;
use crate::api::action::{Notice, PlacedStart};
use crate::api::disk::{DISK_PATIENCE, DiskSilence, DiskState};
use crate::api::ids::{InstanceId, SessionId};
use crate::api::input::Meaning;
use crate::instance::{Awaits, Placing, State};
use crate::placement::explain::Explanation;
use crate::workflow::admission::Known;
use crate::workflow::start::Refusal;

/// STARTs that wait for the disk at once: beyond that they fail at once.
pub const MAX_HELD_FOR_DISK: usize = 1024;

/// Bytes of their payloads.
pub const MAX_HELD_FOR_DISK_BYTES: usize = 16 * 1024 * 1024;

/// Instances of which a record is to be taken off a disk that takes no writes: beyond that each START that leaves a record
/// waits for the disk, also one that a policy alone keeps. About 100 bytes each.
pub const MAX_UNWRITTEN: usize = 1 << 18;

/// How the disk is, and what waits for it.
#[derive(Debug, Default)]
pub(crate) struct Disk {
    trouble: Option<Trouble>,
    /// Since when a change waits to be on disk and no other came to be there.
    waits_since: Option<Instant>,
    /// STARTs at the door, with the moment their time is up.
    held: VecDeque<(Instant, PlacedStart)>,
    held_bytes: usize,
    /// STARTs that were taken in and are not on disk.
    unwritten: VecDeque<Unwritten>,
    /// STARTs that were on disk and have failed: a crash would have them tried again, until that is on disk.
    failed: VecDeque<Failed>,
}

/// Why nothing is written.
#[derive(Debug)]
struct Trouble {
    since: Instant,
    /// In the system's words; `None` if it says nothing.
    why: Option<Box<str>>,
}

/// A START that is not acknowledged before it is on disk.
#[derive(Debug)]
struct Unwritten {
    due: Instant,
    /// The change with which it will be there.
    ticket: u64,
    instance: InstanceId,
    /// Which START of the instance it is.
    arrived: Instant,
}

/// A START whose failure is told once it is on disk with this change.
#[derive(Debug)]
struct Failed {
    ticket: u64,
    sender: SessionId,
    failure: StartFailure,
}

impl Disk {
    /// Whether a failure can be told that waited for this change.
    pub(crate) fn has_failures(&self, committed: u64) -> bool {
        let first = self.failed.front();
        first.is_some_and(|first| first.ticket <= committed)
    }

    /// STARTs that wait at the door.
    pub(crate) fn held(&self) -> usize {
        self.held.len()
    }

    /// What they take, in bytes.
    pub(crate) fn held_bytes(&self) -> usize {
        self.held_bytes
    }

    /// STARTs that were taken in and are not on disk, and those that have failed and still are.
    pub(crate) fn unwritten(&self) -> usize {
        self.unwritten.len() + self.failed.len()
    }

    /// A change was handed out.
    pub(crate) fn waits(&mut self, now: Instant) {
        self.waits_since.get_or_insert(now);
    }

    /// Something came to be on disk; whether that ends a trouble. `more` = there are changes that are not yet.
    pub(crate) fn progressed(&mut self, now: Instant, committed: u64, more: bool) -> bool {
        self.waits_since = more.then_some(now);
        while self
            .unwritten
            .front()
            .is_some_and(|first| first.ticket <= committed)
        {
            self.unwritten.pop_front();
        }
        // One that the system has named is over when the system says so.
        let is_over = self.trouble.as_ref().is_some_and(|it| it.why.is_none());
        if is_over {
            self.trouble = None;
        }
        is_over
    }

    /// Notes a START that is kept from now on.
    pub(crate) fn note_kept(&mut self, now: Instant, ticket: u64, instance: &InstanceId) {
        self.unwritten.push_back(Unwritten {
            due: now + DISK_PATIENCE,
            ticket,
            instance: instance.clone(),
            arrived: now,
        });
    }

    /// When something is due.
    pub(crate) fn due(&self) -> Option<Instant> {
        let is_silent = self.waits_since.filter(|_| self.trouble.is_none());
        let held = self.held.front().map(|(due, _)| *due);
        let unwritten = self.unwritten.front().map(|it| it.due);
        let due = [
            is_silent.map(|since| since + DISK_PATIENCE),
            held,
            unwritten,
        ];
        due.into_iter().flatten().min()
    }

    /// Whether one more START may wait at the door.
    fn has_room(&self, start: &PlacedStart) -> bool {
        self.held.len() < MAX_HELD_FOR_DISK
            && self.held_bytes + start.frame.payload.len() <= MAX_HELD_FOR_DISK_BYTES
    }

    fn hold(&mut self, due: Instant, start: PlacedStart) {
        self.held_bytes += start.frame.payload.len();
        self.held.push_back((due, start));
    }

    fn release(&mut self, at: usize) -> Option<PlacedStart> {
        let (_, start) = self.held.remove(at)?;
        self.held_bytes -= start.frame.payload.len();
        Some(start)
    }

    /// Takes out a START by its instance: it was deleted, or sent again.
    fn take(&mut self, instance: &InstanceId) -> Option<PlacedStart> {
        let is_it = |(_, start): &(Instant, PlacedStart)| start.request.instance == *instance;
        let at = self.held.iter().position(is_it)?;
        self.release(at)
    }
}

impl Scheduler {
    /// Whether nothing can be written at the moment.
    pub(crate) fn is_disk_in_trouble(&self) -> bool {
        self.durable.disk.trouble.is_some()
    }

    /// The disk takes writes no longer, or again.
    pub(crate) fn disk_is(&mut self, state: DiskState) {
        match state {
            DiskState::Writes => {
                self.durable.disk.trouble = None;
                self.disk_is_back();
            }
            DiskState::Refuses(why) => {
                let disk = &mut self.durable.disk;
                let since = disk.trouble.as_ref().map_or(self.now, |it| it.since);
                let why = Some(why);
                disk.trouble = Some(Trouble { since, why });
                if self.is_leaving {
                    self.fail_unwritten();
                }
            }
        }
    }

    /// Lets in what waited at the door, higher priorities first, and goes on with what was not begun.
    pub(crate) fn disk_is_back(&mut self) {
        let mut held = Vec::with_capacity(self.durable.disk.held());
        while let Some(start) = self.durable.disk.release(0) {
            held.push(start);
        }
        held.sort_by_key(|start| self.rank_of(&start.request));
        for start in held {
            self.let_in(self.now, start);
        }
        if !self.queue.is_empty() {
            let nodes: Vec<_> = self
                .cluster
                .nodes()
                .iter_from(0)
                .map(|(key, _)| key)
                .collect();
            nodes.into_iter().for_each(|key| self.wake(key));
        }
    }

    /// Has a START wait at the door if it needs a disk that takes no writes; gives it back if it does not.
    pub(crate) fn hold_for_disk(&mut self, start: PlacedStart) -> Option<PlacedStart> {
        if !self.is_disk_in_trouble() || !self.needs_disk(&start) {
            return Some(start);
        }
        // The newer one takes its place.
        self.durable.disk.take(&start.request.instance);
        if self.is_leaving || !self.durable.disk.has_room(&start) {
            self.fail_unrecorded(&start);
        } else {
            self.durable.disk.hold(self.now + DISK_PATIENCE, start);
        }
        None
    }

    /// Whether a START would have to survive a restart, or what is on disk of its instance is not so any more.
    fn needs_disk(&self, start: &PlacedStart) -> bool {
        let request = &start.request;
        let asked = request.scheduling.as_deref();
        if asked.is_some_and(|asked| asked.dry_run)
            || self.known(&request.instance) != Known::Nowhere
        {
            return false;
        }
        let is_crowded = self.durable.unsettled() >= MAX_UNWRITTEN;
        self.asks_to_be_kept(request)
            || asked.is_some_and(|asked| asked.batch.is_some())
            || self.durable.is_recorded(&request.instance)
            || (is_crowded && self.is_to_keep(request))
    }

    /// Fails a START that waits at the door because its instance was deleted.
    pub(crate) fn undo_held(&mut self, instance: &InstanceId) {
        if self.durable.disk.held() > 0
            && let Some(start) = self.durable.disk.take(instance)
        {
            self.fail_start(&start, Refusal::Undone);
        }
    }

    /// Fails, because time has passed, what has waited long enough.
    pub(crate) fn disk_due(&mut self, now: Instant, most: usize) {
        let disk = &mut self.durable.disk;
        if let Some(since) = disk.waits_since
            && disk.trouble.is_none()
            && since + DISK_PATIENCE <= now
        {
            disk.trouble = Some(Trouble { since, why: None });
            self.notice(Notice::Disk(DiskSilence::Begun));
        }
        for _ in 0..most {
            let held = &self.durable.disk.held;
            if held.front().is_none_or(|(due, _)| *due > now) {
                break;
            }
            if let Some(start) = self.durable.disk.release(0) {
                self.fail_unrecorded(&start);
            }
        }
        for _ in 0..most {
            let first = self.durable.disk.unwritten.front();
            if first.is_none_or(|first| first.due > now) {
                break;
            }
            if let Some(first) = self.durable.disk.unwritten.pop_front() {
                self.look_at_unwritten(first);
            }
        }
    }

    /// Fails a START that was taken in and is not on disk, unless its node has it by now.
    fn look_at_unwritten(&mut self, start: Unwritten) {
        let Unwritten {
            ticket,
            instance,
            arrived,
            ..
        } = start;
        let kept = self.instances.get(&instance);
        let Some(kept) = kept.filter(|kept| kept.arrived == arrived && !kept.has_run) else {
            return;
        };
        if self.is_on_disk(ticket) {
            return;
        }
        match kept.state() {
            State::Waiting => {}
            State::Placing(Placing { node, pending_on }) if *pending_on != Awaits::Node => {
                let node = *node;
                self.release(node, &instance);
            }
            // Its node may yet refuse it.
            State::Placing(_) => {
                let due = self.now + DISK_PATIENCE;
                return self.durable.disk.unwritten.push_back(Unwritten {
                    due,
                    ticket,
                    instance,
                    arrived,
                });
            }
            _ => return,
        }
        let why = Explanation::of(&self.disk_trouble());
        self.fail_kept(&instance, StartFailureReason::NotRecorded, None, why);
    }

    /// Fails all STARTs that were not acknowledged, because the scheduler leaves.
    pub(crate) fn fail_unwritten(&mut self) {
        while let Some(start) = self.durable.disk.release(0) {
            self.fail_unrecorded(&start);
        }
        let unwritten = std::mem::take(&mut self.durable.disk.unwritten);
        unwritten
            .into_iter()
            .for_each(|start| self.look_at_unwritten(start));
        self.fail_unwritten_batches(&self.disk_trouble());
    }

    /// Has the failure of a START that is still on disk wait until it is not: a crash before would have it tried, and told
    /// as failed, a second time. Gives back one that can be told.
    pub(crate) fn hold_failure(
        &mut self,
        sender: SessionId,
        failure: StartFailure,
    ) -> Option<StartFailure> {
        let instance = InstanceId::new(&failure.instance_uuid);
        let disk = &self.durable.disk;
        let is_over =
            !self.instances.contains(&instance) && self.batches.waiting(&instance).is_none();
        let waits = failure.reason != StartFailureReason::NotRecorded
            && is_over
            && self.durable.is_recorded(&instance)
            && !disk.unwritten.iter().any(|it| it.instance == instance);
        if !waits {
            return Some(failure);
        }
        let ticket = self.durable.ticket();
        self.durable.disk.failed.push_back(Failed {
            ticket,
            sender,
            failure,
        });
        None
    }

    /// Tells failures that are on disk by now; whether there was any.
    pub(crate) fn tell_recorded_failures(&mut self) -> bool {
        let mut any = false;
        while self.durable.has_failures()
            && let Some(Failed {
                sender, failure, ..
            }) = self.durable.disk.failed.pop_front()
        {
            any = true;
            self.tell_failure_now(sender, failure);
        }
        any
    }

    fn fail_unrecorded(&mut self, start: &PlacedStart) {
        let (request, reason) = (&start.request, StartFailureReason::NotRecorded);
        let why = Explanation::of(&self.disk_trouble());
        self.answer_start(
            start.sender,
            &request.instance,
            reason,
            request.restart,
            why,
        );
    }

    /// What is said of the trouble to those whom it concerns.
    pub(crate) fn disk_trouble(&self) -> String {
        let trouble = self.durable.disk.trouble.as_ref();
        let why = trouble.and_then(|trouble| trouble.why.as_deref());
        let why = why.unwrap_or("its disk has not answered in time");
        format!(
            "the scheduler cannot record it, so that it would be lost in a restart: its state directory takes no \
             writes: {why}"
        )
    }

    /// Refuses a command whose outcome would have to survive a restart, while nothing can be written; whether it did. Peers
    /// of the original have no word for that: theirs are carried out.
    pub(crate) fn is_refused_for_disk(
        &mut self,
        id: SessionId,
        frame: &Frame,
        meaning: &Meaning,
    ) -> bool {
        let is_native = || self.peers.is_native(id);
        if !self.is_disk_in_trouble() || !is_native() {
            return false;
        }
        let instance = match meaning {
            Meaning::Delete(target) if self.is_here_alone(&target.instance) => {
                Some(target.instance.clone())
            }
            Meaning::Migrate(it) => Some(InstanceId::new(&it.instance_uuid)),
            Meaning::Update(it) => Some(InstanceId::new(&it.instance_uuid)),
            Meaning::Evacuate(it) => match it.mode {
                EvacuateMode::Cordon | EvacuateMode::Relocate | EvacuateMode::Abort => None,
                EvacuateMode::Check | EvacuateMode::Other(_) => return false,
            },
            Meaning::Restore(_) if frame.kind == Kind::RESTORE => None,
            _ => return false,
        };
        let (reason, detail) = (RefusalReason::NotRecorded, self.disk_trouble());
        self.refuse(id, frame.kind, reason, detail, instance.as_ref());
        true
    }

    /// Whether an instance is known to the scheduler and to no node, and on disk: it would be back after a restart.
    fn is_here_alone(&self, instance: &InstanceId) -> bool {
        let kept = self.instances.get(instance);
        self.durable.is_recorded(instance)
            && kept.is_some_and(|kept| match kept.state() {
                State::Waiting | State::Lost { .. } => true,
                State::Placing(placing) => placing.pending_on != Awaits::Node,
                _ => false,
            })
    }

    /// How the disk is, for people.
    pub(crate) fn store_view(&self) -> StoreView {
        let disk = &self.durable.disk;
        let waiting = disk.held.len() + self.durable.waiting_for_disk();
        let mut view = StoreView {
            state: StoreState::Written,
            waiting: i64::try_from(waiting).unwrap_or(i64::MAX),
            ..StoreView::default()
        };
        if !self.config.durable {
            view.state = StoreState::Memory;
        } else if let Some(trouble) = &disk.trouble {
            view.state = StoreState::Refused;
            view.since_s = Some(self.now.saturating_duration_since(trouble.since).as_secs());
            view.detail = trouble
                .why
                .as_deref()
                .unwrap_or("its disk has not answered in time")
                .to_owned();
        }
        view
    }
}
