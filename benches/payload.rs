//! What it costs to read START, READY and STATS, on payloads as original peers send them: the scheduler's peek, all values
//! of a document of the plain style, and the same with the full parser. And a StartFailure to write.

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use proto_frames::payload::{Payload, Ready, Start, StartFailure, StartFailureReason, Stats, peek};

/// As an original controller sends it, cloud-init and metadata behind it.
const START: &[u8] = include_bytes!("../proto-frames/tests/golden/start-three-documents.yaml");

/// How a START is to be placed, put in front of its `requirements`.
const SCHEDULING: &str = "  scheduling:
    version: 1
    priority: 50
    queue: 30s
    require: [\"zone = eu-1\", \"cpu.model in (zen4, zen5)\"]
    prefer: [\"rack = r7\"]
    resources: {gpu: 1}
    group: {id: web, policy: anti-affinity}
";

/// As original launchers send them.
const READY: &[u8] = include_bytes!("payload/ready.yaml");
const STATS: &[u8] = include_bytes!("payload/stats.yaml");

fn start(c: &mut Criterion) {
    let first = START
        .windows(5)
        .position(|at| at == b"\n...\n")
        .map_or(START.len(), |at| at + 1);
    let mut long = START.to_vec();
    long.extend_from_slice("write: [{[{\n".repeat(20 * 1024 / 12).as_bytes());
    let mut group = c.benchmark_group("start");
    group.throughput(Throughput::Bytes(u64::try_from(first).unwrap_or(0)));
    group.bench_function("peek", |b| b.iter(|| peek::start(black_box(START))));
    group.bench_function("peek, 20 KiB behind it", |b| {
        b.iter(|| peek::start(black_box(&long)))
    });
    group.bench_function("plain", |b| b.iter(|| Start::decode(black_box(START))));
    let full = commented(START);
    group.bench_function("full", |b| b.iter(|| Start::decode(black_box(&full))));
    let scheduling = with_scheduling();
    group.throughput(Throughput::Bytes(
        u64::try_from(first + SCHEDULING.len()).unwrap_or(0),
    ));
    group.bench_function("peek, with scheduling", |b| {
        b.iter(|| peek::start(black_box(&scheduling)))
    });
    let commented = commented(&scheduling);
    group.bench_function("full, with scheduling", |b| {
        b.iter(|| Start::decode(black_box(&commented)))
    });
    group.finish();
}

/// The payload behind a comment, which leaves it to the full parser.
fn commented(payload: &[u8]) -> Vec<u8> {
    [b"#\n", payload].concat()
}

fn with_scheduling() -> Vec<u8> {
    let text = String::from_utf8_lossy(START);
    let key = "  requirements:\n";
    text.replacen(key, &format!("{SCHEDULING}{key}"), 1)
        .into_bytes()
}

fn ready(c: &mut Criterion) {
    let mut group = c.benchmark_group("ready");
    group.throughput(Throughput::Bytes(u64::try_from(READY.len()).unwrap_or(0)));
    group.bench_function("peek", |b| b.iter(|| peek::ready(black_box(READY))));
    group.bench_function("plain", |b| b.iter(|| Ready::decode(black_box(READY))));
    let commented = commented(READY);
    group.bench_function("full", |b| b.iter(|| Ready::decode(black_box(&commented))));
    group.finish();
}

fn stats(c: &mut Criterion) {
    let mut group = c.benchmark_group("stats");
    group.throughput(Throughput::Bytes(u64::try_from(STATS.len()).unwrap_or(0)));
    group.bench_function("peek", |b| b.iter(|| peek::stats(black_box(STATS))));
    group.bench_function("plain", |b| b.iter(|| Stats::decode(black_box(STATS))));
    let commented = commented(STATS);
    group.bench_function("full", |b| b.iter(|| Stats::decode(black_box(&commented))));
    group.finish();
}

fn write(c: &mut Criterion) {
    let failure = StartFailure {
        instance_uuid: "3390740c-dce9-48d6-b83a-a717417072ce".to_owned(),
        reason: StartFailureReason::FullCloud,
        ..StartFailure::default()
    };
    c.bench_function("write a StartFailure", |b| {
        b.iter(|| black_box(&failure).encode())
    });
}

criterion_group!(benches, start, ready, stats, write);
criterion_main!(benches);
