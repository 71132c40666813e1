//! The simulation of cells in `benches/cells.rs`: that it counts what happens, and compares like with like.

#![allow(clippy::unwrap_used, reason = "a test ends where it fails")]

use std::time::Duration;

use sched_core::{Amount, Countable, Provider, ProvidersCursor};

use aggregate::{Aggregate, Free, View};
use router::Rule;
use trial::{Setup, Trial};
use workload::{GIB, Kind, Request, Want};

#[path = "../benches/cells/aggregate.rs"]
mod aggregate;
#[path = "../benches/cells/cell.rs"]
mod cell;
#[path = "../benches/common/driven.rs"]
mod driven;
#[path = "../benches/cells/router.rs"]
mod router;
#[path = "../benches/cells/trial.rs"]
mod trial;
#[path = "../benches/cells/workload.rs"]
mod workload;

const KINDS: [Kind; 3] = [Kind::Small, Kind::Mixed, Kind::Constrained];

fn setup(kind: Kind, cells: usize, seed: u64) -> Setup {
    Setup {
        cells,
        nodes: 100,
        kind,
        preset: "pack",
        rule: Rule::Fullest,
        routers: 2,
        tries: 3,
        period: Duration::from_secs(1),
        delay: Duration::from_millis(50),
        rate: 100.0,
        seed,
    }
}

#[test]
fn one_cell_places_every_start_where_one_core_does() {
    for kind in KINDS {
        for (preset, rule) in [
            ("first-fit", Rule::Emptier),
            ("pack", Rule::Fullest),
            ("pack", Rule::Blind),
        ] {
            let mut trial = Trial::new(Setup {
                preset,
                rule,
                ..setup(kind, 1, 7)
            });
            let (mut placed, mut refused) = (0, 0);
            for number in 0..2_200 {
                if number >= 1_800 {
                    trial.end_one();
                }
                let (one, cells) = trial.step();
                assert_eq!(
                    one,
                    cells.map(|(_, node)| node),
                    "{kind:?}, {preset}, START {number}"
                );
                placed += u32::from(one.is_some());
                refused += u32::from(one.is_none());
            }
            assert!(
                placed > 1_000 && refused > 10,
                "{placed} placed, {refused} refused"
            );
        }
    }
}

#[test]
fn routers_that_may_try_every_cell_refuse_nothing_that_a_cell_could_take() {
    // Each cell sends its aggregate once between two STARTs: with the view always fresh, a cell that may fit is never passed over.
    for kind in [Kind::Small, Kind::Mixed] {
        let mut trial = Trial::new(Setup {
            tries: 10,
            routers: 1,
            period: Duration::from_millis(10),
            delay: Duration::ZERO,
            ..setup(kind, 10, 3)
        });
        for _ in 0..2_000 {
            trial.step();
        }
        assert_eq!(trial.figures.missed, 0, "{kind:?}");
        assert!(
            trial.figures.refused_by_cells > 0,
            "{kind:?}: it is full in the end"
        );
    }
}

#[test]
fn routers_that_know_nothing_do_worse_than_routers_with_aggregates() {
    let missed = |rule| {
        let setup = Setup {
            rule,
            tries: 2,
            ..setup(Kind::Mixed, 10, 5)
        };
        Trial::new(setup).churn(0.9, 3_000).missed
    };
    let (knowing, blind) = (missed(Rule::Fullest), missed(Rule::Blind));
    assert!(knowing < blind, "{knowing} and {blind}");
}

#[test]
fn what_is_counted_as_left_is_what_the_cores_say() {
    let mut trial = Trial::new(setup(Kind::Constrained, 4, 11));
    trial.churn(0.8, 1_000);
    for cell in trial.cells.iter().chain([&trial.one]) {
        let mut left = Vec::new();
        let scheduler = &cell.core.scheduler;
        let rest = scheduler.visit_providers(ProvidersCursor::default(), &mut |provider| {
            left.push(left_on(&provider));
        });
        assert!(rest.is_none(), "all are shown at once");
        assert_eq!(left, cell.free);
        let again = Aggregate::of(&cell.free);
        assert_eq!(again.encode(), cell.aggregate.encode());
        cell.core.scheduler.invariants().unwrap();
    }
}

/// What a core says is left on a node.
fn left_on(provider: &Provider<'_>) -> Free {
    let stocks = provider.stocks();
    let of = |wanted: Countable| {
        let stock = stocks.iter().find(|stock| stock.of == wanted);
        stock.map_or(0, |stock| stock.capacity - stock.claimed)
    };
    Free {
        mem_gib: of(Countable::Every(Amount::Memory)) / GIB,
        vcpus: of(Countable::Every(Amount::Vcpus)),
        gpus: of(Countable::Custom("gpu".into())),
        ssd: provider.labels().any(|(key, _)| key == "ssd"),
    }
}

#[test]
fn a_view_tells_between_which_numbers_the_nodes_that_fit_are() {
    let mut rng = fastrand::Rng::with_seed(1);
    let nodes: Vec<Free> = (0..500)
        .map(|_| Free {
            mem_gib: rng.i64(0..130),
            vcpus: rng.i64(0..70),
            gpus: rng.i64(0..9),
            ssd: rng.bool(),
        })
        .collect();
    let view = View::decode(&Aggregate::of(&nodes).encode());
    assert_eq!(view.mem_gib, nodes.iter().map(|it| it.mem_gib).sum::<i64>());
    for number in 0..1_000 {
        let want = [Want::Nothing, Want::Ssd, Want::Gpus(2), Want::Gpus(4)][rng.usize(..4)];
        let request = Request {
            number,
            mem_gib: rng.i64(0..140),
            vcpus: rng.i64(0..80),
            want,
        };
        let fits = |node: &&Free| {
            node.mem_gib >= request.mem_gib
                && node.vcpus >= request.vcpus
                && match want {
                    Want::Ssd => node.ssd,
                    Want::Gpus(count) => node.gpus >= count,
                    _ => true,
                }
        };
        let count = nodes.iter().filter(fits).count() as u32;
        let told = view.fits(&request);
        assert!(
            (told.surely..=told.surely + told.maybe).contains(&count),
            "{request:?}: {count}, {told:?}"
        );
    }
}

#[test]
fn the_same_seed_gives_the_same_figures_and_another_gives_others() {
    let figures = |seed| Trial::new(setup(Kind::Constrained, 4, seed)).churn(0.9, 1_000);
    assert_eq!(figures(1), figures(1));
    assert_ne!(figures(1), figures(2));
    let reached = |seed| Trial::new(setup(Kind::Small, 4, seed)).fill(500);
    assert_eq!(reached(1), reached(1));
    assert!(reached(1).iter().all(|it| it.first <= it.hundredth));
}
