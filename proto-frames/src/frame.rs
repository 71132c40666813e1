//! A frame: what travels in both directions once a connection stands.

use crate::Uuid;
use bytes::Bytes;

use crate::kind::Kind;
use crate::trace::Trace;

/// Protocol version of a frame. Bit 7 of the major byte on the wire is not part of it: it says that the frame carries
/// a path trace ([`Trace::path`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Version {
    /// Major version, 7 bits; 0 today.
    pub major: u8,
    /// Minor version; 1 today, but for those of schedulers below.
    pub minor: u8,
}

impl Version {
    /// The version this crate speaks: 0.1.
    pub const CURRENT: Self = Self { major: 0, minor: 1 };

    /// What a scheduler says in CONNECTED, in the native encoding, if it answers `ended` in STATS with EndsRecorded: 0.2.
    /// The layout is that of 0.1. Launchers have to know from the beginning of a connection whether ends are
    /// acknowledged on it, and CONNECTED has room for nothing else that older ones would not stumble over.
    pub const RECORDS_ENDS: Self = Self { major: 0, minor: 2 };

    /// What one says there that answers also every STATS with a number: 0.3. It does all that one of 0.2 does.
    pub const ANSWERS_REPORTS: Self = Self { major: 0, minor: 3 };

    /// What one says there, in the native encoding, whose CONNECTED has its term: 0.4. It does all that one of 0.3 does.
    pub const SAYS_TERM: Self = Self { major: 0, minor: 4 };

    /// Whether it is of the same major version, and as late or later.
    pub(crate) fn is_at_least(self, version: Self) -> bool {
        self.major == version.major && self.minor >= version.minor
    }
}

/// Any message but CONNECT and CONNECTED. The payload is opaque here; see [`crate::payload`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// Protocol version.
    pub version: Version,
    /// Type and operand.
    pub kind: Kind,
    /// The peer that first sent the frame; it survives forwarding. In the native encoding only a trace block carries
    /// it: a frame without one decodes to nil here, which means the peer at the other end of the connection.
    pub origin: Uuid,
    /// Label and path trace, where the first sender asked for one.
    pub trace: Option<Box<Trace>>,
    /// The payload, byte for byte as it came.
    pub payload: Bytes,
}

impl Frame {
    /// A frame of the current version without a trace.
    #[must_use]
    pub fn new(kind: Kind, origin: Uuid, payload: impl Into<Bytes>) -> Self {
        Self {
            version: Version::CURRENT,
            kind,
            origin,
            trace: None,
            payload: payload.into(),
        }
    }

    /// About how many bytes the frame takes in memory, which is also about what it takes on the wire in either
    /// encoding: for budgets of queued bytes. Never 0, so that a queue bounded by it is bounded in frames too.
    #[must_use]
    pub fn cost(&self) -> usize {
        size_of::<Self>() + self.payload.len() + self.trace.as_ref().map_or(0, |trace| trace.cost())
    }
}

#[cfg(test)]
mod tests {
    use super::Frame;
    use crate::{Kind, Trace, TraceNode, Uuid};

    #[test]
    fn cost_covers_what_a_frame_holds() {
        let plain = Frame::new(Kind::FULL, Uuid::nil(), "");
        let loaded = Frame::new(Kind::START, Uuid::nil(), vec![b'x'; 300]);
        assert!(plain.cost() > 0);
        assert_eq!(loaded.cost(), plain.cost() + 300);

        let node = TraceNode::new(Uuid::nil(), crate::Role::AGENT);
        let trace = Trace {
            label: "label".into(),
            path: Some(vec![node; 255]),
            ..Trace::default()
        };
        let traced = Frame {
            trace: Some(Box::new(trace)),
            ..plain.clone()
        };
        assert!(traced.cost() > plain.cost() + 255 * size_of::<TraceNode>());
    }
}
