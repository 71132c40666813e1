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
//! Launchers of the original name no process. Of these two machines are told by how often their connections take each
//! other's place, and that they come from different hosts.
//!
//! What is done about it is in `workflow::twins`; that there are two is a condition (`query::conditions`) as long as there
//! are signs of it.

use core::net::SocketAddr;
use std::time::{Duration, Instant};

use sched_model::Uuid;

use super::Cluster;
use crate::api::ids::NodeKey;
use crate::api::input::Hello;
use crate::cluster::node::Node;

/// Processes that are remembered of a node, the latest ones: as many copies of one state directory are told apart.
const MAX_PROCESSES: usize = 8;

/// How long after a newcomer was found, or refused, unknown processes are refused as well while the first one is
/// connected: a service manager starts the newcomer again and again, as another process each time. Not for ever: a
/// machine that was replaced is let in once its predecessor's connection is noticed to be dead, or after this time.
pub const NEWCOMER_TIME: Duration = Duration::from_secs(600);

/// Connections of which none names its process that may take each other's place within [`REPLACED_WITHIN`] without
/// being of two machines: one that comes back after its network failed does so once, or a few times where the network
/// goes on failing.
pub const FREE_REPLACEMENTS: u32 = 3;

/// The time for which these are counted.
pub const REPLACED_WITHIN: Duration = Duration::from_secs(30);

/// The processes that have reported for one node.
#[derive(Debug, Clone, Default)]
pub(crate) struct Processes {
    /// In the order in which they reported last; the last one is the one that does now.
    known: Vec<Process>,
    /// Until when those that are not known are refused.
    refusing_until: Option<Instant>,
    /// How connections that name no process took each other's place; `None` where none did, which is nearly always.
    replaced: Option<Box<Replaced>>,
    /// Signs of two machines; `None` where there were none.
    signs: Option<Box<Signs>>,
}

/// Connections that took the place of others while those were alive.
#[derive(Debug, Clone)]
struct Replaced {
    /// Since when they are counted.
    since: Instant,
    times: u32,
    /// When one from another host than the one before did so last.
    moved: Option<Instant>,
}

/// That two machines have one UUID.
#[derive(Debug, Clone)]
struct Signs {
    /// The first one, with no time as long as [`NEWCOMER_TIME`] without one since.
    since: Instant,
    latest: Instant,
    /// Where the other of the two connected from, as far as is known.
    other: Option<SocketAddr>,
}

/// Two machines with the UUID of one node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TwoMachines {
    /// For how long that is known.
    pub(crate) for_time: Duration,
    /// Where the one whose connection counts connects from.
    pub(crate) here: Option<SocketAddr>,
    /// Where the other one did last.
    pub(crate) other: Option<SocketAddr>,
}

/// One process of a launcher.
#[derive(Debug, Clone)]
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
        if let Some(other) = found {
            self.sign(other, now);
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
            self.sign(None, now);
        }
        admits
    }

    /// A connection that names no process takes the place of another that is alive: `from` these addresses `to` those.
    /// Two machines do so again and again; one whose address changes does so once.
    pub(super) fn replaced(
        &mut self,
        from: Option<SocketAddr>,
        to: Option<SocketAddr>,
        now: Instant,
    ) {
        let is_elsewhere = from.zip(to).is_some_and(|(from, to)| from.ip() != to.ip());
        let replaced = self.replaced.get_or_insert_with(|| {
            Box::new(Replaced {
                since: now,
                times: 0,
                moved: None,
            })
        });
        if now.saturating_duration_since(replaced.since) >= REPLACED_WITHIN {
            (replaced.since, replaced.times) = (now, 0);
        }
        replaced.times = replaced.times.saturating_add(1);
        let before = replaced.moved.filter(|_| is_elsewhere);
        let moved_again =
            before.is_some_and(|it| now.saturating_duration_since(it) < NEWCOMER_TIME);
        if is_elsewhere {
            replaced.moved = Some(now);
        }
        if moved_again || replaced.times > FREE_REPLACEMENTS {
            self.sign(from, now);
        }
    }

    /// Notes a sign of two machines, of which the other was here.
    fn sign(&mut self, other: Option<SocketAddr>, now: Instant) {
        match &mut self.signs {
            Some(signs) if now.saturating_duration_since(signs.latest) < NEWCOMER_TIME => {
                signs.latest = now;
                signs.other = other.or(signs.other);
            }
            signs => {
                *signs = Some(Box::new(Signs {
                    since: now,
                    latest: now,
                    other,
                }));
            }
        }
    }

    /// Whether there was a sign of two machines not long ago: since when, and where the other was.
    fn signs(&self, now: Instant) -> Option<&Signs> {
        let signs = self.signs.as_deref();
        signs.filter(|it| now.saturating_duration_since(it.latest) < NEWCOMER_TIME)
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

impl Node {
    /// Two machines with the UUID of this node, where there was a sign of that within [`NEWCOMER_TIME`].
    pub(crate) fn two_machines(&self, now: Instant) -> Option<TwoMachines> {
        let signs = self.processes.signs(now)?;
        Some(TwoMachines {
            for_time: now.saturating_duration_since(signs.since),
            here: self.address,
            other: signs.other,
        })
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

    /// Whether connections from these hosts, so far apart, show that there are two machines.
    fn shows_two(hosts: &[u8], apart: Duration) -> bool {
        let (mut processes, mut now) = (Processes::default(), crate::simulated::start());
        for (at, pair) in hosts.windows(2).enumerate() {
            // Another port each time.
            let address = |host: u8, port: usize| format!("192.0.2.{host}:{port}").parse().ok();
            processes.replaced(address(pair[0], at + 1), address(pair[1], at + 2), now);
            now += apart;
        }
        processes.signs(now).is_some()
    }

    #[test]
    fn of_connections_that_name_no_process_it_counts_how_often_and_from_where_they_replace_each_other()
     {
        let (second, minute) = (Duration::from_secs(1), Duration::from_secs(60));
        assert!(!shows_two(&[1, 1, 1, 1], second), "its network fails");
        assert!(shows_two(&[1, 1, 1, 1, 1], second), "behind one address");
        assert!(!shows_two(&[1; 20], minute));
        assert!(!shows_two(&[1, 2], second), "it has another address");
        assert!(shows_two(&[1, 2, 1], minute));
        assert!(
            !shows_two(&[1, 2, 1], NEWCOMER_TIME),
            "hours later it is back at home"
        );
    }

    #[test]
    fn signs_of_two_machines_are_forgotten_after_a_quiet_time() {
        let (mut processes, begun) = (Processes::default(), crate::simulated::start());
        let (other, later) = (ADDRESS.parse().ok(), begun + NEWCOMER_TIME / 2);
        for number in [1, 2] {
            processes.reports(process(number), other, begun);
        }
        assert!(processes.signs(begun).is_none());
        processes.reports(process(1), None, begun);
        // The newcomer tries again: for as long as it does there are two.
        assert!(!processes.admits(process(2), later));
        let last = later + NEWCOMER_TIME - Duration::from_secs(1);
        let signs = processes.signs(last).expect("it is not long ago");
        assert_eq!((signs.since, signs.other), (begun, other));
        assert!(processes.signs(later + NEWCOMER_TIME).is_none());
    }
}
