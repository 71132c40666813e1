//! The choice of victims against a naive oracle that tries every set of them in every way.

use std::time::Duration;

use proptest::prelude::*;

use super::{Eviction, PreemptionPlan, Shortfall, Victim, cheapest};
use crate::api::ids::InstanceId;
use crate::api::resources::Resources;

/// A victim by plain numbers: priority, vcpus, memory, whether it is a member, can be suspended, can be stopped.
type Drawn = (u8, i64, i64, bool, bool, bool);

fn victims(drawn: &[Drawn]) -> Vec<Victim> {
    let victim = |(number, &(priority, vcpus, mem_mib, is_member, suspends, stops))| Victim {
        instance: InstanceId::DryRun(number),
        priority,
        frees: Resources {
            mem_mib,
            vcpus,
            disk_mib: 0,
        },
        custom: [].into(),
        is_member,
        age: Duration::from_secs(u64::from(number)),
        suspends,
        stops,
    };
    (0..).zip(drawn).map(victim).collect()
}

/// What is lacking: vcpus, memory and members that have to leave.
fn shortfall((vcpus, mem_mib, members): (i64, i64, i64)) -> Shortfall {
    let room = Resources {
        mem_mib,
        vcpus,
        disk_mib: 0,
    };
    Shortfall {
        room,
        custom: Vec::new(),
        members,
    }
}

/// Whether these victims, leaving in these ways, are enough.
fn is_enough(lack: &Shortfall, leaving: &[(&Victim, Eviction)]) -> bool {
    let stopped = |way: Eviction| way == Eviction::Stop;
    let vcpus: i64 = leaving.iter().map(|(it, _)| it.frees.vcpus).sum();
    let mem = leaving.iter().filter(|(_, way)| stopped(*way));
    let mem: i64 = mem.map(|(it, _)| it.frees.mem_mib).sum();
    let members = leaving.iter().filter(|(it, _)| it.is_member).count();
    vcpus >= lack.room.vcpus && mem >= lack.room.mem_mib && members as i64 >= lack.members
}

/// The lowest highest priority of any set that is enough; `None` if there is none.
fn lowest(lack: &Shortfall, victims: &[Victim]) -> Option<u8> {
    let ways = |victim: &Victim| {
        let suspend = victim.suspends.then_some(Some(Eviction::Suspend));
        let stop = victim.stops.then_some(Some(Eviction::Stop));
        [Some(None), suspend, stop].into_iter().flatten()
    };
    let mut all: Vec<Vec<(&Victim, Eviction)>> = vec![Vec::new()];
    for victim in victims {
        let longer = all.iter().flat_map(|set| {
            ways(victim).map(|way| {
                let mut set = set.clone();
                set.extend(way.map(|way| (victim, way)));
                set
            })
        });
        all = longer.collect();
    }
    let enough = all.iter().filter(|set| is_enough(lack, set));
    let highest = enough.map(|set| set.iter().map(|(it, _)| it.priority).max().unwrap_or(0));
    highest.min()
}

fn leaving<'a>(plan: &PreemptionPlan, victims: &'a [Victim]) -> Vec<(&'a Victim, Eviction)> {
    let find = |instance: &InstanceId| victims.iter().find(|it| it.instance == *instance);
    let plan = plan.victims.iter();
    plan.map(|(instance, way)| (find(instance).expect("it was given"), *way))
        .collect()
}

proptest! {
    #[test]
    fn the_victims_are_enough_none_is_needless_and_none_is_higher_than_it_must_be(
        drawn in proptest::collection::vec(
            (0u8..4, 0i64..4, 0i64..4, any::<bool>(), any::<bool>(), any::<bool>()),
            0..6,
        ),
        lack in (-1i64..6, -1i64..6, -1i64..3),
    ) {
        let (victims, lack) = (victims(&drawn), shortfall(lack));
        prop_assume!(!lack.is_covered());
        let plan = cheapest(&lack, victims.clone());
        prop_assert_eq!(plan.is_some(), lowest(&lack, &victims).is_some());
        let Some(plan) = plan else { return Ok(()) };
        let mut leaving = leaving(&plan, &victims);
        prop_assert!(is_enough(&lack, &leaving));
        prop_assert_eq!(Some(plan.cost.priority), lowest(&lack, &victims));
        for (victim, way) in &leaving {
            let can = match way {
                Eviction::Stop => victim.stops,
                Eviction::Suspend => victim.suspends,
            };
            prop_assert!(can);
        }
        for at in 0..leaving.len() {
            let spared = leaving.remove(at);
            prop_assert!(!is_enough(&lack, &leaving), "{:?} leaves for nothing", spared);
            leaving.insert(at, spared);
        }
    }

    #[test]
    fn only_members_leave_where_a_place_alone_is_lacking(
        drawn in proptest::collection::vec(
            (0u8..4, 0i64..4, 0i64..4, any::<bool>(), any::<bool>(), any::<bool>()),
            0..8,
        ),
    ) {
        let victims = victims(&drawn);
        let plan = cheapest(&shortfall((0, -3, 1)), victims.clone());
        if let Some(plan) = plan {
            prop_assert_eq!(plan.victims.len(), 1);
            for (victim, way) in leaving(&plan, &victims) {
                prop_assert!(victim.is_member);
                prop_assert_eq!(way == Eviction::Stop, !victim.suspends, "it is stopped only where it must be");
            }
        }
    }
}
