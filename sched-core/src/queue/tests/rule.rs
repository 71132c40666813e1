//! The rule against starvation, point by point, and in a small world.

use super::super::{
    Begin, Found, MAX_PARKED, PASSES_BEFORE_RESERVATION, Queue, RESERVATION_TIME, Rank, Waiter,
};
use super::{amounts, epoch, instance, queue_of, room, waiter};
use crate::api::ids::{InstanceId, NodeKey};
use crate::api::resources::Resources;
use crate::cluster::node::Pool;

const POOL: Pool = Pool::Compute;

const NODE: NodeKey = NodeKey(0);

fn pass(queue: &mut Queue, placed: Rank, times: u32) {
    for _ in 0..times {
        queue.placed(POOL, placed);
    }
}

fn reserving(queue: &Queue) -> Option<InstanceId> {
    queue.reserving(POOL).map(|waiter| waiter.instance.clone())
}

/// Some that wait, of priority 5, numbered from 1.
fn waiting(count: u64) -> Queue {
    queue_of((1..=count).map(|order| waiter(order, 5, amounts(8, 1, 1))))
}

#[test]
fn a_head_that_is_passed_over_often_enough_is_reserving() {
    let mut queue = waiting(2);
    pass(&mut queue, Rank::newest(5), PASSES_BEFORE_RESERVATION - 1);
    assert_eq!(reserving(&queue), None);
    pass(&mut queue, Rank::new(5, 2), 1);
    assert_eq!(reserving(&queue), Some(instance(1)));
}

#[test]
fn a_placement_that_stands_before_the_head_is_no_pass() {
    let mut queue = waiting(1);
    pass(&mut queue, Rank::newest(6), 1_000);
    assert_eq!(reserving(&queue), None);
    pass(&mut queue, Rank::newest(0), PASSES_BEFORE_RESERVATION);
    assert_eq!(reserving(&queue), Some(instance(1)));
    assert!(queue.reserving(Pool::Network).is_none());
}

#[test]
fn a_pool_has_one_reservation_and_a_node_is_kept_for_one() {
    let mut queue = waiting(2);
    let of_network = Waiter {
        pool: Pool::Network,
        ..waiter(3, 5, Resources::ZERO)
    };
    queue.push(of_network).unwrap();
    assert!(queue.reserve(&instance(1), NODE, epoch()));
    assert!(
        !queue.reserve(&instance(2), NodeKey(1), epoch()),
        "one a pool"
    );
    assert!(!queue.reserve(&instance(3), NODE, epoch()), "one a node");
    assert!(!queue.reserve(&instance(9), NodeKey(2), epoch()), "nobody");
    assert!(queue.reserve(&instance(3), NodeKey(1), epoch()));
    assert_eq!(queue.reserved(NODE), Some(&instance(1)));
    assert_eq!(queue.reserved(NodeKey(1)), Some(&instance(3)));
    assert_eq!(queue.reserved(NodeKey(2)), None);
    assert_eq!(queue.reservation(POOL), Some((&instance(1), NODE)));
    assert!(
        queue.is_open(NODE, POOL, Rank::new(5, 1)),
        "to the waiter itself"
    );
    assert!(
        queue.is_open(NODE, POOL, Rank::newest(6)),
        "to what stands before it"
    );
    assert!(!queue.is_open(NODE, POOL, Rank::new(5, 2)));
    assert!(
        !queue.is_open(NODE, Pool::Network, Rank::newest(9)),
        "another order"
    );
    assert!(queue.is_open(NodeKey(2), POOL, Rank::newest(0)));
    queue.invariants().unwrap();
}

#[test]
fn a_reservation_ends_with_its_waiter() {
    let mut queue = waiting(2);
    pass(&mut queue, Rank::newest(5), PASSES_BEFORE_RESERVATION);
    assert!(queue.reserve(&instance(1), NODE, epoch()));
    assert_eq!(reserving(&queue), None, "it has its node");
    assert!(queue.remove(&instance(1)).is_some());
    assert_eq!(queue.reserved(NODE), None);
    assert_eq!(queue.reservation_due(), None);
    assert_eq!(
        reserving(&queue),
        None,
        "nobody passed over the next one yet"
    );
    queue.invariants().unwrap();
}

#[test]
fn a_reservation_ends_after_its_time_and_its_passes_begin_again() {
    let (mut queue, now) = (waiting(1), epoch());
    pass(&mut queue, Rank::newest(5), PASSES_BEFORE_RESERVATION);
    assert!(queue.reserve(&instance(1), NODE, now));
    let end = now + RESERVATION_TIME;
    assert_eq!(queue.reservation_due(), Some(end));
    assert_eq!(queue.take_ended_reservation(now), None);
    pass(&mut queue, Rank::newest(5), 1_000);
    assert_eq!(queue.take_ended_reservation(end), Some(NODE));
    assert_eq!(queue.reserved(NODE), None);
    assert_eq!(reserving(&queue), None);
    pass(&mut queue, Rank::newest(5), PASSES_BEFORE_RESERVATION);
    assert_eq!(reserving(&queue), Some(instance(1)));
}

#[test]
fn a_node_that_is_given_up_is_kept_no_more() {
    let mut queue = waiting(1);
    assert!(queue.reserve(&instance(1), NODE, epoch()));
    assert_eq!(queue.unreserve(NodeKey(7)), None);
    assert_eq!(queue.unreserve(NODE), Some(instance(1)));
    assert_eq!(queue.reservation(POOL), None);
}

#[test]
fn a_head_that_no_node_can_be_kept_for_does_not_keep_the_rule_from_the_next() {
    let mut queue = waiting(2);
    pass(&mut queue, Rank::newest(5), PASSES_BEFORE_RESERVATION);
    queue.park(&instance(1));
    assert_eq!(reserving(&queue), None);
    pass(&mut queue, Rank::newest(5), PASSES_BEFORE_RESERVATION);
    assert_eq!(reserving(&queue), Some(instance(2)));
    assert_eq!(queue.position(&instance(1)), Some(1), "it keeps its place");
    queue.reconsider(POOL);
    assert_eq!(
        reserving(&queue),
        None,
        "the first counts again, from nothing"
    );
    pass(&mut queue, Rank::newest(5), PASSES_BEFORE_RESERVATION);
    assert_eq!(reserving(&queue), Some(instance(1)));
}

#[test]
fn the_latest_parked_waiters_are_remembered() {
    let many = MAX_PARKED as u64 + 1;
    let mut queue = waiting(many + 1);
    for number in 1..=many {
        queue.park(&instance(number));
        queue.park(&instance(number));
    }
    pass(&mut queue, Rank::newest(5), PASSES_BEFORE_RESERVATION);
    assert_eq!(reserving(&queue), Some(instance(1)));
    queue.invariants().unwrap();
}

#[test]
fn a_more_urgent_newcomer_is_counted_for_and_the_earlier_head_loses_nothing() {
    let mut queue = waiting(1);
    pass(&mut queue, Rank::newest(5), PASSES_BEFORE_RESERVATION - 1);
    queue.push(waiter(2, 9, amounts(8, 1, 1))).unwrap();
    pass(&mut queue, Rank::newest(5), 10);
    assert_eq!(reserving(&queue), None);
    queue.remove(&instance(2));
    pass(&mut queue, Rank::newest(5), 1);
    assert_eq!(reserving(&queue), Some(instance(1)));
}

/// One node with room for so many of the small ones, on which small ones end one after the other, and another of them
/// comes for each that ends.
struct SmallWorld {
    queue: Queue,
    free: i64,
    running: u64,
    placed_small: u64,
    placed_big: u64,
}

impl SmallWorld {
    const CAPACITY: i64 = 8;

    fn new() -> Self {
        Self {
            queue: Queue::default(),
            free: 0,
            running: Self::CAPACITY as u64,
            placed_small: 0,
            placed_big: 0,
        }
    }

    fn wait(&mut self, asked: i64) -> InstanceId {
        let order = self.queue.next_order();
        let waiter = waiter(order, 5, amounts(asked, 0, 0));
        let instance = waiter.instance.clone();
        self.queue.push(waiter).unwrap();
        instance
    }

    /// Places all that may be placed now.
    fn place(&mut self) {
        loop {
            let here = room(NODE.0, amounts(self.free, 0, 0));
            let found = self
                .queue
                .candidate(POOL, &here, Begin::AtHead, |_, _| true);
            let Found::First(next) = found else {
                return;
            };
            let rank = self.queue.waiter(&next).map(Waiter::rank).unwrap();
            if !self.queue.is_open(NODE, POOL, rank) {
                return;
            }
            let waiter = self.queue.remove(&next).unwrap();
            self.free -= waiter.asked.mem_mib;
            if waiter.asked.mem_mib > 1 {
                self.placed_big += 1;
            } else {
                self.running += 1;
                self.placed_small += 1;
            }
            self.queue.placed(POOL, waiter.rank());
            if let Some(head) = reserving(&self.queue) {
                assert!(self.queue.reserve(&head, NODE, epoch()));
            }
        }
    }

    /// One small one ends, if one runs, and another comes.
    fn turn(&mut self) {
        self.wait(1);
        if self.running > 0 {
            self.running -= 1;
            self.free += 1;
        }
        self.place();
    }
}

#[test]
fn a_big_one_comes_to_its_turn_between_small_ones() {
    let mut world = SmallWorld::new();
    world.wait(SmallWorld::CAPACITY);
    let mut turns = 0;
    while world.placed_big == 0 {
        world.turn();
        turns += 1;
        assert!(turns < 200, "it waits for ever");
    }
    assert_eq!(world.placed_small, u64::from(PASSES_BEFORE_RESERVATION));
}

#[test]
fn small_starts_are_placed_although_a_large_one_never_fits() {
    let mut world = SmallWorld::new();
    world.wait(SmallWorld::CAPACITY);
    // Something that never ends takes part of the node.
    world.running -= 1;
    for round in 1..=5 {
        for _ in 0..200 {
            world.turn();
        }
        assert_eq!(
            world.queue.reservation(POOL).map(|(_, node)| node),
            Some(NODE)
        );
        let end = epoch() + RESERVATION_TIME;
        assert_eq!(world.queue.take_ended_reservation(end), Some(NODE));
        world.place();
        let at_least = round * u64::from(PASSES_BEFORE_RESERVATION);
        assert!(
            world.placed_small >= at_least,
            "{} of {at_least}",
            world.placed_small
        );
    }
    assert_eq!(world.placed_big, 0);
}
