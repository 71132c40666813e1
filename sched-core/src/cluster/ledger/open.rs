//! STARTs that were given to a node and have no outcome yet (*open* ones), counted for each entry; and when an entry
//! ends.
//!
//! A node reports in order what it did: each START ends in a failure, or in its instance being listed or having ended.
//! So whatever a node reports of an instance while STARTs of it are on their way belongs to one before them. Example: a
//! START is resent while the instance ends:
//!
//! ```text
//!  scheduler  START 1 ───────────────── START 2 (resent) ─────────
//!  node            └─ runs ── ended ──┐        └─ begins again
//!  ledger     open 1   open 0         └─ open 1: EntryEnd::Open, the claim stays for START 2
//! ```

use super::{ClaimState, Ledger, Unconfirmed};
use crate::api::ids::InstanceId;

/// Most answers to stops of what had ended that are expected of one node; where it owes more, the oldest are forgotten.
const MAX_LATE_STOPS: usize = 4096;

/// In which way a node reports that it does not have an instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ended {
    /// A START of it failed.
    Failed,
    /// It was there and is not any more.
    Gone,
    /// As `Gone`, and its launcher had sent it no signal: that is its own end, whatever it was to be stopped for.
    ByItself,
    /// As `Gone`, because its launcher was cut off for longer than its lease.
    CutOff,
    /// It is not there to be deleted.
    NotThere,
}

/// What such a report means for the entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub(crate) enum EntryEnd {
    /// The node has no entry of the instance.
    Unknown,
    /// It is to be released.
    Over,
    /// A START is on its way: what becomes of the instance is the outcome of that one.
    Open,
    /// Its launcher has removed what had ended by itself, as it was told before it was given the next START.
    LateStop,
    /// Its START has not been given to the node yet, so the report is about an earlier one.
    Earlier,
}

impl Ledger {
    /// Notes that the START of an instance that was only claimed is given to the node now.
    pub(crate) fn give(&mut self, instance: &InstanceId, start: Unconfirmed) {
        self.reopen(instance, start, 1);
    }

    /// Notes that another START of an instance that the node has, or was given, is given to it.
    pub(crate) fn resend(&mut self, instance: &InstanceId, start: Unconfirmed) {
        let Some(entry) = self.entries.get_mut(instance) else {
            return;
        };
        if !entry.is_managed {
            // A new START is not to be ended by a DELETE from before it that was lost.
            (entry.stops, entry.is_stop_lost) = (0, false);
        }
        match entry.claim_state {
            ClaimState::Running => {
                entry.repeated = Some(start);
                entry.open += 1;
            }
            ClaimState::Placed(_) => {
                let open = entry.open + 1;
                self.reopen(instance, start, open);
            }
            ClaimState::InDoubt(_) => {
                entry.is_doubted = true;
                self.reopen(instance, start, 1);
            }
            ClaimState::Claimed => self.reopen(instance, start, 1),
        }
    }

    /// Notes that a node has answered a START with that the instance is there already.
    pub(crate) fn confirm(&mut self, instance: &InstanceId) {
        let Some(entry) = self.entries.get(instance) else {
            return;
        };
        // One START is answered; and if no one knew yet that it runs, another was what brought it there.
        let silent = u32::from(entry.unconfirmed().is_some() && !entry.is_doubted);
        let open = entry.open.saturating_sub(1 + silent);
        let latest = entry.repeated.or(entry.unconfirmed());
        self.set_claim_state(instance, ClaimState::Running);
        if let Some(entry) = self.entries.get_mut(instance) {
            entry.open = open;
            entry.repeated = latest.filter(|_| open > 0);
        }
    }

    /// Notes that a node does not have an instance, and decides what that means for its entry. Every report of an end
    /// comes here, so that none ends an entry while a START is on its way that the node had not reached when it sent
    /// the report. The caller releases an entry that is over. (What a node no longer lists is judged by the STARTs that
    /// its launcher has seen: [`Ledger::apply_stats`].)
    pub(crate) fn end(&mut self, instance: &InstanceId, how: Ended) -> EntryEnd {
        if how == Ended::NotThere && self.is_contested(instance) {
            // Another machine with the same UUID may have it.
            return EntryEnd::Earlier;
        }
        let is_own = how == Ended::ByItself;
        if !is_own {
            self.late_stops.swap_remove(instance);
        }
        let Some(entry) = self.entries.get_mut(instance) else {
            return EntryEnd::Unknown;
        };
        let answers_late = entry.owes_answer();
        entry.is_stop_late = false;
        if answers_late && how == Ended::Gone {
            return EntryEnd::LateStop;
        }
        if entry.claim_state == ClaimState::Claimed {
            return EntryEnd::Earlier;
        }
        if !self.counts_starts {
            // Nothing tells which START an original launcher means. It has the last word on its own room.
            return EntryEnd::Over;
        }
        // It has been listed, as being started, by the START that fails or ends now.
        let is_counted = std::mem::take(&mut entry.is_starting);
        let is_answer = match (how, entry.claim_state) {
            (Ended::Failed, _) => !is_counted,
            (Ended::Gone | Ended::ByItself | Ended::CutOff, ClaimState::Placed(_)) => {
                !std::mem::take(&mut entry.is_doubted)
            }
            (_, ClaimState::InDoubt(_)) => return EntryEnd::Over,
            // That it runs, or that it does not, was said of every START before.
            (Ended::Gone | Ended::ByItself | Ended::CutOff | Ended::NotThere, _) => false,
        };
        let open = entry.open.saturating_sub(u32::from(is_answer));
        let is_stop_sent = entry.may_stop();
        match entry.repeated.or(entry.unconfirmed()) {
            Some(latest) if open > 0 => {
                self.reopen(instance, latest, open);
                self.begin_again(instance);
                EntryEnd::Open
            }
            _ => {
                if is_own && is_stop_sent {
                    self.owe_answer(instance);
                }
                EntryEnd::Over
            }
        }
    }

    /// How many answers to stops of what had ended before are owed.
    #[cfg(any(test, feature = "test-support"))]
    pub(crate) fn late_stops(&self) -> usize {
        self.late_stops.len()
    }

    /// Notes that a stop was sent of what has ended by itself: its answer is still to come.
    fn owe_answer(&mut self, instance: &InstanceId) {
        if self.late_stops.len() >= MAX_LATE_STOPS {
            self.late_stops.shift_remove_index(0);
        }
        self.late_stops.insert(instance.clone());
    }

    /// Notes that a START was never written to the node, whose connection has ended. Whether no START of this instance
    /// was written: then the claim can be released.
    pub(crate) fn take_back(&mut self, instance: &InstanceId) -> bool {
        let Some(entry) = self.entries.get_mut(instance) else {
            return false;
        };
        entry.open = entry.open.saturating_sub(1);
        let is_written = entry.open > 0 || entry.is_doubted || entry.repeated.is_some();
        entry.unconfirmed().is_some() && !is_written
    }

    /// Puts an entry back to waiting for a START, with this many open.
    fn reopen(&mut self, instance: &InstanceId, start: Unconfirmed, open: u32) {
        self.set_claim_state(instance, ClaimState::Placed(start));
        if let Some(entry) = self.entries.get_mut(instance) {
            entry.open = open;
        }
    }
}
