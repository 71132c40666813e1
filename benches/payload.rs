//! What it costs to read START, READY and STATS: the peek beside the full parser, on payloads as original peers send
//! them, and a StartFailure to write.

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

const READY: &[u8] = b"node_uuid: 4cb19522-1e18-439a-883a-f9b2a3a95f5e
mem_total_mb: 141312
mem_available_mb: 141312
disk_total_mb: 500000
disk_available_mb: 256000
load: 0
cpus_online: 4
networks:
- ip: 192.168.1.1
  mac: 02:00:15:03:6f:49
- ip: 10.168.1.1
  mac: 02:00:8c:ba:f9:45
hostname: host1
";

const STATS: &[u8] = b"node_uuid: 4cb19522-1e18-439a-883a-f9b2a3a95f5e
status: READY
mem_total_mb: 3896
mem_available_mb: 3896
disk_total_mb: 500000
disk_available_mb: 256000
load: 0
cpus_online: 4
hostname: test
networks:
- ip: 192.168.1.1
  mac: 02:00:15:03:6f:49
- ip: 10.168.1.1
  mac: 02:00:8c:ba:f9:45
instances:
- instance_uuid: fe2970fa-7b36-460b-8b79-9eb4745e62f2
  state: active
  ssh_ip: \"\"
  ssh_port: 0
  memory_usage_mb: 40
  disk_usage_mb: 2
  cpu_usage: 90
  volumes: []
- instance_uuid: cbda5bd8-33bd-4d39-9f52-ace8c9f0b99c
  state: active
  ssh_ip: 172.168.2.2
  ssh_port: 8768
  memory_usage_mb: 50
  disk_usage_mb: 10
  cpu_usage: 0
  volumes: []
- instance_uuid: 1f5b2fe6-4493-4561-904a-8f4e956218d9
  state: exited
  ssh_ip: \"\"
  ssh_port: 0
  memory_usage_mb: -1
  disk_usage_mb: 2
  cpu_usage: -1
  volumes:
  - 67d86208-b46c-4465-9018-e14187d4010
";

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
    group.bench_function("full", |b| b.iter(|| Start::decode(black_box(START))));
    let scheduling = with_scheduling();
    group.throughput(Throughput::Bytes(
        u64::try_from(first + SCHEDULING.len()).unwrap_or(0),
    ));
    group.bench_function("peek, with scheduling", |b| {
        b.iter(|| peek::start(black_box(&scheduling)))
    });
    group.bench_function("full, with scheduling", |b| {
        b.iter(|| Start::decode(black_box(&scheduling)))
    });
    group.finish();
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
    group.bench_function("full", |b| b.iter(|| Ready::decode(black_box(READY))));
    group.finish();
}

fn stats(c: &mut Criterion) {
    let mut group = c.benchmark_group("stats");
    group.throughput(Throughput::Bytes(u64::try_from(STATS.len()).unwrap_or(0)));
    group.bench_function("peek", |b| b.iter(|| peek::stats(black_box(STATS))));
    group.bench_function("full", |b| b.iter(|| Stats::decode(black_box(STATS))));
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
