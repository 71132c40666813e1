//! Writes the first corpus of each target: `cargo run --example seeds` in `fuzz/`. Out of the streams that were recorded
//! between original peers, the examples, and payloads made here. What fuzzing adds to the corpus stays.

#![no_main]

use std::path::{Path, PathBuf};

use bytes::BytesMut;
use ciao_scheduler::server::fuzz_support::record_bytes;
use ciao_scheduler_fuzz::payloads::{READ_BY_SERVER, TYPES};
use ciao_scheduler_fuzz::printers::PRINTED;
use proto_frames::{Connect, Decoder, Encoder, Encoding, Frame, Limits, Message, Role, Uuid};
use sched_core::{InstanceRecord, NodeRecord, Record, RecordKey};

/// How a stream is cut in a seed: not at all, for most.
const WHOLE: u8 = 255;

// A fuzz target that never gets an input: what it uses is built for one.
libfuzzer_sys::fuzz_target!(
    init: {
        let written = seeds();
        written.expect("the corpus can be written");
        std::process::exit(0)
    },
    |_data: &[u8]| {}
);

fn seeds() -> std::io::Result<()> {
    let frames = recorded()?;
    streams(&frames)?;
    for frame in &frames {
        payload(frame)?;
    }
    for (at, it) in TYPES.iter().enumerate() {
        let example = (it.example)();
        seed("payloads", it.name, &[&[at as u8][..], &example].concat())?;
        for (target, kinds) in [("meaning", READ_BY_SERVER), ("printers", PRINTED)] {
            if let Some(at) = kinds.iter().position(|kind| *kind == it.kind) {
                seed(target, it.name, &[&[at as u8][..], &example].concat())?;
            }
        }
    }
    files()?;
    records()?;
    expressions()
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn seed(target: &str, name: &str, bytes: &[u8]) -> std::io::Result<()> {
    let directory = root().join("fuzz/corpus").join(target);
    std::fs::create_dir_all(&directory)?;
    std::fs::write(directory.join(format!("seed-{name}")), bytes)
}

/// The frames of all recorded streams; the streams themselves are seeds of the gob decoder.
fn recorded() -> std::io::Result<Vec<Frame>> {
    let mut frames = Vec::new();
    let mut paths: Vec<PathBuf> = std::fs::read_dir(root().join("proto-frames/tests/golden"))?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|it| it == "bin"))
        .collect();
    paths.sort();
    for path in paths {
        let bytes = std::fs::read(&path)?;
        let name = path
            .file_stem()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let is_client = name.ends_with("s2c");
        let which = if is_client { 2 } else { 0 };
        seed("gob", &name, &[&[which, WHOLE][..], &bytes].concat())?;
        let mut decoder = if is_client {
            Decoder::client(Encoding::Gob, Limits::default())
        } else {
            Decoder::server(Limits::default())
        };
        let mut src = BytesMut::from(&bytes[..]);
        while let Ok(Some(message)) = decoder.decode(&mut src) {
            if let Message::Frame(frame) = message {
                frames.push(frame);
            }
        }
    }
    Ok(frames)
}

/// The recorded frames as native streams, a few to a seed.
fn streams(frames: &[Frame]) -> std::io::Result<()> {
    for (at, some) in frames.chunks(6).enumerate() {
        let mut bytes = BytesMut::new();
        let mut encoder = Encoder::new(Encoding::Native);
        encoder.encode(
            &Message::Connect(Connect::new(Role::AGENT, Uuid::max())),
            &mut bytes,
        );
        for frame in some {
            encoder.encode_frame(frame, &mut bytes);
        }
        seed(
            "native",
            &format!("recorded-{at}"),
            &[&[0, WHOLE][..], &bytes].concat(),
        )?;
    }
    Ok(())
}

/// A recorded payload for every target that reads payloads, one of a kind.
fn payload(frame: &Frame) -> std::io::Result<()> {
    let name = frame.kind.to_string().replace(' ', "-").to_lowercase();
    if let Some(at) = READ_BY_SERVER.iter().position(|kind| *kind == frame.kind) {
        seed(
            "meaning",
            &name,
            &[&[at as u8][..], &frame.payload].concat(),
        )?;
    }
    if let Some(at) = PRINTED.iter().position(|kind| *kind == frame.kind) {
        seed(
            "printers",
            &name,
            &[&[at as u8][..], &frame.payload].concat(),
        )?;
    }
    if frame.payload.is_empty() {
        return Ok(());
    }
    seed("peek", &name, &frame.payload)?;
    for (at, it) in TYPES.iter().enumerate() {
        if it.kind == frame.kind {
            seed(
                "payloads",
                &format!("recorded-{}", it.name),
                &[&[at as u8][..], &frame.payload].concat(),
            )?;
        }
    }
    Ok(())
}

fn files() -> std::io::Result<()> {
    let read = |path: &str| std::fs::read(root().join(path));
    let cluster = read("examples/cluster/configuration.yaml")?;
    seed("configuration", "cluster", &[&[0][..], &cluster].concat())?;
    let nodes = read("examples/cluster/nodes.yaml")?;
    seed("configuration", "nodes", &[&[2][..], &nodes].concat())?;
    for (name, text) in [
        (
            "policy",
            "policy: {preset: spread, filters: [pin, tenants, labels, near, group, {name: starts-under-way, max: 8}], weighers: [{name: free-memory, multiplier: 1.5}, prefer], candidates: all, subset_size: 3, seed: 42, preemption: true}\n",
        ),
        (
            "aggregates",
            "aggregates:\n- {name: a, zone: eu-1, nodes: [host-1], select: [\"rack = r1\"], labels: {ssd: \"true\"}, tenants: [blue]}\n",
        ),
        (
            "capacity",
            "capacity:\n- {select: [\"zone = eu-1\"], cpu_ratio: 4.0, mem_ratio: 1.2, disk_ratio: 1.0, reserved_mem_mb: 4096}\n",
        ),
        ("aliases", "policy: &a {seed: 1}\naggregates: [*a, *a]\n"),
    ] {
        seed("configuration", name, &[&[1][..], text.as_bytes()].concat())?;
    }
    for name in ["hello", "long-running", "spread-web", "three-documents"] {
        let text = read(&format!("examples/{name}.yaml"))?;
        seed("peek", name, &text)?;
        seed("meaning", name, &[&[0][..], &text].concat())?;
    }
    Ok(())
}

fn records() -> std::io::Result<()> {
    let plain = InstanceRecord::default();
    let kept = InstanceRecord {
        payload: Some(b"start:\n  instance_uuid: a\n"[..].into()),
        node: Some(Uuid::max()),
        target: Some(Uuid::nil()),
        deadline_ms: Some(u64::MAX),
        ..InstanceRecord::default()
    };
    let node = NodeRecord {
        cordoned: true,
        ..NodeRecord::default()
    };
    for (name, key, record) in [
        (
            "plain",
            RecordKey::Instance("a".into()),
            Record::Instance(Box::new(plain)),
        ),
        (
            "kept",
            RecordKey::Instance("web-1".into()),
            Record::Instance(Box::new(kept)),
        ),
        ("node", RecordKey::Node(Uuid::max()), Record::Node(node)),
    ] {
        let (key, value) = record_bytes(&key, &record);
        seed(
            "store",
            name,
            &[&[key.len() as u8][..], &key, &value].concat(),
        )?;
    }
    Ok(())
}

fn expressions() -> std::io::Result<()> {
    for (at, text) in [
        "zone = eu-1\n=\neu-1\nEU-1",
        "zone != eu-1\n!=\nx",
        "cores >= 32\n>=\n32\n31.5\n+33",
        "load<2.5\n<\n2.5\n2.4",
        "cpu.model in (zen4, zen5)\nin\nzen4\nzen5",
        "rack not in (r1, \"rack 2\")\nnot in\nr1\nrack 2",
        "ssd exists\n<=\n-0\n0",
        "ssd not exists\n>\n9007199254740993\n9007199254740992",
        "a = \"b \\\"c\\\" \\\\ 'd'\"\n=\n2\n2.0\n02",
    ]
    .iter()
    .enumerate()
    {
        seed("expressions", &format!("{at}"), text.as_bytes())?;
    }
    Ok(())
}
