//! Tests of the runs that are remembered, and of how far back they reach.

use std::time::{Duration, Instant};

use sched_model::PhaseName;

use crate::api::cause::Cause;

use super::{HistoryEvent, InstanceId, MAX_PAST_BYTES, Noted, PRUNE_ABOVE, Run, Uuid};
use crate::api::text::ShortText;
use crate::instance::Instances;
use crate::instance::numbering::RunNumbers;

fn run(name: &str, events: usize, len: usize) -> Run {
    let at = crate::simulated::start();
    let event = |_| HistoryEvent {
        at,
        what: PhaseName::Running,
        node: None,
        cause: Cause::Said("x".repeat(len).into()),
        run: 0,
    };
    Run::managed(
        InstanceId::new(name),
        RunNumbers::default(),
        at,
        (0..events).map(event).collect(),
    )
}

/// As long as a run may be: about 10 KiB.
fn long(name: &str) -> Run {
    run(name, 100, 1024)
}

/// Notes long runs of other instances until so many more of the earlier ones are forgotten.
fn forget(past: &mut Instances, count: u64) {
    let until = past.runs_forgotten() + count;
    while past.runs_forgotten() < until {
        past.note_run(long("other"));
        past.forget_oldest_runs();
    }
}

#[test]
fn a_run_is_remembered_until_the_records_of_its_input_are_handed_out() {
    let mut past = Instances::default();
    past.note_run(run("a", 1, 1));
    while past.past_size().1 <= MAX_PAST_BYTES {
        past.note_run(long("other"));
    }
    assert_eq!(past.runs_forgotten(), 0);
    assert!(past.last_run_of(&InstanceId::new("a")).is_some());
    past.forget_oldest_runs();
    assert!(past.last_run_of(&InstanceId::new("a")).is_none());
    assert!(past.past_size().1 <= MAX_PAST_BYTES);
}

#[test]
fn those_that_are_gone_are_bounded_by_all_the_bytes_that_they_take() {
    let mut past = Instances::default();
    // More than a night's work of a cluster: none of it is forgotten.
    const MANY: u64 = 50_000;
    for number in 0..MANY {
        past.note_run(run(&number.to_string(), 2, 1).called("sweep", "python3 fit.py"));
    }
    assert_eq!((past.past_size().0, past.runs_forgotten()), (50_000, 0));
    assert_eq!(past.history(&InstanceId::new("0")).count(), 2);
    let each = past.past_size().1 / 50_000;
    let least = size_of::<Noted>() + 2 * size_of::<HistoryEvent>();
    assert!(each > least && each < 2 * least, "{each} bytes a run");
    forget(&mut past, 1);
    assert_eq!(past.history(&InstanceId::new("0")).count(), 0);
    let mut changed = std::iter::from_fn(|| past.next_changed_run());
    assert!(changed.any(|number| number == 1), "it is to be deleted");
    forget(&mut past, MANY);
    let (count, bytes) = past.past_size();
    assert!(count < 10_000 && bytes <= MAX_PAST_BYTES && bytes > MAX_PAST_BYTES / 2);
}

#[test]
fn runs_are_found_by_their_instance_and_by_their_end() {
    let mut past = Instances::default();
    let node = Uuid::from_u128(7);
    const LAST: u64 = 1_000;
    for number in 0..LAST {
        let name = ["even", "odd"][usize::from(!number.is_multiple_of(2))];
        let mut run = run(name, 1, 1);
        run.set_node(node, ShortText::default());
        run.set_end(number, None, None);
        past.note_run(run);
    }
    forget(&mut past, 10);
    let first = past.runs_forgotten();
    let even = InstanceId::new("even");
    let found = past.history(&even).map(|(_, run)| run.and_then(Run::end));
    let expected = (first..LAST).filter(|it| it.is_multiple_of(2));
    assert!(found.eq(expected.map(Some)));
    assert!(past.knows_run(&even, node, 500) && !past.knows_run(&even, node, 501));
    assert!(!past.knows_run(&even, node, 8), "it is forgotten");
    let after = past.runs_of_after(&even, 600);
    let after = after.into_iter().map(|(number, _)| number);
    assert!(after.eq((601..=LAST).step_by(2)), "numbers count from 1");
    let last = past.last_run();
    past.learn_run(crate::simulated::start(), long("new"));
    assert_eq!(
        past.last_run(),
        last,
        "what is known here is not forgotten for it"
    );
    forget(&mut past, LAST);
    assert_eq!(past.history(&even).count(), 0);
    let mut past = Instances::default();
    for number in 0..3 * PRUNE_ABOVE {
        past.note_run(long(&number.to_string()));
        past.forget_oldest_runs();
        let most = PRUNE_ABOVE.max(2 * past.past.runs.len());
        assert!(past.past.latest.len() <= most, "{number}");
    }
}

#[test]
fn a_run_keeps_what_its_instance_was_called_and_ran() {
    let mut past = Instances::default();
    past.note_run(run("a", 1, 1).called("sweep-17", "python3 fit.py"));
    let (_, run) = past.runs_after(0).next().unwrap();
    assert_eq!((run.name(), run.program()), ("sweep-17", "python3 fit.py"));
}

#[test]
fn only_what_was_noted_since_is_changed() {
    let mut past = Instances::default();
    past.note_run(run("a", 2, 1));
    let before = past.last_run();
    let instance = InstanceId::new("a");
    assert!(!past.amend_run(before, &instance, |_| unreachable!()));
    past.note_run(run("a", 1, 1));
    assert!(past.amend_run(before, &instance, |run| {
        run.set_end(41, Some(3), None);
        run.set_node(Uuid::nil(), "node".into());
    }));
    let size = past.past_size();
    let recounted: usize = past.runs_after(0).map(|(_, run)| run.bytes()).sum();
    assert_eq!(size, (2, recounted), "with the name of the node");
    let ends = past
        .history(&instance)
        .map(|(_, run)| run.map(Run::exit_code));
    assert_eq!(ends.collect::<Vec<_>>(), [None, Some(None), Some(Some(3))]);
    assert_eq!(past.runs_after(before).count(), 1);
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
    let mut past = Instances::default();
    for number in [5, 2, 9] {
        past.restore_run(number, run(&number.to_string(), 1, 1));
    }
    past.note_run(run("new", 1, 1));
    let numbers = |from| past.runs_after(from).map(|(number, _)| number);
    assert_eq!(numbers(0).collect::<Vec<_>>(), [2, 5, 9, 10]);
    assert_eq!(numbers(2).collect::<Vec<_>>(), [5, 9, 10]);
    let name = |number| past.run(number).map(|run| run.instance().to_string());
    assert_eq!([name(5), name(3)], [Some("5".to_owned()), None]);
    let start = crate::simulated::start();
    for number in [20, 12, 16, 14, 30] {
        let numbers = RunNumbers::restored(number, None, Vec::new());
        let mut run = noted(start, "one", number.into(), 1).numbered(numbers, None);
        run.set_end(number.into(), None, None);
        past.restore_run(number.into(), run);
    }
    let one = InstanceId::new("one");
    let ends = past.history(&one).filter_map(|(_, run)| run?.end());
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
        run: 0,
    };
    Run::managed(
        InstanceId::new(name),
        RunNumbers::default(),
        at,
        (0..events).map(event).collect(),
    )
}

/// Since how many seconds after the start every end is remembered.
fn since_s(past: &Instances, start: Instant) -> Option<u64> {
    let since = past.history_complete_since()?;
    Some((since - start).as_secs())
}

/// The same with texts as long as may be.
fn noted_long(start: Instant, at_s: u64) -> Run {
    let at = start + Duration::from_secs(at_s);
    let event = |_| HistoryEvent {
        at,
        what: PhaseName::Running,
        node: None,
        cause: Cause::Said("x".repeat(1024).into()),
        run: 0,
    };
    Run::managed(
        InstanceId::new("long"),
        RunNumbers::default(),
        at,
        (0..8).map(event).collect(),
    )
}

#[test]
fn the_history_says_since_when_it_has_no_gap() {
    let start = crate::simulated::start();
    let mut past = Instances::default();
    assert_eq!(since_s(&past, start), None);
    past.begin_history(start, start);
    let mut second = 0;
    while past.runs_forgotten() == 0 {
        assert_eq!(since_s(&past, start), Some(0), "nothing is forgotten");
        second += 1;
        past.note_run(noted_long(start, second));
        past.forget_oldest_runs();
    }
    assert_eq!(since_s(&past, start), Some(1));
    past.note_run(noted_long(start, second + 1));
    past.forget_oldest_runs();
    assert_eq!(since_s(&past, start), Some(2));
}

#[test]
fn an_end_by_the_clock_of_a_node_proves_nothing() {
    let start = crate::simulated::start();
    let mut past = Instances::default();
    past.begin_history(start, start);
    past.learn_run(start + Duration::from_secs(70), noted(start, "a", 1, 1));
    while past.runs_forgotten() == 0 {
        past.note_run(noted_long(start, 60));
        past.forget_oldest_runs();
    }
    assert_eq!(since_s(&past, start), Some(70));
}

#[test]
fn what_is_missing_in_numbers_was_forgotten_before_a_restart() {
    let start = crate::simulated::start();
    let now = start + Duration::from_secs(500);
    let begun = |runs: &[(u64, u64, usize)]| {
        let mut past = Instances::default();
        for &(number, second, events) in runs {
            past.restore_run(number, noted(start, "a", second, events));
        }
        past.begin_history(start, now);
        since_s(&past, start)
    };
    assert_eq!(begun(&[]), Some(0));
    assert_eq!(begun(&[(1, 10, 2), (2, 20, 2)]), Some(0));
    assert_eq!(begun(&[(2, 20, 2), (3, 30, 2)]), Some(20));
    assert_eq!(begun(&[(2, 20, 1), (3, 30, 2)]), Some(30));
    assert_eq!(begun(&[(1, 10, 2), (5, 50, 2), (6, 60, 2)]), Some(50));
    assert_eq!(begun(&[(2, 20, 1)]), Some(500));
}

#[test]
fn the_outcome_is_the_last_run_in_whatever_order_ends_become_known_and_records_are_read() {
    let at = crate::simulated::start();
    let name = InstanceId::new("a");
    let node = (Uuid::from_u128(1), ShortText::default());
    let run = |number| {
        let numbers = RunNumbers::restored(number, None, Vec::new());
        let run = Run::plain(name.clone(), node.clone(), None, at, Cause::Ended);
        run.numbered(numbers, None)
    };
    let last = |past: &Instances| past.last_run_of(&name).map(|run| run.numbers().latest());
    let mut past = Instances::default();
    for number in [2, 1, 3] {
        past.note_run(run(number));
    }
    assert_eq!(last(&past), Some(3));
    let all: Vec<u64> = past.runs_of_after(&name, 0).iter().map(|it| it.0).collect();
    assert_eq!(all, [1, 2, 3], "in the order in which they became known");
    let mut restored = Instances::default();
    for (key, number) in [(3, 3), (1, 2), (2, 1)] {
        restored.restore_run(key, run(number));
    }
    let order = |past: &Instances| -> Vec<u32> {
        let runs = past.past.runs_of(&name);
        runs.map(|run| run.numbers().latest()).collect()
    };
    assert_eq!(
        (order(&past), order(&restored)),
        (vec![3, 2, 1], vec![3, 2, 1])
    );
}
