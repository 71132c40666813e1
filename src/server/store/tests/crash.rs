//! Kill -9 at any instant: what was acknowledged as committed is there, and no change is torn.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Command, Stdio};

use super::*;

/// The directory in which the child process writes; set for it alone.
const DIRECTORY: &str = "CIAO_STORE_CRASH_DIRECTORY";

/// Processes killed.
const ROUNDS: u64 = 6;

/// Changes that wait at once in the child.
const WAITING: u64 = 16;

/// Both records of a change, which are there together or not at all.
fn pair(number: u64) -> Change {
    let second = number + 1_000_000_000;
    Change {
        ticket: Ticket(number),
        entries: vec![
            (instance(number), Some(waiting(number))),
            (instance(second), Some(waiting(second))),
        ],
    }
}

/// Is nothing by itself: what the test below runs in a process of its own, to kill it.
#[test]
fn a_child_that_writes_until_it_is_killed() {
    let Some(directory) = std::env::var_os(DIRECTORY) else {
        return;
    };
    let opened = Opened::open(Path::new(&directory)).unwrap();
    let first = opened.records.len() as u64 / 2 + 1;
    let (commit, committed) = std::sync::mpsc::channel();
    let store = opened
        .start(move |news| {
            if let News::Committed(ticket) = news {
                let _ = commit.send(ticket);
            }
        })
        .unwrap();
    let mut next = first;
    let mut done = first - 1;
    let mut output = io::stdout();
    loop {
        while next <= done + WAITING {
            store.push(pair(next));
            next += 1;
        }
        done = committed.recv().unwrap().0;
        writeln!(output, "\ncommitted {done}").unwrap();
        output.flush().unwrap();
    }
}

#[test]
fn what_was_acknowledged_before_a_kill_is_there_after_it() {
    let directory = tempfile::tempdir().unwrap();
    let mut acknowledged = 0;
    for round in 0..ROUNDS {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "--nocapture", "--test-threads=1"])
            .arg("server::store::tests::crash::a_child_that_writes_until_it_is_killed")
            .env(DIRECTORY, directory.path())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut commits =
            lines.filter_map(|line| line.ok()?.strip_prefix("committed ")?.parse().ok());
        acknowledged = commits.nth(3 + round as usize * 5).expect("it writes");
        child.kill().unwrap();
        child.wait().unwrap();
        // What it could still say.
        acknowledged = commits.max().unwrap_or(acknowledged);

        let records: IndexMap<_, _> = contents(directory.path()).into_iter().collect();
        assert_eq!(formats::kept(directory.path()), Vec::<String>::new());
        let is_there = |key: RecordKey| records.contains_key(&key);
        for number in 1..=acknowledged {
            assert!(is_there(instance(number)), "{number} of {acknowledged}");
            assert_eq!(records[&instance(number)], waiting(number));
        }
        let pairs = records.len() as u64 / 2;
        assert!(pairs >= acknowledged && pairs <= acknowledged + 2 * WAITING);
        for number in 1..=pairs {
            assert!(is_there(instance(number)) && is_there(instance(number + 1_000_000_000)));
        }
    }
    assert!(acknowledged > 0);
}
