//! Path traces: the way a frame took and when, as each entity on it noted.

use crate::Uuid;
use bytes::Bytes;

use crate::Role;
use crate::limits::MAX_TRACE_NODES;

/// An instant of a trace with the time zone its sender noted it in, as Go's `time.Time` travels in gob.
///
/// The default is Go's zero time (year 1, UTC), which means "not set". The native encoding carries the instant only
/// (nanoseconds since the Unix epoch, 0 = not set), not the zone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Timestamp {
    /// Seconds since 0001-01-01T00:00:00Z.
    pub seconds: i64,
    /// Nanoseconds within the second, 0 ..= 999 999 999.
    pub nanos: i32,
    /// Zone offset in minutes east of UTC; -1 = UTC itself, as Go encodes it.
    pub zone_minutes: i16,
    /// Seconds to add to the zone offset (version 2 of Go's encoding); 0 for every real zone of today.
    pub zone_seconds: i8,
}

impl Timestamp {
    /// Seconds from 0001-01-01T00:00:00Z to the Unix epoch.
    pub const UNIX_EPOCH_SECONDS: i64 = 62_135_596_800;

    /// Go's zero time: not set.
    pub const UNSET: Self = Self {
        seconds: 0,
        nanos: 0,
        zone_minutes: -1,
        zone_seconds: 0,
    };

    /// The instant `ns` nanoseconds after the Unix epoch, in UTC; 0 is [`Timestamp::UNSET`].
    #[must_use]
    pub fn from_unix_ns(ns: i64) -> Self {
        if ns == 0 {
            return Self::UNSET;
        }
        let nanos = i32::try_from(ns.rem_euclid(1_000_000_000)).unwrap_or(0);
        Self {
            seconds: ns.div_euclid(1_000_000_000) + Self::UNIX_EPOCH_SECONDS,
            nanos,
            ..Self::UNSET
        }
    }

    /// Nanoseconds after the Unix epoch, saturating; 0 if not set.
    #[must_use]
    pub fn unix_ns(self) -> i64 {
        if self.is_unset() {
            return 0;
        }
        let seconds = i128::from(self.seconds) - i128::from(Self::UNIX_EPOCH_SECONDS);
        let ns = seconds * 1_000_000_000 + i128::from(self.nanos);
        i64::try_from(ns).unwrap_or(if ns < 0 { i64::MIN } else { i64::MAX })
    }

    /// Whether this is Go's zero instant.
    #[must_use]
    pub const fn is_unset(self) -> bool {
        self.seconds == 0 && self.nanos == 0
    }
}

impl Default for Timestamp {
    fn default() -> Self {
        Self::UNSET
    }
}

/// One entity on a frame's path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TraceNode {
    /// Who it was. Opaque bytes on the wire; 16 of them from every well-behaved peer.
    pub uuid: Uuid,
    /// Its role on that connection.
    pub role: Role,
    /// When it sent the frame on; not set at the last receiver.
    pub tx: Timestamp,
    /// When it received the frame; not set at the first sender.
    pub rx: Timestamp,
}

impl TraceNode {
    /// One with no times yet.
    #[must_use]
    pub const fn new(uuid: Uuid, role: Role) -> Self {
        Self {
            uuid,
            role,
            tx: Timestamp::UNSET,
            rx: Timestamp::UNSET,
        }
    }
}

/// The trace part of a frame.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Trace {
    /// The first sender's name for the frame, may be empty; what is behind [`MAX_LABEL_LEN`] bytes is lost in the
    /// native encoding.
    ///
    /// [`MAX_LABEL_LEN`]: crate::limits::MAX_LABEL_LEN
    pub label: Bytes,
    /// When the first sender sent it.
    pub start: Timestamp,
    /// When the last receiver had it; may be set by that receiver only.
    pub end: Timestamp,
    /// The path, where one is traced: bit 7 of the major byte. `None` = a label only.
    pub path: Option<Vec<TraceNode>>,
}

impl Trace {
    /// Appends an entity to the path, where one is traced and has room ([`MAX_TRACE_NODES`]); says whether it did.
    ///
    /// [`MAX_TRACE_NODES`]: crate::limits::MAX_TRACE_NODES
    pub fn push(&mut self, node: TraceNode) -> bool {
        match &mut self.path {
            Some(path) if path.len() < MAX_TRACE_NODES => {
                path.push(node);
                true
            }
            _ => false,
        }
    }

    /// About how many bytes the trace takes in memory; see [`crate::Frame::cost`].
    #[must_use]
    pub fn cost(&self) -> usize {
        let nodes = self.path.as_ref().map_or(0, Vec::len);
        size_of::<Self>() + self.label.len() + nodes * size_of::<TraceNode>()
    }
}

#[cfg(test)]
mod tests {
    use super::{Timestamp, Trace, TraceNode};
    use crate::{Role, Uuid};

    #[test]
    fn nanoseconds_survive_a_round_trip_through_a_timestamp() {
        for ns in [1, -1, 1_500_000_000, -1_500_000_000, i64::MAX, i64::MIN, 0] {
            assert_eq!(Timestamp::from_unix_ns(ns).unix_ns(), ns);
        }
        assert!(Timestamp::from_unix_ns(0).is_unset());
    }

    #[test]
    fn instants_that_nanoseconds_cannot_say_saturate() {
        let at = |seconds| Timestamp {
            seconds,
            nanos: 999_999_999,
            ..Timestamp::UNSET
        };
        assert_eq!(at(i64::MAX).unix_ns(), i64::MAX);
        assert_eq!(at(i64::MIN).unix_ns(), i64::MIN);
    }

    #[test]
    fn a_node_is_appended_only_to_a_path_with_room() {
        let node = TraceNode::new(Uuid::nil(), Role::SCHEDULER);
        assert!(!Trace::default().push(node.clone()), "no path is traced");
        let mut trace = Trace {
            path: Some(vec![node.clone(); 254]),
            ..Trace::default()
        };
        assert!(trace.push(node.clone()));
        assert!(!trace.push(node));
        assert_eq!(trace.path.map(|path| path.len()), Some(255));
    }
}
