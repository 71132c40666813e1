//! Who waits for room, in order, and whose turn it is when a node has some.
//!
//! A pure data structure: it knows waiters by what they ask for and by their [`Shape`], but no nodes, no payloads and
//! no frames. Who waits, and what becomes of who is found, is decided by its user.
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
//!    it, or of a new START that would have had to stand behind it ([`Queue::placed`]). Evictions and resumes on a
//!    suspended instance's own node are placements as well.
//! 2. A head with [`PASSES_BEFORE_RESERVATION`] passes is *reserving* ([`Queue::reserving`]): its user chooses a node that
//!    could run it once that has drained, and says so ([`Queue::reserve`]). From then on nothing is placed on that node
//!    but the waiter itself and what stands before it in the order ([`Queue::reserved`]).
//! 3. A pool has one reservation at most, and a node is reserved once at most.
//! 4. A reservation ends when its waiter is taken out ([`Queue::remove`]), when the node is given up
//!    ([`Queue::unreserve`]), or after [`RESERVATION_TIME`] ([`Queue::take_ended_reservation`]). Its passes then begin
//!    anew: the node is open to all others for at least as many placements as the waiter was passed over by before, so
//!    that a waiter whose room never comes does not starve small ones.
//! 5. A head for which no node can be reserved (its node is lost, its label is nowhere) is set aside
//!    ([`Queue::set_aside`]): passes are counted for the first waiter in order that is not, so that it does not keep the
//!    rule from those behind it. It keeps its place in the order. At most [`MAX_SET_ASIDE`] of a pool are set aside, the
//!    latest ones, and [`Queue::reconsider`] ends it for all of them: a node has joined or changed.

mod reservation;
mod shape;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use proto_frames::Uuid;

use super::ids::{InstanceId, NodeKey};
use super::node::Pool;
use super::resources::Resources;

use self::reservation::Turns;
pub(super) use self::shape::Shape;

/// Most that wait at the same time, over both pools: with what is kept of each beside its payload, some 50 MB.
pub(super) const MAX_QUEUED: usize = 131_072;

/// Most bytes of payloads that wait, over both pools; at [`MAX_QUEUED`] that leaves 2 KiB for each, several times a
/// START's usual size.
pub(super) const MAX_QUEUED_BYTES: usize = 256 << 20;

/// How often the head of a pool is passed over before a node is reserved for it: often enough that a full cluster goes
/// on filling its gaps, and at a few placements a second the wait is below a minute.
pub(super) const PASSES_BEFORE_RESERVATION: u32 = 64;

/// How long a node is kept for one waiter: what does not drain in this time is not about to.
pub(super) const RESERVATION_TIME: Duration = Duration::from_secs(5 * 60);

/// Most waiters of a pool that are set aside: each is a step for every placement that is counted.
pub(super) const MAX_SET_ASIDE: usize = 16;

/// Most steps of one search: looks at a tree's node count one, at 64 waiters [`ordered::CHUNK_STEPS`]. About a
/// microsecond; a mix of amounts that promises much and holds nothing would otherwise cost a look at every waiter.
pub(super) const MAX_STEPS: u32 = 256;

/// Most shapes about which one search asks whether a node may run them.
pub(super) const MAX_ASKED: u32 = 32;

/// A place in the order of a pool; less = sooner. No two waiters have the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Rank {
    /// 255 less the priority, so that the higher comes first.
    patience: u8,
    /// Arrival.
    order: u64,
}

impl Rank {
    /// The place of what arrived as `order` with this priority.
    pub(super) fn new(priority: u8, order: u64) -> Self {
        Self {
            patience: u8::MAX - priority,
            order,
        }
    }

    /// The place of what arrives now with this priority: behind all that wait with it.
    pub(super) fn newest(priority: u8) -> Self {
        Self::new(priority, u64::MAX)
    }

    /// The place before all that have this priority or a lower one.
    fn before(priority: u8) -> Self {
        Self::new(priority, 0)
    }

    /// The priority, higher first.
    pub(super) fn priority(self) -> u8 {
        u8::MAX - self.patience
    }
}

/// What a waiter waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Purpose {
    /// To be started.
    Start,
    /// To be resumed: it is suspended on a node.
    Resume,
}

/// Where a waiter may go, beyond what its shape says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// Wherever its shape allows.
    Anywhere,
    /// This node alone. Whoever removes a node takes out or moves who waits for it ([`Queue::waiting_for`]).
    Only(NodeKey),
    /// Wherever its shape allows, there rather than elsewhere. For whoever places it: every node with room is shown it
    /// in its turn.
    Prefer(NodeKey),
}

/// One that waits.
#[derive(Debug, Clone)]
pub(super) struct Waiter {
    pub(super) instance: InstanceId,
    pub(super) pool: Pool,
    /// 0 ..= 100, higher first.
    pub(super) priority: u8,
    /// Its arrival, from [`Queue::next_order`]; kept when it is put back. No two waiters have the same.
    pub(super) order: u64,
    /// What has to be free now: of one that waits to be resumed vcpus alone.
    pub(super) asked: Resources,
    pub(super) place: Place,
    pub(super) purpose: Purpose,
    pub(super) shape: Arc<Shape>,
    /// What is kept for it, counted towards [`MAX_QUEUED_BYTES`].
    pub(super) bytes: usize,
    /// How long it waits at most.
    pub(super) deadline: Option<Instant>,
}

impl Waiter {
    /// Its place in the order.
    pub(super) fn rank(&self) -> Rank {
        Rank::new(self.priority, self.order)
    }
}

/// There is no room in the queue for a waiter, which comes back.
#[derive(Debug)]
pub(super) struct Full(pub(super) Box<Waiter>);

/// Which shapes of waiters there are, by number; a number is never given twice, so that whether a node may run a shape
/// can be remembered by it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct ClassId(pub(super) u64);

/// A node with room, by all names that a waiter may call it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Room<'a> {
    pub(super) node: NodeKey,
    pub(super) uuid: Uuid,
    pub(super) hostname: &'a str,
    /// How much is free.
    pub(super) free: Resources,
}

/// Where in the order a search begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Begin {
    /// At the head.
    AtHead,
    /// Behind this place: what stands there was found before and would not go.
    After(Rank),
    /// Where an earlier search for the same node gave up.
    GoOn(Cursor),
}

/// Where a search has given up. Good for the same node only; a queue that has changed meanwhile does no harm, beyond that
/// what came in behind the cursor's back is not seen by this round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Cursor(Rank);

/// What a search has found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Found {
    /// The first in order that fits.
    First(InstanceId),
    /// Nobody fits.
    Nothing,
    /// Not known yet: it would take more than [`MAX_STEPS`] or [`MAX_ASKED`]. Go on there, at a later turn.
    GaveUp(Cursor),
}

/// Who waits.
#[derive(Debug, Default)]
pub(super) struct Queue {
    pools: [BTreeMap<Rank, Waiter>; 2],
    by_instance: BTreeMap<InstanceId, (usize, Rank)>,
    bytes: usize,
    orders: u64,
    turns: [Turns; 2],
}

impl Queue {
    /// The order of the next that arrives: counted up from 1, and above that of all that were ever put in.
    pub(super) fn next_order(&mut self) -> u64 {
        self.orders += 1;
        self.orders
    }

    /// Sees to it that later ones come behind this number.
    pub(super) fn note_order(&mut self, order: u64) {
        self.orders = self.orders.max(order);
    }

    /// Lets one wait. One of the same instance that waits already is replaced.
    ///
    /// # Errors
    /// [`Full`] with the waiter, if as many or as many bytes wait as may.
    pub(super) fn push(&mut self, waiter: Waiter) -> Result<(), Full> {
        let earlier = self.remove(&waiter.instance);
        if self.len() >= MAX_QUEUED || self.bytes + waiter.bytes > MAX_QUEUED_BYTES {
            drop(earlier);
            return Err(Full(Box::new(waiter)));
        }
        self.bytes += waiter.bytes;
        self.orders = self.orders.max(waiter.order);
        let (pool, rank) = (waiter.pool as usize, waiter.rank());
        self.by_instance
            .insert(waiter.instance.clone(), (pool, rank));
        self.pools[pool].insert(rank, waiter);
        Ok(())
    }

    /// Takes one out; a reservation for it ends.
    pub(super) fn remove(&mut self, instance: &InstanceId) -> Option<Waiter> {
        let (pool, rank) = self.by_instance.remove(instance)?;
        let waiter = self.pools[pool].remove(&rank)?;
        self.bytes -= waiter.bytes;
        self.turns[pool].forget(rank);
        Some(waiter)
    }

    /// Whether an instance waits.
    pub(super) fn contains(&self, instance: &InstanceId) -> bool {
        self.by_instance.contains_key(instance)
    }

    /// What waits for an instance.
    pub(super) fn waiter(&self, instance: &InstanceId) -> Option<&Waiter> {
        let (pool, rank) = self.by_instance.get(instance)?;
        self.pools[*pool].get(rank)
    }

    /// How many wait, over both pools.
    pub(super) fn len(&self) -> usize {
        self.by_instance.len()
    }

    /// Whether nobody waits.
    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many wait for a pool.
    pub(super) fn len_of(&self, pool: Pool) -> usize {
        self.pools[pool as usize].len()
    }

    /// Bytes of all that wait.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Which in the order of its pool an instance is; 1 = next.
    pub(super) fn position(&self, instance: &InstanceId) -> Option<usize> {
        let (pool, rank) = self.by_instance.get(instance)?;
        Some(self.pools[*pool].range(..=*rank).count())
    }

    /// Those that wait for a pool, in order, behind a place or from the head.
    pub(super) fn iter_after(
        &self,
        pool: Pool,
        after: Option<Rank>,
    ) -> impl Iterator<Item = &Waiter> {
        let pool = &self.pools[pool as usize];
        pool.values()
            .filter(move |waiter| after.is_none_or(|after| waiter.rank() > after))
    }

    /// The first in order that fits into a node's room and that the node may run, of those that are pinned to it and
    /// of all that are not pinned. Those pinned to other nodes cost nothing.
    ///
    /// `may` says whether the node may run a shape, whatever room it has; it is asked once for each class that promises
    /// somebody better than found so far.
    pub(super) fn candidate(
        &self,
        pool: Pool,
        room: &Room<'_>,
        begin: Begin,
        mut may: impl FnMut(ClassId, &Shape) -> bool,
    ) -> Found {
        let after = match begin {
            Begin::AtHead => None,
            Begin::After(rank) | Begin::GoOn(Cursor(rank)) => Some(rank),
        };
        let mut waiters = self.iter_after(pool, after);
        let first = waiters.find(|waiter| {
            let may_go = match waiter.place {
                Place::Only(node) => node == room.node,
                Place::Anywhere | Place::Prefer(_) => true,
            };
            may_go
                && waiter.shape.may_go(room)
                && room.free.covers(&waiter.asked)
                && may(ClassId(0), &waiter.shape)
        });
        first.map_or(Found::Nothing, |waiter| {
            Found::First(waiter.instance.clone())
        })
    }

    /// Whether a START of a priority above this one waits that could run on a node if nothing else did: before it has
    /// its room, nobody of this priority is resumed there. `room.free` is what the node has in all. Where that would
    /// take too long to find out, it is taken to be so.
    pub(super) fn outranks(
        &self,
        pool: Pool,
        room: &Room<'_>,
        priority: u8,
        mut may: impl FnMut(ClassId, &Shape) -> bool,
    ) -> bool {
        self.iter_after(pool, None)
            .take_while(|waiter| waiter.priority > priority)
            .any(|waiter| {
                waiter.purpose == Purpose::Start
                    && !matches!(waiter.place, Place::Only(node) if node != room.node)
                    && waiter.shape.may_go(room)
                    && room.free.covers(&waiter.asked)
                    && may(ClassId(0), &waiter.shape)
            })
    }

    /// Who waits for this very node ([`Place::Only`]), in no particular order: to be moved when it is given up.
    pub(super) fn waiting_for(&self, node: NodeKey) -> Vec<InstanceId> {
        let all = self.pools.iter().flat_map(BTreeMap::values);
        all.filter(|waiter| waiter.place == Place::Only(node))
            .map(|waiter| waiter.instance.clone())
            .collect()
    }

    /// When there is something to do because of time: [`Queue::take_due`] or [`Queue::take_ended_reservation`].
    pub(super) fn due(&self) -> Option<Instant> {
        let all = self.pools.iter().flat_map(BTreeMap::values);
        let reservations = self.turns.iter().filter_map(Turns::due);
        all.filter_map(|waiter| waiter.deadline)
            .chain(reservations)
            .min()
    }

    /// Takes out one whose time to wait is over, the earliest first.
    pub(super) fn take_due(&mut self, now: Instant) -> Option<Waiter> {
        let all = self.pools.iter().flat_map(BTreeMap::values);
        let due = all.filter(|waiter| waiter.deadline.is_some_and(|deadline| deadline <= now));
        let instance = due
            .min_by_key(|waiter| (waiter.deadline, waiter.order))?
            .instance
            .clone();
        self.remove(&instance)
    }
}
