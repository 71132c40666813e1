//! The table of ends: what the core forgets stays there, until it is too old or too much.

use super::*;
use crate::server::restore::unix_ms;
use sched_core::{Cause, RunRecord};

/// The end of a run, with an exit status by its number.
fn ended(number: u64, cause: Cause) -> (RecordKey, Option<Record>) {
    let gone = Event {
        at_ms: 1_795_000_000_000 + number,
        what: "gone".into(),
        cause,
        ..Event::default()
    };
    let run = RunRecord {
        instance: Uuid::from_u128(number.into()).to_string().into(),
        at_ms: 1_795_000_000_000 + number,
        name: format!("job-{number}").into(),
        node: Some(Uuid::from_u128(u128::from(number % 10))),
        exit_code: Some(i64::try_from(number % 4).unwrap()),
        history: vec![gone],
        ..RunRecord::default()
    };
    (RecordKey::Run(number), Some(Record::Run(Box::new(run))))
}

fn change(ticket: u64, entries: Vec<(RecordKey, Option<Record>)>) -> Change {
    Change {
        ticket: Ticket(ticket),
        entries,
    }
}

/// A store of a directory that keeps ends within these limits.
fn keeping(directory: &Path, limits: HistoryLimits) -> Store {
    let opened = Opened::open(directory).unwrap().with_history(limits);
    opened.start(|_| {}).unwrap()
}

/// Of any age, in so many bytes.
fn within(bytes: u64) -> HistoryLimits {
    HistoryLimits {
        time: Duration::from_secs(u32::MAX.into()),
        bytes,
    }
}

/// The numbers of the ends that meet a filter, page by page.
fn numbers(store: &Store, filter: &EndFilter) -> Vec<u64> {
    let (mut all, mut before) = (Vec::new(), None);
    loop {
        let (rows, next) = store.ends(filter, before, 3).unwrap();
        all.extend(rows.iter().map(|row| row.number));
        match next {
            Some(next) => before = Some(next),
            None => return all,
        }
    }
}

#[test]
fn what_the_core_forgets_stays_on_record_also_where_it_was_not_written_yet() {
    let directory = tempfile::tempdir().unwrap();
    let store = keeping(directory.path(), within(u64::MAX));
    store.push(change(1, vec![ended(1, Cause::Ended)]));
    assert!(store.flush(LONG));
    store.push(change(2, vec![(RecordKey::Run(1), None)]));
    // In one transaction, as after a disk that took no writes for long.
    store.push(change(
        3,
        vec![ended(2, Cause::Ended), (RecordKey::Run(2), None)],
    ));
    assert!(store.flush(LONG));
    assert_eq!(numbers(&store, &EndFilter::default()), [2, 1]);
    assert!(store.close(LONG));
    drop(store);
    let store = keeping(directory.path(), within(u64::MAX));
    assert_eq!(numbers(&store, &EndFilter::default()), [2, 1]);
    assert_eq!(store.ends_kept().0, 2);
}

#[test]
fn a_filter_finds_its_ends_page_by_page_the_latest_first() {
    let directory = tempfile::tempdir().unwrap();
    let store = keeping(directory.path(), within(u64::MAX));
    store.push(change(
        1,
        (1..=40).map(|it| ended(it, Cause::Ended)).collect(),
    ));
    assert!(store.flush(LONG));
    let failed = EndFilter {
        state: "failed".to_owned(),
        ..EndFilter::default()
    };
    let expected: Vec<u64> = (1..=40).rev().filter(|it| it % 4 != 0).collect();
    assert_eq!(numbers(&store, &failed), expected);
    let one = EndFilter {
        name: "job-17".to_owned(),
        ..EndFilter::default()
    };
    assert_eq!(numbers(&store, &one), [17]);
    let late = EndFilter {
        since_ms: Some(1_795_000_000_038),
        ..EndFilter::default()
    };
    assert_eq!(numbers(&store, &late), [40, 39, 38]);
}

#[test]
fn the_oldest_are_deleted_beyond_the_bytes_and_the_sum_is_that_of_what_is_there() {
    let directory = tempfile::tempdir().unwrap();
    const BYTES: u64 = 2000;
    let store = keeping(directory.path(), within(BYTES));
    for number in 1..=100 {
        store.push(change(number, vec![ended(number, Cause::Ended)]));
    }
    assert!(store.flush(LONG));
    let kept = numbers(&store, &EndFilter::default());
    let (records, bytes) = store.ends_kept();
    assert!(bytes <= BYTES && bytes > BYTES / 2, "{bytes} bytes");
    assert_eq!(records, kept.len() as u64);
    let latest: Vec<u64> = (1..=100).rev().take(kept.len()).collect();
    assert_eq!(kept, latest);
    assert!(store.close(LONG));
    drop(store);
    let store = keeping(directory.path(), within(BYTES));
    assert_eq!(store.ends_kept(), (records, bytes));
}

#[test]
fn a_transaction_with_many_ends_deletes_as_many_as_are_too_much() {
    let directory = tempfile::tempdir().unwrap();
    const BYTES: u64 = 2000;
    let store = keeping(directory.path(), within(BYTES));
    let many = (1..=5000).map(|it| ended(it, Cause::Ended)).collect();
    store.push(change(1, many));
    assert!(store.flush(LONG));
    let (records, bytes) = store.ends_kept();
    assert!(bytes <= BYTES && records > 0, "{records} of {bytes} bytes");
}

#[test]
fn what_becomes_known_of_an_end_leaves_how_and_why_it_ended() {
    let directory = tempfile::tempdir().unwrap();
    let store = keeping(directory.path(), within(u64::MAX));
    let with = |number, cause, exit_code, detail: &str| {
        let (key, record) = ended(number, cause);
        let Some(Record::Run(mut run)) = record else {
            unreachable!("it is a run")
        };
        run.exit_code = exit_code;
        run.history[0].detail = detail.into();
        (key, Some(Record::Run(run)))
    };
    let restored = || Cause::Said("its words".into());
    let ends = vec![
        with(1, Cause::NodeLost, None, "node-a was lost"),
        with(2, Cause::NotListed, None, ""),
    ];
    store.push(change(1, ends));
    assert!(store.flush(LONG));
    // The same after a restart of the scheduler, with the exit status.
    let amended = vec![
        with(1, restored(), Some(-9), "other words"),
        with(2, restored(), Some(3), "more"),
    ];
    store.push(change(2, amended));
    assert!(store.flush(LONG));
    let (rows, _) = store.ends(&EndFilter::default(), None, 10).unwrap();
    let found: Vec<_> = rows
        .iter()
        .map(|row| {
            (
                row.number,
                row.outcome.as_str(),
                row.exit_code,
                &*row.detail,
            )
        })
        .collect();
    assert_eq!(
        found,
        [
            (2, "failed", Some(3), "more"),
            (1, "node_lost", Some(-9), "node-a was lost"),
        ]
    );
}

/// An end at some time by the core's clock.
fn ended_at(number: u64, at_ms: u64) -> (RecordKey, Option<Record>) {
    let (key, record) = ended(number, Cause::Ended);
    let Some(Record::Run(mut run)) = record else {
        unreachable!("it is a run")
    };
    run.at_ms = at_ms;
    (key, Some(Record::Run(run)))
}

#[test]
fn how_old_an_end_is_counts_from_when_it_was_put_on_record_and_not_by_the_cores_clock() {
    let directory = tempfile::tempdir().unwrap();
    let limits = HistoryLimits {
        time: Duration::from_secs(3600),
        bytes: u64::MAX,
    };
    let store = keeping(directory.path(), limits);
    // The core began while the clock was not set yet, and before it was set back by a day.
    let now_ms = unix_ms();
    let ends = [ended_at(1, 1000), ended_at(2, now_ms + 86_400_000)];
    store.push(change(1, ends.into()));
    store.push(put(2, 1));
    assert!(store.flush(LONG));
    assert_eq!(numbers(&store, &EndFilter::default()), [2, 1]);
    let of_today = EndFilter {
        since_ms: Some(now_ms),
        ..EndFilter::default()
    };
    assert_eq!(numbers(&store, &of_today), [2]);
    assert!(store.close(LONG));
    drop(store);
    // Later than when they were noted.
    let noted_by = unix_ms();
    while unix_ms() <= noted_by {
        std::thread::yield_now();
    }
    let none = HistoryLimits {
        time: Duration::ZERO,
        bytes: u64::MAX,
    };
    let store = keeping(directory.path(), none);
    store.push(put(1, 1));
    assert!(store.flush(LONG));
    assert_eq!(store.ends_kept(), (0, 0));
}

#[test]
fn an_end_that_is_amended_after_a_restart_keeps_its_outcome() {
    let directory = tempfile::tempdir().unwrap();
    let store = keeping(directory.path(), within(u64::MAX));
    store.push(change(1, vec![ended(1, Cause::CutOff)]));
    assert!(store.flush(LONG));
    store.push(change(
        2,
        vec![ended(1, Cause::Said("as a record has it".into()))],
    ));
    assert!(store.flush(LONG));
    let (rows, _) = store.ends(&EndFilter::default(), None, 10).unwrap();
    assert_eq!(rows.len(), 1);
    assert_eq!(rows[0].outcome.as_str(), "cut_off");
    assert_eq!(store.ends_kept().0, 1);
}

#[test]
fn a_store_of_an_earlier_version_has_its_runs_on_record() {
    let directory = tempfile::tempdir().unwrap();
    write(
        directory.path(),
        [change(
            1,
            vec![ended(1, Cause::Ended), ended(2, Cause::Ended)],
        )],
    );
    let database = redb::Database::open(directory.path().join(STORE_FILE)).unwrap();
    let transaction = database.begin_write().unwrap();
    let ends = redb::TableDefinition::<u64, &[u8]>::new("ends");
    assert!(transaction.delete_table(ends).unwrap());
    transaction.commit().unwrap();
    drop(database);
    let store = keeping(directory.path(), within(u64::MAX));
    assert_eq!(numbers(&store, &EndFilter::default()), [2, 1]);
}

/// A store that several schedulers share, in memory.
#[derive(Debug, Default)]
struct Shared(Mutex<std::collections::BTreeMap<Vec<u8>, Vec<u8>>>);

impl SharedStore for Shared {
    fn write(&self, entries: crate::server::Entries) -> Result<(), String> {
        let mut records = self.0.lock();
        for (key, value) in entries {
            match value {
                Some(value) => records.insert(key, value),
                None => records.remove(&key),
            };
        }
        Ok(())
    }

    fn write_document(&self, _: crate::server::SharedDocument, _: &[u8]) -> Result<(), String> {
        unreachable!("a store writes records alone")
    }
}

#[test]
fn a_leader_adds_to_its_own_history_what_the_shared_store_has_of_the_time_of_another() {
    let shared = Arc::new(Shared::default());
    let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let lead = |directory: &tempfile::TempDir| {
        let decode = |(key, value): (&Vec<u8>, &Vec<u8>)| format::decode(key, value).unwrap();
        let records: Vec<_> = shared.0.lock().iter().map(decode).collect();
        let own = Opened::open(directory.path()).unwrap();
        let opened = own.with_shared(Arc::<Shared>::clone(&shared), &records);
        opened.with_history(within(u64::MAX)).start(|_| {}).unwrap()
    };
    let ends = |store: &Store| numbers(store, &EndFilter::default());
    let store = lead(&one);
    store.push(change(
        1,
        (1..=4).map(|it| ended(it, Cause::Ended)).collect(),
    ));
    // What waits for the disk and is forgotten meanwhile stays among the records until a restart.
    assert!(store.flush(LONG));
    // The core remembers only so many, and an instance that waits is no end.
    store.push(change(2, vec![(RecordKey::Run(1), None)]));
    store.push(put(3, 9));
    assert!(store.flush(LONG));
    assert_eq!(ends(&store), [4, 3, 2, 1]);
    assert!(store.close(LONG));
    drop(store);
    let store = lead(&two);
    assert_eq!(ends(&store), [4, 3, 2]);
    store.push(change(
        1,
        vec![ended(5, Cause::Ended), (RecordKey::Run(2), None)],
    ));
    assert!(store.close(LONG));
    drop(store);
    let store = lead(&one);
    assert_eq!(ends(&store), [5, 4, 3, 2, 1]);
    assert_eq!(store.ends_kept().0, 5);
    assert!(store.close(LONG));
    drop(store);
    // Alone: nothing is left that the shared store has not, and of that only runs.
    let opened = Opened::open(one.path()).unwrap();
    let keys: Vec<RecordKey> = opened.records.into_iter().map(|(key, _)| key).collect();
    assert_eq!(keys, [3, 4, 5].map(RecordKey::Run));
}
