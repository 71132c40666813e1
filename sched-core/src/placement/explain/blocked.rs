//! What it comes down to that a START does not fit: one word, the same in lists, counts and metrics.

use sched_model::{Reason, ReasonKind};

/// What an instance that waits lacks first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum BlockedBy {
    /// Memory, vcpus or disk, or a node that calls itself full of it.
    Amount(ReasonKind),
    /// This custom resource.
    Resource(String),
    /// The node that it is for.
    Pinned,
    /// Another reason of placement: its kind, and what of it.
    Other(String),
    /// No node is connected.
    NoNode,
    /// Too many different STARTs fail at once to say it.
    NotCounted,
}

impl BlockedBy {
    /// By the reason that counts.
    pub(super) fn of(reason: &Reason) -> Self {
        match &reason.reason {
            kind @ (ReasonKind::Memory | ReasonKind::Vcpus | ReasonKind::Disk) => {
                Self::Amount(kind.clone())
            }
            ReasonKind::Resource => Self::Resource(reason.what.clone()),
            ReasonKind::Pinned => Self::Pinned,
            ReasonKind::NotReady => match reason.what.strip_prefix("full of ") {
                Some("memory") => Self::Amount(ReasonKind::Memory),
                Some("vcpus") => Self::Amount(ReasonKind::Vcpus),
                Some("disk") => Self::Amount(ReasonKind::Disk),
                _ => Self::Other(reason.what.clone()),
            },
            // The expression says it all: `zone = b`.
            ReasonKind::Labels => Self::Other(reason.what.clone()),
            kind if reason.what.is_empty() => Self::Other(kind.as_str().to_owned()),
            kind => Self::Other(format!("{} {}", kind.as_str(), reason.what)),
        }
    }

    /// The word for programs and for counts by reason.
    pub(crate) fn word(&self) -> &str {
        match self {
            Self::Amount(kind) => kind.as_str(),
            Self::Resource(name) | Self::Other(name) => name,
            Self::Pinned => ReasonKind::Pinned.as_str(),
            Self::NoNode => "no_node",
            Self::NotCounted => "not_counted",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_word_is_that_of_what_is_short() {
        let word = |reason, what: &str| {
            let reason = Reason {
                reason,
                what: what.to_owned(),
                ..Reason::default()
            };
            BlockedBy::of(&reason).word().to_owned()
        };
        assert_eq!(word(ReasonKind::Vcpus, ""), "vcpus");
        assert_eq!(word(ReasonKind::Resource, "gpu"), "gpu");
        assert_eq!(word(ReasonKind::Labels, "zone = b"), "zone = b");
        assert_eq!(word(ReasonKind::NotReady, "full of disk"), "disk");
        assert_eq!(word(ReasonKind::NotReady, "maintenance"), "maintenance");
        assert_eq!(word(ReasonKind::Group, "web"), "group web");
        let cordoned = ReasonKind::Other("cordoned".to_owned());
        assert_eq!(word(cordoned, ""), "cordoned");
    }
}
