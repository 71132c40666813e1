//! Pinning: which processors of the node are each instance's own, so that no other pinned instance runs on them.
//!
//! ```text
//! START with vcpus: 2     two processors that no other instance has, whole cores first
//! UPDATE to vcpus: 3      one more, on the NUMA node where it has the others if there is one
//! UPDATE to vcpus: 1      gives up what it got last
//! SUSPEND, RESUME         gives all up, as it gives up its vcpus; gets as many again, maybe others
//! ```
//! An instance for which there are not enough is not refused: it runs on all processors of the launcher, as without
//! pinning, and says so in STATS. It is tried again when it is started again, resumed or updated. Processors are in its
//! record, so that the next launcher gives them to no other instance.
//!
//! What a node has is read by [`detect`](super::super::detect); what is done to processes by `cgroup` and `supervise`.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::{Deserialize, Serialize};
use tracing::warn;

use super::instances::Instance;
use super::{Agent, AgentAction, Devices};

/// How processors are chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pinning {
    /// Whole cores first, wherever they are.
    Cores,
    /// On one NUMA node where they fit, near the devices that the instance has; else as [`Pinning::Cores`].
    Numa,
}

/// One processor that may be given to instances: a thread of a core.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Processor {
    /// Its number.
    pub number: u16,
    /// The number of its core: the lowest of the processors that share it.
    pub core: u16,
    /// Its NUMA node; 0 where the machine has none.
    pub node: u16,
}

/// The processors of a machine that its launcher gives out, and where devices are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Processors {
    /// How they are chosen.
    pub pinning: Pinning,
    /// All of them.
    pub all: Vec<Processor>,
    /// The NUMA node of each unit of a resource, by index; `None` where it is not known.
    pub devices: BTreeMap<String, Vec<Option<u16>>>,
}

/// Processors by their numbers, in the order in which an instance got them.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Cpus(pub Vec<u16>);

impl Cpus {
    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// As the kernel writes them: `0-3,8`.
impl fmt::Display for Cpus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sorted: BTreeSet<u16> = self.0.iter().copied().collect();
        let mut rest = sorted.into_iter().peekable();
        let mut separator = "";
        while let Some(first) = rest.next() {
            let mut last = first;
            while let Some(next) = rest.next_if(|next| last.checked_add(1) == Some(*next)) {
                last = next;
            }
            match first == last {
                true => write!(f, "{separator}{first}")?,
                false => write!(f, "{separator}{first}-{last}")?,
            }
            separator = ",";
        }
        Ok(())
    }
}

impl Processors {
    /// All of them, for those that have none of their own.
    fn shared(&self) -> Cpus {
        Cpus(self.all.iter().map(|it| it.number).collect())
    }

    /// So many of those that are not taken, near these NUMA nodes if possible; `None` where there are fewer.
    fn choose(&self, count: usize, taken: &BTreeSet<u16>, near: &[u16]) -> Option<Vec<u16>> {
        let is_free = |it: &&Processor| !taken.contains(&it.number);
        let free: Vec<Processor> = self.all.iter().filter(is_free).copied().collect();
        if free.len() < count {
            return None;
        }
        let of_node = match self.pinning {
            Pinning::Cores => None,
            Pinning::Numa => fitting_node(&free, count, near),
        };
        let candidates = match of_node {
            Some(node) => free.into_iter().filter(|it| it.node == node).collect(),
            None => free,
        };
        Some(self.whole_cores_first(candidates, count))
    }

    /// So many of these: cores of which all threads are free as long as whole ones are needed, then threads of cores that
    /// others have threads of already.
    fn whole_cores_first(&self, free: Vec<Processor>, count: usize) -> Vec<u16> {
        let mut threads: BTreeMap<u16, usize> = BTreeMap::new();
        for processor in &self.all {
            *threads.entry(processor.core).or_default() += 1;
        }
        let mut cores: BTreeMap<u16, Vec<u16>> = BTreeMap::new();
        for processor in free {
            let core = cores.entry(processor.core).or_default();
            core.push(processor.number);
        }
        let mut chosen = Vec::new();
        cores.retain(|core, free| {
            let is_whole = threads.get(core) == Some(&free.len());
            let is_taken = is_whole && free.len() <= count - chosen.len();
            if is_taken {
                chosen.append(free);
            }
            !is_taken
        });
        let mut rest: Vec<Vec<u16>> = cores.into_values().collect();
        rest.sort_by_key(Vec::len);
        chosen.extend(rest.into_iter().flatten().take(count - chosen.len()));
        chosen
    }

    /// The NUMA nodes of an instance's devices, that of the most first.
    fn nodes_of(&self, devices: &Devices) -> Vec<u16> {
        let mut counts: BTreeMap<u16, usize> = BTreeMap::new();
        for (resource, nodes) in &self.devices {
            for index in devices.of(resource) {
                if let Some(Some(node)) = nodes.get(usize::from(*index)) {
                    *counts.entry(*node).or_default() += 1;
                }
            }
        }
        most_first(counts)
    }

    /// The NUMA nodes of these processors, that of the most first.
    fn nodes_of_cpus(&self, cpus: &[u16]) -> Vec<u16> {
        let mut counts: BTreeMap<u16, usize> = BTreeMap::new();
        for processor in self.all.iter().filter(|it| cpus.contains(&it.number)) {
            *counts.entry(processor.node).or_default() += 1;
        }
        most_first(counts)
    }
}

fn most_first(counts: BTreeMap<u16, usize>) -> Vec<u16> {
    let mut nodes: Vec<(u16, usize)> = counts.into_iter().collect();
    nodes.sort_by_key(|&(node, count)| (Reverse(count), node));
    nodes.into_iter().map(|(node, _)| node).collect()
}

/// The NUMA node that has so many of these: a near one, else that which they fill best, so that larger gaps stay.
fn fitting_node(free: &[Processor], count: usize, near: &[u16]) -> Option<u16> {
    let mut counts: BTreeMap<u16, usize> = BTreeMap::new();
    for processor in free {
        *counts.entry(processor.node).or_default() += 1;
    }
    let distance = |node: u16| near.iter().position(|it| *it == node);
    let fitting = counts.into_iter().filter(|(_, free)| *free >= count);
    fitting
        .min_by_key(|&(node, free)| (distance(node).unwrap_or(near.len()), free, node))
        .map(|(node, _)| node)
}

impl Agent {
    /// Gives an instance as many processors of its own as it holds vcpus, or none where there are not as many, and takes
    /// back those beyond. Whether that changed anything.
    ///
    /// What it has it keeps, because its memory is near them. Without pinning an instance keeps what an earlier launcher
    /// gave it: nothing here could give it others.
    pub(super) fn assign_processors(&mut self, id: &str) -> bool {
        let (Some(processors), Some(instance)) =
            (&self.settings.features.processors, self.instances.get(id))
        else {
            return false;
        };
        let before = instance.cpus.clone();
        let wanted = instance.wanted_processors();
        let mut cpus = before.0.clone();
        cpus.truncate(wanted);
        let lacking = wanted - cpus.len();
        if lacking > 0 {
            let others = self.live().filter(|(other, _)| *other != id);
            let taken = others.flat_map(|(_, other)| other.cpus.0.iter().copied());
            let taken: BTreeSet<u16> = taken.chain(cpus.iter().copied()).collect();
            let near = match cpus.is_empty() {
                true => processors.nodes_of(&instance.devices),
                false => processors.nodes_of_cpus(&cpus),
            };
            match processors.choose(lacking, &taken, &near) {
                Some(more) => cpus.extend(more),
                None => {
                    warn!(
                        event = "instance_not_pinned",
                        instance = id,
                        vcpus = wanted,
                        "there are not as many processors free as an instance has vcpus; it runs on all"
                    );
                    cpus.clear();
                }
            }
        }
        let is_changed = cpus != before.0;
        if let Some(instance) = self.instances.get_mut(id) {
            instance.cpus = Cpus(cpus);
        }
        is_changed
    }

    /// The processors that are an instance's own.
    pub(super) fn processors_of(&self, id: &str) -> Cpus {
        let instance = self.instances.get(id);
        instance.map(|it| it.cpus.clone()).unwrap_or_default()
    }

    /// As [`Agent::assign_processors`], of an instance whose processes are there: they are moved.
    pub(super) fn move_to_processors(&mut self, id: &str) {
        if !self.assign_processors(id) {
            return;
        }
        let (Some(processors), Some(instance)) =
            (&self.settings.features.processors, self.instances.get(id))
        else {
            return;
        };
        // One that is suspended does not run anywhere.
        if instance.wanted_processors() == 0 && instance.held(|demand| demand.vcpus) > 0 {
            return;
        }
        let cpus = match instance.cpus.is_empty() {
            true => processors.shared(),
            false => instance.cpus.clone(),
        };
        let instance = id.to_owned();
        self.order(AgentAction::Pin { instance, cpus });
    }
}

impl Instance {
    /// How many processors it is to have.
    fn wanted_processors(&self) -> usize {
        match self.is_live() {
            true => usize::try_from(self.held_vcpus()).unwrap_or(0),
            false => 0,
        }
    }

    /// Whether it runs on processors that others may have, although this launcher pins instances.
    pub(super) fn is_unpinned(&self, processors: Option<&Processors>) -> bool {
        processors.is_some() && self.cpus.is_empty() && self.wanted_processors() > 0
    }
}
