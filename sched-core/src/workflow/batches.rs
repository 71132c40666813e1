//! Batches: STARTs of which all are placed or none. Here is how they are taken in, placed together, and fail; which
//! wait for which is kept in `pending::batches`.
//!
//! ```text
//!  START, batch {id: b, count: 3} ──▶ joins b ──▶ third one came: place_all ──▶ all placed
//!                                     │                            ├─▶ one does not fit: all fail
//!                                     │                            └─▶ recovery window open: b waits
//!                                     └─▶ not complete in BATCH_TIME, or one is deleted: all fail
//! ```
//!
//! Batches of different owners are different even with the same id. A batch waits for its STARTs and for nodes after a
//! restart, but not for room.

use std::time::Instant;

use sched_model::StartFailureReason;

use crate::Scheduler;
use crate::api::action::Notice;
use crate::api::cause::Cause;
use crate::api::declined::Refusal;
use crate::api::ids::{InstanceId, NodeKey};
use crate::api::start::PlacedStart;
use crate::cluster::query::Query;
use crate::effects::admission::NewStart;
use crate::peers::owner::Owner;
use crate::pending::batches::{BATCH_TIME, BatchId};
use crate::placement::explain::Explanation;
use crate::query::known::Known;
use crate::timers::Timer;

impl Scheduler {
    /// Takes in a START of a batch; with the last one, all are placed or all fail. A START whose instance exists counts
    /// as well, so that a batch may be sent again for those of its instances that have ended. Refused are a START whose
    /// instance waits in another batch, whose name is taken, or that the component does not accept (another count, too
    /// many).
    pub(crate) fn join_batch(&mut self, now: Instant, owner: Owner, start: Box<PlacedStart>) {
        let instance = &start.request.instance;
        let Some(asked) = start
            .request
            .scheduling
            .as_ref()
            .and_then(|scheduling| scheduling.batch.clone())
        else {
            return self.place(now, start);
        };
        let id = BatchId::new(owner, &asked.id);
        let is_elsewhere = self.pending.batch_of(instance);
        if let Some(other) = is_elsewhere.filter(|other| **other != id) {
            let problem = Refusal::OtherBatch(other.name().into());
            return self.refuse_start(&start, problem);
        }
        match self.sight().known_of(&start.request) {
            Known::Nowhere => self.note_name(&start.request),
            known @ Known::NameTaken(_) => {
                return self.answer_known(known, start);
            }
            // Answered once the batch is complete.
            _ => {}
        }
        let instance = instance.clone();
        // The same START again while the first one waits: the newer takes its place.
        self.pending.take(&instance);
        let added = self.pending.add_to_batch(&id, &asked, start, now);
        self.journal.note_instance(&instance);
        match added {
            Ok(true) => {
                let starts = self.take_batch(&id);
                self.place_all(now, &id, starts);
            }
            Ok(false) => self.set_batch_timer(),
            Err((start, problem)) => self.refuse_start(&start, problem),
        }
    }

    /// Sets the timer for the batch whose time to become complete is over first.
    fn set_batch_timer(&mut self) {
        self.timers
            .put(Timer::LateBatches, self.pending.batches_due());
    }

    /// A node has an instance of which nothing else is on disk: a START of it that waits in a batch is not to be placed
    /// before that node is back, should the scheduler crash.
    pub(crate) fn note_had(&mut self, instance: &InstanceId) {
        if self.pending.batch_of(instance).is_some() {
            self.journal.note_instance(instance);
        }
    }

    /// Takes a batch out. The caller places, puts back or fails each of its STARTs; their records are written again.
    fn take_batch(&mut self, id: &BatchId) -> Vec<PlacedStart> {
        let starts = self.pending.take_batch(id);
        self.set_batch_timer();
        for start in &starts {
            self.journal.note_instance(&start.request.instance);
        }
        starts
    }

    /// Fails the batches of which a START is not on disk, when the scheduler leaves with a disk that takes no writes:
    /// after the restart they could never become complete.
    pub(crate) fn fail_unwritten_batches(&mut self, why: &Cause) {
        let is_unwritten = |instance: &InstanceId| self.journal.is_unwritten(instance);
        for id in self.pending.batches_with_any(is_unwritten) {
            for start in self.take_batch(&id) {
                let reason = StartFailureReason::NotRecorded;
                self.fail_with(&start, reason, Explanation::of(why.clone()));
            }
        }
    }

    /// Tries up to `attempts` complete batches again that wait for nodes to come back; after the recovery window, what
    /// does not fit fails.
    pub(crate) fn retry_batches(&mut self, now: Instant, attempts: usize) {
        if self.pending.complete_due().is_none() {
            return;
        }
        for id in self.pending.complete_batches(attempts) {
            let starts = self.take_batch(&id);
            self.place_all(now, &id, starts);
        }
        self.pending.note_complete(now);
    }

    /// Places all of these or none. In this order:
    ///
    /// 1. If one of them has to wait for nodes after a restart, all wait.
    /// 2. What was queued before them is served first.
    /// 3. Instances that exist by now are taken out, to be answered like any other START; one whose instance was lost
    ///    with its node meanwhile is refused.
    /// 4. Room is reserved for the rest (`reserve_all`). Only when there is room for all is anything sent.
    fn place_all(&mut self, now: Instant, id: &BatchId, starts: Vec<PlacedStart>) {
        if starts
            .iter()
            .any(|start| self.sight().waits_for_nodes(&start.request))
        {
            return self.pending.put_back_batch(id, starts, now);
        }
        self.place_collected();
        for start in &starts {
            self.serve_before(&start.request);
        }
        let (mut new, mut known) = self.admit_starts(starts);
        let lost = new.extract_if(.., |start| self.pending.was_lost(&start.request().instance));
        known.extend(lost.map(|start| (Known::Taken(Refusal::LostSince), *start.into_start())));
        match self.reserve_all(now, &new) {
            Ok(chosen) => {
                self.answer_all(known);
                for (start, key) in new.into_iter().zip(chosen) {
                    self.launch_reserved(key, start);
                }
            }
            Err(_) if self.recovery.is_open() => {
                let known = known.into_iter().map(|(_, start)| start);
                let starts = new
                    .into_iter()
                    .map(|start| *start.into_start())
                    .chain(known);
                self.pending.put_back_batch(id, starts.collect(), now);
            }
            Err(why) => {
                self.answer_all(known);
                self.fail_all(&new, &why);
            }
        }
        self.pending.forget_lost();
    }

    /// Chooses nodes for all of these and claims on them what they ask for, one after the other: each choice sees the
    /// claims before it. Returns the nodes in the order of `starts`.
    ///
    /// # Errors
    /// Why the first that does not fit does not, with the claims of the others in place. All claims are undone then, in
    /// reverse order, and cursors and random generator are as before.
    fn reserve_all(
        &mut self,
        now: Instant,
        starts: &[NewStart],
    ) -> Result<Vec<NodeKey>, Explanation> {
        let cursors = self.cluster.cursors();
        let chance = self.placement.chance();
        let mut chosen: Vec<NodeKey> = Vec::with_capacity(starts.len());
        for start in starts {
            let query = Query::of(start.request());
            let Some(key) = self.choose(&query) else {
                break;
            };
            self.reserve(now, key, start.as_start().sender, &query);
            chosen.push(key);
        }
        let Some(misfit) = starts.get(chosen.len()) else {
            return Ok(chosen);
        };
        let why = if self.recovery.is_open() {
            Explanation::default()
        } else {
            self.why_not_now(&Query::of(misfit.request()))
        };
        for (start, key) in starts.iter().zip(&chosen).rev() {
            self.cluster.undo_claim(*key, &start.request().instance);
        }
        self.cluster.set_cursors(cursors);
        self.placement.set_chance(chance);
        let cause = Cause::OfBatch(chosen.len(), starts.len(), Box::new(why.cause));
        Err(Explanation { cause, ..why })
    }

    /// Answers STARTs whose instances exist.
    fn answer_all(&mut self, starts: Vec<(Known, PlacedStart)>) {
        for (known, start) in starts {
            self.answer_known(known, Box::new(start));
        }
    }

    /// Fails all of these for the same cause.
    fn fail_all(&mut self, starts: &[NewStart], why: &Explanation) {
        for start in starts {
            let reason = self.cluster.no_room(start.request());
            self.fail_with(start.as_start(), reason, why.clone());
        }
    }

    /// Fails the START of an instance that is deleted while it waits for the disk, for nodes, or for the rest of its batch;
    /// the whole batch then, because it can no longer become complete.
    pub(crate) fn cancel_pending(&mut self, instance: &InstanceId) {
        if let Some(start) = self.pending.take(instance) {
            self.fail_start(&start, Refusal::Cancelled);
        }
        let Some(id) = self.pending.batch_of(instance).cloned() else {
            return;
        };
        let starts = self.take_batch(&id);
        for start in self.end_batch(starts) {
            if start.request.instance == *instance {
                self.fail_start(&start, Refusal::Cancelled);
                continue;
            }
            let why = Refusal::BatchLost {
                batch: id.name().into(),
                instance: instance.clone(),
            };
            self.fail_start(&start, why);
        }
    }

    /// Deals with a batch that is given up: STARTs whose instances exist are answered; returns the others, which have
    /// failed.
    fn end_batch(&mut self, starts: Vec<PlacedStart>) -> Vec<PlacedStart> {
        let mut failed = Vec::new();
        for start in starts {
            match self.sight().known(&start.request.instance) {
                Known::Nowhere | Known::Expected => failed.push(start),
                known => self.answer_known(known, Box::new(start)),
            }
        }
        self.pending.forget_lost();
        failed
    }

    /// Fails every batch that waits.
    pub(crate) fn fail_batches(&mut self) {
        while let Some(id) = self.pending.first_batch() {
            for start in self.take_batch(&id) {
                self.fail_start(&start, Refusal::Leaving);
            }
        }
    }

    /// Fails batches whose last STARTs have not come in time.
    pub(crate) fn fail_late_batches(&mut self, now: Instant) {
        while let Some((id, count, starts)) = self.pending.take_late_batch(now) {
            for start in &starts {
                self.journal.note_instance(&start.request.instance);
            }
            self.notice(Notice::LateBatch(id.name().into(), starts.len(), count));
            let why = Refusal::BatchLate {
                batch: id.name().into(),
                came: starts.len(),
                count,
                seconds: BATCH_TIME.as_secs(),
            };
            for start in self.end_batch(starts) {
                self.refuse_start(&start, why.clone());
            }
        }
        self.set_batch_timer();
    }
}
