//! Frames that the core carries, as parcels.
//!
//! A parcel has everything of its frame, so that the core can carry, keep and give back frames without knowing them:
//!
//! ```text
//! Parcel.tag (u32)   major version | minor version | type | operand      one byte each, from the highest
//! ```

use proto_frames::frame::Version;
use proto_frames::payload::guard;
use proto_frames::{Frame, Kind, Trace};

use super::kinds::{kind_in, tag};
use sched_core::{Parcel, Sealed, Tag};

/// A frame as the core carries it. The payload is shared, not copied; [`frame_of`] is the inverse.
pub(in crate::server) fn parcel(frame: Frame) -> Parcel {
    let Version { major, minor } = frame.version;
    let version = u32::from_be_bytes([major, minor, 0, 0]);
    Parcel {
        tag: Tag(version | tag(frame.kind).0),
        native_limit: native_limit(frame.kind),
        origin: frame.origin,
        trace: frame.trace.map(|trace| Sealed::new(*trace)),
        payload: frame.payload,
    }
}

/// The frame that a parcel is, sharing its payload. Used by writers, and where a frame that the core carried has to be
/// read.
pub(in crate::server) fn frame_of(parcel: &Parcel) -> Frame {
    let [major, minor, ..] = parcel.tag.0.to_be_bytes();
    Frame {
        version: Version { major, minor },
        kind: kind_in(parcel.tag),
        origin: parcel.origin,
        trace: trace(parcel).cloned().map(Box::new),
        payload: parcel.payload.clone(),
    }
}

/// What a parcel counts in a queue, in bytes: as much as its frame ([`Frame::cost`]).
pub(super) fn cost(parcel: &Parcel) -> usize {
    size_of::<Frame>() + parcel.payload.len() + trace(parcel).map_or(0, Trace::cost)
}

/// What a frame of a traced START has beside its payload; sealed, because the core only carries it.
fn trace(parcel: &Parcel) -> Option<&Trace> {
    parcel.trace.as_ref().and_then(Sealed::open)
}

/// Bytes of the payload of a frame that is carried to native peers: what they read of one of its kind at most. The core
/// does not carry longer ones to native peers; original peers are sent them as well.
fn native_limit(kind: Kind) -> u32 {
    const LARGE: u32 = bytes(guard::LARGE.max_len);
    const SMALL: u32 = bytes(guard::SMALL.max_len);
    match kind {
        Kind::STATS | Kind::TRACE_REPORT | Kind::KEPT_RUNS | Kind::WORKLOADS => LARGE,
        _ => SMALL,
    }
}

/// A limit as the number that a parcel holds. Checked when the program is compiled.
const fn bytes(limit: usize) -> u32 {
    assert!(
        limit <= u32::MAX as usize,
        "payloads are shorter than 4 GiB"
    );
    limit as u32
}

#[cfg(test)]
mod tests {
    use proto_frames::frame::Version;
    use proto_frames::{Frame, Kind, Trace, Uuid};

    use super::{cost, frame_of, parcel};

    #[test]
    fn a_frame_comes_out_of_its_parcel_as_it_went_in() {
        let frame = Frame {
            version: Version {
                major: 5,
                minor: 77,
            },
            kind: Kind::new(0xfe, 0xef),
            origin: Uuid::from_u128(7),
            trace: Some(Box::new(Trace {
                label: "label".into(),
                ..Trace::default()
            })),
            payload: vec![b'x'; 300].into(),
        };
        let carried = parcel(frame.clone());
        assert_eq!(cost(&carried), frame.cost());
        assert_eq!(frame_of(&carried), frame);
    }
}
