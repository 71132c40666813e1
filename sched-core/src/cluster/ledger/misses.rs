//! When an instance is gone because STATS do not list it.

use super::entry::{ClaimState, Entry, Unconfirmed};

/// When an instance that a STATS does not list counts as missing. A START that the launcher has not seen yet cannot be
/// missing.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MissRules {
    /// How many STARTs the launcher has seen on this connection, by its report; `None` from original launchers, which
    /// do not say.
    pub(crate) starts_seen: Option<u64>,
    /// Whether everything queued for the node leaves at once.
    pub(crate) is_queue_clear: bool,
    /// STATS in a row without an instance after which its entry is dropped.
    pub(crate) missed_stats: u8,
}

impl MissRules {
    /// Whether the launcher reports that it has not seen this START yet.
    pub(super) fn is_unseen(&self, start: Unconfirmed) -> bool {
        self.starts_seen.is_some_and(|seen| seen < start.ordinal)
    }
}

impl Entry {
    /// Counts a STATS that does not list it; whether its entry is to be removed. What is in doubt is removed at once,
    /// what the node cannot have seen yet is not counted, anything else after `rules.missed_stats` in a row.
    pub(super) fn count_miss(&mut self, is_evidence: bool, rules: &MissRules) -> bool {
        match self.claim_state {
            // The node was sent nothing of it.
            ClaimState::Claimed => return false,
            // The first STATS after a reconnect settles what was in doubt.
            ClaimState::InDoubt(_) => return true,
            // Its launcher may have been restarted with nothing to list.
            ClaimState::Running if self.is_remembered => {}
            _ if !is_evidence => return false,
            // The START may not have been written yet, or the launcher says that it has not seen it.
            ClaimState::Placed(_) if !rules.is_queue_clear => return false,
            ClaimState::Placed(start) if rules.is_unseen(start) => return false,
            ClaimState::Running if self.repeated.is_some_and(|start| rules.is_unseen(start)) => {
                return false;
            }
            ClaimState::Placed(_) | ClaimState::Running => {}
        }
        self.misses += 1;
        self.misses >= rules.missed_stats
    }
}
