//! How much the core holds of what others can make it hold: for tests of its limits, and for people who wonder where the
//! memory is.

use crate::Scheduler;

/// Entries and bytes of everything that peers can make grow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Footprint {
    /// Connections, and UUIDs with a role that have one.
    pub sessions: usize,
    /// Topics that operators watch.
    pub topics: usize,
    /// Nodes known: connected, or lost a moment ago.
    pub nodes: usize,
    /// Lost nodes that are not given up yet.
    pub losses: usize,
    /// Instances in nodes' ledgers.
    pub entries: usize,
    /// Stops of which nodes owe an answer for what had ended before.
    pub late_stops: usize,
    /// Instances that are known to be on a node.
    pub placements: usize,
    /// Groups with members.
    pub groups: usize,
    /// Names of custom resources.
    pub resource_names: usize,
    /// Managed instances.
    pub managed: usize,
    /// What they take, in bytes.
    pub managed_bytes: usize,
    /// Managed instances that nodes refused, and that are to be tried again at some time.
    pub to_try_again: usize,
    /// Instances that are gone and whose history is remembered.
    pub past: usize,
    /// Bytes of those histories.
    pub past_bytes: usize,
    /// Runs that are over and of which nodes keep something.
    pub outputs: usize,
    /// Instances of which it is known what they are called or run.
    pub named: usize,
    /// Instances that wait for room.
    pub queued: usize,
    /// STARTs that are tried on nodes that called themselves full.
    pub tries: usize,
    /// Payloads of those, in bytes.
    pub tried_bytes: usize,
    /// STARTs that wait for nodes after a restart.
    pub held_for_recovery: usize,
    /// STARTs that wait for a disk that takes no writes.
    pub held: usize,
    /// What they take, in bytes.
    pub held_bytes: usize,
    /// STARTs that are not on disk, and records that may still be there.
    pub unwritten: usize,
    /// Batches that wait.
    pub batches: usize,
    /// Payloads of those, in bytes.
    pub batch_bytes: usize,
    /// Arrays, with those that have ended.
    pub arrays: usize,
    /// What they take, in bytes.
    pub array_bytes: usize,
    /// Answers that operators wait for.
    pub answers: usize,
    /// Chunks of output that peers wait for.
    pub reads: usize,
    /// Outcomes remembered for the next master.
    pub outcomes: usize,
    /// What they take, in bytes.
    pub outcome_bytes: usize,
    /// Explanations remembered.
    pub explanations: usize,
    /// Cordoned nodes.
    pub cordons: usize,
    /// Claims of nodes that are away.
    pub remembered: usize,
    /// Places in tables that are there, used or not.
    pub capacity: usize,
}

impl Scheduler {
    /// How much of everything there is. Walks all nodes.
    #[must_use]
    pub fn footprint(&self) -> Footprint {
        let (past, past_bytes) = self.instances.past_size();
        let (batches, batch_bytes) = self.pending.batches();
        let (outcomes, outcome_bytes) = self.peers.outcomes();
        let entries = self
            .cluster
            .nodes_from(0)
            .map(|(_, node)| node.ledger().len());
        let late_stops = self
            .cluster
            .nodes_from(0)
            .map(|(_, node)| node.ledger().late_stops());
        Footprint {
            sessions: self.peers.len(),
            topics: self.peers.topics(),
            nodes: self.cluster.nodes_from(0).count(),
            losses: self.timers.losses(),
            entries: entries.sum(),
            late_stops: late_stops.sum(),
            placements: self.cluster.placements().0,
            groups: self.cluster.groups().len(),
            resource_names: self.cluster.columns().len(),
            managed: self.instances.iter().count(),
            managed_bytes: self.instances.size().all(),
            to_try_again: self.timers.to_ask_again(),
            past,
            past_bytes,
            outputs: self.instances.output_count(),
            named: self.instances.named_count(),
            queued: self.queue.len(),
            tries: self.cluster.tries().0,
            tried_bytes: self.cluster.tries().1,
            held_for_recovery: self.pending.for_nodes(),
            held: self.pending.for_disk().0,
            held_bytes: self.pending.for_disk().1,
            unwritten: self.journal.unwritten(),
            batches,
            batch_bytes,
            arrays: self.arrays.len(),
            array_bytes: self.arrays.bytes(),
            answers: self.peers.answers(),
            reads: self.peers.reads().len(),
            outcomes,
            outcome_bytes,
            explanations: self.placement.explanations(),
            remembered: self.journal.remembered_claims(),
            cordons: self.cluster.cordon_count(),
            capacity: self.cluster.placements().1
                + self.peers.capacity()
                + self.timers.capacity()
                + self.instances.capacity()
                + self.queue.capacity()
                + self.cluster.groups().capacity(),
        }
    }
}
