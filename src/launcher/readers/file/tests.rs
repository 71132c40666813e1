//! Tests of reading output: what is where, what is skipped, what a workload can do to its own files.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::time::Duration;

use proto_frames::payload::{OutputChunk, OutputFailure, ReadOutput};

use super::super::super::agent::{Demand, Stage};
use super::super::super::files::{InstanceDir, OutputStart, write_json};
use super::super::super::kept::deleted::{DeletedLog, Why};
use super::{InstanceRecord, KeepOutput, MAX_OUTPUT_CHUNK, MAX_TAIL_BYTES, OutputRead, Places};

/// A state directory with one instance, whose output is this.
struct World {
    root: tempfile::TempDir,
    places: Places,
    dir: InstanceDir,
}

impl World {
    fn new(output: &[u8]) -> Self {
        let root = tempfile::tempdir().unwrap();
        let rule = KeepOutput {
            age: Duration::from_secs(3600),
            bytes: 1 << 20,
        };
        let places = Places {
            root: root.path().to_owned(),
            rule,
        };
        let dir = InstanceDir(root.path().join("instances/a"));
        fs::create_dir_all(&dir.0).unwrap();
        fs::write(dir.record(), "{}").unwrap();
        fs::write(dir.output(), output).unwrap();
        Self { root, places, dir }
    }

    fn read(&self, request: ReadOutput) -> OutputChunk {
        let request = ReadOutput {
            instance_uuid: "a".to_owned(),
            ..request
        };
        match self.places.read(&request) {
            OutputRead::Chunk(chunk) => chunk,
            OutputRead::Changing => panic!("nothing changes"),
        }
    }

    fn from(&self, offset: u64) -> OutputChunk {
        self.read(ReadOutput {
            offset: Some(offset),
            ..ReadOutput::default()
        })
    }

    fn tail(&self, lines: u64) -> String {
        let chunk = self.read(ReadOutput {
            tail: Some(lines),
            ..ReadOutput::default()
        });
        let text = |chunk: &OutputChunk| String::from_utf8(chunk.data.to_vec()).unwrap();
        let mut all = text(&chunk);
        let mut end = chunk.part.end();
        while end < chunk.part.total {
            let next = self.from(end);
            end = next.part.end();
            all += &text(&next);
        }
        all
    }

    /// Makes this the older output, which ends so many bytes before the current file begins.
    fn older(&self, text: &[u8], from: u64, lost: u64) {
        use std::os::unix::fs::MetadataExt;
        fs::write(self.dir.older_output(), text).unwrap();
        let older = fs::metadata(self.dir.older_output()).unwrap().ino();
        let start = OutputStart {
            from,
            older_to: from - lost,
            older,
            cutting: None,
        };
        write_json(&self.dir.output_start(), &start).unwrap();
    }
}

#[test]
fn output_comes_in_chunks_and_ends_with_the_run() {
    let text = vec![b'x'; MAX_OUTPUT_CHUNK + 10];
    let world = World::new(&text);
    let first = world.from(0);
    assert_eq!(first.data.len(), MAX_OUTPUT_CHUNK);
    assert_eq!(
        (first.part.total, first.part.ended),
        (text.len() as u64, false)
    );
    let second = world.from(first.part.end());
    assert_eq!((second.data.len(), second.part.ended), (10, false));
    fs::write(world.dir.ended(), "{}").unwrap();
    assert!(!world.from(0).part.ended, "there is more");
    assert!(world.from(second.part.offset).part.ended);
    assert!(world.from(second.part.end()).part.ended);
}

#[test]
fn the_older_output_comes_first_and_what_is_lost_is_counted() {
    let world = World::new(b"current");
    world.older(b"older", 100, 10);
    let first = world.from(0);
    assert_eq!(&first.data[..], b"older");
    assert_eq!((first.part.offset, first.part.skipped), (85, 85));
    let second = world.from(first.part.end());
    assert_eq!(&second.data[..], b"current");
    assert_eq!((second.part.offset, second.part.skipped), (100, 10));
    assert_eq!(world.from(92).part.skipped, 8);
    assert_eq!(&world.from(87).data[..], b"der");
    assert_eq!(world.from(107).data.len(), 0);
}

#[test]
fn an_older_output_of_unknown_place_is_all_there_was() {
    let world = World::new(b"current");
    fs::write(world.dir.older_output(), "older").unwrap();
    assert_eq!(&world.from(1).data[..], b"lder");
    assert_eq!(&world.from(5).data[..], b"current");
}

#[test]
fn another_file_in_the_place_of_the_older_output_is_not_taken_for_it() {
    let world = World::new(b"current");
    world.older(b"older", 5, 0);
    // Both are there for a moment, so that it does not get the number of the one that it replaces.
    fs::write(world.dir.0.join("new"), "other").unwrap();
    fs::rename(world.dir.0.join("new"), world.dir.older_output()).unwrap();
    let chunk = world.from(0);
    assert_eq!((&chunk.data[..], chunk.part.skipped), (&b"current"[..], 5));
}

#[test]
fn a_file_that_is_being_cut_is_read_as_what_it_is() {
    let world = World::new(b"a file that is long");
    let start = OutputStart {
        from: 1000,
        cutting: Some(19),
        ..OutputStart::default()
    };
    write_json(&world.dir.output_start(), &start).unwrap();
    assert_eq!(world.from(1000).data.len(), 19, "not cut yet");
    fs::write(world.dir.output(), "new").unwrap();
    let chunk = world.from(1019);
    assert_eq!((&chunk.data[..], chunk.part.total), (&b"new"[..], 1022));
}

#[test]
fn output_that_its_workload_cut_itself_begins_again() {
    let world = World::new(b"much of it");
    let first = world.from(0);
    fs::write(world.dir.output(), "new").unwrap();
    let next = world.from(first.part.end());
    assert!(next.part.truncated);
    assert_eq!((&next.data[..], next.part.offset), (&b"new"[..], 0));
}

#[test]
fn the_last_lines_are_found_over_blocks_and_files() {
    let world = World::new(b"three\nfour\n");
    world.older(b"one\ntwo\n", 8, 0);
    assert_eq!(world.tail(0), "");
    assert_eq!(world.tail(1), "four\n");
    assert_eq!(world.tail(2), "three\nfour\n");
    assert_eq!(world.tail(3), "two\nthree\nfour\n");
    assert_eq!(world.tail(9), "one\ntwo\nthree\nfour\n");
    let mut file = OpenOptions::new()
        .append(true)
        .open(world.dir.output())
        .unwrap();
    file.write_all(b"open").unwrap();
    assert_eq!(world.tail(1), "open");
    assert_eq!(world.tail(2), "four\nopen");
    let lines: String = (0..20_000).map(|line| format!("line {line}\n")).collect();
    fs::write(world.dir.output(), &lines).unwrap();
    let tail = world.tail(10_000);
    assert_eq!(tail.lines().count(), 10_000);
    assert!(tail.starts_with("line 10000\n"));
    // One line that is longer than what is looked at.
    fs::write(world.dir.output(), vec![b'x'; 2 << 20]).unwrap();
    assert_eq!(world.tail(1).len() as u64, MAX_TAIL_BYTES);
}

#[test]
fn the_latest_run_is_read_and_an_earlier_one_by_its_number() {
    let world = World::new(b"second");
    let kept = world.root.path().join("kept");
    for (name, text) in [("a.2", "first"), ("a.10", "middle"), ("a.b.1", "other")] {
        fs::create_dir_all(kept.join(name)).unwrap();
        fs::write(kept.join(name).join("output.log"), text).unwrap();
    }
    assert_eq!(&world.from(0).data[..], b"second");
    let middle = {
        fs::remove_dir_all(&world.dir.0).unwrap();
        world.from(0)
    };
    assert_eq!(
        (&middle.data[..], middle.part.ended),
        (&b"middle"[..], true)
    );
    fs::create_dir_all(&world.dir.0).unwrap();
    fs::write(world.dir.output(), "third").unwrap();
    let again = world.read(ReadOutput {
        run: middle.part.run,
        offset: Some(3),
        ..ReadOutput::default()
    });
    assert_eq!(&again.data[..], b"dle");
    fs::remove_dir_all(kept.join("a.10")).unwrap();
    let gone = world.read(ReadOutput {
        run: middle.part.run,
        ..ReadOutput::default()
    });
    assert_eq!(gone.part.failure, OutputFailure::NotKept);
    assert!(gone.part.detail.contains("1h"), "{}", gone.part.detail);
}

#[test]
fn one_that_has_not_begun_to_write_has_nothing_yet_and_one_that_is_not_there_never_will() {
    let world = World::new(b"");
    fs::remove_file(world.dir.output()).unwrap();
    let none = world.from(0);
    assert!(!none.part.is_failure() && !none.part.ended && none.data.is_empty());
    fs::remove_dir_all(&world.dir.0).unwrap();
    assert_eq!(world.from(0).part.failure, OutputFailure::NotKept);
}

#[test]
fn output_that_was_deleted_is_said_to_be_with_the_reason_although_a_record_of_its_instance_is_left()
{
    let world = World::new(b"");
    fs::remove_file(world.dir.output()).unwrap();
    let mut record = InstanceRecord::new("a", Demand::default(), Stage::Running);
    write_json(&world.dir.record(), &record).unwrap();
    assert!(!world.from(0).part.is_failure(), "it may write yet");
    record.stage = Stage::Exited(Some(0));
    write_json(&world.dir.record(), &record).unwrap();
    let gone = world.from(0).part;
    assert_eq!(gone.failure, OutputFailure::NotKept);
    assert!(gone.detail.contains("not noted"), "{}", gone.detail);
    DeletedLog::of(world.root.path()).note([("a", Why::Bytes(5 << 20))]);
    let gone = world.from(0).part;
    assert_eq!(gone.failure, OutputFailure::NotKept);
    for part in ["was deleted on 2", "5 MiB", "--keep-output-bytes"] {
        assert!(gone.detail.contains(part), "{}", gone.detail);
    }
}

#[test]
fn what_is_no_plain_file_is_not_opened_and_a_sparse_one_is_read_like_any() {
    let world = World::new(b"");
    let output = world.dir.output();
    fs::remove_file(&output).unwrap();
    std::os::unix::fs::symlink(Path::new("/dev/zero"), &output).unwrap();
    assert!(world.from(0).part.is_failure());
    fs::remove_file(&output).unwrap();
    fs::create_dir(&output).unwrap();
    assert!(world.from(0).data.is_empty());
    fs::remove_dir(&output).unwrap();
    File::create(&output).unwrap().set_len(1 << 40).unwrap();
    assert_eq!(world.from(1 << 39).data.len(), MAX_OUTPUT_CHUNK);
    assert_eq!(world.from(u64::MAX).part.offset, 0);
    // What a workload wrote into the launcher's own file.
    fs::write(world.dir.output_start(), "{").unwrap();
    assert_eq!(world.from(0).part.offset, 0);
    let start = OutputStart {
        from: u64::MAX,
        older_to: u64::MAX,
        older: 0,
        cutting: Some(u64::MAX),
    };
    write_json(&world.dir.output_start(), &start).unwrap();
    assert!(world.from(u64::MAX).data.is_empty());
    assert!(world.tail(3).is_empty());
}

#[test]
fn the_tail_of_an_output_that_was_just_cut_is_in_the_older_file() {
    let world = World::new(b"");
    fs::write(world.dir.older_output(), "one\ntwo\nthree\n").unwrap();
    // Between the two files 100 KiB were written that are not kept.
    let start = OutputStart {
        from: 14 + 100 * 1024,
        older_to: 14,
        older: 0,
        cutting: None,
    };
    write_json(&world.dir.output_start(), &start).unwrap();
    assert_eq!(world.tail(1), "three\n");
    assert_eq!(world.tail(2), "two\nthree\n");
}
