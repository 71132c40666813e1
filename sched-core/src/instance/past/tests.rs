//! Tests of the runs that are remembered, and of how far back they reach.

use std::time::{Duration, Instant};

use sched_model::PhaseName;

use crate::api::cause::Cause;

use super::{HistoryEvent, InstanceId, MAX_PAST, MAX_PAST_BYTES, Past, Run, ShortText, Uuid};

fn run(name: &str, events: usize, len: usize) -> Run {
    let at = crate::simulated::start();
    let event = |_| HistoryEvent {
        at,
        what: PhaseName::Running,
        node: None,
        cause: Cause::Said("x".repeat(len).into()),
    };
    Run::managed(InstanceId::new(name), at, (0..events).map(event).collect())
}

#[test]
fn those_that_are_gone_are_bounded_in_number_and_in_bytes() {
    let mut past = Past::default();
    for number in 0..MAX_PAST + 1 {
        past.note(run(&number.to_string(), 1, 1));
    }
    assert_eq!(past.size(), (MAX_PAST, MAX_PAST));
    assert_eq!(past.of(&InstanceId::new("0")).count(), 0);
    let mut changed = std::iter::from_fn(|| past.next_changed());
    assert!(changed.any(|number| number == 1), "it is to be deleted");
    for _ in 0..MAX_PAST {
        past.note(run("long", 100, 1024));
    }
    let (count, bytes) = past.size();
    assert!(count < MAX_PAST && bytes <= MAX_PAST_BYTES && bytes > MAX_PAST_BYTES / 2);
}

#[test]
fn runs_are_found_by_their_instance_and_by_their_end() {
    let mut past = Past::default();
    let node = Uuid::from_u128(7);
    for number in 0..MAX_PAST as u64 + 10 {
        let name = ["even", "odd"][usize::from(!number.is_multiple_of(2))];
        let mut run = run(name, 1, 1);
        run.set_node(node, ShortText::default());
        run.set_end(number, None);
        past.note(run);
    }
    let even = InstanceId::new("even");
    let found = past.of(&even).map(|(_, run)| run.and_then(Run::end));
    let expected = (10..MAX_PAST as u64 + 10).filter(|it| it.is_multiple_of(2));
    assert!(found.eq(expected.map(Some)));
    assert!(past.knows(&even, node, 10) && !past.knows(&even, node, 11));
    assert!(!past.knows(&even, node, 8), "it is forgotten");
    let last = past.last();
    past.learn(crate::simulated::start(), run("new", 1, 1));
    assert_eq!(
        past.last(),
        last,
        "what is known here is not forgotten for it"
    );
    for _ in 0..MAX_PAST {
        past.note(run("other", 1, 1));
    }
    assert_eq!(past.of(&even).count(), 0);
    for number in 0..4 * MAX_PAST {
        past.note(run(&number.to_string(), 1, 1));
        assert!(past.latest.len() <= 2 * MAX_PAST, "{number}");
    }
}

#[test]
fn only_what_was_noted_since_is_changed() {
    let mut past = Past::default();
    past.note(run("a", 2, 1));
    let before = past.last();
    let instance = InstanceId::new("a");
    assert!(!past.amend(before, &instance, |_| unreachable!()));
    past.note(run("a", 1, 1));
    assert!(past.amend(before, &instance, |run| {
        run.set_end(41, Some(3));
        run.set_node(Uuid::nil(), "node".into());
    }));
    assert_eq!(past.size(), (2, 3 + "node".len()));
    let ends = past
        .of(&instance)
        .map(|(_, run)| run.map(|run| run.exit_code));
    assert_eq!(ends.collect::<Vec<_>>(), [None, Some(None), Some(Some(3))]);
    assert_eq!(past.iter_after(before).count(), 1);
}

#[test]
fn a_plain_run_tells_since_when_it_was_known_and_why_it_is_over() {
    let at = crate::simulated::start();
    let node = (Uuid::max(), ShortText::new("node"));
    let plain = |since| {
        let instance = InstanceId::new("a");
        Run::plain(instance, node.clone(), since, at, Cause::Ended)
    };
    let known: Vec<_> = plain(Some(at))
        .events()
        .map(|it| (it.what.clone(), it.node, it.cause.clone()))
        .collect();
    let node = Some(Uuid::max());
    let gone = (PhaseName::Gone, node, Cause::Ended);
    let began = (PhaseName::Running, node, Cause::KnownSince);
    assert_eq!(known, [began, gone]);
    assert_eq!(plain(None).events().count(), 1);
    assert_eq!(plain(None).cause(), Some(&Cause::Ended));
}

#[test]
fn what_was_remembered_comes_back_in_the_order_of_its_numbers() {
    let mut past = Past::default();
    for number in [5, 2, 9] {
        past.restore(number, run(&number.to_string(), 1, 1));
    }
    past.note(run("new", 1, 1));
    let numbers = |from| past.iter_after(from).map(|(number, _)| number);
    assert_eq!(numbers(0).collect::<Vec<_>>(), [2, 5, 9, 10]);
    assert_eq!(numbers(2).collect::<Vec<_>>(), [5, 9, 10]);
    let name = |number| past.get(number).map(|run| run.instance().to_string());
    assert_eq!([name(5), name(3)], [Some("5".to_owned()), None]);
    for number in [20, 12, 16, 14, 30] {
        let mut run = run("one", 1, 1);
        run.set_end(number, None);
        past.restore(number, run);
    }
    let one = InstanceId::new("one");
    let ends = past.of(&one).filter_map(|(_, run)| run?.end());
    assert_eq!(ends.collect::<Vec<_>>(), [12, 14, 16, 20, 30]);
}

/// A run that was noted so many seconds after the start.
fn noted(start: Instant, name: &str, at_s: u64, events: usize) -> Run {
    let at = start + Duration::from_secs(at_s);
    let event = |_| HistoryEvent {
        at,
        what: PhaseName::Running,
        node: None,
        cause: Cause::Ended,
    };
    Run::managed(InstanceId::new(name), at, (0..events).map(event).collect())
}

/// Since how many seconds after the start every end is remembered.
fn since_s(past: &Past, start: Instant) -> Option<u64> {
    let since = past.complete_since()?;
    Some((since - start).as_secs())
}

#[test]
fn the_history_says_since_when_it_has_no_gap() {
    let start = crate::simulated::start();
    let mut past = Past::default();
    assert_eq!(since_s(&past, start), None);
    past.begin(start, start);
    for second in 1..=MAX_PAST as u64 {
        past.note(noted(start, "a", second, 2));
    }
    assert_eq!(since_s(&past, start), Some(0), "nothing is forgotten");
    past.note(noted(start, "a", 9_000, 2));
    assert_eq!(since_s(&past, start), Some(1));
    past.note(noted(start, "a", 9_001, 2));
    assert_eq!(since_s(&past, start), Some(2));
}

#[test]
fn an_end_by_the_clock_of_a_node_proves_nothing() {
    let start = crate::simulated::start();
    let mut past = Past::default();
    past.begin(start, start);
    past.learn(start + Duration::from_secs(70), noted(start, "a", 1, 1));
    for second in 0..MAX_PAST as u64 {
        past.note(noted(start, "b", 100 + second, 2));
    }
    assert_eq!(since_s(&past, start), Some(70));
}

#[test]
fn what_is_missing_in_numbers_was_forgotten_before_a_restart() {
    let start = crate::simulated::start();
    let now = start + Duration::from_secs(500);
    let begun = |runs: &[(u64, u64, usize)]| {
        let mut past = Past::default();
        for &(number, second, events) in runs {
            past.restore(number, noted(start, "a", second, events));
        }
        past.begin(start, now);
        since_s(&past, start)
    };
    assert_eq!(begun(&[]), Some(0));
    assert_eq!(begun(&[(1, 10, 2), (2, 20, 2)]), Some(0));
    assert_eq!(begun(&[(2, 20, 2), (3, 30, 2)]), Some(20));
    assert_eq!(begun(&[(2, 20, 1), (3, 30, 2)]), Some(30));
    assert_eq!(begun(&[(1, 10, 2), (5, 50, 2), (6, 60, 2)]), Some(50));
    assert_eq!(begun(&[(2, 20, 1)]), Some(500));
}
