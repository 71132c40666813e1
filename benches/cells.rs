//! How much worse STARTs are placed by cells, each a leader with nodes of its own behind routers that know an aggregate of
//! each, than by one core that has all nodes: the real core in both, simulated nodes, the same STARTs and ends.
//!
//! `cells [NODES [CELLS [SEEDS]]]` prints medians over the seeds, `cells vary NODES CELLS` one seed, with one thing changed at
//! a time, `cells cost NODES` what a core keeps of each node and instance, and what a router does. That it counts right is tried by `tests/cells.rs`.

use std::time::{Duration, Instant};

use aggregate::View;
use cell::Cell;
use router::{Router, Rule};
use trial::{Figures, Reached, Setup, Trial};
use workload::{Kind, Machine, Workload};

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
const LEVELS: [f64; 2] = [0.9, 0.95];

/// STARTs at each level, for each node: half of what ran before has ended then.
const STARTS_PER_NODE: u64 = 6;

/// Workloads, each with two presets of placement; groups of which all are in one rack need space there, which `pack` fills.
const RUNS: [(Kind, &str); 6] = [
    (Kind::Mixed, "pack"),
    (Kind::Mixed, "first-fit"),
    (Kind::Constrained, "spread"),
    (Kind::Constrained, "first-fit"),
    (Kind::Small, "pack"),
    (Kind::Small, "first-fit"),
];

fn main() {
    // Under `cargo bench` there is a flag besides.
    let words: Vec<String> = std::env::args()
        .skip(1)
        .filter(|word| !word.starts_with("--"))
        .collect();
    let mode = words.first().map_or("", String::as_str);
    let numbers: Vec<usize> = words.iter().filter_map(|word| word.parse().ok()).collect();
    let number = |at: usize, otherwise| numbers.get(at).copied().unwrap_or(otherwise);
    let (nodes, cells, seeds) = (number(0, 10_000), number(1, 100), number(2, 3));
    match mode {
        "vary" => vary(&setup(nodes, cells)),
        "cost" => cost(nodes),
        _ => compare(&setup(nodes, cells), seeds as u64),
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
    let starts = setup.nodes as u64 * STARTS_PER_NODE;
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

/// The mixed workload at 90 %, with one thing changed at a time; and two others, without aggregates and by another rule.
fn vary(base: &Setup) {
    let base = Setup {
        kind: Kind::Mixed,
        ..*base
    };
    println!("{} nodes, {} cells, mixed, at 90 %", base.nodes, base.cells);
    let show = |what: &str, setup: Setup| {
        let starts = setup.nodes as u64 * STARTS_PER_NODE;
        print_level(what, &[Trial::new(setup).churn(0.9, starts)]);
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
    let rule = Rule::Blind;
    show("no aggregates", Setup { rule, ..base });
    for cells in [10, 20, 500] {
        show(&format!("{cells} cells"), Setup { cells, ..base });
    }
    let constrained = Setup {
        kind: Kind::Constrained,
        preset: "spread",
        ..base
    };
    show("constrained", constrained);
    show(
        "without aggregates",
        Setup {
            rule,
            ..constrained
        },
    );
    let packed = Setup {
        preset: "pack",
        ..base
    };
    show("pack", packed);
    for routers in [1, 4, 16] {
        let fullest = Setup {
            rule: Rule::Fullest,
            routers,
            ..packed
        };
        show(&format!("pack, fullest, {routers}"), fullest);
    }
}

/// Memory of one core for each node and each small instance; and times of what a router does with so many cells of 1000.
fn cost(nodes: usize) {
    let machines = Machine::some(1, nodes);
    let before = resident();
    let mut cell = Cell::new(&machines, "first-fit");
    let connected = resident();
    let mut workload = Workload::new(Kind::Small, 1);
    let instances = nodes as u64 * 10;
    for _ in 0..instances {
        cell.start(Duration::ZERO, &workload.next());
    }
    println!(
        "{nodes} nodes: {} bytes each; {instances} instances: {} bytes each",
        (connected - before) / nodes as u64,
        (resident() - connected) / instances
    );
    for cells in [10, 100, 1000] {
        router_cost(&cell, cells);
    }
}

/// All cells as this one is.
fn router_cost(cell: &Cell, cells: usize) {
    const TIMES: u32 = 200_000;
    let begun = Instant::now();
    let bytes: Vec<Vec<u8>> = (0..cells).map(|_| cell.aggregate.encode()).collect();
    let written = begun.elapsed() / cells as u32;
    let views = bytes.iter().map(|bytes| (View::decode(bytes), cell.zones));
    let mut router = Router::new(views, Rule::Emptier, 1);
    let begun = Instant::now();
    for (number, bytes) in bytes.iter().enumerate() {
        router.learn(number, Duration::from_secs(1), bytes);
    }
    let read = begun.elapsed() / cells as u32;
    let mut workload = Workload::new(Kind::Mixed, 2);
    let requests: Vec<_> = (0..TIMES).map(|_| workload.next()).collect();
    let begun = Instant::now();
    for request in &requests {
        std::hint::black_box(router.next(request, &[]));
    }
    println!(
        "{cells} cells: an aggregate of {} bytes written in {written:.1?}, read in {read:.1?}; a cell chosen in {:.0?}",
        bytes[0].len(),
        begun.elapsed() / TIMES
    );
}

/// Bytes of this process in memory.
fn resident() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("it is Linux");
    let pages = statm
        .split(' ')
        .nth(1)
        .and_then(|it| it.parse::<u64>().ok());
    pages.expect("the second number") * 4096
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
