//! Where nodes keep the output of runs that are over, as their launchers report: for people who ask what became of an
//! instance. Only the path is kept, no output. What a launcher does not keep any more is removed here too; nothing is
//! on disk, since launchers report it again after a restart of the scheduler.

use std::collections::{BTreeMap, BTreeSet};

use sched_model::Uuid;

use super::Instances;
use crate::api::ids::InstanceId;
use crate::api::text::ShortText;
use crate::maps::{Map, change_or_drop};

/// Runs whose output is known; the ones reported first are forgotten first. About as many as runs are remembered
/// (`MAX_PAST_BYTES` of `instance::past`), some 300 bytes each. Of what is forgotten here the run still names its node.
pub const MAX_OUTPUTS: usize = 131_072;

/// The output of one run. Identified by node and `seq`, so that a second report of the same run replaces the first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Output {
    /// The instance.
    pub(crate) instance: InstanceId,
    /// The node.
    pub(crate) node: Uuid,
    /// The node's host name.
    pub(crate) hostname: ShortText,
    /// The number that its launcher gave the end of the run.
    pub(crate) seq: u64,
    /// When it ended, by the node's clock, in unix milliseconds.
    pub(crate) at_ms: u64,
    /// The directory on the node; empty where nothing is left.
    pub(crate) path: ShortText,
}

/// All outputs that are known, with two indexes that have exactly the numbers in `rows`.
#[derive(Debug, Default)]
pub(super) struct Outputs {
    /// By a number counted up with each report: the smallest is the oldest.
    rows: BTreeMap<u64, Output>,
    by_instance: Map<InstanceId, BTreeSet<u64>>,
    by_node: Map<Uuid, BTreeSet<u64>>,
    /// The number given out last.
    last: u64,
}

impl Instances {
    /// A launcher reports where the output of a run is; an empty path says that nothing is left of it. Replaces what
    /// was known of this run.
    pub(crate) fn note_output(&mut self, output: Output) {
        let is_same = |number: &&u64| {
            let other = self.outputs.rows.get(*number);
            other.is_some_and(|other| (other.node, other.seq) == (output.node, output.seq))
        };
        let known = self.outputs.by_instance.get(&output.instance);
        let known = known
            .and_then(|numbers| numbers.iter().find(is_same))
            .copied();
        if let Some(number) = known {
            self.outputs.remove(number);
        }
        if output.path.is_empty() {
            return;
        }
        while self.outputs.rows.len() >= MAX_OUTPUTS
            && let Some((&number, _)) = self.outputs.rows.first_key_value()
        {
            self.outputs.remove(number);
        }
        self.outputs.last += 1;
        let (instance, node) = (output.instance.clone(), output.node);
        self.outputs
            .by_instance
            .entry(instance)
            .or_default()
            .insert(self.outputs.last);
        self.outputs
            .by_node
            .entry(node)
            .or_default()
            .insert(self.outputs.last);
        self.outputs.rows.insert(self.outputs.last, output);
    }

    /// Removes everything of a node, which is about to report all that it keeps.
    pub(crate) fn forget_outputs(&mut self, node: Uuid) {
        for number in self.outputs.by_node.get(&node).cloned().unwrap_or_default() {
            self.outputs.remove(number);
        }
    }

    /// The outputs of an instance, in the order in which they were reported.
    pub(crate) fn outputs(&self, instance: &InstanceId) -> impl Iterator<Item = &Output> {
        let numbers = self.outputs.by_instance.get(instance).into_iter().flatten();
        numbers.filter_map(|number| self.outputs.rows.get(number))
    }

    /// The runs of which nodes keep something.
    #[cfg(any(test, feature = "test-support"))]
    pub(crate) fn output_count(&self) -> usize {
        self.outputs.rows.len()
    }
}

impl Outputs {
    /// Removes one output from all three maps.
    fn remove(&mut self, number: u64) {
        let Some(output) = self.rows.remove(&number) else {
            return;
        };
        let stays = |numbers: &mut BTreeSet<u64>| {
            numbers.remove(&number);
            !numbers.is_empty()
        };
        change_or_drop(&mut self.by_instance, &output.instance, stays);
        change_or_drop(&mut self.by_node, &output.node, stays);
    }
}

#[cfg(test)]
mod tests {
    use sched_model::Uuid;

    use super::{InstanceId, Instances, MAX_OUTPUTS, Output};

    fn output(instance: &str, node: u128, seq: u64, path: &str) -> Output {
        Output {
            instance: InstanceId::new(instance),
            node: Uuid::from_u128(node),
            hostname: "".into(),
            seq,
            at_ms: 0,
            path: path.into(),
        }
    }

    fn paths(outputs: &Instances, instance: &str) -> Vec<String> {
        let instance = InstanceId::new(instance);
        let all = outputs.outputs(&instance);
        all.map(|output| output.path.to_string()).collect()
    }

    #[test]
    fn each_run_has_one_place_and_none_once_nothing_is_left() {
        let mut outputs = Instances::default();
        outputs.note_output(output("a", 1, 1, "/instances/a"));
        outputs.note_output(output("a", 2, 1, "/other"));
        outputs.note_output(output("a", 1, 1, "/kept/a.1"));
        outputs.note_output(output("a", 1, 2, "/instances/a"));
        assert_eq!(
            paths(&outputs, "a"),
            ["/other", "/kept/a.1", "/instances/a"]
        );
        outputs.note_output(output("a", 1, 1, ""));
        assert_eq!(paths(&outputs, "a"), ["/other", "/instances/a"]);
        outputs.forget_outputs(Uuid::from_u128(1));
        assert_eq!(paths(&outputs, "a"), ["/other"]);
        outputs.note_output(output("a", 2, 1, ""));
        let left = (
            outputs.output_count(),
            outputs.outputs.by_instance.len(),
            outputs.outputs.by_node.len(),
        );
        assert_eq!(left, (0, 0, 0));
    }

    #[test]
    fn there_are_so_many_at_most() {
        let mut outputs = Instances::default();
        for seq in 0..MAX_OUTPUTS as u64 + 2 {
            outputs.note_output(output(&seq.to_string(), 1, seq, "/x"));
        }
        assert_eq!(outputs.output_count(), MAX_OUTPUTS);
        assert!(paths(&outputs, "1").is_empty() && !paths(&outputs, "2").is_empty());
    }
}
