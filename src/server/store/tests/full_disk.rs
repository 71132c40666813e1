//! A file that cannot grow: the real error, from a limit of this very process.

use std::path::Path;
use std::process::Command;
use std::sync::mpsc::{Receiver, channel};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::*;

/// The directory in which the child process writes; set for it alone.
const DIRECTORY: &str = "CIAO_STORE_FULL_DIRECTORY";

/// Far more records than fit.
const RECORDS: u64 = 20_000;

/// Runs a test of this file in a process of its own, in which a file that cannot grow is an error rather than its end.
fn in_a_child(test: &str) {
    if std::env::var_os(DIRECTORY).is_some() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let output = Command::new("sh")
        .args(["-c", "trap '' XFSZ; exec \"$0\" \"$@\""])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "--nocapture", "--test-threads=1"])
        .arg(format!("server::store::tests::full_disk::{test}"))
        .env(DIRECTORY, directory.path())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
}

/// Lets no file grow beyond this; `None` = as far as they may.
fn limit_files(current: Option<u64>) {
    let now = getrlimit(Resource::Fsize);
    let current = current.or(now.maximum);
    setrlimit(Resource::Fsize, Rlimit { current, ..now }).unwrap();
}

/// In the child: its directory, and a store there that cannot grow, with some records.
fn full_store() -> Option<(std::ffi::OsString, Store, Receiver<News>)> {
    let directory = std::env::var_os(DIRECTORY)?;
    let path = Path::new(&directory);
    write(path, [put(1, 1)]);
    let opened = Opened::open(path).unwrap();
    let len = std::fs::metadata(path.join(STORE_FILE)).unwrap().len();
    limit_files(Some(len));
    let patience = Patience {
        first: Duration::from_millis(1),
        most: Duration::from_millis(10),
    };
    let (tell, told) = channel();
    let tell = move |news| {
        let _ = tell.send(news);
    };
    let Place::File(file) = opened.place else {
        panic!("{:?}", opened.place);
    };
    let store = Store::start(file, patience, opened.refused, tell).unwrap();
    Some((directory, store, told))
}

/// Gives the store more than fits, and waits until the disk does not take it; the last change that was committed.
fn fill(store: &Store, told: &Receiver<News>) -> Ticket {
    let mut committed = Ticket(1);
    for number in 2..=RECORDS {
        store.push(put(number, number));
    }
    loop {
        match told.recv_timeout(LONG).unwrap() {
            News::Committed(ticket) => committed = ticket,
            News::Disk(DiskState::Refuses(why)) => {
                assert!(why.contains("File too large"), "{why}");
                return committed;
            }
            News::Disk(DiskState::Writes) => panic!("it has always taken writes"),
        }
    }
}

#[test]
fn room_that_comes_back_is_used() {
    in_a_child("room_that_comes_back_is_used");
    let Some((directory, store, told)) = full_store() else {
        return;
    };
    fill(&store, &told);
    assert!(!store.flush(LONG), "a flush of a full disk says so");
    limit_files(None);
    let is_last = |news: &News| *news == News::Committed(Ticket(RECORDS));
    let mut told = std::iter::from_fn(|| told.recv_timeout(LONG).ok());
    assert_eq!(
        told.next(),
        Some(News::Disk(DiskState::Writes)),
        "and said once"
    );
    assert!(told.any(|news| is_last(&news)));
    assert!(store.close(LONG));
    assert_eq!(contents(Path::new(&directory)).len() as u64, RECORDS);
}

#[test]
fn a_store_that_is_closed_on_a_full_disk_is_found_as_it_was_committed() {
    in_a_child("a_store_that_is_closed_on_a_full_disk_is_found_as_it_was_committed");
    let Some((directory, store, told)) = full_store() else {
        return;
    };
    let directory = Path::new(&directory);
    let committed = fill(&store, &told);
    assert!(store.close(LONG));
    // On the disk that is still full, on one that takes nothing at all, and on one that has room again.
    assert_eq!(contents(directory).len() as u64, committed.0);
    limit_files(Some(0));
    let opened = Opened::open(directory).unwrap();
    assert_eq!(opened.records.len() as u64, committed.0);
    assert!(opened.refused.is_some());
    drop(opened);
    limit_files(None);
    assert_eq!(contents(directory).len() as u64, committed.0);
    assert_eq!(formats::kept(directory), Vec::<String>::new());
}
