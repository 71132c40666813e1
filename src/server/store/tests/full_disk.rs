//! A real file that cannot grow, as on a full disk: the limit of a file's size stands in for the disk's.

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

/// In the child: its directory, and a store there that cannot grow, with some records.
fn full_store(limit: Duration) -> Option<(std::ffi::OsString, Store, Receiver<Ticket>)> {
    let directory = std::env::var_os(DIRECTORY)?;
    let path = Path::new(&directory);
    write(path, [put(1, 1)]);
    let file = file::open(&path.join(STORE_FILE), IfAbsent::Fail)
        .unwrap()
        .file;
    let len = std::fs::metadata(path.join(STORE_FILE)).unwrap().len();
    let now = getrlimit(Resource::Fsize);
    let current = Some(len);
    setrlimit(Resource::Fsize, Rlimit { current, ..now }).unwrap();
    let patience = Patience {
        first: Duration::from_millis(1),
        most: Duration::from_millis(10),
        limit,
    };
    let (commit, committed) = channel();
    let committed_to = move |ticket| {
        let _ = commit.send(ticket);
    };
    let store = Store::start(file, patience, committed_to).unwrap();
    Some((directory, store, committed))
}

#[test]
fn room_that_comes_back_is_used() {
    in_a_child("room_that_comes_back_is_used");
    let Some((directory, store, committed)) = full_store(LONG) else {
        return;
    };
    for number in 2..=RECORDS {
        store.push(put(number, number));
    }
    let most = Ticket(RECORDS);
    let soon = Duration::from_millis(200);
    while let Ok(ticket) = committed.recv_timeout(soon) {
        assert!(ticket < most, "it does not all fit");
    }
    let now = getrlimit(Resource::Fsize);
    let current = now.maximum;
    setrlimit(Resource::Fsize, Rlimit { current, ..now }).unwrap();
    while committed.recv_timeout(LONG).unwrap() < most {}
    assert!(store.close(LONG));
    assert_eq!(contents(Path::new(&directory)).len() as u64, RECORDS);
}

#[test]
fn a_disk_that_stays_full_ends_durability_and_nothing_else() {
    in_a_child("a_disk_that_stays_full_ends_durability_and_nothing_else");
    let Some((directory, store, committed)) = full_store(Duration::from_millis(50)) else {
        return;
    };
    for number in 2..=RECORDS {
        store.push(put(number, number));
    }
    while committed.recv_timeout(LONG).unwrap() < Ticket(RECORDS) {}
    assert!(store.close(LONG));
    let kept = formats::kept(Path::new(&directory));
    assert_eq!(kept, ["store.redb.damaged-1"]);
    assert!(!Path::new(&directory).join(STORE_FILE).exists());
}
