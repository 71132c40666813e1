//! A START comes in: it is checked, waits for the disk if it has to survive a restart and the disk takes no writes, and is
//! decided as a dry run, joins its batch, or is placed alone. Whether it may be placed at all is
//! `effects::admission`'s.
//!
//! The way of a plain START: `start` (checks), `let_in` (dry run, batch, or alone), `place` (admission), `place_new`
//! (choice), `claim` (an entry in the node's ledger), `dispatch` (the frame to the launcher).

use std::time::Instant;

use crate::Scheduler;
use crate::api::declined::Refusal;
use crate::api::start::PlacedStart;
use crate::peers::owner::Owner;
use crate::sight::Sight;

impl Scheduler {
    /// Takes in a START from a client: refuses what could never be placed as it is written, and what there is no memory
    /// for.
    pub(crate) fn start(&mut self, now: Instant, mut start: Box<PlacedStart>) {
        self.counters.starts += 1;
        let is_native = || self.peers.is_native(start.sender);
        if let Err(problem) = self.placement.check(&start.request, is_native) {
            return self.refuse_start(&start, problem);
        }
        let defaults = self.placement.policy().defaults();
        let (restart_on_loss, time_limit) = defaults.complete(&mut start.request);
        start.set_added(restart_on_loss, time_limit);
        if !self.sight().has_room_to_manage(&start) {
            return self.fail_for_room(&start, Refusal::TooMany);
        }
        if let Some(start) = self.hold_for_disk(start) {
            self.let_in(now, start);
        }
    }

    /// Goes on with a START that need not wait for the disk: decides a dry run, adds it to its batch, or places it.
    fn let_in(&mut self, now: Instant, start: Box<PlacedStart>) {
        match start.request.scheduling.as_deref() {
            Some(scheduling) if scheduling.dry_run => self.decide(&start),
            Some(scheduling) if scheduling.batch.is_some() => {
                let owner = self.peers.owner(start.sender);
                self.join_batch(now, owner, start);
            }
            _ => self.place(now, start),
        }
    }

    /// Lets in the STARTs that were held, higher priorities first, and offers all nodes to the queue: preemption was
    /// off meanwhile.
    pub(crate) fn disk_is_back(&mut self) {
        // Those that wait may preempt again as well, and go first where their place in the order is before.
        if !self.queue.is_empty() {
            let nodes = self.cluster.nodes_from(0);
            let nodes: Vec<_> = nodes.map(|(key, _)| key).collect();
            nodes.into_iter().for_each(|key| self.wake(key));
        }
        let mut held = self.pending.take_for_disk();
        held.sort_by_key(|start| self.sight().rank_of(&start.request));
        for start in held {
            self.serve_before(&start.request);
            self.let_in(self.now, Box::new(start));
        }
    }
}

impl Sight<'_> {
    /// Whether there is memory for one more managed instance, if this START needs that. Dry runs keep nothing, and an
    /// instance that is managed already is counted.
    fn has_room_to_manage(&self, start: &PlacedStart) -> bool {
        let request = &start.request;
        if !self.placement.manages(request) || self.instances.contains(&request.instance) {
            return true;
        }
        let is_dry_run = request.scheduling.as_ref().is_some_and(|it| it.dry_run);
        let is_operators = self.peers.owner(start.sender) != Owner::Controllers;
        let size = self.instances.size();
        is_dry_run || size.has_room(start.parcel.payload.len(), is_operators)
    }
}
