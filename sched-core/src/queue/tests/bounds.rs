//! What is bounded stays within its bound, and still ends in the right answer.

use std::sync::Arc;

use super::super::{
    Begin, Found, Full, MAX_ASKED, MAX_QUEUED, MAX_QUEUED_BYTES, Queue, Rank, Shape, Waiter,
};
use super::{amounts, instance, label, labelled, queue_of, request, room, shape_of, waiter};
use crate::api::ids::InstanceId;
use crate::api::resources::Resources;
use crate::api::start::StartRequest;
use crate::cluster::node::Pool;

const POOL: Pool = Pool::Compute;

/// Asks round after round; what was found, in how many rounds, and how often a round asked about a shape at most.
fn rounds(
    queue: &Queue,
    free: Resources,
    may: impl Fn(&Shape) -> bool,
) -> (Option<InstanceId>, usize, u32) {
    let (mut begin, mut most) = (Begin::AtHead, 0);
    for round in 1.. {
        let mut asks = 0;
        let found = queue.candidate(POOL, &room(0, free), begin, |_, shape| {
            asks += 1;
            may(shape)
        });
        most = most.max(asks);
        match found {
            Found::First(instance) => return (Some(instance), round, most),
            Found::Nothing => return (None, round, most),
            Found::GaveUp(cursor) => begin = Begin::GoOn(cursor),
        }
    }
    unreachable!("it goes on until it knows");
}

#[test]
fn a_thousand_shapes_are_asked_about_a_few_at_a_time() {
    let of_shape = |order: u64| Waiter {
        shape: Arc::new(labelled(order)),
        ..waiter(order, 0, amounts(1, 1, 1))
    };
    let queue = queue_of((1..=1_000).map(of_shape));
    let last_alone = |shape: &Shape| label(shape) == Some(1_000);
    let (found, took, most) = rounds(&queue, amounts(1, 1, 1), last_alone);
    assert_eq!(found, Some(instance(1_000)));
    assert!(most <= MAX_ASKED);
    assert!(took <= 1_000 / MAX_ASKED as usize + 2, "{took} rounds");

    let (found, took, _) = rounds(&queue, amounts(1, 1, 1), |_| true);
    assert_eq!(
        (found, took),
        (Some(instance(1)), 1),
        "the head is seen at once"
    );
    let (found, took, most) = rounds(&queue, amounts(1, 0, 1), |_| true);
    assert_eq!(
        (found, took, most),
        (None, 1, 0),
        "nobody fits: nobody is asked about"
    );
}

#[test]
fn amounts_that_promise_and_do_not_hold_are_looked_at_a_few_at_a_time() {
    let crossed = |order: u64| match order % 2 {
        0 => waiter(order, 0, amounts(1, 1, 100)),
        _ => waiter(order, 0, amounts(100, 1, 1)),
    };
    let last = waiter(20_001, 0, amounts(1, 1, 1));
    let queue = queue_of((1..=20_000).map(crossed).chain([last]));
    let (found, took, most) = rounds(&queue, amounts(1, 1, 1), |_| true);
    assert_eq!(found, Some(instance(20_001)));
    assert!(took > 1, "it gave up on the way");
    assert!(took < 100 && most == 1, "{took} rounds");
}

#[test]
fn those_pinned_elsewhere_are_not_asked_about() {
    let pinned = |order: u64| {
        let request = StartRequest {
            hostname: Some(format!("other-{order}").into()),
            ..request(order)
        };
        Waiter {
            shape: Arc::new(shape_of(request)),
            ..waiter(order, 50, amounts(1, 1, 1))
        }
    };
    let mine = waiter(5_000, 0, amounts(1, 1, 1));
    let queue = queue_of((1..5_000).map(pinned).chain([mine]));
    let (found, took, most) = rounds(&queue, amounts(1, 1, 1), |_| true);
    assert_eq!((found, took, most), (Some(instance(5_000)), 1, 1));
    assert!(!queue.outranks(POOL, &room(0, amounts(1, 1, 1)), 0, |_, _| true));
}

#[test]
fn a_cursor_whose_best_has_gone_begins_again() {
    let of_shape = |order: u64| Waiter {
        shape: Arc::new(labelled(order % 500)),
        ..waiter(order, 0, amounts(1, 1, 1))
    };
    let mut queue = queue_of((1..=1_000).map(of_shape));
    // Heads of later classes stand before those of earlier ones, so that each has to be asked about.
    let here = room(0, amounts(1, 1, 1));
    let may = |shape: &Shape| label(shape).is_some_and(|label| label >= 300);
    let Found::GaveUp(cursor) = queue.candidate(POOL, &here, Begin::AtHead, |_, shape| may(shape))
    else {
        panic!("it gives up");
    };
    for gone in 1..=350 {
        queue.remove(&instance(gone));
    }
    let mut begin = Begin::GoOn(cursor);
    loop {
        match queue.candidate(POOL, &here, begin, |_, shape| may(shape)) {
            Found::GaveUp(cursor) => begin = Begin::GoOn(cursor),
            found => break assert_eq!(found, Found::First(instance(351))),
        }
    }
}

#[test]
fn the_queue_takes_so_many_and_no_more() {
    let mut queue = Queue::default();
    for order in 1..=MAX_QUEUED as u64 {
        queue.push(waiter(order, 0, amounts(1, 1, 1))).unwrap();
    }
    let one_more = waiter(200_000, 100, amounts(1, 1, 1));
    assert_eq!(queue.push(one_more.clone()), Err(Full));
    let again = waiter(1, 5, amounts(1, 1, 1));
    queue.push(again).expect("it takes its own place");
    assert_eq!(queue.len(), MAX_QUEUED);
    queue.push_unlimited(one_more);
    assert_eq!(queue.len(), MAX_QUEUED + 1);
    queue.invariants().unwrap();
}

#[test]
fn the_queue_takes_so_many_bytes_and_no_more() {
    let sized = |order, bytes| Waiter {
        bytes,
        ..waiter(order, 0, amounts(1, 1, 1))
    };
    let mut queue = queue_of([sized(1, MAX_QUEUED_BYTES - 10)]);
    assert!(queue.push(sized(2, 11)).is_err());
    assert!(queue.push(sized(2, usize::MAX)).is_err());
    queue.push(sized(2, 10)).unwrap();
    assert!(queue.push(sized(1, MAX_QUEUED_BYTES)).is_err());
    assert!(queue.contains(&instance(1)), "the earlier one still waits");
    queue.remove(&instance(1));
    assert_eq!(queue.bytes(), 10);
}

#[test]
fn no_one_is_found_behind_the_last_place() {
    let queue = queue_of((1..=100).map(|order| waiter(order, 1, amounts(1, 1, 1))));
    let here = room(0, amounts(i64::MAX, i64::MAX, i64::MAX));
    let behind = |rank| queue.candidate(POOL, &here, Begin::After(rank), |_, _| true);
    assert_eq!(behind(Rank::new(1, 100)), Found::Nothing);
    assert_eq!(behind(Rank::new(1, 99)), Found::First(instance(100)));
    assert_eq!(behind(Rank::newest(2)), Found::First(instance(1)));
    assert_eq!(behind(Rank::newest(0)), Found::Nothing);
}
