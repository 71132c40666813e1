//! How much worse STARTs are placed by cells, each a leader with nodes of its own behind routers that know an aggregate of
//! each, than by one core that has all nodes: the real core in both, simulated nodes, the same STARTs and ends.
//!
//! `cells [NODES [CELLS [SEEDS]]]` prints medians over the seeds, `cells vary NODES CELLS` one seed, with one thing changed at
//! a time. That it counts right is tried by `tests/cells.rs`.

use std::time::{Duration, Instant};

use router::Rule;
use trial::{Figures, Reached, Setup, Trial};
use workload::Kind;

#[path = "cells/aggregate.rs"]
mod aggregate;
#[path = "cells/cell.rs"]
mod cell;
#[path = "common/driven.rs"]
mod driven;
#[path = "cells/router.rs"]
mod router;
#[path = "cells/trial.rs"]
mod trial;
#[path = "cells/workload.rs"]
mod workload;

/// Parts in use at which STARTs and ends go on.
const LEVELS: [f64; 3] = [0.8, 0.9, 0.95];

/// Workloads, each with two presets of placement; groups of which all are in one rack need space there, which `pack` fills.
const RUNS: [(Kind, &str); 6] = [
    (Kind::Small, "first-fit"),
    (Kind::Small, "pack"),
    (Kind::Mixed, "first-fit"),
    (Kind::Mixed, "pack"),
    (Kind::Constrained, "first-fit"),
    (Kind::Constrained, "spread"),
];

fn main() {
    // Under `cargo bench` there is a flag besides.
    let words: Vec<String> = std::env::args()
        .skip(1)
        .filter(|word| !word.starts_with("--"))
        .collect();
    let is_variation = words.first().is_some_and(|word| word == "vary");
    let numbers: Vec<usize> = words.iter().filter_map(|word| word.parse().ok()).collect();
    let number = |at: usize, otherwise| numbers.get(at).copied().unwrap_or(otherwise);
    let (nodes, cells, seeds) = (number(0, 10_000), number(1, 100), number(2, 3));
    if is_variation {
        vary(&setup(nodes, cells));
    } else {
        compare(&setup(nodes, cells), seeds as u64);
    }
}

/// What is usual: one router, an aggregate a second, three tries; each node gets a START every ten seconds.
fn setup(nodes: usize, cells: usize) -> Setup {
    Setup {
        cells,
        nodes,
        kind: Kind::Small,
        preset: "first-fit",
        rule: Rule::Emptier,
        routers: 1,
        tries: 3,
        period: Duration::from_secs(1),
        delay: Duration::from_millis(50),
        rate: nodes as f64 / 10.0,
        seed: 1,
    }
}

/// Each kind of workload with both presets.
fn compare(base: &Setup, seeds: u64) {
    println!("{} nodes, {} cells, {seeds} seeds", base.nodes, base.cells);
    for (kind, preset) in RUNS {
        let with = |seed| Setup {
            kind,
            preset,
            seed,
            ..*base
        };
        let runs: Vec<Run> = (1..=seeds).map(|seed| run(&with(seed))).collect();
        println!("\n{kind:?}, {preset}:");
        print_fill(&runs);
        for (at, level) in LEVELS.iter().enumerate() {
            let figures: Vec<Figures> = runs.iter().map(|run| run.levels[at]).collect();
            print_level(&format!("{:.0} %", level * 100.0), &figures);
            if kind == Kind::Constrained {
                println!(
                    "      nothing, ssd, gpus, zone, together, apart: {:?}",
                    figures[0].wants
                );
            }
        }
    }
}

/// What one seed gives: filled from nothing, and at each level.
struct Run {
    reached: [Reached; 2],
    levels: Vec<Figures>,
    seconds: f64,
}

fn run(setup: &Setup) -> Run {
    let begun = Instant::now();
    let least = setup.nodes as u64;
    let reached = Trial::new(*setup).fill(least);
    let mut trial = Trial::new(*setup);
    // As many as run: most of what ran before has ended then.
    let starts = setup.nodes as u64 * 12;
    let levels = LEVELS.map(|level| trial.churn(level, starts));
    Run {
        reached,
        levels: levels.to_vec(),
        seconds: begun.elapsed().as_secs_f64(),
    }
}

fn print_fill(runs: &[Run]) {
    let part = |which: usize, of: fn(&Reached) -> Option<f64>| {
        let parts = runs
            .iter()
            .map(|run| of(&run.reached[which]).unwrap_or(0.0));
        100.0 * median(parts)
    };
    println!(
        "filled: in use at the first refusal: one {:.1} %, cells {:.1} %; at 1 % refused: one {:.2} %, cells {:.2} % ({:.0} s a run)",
        part(0, |it| it.first),
        part(1, |it| it.first),
        part(0, |it| it.hundredth),
        part(1, |it| it.hundredth),
        median(runs.iter().map(|run| run.seconds)),
    );
}

fn print_level(what: &str, runs: &[Figures]) {
    let of = |figure: fn(&Figures) -> f64| median(runs.iter().map(figure));
    println!(
        "{what:>20}: refused by one {:.3} %, by cells {:.3} %; lost {:.3} %, won {:.3} %, missed {:.3} %; tries {:.3}, first {:.2} %, \
         age {:.0} ms, {:.0} B an aggregate",
        of(|it| 100.0 * it.refused_by_one as f64 / it.starts as f64),
        of(|it| 100.0 * it.refused_by_cells as f64 / it.starts as f64),
        of(|it| 100.0 * it.lost as f64 / it.starts as f64),
        of(|it| 100.0 * it.won as f64 / it.starts as f64),
        of(|it| 100.0 * it.missed as f64 / it.starts as f64),
        of(|it| it.tries as f64 / it.starts as f64),
        of(|it| 100.0 * it.first as f64 / it.starts as f64),
        of(|it| 1000.0 * it.age.as_secs_f64() / it.tries as f64),
        of(|it| it.bytes as f64 / it.aggregates as f64),
    );
}

/// The mixed workload at 95 %, with one thing changed at a time.
fn vary(base: &Setup) {
    let base = Setup {
        kind: Kind::Mixed,
        preset: "pack",
        ..*base
    };
    println!(
        "{} nodes, {} cells, mixed, pack, at 95 %",
        base.nodes, base.cells
    );
    let show = |what: &str, setup: Setup| {
        let starts = setup.nodes as u64 * 12;
        print_level(what, &[Trial::new(setup).churn(0.95, starts)]);
    };
    show("as usual", base);
    for tries in [1, 2, 5, 10] {
        show(&format!("{tries} tries"), Setup { tries, ..base });
    }
    for ms in [100, 10_000, 60_000] {
        let period = Duration::from_millis(ms);
        show(&format!("every {ms} ms"), Setup { period, ..base });
    }
    for routers in [4, 16] {
        show(&format!("{routers} routers"), Setup { routers, ..base });
    }
    for rule in [Rule::Fullest, Rule::Blind] {
        show(&format!("{rule:?}"), Setup { rule, ..base });
    }
    for cells in [10, 1000] {
        if base.nodes / cells >= 20 {
            show(&format!("{cells} cells"), Setup { cells, ..base });
        }
    }
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
