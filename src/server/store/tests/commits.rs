//! Group commit, and a disk that fails.

use std::sync::mpsc::{Receiver, Sender, channel};

use super::*;

/// A disk that writes, or fails, when told to.
struct Disk {
    /// Whether the next transaction is written.
    orders: Receiver<Result<(), &'static str>>,
    /// What each transaction was to write.
    seen: Sender<Batch>,
}

impl Sink for Disk {
    type Error = &'static str;

    fn write(&mut self, batch: &Batch) -> Result<(), &'static str> {
        let _ = self.seen.send(batch.clone());
        self.orders.recv().unwrap_or(Ok(()))
    }
}

/// A store over such a disk.
struct World {
    store: Store,
    orders: Sender<Result<(), &'static str>>,
    seen: Receiver<Batch>,
    told: Receiver<News>,
}

impl World {
    fn new() -> Self {
        let (orders, take_orders) = channel();
        let (see, seen) = channel();
        let (tell, told) = channel();
        let disk = Disk {
            orders: take_orders,
            seen: see,
        };
        let patience = Patience {
            first: Duration::from_millis(1),
            most: Duration::from_millis(2),
        };
        let tell = move |news| {
            let _ = tell.send(news);
        };
        Self {
            store: Store::start(disk, patience, None, tell).unwrap(),
            orders,
            seen,
            told,
        }
    }

    /// The transaction that is being written.
    fn transaction(&self) -> Batch {
        self.seen.recv_timeout(LONG).expect("something is written")
    }

    fn writes(&self) {
        self.orders.send(Ok(())).unwrap();
    }

    fn fails(&self) {
        self.orders.send(Err("no room")).unwrap();
    }

    fn told(&self) -> News {
        self.told.recv_timeout(LONG).expect("something is told")
    }

    fn committed(&self) -> Ticket {
        match self.told() {
            News::Committed(ticket) => ticket,
            news => panic!("{news:?}"),
        }
    }

    fn nothing_else(&self) {
        assert!(self.seen.try_recv().is_err());
        assert!(self.told.try_recv().is_err());
    }
}

#[test]
fn what_comes_while_a_transaction_is_written_goes_into_the_next() {
    let world = World::new();
    world.store.push(put(1, 1));
    assert_eq!(world.transaction().len(), 1);
    for number in 2..=5 {
        world.store.push(put(number, number));
    }
    world.writes();
    assert_eq!(world.committed(), Ticket(1));
    assert_eq!(world.transaction().len(), 4);
    world.writes();
    assert_eq!(world.committed(), Ticket(5));
    assert!(world.store.flush(LONG));
    world.nothing_else();
}

#[test]
fn a_slow_disk_holds_one_record_for_each_key() {
    let world = World::new();
    world.store.push(put(1, 1));
    world.transaction();
    for ticket in 2..10_000 {
        world.store.push(put(ticket, 7));
    }
    world.store.push(delete(10_000, 7));
    world.writes();
    world.committed();
    let expected: Batch = [(instance(7), None)].into_iter().collect();
    assert_eq!(world.transaction(), expected);
    world.writes();
    assert_eq!(world.committed(), Ticket(10_000));
}

#[test]
fn a_change_of_nothing_is_committed_too() {
    let world = World::new();
    let (ticket, entries) = (Ticket(3), Vec::new());
    world.store.push(Change { ticket, entries });
    world.writes();
    assert_eq!(world.committed(), Ticket(3));
}

#[test]
fn a_disk_that_fails_for_a_while_loses_nothing() {
    let world = World::new();
    world.store.push(put(1, 1));
    world.transaction();
    world.store.push(put(2, 2));
    world.store.push(delete(3, 1));
    world.fails();
    // Tried again with what has come meanwhile, the newest of each key.
    let expected: Batch = [(instance(1), None), (instance(2), Some(waiting(2)))]
        .into_iter()
        .collect();
    assert_eq!(world.transaction(), expected);
    let refuses = News::Disk(DiskState::Refuses("no room".into()));
    assert_eq!(world.told(), refuses, "said at once");
    world.fails();
    assert_eq!(world.transaction(), expected);
    world.nothing_else();
    world.writes();
    assert_eq!(world.told(), News::Disk(DiskState::Writes));
    assert_eq!(world.committed(), Ticket(3));
}

/// An end that the core then forgets.
fn ended_and_forgotten(number: u64) -> [(RecordKey, Option<Record>); 2] {
    let run = Record::Run(Box::default());
    [
        (RecordKey::Run(number), Some(run)),
        (RecordKey::Run(number), None),
    ]
}

#[test]
fn ends_that_the_core_has_forgotten_wait_for_the_disk_whatever_else_does_up_to_their_own_limit() {
    let world = World::new();
    world.store.shared.state.lock().pending.most = 4;
    world.store.push(put(1, 1));
    world.transaction();
    // More of other keys than the limit is.
    (2..=20).for_each(|number| world.store.push(put(number, number)));
    let ends = |ticket, numbers: std::ops::RangeInclusive<u64>| Change {
        ticket: Ticket(ticket),
        entries: numbers.flat_map(ended_and_forgotten).collect(),
    };
    world.store.push(ends(21, 1..=3));
    world.fails();
    let is_end = |(key, record): &(&RecordKey, &Option<Record>)| {
        matches!(key, RecordKey::Run(_)) && record.is_some()
    };
    assert_eq!(world.transaction().iter().filter(is_end).count(), 3);
    assert_eq!(world.store.ends_lost(), 0);
    // What is tried again and what came meanwhile have one limit together.
    world.store.push(ends(22, 4..=5));
    world.fails();
    assert_eq!(world.transaction().iter().filter(is_end).count(), 4);
    assert_eq!(world.store.ends_lost(), 1, "counted before it is written");
    world.writes();
    let refuses = News::Disk(DiskState::Refuses("no room".into()));
    assert_eq!(world.told(), refuses);
    assert_eq!(world.told(), News::Disk(DiskState::Writes));
    assert_eq!(world.committed(), Ticket(22));
}

#[test]
fn nobody_waits_longer_than_it_said_for_a_disk() {
    let world = World::new();
    world.store.push(put(1, 1));
    assert!(!world.store.flush(Duration::from_millis(1)));
    assert!(!world.store.close(Duration::from_millis(1)));
    world.writes();
    assert!(world.store.close(LONG));
    assert_eq!(world.committed(), Ticket(1));
}

#[test]
fn a_store_that_is_closed_while_its_disk_fails_tries_once_more_and_counts_nothing_as_written() {
    let world = World::new();
    world.store.push(put(1, 1));
    world.transaction();
    assert!(!world.store.close(Duration::ZERO));
    world.fails();
    world.transaction();
    world.fails();
    assert!(world.store.close(LONG));
    let refuses = News::Disk(DiskState::Refuses("no room".into()));
    assert_eq!(world.told(), refuses);
    world.nothing_else();
}

#[test]
fn a_flush_of_a_disk_that_fails_says_so() {
    let world = World::new();
    world.store.push(put(1, 1));
    let store = &world.store;
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| store.flush(LONG));
        while !waiting.is_finished() {
            if world.seen.recv_timeout(Duration::from_millis(1)).is_ok() {
                world.fails();
            }
        }
        assert!(!waiting.join().unwrap());
    });
    world.writes();
    // One try more may have been told to fail, while the flush before was on its way back: then it is what this one
    // hears of, and the next try is the one that writes.
    assert!(store.flush(LONG) || store.flush(LONG));
}

#[test]
fn a_database_that_failed_is_opened_again_for_the_next_transaction() {
    let directory = tempfile::tempdir().unwrap();
    write(directory.path(), [put(1, 1)]);
    let path = directory.path().join(STORE_FILE);
    let mut file = file::open(&path, IfAbsent::Make).unwrap().file;
    file.fail();
    file.write(&[(instance(2), Some(waiting(2)))].into_iter().collect())
        .unwrap();
    file.fail();
    std::fs::remove_file(&path).unwrap();
    assert!(file.write(&Batch::new()).is_err(), "not into a new file");
    assert!(!path.exists());
}

#[tokio::test]
async fn a_writing_thread_that_panics_is_noticed() {
    let (orders, take_orders) = channel();
    let disk = Disk {
        orders: take_orders,
        seen: channel().0,
    };
    let store = Store::start(disk, Patience::default(), None, |_| panic!("injected")).unwrap();
    store.push(put(1, 1));
    orders.send(Ok(())).unwrap();
    let why = tokio::time::timeout(LONG, store.failure()).await;
    assert_eq!(why.expect("it is noticed"), "it panicked: injected");
    assert!(store.close(LONG), "no caller waits for it");
}
