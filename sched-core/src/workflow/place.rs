//! Placing one START: admission, the choice, and the claim in the same step, so that no two STARTs are given the same room.

use std::time::Instant;

use crate::Scheduler;
use crate::api::declined::Refusal;
use crate::api::ids::NodeKey;
use crate::api::start::PlacedStart;
use crate::cluster::node::Pool;
use crate::cluster::query::Query;
use crate::effects::admission::NewStart;

impl Scheduler {
    /// Places a START that stands alone: on the node that has its instance, else on one that fits; else it waits or
    /// fails.
    pub(crate) fn place(&mut self, now: Instant, start: Box<PlacedStart>) {
        // What this input has set free before comes first.
        self.place_collected();
        if let Some(start) = self.admit_start(start) {
            self.place_new(now, start);
        }
    }

    /// Places a START whose instance is nowhere, or on a lost node that is not waited for.
    fn place_new(&mut self, now: Instant, start: NewStart) {
        if self.journal.has_lost_plain() {
            self.journal
                .forget_lost_plain(&start.request().instance, now);
        }
        if self.sight().comes_after_others(start.request()) {
            return self.without_room(start);
        }
        if self.sight().waits_for_members(start.request()) {
            // Wherever it went, members may turn up on the wrong side of it.
            return self.hold(start.into_start(), Some(Refusal::Crowded));
        }
        let query = Query::of(start.request());
        let chosen = if self.sight().is_to_manage(&start) {
            self.choose_avoiding_failing(&query)
        } else {
            self.choose(&query)
        };
        match chosen {
            Some(key) => self.claim(now, key, &query, start),
            None => self.without_room(start),
        }
    }

    /// Claims on a node what a START asks for, and gives it the START.
    fn claim(&mut self, now: Instant, key: NodeKey, query: &Query, start: NewStart) {
        self.reserve(now, key, start.as_start().sender, query);
        self.launch_reserved(key, start);
    }

    /// Gives a START to the node on which its room is reserved: at once if it is plain, else by way of the managed
    /// instance it becomes. The placement is counted against those that wait before it.
    pub(crate) fn launch_reserved(&mut self, key: NodeKey, start: NewStart) {
        let waited = (!self.queue.is_empty()).then(|| {
            (
                Pool::of(start.request()),
                self.sight().rank_of(start.request()),
            )
        });
        if self.sight().is_to_manage(&start) {
            self.begin_placing(key, start);
        } else {
            self.cluster.keep_tried(start.as_start());
            self.dispatch(key, start.into_start());
        }
        if let Some((pool, rank)) = waited {
            self.note_placed(pool, rank);
        }
    }

    /// Tries up to `attempts` of the STARTs that wait in the recovery window again. While it is open, one that still
    /// does not fit goes on waiting; once it has closed, it is queued or fails.
    pub(crate) fn retry_recovery(&mut self, now: Instant, attempts: usize) {
        for _ in 0..attempts.min(self.pending.for_nodes()) {
            let Some(start) = self.pending.take_for_nodes() else {
                return;
            };
            if self.sight().waits_for_nodes(&start.request) {
                self.pending.put_back(start);
                continue;
            }
            // A node may have come back with it.
            let Some(start) = self.admit_start(start) else {
                continue;
            };
            if self.sight().comes_after_others(start.request()) {
                self.without_room(start);
                continue;
            }
            self.place_collected();
            self.serve_before(start.request());
            let query = Query::of(start.request());
            match self.choose(&query) {
                Some(key) => self.claim(now, key, &query, start),
                None if self.recovery.is_open() => self.pending.put_back(start.into_start()),
                None => self.without_room(start),
            }
        }
    }
}
