//! Hostile gob streams, made by hand: lying lengths, types that contain themselves, fields of the wrong type.

use bytes::{Bytes, BytesMut};
use proptest::prelude::{any, prop, proptest};
use proto_frames::limits::{MAX_GOB_DESCRIPTOR_LEN, MAX_GOB_TYPES, MAX_TRACE_NODES};
use proto_frames::{DecodeError, Decoder, Encoder, Encoding, Frame, Kind, Message, Trace, Uuid};

#[path = "hostile/gob.rs"]
mod gob;
#[path = "hostile/support.rs"]
mod support;

use gob::{
    BOOL, BYTES, INTERFACE, STRING, UINT, array, bytes, cat, map, message, opaque, slice, strukt,
    uint,
};
use support::{LIMITS, connected, feed, first, malformed, too_long};

/// The ids of the hostile streams' types; what they are differs by test.
const FRAME: i64 = 100;
const TRACE: i64 = 101;
const NODES: i64 = 102;
const NODE: i64 = 103;
const TIME: i64 = 104;
const ORIGIN: i64 = 105;
const EXTRA: i64 = 106;

/// The descriptors of the types that a frame is made of.
fn frame_types(extra: &[(&str, i64)]) -> Vec<u8> {
    let mut fields = vec![
        ("Major", UINT),
        ("Origin", ORIGIN),
        ("PayloadLength", UINT),
        ("Trace", TRACE),
        ("Payload", BYTES),
    ];
    fields.extend(extra);
    let trace = [
        ("Label", BYTES),
        ("StartTimestamp", TIME),
        ("PathLength", UINT),
        ("Path", NODES),
    ];
    let node = [("UUID", BYTES), ("Role", UINT), ("TxTimestamp", TIME)];
    cat(&[
        strukt(FRAME, &fields),
        array(ORIGIN, UINT, 16),
        strukt(TRACE, &trace),
        slice(NODES, NODE),
        strukt(NODE, &node),
        opaque(TIME),
    ])
}

/// What a server makes of a gob frame whose struct has, beside the known ones, `extra` fields.
fn frame(
    extra: &[(&str, i64)],
    types: &[Vec<u8>],
    value: &[Vec<u8>],
) -> Result<Option<Message>, DecodeError> {
    let stream = cat(&[frame_types(extra), cat(types), message(FRAME, &cat(value))]);
    first(connected(Encoding::Gob), &stream)
}

#[test]
fn a_gob_connect_needs_a_source_of_16_bytes() {
    let types = |name| strukt(65, &[("Role", UINT), (name, BYTES)]);
    let connect = |source: &[u8]| {
        message(
            65,
            &cat(&[uint(1), uint(2), uint(1), bytes(source), uint(0)]),
        )
    };
    let answer = |name, source: &[u8]| {
        first(
            Decoder::server(LIMITS),
            &cat(&[types(name), connect(source)]),
        )
    };
    assert!(matches!(
        answer("Source", &[7; 16]),
        Ok(Some(Message::Connect(_)))
    ));
    for len in [0, 1, 15, 17] {
        let error = malformed("source UUID: it does not have 16 bytes");
        assert_eq!(answer("Source", &vec![7; len]), error, "{len} bytes");
    }
    assert_eq!(
        answer("Sauce", &[7; 16]),
        malformed("CONNECT: it has no source UUID")
    );
}

#[test]
fn a_type_that_contains_itself_is_skipped_as_deep_as_anyone_needs_and_no_deeper() {
    let types = [strukt(EXTRA, &[("Next", EXTRA)])];
    let nested = |depth| [uint(6), vec![1; depth], vec![0; depth], uint(0), uint(0)];
    assert!(matches!(
        frame(&[("Extra", EXTRA)], &types, &nested(15)),
        Ok(Some(Message::Frame(_)))
    ));
    for depth in [16, 10_000] {
        let error = malformed("gob value: nested too deeply");
        assert_eq!(
            frame(&[("Extra", EXTRA)], &types, &nested(depth)),
            error,
            "depth {depth}"
        );
    }
    for looping in [
        slice(EXTRA, EXTRA),
        array(EXTRA, EXTRA, 1),
        map(EXTRA, EXTRA, EXTRA),
    ] {
        let ones = [uint(6), vec![1; 10_000]];
        assert_eq!(
            frame(&[("Extra", EXTRA)], &[looping], &ones),
            malformed("gob value: nested too deeply")
        );
    }
}

#[test]
fn known_fields_whose_types_loop_or_do_not_fit_are_refused_before_a_value_is_read() {
    let misfit = malformed("gob struct type: a field has another type than SSNTP gives it");
    let path_of = |path| cat(&[frame_types(&[]), path, message(FRAME, &uint(0))]);
    for path in [slice(NODES, NODES), slice(NODES, 999), strukt(NODES, &[])] {
        assert_eq!(first(connected(Encoding::Gob), &path_of(path)), misfit);
    }
    let types = [
        ("Major", BYTES),
        ("Payload", STRING),
        ("Payload", UINT),
        ("Origin", BYTES),
        ("Trace", UINT),
        ("Trace", 999),
    ];
    for field in types {
        let stream = cat(&[strukt(FRAME, &[field]), message(FRAME, &uint(0))]);
        assert_eq!(
            first(connected(Encoding::Gob), &stream),
            misfit,
            "{field:?}"
        );
    }
    let stream = cat(&[
        strukt(FRAME, &[("Origin", ORIGIN)]),
        array(ORIGIN, UINT, 17),
        message(FRAME, &uint(0)),
    ]);
    assert_eq!(first(connected(Encoding::Gob), &stream), misfit);
}

#[test]
fn values_of_types_that_were_not_described_as_structs_are_refused() {
    let error = malformed("gob message: its type was not described as a struct");
    let values = [
        message(999, &uint(0)),
        message(UINT, &uint(0)),
        cat(&[slice(200, UINT), message(200, &uint(0))]),
    ];
    for value in values {
        assert_eq!(first(connected(Encoding::Gob), &value), error);
    }
    let value = [uint(6), uint(0), uint(0)];
    assert_eq!(
        frame(&[("Extra", 999)], &[], &value),
        malformed("gob value: its type was not described")
    );
    let value = [
        uint(6),
        bytes(b"int"),
        uint(4),
        uint(2),
        uint(0),
        uint(7),
        uint(0),
    ];
    let error = malformed("gob value: an interface value, which cannot be skipped");
    assert_eq!(frame(&[("Extra", INTERFACE)], &[], &value), error);
}

#[test]
fn lying_counts_and_lengths_are_refused() {
    let ends_early = malformed("gob message: a value ends early");
    let huge = 1 << 60;
    // The payload, a known slice, and unknown ones.
    assert_eq!(frame(&[], &[], &[uint(5), uint(huge), uint(0)]), ends_early);
    assert_eq!(
        frame(&[], &[], &[uint(4), uint(4), uint(huge), uint(0)]),
        ends_early
    );
    for extra in [slice(EXTRA, BOOL), map(EXTRA, UINT, UINT), opaque(EXTRA)] {
        assert_eq!(
            frame(
                &[("Extra", EXTRA)],
                &[extra],
                &[uint(6), uint(huge), uint(0)]
            ),
            ends_early
        );
    }
    let array = array(EXTRA, UINT, 2);
    let value = [uint(6), uint(3), vec![1; 3], uint(0)];
    assert_eq!(
        frame(&[("Extra", EXTRA)], &[array], &value),
        malformed("gob array: its length is not its type's")
    );

    let value = [uint(2), uint(15), vec![1; 15], uint(0)];
    assert_eq!(
        frame(&[], &[], &value),
        malformed("origin UUID: it does not have 16 bytes")
    );
    let value = [uint(3), uint(4), uint(2), bytes(b"abc"), uint(0)];
    assert_eq!(
        frame(&[], &[], &value),
        malformed("frame: PayloadLength is not the payload's length")
    );
    assert_eq!(
        frame(&[], &[], &[uint(3), uint(huge), uint(0)]),
        malformed("gob value: it does not fit in 32 bits")
    );
    assert_eq!(
        frame(&[], &[], &[uint(1), uint(256), uint(0)]),
        malformed("gob value: it does not fit in a byte")
    );

    let unknown = malformed("gob struct: a field number its type does not have");
    assert_eq!(frame(&[], &[], &[uint(6), uint(0)]), unknown);
    assert_eq!(frame(&[], &[], &[uint(u64::MAX), uint(0)]), unknown);
    assert_eq!(
        frame(&[], &[], &[uint(1), uint(1), uint(u64::MAX), uint(0)]),
        unknown
    );
    assert_eq!(
        frame(&[], &[], &[uint(0), uint(0)]),
        malformed("gob message: bytes are left over")
    );
    assert_eq!(
        first(connected(Encoding::Gob), &[0]),
        malformed("gob message: it has no type id")
    );
    let ten_bytes_wide = malformed("gob integer: it has more than 8 bytes");
    assert_eq!(first(connected(Encoding::Gob), &[0xf7]), ten_bytes_wide);
}

#[test]
fn a_path_length_that_is_not_the_path_s_is_refused() {
    let node = cat(&[uint(1), bytes(&[7; 16]), uint(0)]);
    let trace = |traced: u64, stated: u64, nodes: usize| {
        let path = if nodes > 0 {
            cat(&[uint(1), uint(nodes as u64), node.repeat(nodes)])
        } else {
            vec![]
        };
        let trace = cat(&[uint(3), uint(stated), path, uint(0)]);
        frame(&[], &[], &[uint(1), uint(traced), uint(3), trace, uint(0)])
    };
    assert!(matches!(trace(0x80, 2, 2), Ok(Some(Message::Frame(_)))));
    assert!(matches!(trace(0x80, 0, 0), Ok(Some(Message::Frame(_)))));
    let error = malformed("trace: PathLength is not the path's length");
    for (stated, nodes) in [(1, 2), (2, 1), (255, 1), (1, 0), (0, 1)] {
        assert_eq!(
            trace(0x80, stated, nodes),
            error,
            "{stated} stated, {nodes} there"
        );
    }
    assert_eq!(
        trace(0x80, 0, 256),
        too_long("trace path, in nodes,", 256, MAX_TRACE_NODES)
    );
    assert_eq!(
        trace(0, 1, 1),
        malformed("trace: a path in a frame that says it has none")
    );
    let value = [uint(1), uint(0x80), uint(0)];
    assert_eq!(
        frame(&[], &[], &value),
        malformed("frame: it says it has a path trace and has no trace")
    );
}

#[test]
fn trace_nodes_and_times_of_another_length_are_refused() {
    let node = |node: &[Vec<u8>]| {
        let trace = cat(&[
            uint(3),
            uint(1),
            uint(1),
            uint(1),
            cat(node),
            uint(0),
            uint(0),
        ]);
        frame(&[], &[], &[uint(1), uint(0x80), uint(3), trace, uint(0)])
    };
    let short = malformed("trace node UUID: it does not have 16 bytes");
    for len in [0, 15, 17] {
        assert_eq!(node(&[uint(1), bytes(&vec![7; len])]), short);
    }
    assert_eq!(node(&[uint(2), uint(4)]), short);

    let time = |time: &[u8]| node(&[uint(1), bytes(&[7; 16]), uint(2), bytes(time)]);
    let with = |version: u8, len: usize| [vec![version], vec![0; len - 1]].concat();
    assert!(time(&with(1, 15)).is_ok() && time(&with(2, 16)).is_ok());
    let mut late = with(1, 15);
    late[9..13].copy_from_slice(&1_000_000_000_u32.to_be_bytes());
    for bad in [
        vec![],
        with(1, 14),
        with(1, 16),
        with(2, 15),
        with(2, 17),
        with(3, 15),
        with(0, 15),
        late,
    ] {
        assert_eq!(time(&bad), malformed("time in a trace"), "{bad:?}");
    }
}

#[test]
fn descriptors_are_bounded_in_number_and_size() {
    let many = strukt(FRAME, &[("Major", UINT)]);
    let value = message(FRAME, &uint(0));
    let decoder = || {
        first(
            connected(Encoding::Gob),
            &cat(&[many.repeat(MAX_GOB_TYPES - 1), value.clone()]),
        )
    };
    assert!(
        matches!(decoder(), Ok(Some(Message::Frame(_)))),
        "CONNECT took one"
    );
    let error = too_long("gob type descriptors: their number", 65, MAX_GOB_TYPES);
    assert_eq!(
        first(connected(Encoding::Gob), &many.repeat(MAX_GOB_TYPES)),
        error
    );

    let start = message(-FRAME, &vec![0; MAX_GOB_DESCRIPTOR_LEN]);
    let len = MAX_GOB_DESCRIPTOR_LEN as u64 + 2;
    let error = too_long(
        "gob type descriptor, in bytes,",
        len,
        MAX_GOB_DESCRIPTOR_LEN,
    );
    assert_eq!(
        first(connected(Encoding::Gob), &start[..5]),
        error,
        "from the first bytes"
    );

    let fields = strukt(FRAME, &vec![("F", UINT); 65]);
    assert_eq!(
        first(connected(Encoding::Gob), &fields),
        too_long("gob struct type: its number of fields", 65, 64)
    );
    let own = strukt(UINT, &[("Major", UINT)]);
    let error = malformed("gob type descriptor: it redefines one of Go's own types");
    assert_eq!(first(connected(Encoding::Gob), &own), error);
}

#[test]
fn descriptors_may_come_again_and_under_other_ids() {
    let mut src = BytesMut::new();
    for label in ["one", "two"] {
        // A fresh encoder describes its types again.
        let trace = Trace {
            label: Bytes::from_static(label.as_bytes()),
            ..Trace::default()
        };
        let frame = Frame {
            trace: Some(Box::new(trace)),
            ..Frame::new(Kind::STATS, Uuid::max(), label)
        };
        Encoder::new(Encoding::Gob).encode_frame(&frame, &mut src);
    }
    let renumbered = strukt(300, &[("Payload", BYTES), ("PayloadLength", UINT)]);
    src.extend_from_slice(&renumbered);
    src.extend_from_slice(&message(
        300,
        &cat(&[uint(1), bytes(b"three"), uint(1), uint(5), uint(0)]),
    ));

    let mut decoder = connected(Encoding::Gob);
    for expected in ["one", "two", "three"] {
        let Ok(Some(Message::Frame(frame))) = decoder.decode(&mut src) else {
            panic!("no {expected}")
        };
        assert_eq!(frame.payload, expected);
    }
    assert!(src.is_empty());
}

#[test]
fn descriptors_that_contradict_themselves_are_refused() {
    let bad = [
        message(-FRAME, &uint(0)),                           // of no kind
        message(-FRAME, &cat(&[uint(8), uint(0), uint(0)])), // of an unknown kind
        message(-FRAME, &cat(&[uint(1), uint(0), uint(1), uint(0), uint(0)])), // of two kinds
        message(-FRAME, &cat(&[uint(2), uint(2), uint(1), uint(0), uint(0)])), // of a negative element type
        message(-FRAME, &cat(&[uint(1), uint(3), uint(1), uint(0), uint(0)])), // of negative length
        message(
            -FRAME,
            &cat(&[uint(3), uint(2), uint(60), uint(0), uint(0)]),
        ), // with fewer fields than it says
        message(-FRAME, &cat(&[uint(3), uint(0), uint(0), uint(0)])), // with something behind it
        message(i64::MIN, &cat(&[uint(3), uint(0), uint(0)])),
    ];
    for bad in bad {
        assert!(
            matches!(
                first(connected(Encoding::Gob), &bad),
                Err(DecodeError::Malformed { .. })
            ),
            "{bad:x?}"
        );
    }
}

proptest! {
    #[test]
    fn random_bytes_for_a_frame_are_survived(
        bytes in prop::collection::vec(0..16_u8, 0..4000),
        value in prop::collection::vec(any::<u8>(), 0..200),
        chunk in 1..600_usize,
    ) {
        let extra = [("Extra", EXTRA), ("More", BOOL)];
        let types = cat(&[frame_types(&extra), map(EXTRA, STRING, NODE)]);
        feed(connected(Encoding::Gob), &cat(&[types.clone(), bytes]), chunk);
        feed(connected(Encoding::Gob), &cat(&[types, message(FRAME, &value)]), chunk);
    }
}
