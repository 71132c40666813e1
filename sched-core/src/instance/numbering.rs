//! The runs of one managed instance, by number: each START that is given to a node begins the next. A node that was lost
//! may report the end of its run long after a later run has begun elsewhere, or has ended; by these numbers that end is
//! the end of an earlier run and not the outcome.

use sched_model::Uuid;

/// Most nodes of earlier runs that are remembered, the oldest forgotten first. An instance is started again on another
/// node before the last has reported only when that one is lost, so that more of them are away at once hardly ever.
pub(crate) const MAX_EARLIER: usize = 8;

/// Which runs an instance has had.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct RunNumbers {
    /// How many have begun: the number of the latest.
    latest: u32,
    /// The node of the latest, until it has reported that run's end; `None` before the first.
    node: Option<Uuid>,
    /// Nodes that have not reported the end of an earlier run, with its number, oldest first.
    earlier: Vec<(Uuid, u32)>,
}

impl RunNumbers {
    /// The numbers of before a restart.
    pub(crate) fn restored(latest: u32, node: Option<Uuid>, earlier: Vec<(Uuid, u32)>) -> Self {
        Self {
            latest,
            node,
            earlier,
        }
    }

    /// The numbers of an instance that is started once more after its runs were over: they go on from those of the last
    /// one.
    pub(crate) fn after(last: &Self) -> Self {
        let mut numbers = last.clone();
        numbers.node = None;
        if let Some(node) = last.node {
            numbers.push_earlier(node, last.latest);
        }
        numbers
    }

    /// The next run begins: its START is given to a node.
    pub(crate) fn begin(&mut self, node: Uuid) {
        if let Some(before) = self.node {
            self.push_earlier(before, self.latest);
        }
        // Of its own runs the node reports the ends in order, each by a number: the ledger tells them apart.
        self.earlier.retain(|(earlier, _)| *earlier != node);
        self.latest = self.latest.saturating_add(1);
        self.node = Some(node);
    }

    fn push_earlier(&mut self, node: Uuid, number: u32) {
        self.earlier.retain(|(earlier, _)| *earlier != node);
        if self.earlier.len() == MAX_EARLIER {
            self.earlier.remove(0);
        }
        self.earlier.push((node, number));
    }

    /// The START that was given to this node has failed: no run has begun. The latest is the one before, whose end its node
    /// may still have to report.
    pub(crate) fn take_back(&mut self, node: Uuid) {
        if self.node == Some(node) {
            self.latest -= 1;
            let latest = self.latest;
            let before = self.earlier.pop_if(|(_, number)| *number == latest);
            self.node = before.map(|(node, _)| node);
        }
    }

    /// This node has reported the end of the run that it had.
    pub(crate) fn close(&mut self, node: Uuid) {
        self.node = self.node.filter(|open| *open != node);
        self.earlier.retain(|(earlier, _)| *earlier != node);
    }

    /// It is found on a node: its latest run is there, also if no START was given from here.
    pub(crate) fn found_on(&mut self, node: Uuid) {
        if self.node != Some(node) {
            self.begin(node);
        }
    }

    /// How many runs have begun: the number of the latest.
    pub(crate) fn latest(&self) -> u32 {
        self.latest
    }

    /// The node of the latest run, until it has reported that run's end.
    pub(crate) fn node(&self) -> Option<Uuid> {
        self.node
    }

    /// Nodes that have not reported the end of an earlier run, with its number, oldest first.
    pub(crate) fn earlier(&self) -> &[(Uuid, u32)] {
        &self.earlier
    }

    /// The number of the run whose end this node has not reported, if a later one has begun elsewhere.
    pub(crate) fn earlier_on(&self, node: Uuid) -> Option<u32> {
        let mut earlier = self.earlier.iter();
        earlier
            .find(|(other, _)| *other == node)
            .map(|(_, number)| *number)
    }
}

#[cfg(test)]
mod tests {
    use sched_model::Uuid;

    use super::{MAX_EARLIER, RunNumbers};

    #[test]
    fn the_latest_run_on_a_node_is_an_earlier_one_once_another_has_begun_elsewhere() {
        let [a, b] = [1, 2].map(Uuid::from_u128);
        let mut runs = RunNumbers::default();
        runs.begin(a);
        assert_eq!((runs.latest(), runs.earlier_on(a)), (1, None));
        runs.begin(b);
        assert_eq!((runs.latest(), runs.earlier_on(a)), (2, Some(1)));
        runs.begin(a);
        assert_eq!((runs.earlier_on(a), runs.earlier_on(b)), (None, Some(2)));
        runs.found_on(a);
        assert_eq!(runs.latest(), 3);
        runs.close(b);
        assert_eq!((runs.node(), runs.earlier_on(b)), (Some(a), None));
        let again = RunNumbers::after(&runs);
        assert_eq!((again.node(), again.earlier_on(a)), (None, Some(3)));
        for node in 10..100 {
            runs.begin(Uuid::from_u128(node));
        }
        assert_eq!((runs.latest(), runs.earlier().len()), (93, MAX_EARLIER));
        runs.take_back(Uuid::from_u128(99));
        assert_eq!(
            (runs.latest(), runs.node()),
            (92, Some(Uuid::from_u128(98)))
        );
        runs.close(Uuid::from_u128(97));
        runs.take_back(Uuid::from_u128(98));
        assert_eq!((runs.latest(), runs.node()), (91, None));
    }
}
