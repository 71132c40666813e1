//! The store on a real disk and over one that fails.

#![allow(clippy::unwrap_used, reason = "a test ends where it fails")]

mod commits;
mod crash;
mod damage;
mod faults;
mod formats;
mod full_disk;
mod history;

use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use proto_frames::Uuid;

use super::*;
use sched_core::{
    AfterRecord, Attempt, BindingRecord, Demand, DiskState, DrainRecord, EndsRecord, Event,
    InstanceRecord, Life, NodeRecord,
};

/// Far longer than anything here takes.
const LONG: Duration = Duration::from_secs(60);

fn instance(number: u64) -> RecordKey {
    RecordKey::Instance(format!("instance-{number}").into())
}

/// A record as an instance has it that waits.
fn waiting(number: u64) -> Record {
    Record::Instance(Box::new(InstanceRecord {
        payload: Some(Bytes::from(format!(
            "start:\n  instance_uuid: instance-{number}\n{}",
            "#".repeat(250)
        ))),
        sender: Uuid::from_u128(1),
        arrived_ms: 1_795_000_000_000 + number,
        order: number,
        history: vec![Event {
            at_ms: 1_795_000_000_000 + number,
            what: "arrived".into(),
            ..Event::default()
        }],
        ..InstanceRecord::default()
    }))
}

fn put(ticket: u64, number: u64) -> Change {
    Change {
        ticket: Ticket(ticket),
        entries: vec![(instance(number), Some(waiting(number)))],
    }
}

fn delete(ticket: u64, number: u64) -> Change {
    Change {
        ticket: Ticket(ticket),
        entries: vec![(instance(number), None)],
    }
}

/// What is in the store of a directory.
fn contents(directory: &Path) -> Vec<(RecordKey, Record)> {
    Opened::open(directory).unwrap().records
}

/// A store whose commits are not reported.
fn open(directory: &Path) -> Store {
    Opened::open(directory).unwrap().start(|_| {}).unwrap()
}

/// Writes changes to the store of a directory, and closes it.
fn write(directory: &Path, changes: impl IntoIterator<Item = Change>) {
    let store = open(directory);
    for change in changes {
        store.push(change);
    }
    assert!(store.close(LONG));
}

/// Everything that a record can hold.
fn full() -> [(RecordKey, Record); 2] {
    let node = Uuid::from_u128(0xabc);
    let instance = InstanceRecord {
        payload: Some(Bytes::from_static(b"\x00\xff not text")),
        sender: Uuid::from_u128(2),
        priority: 100,
        life: Life::Migrating,
        node: Some(node),
        target: Some(Uuid::from_u128(0xdef)),
        arrived_ms: 1,
        deadline_ms: Some(u64::MAX),
        attempts: 3,
        order: 4,
        tried: vec![Attempt {
            node,
            reason: "full_cn".into(),
            detail: "no memory".into(),
        }],
        history: vec![Event {
            at_ms: 5,
            what: "placed".into(),
            node: Some(node),
            detail: "\"quoted\"\n".into(),
            ..Event::default()
        }],
        by_operator: true,
        retries: 2,
        after: vec![AfterRecord {
            instance: "a".into(),
            is_array: true,
            named: "prepare".into(),
            end: "any".into(),
        }],
        has_run: true,
        max_attempts: 3,
        lease_ms: Some(10),
        runs: 4,
        ran_on: Some(node),
        earlier_runs: vec![(Uuid::from_u128(0xaaa), 2)],
        is_deleted: true,
        told_to_stop: true,
        updated: Some(Demand {
            mem_mib: 6,
            vcpus: 7,
            disk_mib: 8,
            resources: [("gpu".into(), 9)].into(),
        }),
        relocate: true,
        restart_on_loss: true,
        time_limit_ms: Some(13),
        time_used_ms: Some(14),
        array: Some(Uuid::from_u128(0xbbb)),
        index: Some(15),
        batch: Some("batch-1".into()),
        batch_operator: Some(Uuid::from_u128(9)),
        is_operators: false,
    };
    [
        (
            RecordKey::Instance("any text: ümlaut".into()),
            Record::Instance(Box::new(instance)),
        ),
        (RecordKey::Node(node), Record::Node(drained())),
    ]
}

/// A node that is being drained.
fn drained() -> NodeRecord {
    NodeRecord {
        cordoned: true,
        cordoned_since_ms: 10,
        lease_ms: Some(30_000),
        drain: Some(DrainRecord {
            deadline_ms: Some(11),
            parallel: 2,
            total: 40,
            moved: 12,
            ended: 0,
        }),
        ends: Some(EndsRecord {
            incarnation: Uuid::from_u128(3),
            seq: 1 << 33,
            ..EndsRecord::default()
        }),
    }
}

#[test]
fn what_was_written_is_found_again() {
    let directory = tempfile::tempdir().unwrap();
    assert!(contents(directory.path()).is_empty());
    let entries = full().map(|(key, record)| (key, Some(record))).to_vec();
    let ticket = Ticket(1);
    write(directory.path(), [Change { ticket, entries }, put(2, 7)]);
    let mut expected = full().to_vec();
    expected.insert(1, (instance(7), waiting(7)));
    assert_eq!(contents(directory.path()), expected);
}

#[test]
fn what_was_deleted_is_not_found_again() {
    let directory = tempfile::tempdir().unwrap();
    write(directory.path(), [put(1, 1), put(2, 2)]);
    write(directory.path(), [delete(1, 1), put(2, 3), delete(3, 3)]);
    assert_eq!(contents(directory.path()), [(instance(2), waiting(2))]);
}

#[test]
fn two_processes_do_not_share_a_store() {
    let directory = tempfile::tempdir().unwrap();
    let first = Opened::open(directory.path()).unwrap();
    let error = Opened::open(directory.path()).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::ResourceBusy);
    drop(first);
    assert!(Opened::open(directory.path()).is_ok());
}

#[test]
fn a_store_that_the_system_does_not_let_be_used_stops_the_start() {
    let directory = tempfile::tempdir().unwrap();
    // No process, not even the superuser's, opens a directory as a file.
    std::fs::create_dir(directory.path().join(STORE_FILE)).unwrap();
    let error = Opened::open(directory.path()).unwrap_err();
    assert!(error.to_string().starts_with("store.redb: "), "{error}");
}
