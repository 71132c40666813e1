//! Files that are torn, or have other bytes than were written: what is found is what was written, or nothing.

use super::formats::kept;
use super::*;

/// Records in the store that is damaged: enough for a tree with inner pages.
const RECORDS: u64 = 100;

/// What was in the store at its last two commits, in order of keys.
struct Written {
    bytes: Vec<u8>,
    states: [Vec<(RecordKey, Record)>; 2],
}

/// A store that was closed, or is as a crash leaves it.
fn written(ending: Ending) -> Written {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join(STORE_FILE);
    let store = open(directory.path());
    for number in 0..RECORDS {
        store.push(put(number + 1, number));
    }
    assert!(store.flush(LONG));
    store.push(delete(RECORDS + 1, 50));
    assert!(store.flush(LONG));
    if ending == Ending::Closed {
        assert!(store.close(LONG));
    }
    let state = |left_out: Option<u64>| {
        let numbers = (0..RECORDS).filter(|&number| Some(number) != left_out);
        let mut records: Vec<_> = numbers.map(|it| (instance(it), waiting(it))).collect();
        records.sort_by(|a, b| a.0.cmp(&b.0));
        records
    };
    Written {
        bytes: std::fs::read(path).unwrap(),
        states: [state(None), state(Some(50))],
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Ending {
    Closed,
    Crashed,
}

/// What became of a damaged file.
#[derive(Debug, PartialEq, Eq)]
enum Fate {
    /// All of the last commit, or of the one before, was found.
    Found,
    SetAside,
}

/// Opens a damaged file and looks whether what is found is right; then whether the store can be used.
fn fate(written: &Written, bytes: &[u8]) -> Fate {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join(STORE_FILE), bytes).unwrap();
    let found = contents(directory.path());
    write(directory.path(), [put(1, 7)]);
    if kept(directory.path()).is_empty() {
        let is_right = written.states.contains(&found) || found.is_empty() && bytes.is_empty();
        assert!(is_right, "{} records", found.len());
        Fate::Found
    } else {
        assert!(found.is_empty());
        assert_eq!(contents(directory.path()), [(instance(7), waiting(7))]);
        Fate::SetAside
    }
}

#[test]
fn a_file_that_ends_too_early_is_set_aside() {
    for ending in [Ending::Closed, Ending::Crashed] {
        let written = written(ending);
        let len = written.bytes.len();
        let ends = [1, 8, 63, 64, 319, 320, 511, 4095, 4096, 4097, 8192, len - 1];
        for end in ends.into_iter().chain((0..24).map(|part| len * part / 24)) {
            let fate = fate(&written, &written.bytes[..end]);
            assert!(end == 0 || fate == Fate::SetAside || fate == Fate::Found);
        }
    }
}

#[test]
fn a_file_with_other_bytes_is_found_as_it_was_or_set_aside() {
    for ending in [Ending::Closed, Ending::Crashed] {
        let written = written(ending);
        let header = (0..320).step_by(7);
        let pages = (320..written.bytes.len()).step_by(97);
        let pages = pages.filter(|&at| written.bytes[at] != 0).step_by(7);
        let mut set_aside = 0;
        for at in header.chain(pages) {
            let mut bytes = written.bytes.clone();
            bytes[at] ^= if at % 2 == 0 { 0xff } else { 0x01 };
            set_aside += usize::from(fate(&written, &bytes) == Fate::SetAside);
        }
        assert!(set_aside > 0, "some of it matters");
    }
}

#[test]
fn a_page_of_noughts_is_found_as_it_was_or_set_aside() {
    const PAGE: usize = 4096;
    let written = written(Ending::Crashed);
    for page in 0..written.bytes.len() / PAGE {
        let mut bytes = written.bytes.clone();
        bytes[page * PAGE..][..PAGE].fill(0);
        if bytes != written.bytes {
            fate(&written, &bytes);
        }
    }
}

#[test]
fn a_file_of_something_else_is_set_aside() {
    let written = written(Ending::Closed);
    for bytes in [&b"hello\n"[..], &[0; 100_000], &[0xff; 100_000]] {
        assert_eq!(fate(&written, bytes), Fate::SetAside);
    }
}

#[test]
fn as_many_damaged_files_are_kept_as_are_of_use() {
    let directory = tempfile::tempdir().unwrap();
    for round in 1..=12 {
        std::fs::write(directory.path().join(STORE_FILE), format!("round {round}")).unwrap();
        assert!(contents(directory.path()).is_empty());
    }
    let newest = [9, 10, 11, 12].map(|number| format!("store.redb.damaged-{number}"));
    let mut kept = kept(directory.path());
    kept.sort_by_key(|name| name.len());
    assert_eq!(kept, newest);
    let oldest = std::fs::read_to_string(directory.path().join(&newest[0])).unwrap();
    assert_eq!(oldest, "round 9");
}
