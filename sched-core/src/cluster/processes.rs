//! Which processes of launchers have reported for a node. Each launcher draws an incarnation when its process starts, and says
//! it in the first report of a connection. One that connects again, or was started again, is the usual case; but once a
//! process comes back after another one reported, both are alive: two machines with one state directory, or one UUID.
//!
//! ```text
//! a ── b              a was started again as b, or b is a copy: b takes its place
//! a ── b ── a         b is the newcomer: it is refused while a is connected
//! ```

use core::net::SocketAddr;
use std::time::{Duration, Instant};

use sched_model::Uuid;

use super::Cluster;
use crate::api::ids::NodeKey;
use crate::api::input::Hello;

/// Processes that are remembered of a node, the latest ones: as many copies of one state directory are told apart.
const MAX_PROCESSES: usize = 8;

/// For how long after a newcomer was found, or refused, processes that are not known are refused as well while the first
/// one is connected: a service manager starts the newcomer again and again, as another process each time. Not for ever: a
/// machine that was replaced is let in once its predecessor's connection is noticed to be dead, or after this.
pub(crate) const NEWCOMER_TIME: Duration = Duration::from_secs(600);

/// The processes that have reported for one node.
#[derive(Debug, Default)]
pub(crate) struct Processes {
    /// In the order in which they reported last; the last one is the one that does now.
    known: Vec<Process>,
    /// Until when those that are not known are refused.
    wary_until: Option<Instant>,
}

#[derive(Debug)]
struct Process {
    incarnation: Uuid,
    address: Option<SocketAddr>,
    /// Whether it came after another one that is alive as well.
    is_newcomer: bool,
}

impl Processes {
    /// A process reports; where the newcomer was that it proves to be one by coming back, if it does.
    fn reports(
        &mut self,
        incarnation: Uuid,
        address: Option<SocketAddr>,
        now: Instant,
    ) -> Option<Option<SocketAddr>> {
        let at = self.position(incarnation);
        let is_latest = at.is_some_and(|at| at + 1 == self.known.len());
        let earlier = at.map(|at| self.known.remove(at));
        let is_newcomer = earlier.as_ref().is_some_and(|it| it.is_newcomer);
        let mut found = None;
        if earlier.is_some()
            && !is_latest
            && !is_newcomer
            && let Some(latest) = self.known.last_mut()
        {
            latest.is_newcomer = true;
            found = Some(latest.address);
            self.wary_until = Some(now + NEWCOMER_TIME);
        }
        if self.known.len() >= MAX_PROCESSES {
            self.known.remove(0);
        }
        self.known.push(Process {
            incarnation,
            address,
            is_newcomer,
        });
        found
    }

    /// Whether a connection is to say which process it is of before it takes the place of the one that stands: the latest
    /// process was there first, and newcomers were found.
    fn asks(&self) -> bool {
        let is_first = self.known.last().is_some_and(|latest| !latest.is_newcomer);
        is_first && self.wary_until.is_some()
    }

    /// Whether a process may take the place of the one that reports now.
    fn admits(&mut self, incarnation: Uuid, now: Instant) -> bool {
        let is_wary = self.wary_until.is_some_and(|until| now < until);
        let admits = match self.position(incarnation) {
            Some(at) if at + 1 == self.known.len() => true,
            Some(at) => !self.known[at].is_newcomer && !is_wary,
            None => !is_wary,
        };
        if !admits {
            self.wary_until = Some(now + NEWCOMER_TIME);
        }
        admits
    }

    fn position(&self, incarnation: Uuid) -> Option<usize> {
        let mut known = self.known.iter();
        known.position(|process| process.incarnation == incarnation)
    }
}

impl Cluster {
    /// A process of a launcher reports for a node; where the newcomer was, and where the first one is, if it proves by
    /// that that there are two.
    pub(crate) fn process_reports(
        &mut self,
        key: NodeKey,
        incarnation: Uuid,
        now: Instant,
    ) -> Option<(Option<SocketAddr>, Option<SocketAddr>)> {
        let node = self.nodes.node_mut(key);
        let newcomer = node.processes.reports(incarnation, node.address, now)?;
        Some((newcomer, node.address))
    }

    /// The node for which a new connection has to say which process it is of before it takes the place of the one that
    /// stands; `None` if it need not.
    pub(crate) fn asks_process(&self, hello: &Hello) -> Option<NodeKey> {
        let key = self.nodes.by_uuid(hello.uuid)?;
        let node = self.nodes.node(key);
        (node.session().is_some() && node.processes.asks()).then_some(key)
    }

    /// Whether the process of a connection may take the place of the one that stands, if one does.
    ///
    /// # Errors
    /// Where that one is.
    pub(crate) fn admit_process(
        &mut self,
        node: Uuid,
        incarnation: Uuid,
        now: Instant,
    ) -> Result<(), Option<SocketAddr>> {
        let Some(key) = self.nodes.by_uuid(node) else {
            return Ok(());
        };
        let node = self.nodes.node_mut(key);
        if node.session().is_none() || node.processes.admits(incarnation, now) {
            return Ok(());
        }
        Err(node.address)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use sched_model::Uuid;

    use super::{MAX_PROCESSES, NEWCOMER_TIME, Processes};

    const ADDRESS: &str = "192.0.2.7:1";

    fn process(number: u128) -> Uuid {
        Uuid::from_u128(number)
    }

    #[test]
    fn one_that_is_started_again_and_again_is_no_newcomer() {
        let (mut processes, now) = (Processes::default(), crate::simulated::start());
        for number in 0..3 * MAX_PROCESSES as u128 {
            for _ in 0..2 {
                assert_eq!(processes.reports(process(number), None, now), None);
            }
            assert!(!processes.asks());
        }
        assert_eq!(processes.known.len(), MAX_PROCESSES);
    }

    #[test]
    fn who_comes_back_was_there_first_and_who_came_between_is_refused() {
        let (mut processes, now) = (Processes::default(), crate::simulated::start());
        let address = ADDRESS.parse().ok();
        processes.reports(process(1), None, now);
        processes.reports(process(2), address, now);
        assert_eq!(processes.reports(process(1), None, now), Some(address));
        assert!(processes.asks());
        assert!(processes.admits(process(1), now));
        assert!(!processes.admits(process(2), now));
        assert!(!processes.admits(process(3), now), "started again");
        // A newcomer that got in while the first one was away proves nothing by coming back.
        assert_eq!(processes.reports(process(2), None, now), None);
        assert!(!processes.asks());
        assert_eq!(processes.reports(process(4), None, now), None);
        assert_eq!(processes.reports(process(2), None, now), None);
    }

    #[test]
    fn others_are_let_in_after_a_while_and_a_newcomer_never() {
        let (mut processes, mut now) = (Processes::default(), crate::simulated::start());
        for number in [1, 2, 1] {
            processes.reports(process(number), None, now);
        }
        now += NEWCOMER_TIME - Duration::from_secs(1);
        assert!(!processes.admits(process(3), now), "and from then on again");
        now += NEWCOMER_TIME;
        assert!(processes.admits(process(3), now));
        assert!(!processes.admits(process(2), now));
    }

    #[test]
    fn three_that_take_turns_are_told_apart() {
        let (mut processes, now) = (Processes::default(), crate::simulated::start());
        for number in [1, 2, 3] {
            assert_eq!(processes.reports(process(number), None, now), None);
        }
        assert_eq!(processes.reports(process(1), None, now), Some(None));
        assert!(!processes.admits(process(3), now));
        assert!(!processes.admits(process(2), now));
    }
}
