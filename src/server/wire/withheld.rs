//! A STATS without the instances in it that are not for its node to speak of: they are cut out of the text where it is
//! in the usual style, else the STATS is rewritten. One that lists none of those leaves as the very bytes that came,
//! and is not looked at here.
//!
//! Done by each receiver's writer, outside every lock. It is needed only where a launcher lies, or came back with an
//! instance that was started elsewhere meanwhile.

use bytes::Bytes;
use proto_frames::Frame;
use proto_frames::limits::MAX_PAYLOAD_LEN;
use proto_frames::payload::{Payload, Stats, peek};

use super::parcels::frame_of;
use sched_core::StatsWithout;

/// The frame that a controller is sent: the STATS without the rows that the core has named, by their places in its list
/// of instances, ascending.
///
/// A payload in an unusual style may be longer when it is written in the usual one. No frame leaves that is longer than
/// one may be which comes: instead no instance is left in it.
pub(super) fn frame(stats: &StatsWithout) -> Frame {
    let cut = stats
        .is_plain
        .then(|| peek::plain_stats_without(&stats.parcel.payload, &stats.rows));
    Frame {
        payload: cut.flatten().unwrap_or_else(|| rewritten(stats)),
        ..frame_of(&stats.parcel)
    }
}

/// The STATS written again from what was read of it, without those rows. Unknown keys are lost by it.
fn rewritten(stats: &StatsWithout) -> Bytes {
    let mut left = Stats::decode(&stats.parcel.payload).unwrap_or_default();
    // Those of its own instances were passed on in frames of their own.
    left.ended.clear();
    let mut at = 0..;
    left.instances.retain(|_| {
        let at = at.next();
        at.is_some_and(|at| stats.rows.binary_search(&at).is_err())
    });
    let mut payload = left.encode();
    if payload.len() > MAX_PAYLOAD_LEN.max(stats.parcel.payload.len()) {
        left.instances.clear();
        payload = left.encode();
    }
    payload
}

#[cfg(test)]
mod tests {
    use proto_frames::limits::MAX_PAYLOAD_LEN;
    use proto_frames::payload::{Payload, Stats, peek};
    use proto_frames::{Frame, Kind, Uuid};

    use super::super::parcels::parcel;
    use super::frame;
    use sched_core::StatsWithout;

    fn without(payload: String, rows: Vec<u32>) -> Stats {
        let came = Frame::new(Kind::STATS, Uuid::nil(), payload.into_bytes());
        let is_plain = peek::plain_stats(&came.payload).is_some();
        let stats = StatsWithout {
            parcel: parcel(came),
            rows,
            is_plain,
        };
        Stats::decode(&frame(&stats).payload).expect("what is written can be read")
    }

    #[test]
    fn the_rows_named_are_left_out_and_the_rest_stays() {
        let payload = "node_uuid: n\nload: 3\nlabels:\n  zone: z\ninstances:\n- instance_uuid: a\n  \
                       state: active\n- instance_uuid: b\n- instance_uuid: c\n  memory_usage_mb: 5\n";
        let before = Stats::decode(payload.as_bytes()).expect("it is well formed");
        let after = without(payload.to_owned(), vec![1]);
        let mut expected = before;
        expected.instances.remove(1);
        assert_eq!(after, expected);
        assert!(
            without(payload.to_owned(), vec![0, 1, 2])
                .instances
                .is_empty()
        );
    }

    #[test]
    fn what_would_be_longer_than_a_frame_may_be_lists_nothing() {
        // Each takes half as much again when all that is known of it is written out.
        let row = format!("- instance_uuid: {}\n", "a".repeat(240));
        let rows = row.repeat(14_000);
        assert!(rows.len() < MAX_PAYLOAD_LEN);
        let after = without(format!("\"node_uuid\": n\ninstances:\n{rows}"), vec![0]);
        assert_eq!((after.node_uuid.as_str(), after.instances.len()), ("n", 0));
    }
}
