//! Path traces: the way a frame took and when, as each entity on it noted.

use bytes::Bytes;
use uuid::Uuid;

use crate::role::Role;

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
        let seconds = self.seconds.saturating_sub(Self::UNIX_EPOCH_SECONDS);
        seconds
            .saturating_mul(1_000_000_000)
            .saturating_add(i64::from(self.nanos))
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

/// The trace part of a frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trace {
    /// The first sender's name for the frame, at most 255 bytes, may be empty.
    pub label: Bytes,
    /// When the first sender sent it.
    pub start: Timestamp,
    /// When the last receiver had it; may be set by that receiver only.
    pub end: Timestamp,
    /// The path, where one is traced: bit 7 of the major byte. `None` = a label only.
    pub path: Option<Vec<TraceNode>>,
}
