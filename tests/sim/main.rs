//! A whole cluster in one process, from a seed: the real core, the real launchers' state machine, simulated machines,
//! a simulated network, and one virtual clock.
//!
//! A run draws a cluster and a time of trouble from its seed ([`plan`]): workloads come and go, connections break,
//! launchers, machines, controllers and the scheduler crash and come back, the clock jumps. Instances wait for room, make
//! way for each other, are suspended and resumed, moved, changed and restarted, machines are cordoned and drained. An
//! operator without a network between ([`observer`]) tells what the scheduler decides. After every step the
//! [`checks`] are asked. Then trouble ends, the cluster comes to rest, and the books of all are held against what really
//! runs; at last everything is deleted, and nothing may be left anywhere. How to run more seeds, or one: see [`seeds`].
//!
//! Some runs have several schedulers behind one name ([`cluster`]): their elections, their fences and what they write to
//! etcd are the real ones, etcd is a model.
//!
//! To add an operation: a verb of [`world::World`], beside those of its subject, and a line in `plan::OPERATIONS`.
//! To add a check: a file in `checks`, and its line in `checks::all`; what it has to see that is not told yet is a
//! [`facts::Fact`].

mod agenda;
mod behaviour;
mod checks;
mod cluster;
mod controller;
mod disk;
mod facts;
mod features;
mod fnv;
mod jobs;
mod launcher;
mod liar;
mod machine;
mod names;
mod network;
mod observer;
mod payload;
mod plan;
mod recipients;
mod run;
mod scheduler;
mod seeds;
mod settings;
mod trace;
mod work;
mod world;

use crate::behaviour::Measure;
use crate::features::Feature;
use crate::run::{run, run_with};
use crate::seeds::{Sums, for_each_seed};

/// Seeds of an ordinary run of the tests: well under a minute of two cores that are free, in a debug build.
const SEEDS: u64 = 100;

/// Seeds that found a defect once, beyond those.
const FOUND: &[u64] = &[
    1096, 2253, 2526, 2610, 2667, 2679, 4471, 4772, 5095, 6270, 6492, 7162, 7500, 7804, 8352, 8615,
    8807, 10288, 10730, 10914, 11809, 12125, 13661, 15893, 15991, 16743, 17931, 18545, 50237,
];

#[test]
fn invariants_hold_under_random_faults() {
    let sums = for_each_seed(FOUND, SEEDS, run);
    println!("{sums}");
    assert!(sums.steps > 0, "something happened");
}

/// Seeds of runs in which most instances are members of groups that are to be apart.
const SEEDS_OF_MEMBERS: u64 = 60;

#[test]
fn members_are_apart_under_random_faults() {
    let sums = for_each_seed(&[], SEEDS_OF_MEMBERS, |seed, measure| {
        run_with(seed, measure, &[Feature::Members])
    });
    println!("{sums}");
    assert!(sums.steps > 0, "something happened");
}

/// Seeds of runs with silent connections, in which an operator looks at what is listed.
const SEEDS_OF_SILENCE: u64 = 60;

#[test]
fn what_is_listed_is_true_across_silent_links() {
    let sums = for_each_seed(
        &[
            66, 109, 318, 411, 608, 658, 845, 908, 1247, 1355, 2774, 3021, 3416, 10_071, 10_176,
        ],
        SEEDS_OF_SILENCE,
        |seed, measure| run_with(seed, measure, &[Feature::SilentLinks, Feature::Looks]),
    );
    println!("{sums}");
    assert!(sums.steps > 0, "something happened");
}

/// Seeds of runs with jobs and arrays of them: each takes twice as long as others, because jobs come to their ends.
const SEEDS_OF_JOBS: u64 = 16;

#[test]
fn jobs_keep_what_their_starts_say_under_random_faults() {
    let sums = for_each_seed(&[500_224], SEEDS_OF_JOBS, |seed, measure| {
        run_with(seed, measure, &[Feature::Jobs])
    });
    println!("{sums}");
    assert!(sums.steps > 0, "something happened");
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let hash = |sums: &Sums| sums.behaviour.as_ref().expect("it was measured").hash;
    for seed in [3, 4] {
        let (first, second) = (run(seed, Measure::Whole), run(seed, Measure::Whole));
        assert_eq!(first.hash, second.hash, "seed {seed}");
        assert_eq!(hash(&first), hash(&second), "seed {seed}");
        let unmeasured = run(seed, Measure::No);
        assert_eq!(first.hash, unmeasured.hash, "a measure changes nothing");
        assert_eq!(first.steps, second.steps, "seed {seed}");
    }
    let (third, fourth) = (run(3, Measure::Whole), run(4, Measure::Whole));
    assert_ne!(third.hash, fourth.hash, "the trace says what happened");
    assert_ne!(
        hash(&third),
        hash(&fourth),
        "it says what the scheduler did"
    );
}

/// Seeds of runs with several schedulers behind one name.
const SEEDS_OF_SCHEDULERS: u64 = 20;

#[test]
fn one_scheduler_leads_under_random_faults() {
    let sums = for_each_seed(&[200_559], SEEDS_OF_SCHEDULERS, |seed, measure| {
        match seed % 2 {
            0 => run_with(seed, measure, &[Feature::Schedulers, Feature::Jobs]),
            _ => run_with(seed, measure, &[Feature::Schedulers]),
        }
    });
    println!("{sums}");
    let seen = sums.seen;
    let have_come = seen.leaders > sums.seeds && seen.deposed > 0 && seen.pauses > 0;
    assert!(
        have_come || sums.seeds < SEEDS_OF_SCHEDULERS,
        "{seen:?}: others take over, and some do not know it"
    );
}
