//! Which instances of one node are preempted for a START, and how: the cheapest set that was found, computed from plain
//! amounts. Nothing here changes anything, and nothing knows of nodes or states.
//!
//! Example: 4 vcpus and 1024 MiB are lacking. *a* (priority 10, 2 vcpus, 2048 MiB, can be suspended) and *b* (priority
//! 20, 8 vcpus, 512 MiB) run there. *a* alone gives too few vcpus, so both priorities are needed; *b* must free vcpus,
//! and if it can be suspended, that is enough of it; memory must come from stopping *a*.
//!
//! Where members of the START's group have to leave too, they are counted as another amount: one that leaves frees one
//! place, whether it is suspended or stopped.

#[cfg(test)]
mod tests;

use std::cmp::Reverse;
use std::time::Duration;

use crate::api::ids::InstanceId;
use crate::api::resources::Resources;
use crate::cluster::columns::Amounts;
use crate::cluster::index::ColumnId;

/// How a victim makes room. Suspending is preferred wherever it frees enough.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Eviction {
    /// It is suspended: its vcpus are free then, its memory and disk are not.
    Suspend,
    /// It is stopped: all it has is free then, and its work is lost. It is placed again later.
    Stop,
}

/// An instance that may be preempted, reduced to what the choice needs.
#[derive(Debug, Clone)]
pub(crate) struct Victim {
    pub(crate) instance: InstanceId,
    /// Lower than the preemptor's.
    pub(crate) priority: u8,
    /// What is free once it is stopped.
    pub(crate) frees: Resources,
    /// The same of custom resources.
    pub(crate) custom: Amounts,
    /// Whether a place in the START's group is free once it has left.
    pub(crate) is_member: bool,
    /// How long it has run: what is lost if it is stopped.
    pub(crate) age: Duration,
    /// Whether it can be suspended: it is not yet, and its launcher can.
    pub(crate) suspends: bool,
    /// Whether it can be stopped: its START is known, so that it can be placed again. Otherwise stopping would end it
    /// for good.
    pub(crate) stops: bool,
}

/// What a START lacks on a node. Amounts above zero have to be freed; zero and below are covered. An amount the node
/// has not reported is lacking without end, so no victims can cover it.
#[derive(Debug, Clone)]
pub(crate) struct Shortfall {
    pub(crate) room: Resources,
    /// One amount for each custom resource that the START asks for.
    pub(crate) custom: Vec<(ColumnId, i64)>,
    /// Members of its group that have to leave.
    pub(crate) members: i64,
}

/// What a set of victims costs; less is better. The derived order compares the fields in the order written: first whom
/// it hits, then how many lose their work, then how much work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Cost {
    /// The highest priority among them.
    priority: u8,
    /// How many are stopped.
    stopped: usize,
    /// The work that is lost: how long those have run, together.
    lost: Duration,
    /// How many leave in all.
    victims: usize,
}

/// A set of victims that is enough, with the way each of them makes room, and what that costs.
#[derive(Debug, Clone)]
pub(crate) struct PreemptionPlan {
    pub(crate) cost: Cost,
    pub(crate) victims: Vec<(InstanceId, Eviction)>,
}

/// The cheapest set found; `None` if all victims together are not enough. Only the lowest priorities that are enough
/// are considered. Of those, each is left out if the others are enough, in two orders, and the cheaper result is taken.
/// So no instance is preempted needlessly, but a set that is cheaper still may be missed: the exact answer is a
/// knapsack problem. O(n log n) in the victims.
pub(crate) fn cheapest(lack: &Shortfall, mut victims: Vec<Victim>) -> Option<PreemptionPlan> {
    victims.retain(|victim| victim.suspends || victim.stops);
    victims.sort_by_key(|victim| victim.priority);
    victims.truncate(enough(lack, &victims)?);
    // Who has run longest is spared first, or who has least to give.
    let by_age = |victim: &Victim| (Reverse(victim.priority), Reverse(victim.age));
    let by_size = |victim: &Victim| {
        let frees = victim.frees;
        (
            frees.mem_mib,
            frees.vcpus,
            frees.disk_mib,
            Reverse(victim.age),
        )
    };
    victims.sort_by_key(by_age);
    let old_ones_stay = sparing(lack, &victims);
    victims.sort_by_key(by_size);
    let small_ones_stay = sparing(lack, &victims);
    [old_ones_stay, small_ones_stay]
        .into_iter()
        .min_by_key(|plan| plan.cost)
}

/// How many victims at the front are needed if all of one priority are taken together; `None` if all together are not
/// enough. The victims must be sorted by priority. So no higher priority is hit where lower ones would do.
fn enough(lack: &Shortfall, victims: &[Victim]) -> Option<usize> {
    let mut left = lack.clone();
    let mut at = 0;
    for level in victims.chunk_by(|one, next| one.priority == next.priority) {
        level
            .iter()
            .for_each(|victim| left.give(victim, most(victim)));
        at += level.len();
        if left.is_covered() {
            return Some(at);
        }
    }
    None
}

/// The way in which a victim frees most.
fn most(victim: &Victim) -> Eviction {
    if victim.stops {
        Eviction::Stop
    } else {
        Eviction::Suspend
    }
}

/// Of victims that are enough together, those that are needed, each only suspended where that is enough. Those at the
/// front are spared first. Begins with all of them and takes one after the other back as long as the rest is enough.
fn sparing(lack: &Shortfall, victims: &[Victim]) -> PreemptionPlan {
    let mut left = lack.clone();
    let mut ways: Vec<Option<Eviction>> = Vec::with_capacity(victims.len());
    for victim in victims {
        left.give(victim, most(victim));
        ways.push(Some(most(victim)));
    }
    // Once one is suspended instead of stopped, another one may turn out not to be needed.
    for _ in 0..2 {
        for (victim, way) in victims.iter().zip(&mut ways) {
            let Some(now) = *way else { continue };
            left.take(victim, now);
            *way = None;
            if left.is_covered() {
                continue;
            }
            *way = Some(now);
            if now == Eviction::Stop && victim.suspends {
                left.give(victim, Eviction::Suspend);
                if left.is_covered() {
                    *way = Some(Eviction::Suspend);
                    continue;
                }
                left.take(victim, Eviction::Suspend);
            }
            left.give(victim, now);
        }
    }
    let needed = victims.iter().zip(ways);
    plan(needed.filter_map(|(victim, way)| Some((victim, way?))))
}

/// A plan of these victims, with its cost added up.
fn plan<'a>(needed: impl Iterator<Item = (&'a Victim, Eviction)>) -> PreemptionPlan {
    let mut cost = Cost {
        priority: 0,
        stopped: 0,
        lost: Duration::ZERO,
        victims: 0,
    };
    let mut victims = Vec::new();
    for (victim, way) in needed {
        cost.priority = cost.priority.max(victim.priority);
        cost.victims += 1;
        if way == Eviction::Stop {
            cost.stopped += 1;
            cost.lost += victim.age;
        }
        victims.push((victim.instance.clone(), way));
    }
    PreemptionPlan { cost, victims }
}

impl Shortfall {
    /// What is lacking of `asked` where `free` is free. A dimension that the node has not reported cannot be freed.
    pub(crate) fn new(asked: Resources, free: Resources) -> Self {
        Self {
            room: Resources {
                mem_mib: asked.mem_mib.saturating_sub(free.mem_mib),
                vcpus: asked.vcpus.saturating_sub(free.vcpus),
                disk_mib: asked.disk_mib.saturating_sub(free.disk_mib),
            },
            custom: Vec::new(),
            members: 0,
        }
    }

    /// Whether nothing is lacking.
    pub(crate) fn is_covered(&self) -> bool {
        Resources::ZERO.covers(&self.room)
            && self.members <= 0
            && self.custom.iter().all(|&(_, amount)| amount <= 0)
    }

    /// Takes a victim's room off the shortfall.
    fn give(&mut self, victim: &Victim, way: Eviction) {
        self.change(victim, way, -1);
    }

    /// Reverts [`Shortfall::give`].
    fn take(&mut self, victim: &Victim, way: Eviction) {
        self.change(victim, way, 1);
    }

    /// Suspending frees vcpus and a place in the group; stopping frees everything.
    fn change(&mut self, victim: &Victim, way: Eviction, sign: i64) {
        let add = |to: &mut i64, amount: i64| *to = to.saturating_add(amount.saturating_mul(sign));
        add(&mut self.room.vcpus, victim.frees.vcpus);
        add(&mut self.members, i64::from(victim.is_member));
        if way == Eviction::Suspend {
            return;
        }
        add(&mut self.room.mem_mib, victim.frees.mem_mib);
        add(&mut self.room.disk_mib, victim.frees.disk_mib);
        for (column, lacking) in &mut self.custom {
            let freed = victim.custom.iter().find(|(other, _)| other == column);
            add(lacking, freed.map_or(0, |(_, amount)| *amount));
        }
    }
}
