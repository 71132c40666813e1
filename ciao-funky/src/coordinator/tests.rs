//! Tests of the coordinator without a scheduler.

use std::path::Path;
use std::time::Duration;

use tempfile::TempDir;
use tokio::sync::{mpsc, oneshot};

use super::orders::Copied;
use super::{Accepted, Coordinator, MAX_TASKS, Order, Settings, Source};
use crate::binaries::{Binaries, Limits};
use crate::command::{Extras, Priority};
use crate::output::Output;
use crate::store::{Kept, Store};
use crate::task::{Shape, TaskRecord};

fn record(id: u32) -> TaskRecord {
    TaskRecord {
        id,
        instance: format!("instance {id}"),
        priority: Priority::High,
        files: Vec::new(),
        frequencies: Vec::new(),
        args: String::new(),
        outcome: None,
    }
}

/// A coordinator that has so many tasks that have not ended.
fn coordinator(state: &TempDir, tasks: u32) -> (Coordinator, mpsc::Receiver<Copied>) {
    let settings = Settings {
        shape: Shape {
            mem_mb: 1,
            tenant: String::new(),
            monitor: Vec::new(),
            one_argument: false,
        },
        vcpus: Some(1),
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
    };
    let binaries = Binaries::open(&state.path().join("binaries"), limits, [].into_iter()).unwrap();
    Coordinator::new(settings, (store, kept), binaries, Output::open().unwrap())
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
