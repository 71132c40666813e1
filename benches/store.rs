//! What the store of the state directory costs on this disk: commits and records a second with so many changes waiting
//! at once, how long a change waits, and how long a store takes to open. Set `TMPDIR` to measure another disk.
//!
//! Where etcd is installed, the same with one member and with three, whose data is on the same disk: `store etcd` does
//! this part alone, `store ends` that of ends.

use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use bytes::Bytes;
use ciao_scheduler::cluster::{Cluster, ClusterConfig, Standing};
use ciao_scheduler::server::{News, Opened, Store, TakeOver};
use etcd::Etcd;
use hdrhistogram::Histogram;
use proto_frames::Uuid;
use proto_frames::payload::EndFilter;
use sched_core::{
    Change, Event, FactsRecord, InstanceRecord, Record, RecordKey, RunRecord, Ticket,
};

#[allow(dead_code, reason = "the tests of the client use the rest")]
#[allow(clippy::unwrap_used, reason = "a benchmark ends where it fails")]
#[path = "../crates/etcd/tests/etcd/world.rs"]
mod etcd;

/// How long each figure is measured.
const TIME: Duration = Duration::from_secs(5);

/// Different instances that changes are about: a long queue.
const INSTANCES: u64 = 100_000;

/// Ends on record: those of a large cluster's month.
const ENDS: u64 = 1_000_000;

/// Changes that wait at once.
const WAITING: [usize; 3] = [1, 64, 1024];

/// Longest wait for the store to be closed.
const CLOSING: Duration = Duration::from_secs(60);

fn main() {
    // `cargo test --benches` wants to see that it runs.
    let is_test = std::env::args().any(|arg| arg == "--test");
    let only = |part: &str| std::env::args().any(|arg| arg == part);
    let time = if is_test { Duration::ZERO } else { TIME };
    if !only("etcd") {
        let directory = tempfile::tempdir().expect("there is a temporary directory");
        ends(directory.path(), if is_test { 100 } else { ENDS });
    }
    if only("ends") {
        return;
    }
    if !only("etcd") {
        for instances in [10_000, INSTANCES] {
            let instances = if is_test { 100 } else { instances };
            let directory = tempfile::tempdir().expect("there is a temporary directory");
            reopen(directory.path(), instances);
        }
    }
    closed_loops("state directory", time, || {
        let directory = tempfile::tempdir().expect("there is a temporary directory");
        (open(directory.path()), directory)
    });
    if !etcd::is_missing() {
        for members in [1, 3] {
            let what = format!("etcd, {members} members");
            closed_loops(&what, time, || lead(members, "closed"));
            shared_reopen(members, if is_test { 100 } else { INSTANCES });
        }
    }
}

/// Each number of changes that wait, in a store of its own, which what is returned beside it keeps up.
fn closed_loops<T>(what: &str, time: Duration, make: impl Fn() -> (Opened, T)) {
    println!("{what}:\nwaiting   commits/s   records/s   p50 ms   p99 ms");
    for waiting in WAITING {
        let (opened, _there) = make();
        closed_loop(opened, waiting, time);
    }
}

/// What keeps a store in etcd up: the members, the part in the election, and the runtime of both.
type There = (Etcd, Led);

/// One that leads, as it found the records of a name.
struct Led {
    cluster: Arc<Cluster>,
    found: Option<TakeOver>,
    reading: Duration,
    _runtime: tokio::runtime::Runtime,
}

/// A store in an etcd of so many members.
fn lead(members: usize, name: &str) -> (Opened, There) {
    let etcd = Etcd::start(members, &[]);
    let mut led = leader(&etcd, name);
    let found = led.found.take().expect("it was found just now");
    (Opened::shared(found.store), (etcd, led))
}

fn leader(etcd: &Etcd, name: &str) -> Led {
    let runtime = tokio::runtime::Runtime::new().expect("there is a thread");
    let config = ClusterConfig {
        name: name.to_owned(),
        etcd: etcd::config(&etcd.endpoints),
        ttl: Duration::from_secs(3),
        is_compacting: false,
        address: "bench".to_owned(),
    };
    let cluster = Arc::new(Cluster::join(config).expect("the flags are right"));
    let Standing::Leader(term) = runtime.block_on(cluster.turn()) else {
        panic!("it does not lead");
    };
    let begun = Instant::now();
    let found = cluster.take_over(term).expect("etcd answers");
    Led {
        reading: begun.elapsed(),
        found: Some(found),
        cluster,
        _runtime: runtime,
    }
}

/// How long the next leader takes to read so many records.
fn shared_reopen(members: usize, instances: u64) {
    let etcd = Etcd::start(members, &[]);
    let mut led = leader(&etcd, "reopened");
    let found = led.found.take().expect("it was found just now");
    let store = Opened::shared(found.store)
        .start(|_| {})
        .expect("there is a thread");
    let begun = Instant::now();
    (1..=instances).for_each(|ticket| push(&store, ticket));
    assert!(store.close(CLOSING), "etcd is that slow");
    let written = begun.elapsed();
    led.cluster.resign();
    let next = leader(&etcd, "reopened");
    let records = next.found.map_or(0, |found| found.records.len());
    println!(
        "{records} records written in {written:.1?}, read by the next leader in {:.2?}",
        next.reading
    );
}

/// Ends on record, and what a page of them with a filter costs: one that few of them meet, and one that most do.
fn ends(directory: &Path, count: u64) {
    let store = open(directory).start(|_| {}).expect("there is a thread");
    let begun = Instant::now();
    for first in (1..=count).step_by(1000) {
        let numbers = first..(first + 1000).min(count + 1);
        // The core remembers some 100 000 and has forgotten those before.
        let forgotten = numbers.clone().filter_map(|it| it.checked_sub(100_000));
        let forgotten = forgotten.map(|it| (RecordKey::Run(it), None));
        let entries = numbers.map(ended).chain(forgotten);
        store.push(Change {
            ticket: Ticket(first),
            entries: entries.collect(),
        });
        store.flush(CLOSING);
    }
    let written = begun.elapsed();
    let (records, bytes) = store.ends_kept();
    let file = std::fs::metadata(directory.join("store.redb")).map_or(0, |it| it.len());
    println!(
        "{records} ends in {:.1} s; {} bytes an end, {} in the file with the core's own table",
        written.as_secs_f64(),
        bytes / records.max(1),
        file / records.max(1)
    );
    for (what, filter) in filters() {
        pages(&store, what, &filter);
    }
    store.close(CLOSING);
    drop(store);
    let begun = Instant::now();
    let store = open(directory).start(|_| {}).expect("there is a thread");
    println!("opened in {:.0} ms", begun.elapsed().as_secs_f64() * 1000.0);
    store.close(CLOSING);
}

/// Filters, from one that all ends meet to one that a single end does.
fn filters() -> [(&'static str, EndFilter); 4] {
    let of_node = Uuid::from_u128(77).to_string();
    [
        ("newest", EndFilter::default()),
        (
            "failed",
            EndFilter {
                state: "failed".to_owned(),
                ..EndFilter::default()
            },
        ),
        (
            "one node of 1000",
            EndFilter {
                node: of_node,
                ..EndFilter::default()
            },
        ),
        (
            "a name that there is once",
            EndFilter {
                name: "job-1".to_owned(),
                ..EndFilter::default()
            },
        ),
    ]
}

/// Reads the pages of a filter, and prints what they cost.
fn pages(store: &Store, what: &str, filter: &EndFilter) {
    let (mut before, mut pages, mut found) = (None, 0_u32, 0);
    let mut longest = Duration::ZERO;
    let begun = Instant::now();
    loop {
        let asked = Instant::now();
        let (rows, next) = store.ends(filter, before, 500).expect("they can be read");
        longest = longest.max(asked.elapsed());
        (pages, found, before) = (pages + 1, found + rows.len(), next);
        // All pages of those that many meet are much the same.
        if before.is_none() || pages == 100 {
            break;
        }
    }
    println!(
        "{what}: {found} found on {pages} pages in {:.0} ms; the slowest page {:.1} ms",
        begun.elapsed().as_secs_f64() * 1000.0,
        longest.as_secs_f64() * 1000.0
    );
}

/// A usual end; those long before are forgotten by the core, as it does.
fn ended(number: u64) -> (RecordKey, Option<Record>) {
    let event = |what: &str, before| Event {
        at_ms: 1_795_000_000_000 + number - before,
        what: what.into(),
        node: Some(Uuid::from_u128(u128::from(number % 1000))),
        ..Event::default()
    };
    let run = RunRecord {
        instance: Uuid::from_u128(u128::from(number) << 64).to_string().into(),
        at_ms: 1_795_000_000_000 + number,
        node: Some(Uuid::from_u128(u128::from(number % 1000))),
        hostname: format!("compute-{:04}", number % 1000).into(),
        name: format!("job-{number}").into(),
        tenant: Some(Uuid::from_u128(u128::from(number % 7)).to_string().into()),
        program: "/usr/bin/simulate --all".into(),
        exit_code: Some(i64::from(number.is_multiple_of(10))),
        end: Some(number),
        run: 1,
        ended_ms: Some(1_795_000_000_000 + number - 5),
        facts: Some(FactsRecord {
            ran_ms: Some(60_000),
            peak_kib: Some(2_000_000),
            cpu_ms: Some(59_000),
            output_bytes: Some(4096),
            ..FactsRecord::default()
        }),
        history: vec![
            event("waiting", 70_000),
            event("running", 60_000),
            event("gone", 0),
        ],
        ..RunRecord::default()
    };
    (RecordKey::Run(number), Some(Record::Run(Box::new(run))))
}

/// Keeps so many changes of one record each waiting.
fn closed_loop(opened: Opened, waiting: usize, time: Duration) {
    let (commit, committed) = channel();
    let store = opened
        .start(move |news| {
            if let News::Committed(ticket) = news {
                let _ = commit.send(ticket);
            }
        })
        .expect("there is a thread");
    let begun = Instant::now();
    let mut pushed = Vec::new();
    let (mut commits, mut done) = (0u32, 0);
    let mut waits = Histogram::<u64>::new_with_max(60_000_000, 3).expect("bounds in order");
    while begun.elapsed() < time || commits == 0 {
        while pushed.len() < done + waiting {
            pushed.push(Instant::now());
            push(&store, pushed.len() as u64);
        }
        let Ticket(newest) = committed.recv().expect("the store is there");
        let newest = usize::try_from(newest).expect("few enough");
        for since in &pushed[done..newest] {
            waits.saturating_record(u64::try_from(since.elapsed().as_micros()).unwrap_or(u64::MAX));
        }
        (commits, done) = (commits + 1, newest);
    }
    let seconds = begun.elapsed().as_secs_f64();
    let ms = |quantile| waits.value_at_quantile(quantile) as f64 / 1000.0;
    println!(
        "{waiting:7}   {:9.0}   {:9.0}   {:6.2}   {:6.2}",
        f64::from(commits) / seconds,
        done as f64 / seconds,
        ms(0.5),
        ms(0.99),
    );
    store.close(CLOSING);
}

/// How long it takes to open a store of so many records.
fn reopen(directory: &Path, instances: u64) {
    let store = open(directory).start(|_| {}).expect("there is a thread");
    (1..=instances).for_each(|ticket| push(&store, ticket));
    assert!(store.close(CLOSING), "the disk is that slow");
    let begun = Instant::now();
    let found = open(directory).records.len();
    println!("{found} records opened in {:.0?}", begun.elapsed());
}

fn open(directory: &Path) -> Opened {
    Opened::open(directory).expect("no other process uses it")
}

/// A record as an instance has it that waits: a START of 300 bytes, three events.
fn push(store: &Store, ticket: u64) {
    let number = ticket % INSTANCES;
    let event = |what: &str| Event {
        at_ms: 1_795_000_000_000 + ticket,
        what: what.into(),
        node: Some(Uuid::from_u128(7)),
        detail: "".into(),
        ..Event::default()
    };
    let record = InstanceRecord {
        payload: Some(Bytes::from_static(&[b'-'; 300])),
        sender: Uuid::from_u128(1),
        arrived_ms: 1_795_000_000_000 + ticket,
        order: ticket,
        history: vec![event("arrived"), event("placed"), event("running")],
        ..InstanceRecord::default()
    };
    let key = RecordKey::Instance(Uuid::from_u128(u128::from(number)).to_string().into());
    store.push(Change {
        ticket: Ticket(ticket),
        entries: vec![(key, Some(Record::Instance(Box::new(record))))],
    });
}
