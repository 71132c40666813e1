//! Files that are torn, or have other bytes than were written: what is found is what was written, or nothing.

use super::formats::kept;
use super::*;

/// Records in the store that is damaged: enough for a tree with inner pages.
const RECORDS: u64 = 100;

/// Bytes before the first page that say where everything is.
const HEADER: usize = 320;

/// What was in the store at its last two commits, in order of keys.
struct Written {
    bytes: Vec<u8>,
    states: [Vec<(RecordKey, Record)>; 2],
}

/// A store that was closed, or is as a crash leaves it.
fn written(ending: Ending) -> Written {
    let directory = in_memory();
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

/// A directory that costs no disk, where there is such a thing: what is damaged here is not what the disk does.
fn in_memory() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").unwrap_or_else(|_| tempfile::tempdir().unwrap())
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
    let directory = in_memory();
    std::fs::write(directory.path().join(STORE_FILE), bytes).unwrap();
    match file::open(&directory.path().join(STORE_FILE), IfAbsent::Make) {
        Ok(found) if bytes.is_empty() => {
            assert!(found.records.is_empty());
            Fate::Found
        }
        Ok(found) => {
            let [before, last] = &written.states;
            let is_last = found.records == *last;
            let count = found.records.len();
            assert!(is_last || found.records == *before, "{count} records");
            // Which commit is the last stands in the header, and the one before is as good by itself.
            let is_header = bytes[..HEADER] != written.bytes[..HEADER];
            assert!(is_last || is_header || found.rolled_back, "it is said");
            assert!(!found.rolled_back || bytes != written.bytes);
            Fate::Found
        }
        Err(OpenError::Unusable(_)) => {
            assert!(contents(directory.path()).is_empty());
            assert!(!kept(directory.path()).is_empty());
            write(directory.path(), [put(1, 7)]);
            assert_eq!(contents(directory.path()), [(instance(7), waiting(7))]);
            Fate::SetAside
        }
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn a_file_as_a_crash_leaves_it_is_found_whole() {
    for ending in [Ending::Closed, Ending::Crashed] {
        let written = written(ending);
        assert_eq!(fate(&written, &written.bytes), Fate::Found);
    }
}

#[test]
fn a_file_that_ends_too_early_is_set_aside() {
    for ending in [Ending::Closed, Ending::Crashed] {
        let written = written(ending);
        let len = written.bytes.len();
        let ends = [1, 8, 63, 64, 319, 320, 511, 4095, 4096, 4097, 8192, len - 1];
        for end in ends.into_iter().chain((0..24).map(|part| len * part / 24)) {
            let expected = if end == 0 {
                Fate::Found
            } else {
                Fate::SetAside
            };
            let fate = fate(&written, &written.bytes[..end]);
            // Behind its last page there is nothing that anybody would miss.
            assert!(fate == expected || end > len / 2, "{end} of {len} bytes");
        }
    }
}

#[test]
fn a_file_with_other_bytes_is_found_as_it_was_or_set_aside() {
    for ending in [Ending::Closed, Ending::Crashed] {
        let written = written(ending);
        let header = (0..HEADER).step_by(13);
        let pages = (HEADER..written.bytes.len()).filter(|&at| written.bytes[at] != 0);
        let pages = pages.step_by(1409);
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
