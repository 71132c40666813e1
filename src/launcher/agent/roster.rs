//! The instances of a node by id, and what they hold together.
//!
//! A node may have thousands of instances, and the agent asks at every input what is the next deadline, and at every
//! START and report what is left. So sums and deadlines are kept beside the map rather than computed from it: what
//! changes one instance costs O(log n).
//!
//! An instance that was handed out to be changed ([`Roster::get_mut`]) is *open*: its share is taken out of the sums at
//! that moment, and put back when the next one is opened. Until then readers add the share that it has now. So no
//! caller has to say that it has changed something.

use std::collections::{BTreeMap, BTreeSet, btree_map};
use std::time::Instant;

use super::instances::{Instance, InstancePhase};

/// The instances of a node.
#[derive(Debug, Default)]
pub(super) struct Roster {
    by_id: BTreeMap<String, Instance>,
    /// The instance that is open; `None`, or one that was removed since, for none.
    open: Option<String>,
    /// The sums over all but the open one.
    sums: Sums,
    /// When the instances that were asked to end are killed, but for the open one.
    deadlines: BTreeSet<(Instant, String)>,
}

/// What instances hold together. The amounts are `i128`, so that no sum of `i64` overflows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Sums {
    /// Instances that hold what they asked for.
    pub(super) live: usize,
    /// Those of them that may only run under the lease and can still be killed.
    pub(super) under_lease: usize,
    /// Instances that ended by themselves and whose ends are on record.
    pub(super) exited: usize,
    /// What the live ones hold whose memory was measured.
    pub(super) measured: Held,
    /// What the other live ones hold.
    pub(super) unmeasured: Held,
}

/// Amounts that live instances hold; memory and disk in MiB.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Held {
    /// Memory that they asked for.
    pub(super) mem: i128,
    /// Local disk that they asked for.
    pub(super) disk: i128,
    /// Memory that they asked for and do not use yet.
    pub(super) unused_mem: i128,
    /// Local disk that they asked for and do not use yet.
    pub(super) unused_disk: i128,
    /// Virtual CPUs that they hold: a suspended instance holds none.
    pub(super) vcpus: i128,
    /// The same, with at most one of each instance.
    pub(super) vcpus_at_most_one: i128,
}

impl Held {
    fn of(instance: &Instance) -> Self {
        let (unused_mem, unused_disk) = instance.unused();
        let vcpus = instance.held_vcpus();
        Self {
            mem: instance.held(|demand| demand.mem_mb).max(0).into(),
            disk: instance.held(|demand| demand.disk_mb).max(0).into(),
            unused_mem: unused_mem.into(),
            unused_disk: unused_disk.into(),
            vcpus: vcpus.into(),
            vcpus_at_most_one: vcpus.min(1).into(),
        }
    }

    /// The sum of both.
    pub(super) fn plus(self, other: Self) -> Self {
        self.with(other, |a, b| a + b)
    }

    fn with(self, other: Self, join: impl Fn(i128, i128) -> i128) -> Self {
        Self {
            mem: join(self.mem, other.mem),
            disk: join(self.disk, other.disk),
            unused_mem: join(self.unused_mem, other.unused_mem),
            unused_disk: join(self.unused_disk, other.unused_disk),
            vcpus: join(self.vcpus, other.vcpus),
            vcpus_at_most_one: join(self.vcpus_at_most_one, other.vcpus_at_most_one),
        }
    }
}

impl Sums {
    /// The share of one instance.
    fn of(instance: &Instance) -> Self {
        let is_live = instance.is_live();
        let held = match is_live {
            true => Held::of(instance),
            false => Held::default(),
        };
        let (measured, unmeasured) = match instance.is_measured {
            true => (held, Held::default()),
            false => (Held::default(), held),
        };
        let is_exited = matches!(instance.state, InstancePhase::Exited { .. });
        Self {
            live: usize::from(is_live),
            under_lease: usize::from(instance.is_under_lease()),
            exited: usize::from(is_exited && instance.ends.is_empty()),
            measured,
            unmeasured,
        }
    }

    fn plus(self, other: Self) -> Self {
        Self {
            live: self.live + other.live,
            under_lease: self.under_lease + other.under_lease,
            exited: self.exited + other.exited,
            measured: self.measured.plus(other.measured),
            unmeasured: self.unmeasured.plus(other.unmeasured),
        }
    }

    fn minus(self, other: Self) -> Self {
        let less = |a, b| a - b;
        Self {
            live: self.live - other.live,
            under_lease: self.under_lease - other.under_lease,
            exited: self.exited - other.exited,
            measured: self.measured.with(other.measured, less),
            unmeasured: self.unmeasured.with(other.unmeasured, less),
        }
    }
}

impl Roster {
    /// An instance.
    pub(super) fn get(&self, id: &str) -> Option<&Instance> {
        self.by_id.get(id)
    }

    /// An instance, to be changed.
    pub(super) fn get_mut(&mut self, id: &str) -> Option<&mut Instance> {
        self.open(id);
        self.by_id.get_mut(id)
    }

    /// Adds an instance; one of the same id is replaced.
    pub(super) fn insert(&mut self, id: String, instance: Instance) {
        self.remove(&id);
        self.count(&id, Sums::of(&instance), instance.timeout());
        self.by_id.insert(id, instance);
    }

    /// Takes an instance out.
    pub(super) fn remove(&mut self, id: &str) -> Option<Instance> {
        self.open(id);
        self.open = None;
        self.by_id.remove(id)
    }

    /// All instances, in the order of their ids.
    pub(super) fn iter(&self) -> btree_map::Iter<'_, String, Instance> {
        self.by_id.iter()
    }

    /// All instances, in the order of their ids.
    pub(super) fn values(&self) -> btree_map::Values<'_, String, Instance> {
        self.by_id.values()
    }

    /// Changes every instance, in the order of their ids. Costs O(n log n): all are counted again.
    pub(super) fn change_all(&mut self, mut change: impl FnMut(&String, &mut Instance)) {
        (self.open, self.sums) = (None, Sums::default());
        self.deadlines.clear();
        let mut by_id = std::mem::take(&mut self.by_id);
        for (id, instance) in &mut by_id {
            change(id, instance);
            self.count(id, Sums::of(instance), instance.timeout());
        }
        self.by_id = by_id;
    }

    /// What all instances hold together.
    pub(super) fn sums(&self) -> Sums {
        match self.opened() {
            Some(open) => self.sums.plus(Sums::of(open)),
            None => self.sums,
        }
    }

    /// When the first instance that was asked to end is to be killed.
    pub(super) fn first_deadline(&self) -> Option<Instant> {
        let first = self.deadlines.first().map(|(deadline, _)| *deadline);
        let open = self.opened().and_then(Instance::timeout);
        first.into_iter().chain(open).min()
    }

    /// The instance that is open.
    fn opened(&self) -> Option<&Instance> {
        self.by_id.get(self.open.as_ref()?)
    }

    /// Opens an instance, and closes the one that is.
    fn open(&mut self, id: &str) {
        if self.open.as_deref() == Some(id) {
            return;
        }
        if let Some(earlier) = self.open.take()
            && let Some(instance) = self.by_id.get(&earlier)
        {
            self.count(&earlier, Sums::of(instance), instance.timeout());
        }
        let Some(instance) = self.by_id.get(id) else {
            return;
        };
        self.sums = self.sums.minus(Sums::of(instance));
        if let Some(deadline) = instance.timeout() {
            self.deadlines.remove(&(deadline, id.to_owned()));
        }
        self.open = Some(id.to_owned());
    }

    /// Adds the share of an instance, and its deadline.
    fn count(&mut self, id: &str, share: Sums, deadline: Option<Instant>) {
        self.sums = self.sums.plus(share);
        if let Some(deadline) = deadline {
            self.deadlines.insert((deadline, id.to_owned()));
        }
    }

    /// The sums and the first deadline, computed from all instances: to compare them with.
    #[cfg(test)]
    pub(super) fn computed(&self) -> (Sums, Option<Instant>) {
        let shares = self.values().map(Sums::of);
        (
            shares.fold(Sums::default(), Sums::plus),
            self.values().filter_map(Instance::timeout).min(),
        )
    }
}
