//! Ends of instances that controllers have read and that are forgotten here, kept for a while: what was read from a
//! stream may have been lost with its connection.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::instance::InstanceRecord;

/// How long a controller that begins another stream is told once more of an instance that is over. That a connection is
/// gone is noticed within half a minute.
const TOLD_AGAIN_FOR: Duration = Duration::from_secs(300);

/// Most ends that are remembered, of all controllers together; the oldest are dropped first. Each is an id, of at most a
/// KiB.
const MAX_TOLD_AGAIN: usize = 4096;

/// The latest ends, the earliest first.
#[derive(Debug, Default)]
pub(super) struct ToldEnds(VecDeque<ToldEnd>);

#[derive(Debug)]
struct ToldEnd {
    at: Instant,
    owner: Arc<str>,
    id: String,
}

impl ToldEnds {
    /// Takes note that the end of this instance has been read now.
    pub(super) fn note(&mut self, record: InstanceRecord, now: Instant) {
        if self.0.len() >= MAX_TOLD_AGAIN {
            self.0.pop_front();
        }
        self.0.push_back(ToldEnd {
            at: now,
            owner: record.owner,
            id: record.id,
        });
    }

    /// Drops those that are not told again any more.
    pub(super) fn tidy(&mut self, now: Instant) {
        let is_past = |it: &ToldEnd| now.duration_since(it.at) >= TOLD_AGAIN_FOR;
        while self.0.front().is_some_and(is_past) {
            self.0.pop_front();
        }
    }

    /// Ids of instances of this owner whose ends are told again.
    pub(super) fn of(&self, owner: &str) -> impl Iterator<Item = &str> {
        let its = self.0.iter().filter(move |it| &*it.owner == owner);
        its.map(|it| &*it.id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::instance::Fate;

    fn record(id: usize) -> InstanceRecord {
        InstanceRecord {
            id: id.to_string(),
            instance: "".into(),
            workload: String::new(),
            definition: "".into(),
            owner: "anna".into(),
            set: None,
            fate: Fate::Over,
            sent_ms: None,
        }
    }

    #[test]
    fn ends_are_told_again_for_a_while_and_up_to_a_bound() {
        let mut told = ToldEnds::default();
        let now = Instant::now();
        (0..=MAX_TOLD_AGAIN).for_each(|id| told.note(record(id), now));
        assert_eq!(told.of("anna").count(), MAX_TOLD_AGAIN);
        assert_eq!(told.of("anna").next(), Some("1"), "the oldest is dropped");
        assert_eq!(told.of("berta").count(), 0);
        told.note(record(0), now + Duration::from_secs(1));
        told.tidy(now + TOLD_AGAIN_FOR);
        assert_eq!(told.of("anna").collect::<Vec<_>>(), ["0"]);
    }
}
