//! Queues, their charges and their holds.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{Context, Waker};

use super::{LONG_QUEUE, MAX_BEHIND, MAX_BEHIND_BYTES, Others, Outbox, STALLED_QUEUE};
use crate::net::budget::{Budget, Pace, REPORT_BATCH};

fn budget() -> Arc<Budget> {
    Budget::new(1000, Pace::Budget)
}

#[test]
fn charges_are_given_back_up_to_the_limit_and_those_of_the_receiver_itself_never() {
    let (sender, own) = (budget(), budget());
    let outbox = Outbox::new(Arc::clone(&own));
    for _ in 0..10 {
        outbox.push((), 10, Some(sender.charge(10))).unwrap();
        outbox.push((), 10, Some(own.charge(10))).unwrap();
    }
    assert_eq!(outbox.release_charges(40, Others::Read), 40);
    assert_eq!((sender.used(), own.used()), (60, 100));
    // The limit counts over all releases, until something leaves.
    outbox.keep_charges();
    assert_eq!(outbox.release_charges(40, Others::Read), 40);
    assert_eq!(sender.used(), 60);
    let mut taken = VecDeque::new();
    let cx = Context::from_waker(Waker::noop());
    assert!(outbox.poll_take(&cx, 80, &mut taken).is_ready());
    assert_eq!(outbox.release_charges(40, Others::Read), 40);
    assert_eq!(sender.used(), 20);
}

#[test]
fn of_a_queue_that_is_shut_a_first_message_to_be_kept_is_still_written() {
    let (sender, own) = (budget(), budget());
    let outbox = Outbox::new(own);
    outbox.push('a', 10, None).unwrap();
    outbox.push('b', 20, Some(sender.charge(20))).unwrap();
    assert_eq!(outbox.shut_behind(|&it| it == 'a'), ['b']);
    assert_eq!((outbox.bytes(), sender.used()), (10, 0));
    assert_eq!(outbox.push('c', 1, None).unwrap_err(), 'c');
    assert!(!outbox.is_ended());
    assert_eq!(outbox.drain(), ['a']);
    assert_eq!(outbox.shut_behind(|&it| it == 'a'), [' '; 0]);
    assert!(outbox.is_ended());
}

#[test]
fn what_is_queued_behind_a_release_is_not_charged_either() {
    let (sender, own) = (budget(), budget());
    let outbox = Outbox::new(Arc::clone(&own));
    outbox.release_charges(20, Others::Read);
    for uncharged in [10, 20, 20] {
        let pushed = outbox.push((), 10, Some(sender.charge(10))).unwrap();
        assert_eq!(pushed.uncharged, uncharged);
    }
    assert_eq!(sender.used(), 10);
    outbox.keep_charges();
    outbox.push((), 10, Some(sender.charge(10))).unwrap();
    assert_eq!(sender.used(), 20);
}

#[test]
fn a_charge_is_given_back_with_a_message_that_is_not_taken_in() {
    let outbox = Outbox::new(budget());
    let sender = budget();
    assert_eq!(outbox.shut(), Vec::<()>::new());
    assert!(outbox.push((), 10, Some(sender.charge(10))).is_err());
    assert_eq!(sender.used(), 0);
}

/// Whether a sender may be read from.
fn is_free(sender: &Arc<Budget>) -> bool {
    let cx = Context::from_waker(Waker::noop());
    sender.poll_ready(&cx).is_ready()
}

fn push(outbox: &Outbox<()>, sender: &Arc<Budget>, cost: usize) {
    outbox.push((), cost, Some(sender.charge(cost))).unwrap();
}

fn take(outbox: &Outbox<()>, bytes: usize) {
    let cx = Context::from_waker(Waker::noop());
    assert!(
        outbox
            .poll_take(&cx, bytes, &mut VecDeque::new())
            .is_ready()
    );
}

#[test]
fn a_long_queue_holds_its_senders_and_lets_them_go_in_turn_as_it_gets_shorter() {
    let outbox = Outbox::new(budget());
    let senders: [_; 4] = std::array::from_fn(|_| Budget::new(usize::MAX, Pace::Queues));
    for _ in 0..LONG_QUEUE / REPORT_BATCH {
        outbox.push((), REPORT_BATCH, None).unwrap();
    }
    for sender in &senders {
        assert!(is_free(sender));
        push(&outbox, sender, REPORT_BATCH);
        push(&outbox, sender, REPORT_BATCH);
    }
    let free = || senders.each_ref().map(is_free);
    assert_eq!(free(), [false; 4]);
    // The queue is still long after the first; then as many go on as the writer took batches.
    for (taken, expected) in [
        (7 * REPORT_BATCH, [false, false, false, false]),
        (1, [true, false, false, false]),
        (2 * REPORT_BATCH, [true, true, true, false]),
    ] {
        take(&outbox, taken);
        assert_eq!(free(), expected);
    }
    push(&outbox, &senders[0], 1);
    assert_eq!(free(), [false, true, true, false], "none is overtaken");
    take(&outbox, usize::MAX);
    assert_eq!(free(), [true; 4]);
}

#[test]
fn a_queue_that_stalled_or_ended_holds_nobody() {
    let sender = Budget::new(usize::MAX, Pace::Queues);
    let outbox = Outbox::new(budget());
    push(&outbox, &sender, LONG_QUEUE + 1);
    assert!(!is_free(&sender));
    outbox.release_charges(usize::MAX, Others::Read);
    push(&outbox, &sender, 1);
    assert!(is_free(&sender));
    outbox.keep_charges();
    push(&outbox, &sender, 1);
    assert!(!is_free(&sender));
    outbox.shut();
    assert!(is_free(&sender));
}

#[test]
fn a_burst_for_a_peer_that_stalled_is_spread_over_time() {
    let outbox = Outbox::new(budget());
    let senders: [_; 3] = std::array::from_fn(|_| Budget::new(usize::MAX, Pace::Queues));
    outbox.release_charges(usize::MAX, Others::None);
    push(&outbox, &senders[0], STALLED_QUEUE + 1);
    let free = || senders.each_ref().map(is_free);
    assert_eq!(free(), [true; 3]);
    for sender in &senders {
        push(&outbox, sender, REPORT_BATCH - 1);
        push(&outbox, sender, 1);
    }
    assert_eq!(free(), [false; 3]);
    // What is queued beyond what was allowed, and then a batch for each.
    outbox.allow_more(4 * REPORT_BATCH + 1);
    assert_eq!(free(), [true, false, false]);
    outbox.allow_more(2 * REPORT_BATCH);
    assert_eq!(free(), [true; 3]);
    // No task waits for what is queued.
    assert!(senders.iter().all(|sender| sender.used() == 0));
}

#[test]
fn a_peer_is_not_held_by_its_own_queue_nor_one_that_only_its_budget_slows() {
    let (own, controller) = (
        Budget::new(usize::MAX, Pace::Queues),
        Budget::new(usize::MAX, Pace::Budget),
    );
    let outbox = Outbox::new(Arc::clone(&own));
    for sender in [&own, &controller] {
        push(&outbox, sender, LONG_QUEUE + 1);
        assert!(is_free(sender));
    }
}

#[test]
fn what_can_wait_leaves_behind_all_else_one_at_a_time_and_is_bounded() {
    let outbox = Outbox::new(budget());
    for number in 0..MAX_BEHIND {
        assert!(outbox.push_behind(number + 10, 100).is_ok());
    }
    assert_eq!(
        outbox.push_behind(99, 1).unwrap_err(),
        99,
        "there are enough"
    );
    assert_eq!(outbox.bytes(), 0, "it is no backlog");
    outbox.push(0, 1, None).unwrap();
    outbox.push(1, 1, None).unwrap();
    assert_eq!(outbox.drain(), [0, 1]);
    assert_eq!(outbox.drain(), [10]);
    outbox.push(2, 1, None).unwrap();
    assert_eq!(outbox.drain(), [2]);
    assert_eq!(outbox.drain(), [11]);
    assert!(outbox.push_behind(98, 1).is_ok());
    assert_eq!(outbox.take_all(), [0; 0], "it is not given back");
    assert_eq!(outbox.push_behind(97, 1).unwrap_err(), 97);
}

#[test]
fn what_waits_behind_is_bounded_in_bytes_too_until_some_has_left() {
    let outbox = Outbox::new(budget());
    outbox.push_behind(0, MAX_BEHIND_BYTES - 1).unwrap();
    outbox.push_behind(1, 1).unwrap();
    assert_eq!(outbox.push_behind(2, 1).unwrap_err(), 2);
    assert_eq!(outbox.drain(), [0]);
    outbox.push_behind(2, 1).unwrap();
    assert_eq!(outbox.drain(), [1]);
    assert_eq!(outbox.drain(), [2]);
}
