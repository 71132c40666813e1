//! STARTs in doubt: written to a connection that has ended, or that another has taken the place of, and not answered. The
//! first STATS of the next connection says what became of them, unless they are *contested*: another machine may have
//! them.

use std::time::Instant;

use super::{ClaimState, Ledger, Unconfirmed};
use crate::api::ids::InstanceId;

impl Ledger {
    /// Puts every START given to the node and not answered in doubt; says how many there are. `contested`: the connection
    /// to which they were written had not ended when another took its place. It may have been another machine's with the
    /// same UUID, which has them: until then it is waited for, and what the other does not list has not failed.
    pub(crate) fn put_in_doubt(&mut self, now: Instant, contested: Option<Instant>) -> usize {
        // Stops are void with the connection over which they were sent.
        self.late_stops.clear();
        self.contested.retain(|_, until| now < *until);
        let (entries, sums) = (&mut self.entries, &mut self.sums);
        let (lost_stops, contests) = (&mut self.has_lost_stops, &mut self.contested);
        entries.for_each_mut(|instance, entry| {
            *lost_stops |= entry.lose_orders();
            let start = match entry.claim_state {
                ClaimState::Placed(start) => Some(start),
                ClaimState::Running => entry.repeated,
                ClaimState::Claimed | ClaimState::InDoubt(_) => None,
            };
            if let Some(start) = start {
                let start = Unconfirmed {
                    ordinal: 0,
                    ..start
                };
                sums.recount(entry, |entry| {
                    entry.is_starting = false;
                    entry.claim_state = ClaimState::InDoubt(start);
                });
                if let Some(until) = contested {
                    contests.insert(instance.clone(), until);
                }
            }
        });
        self.sums.unconfirmed
    }

    /// The latest START of an instance, if it is in doubt: it was written to a connection that has ended, and the node
    /// has not reported since whether it arrived.
    pub(crate) fn in_doubt(&self, instance: &InstanceId) -> Option<Unconfirmed> {
        match self.entries.get(instance)?.claim_state {
            ClaimState::InDoubt(start) => Some(start),
            ClaimState::Claimed | ClaimState::Placed(_) | ClaimState::Running => None,
        }
    }

    /// The process that reports now is the one that was sent the STARTs in doubt: it knows what became of them.
    pub(crate) fn settle_contested(&mut self) {
        self.contested.clear();
    }

    /// Whether another process than the one that reports now may have a START in doubt.
    pub(super) fn is_contested(&self, instance: &InstanceId) -> bool {
        self.in_doubt(instance).is_some() && self.contested.contains_key(instance)
    }
}
