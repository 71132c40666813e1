//! Peers whose connections replace each other again and again: two machines with one UUID, because one was cloned. Each
//! takes the other's place as fast as it can connect. So a newer connection waits a moment then; a peer that merely
//! connects once more does not.

//!
//! Where the core can tell two launchers with one UUID apart, it refuses the newcomer instead (`Notice::Twins`); this
//! is for peers that it cannot tell apart, of which the newer replaces the older.
use std::time::{Duration, Instant};

use indexmap::IndexMap;
use proto_frames::{Role, Uuid};

/// Connections of one peer that may replace another within [`TWIN_WINDOW`] at once: as many as the core takes for one
/// machine's.
pub(super) const FREE_REPLACEMENTS: u32 = sched_core::FREE_REPLACEMENTS;

/// The time for which replacements are counted. Two machines that wait for [`HOLD_TIME`] replace each other far more
/// often in it, so that they stay slow.
pub(super) const TWIN_WINDOW: Duration = sched_core::REPLACED_WITHIN;

/// How long a further connection waits for its CONNECTED. Original clients wait for it for as long as it takes.
pub(super) const HOLD_TIME: Duration = Duration::from_secs(2);

/// Peers whose replacements are counted. Of further ones nothing is known, and none of their connections waits.
const MAX_TWINS: usize = 1024;

/// How often connections of which peer were replaced. Under a lock of its own in [`super::hub`], bounded by
/// [`MAX_TWINS`].
#[derive(Debug, Default)]
pub(super) struct Twins {
    by_peer: IndexMap<(Uuid, Role), Replaced>,
}

/// Two adjacent windows are kept, so that a count does not fall to 0 at the moment a window ends.
#[derive(Debug)]
struct Replaced {
    /// When the time for which they are counted began.
    since: Instant,
    times: u32,
    /// How many there were in the time before that.
    before: u32,
}

impl Replaced {
    /// How often within the window. During a window that is the larger of its count and that of the one before; a
    /// window that has passed counts for one more.
    fn times(&self, now: Instant) -> u32 {
        let passed = now.saturating_duration_since(self.since);
        if passed < TWIN_WINDOW {
            self.times.max(self.before)
        } else if passed < 2 * TWIN_WINDOW {
            self.times
        } else {
            0
        }
    }

    /// Begins a new window where the current one has passed.
    fn note(&mut self, now: Instant) {
        let passed = now.saturating_duration_since(self.since);
        if passed >= TWIN_WINDOW {
            self.before = self.times(now);
            (self.since, self.times) = (now, 0);
        }
        self.times = self.times.saturating_add(1);
    }
}

impl Twins {
    /// Notes that a connection of a peer took the place of another; how often that was so within the window. 0 where as
    /// many peers are counted as may be: such a peer is not slowed down.
    pub(super) fn note(&mut self, peer: (Uuid, Role), now: Instant) -> u32 {
        if self.by_peer.len() >= MAX_TWINS && !self.by_peer.contains_key(&peer) {
            self.by_peer.retain(|_, replaced| replaced.times(now) > 0);
            if self.by_peer.len() >= MAX_TWINS {
                return 0;
            }
        }
        let replaced = self.by_peer.entry(peer).or_insert(Replaced {
            since: now,
            times: 0,
            before: 0,
        });
        replaced.note(now);
        replaced.times(now)
    }

    /// How long a further connection of a peer is to wait. `None` for all but peers that replace each other: almost
    /// always.
    pub(super) fn hold_time(&self, peer: (Uuid, Role), now: Instant) -> Option<Duration> {
        let times = self.by_peer.get(&peer)?.times(now);
        (times >= FREE_REPLACEMENTS).then_some(HOLD_TIME)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NODE: (Uuid, Role) = (Uuid::from_u128(1), Role::AGENT);

    #[test]
    fn a_peer_waits_only_once_its_connections_have_replaced_each_other_often() {
        let mut twins = Twins::default();
        let now = Instant::now();
        assert_eq!(twins.hold_time(NODE, now), None);
        for times in 1..=FREE_REPLACEMENTS {
            assert_eq!(twins.hold_time(NODE, now), None);
            assert_eq!(twins.note(NODE, now), times);
        }
        assert_eq!(twins.hold_time(NODE, now), Some(HOLD_TIME));
        let other = (Uuid::from_u128(2), Role::AGENT);
        assert_eq!(twins.hold_time(other, now), None);
        assert_eq!(twins.hold_time(NODE, now + 2 * TWIN_WINDOW), None);
    }

    #[test]
    fn two_machines_that_go_on_stay_slow() {
        let mut twins = Twins::default();
        let begun = Instant::now();
        for _ in 0..FREE_REPLACEMENTS {
            twins.note(NODE, begun);
        }
        for round in 1..100 {
            let now = begun + round * HOLD_TIME;
            assert_eq!(twins.hold_time(NODE, now), Some(HOLD_TIME), "{round}");
            twins.note(NODE, now);
        }
    }

    #[test]
    fn no_more_peers_are_counted_than_may_be() {
        let mut twins = Twins::default();
        let now = Instant::now();
        for number in 0..2 * MAX_TWINS as u128 {
            twins.note((Uuid::from_u128(number), Role::AGENT), now);
        }
        assert_eq!(twins.by_peer.len(), MAX_TWINS);
        assert_eq!(twins.note(NODE, now), 2, "it is one of the first");
        let later = now + 2 * TWIN_WINDOW;
        let new = (Uuid::from_u128(1 << 100), Role::AGENT);
        assert_eq!(twins.note(new, later), 1);
        assert_eq!(twins.by_peer.len(), 1);
    }
}
