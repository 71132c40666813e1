//! Tests of the coordinator without a scheduler.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ciao_adapter::sent::{Sent, at_any_time, unix_ms};
use ciao_scheduler::ctl::client::Ended;
use ciao_scheduler::ctl::event::Event;
use proto_frames::payload::{
    InstanceStateEvent, InstanceStopped, InstanceView, PhaseName, PlacementState, StartFailure,
    StartFailureReason,
};
use tempfile::TempDir;
use tokio::sync::{mpsc, oneshot};

use super::orders::Copied;
use super::{
    Accepted, Coordinator, MAX_PUSHES, MAX_REFUSALS, MAX_TASK_BYTES, MAX_TASKS, Order, Settings,
    Source,
};
use crate::binaries::{Binaries, Limits};
use crate::command::{Extras, Priority};
use crate::output::Output;
use crate::requests::{Ask, Listing, SessionEvent};
use crate::shipping::{News, PushOrder};
use crate::store::{Change, Kept, Store};
use crate::task::{Binary, Shape, TaskRecord};

fn record(id: u32) -> TaskRecord {
    TaskRecord {
        id,
        instance: format!("instance {id}"),
        priority: Priority::High,
        files: Vec::new(),
        frequencies: Vec::new(),
        args: String::new(),
        outcome: None,
        sent_ms: Some(0),
    }
}

/// A coordinator that has so many tasks that have not ended.
fn coordinator(state: &TempDir, tasks: u32) -> (Coordinator, mpsc::Receiver<Copied>) {
    let settings = Settings {
        shape: Shape {
            mem_mb: 1,
            vcpus: 1,
            group: None,
            tenant: String::new(),
            monitor: Vec::new(),
            one_argument: false,
        },
        return_time: Duration::ZERO,
    };
    let (store, _) = Store::open(state.path()).unwrap();
    let kept = Kept {
        tasks: (1..=tasks).map(record).collect(),
        next_task: tasks + 1,
        ..Kept::default()
    };
    let limits = Limits {
        file: 100,
        all: 100,
        left_free: 0,
    };
    let binaries = Binaries::open(&state.path().join("binaries"), limits, [].into_iter()).unwrap();
    let (pushes, _) = mpsc::unbounded_channel();
    let output = Output::open().unwrap();
    Coordinator::new(settings, (store, kept), (binaries, pushes), output)
}

type Answered = oneshot::Receiver<Result<Accepted, String>>;

fn begin(coordinator: &mut Coordinator, path: &Path) -> Answered {
    let (answer, answered) = oneshot::channel();
    coordinator.order(Order::New {
        source: Source::Paths(vec![path.to_owned()]),
        priority: Priority::High,
        extras: Extras::default(),
        answer,
    });
    answered
}

#[tokio::test]
async fn a_task_whose_files_are_being_copied_counts_among_the_most_there_may_be() {
    let state = tempfile::tempdir().unwrap();
    let most = u32::try_from(MAX_TASKS).unwrap();
    let (mut coordinator, mut copied) = coordinator(&state, most - 2);
    let file = state.path().join("file");
    std::fs::write(&file, "a program").unwrap();
    let missing = state.path().join("missing");
    let (mut first, mut second) = (
        begin(&mut coordinator, &file),
        begin(&mut coordinator, &missing),
    );
    let refused = |mut answered: Answered| answered.try_recv().unwrap().unwrap_err();
    let why = format!("there are {MAX_TASKS} tasks already");
    assert_eq!(refused(begin(&mut coordinator, &file)), why);
    for _ in 0..2 {
        coordinator.take_copied(copied.recv().await.unwrap());
    }
    // The one waits for its write, and the other has failed, which makes room.
    assert!(second.try_recv().unwrap().is_err());
    let mut third = begin(&mut coordinator, &file);
    assert_eq!(refused(begin(&mut coordinator, &file)), why);
    coordinator.commit();
    assert!(first.try_recv().unwrap().is_ok());
    coordinator.take_copied(copied.recv().await.unwrap());
    coordinator.commit();
    assert!(third.try_recv().unwrap().is_ok());
    assert_eq!(coordinator.living(), MAX_TASKS);
}

/// A coordinator with one task that was sent so long ago, and what it asks for.
fn with_sent_task(state: &TempDir, sent: Duration) -> (Coordinator, mpsc::UnboundedReceiver<Ask>) {
    let (mut coordinator, _) = coordinator(state, 0);
    let sent_ms = unix_ms() - u64::try_from(sent.as_millis()).unwrap();
    let record = TaskRecord {
        sent_ms: Some(sent_ms),
        ..record(1)
    };
    coordinator.insert(record, Sent::kept(Some(sent_ms)));
    let asked = connect(&mut coordinator);
    (coordinator, asked)
}

fn connect(coordinator: &mut Coordinator) -> mpsc::UnboundedReceiver<Ask> {
    let (session, asked) = mpsc::unbounded_channel();
    coordinator.hear(SessionEvent::Up(session));
    asked
}

/// A listing without instances, of a scheduler that has forgotten no end for so long.
fn nothing_listed(complete_for: Option<Duration>) -> SessionEvent {
    SessionEvent::Listing(Box::new(Listing {
        instances: Vec::new(),
        ended: Ended {
            instances: Vec::new(),
            complete_for,
            forgotten: 0,
        },
        nodes: Vec::new(),
    }))
}

#[tokio::test]
async fn a_task_whose_end_may_be_forgotten_is_not_run_again() {
    const SENT: Duration = Duration::from_secs(600);
    for forgotten in [None, Some(Duration::ZERO), Some(SENT / 2)] {
        let state = tempfile::tempdir().unwrap();
        let (mut coordinator, mut asked) = with_sent_task(&state, SENT);
        coordinator.hear(nothing_listed(forgotten));
        coordinator.commit();
        assert!(asked.try_recv().is_err(), "it is sent again: {forgotten:?}");
        let task = &coordinator.tasks[&1];
        assert_eq!(task.word(), "failed");
        let detail = task.detail();
        assert!(
            detail.contains("whether it ran, and how it ended, is not known"),
            "{detail}"
        );
    }
}

#[tokio::test]
async fn a_task_of_which_it_is_not_kept_when_it_was_sent_is_not_run_again() {
    let state = tempfile::tempdir().unwrap();
    let (mut coordinator, _copied) = coordinator(&state, 0);
    let of_before = TaskRecord {
        sent_ms: at_any_time(),
        ..record(1)
    };
    coordinator.insert(of_before, Sent::kept(at_any_time()));
    let mut asked = connect(&mut coordinator);
    // However far back the scheduler remembers.
    coordinator.hear(nothing_listed(Some(Duration::MAX)));
    coordinator.commit();
    assert!(asked.try_recv().is_err());
    assert_eq!(coordinator.tasks[&1].word(), "failed");
}

#[tokio::test]
async fn a_task_that_certainly_never_ran_is_sent_again() {
    const SENT: Duration = Duration::from_secs(600);
    let state = tempfile::tempdir().unwrap();
    let (mut coordinator, mut asked) = with_sent_task(&state, SENT);
    coordinator.hear(nothing_listed(Some(SENT * 2)));
    coordinator.commit();
    assert!(matches!(asked.try_recv(), Ok(Ask::Start(_))));
    assert_eq!(coordinator.tasks[&1].word(), "queued");
}

#[tokio::test]
async fn what_was_missed_is_learned_from_the_next_listing() {
    let state = tempfile::tempdir().unwrap();
    let (mut coordinator, _copied) = coordinator(&state, 0);
    let mut asked = connect(&mut coordinator);
    coordinator.insert(record(1), Sent::No);
    coordinator.submit(1);
    assert!(asked.try_recv().is_ok());
    coordinator.hear(nothing_listed(None));
    assert_eq!(
        coordinator.tasks[&1].word(),
        "queued",
        "its answer is to come"
    );
    coordinator.hear(SessionEvent::Missed);
    coordinator.hear(nothing_listed(None));
    assert_eq!(coordinator.tasks[&1].word(), "failed");
}

#[tokio::test]
async fn that_a_task_may_have_been_sent_is_on_disk_before_it_is() {
    let state = tempfile::tempdir().unwrap();
    let (mut coordinator, _copied) = coordinator(&state, 0);
    let never_sent = TaskRecord {
        sent_ms: None,
        ..record(1)
    };
    coordinator
        .changes
        .push(Change::Task(Arc::new(never_sent.clone())));
    coordinator.insert(never_sent, Sent::No);
    coordinator.commit();
    let mut asked = connect(&mut coordinator);
    assert!(asked.try_recv().is_err(), "it is not written yet");
    coordinator.commit();
    assert!(asked.try_recv().is_ok());
    assert!(asked.try_recv().is_err(), "it is sent once");
    drop(coordinator);
    let (_, kept) = Store::open(state.path()).unwrap();
    assert!(kept.tasks[0].sent_ms.is_some());
}

/// That the START of task 1 was refused.
fn refused(reason: StartFailureReason) -> SessionEvent {
    let failure = StartFailure {
        instance_uuid: record(1).instance,
        reason,
        ..StartFailure::default()
    };
    SessionEvent::Event(Box::new(Event::StartFailure(Box::new(failure))))
}

/// That task 1 has ended well.
fn stopped() -> SessionEvent {
    let stopped = InstanceStopped {
        instance_uuid: record(1).instance,
        exit_code: Some(0),
        ..InstanceStopped::default()
    };
    SessionEvent::Event(Box::new(Event::InstanceStopped(stopped)))
}

#[tokio::test]
async fn a_task_that_has_ended_is_never_sent_again() {
    for reason in [
        StartFailureReason::FullCloud,
        StartFailureReason::AlreadyRunning,
        StartFailureReason::InstanceExists,
    ] {
        let state = tempfile::tempdir().unwrap();
        let (mut coordinator, mut asked) = with_sent_task(&state, Duration::ZERO);
        coordinator.hear(refused(reason.clone()));
        coordinator.hear(stopped());
        assert_eq!(coordinator.tasks[&1].word(), "succeeded");
        coordinator.try_again();
        coordinator.submit_unsent();
        coordinator.submit(1);
        coordinator.commit();
        assert!(asked.try_recv().is_err(), "{reason:?}");
        assert!(coordinator.unsent.is_empty() && coordinator.retry.is_empty());
    }
}

#[tokio::test]
async fn a_task_that_the_scheduler_has_already_is_looked_for_and_not_sent_again() {
    for reason in [
        StartFailureReason::AlreadyRunning,
        StartFailureReason::InstanceExists,
    ] {
        let state = tempfile::tempdir().unwrap();
        let (mut coordinator, mut asked) = with_sent_task(&state, Duration::ZERO);
        coordinator.hear(refused(reason));
        coordinator.try_again();
        coordinator.commit();
        assert!(asked.try_recv().is_err());
        let running = InstanceView {
            instance_uuid: record(1).instance,
            state: PlacementState::Running,
            ..InstanceView::default()
        };
        coordinator.hear(SessionEvent::Listing(Box::new(Listing {
            instances: vec![running],
            ended: Ended::default(),
            nodes: Vec::new(),
        })));
        assert_eq!(coordinator.tasks[&1].word(), "running");
    }
}

#[tokio::test]
async fn the_texts_of_tasks_have_a_bound_in_bytes() {
    let state = tempfile::tempdir().unwrap();
    let (mut coordinator, mut copied) = coordinator(&state, 0);
    let file = state.path().join("file");
    std::fs::write(&file, "a program").unwrap();
    let name = file.as_os_str().len();
    let large = TaskRecord {
        args: "x".repeat(MAX_TASK_BYTES - 2 * name),
        ..record(9)
    };
    coordinator.insert(large, Sent::AtAnyTime);
    let mut accepted = begin(&mut coordinator, &file);
    let missing = begin(&mut coordinator, &state.path().join("none"));
    let refused = |mut answered: Answered| answered.try_recv().unwrap().unwrap_err();
    let why = refused(begin(&mut coordinator, &file));
    assert!(why.contains("bytes of arguments and file names"), "{why}");
    for _ in 0..2 {
        coordinator.take_copied(copied.recv().await.unwrap());
        coordinator.commit();
    }
    assert!(accepted.try_recv().unwrap().is_ok());
    refused(missing);
    // The one that failed has given its room back, and so does the one that ends.
    coordinator.fail(9, "it has ended".to_owned());
    assert_eq!(coordinator.bytes, name);
    let mut next = begin(&mut coordinator, &file);
    coordinator.take_copied(copied.recv().await.unwrap());
    coordinator.commit();
    assert!(next.try_recv().unwrap().is_ok());
}

#[tokio::test]
async fn a_start_that_waits_to_be_sent_holds_no_copy_of_its_task() {
    let state = tempfile::tempdir().unwrap();
    let (mut coordinator, _copied) = coordinator(&state, 0);
    let mut asked = connect(&mut coordinator);
    coordinator.insert(record(1), Sent::No);
    coordinator.submit(1);
    let Ok(Ask::Start(sent)) = asked.try_recv() else {
        panic!("it is not sent");
    };
    assert!(Arc::ptr_eq(&sent, &coordinator.tasks[&1].record));
}

#[tokio::test]
async fn a_program_that_is_never_taken_fails_its_task_in_the_end() {
    let state = tempfile::tempdir().unwrap();
    let (mut coordinator, mut asked) = with_sent_task(&state, Duration::ZERO);
    let refused = || News::Refused(1, "the store is full".to_owned());
    for _ in 1..MAX_REFUSALS {
        coordinator.program(refused());
        assert_eq!(coordinator.tasks[&1].word(), "queued");
        assert!(coordinator.tasks[&1].detail().contains("the store is full"));
        coordinator.try_again();
        assert!(asked.try_recv().is_ok(), "it is tried again");
    }
    coordinator.program(refused());
    assert_eq!(coordinator.tasks[&1].word(), "failed");
    assert!(coordinator.tasks[&1].detail().contains("the store is full"));
    coordinator.try_again();
    assert!(asked.try_recv().is_err());
}

#[tokio::test]
async fn a_program_that_is_gone_after_each_push_fails_its_task_in_the_end() {
    let state = tempfile::tempdir().unwrap();
    let (mut coordinator, mut asked) = with_sent_task(&state, Duration::ZERO);
    let shipped = |is_sent| News::Shipped { id: 1, is_sent };
    // What was there all the time does not count: the store was too busy to say so.
    for is_sent in (0..2 * MAX_PUSHES).map(|nth| nth >= MAX_PUSHES) {
        coordinator.program(lacks(0));
        assert_eq!(coordinator.tasks[&1].word(), "queued");
        coordinator.program(shipped(is_sent));
        assert!(asked.try_recv().is_ok(), "its START is sent");
    }
    // A START that was answered resets the count: its program was there.
    coordinator.hear(refused(StartFailureReason::FullCloud));
    coordinator.try_again();
    assert!(asked.try_recv().is_ok());
    for _ in 0..MAX_PUSHES {
        coordinator.program(lacks(0));
        coordinator.program(shipped(true));
        assert!(asked.try_recv().is_ok());
    }
    coordinator.program(lacks(0));
    let task = &coordinator.tasks[&1];
    assert_eq!(task.word(), "failed");
    assert!(task.detail().contains("8 times"), "{}", task.detail());
}

/// The scheduler does not have this file of the first task.
fn lacks(file: usize) -> News {
    News::Lacks { id: 1, file }
}

#[tokio::test]
async fn each_file_of_a_task_is_pushed_as_often_as_a_program_may_be() {
    let state = tempfile::tempdir().unwrap();
    let (mut coordinator, _copied) = coordinator(&state, 0);
    let (pushes, mut pushed) = mpsc::unbounded_channel();
    coordinator.pushes = pushes;
    let names = ["a", "b", "c"];
    let with_files = TaskRecord {
        files: names.map(binary).to_vec(),
        ..record(1)
    };
    coordinator.insert(with_files, Sent::kept(Some(0)));
    let mut asked = connect(&mut coordinator);
    let refused = || News::Refused(1, "the store is full".to_owned());
    // As where there is room for one of them.
    for _ in 0..MAX_PUSHES {
        for (file, name) in names.iter().enumerate() {
            coordinator.program(lacks(file));
            let task = &coordinator.tasks[&1];
            assert_eq!(task.detail().contains("its file b"), file == 1);
            assert!(matches!(pushed.try_recv(), Ok(PushOrder::Push(push)) if push.sha256 == *name));
            // And not for it at once.
            for _ in 1..MAX_REFUSALS {
                coordinator.program(refused());
                coordinator.try_again();
                assert!(asked.try_recv().is_ok(), "it is tried again");
            }
            coordinator.program(lacks(file));
            assert!(pushed.try_recv().is_ok());
            let is_sent = true;
            coordinator.program(News::Shipped { id: 1, is_sent });
            assert!(asked.try_recv().is_ok(), "its START is sent");
        }
    }
    coordinator.program(lacks(1));
    let task = &coordinator.tasks[&1];
    assert_eq!(task.word(), "failed");
    let words = "its file b was pushed to the scheduler 8 times";
    assert!(task.detail().contains(words), "{}", task.detail());
}

/// A file of a task whose digest is this.
fn binary(sha256: &str) -> Binary {
    Binary {
        name: sha256.to_owned(),
        sha256: sha256.to_owned(),
        bytes: 1,
    }
}

#[tokio::test]
async fn the_push_of_a_task_that_has_ended_is_given_up() {
    let state = tempfile::tempdir().unwrap();
    let (mut coordinator, _copied) = coordinator(&state, 0);
    let (pushes, mut pushed) = mpsc::unbounded_channel();
    coordinator.pushes = pushes;
    let with_program = TaskRecord {
        files: ["program", "abc"].map(binary).to_vec(),
        ..record(1)
    };
    coordinator.insert(with_program, Sent::kept(Some(0)));
    let _asked = connect(&mut coordinator);
    coordinator.program(lacks(1));
    assert!(matches!(pushed.try_recv(), Ok(PushOrder::Push(push)) if push.sha256 == "abc"));
    // What was sent over an earlier connection came there after all.
    coordinator.hear(stopped());
    assert_eq!(coordinator.tasks[&1].word(), "succeeded");
    assert!(
        matches!(pushed.try_recv(), Ok(PushOrder::GiveUp { id: 1, sha256 }) if sha256 == "abc")
    );
    assert!(pushed.try_recv().is_err());
}

/// Has tasks 1 and on become so, and a listing say it.
fn become_so(coordinator: &mut Coordinator, states: &[PhaseName]) {
    let mut instances = Vec::new();
    for (at, state) in states.iter().enumerate() {
        let instance = record(u32::try_from(at).unwrap() + 1).instance;
        let transition = InstanceStateEvent {
            instance_uuid: instance.clone(),
            state: state.clone(),
            ..InstanceStateEvent::default()
        };
        coordinator.hear(SessionEvent::Event(Box::new(Event::Transition(Box::new(
            transition,
        )))));
        instances.push(InstanceView {
            instance_uuid: instance,
            state: match state {
                PhaseName::Waiting => PlacementState::Waiting,
                _ => PlacementState::Running,
            },
            life: state.as_str().to_owned(),
            ..InstanceView::default()
        });
    }
    coordinator.hear(SessionEvent::Listing(Box::new(Listing {
        instances,
        ended: Ended::default(),
        nodes: Vec::new(),
    })));
}

#[tokio::test]
async fn a_high_task_that_waits_beside_a_low_one_is_told_of_unless_one_makes_way() {
    use PhaseName::{Running, Suspended, Waiting};
    let state = tempfile::tempdir().unwrap();
    let (mut coordinator, _copied) = coordinator(&state, 2);
    let low = TaskRecord {
        priority: Priority::Low,
        ..record(3)
    };
    coordinator.insert(low, Sent::kept(Some(0)));
    let _asked = connect(&mut coordinator);
    for (states, is_told) in [
        ([Running, Waiting, Running], false),
        // Another one waits: the first has had its room.
        ([Waiting, Running, Running], false),
        ([Waiting, Running, Running], true),
        ([Waiting, Running, Running], true),
        ([Running, Running, Running], false),
        ([Waiting, Running, Running], false),
        ([Waiting, Running, Suspended], false),
        ([Waiting, Running, Running], false),
    ] {
        become_so(&mut coordinator, &states);
        let notice = coordinator.preemption.notice();
        assert_eq!(notice.is_some(), is_told, "{states:?} {notice:?}");
    }
}
