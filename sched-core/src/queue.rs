//! Who waits for room, in order, and whose turn it is when a node has some.
//!
//! A pure data structure: it knows waiters by what they ask for and by their [`Shape`], but no nodes, no payloads and
//! no frames. Who waits, and what becomes of who is found, is decided by its user.
//!
//! A node that offers more is *awake* ([`Queue::wake`]), and the queue is asked about it at the end of that input
//! ([`Queue::next_awake`]): no one looks through the queue. What makes no node offer more is found by looking at a few of
//! those that wait every second ([`Queue::begin_sweep`]).
//!
//! # The order
//!
//! Waiters of a pool stand by priority, higher first, and within a priority in order of arrival ([`Rank`]). Who is taken
//! out and put back with the order it had stands where it stood.
//!
//! A node with room takes the first waiter in that order that fits into it ([`Queue::candidate`]). Those before it that
//! do not fit are passed over: room that is too small for them would otherwise stand empty.
//!
//! # The rule against starvation
//!
//! Small waiters that pass a big one over take away the room that would have become enough for it. So:
//!
//! 1. Each placement that passes over the head of a pool counts one *pass* for the head: of a waiter that stands behind
//!    it, or of a new START that would have had to stand behind it ([`Queue::placed`]). Whether that found its room free,
//!    evicted others or was resumed makes no difference.
//! 2. A head with [`PASSES_BEFORE_RESERVATION`] passes is *reserving* ([`Queue::reserving`]): its user chooses a node that
//!    could run it once that has drained, and says so ([`Queue::reserve`]). From then on nothing is placed on that node
//!    but the waiter itself and what stands before it in the order ([`Queue::is_open`]).
//! 3. A pool has one reservation at most, and a node is reserved once at most.
//! 4. A reservation ends when its waiter is taken out ([`Queue::remove`]), when the node is given up
//!    ([`Queue::unreserve`]), or after [`RESERVATION_TIME`] ([`Queue::take_ended_reservation`]). Its passes then begin
//!    again: the node is open to all others for at least as many placements as the waiter was passed over by before, so
//!    that a waiter whose room never comes does not starve small ones.
//! 5. A head for which no node can be reserved (its node is lost, its label is nowhere) is parked
//!    ([`Queue::park`]): passes are counted for the first waiter in order that is not, so that it does not keep the
//!    rule from those behind it. It keeps its place in the order. At most [`MAX_PARKED`] of a pool are parked, the
//!    latest ones, and [`Queue::reconsider`] ends it for all of them: a node has joined or changed.

mod awake;
mod bunch;
mod consistent;
mod dues;
mod line;
mod ordered;
mod preemptions;
mod rank;
mod reservation;
mod rule;
mod search;
mod shape;
mod summary;
mod sweep;
#[cfg(test)]
mod tests;
mod together;
mod waiter;

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use sched_model::Uuid;

use self::awake::Awake;
use self::line::Line;
use self::preemptions::Preemptions;
use self::rank::Key;
use self::rule::ReservationRule;
use self::search::{Round, SearchRange, Walk, Whom};
use self::sweep::Sweep;

use crate::api::cause::Cause;
use crate::api::ids::{InstanceId, NodeKey};
use crate::api::resources::Resources;
use crate::cluster::Cluster;
use crate::cluster::node::{NodeStatus, Pool};
use crate::maps::Map;
use crate::slots::Slots;

pub(crate) use self::rank::Rank;
pub(crate) use self::shape::Shape;
pub(crate) use self::waiter::{AllowedNodes, Purpose, Waiter};

/// Most that wait at the same time, over both pools: with what is kept of each beside its payload, some 50 MB.
pub(crate) const MAX_QUEUED: usize = 131_072;

/// Most bytes of payloads that wait, over both pools; at [`MAX_QUEUED`] that leaves 2 KiB for each, several times a
/// START's usual size.
pub(crate) const MAX_QUEUED_BYTES: usize = 256 << 20;

/// Most that wait at the same time of what operators sent, so that controllers always find room.
pub(crate) const MAX_QUEUED_OF_OPERATORS: usize = MAX_QUEUED / 4 * 3;

/// Most bytes of those.
pub(crate) const MAX_QUEUED_BYTES_OF_OPERATORS: usize = MAX_QUEUED_BYTES / 4 * 3;

/// How often the head of a pool is passed over before a node is reserved for it: often enough that a full cluster goes
/// on filling its gaps, and at a few placements a second the wait is below a minute.
pub(crate) const PASSES_BEFORE_RESERVATION: u32 = 64;

/// How long a node is kept for one waiter: what does not drain in this time is not about to.
pub(crate) const RESERVATION_TIME: Duration = Duration::from_secs(5 * 60);

/// Most waiters of a pool that are parked: each is a step for every placement that is counted.
pub(crate) const MAX_PARKED: usize = 16;

/// Most steps of one search: a look at a tree's node counts one, at a chunk of 64 waiters 24. Below a microsecond in one
/// class; a mix of amounts that promises much and holds nothing would otherwise cost a look at every waiter.
pub(crate) const MAX_STEPS: u32 = 256;

/// Most shapes about which one search asks whether a node may run them.
pub(crate) const MAX_ASKED: u32 = 32;

/// Rounds in which [`Queue::outranks`] looks for its answer: it is asked far less often than [`Queue::candidate`].
const OUTRANKS_ROUNDS: usize = 16;

/// There is no room in the queue for a waiter.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Full;

/// A class of waiters of one shape, by number; a number is never given twice, so that whether a node may run the shape can
/// be remembered by it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct ClassId(pub(crate) u64);

/// A node with room, by all names that a waiter may call it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Room<'a> {
    pub(crate) node: NodeKey,
    pub(crate) uuid: Uuid,
    pub(crate) hostname: &'a str,
    /// How much is free.
    pub(crate) free: Resources,
}

impl<'a> Room<'a> {
    /// A node as the queue sees it.
    pub(crate) fn on(cluster: &'a Cluster, key: NodeKey) -> Self {
        let node = cluster.node(key);
        Self {
            node: key,
            uuid: node.uuid(),
            hostname: node.hostname(),
            free: cluster.free(key),
        }
    }

    /// The same when it is served: of one that called itself full, what was released since.
    pub(crate) fn to_serve(cluster: &'a Cluster, key: NodeKey) -> Self {
        let mut room = Self::on(cluster, key);
        if cluster.node(key).status() == NodeStatus::Full {
            room.free = cluster.released(key);
        }
        room
    }
}

/// Where in the order a search begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Begin {
    /// At the head.
    AtHead,
    /// Behind this place: what stands there was found before and would not go.
    After(Rank),
    /// Where an earlier search for the same node gave up.
    GoOn(Cursor),
}

/// Where a search has given up. Good for the same node only. A queue that has changed meanwhile does no harm: who came in
/// where this search has looked already is not found by it, but by the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Cursor {
    /// Which of the bunches that concern the node.
    bunch: u8,
    /// Which class of it.
    seat: u32,
    /// Where in the class.
    within: Key,
    /// The best found so far.
    best: Option<Key>,
    /// Where the search began.
    from: Key,
}

/// What a search has found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Found {
    /// The first in order that fits.
    First(InstanceId),
    /// No one fits.
    Nothing,
    /// Not known yet: it would take more than [`MAX_STEPS`] or [`MAX_ASKED`]. Go on there, at a later turn.
    GaveUp(Cursor),
}

/// Who waits, for whom nodes are reserved, which nodes those who wait are still to be asked about, and who is preempted.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    waiting: Slots<Waiting>,
    by_instance: Map<InstanceId, u32>,
    /// Those of the compute and the network pool.
    lines: [Line; 2],
    rules: [ReservationRule; 2],
    /// Deadlines, the earliest first.
    deadlines: BTreeSet<(Instant, Key)>,
    bytes: usize,
    /// How many of operators wait, and their bytes.
    of_operators: (usize, usize),
    /// The highest order there ever was.
    orders: u64,
    awake: Awake,
    sweep: Sweep,
    preemptions: Preemptions,
    together: Vec<(InstanceId, Cause)>,
}

/// A waiter, and where it is kept.
#[derive(Debug)]
struct Waiting {
    waiter: Waiter,
    class: u32,
}

impl Queue {
    /// The order of the next that arrives: counted up from 1, and above that of all that were ever put in.
    pub(crate) fn next_order(&mut self) -> u64 {
        self.orders += 1;
        self.orders
    }

    /// The first of so many orders that follow each other, one at least.
    pub(crate) fn next_orders(&mut self, count: u32) -> u64 {
        let first = self.next_order();
        self.orders += u64::from(count.saturating_sub(1));
        first
    }

    /// Sees to it that later ones come behind this number.
    pub(crate) fn note_order(&mut self, order: u64) {
        self.orders = self.orders.max(order);
    }

    /// Lets one wait. One of the same instance that waits already is replaced.
    ///
    /// # Errors
    /// [`Full`], if as many or as many bytes wait as may; then one of the same instance still waits.
    pub(crate) fn push(&mut self, waiter: Waiter) -> Result<(), Full> {
        if !self.has_room_for(&waiter) {
            return Err(Full);
        }
        self.push_unlimited(waiter);
        Ok(())
    }

    /// Whether the limits of the queue allow this waiter, in place of one of the same instance.
    fn has_room_for(&self, waiter: &Waiter) -> bool {
        let earlier = self.waiter(&waiter.instance);
        let (count, bytes) = earlier.map_or((0, 0), |earlier| (1, earlier.bytes));
        let held = (self.bytes - bytes).saturating_add(waiter.bytes);
        if self.len() - count >= MAX_QUEUED || held > MAX_QUEUED_BYTES {
            return false;
        }
        if !waiter.is_operators {
            return true;
        }
        let earlier = earlier.filter(|earlier| earlier.is_operators);
        let (count, bytes) = earlier.map_or((0, 0), |earlier| (1, earlier.bytes));
        let (waiting, held) = self.of_operators;
        let held = (held - bytes).saturating_add(waiter.bytes);
        waiting - count < MAX_QUEUED_OF_OPERATORS && held <= MAX_QUEUED_BYTES_OF_OPERATORS
    }

    /// Lets one wait that must not fail because others wait: an instance that has run, or whose START was accepted before
    /// the scheduler was restarted. It counts, but its own limit is that of all managed instances,
    /// [`MAX_MANAGED_BYTES`](crate::MAX_MANAGED_BYTES).
    pub(crate) fn push_unlimited(&mut self, mut waiter: Waiter) {
        self.remove(&waiter.instance);
        self.bytes += waiter.bytes;
        if waiter.is_operators {
            self.of_operators.0 += 1;
            self.of_operators.1 += waiter.bytes;
        }
        self.orders = self.orders.max(waiter.order);
        let number = self.waiting.next();
        let key = Key::new(waiter.rank(), number);
        if let Some(deadline) = waiter.deadline {
            self.deadlines.insert((deadline, key));
        }
        self.by_instance.insert(waiter.instance.clone(), number);
        let class = self.lines[waiter.pool as usize].insert(key, &mut waiter);
        self.waiting.insert(Waiting { waiter, class });
    }

    /// Takes one out; a reservation for it ends.
    pub(crate) fn remove(&mut self, instance: &InstanceId) -> Option<Waiter> {
        let number = self.by_instance.swap_remove(instance)?;
        let Waiting { waiter, class } = self.waiting.remove(number)?;
        let key = Key::new(waiter.rank(), number);
        self.lines[waiter.pool as usize].remove(key, class);
        self.rules[waiter.pool as usize].forget(waiter.rank());
        if let Some(deadline) = waiter.deadline {
            self.deadlines.remove(&(deadline, key));
        }
        self.bytes -= waiter.bytes;
        if waiter.is_operators {
            self.of_operators.0 -= 1;
            self.of_operators.1 -= waiter.bytes;
        }
        if self.is_empty() {
            // A burst of waiters is not paid for for ever.
            self.by_instance = Map::default();
        }
        Some(waiter)
    }

    /// Whether an instance waits.
    pub(crate) fn contains(&self, instance: &InstanceId) -> bool {
        self.by_instance.contains_key(instance)
    }

    /// What waits for an instance.
    pub(crate) fn waiter(&self, instance: &InstanceId) -> Option<&Waiter> {
        let number = self.by_instance.get(instance)?;
        self.waiting.at(*number).map(|waiting| &waiting.waiter)
    }

    /// Whether one that waits does not come before a limit in the order.
    pub(crate) fn is_past(&self, instance: &InstanceId, limit: Option<Rank>) -> bool {
        let waiter = self.waiter(instance);
        limit.is_some_and(|limit| waiter.is_some_and(|it| it.rank() >= limit))
    }

    /// How many wait, over both pools.
    pub(crate) fn len(&self) -> usize {
        self.by_instance.len()
    }

    /// Places in its table.
    #[cfg(any(test, feature = "test-support"))]
    pub(crate) fn capacity(&self) -> usize {
        self.by_instance.capacity() + self.waiting.end()
    }

    /// Whether no one waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many wait for a pool.
    #[cfg(test)]
    pub(crate) fn len_of(&self, pool: Pool) -> usize {
        self.lines[pool as usize].order.len()
    }

    /// Bytes of all that wait.
    #[cfg(test)]
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Which in the order of its pool an instance is; 1 = next.
    pub(crate) fn position(&self, instance: &InstanceId) -> Option<usize> {
        let &number = self.by_instance.get(instance)?;
        let waiter = &self.waiting.at(number)?.waiter;
        let key = Key::new(waiter.rank(), number);
        Some(self.lines[waiter.pool as usize].order.count_before(key) + 1)
    }

    /// Those that wait for a pool, in order, behind a place or from the head.
    pub(crate) fn iter_after(
        &self,
        pool: Pool,
        after: Option<Rank>,
    ) -> impl Iterator<Item = &Waiter> {
        let from = after.map_or(Key::FIRST, Key::behind);
        let keys = self.lines[pool as usize].order.iter_from(from);
        keys.filter_map(|key| self.by_key(key))
    }

    /// The first in order that fits into a node's room and that the node may run, of those that are pinned to it and
    /// of all that are not pinned. Those pinned to other nodes cost nothing.
    ///
    /// `may` says whether the node may run a shape, whatever room it has; it is asked only about those that promise
    /// somebody better than found so far, and as a rule once about each.
    pub(crate) fn candidate(
        &self,
        pool: Pool,
        room: &Room<'_>,
        begin: Begin,
        may: impl FnMut(ClassId, &Shape) -> bool,
    ) -> Found {
        let sought = |from| SearchRange {
            from,
            before: Key::LAST,
            whom: Whom::First,
        };
        let walk = |from| Walk::new(&self.lines[pool as usize], room, sought(from), may);
        let round = match begin {
            Begin::AtHead => walk(Key::FIRST).begin(),
            Begin::After(rank) => walk(Key::behind(rank)).begin(),
            Begin::GoOn(cursor) if self.is_good(&cursor, room) => walk(cursor.from).go_on(cursor),
            // Who ruled others out has gone, or the room for it.
            Begin::GoOn(cursor) => walk(cursor.from).begin(),
        };
        match round {
            Round::GaveUp(cursor) => Found::GaveUp(cursor),
            Round::Done(found) => match found.and_then(|key| self.by_key(key)) {
                Some(waiter) => Found::First(waiter.instance.clone()),
                None => Found::Nothing,
            },
        }
    }

    /// Whether a START of a priority above this one waits that could run on a node if nothing else did: before it has
    /// its room, no one of this priority is resumed there. `room.free` is what the node has in all. Where that would
    /// take too long to find out, it is taken to be so.
    pub(crate) fn outranks(
        &self,
        pool: Pool,
        room: &Room<'_>,
        priority: u8,
        mut may: impl FnMut(ClassId, &Shape) -> bool,
    ) -> bool {
        let sought = SearchRange {
            from: Key::FIRST,
            before: Key::before(Rank::before(priority)),
            whom: Whom::AnyStart,
        };
        let line = &self.lines[pool as usize];
        let mut round = Walk::new(line, room, sought, &mut may).begin();
        for _ in 1..OUTRANKS_ROUNDS {
            match round {
                Round::Done(found) => return found.is_some(),
                Round::GaveUp(cursor) => {
                    round = Walk::new(line, room, sought, &mut may).go_on(cursor);
                }
            }
        }
        !matches!(round, Round::Done(None))
    }

    /// Who waits to be resumed on a node and asks for no more than these vcpus, first in order first.
    pub(crate) fn resumable(&self, node: NodeKey, vcpus: i64) -> Vec<InstanceId> {
        let keys = self.lines.iter().flat_map(|line| line.waiting_for(node));
        let waiters = keys.filter_map(|key| self.by_key(key));
        let fits = |it: &&Waiter| it.purpose == Purpose::Resume && it.asked.vcpus <= vcpus;
        let mut fitting: Vec<&Waiter> = waiters.filter(fits).collect();
        fitting.sort_unstable_by_key(|waiter| waiter.rank());
        let instances = fitting.into_iter();
        instances.map(|waiter| waiter.instance.clone()).collect()
    }

    /// Who waits for this very node ([`AllowedNodes::Only`]), in no particular order: to be moved when it is given up.
    pub(crate) fn waiting_for(&self, node: NodeKey) -> Vec<InstanceId> {
        let keys = self.lines.iter().flat_map(|line| line.waiting_for(node));
        keys.filter_map(|key| self.by_key(key))
            .map(|waiter| waiter.instance.clone())
            .collect()
    }

    /// The waiter in a place, if it still is there.
    fn by_key(&self, key: Key) -> Option<&Waiter> {
        let waiter = &self.waiting.at(key.number)?.waiter;
        (Key::new(waiter.rank(), key.number) == key).then_some(waiter)
    }

    /// Whether the best that a cursor knows of still is.
    fn is_good(&self, cursor: &Cursor, room: &Room<'_>) -> bool {
        cursor.best.is_none_or(|key| {
            self.by_key(key)
                .is_some_and(|waiter| room.free.covers(&waiter.asked))
        })
    }
}
