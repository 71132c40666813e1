//! What a START costs that asks for more than room: labels, groups, preferences, custom resources, weighers.
//!
//! `start` is all that the core does for one START (choice, claim, ledger, message), so that a line can be compared
//! with that of a plain START; `naive` is the same question asked of a loop over nodes that evaluates each in turn, as a
//! scheduler with filters does, choice alone.

use std::collections::BTreeMap;
use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use proto_frames::payload::{Expression, Test};

use cluster::{Cluster, PLENTY, StartKind, labels};

#[path = "common/cluster.rs"]
mod cluster;

/// Nodes in the table.
const SIZES: [usize; 3] = [100, 10_000, 100_000];

/// STARTs between two rounds of deleting, so that no ledger grows with the number of iterations.
const BATCH: u64 = 1024;

fn start(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("constraints/start");
    for kind in StartKind::ALL {
        for nodes in SIZES {
            let mut cluster = Cluster::new(nodes, kind);
            // A group has a member on each node at most: what is timed is never more than there are nodes.
            let batch = match kind {
                StartKind::AntiAffinity => BATCH.min(nodes as u64 / 2),
                _ => BATCH,
            };
            group.bench_function(BenchmarkId::new(kind.name(), nodes), |bencher| {
                bencher.iter_custom(|count| cluster.time_starts(count, batch));
            });
        }
    }
    group.finish();
}

fn naive(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("constraints/naive");
    for kind in [StartKind::Zone, StartKind::RackOfZone] {
        for nodes in SIZES {
            let mut table = NaiveTable::new(nodes);
            let scheduling = kind.scheduling().expect("it requires something");
            group.bench_function(BenchmarkId::new(kind.name(), nodes), |bencher| {
                bencher.iter(|| table.choose(black_box(&scheduling.require)));
            });
        }
    }
    group.finish();
}

/// Nodes as a scheduler with filters keeps them: each in memory of its own, labels in a map.
#[expect(
    clippy::vec_box,
    reason = "following pointers to nodes is part of what such a loop costs"
)]
struct NaiveTable {
    nodes: Vec<Box<NaiveNode>>,
    most_recently_used: usize,
}

struct NaiveNode {
    mem_available: i64,
    labels: BTreeMap<String, String>,
}

impl NaiveTable {
    fn new(nodes: usize) -> Self {
        let node = |number| {
            let labels = labels(number).into_iter();
            Box::new(NaiveNode {
                mem_available: PLENTY,
                labels: labels
                    .map(|(key, value)| (key.into(), value.into()))
                    .collect(),
            })
        };
        Self {
            nodes: (0..nodes).map(node).collect(),
            most_recently_used: 0,
        }
    }

    fn choose(&mut self, require: &[Expression]) -> Option<usize> {
        let after = self.most_recently_used + 1;
        let mut order = (after..self.nodes.len()).chain(0..self.nodes.len());
        let found = order.find(|&at| self.nodes[at].fits(require))?;
        self.most_recently_used = found;
        Some(found)
    }
}

impl NaiveNode {
    fn fits(&self, require: &[Expression]) -> bool {
        let holds = |expression: &Expression| {
            let test: &Test = expression.test();
            let value = self.labels.get(expression.key());
            value.is_some_and(|value| test.holds_for(value)) != test.is_negative()
        };
        self.mem_available >= 64 && require.iter().all(holds)
    }
}

criterion_group!(benches, start, naive);
criterion_main!(benches);
