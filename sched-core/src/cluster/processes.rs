//! Which processes of launchers have reported for a node. Each launcher draws a random *incarnation* when its process
//! starts, and names it in the first report of a connection. One that connects again, or was restarted, is the usual
//! case; but if a process comes back after another one has reported, both are alive: two machines with one state
//! directory, or with one UUID.
//!
//! ```text
//!  a ── b              a was restarted as b, or b is a copy: b takes its place
//!  a ── b ── a         b is the newcomer: it is refused while a is connected
//! ```
//!
//! What is done about it is in `workflow::twins`.

use core::net::SocketAddr;
use std::time::{Duration, Instant};

use sched_model::Uuid;

use super::Cluster;
use crate::api::ids::NodeKey;
use crate::api::input::Hello;

/// Processes that are remembered of a node, the latest ones: as many copies of one state directory are told apart.
const MAX_PROCESSES: usize = 8;

/// How long after a newcomer was found, or refused, unknown processes are refused as well while the first one is
/// connected: a service manager starts the newcomer again and again, as another process each time. Not for ever: a
/// machine that was replaced is let in once its predecessor's connection is noticed to be dead, or after this time.
pub(crate) const NEWCOMER_TIME: Duration = Duration::from_secs(600);

/// The processes that have reported for one node.
#[derive(Debug, Default)]
pub(crate) struct Processes {
    /// In the order in which they reported last; the last one is the one that does now.
    known: Vec<Process>,
    /// Until when those that are not known are refused.
    refusing_until: Option<Instant>,
}

/// One process of a launcher.
#[derive(Debug)]
struct Process {
    incarnation: Uuid,
    /// Where its latest connection came from, for the log.
    address: Option<SocketAddr>,
    /// Whether it came after another process that is still alive.
    is_newcomer: bool,
}

impl Processes {
    /// A process reports. If this proves that there are two, because it comes back after another one, returns where the
    /// other one, the newcomer, connected from.
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
            self.refusing_until = Some(now + NEWCOMER_TIME);
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

    /// Whether two processes were found not long ago: either may be the next to connect.
    pub(super) fn are_two(&self, now: Instant) -> bool {
        self.refusing_until.is_some_and(|until| now < until)
    }

    /// Whether this process is the one that reported last.
    fn is_latest(&self, incarnation: Uuid) -> bool {
        let latest = self.known.last();
        latest.is_some_and(|latest| latest.incarnation == incarnation)
    }

    /// Whether a further connection has to name its process before it takes the place of the present one: newcomers
    /// were found, and the present one was there first.
    fn asks(&self) -> bool {
        let is_first = self.known.last().is_some_and(|latest| !latest.is_newcomer);
        is_first && self.refusing_until.is_some()
    }

    /// Whether a process may take the place of the one that reports now. A refusal prolongs the time for which unknown
    /// processes are refused.
    fn admits(&mut self, incarnation: Uuid, now: Instant) -> bool {
        let is_refusing = self.refusing_until.is_some_and(|until| now < until);
        let admits = match self.position(incarnation) {
            Some(at) if at + 1 == self.known.len() => true,
            Some(at) => !self.known[at].is_newcomer && !is_refusing,
            None => !is_refusing,
        };
        if !admits {
            self.refusing_until = Some(now + NEWCOMER_TIME);
        }
        admits
    }

    /// Where a process is in `known`.
    fn position(&self, incarnation: Uuid) -> Option<usize> {
        let mut known = self.known.iter();
        known.position(|process| process.incarnation == incarnation)
    }
}

impl Cluster {
    /// A process of a launcher reports for a node. If that proves that there are two, returns the addresses of the
    /// newcomer and of the first.
    pub(crate) fn process_reports(
        &mut self,
        key: NodeKey,
        incarnation: Uuid,
        now: Instant,
    ) -> Option<(Option<SocketAddr>, Option<SocketAddr>)> {
        let node = self.nodes.node_mut(key);
        if node.processes.is_latest(incarnation) {
            node.ledger.settle_contested();
        }
        let newcomer = node.processes.reports(incarnation, node.address, now)?;
        Some((newcomer, node.address))
    }

    /// The node for which a connection has to name its process before it takes the place of the present one; `None` if
    /// it need not.
    pub(crate) fn asks_process(&self, hello: &Hello) -> Option<NodeKey> {
        let key = self.nodes.by_uuid(hello.uuid)?;
        let node = self.nodes.node(key);
        (node.session().is_some() && node.processes.asks()).then_some(key)
    }

    /// Whether the process of a connection may take the place of the present connection, if there is one.
    ///
    /// # Errors
    /// The address of the launcher that stays.
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
    fn a_returning_process_is_admitted_and_the_newcomer_refused() {
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
