//! One frame in and one frame out, in both encodings: a START of 300 bytes and a STATS with a traced path of two nodes.
//!
//! Encoding includes copying the payload; decoding hands it out where it is. Figures of `decode` are per batch of 64.

use std::hint::black_box;

use bytes::{Bytes, BytesMut};
use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use proto_frames::{
    Connect, Decoder, Encoder, Encoding, Frame, Kind, Limits, Message, Role, Timestamp, Trace,
    TraceNode, Uuid,
};

/// Frames in one buffer: what a pipelining controller's read brings.
const FRAMES: usize = 64;

fn encode(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("encode");
    group.throughput(Throughput::Elements(1));
    for (name, frame) in frames() {
        for encoding in [Encoding::Native, Encoding::Gob] {
            let mut encoder = Encoder::new(encoding);
            let mut dst = BytesMut::with_capacity(FRAMES * 2048);
            group.bench_function(format!("{encoding:?}/{name}"), |bencher| {
                bencher.iter(|| {
                    if dst.len() > FRAMES * 1024 {
                        dst.clear();
                    }
                    encoder.encode_frame(black_box(&frame), &mut dst);
                });
            });
        }
    }
    group.finish();
}

fn decode(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("decode");
    group.throughput(Throughput::Elements(FRAMES as u64));
    for (name, frame) in frames() {
        for encoding in [Encoding::Native, Encoding::Gob] {
            let (mut decoder, batch) = established(encoding, &frame);
            group.bench_function(format!("{encoding:?}/{name}"), |bencher| {
                bencher.iter_batched_ref(
                    || BytesMut::from(&batch[..]),
                    |src| {
                        while let Ok(Some(message)) = decoder.decode(src) {
                            black_box(message);
                        }
                        assert!(src.is_empty());
                    },
                    BatchSize::SmallInput,
                );
            });
        }
    }
    group.finish();
}

fn frames() -> [(&'static str, Frame); 2] {
    let at = Timestamp::from_unix_ns(1_500_000_000_123_456_789);
    let node = TraceNode {
        uuid: Uuid::new_v4(),
        role: Role::AGENT,
        tx: at,
        rx: at,
    };
    let trace = Trace {
        label: Bytes::from_static(b"label"),
        start: at,
        path: Some(vec![node.clone(), node]),
        ..Trace::default()
    };
    let start = Frame::new(Kind::START, Uuid::new_v4(), vec![b'x'; 300]);
    let traced = Frame {
        kind: Kind::STATS,
        trace: Some(Box::new(trace)),
        ..start.clone()
    };
    [
        ("START of 300 bytes", start),
        ("traced STATS of 300 bytes", traced),
    ]
}

/// A decoder that has seen CONNECT and the types of frames, and the bytes of a batch of frames behind them.
fn established(encoding: Encoding, frame: &Frame) -> (Decoder, BytesMut) {
    let (mut encoder, mut decoder) = (Encoder::new(encoding), Decoder::server(Limits::default()));
    let mut src = BytesMut::new();
    encoder.encode(
        &Message::Connect(Connect::new(Role::CONTROLLER, Uuid::new_v4())),
        &mut src,
    );
    encoder.encode_frame(frame, &mut src);
    while let Ok(Some(message)) = decoder.decode(&mut src) {
        black_box(message);
    }
    let mut batch = BytesMut::new();
    (0..FRAMES).for_each(|_| encoder.encode_frame(frame, &mut batch));
    (decoder, batch)
}

criterion_group!(benches, encode, decode);
criterion_main!(benches);
