//! A START's node: the choice alone, the original's loop beside it, and all that the core does for a START or a READY.
//!
//! `choice` and `naive` are the same question to the same table, asked of this scheduler's index and of a loop over a
//! vector of nodes as the original runs it; `choice_custom` and `choice_allowed` ask for a custom resource as well, or
//! of half of the nodes only, and `candidates` for the first 64 that fit. `start` and `ready` go through [`Scheduler::handle`], with claim, ledger
//! and the message for the node; `why_not` is a START that fits nowhere where the reasons have to be counted again, which
//! happens at most once in 100 ms for one shape of request.

use std::hint::black_box;
use std::time::{Duration, Instant};

use bytes::Bytes;
use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use proto_frames::payload::{Payload, Ready, peek};
use proto_frames::{Role, Uuid};
use sched_core::bench_support::BenchTable;
use sched_core::{
    Action, ClusterConfiguration, Config, Input, Message, NodeReport, Report, Resources, SessionId,
};

use driven::{Driven, parcel, session, uuid};

#[path = "common/driven.rs"]
mod driven;

/// Nodes in the table.
const SIZES: [usize; 4] = [10, 100, 10_000, 100_000];

/// STARTs between two rounds of deleting, so that no ledger grows with the number of iterations.
const BATCH: u64 = 4096;

/// The bytes a START carries, as in the end-to-end figures.
const START_LEN: usize = 300;

const PLENTY: i64 = 1 << 40;

/// An amount of which one less packs alike.
const NEARLY_MISSED: i64 = (1 << 16) + 1;

/// How many nodes that fit are weighed by default.
const CANDIDATES: usize = 64;

const ASKED: Resources = Resources {
    mem_mib: 64,
    vcpus: 1,
    disk_mib: 64,
};

/// What the nodes of a table offer.
#[derive(Debug, Clone, Copy)]
enum Mix {
    /// Each has room: the next one fits.
    NextFits,
    /// Only the last has room, and it was used last: the search goes round.
    LastFits,
    /// No node has room.
    NothingFits,
    /// In turn memory without disk and disk without memory, so that every range of nodes looks promising; the last
    /// has both.
    Adversarial,
    /// The same, but those without memory lack one part in 65 536 of what is asked for, less than a packed amount can
    /// tell: every other node has to be looked at exactly. The worst mix there is.
    NearMisses,
}

impl Mix {
    const ALL: [Self; 5] = [
        Self::NextFits,
        Self::LastFits,
        Self::NothingFits,
        Self::Adversarial,
        Self::NearMisses,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::NextFits => "next_fits",
            Self::LastFits => "last_fits",
            Self::NothingFits => "nothing_fits",
            Self::Adversarial => "adversarial",
            Self::NearMisses => "near_misses",
        }
    }

    /// What is asked for where nodes offer this.
    fn asked(self) -> Resources {
        match self {
            Self::NearMisses => Resources {
                mem_mib: NEARLY_MISSED,
                ..ASKED
            },
            _ => ASKED,
        }
    }

    fn offer(self, node: usize, nodes: usize) -> Resources {
        let is_last = node == nodes - 1;
        let is_even = node.is_multiple_of(2);
        let amount = |there: bool| if there { PLENTY } else { 0 };
        let (mem_mib, disk_mib) = match self {
            Self::NextFits => (PLENTY, PLENTY),
            Self::LastFits => (amount(is_last), amount(is_last)),
            Self::NothingFits => (0, 0),
            Self::Adversarial => (amount(is_last || is_even), amount(is_last || !is_even)),
            Self::NearMisses if is_last || is_even => (PLENTY, amount(is_last)),
            Self::NearMisses => (NEARLY_MISSED - 1, PLENTY),
        };
        Resources {
            mem_mib,
            vcpus: PLENTY,
            disk_mib,
        }
    }
}

fn choice(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("choice");
    for (mix, nodes) in cases() {
        let mut table = BenchTable::new((0..nodes).map(|node| mix.offer(node, nodes)));
        let asked = mix.asked();
        group.bench_function(BenchmarkId::new(mix.name(), nodes), |bencher| {
            bencher.iter(|| table.choose(black_box(&asked)));
        });
    }
    group.finish();
}

/// A custom resource is asked for as well. Every fourth node has some of it: too little, but for the last node.
fn choice_custom(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("choice_custom");
    for (mix, nodes) in cases() {
        let mut table = BenchTable::new((0..nodes).map(|node| mix.offer(node, nodes)));
        for node in (0..nodes as u32).step_by(4) {
            table.set_custom(node, 1);
        }
        table.set_custom(nodes as u32 - 1, 4);
        let asked = mix.asked();
        group.bench_function(BenchmarkId::new(mix.name(), nodes), |bencher| {
            bencher.iter(|| table.choose_custom(black_box(&asked), black_box(4)));
        });
    }
    group.finish();
}

/// Every other pair of nodes is allowed, and the last node: each half of the nodes has its share of the mix.
fn choice_allowed(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("choice_allowed");
    for (mix, nodes) in cases() {
        let mut table = BenchTable::new((0..nodes).map(|node| mix.offer(node, nodes)));
        for node in (0..nodes as u32).filter(|node| node & 2 == 0) {
            table.allow(node);
        }
        table.allow(nodes as u32 - 1);
        let asked = mix.asked();
        group.bench_function(BenchmarkId::new(mix.name(), nodes), |bencher| {
            bencher.iter(|| table.choose_allowed(black_box(&asked)));
        });
    }
    group.bench_function("only_the_last_is_allowed/100000", |bencher| {
        let nodes = 100_000;
        let mut table = BenchTable::new((0..nodes).map(|node| Mix::NextFits.offer(node, nodes)));
        table.allow(nodes as u32 - 1);
        bencher.iter(|| table.choose_allowed(black_box(&ASKED)));
    });
    group.finish();
}

/// The first nodes that fit, as many as are weighed; and what a table takes in memory, which is printed.
fn candidates(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("candidates");
    for nodes in SIZES {
        let table = BenchTable::new((0..nodes).map(|node| Mix::NextFits.offer(node, nodes)));
        println!(
            "{nodes} nodes: {} bytes of table a node",
            table.size() / nodes
        );
        group.bench_function(BenchmarkId::from_parameter(nodes), |bencher| {
            bencher.iter(|| table.first_fits(black_box(&ASKED), CANDIDATES));
        });
    }
    group.finish();
}

fn naive(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("naive");
    for (mix, nodes) in cases() {
        let mut table = NaiveTable::new((0..nodes).map(|node| mix.offer(node, nodes)));
        let asked = mix.asked();
        group.bench_function(BenchmarkId::new(mix.name(), nodes), |bencher| {
            bencher.iter(|| table.choose(black_box(&asked)));
        });
    }
    group.finish();
}

/// What one change of a node's offer costs the index.
fn update(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("update");
    for nodes in SIZES {
        let mut table = BenchTable::new((0..nodes).map(|node| Mix::NextFits.offer(node, nodes)));
        let (mut node, mut count) = (0, 0);
        group.bench_function(BenchmarkId::from_parameter(nodes), |bencher| {
            bencher.iter(|| {
                count += 1;
                node = (node + 1) % nodes as u32;
                let offer = Resources {
                    mem_mib: PLENTY - count,
                    ..ASKED
                };
                table.set_offer(black_box(node), offer);
            });
        });
    }
    group.finish();
}

fn start(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("start");
    for (mix, nodes) in cases().filter(|(mix, _)| mix.asked() == ASKED) {
        let mut cluster = Cluster::new(nodes, |node| mix.offer(node, nodes));
        group.bench_function(BenchmarkId::new(mix.name(), nodes), |bencher| {
            bencher.iter_custom(|count| cluster.time_starts(count, Duration::ZERO));
        });
    }
    group.finish();
}

fn why_not(criterion: &mut Criterion) {
    /// Longer than an explanation is kept.
    const PAUSE: Duration = Duration::from_secs(1);
    let mut group = criterion.benchmark_group("why_not");
    for nodes in SIZES {
        let mut cluster = Cluster::new(nodes, |node| Mix::NothingFits.offer(node, nodes));
        group.bench_function(BenchmarkId::from_parameter(nodes), |bencher| {
            bencher.iter_custom(|count| cluster.time_starts(count, PAUSE));
        });
    }
    group.finish();
}

/// A READY with new figures: `apply` = core alone, `read_and_apply` = payload read as well.
fn ready(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("ready");
    for nodes in SIZES {
        let mut cluster = Cluster::new(nodes, |node| Mix::NextFits.offer(node, nodes));
        group.bench_function(BenchmarkId::new("apply", nodes), |bencher| {
            bencher.iter_custom(|count| cluster.time_readys(count, Read::Before));
        });
        group.bench_function(BenchmarkId::new("read_and_apply", nodes), |bencher| {
            bencher.iter_custom(|count| cluster.time_readys(count, Read::Timed));
        });
    }
    group.finish();
}

fn cases() -> impl Iterator<Item = (Mix, usize)> {
    Mix::ALL
        .into_iter()
        .flat_map(|mix| SIZES.map(|nodes| (mix, nodes)))
}

/// The original's table: a vector of nodes, walked from behind the most recently used one and then from the start.
#[expect(
    clippy::vec_box,
    reason = "the original keeps pointers to nodes, and following them is part of its cost"
)]
struct NaiveTable {
    nodes: Vec<Box<NaiveNode>>,
    most_recently_used: Option<usize>,
}

/// A node as the original keeps it: each in memory of its own, with its identity and all its figures.
struct NaiveNode {
    _uuid: String,
    hostname: String,
    is_ready: bool,
    _mem_total: i64,
    mem_available: i64,
    _disk_total: i64,
    disk_available: i64,
    vcpus: i64,
    _load: i64,
}

impl NaiveTable {
    fn new(offers: impl Iterator<Item = Resources>) -> Self {
        let node = |(number, offer): (usize, Resources)| {
            Box::new(NaiveNode {
                _uuid: Uuid::from_u128(number as u128).to_string(),
                hostname: format!("node-{number}"),
                is_ready: true,
                _mem_total: PLENTY,
                mem_available: offer.mem_mib,
                _disk_total: PLENTY,
                disk_available: offer.disk_mib,
                vcpus: offer.vcpus,
                _load: 0,
            })
        };
        Self {
            nodes: offers.enumerate().map(node).collect(),
            most_recently_used: None,
        }
    }

    fn choose(&mut self, asked: &Resources) -> Option<usize> {
        let after = self.most_recently_used.map_or(0, |used| used + 1);
        for at in (after..self.nodes.len()).chain(0..self.nodes.len()) {
            if self.nodes[at].fits(asked, "") {
                self.most_recently_used = Some(at);
                return Some(at);
            }
        }
        None
    }
}

impl NaiveNode {
    fn fits(&self, asked: &Resources, hostname: &str) -> bool {
        self.is_ready
            && self.mem_available >= asked.mem_mib
            && self.vcpus >= asked.vcpus
            && self.disk_available >= asked.disk_mib
            && (hostname.is_empty() || hostname == self.hostname)
    }
}

/// A core with one controller and many nodes.
struct Cluster {
    core: Driven,
    payload: Bytes,
    starts: u64,
    readys: u64,
    nodes: usize,
}

/// Whether reading the payload is part of what is timed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Read {
    Before,
    Timed,
}

impl Cluster {
    fn new(nodes: usize, offer: impl Fn(usize) -> Resources) -> Self {
        let config = Config {
            cpu_ratio: 1.0,
            ..Config::new(Uuid::from_u128(1))
        };
        let mut cluster = Self {
            core: Driven::new(config, ClusterConfiguration::default()),
            payload: Bytes::from(vec![b'#'; START_LEN]),
            starts: 0,
            readys: 0,
            nodes,
        };
        for node in 0..nodes {
            let session = session(node);
            cluster.core.connect(session, Role::AGENT);
            let report = report(node, offer(node));
            cluster
                .core
                .report(session, Report::Ready(Box::new(report)));
        }
        cluster
    }

    /// The time of so many STARTs, each with everything the core wants done for it, so far apart by the core's clock.
    fn time_starts(&mut self, count: u64, pause: Duration) -> Duration {
        let mut total = Duration::ZERO;
        let mut left = count;
        while left > 0 {
            let batch = left.min(BATCH);
            left -= batch;
            let inputs: Vec<Input> = (0..batch).map(|_| self.start()).collect();
            let mut actions = Vec::with_capacity(batch as usize * 4);
            let begun = Instant::now();
            for input in inputs {
                self.core.now += pause;
                self.core.scheduler.handle(self.core.now, input);
                while let Some(action) = self.core.scheduler.poll_action() {
                    actions.push(action);
                }
            }
            total += begun.elapsed();
            for action in actions {
                self.delete_started(action);
            }
        }
        total
    }

    fn start(&mut self) -> Input {
        self.starts += 1;
        driven::start(self.starts, ASKED, None, self.payload.clone())
    }

    /// The node says that what it was given is gone again.
    fn delete_started(&mut self, action: Action) {
        if let Action::Send {
            to,
            message: Message::Start(start),
        } = action
        {
            let report = Report::InstanceDeleted(start.request.instance.clone());
            self.core.report(to, report);
        }
    }

    /// The time of so many READYs, from one node after the other.
    fn time_readys(&mut self, count: u64, read: Read) -> Duration {
        let mut total = Duration::ZERO;
        let mut left = count;
        while left > 0 {
            let batch = left.min(BATCH);
            left -= batch;
            let mut payloads = Vec::with_capacity(batch as usize);
            for _ in 0..batch {
                self.readys += 1;
                let node = (self.readys % self.nodes as u64) as usize;
                payloads.push((
                    session(node),
                    ready_payload(node, PLENTY - self.readys as i64),
                ));
            }
            if read == Read::Timed {
                let begun = Instant::now();
                for (session, payload) in payloads {
                    self.core.handle(ready_input(session, payload));
                }
                total += begun.elapsed();
            } else {
                let inputs: Vec<Input> = payloads
                    .into_iter()
                    .map(|(session, payload)| ready_input(session, payload))
                    .collect();
                let begun = Instant::now();
                for input in inputs {
                    self.core.handle(input);
                }
                total += begun.elapsed();
            }
        }
        total
    }
}

fn report(node: usize, offer: Resources) -> NodeReport {
    NodeReport {
        addresses: Box::default(),
        mem_total_mib: PLENTY,
        mem_available_mib: offer.mem_mib,
        disk_total_mb: PLENTY,
        disk_available_mb: offer.disk_mib,
        load: 1,
        cpus_online: offer.vcpus,
        hostname: format!("node-{node}").into(),
        extras: None,
    }
}

/// A READY as launchers send it.
fn ready_payload(node: usize, mem_available_mb: i64) -> Bytes {
    let session = session(node);
    let ready = Ready {
        node_uuid: uuid(session).to_string(),
        mem_total_mb: PLENTY,
        mem_available_mb,
        disk_total_mb: PLENTY,
        disk_available_mb: PLENTY,
        load: 1,
        cpus_online: 64,
        hostname: format!("node-{node}"),
        ..Ready::default()
    };
    ready.encode()
}

/// What the daemon makes of it before the core sees it.
fn ready_input(session: SessionId, payload: Bytes) -> Input {
    let ready = peek::ready(&payload).expect("the payload was written by this benchmark");
    let known = |figure: Option<i64>| figure.unwrap_or(-1);
    let figures = ready.figures;
    let report = NodeReport {
        addresses: Box::default(),
        mem_total_mib: known(figures.mem_total_mb),
        mem_available_mib: known(figures.mem_available_mb),
        disk_total_mb: known(figures.disk_total_mb),
        disk_available_mb: known(figures.disk_available_mb),
        load: known(figures.load),
        cpus_online: known(figures.cpus_online),
        hostname: figures.hostname.as_ref().into(),
        extras: None,
    };
    Input::Report {
        session,
        report: Report::Ready(Box::new(report)),
        parcel: parcel(session, payload),
    }
}

criterion_group!(
    benches,
    choice,
    choice_custom,
    choice_allowed,
    candidates,
    naive,
    update,
    start,
    why_not,
    ready
);
criterion_main!(benches);
