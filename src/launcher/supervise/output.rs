//! The output file of a workload, kept within its limit beside the loop that obeys.
//!
//! What a workload makes of the file is its own affair: it may be sparse and terabytes long, grow while it is copied,
//! be replaced by a pipe without a reader. So the copy is made in a thread of its own, is never longer than
//! [`MAX_OUTPUT_BYTES`], and opens nothing that could block.
//!
//! The file is copied and then truncated, not renamed: the workload holds it open, and writes on at the new end because
//! it was opened for appending. What is written between the two steps is lost.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::thread::{self, JoinHandle};

use super::super::files::{InstanceDir, OutputStart, careful, read_json, write_json};

/// Size at which the output file becomes the older output and starts again: with the older one and what comes between
/// two looks, an instance's output takes little more than twice this.
pub const MAX_OUTPUT_BYTES: u64 = 64 * 1024 * 1024;

/// The output files of one workload, as its supervisor keeps them.
#[derive(Debug)]
pub(super) struct Output {
    dir: InstanceDir,
    /// The copy that is being made, or the latest.
    copy: Option<JoinHandle<()>>,
}

impl Output {
    pub(super) fn new(dir: &InstanceDir) -> Self {
        let dir = dir.clone();
        Self { dir, copy: None }
    }

    /// Begins to move a too large file's end to the older output, unless that is being done; returns at once.
    pub(super) fn limit(&mut self) {
        if is_too_large(&self.dir.output()) {
            let dir = self.dir.clone();
            self.beside(move || drop(cut(&dir)));
        }
    }

    /// As [`Output::limit`], when no process writes any more and there are no requests to serve; returns when it is
    /// done.
    pub(super) fn finish(mut self) {
        let copy = self.copy.take();
        copy.into_iter().for_each(|copy| drop(copy.join()));
        if is_too_large(&self.dir.output()) {
            let _ = cut(&self.dir);
        }
    }

    /// Runs this on a thread of its own, if none is at work; true if it will be done.
    fn beside(&mut self, work: impl FnOnce() + Send + 'static) -> bool {
        if self.copy.as_ref().is_some_and(|copy| !copy.is_finished()) {
            return false;
        }
        let thread = thread::Builder::new().name("output".to_owned()).spawn(work);
        self.copy = thread.ok();
        self.copy.is_some()
    }
}

/// Whether the output is a plain file beyond its limit. What else a workload has put there is left as it is.
fn is_too_large(output: &Path) -> bool {
    fs::symlink_metadata(output).is_ok_and(|it| it.is_file() && it.len() > MAX_OUTPUT_BYTES)
}

/// Makes the end of the output the older output, and the file empty. It is emptied also where there is no room for a
/// copy: a full disk must not be made worse by an output that grows.
///
/// The length at which it is cut is noted before and after, so that readers can tell the offset of what follows at any
/// moment.
///
/// # Errors
/// The copy or the truncation failed.
fn cut(dir: &InstanceDir) -> io::Result<()> {
    let output = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(careful())
        .open(dir.output())?;
    let file = output.metadata()?;
    if !file.is_file() || file.len() <= MAX_OUTPUT_BYTES {
        return Ok(());
    }
    let earlier = start(dir);
    let copied = copy_end(&output, file.len(), dir, &earlier);
    // Where there is no room to note it, readers take what follows for output that the workload cut itself.
    let cutting = output.metadata()?.len();
    let noted = OutputStart {
        cutting: Some(cutting),
        ..start(dir)
    };
    let _ = write_json(&dir.output_start(), &noted);
    output.set_len(0)?;
    let noted = OutputStart {
        from: noted.from.saturating_add(cutting),
        cutting: None,
        ..noted
    };
    let _ = write_json(&dir.output_start(), &noted);
    copied
}

/// Where the current file begins, as offset from the run's first byte. If a supervisor was ended between its two notes,
/// the file's length tells whether it was cut.
fn start(dir: &InstanceDir) -> OutputStart {
    let start = read_json::<OutputStart>(&dir.output_start());
    let start = start.ok().flatten().unwrap_or_default();
    // A supervisor that was ended while it cut the file has cut it: the file begins behind what was there.
    let Some(cut) = start.cutting else {
        return start;
    };
    let is_cut = fs::symlink_metadata(dir.output()).is_ok_and(|it| it.len() < cut);
    let from = start.from.saturating_add(if is_cut { cut } else { 0 });
    OutputStart {
        from,
        cutting: None,
        ..start
    }
}

/// Copies the last [`MAX_OUTPUT_BYTES`] of `len` to the older output, whole or not at all: into another file, which
/// then takes the name.
///
/// # Errors
/// Nothing of it is there then, and the earlier copy stays.
fn copy_end(
    mut output: &File,
    len: u64,
    dir: &InstanceDir,
    earlier: &OutputStart,
) -> io::Result<()> {
    let temporary = dir.older_output().with_extension("1.tmp");
    match fs::remove_file(&temporary) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let older = OpenOptions::new()
        .write(true)
        .create_new(true)
        .custom_flags(careful())
        .open(&temporary)?;
    let copied = output
        .seek(SeekFrom::Start(len - MAX_OUTPUT_BYTES))
        .and_then(|_| io::copy(&mut output.take(MAX_OUTPUT_BYTES), &mut &older))
        .and_then(|_| {
            // Before the file is there: one of another number is not taken for it.
            let noted = OutputStart {
                older_to: earlier.from.saturating_add(len),
                older: older.metadata()?.ino(),
                ..earlier.clone()
            };
            write_json(&dir.output_start(), &noted)?;
            fs::rename(&temporary, dir.older_output())
        });
    if copied.is_err() {
        let _ = fs::remove_file(&temporary);
    }
    copied
}

#[cfg(test)]
mod tests {
    use std::fs::{File, metadata, read};
    use std::io::{Seek, SeekFrom, Write};
    use std::os::unix::fs::MetadataExt;
    use std::sync::mpsc;

    use super::super::super::files::InstanceDir;
    use super::{MAX_OUTPUT_BYTES, Output};

    fn instance() -> (tempfile::TempDir, InstanceDir, File) {
        let root = tempfile::tempdir().unwrap();
        let dir = InstanceDir(root.path().to_owned());
        let output = File::create(dir.output()).unwrap();
        (root, dir, output)
    }

    #[test]
    fn the_end_of_a_too_large_output_becomes_the_older_output_and_the_file_starts_again() {
        let (_root, dir, mut output) = instance();
        output.set_len(MAX_OUTPUT_BYTES).unwrap();
        Output::new(&dir).finish();
        assert!(!dir.older_output().exists());
        // A sparse file that is longer than the disk of most machines.
        let len = 1 << 40;
        output.set_len(len).unwrap();
        output.seek(SeekFrom::Start(len - 4)).unwrap();
        output.write_all(b"last").unwrap();
        let mut kept = Output::new(&dir);
        kept.limit();
        kept.finish();
        assert_eq!(metadata(dir.output()).unwrap().len(), 0);
        let older = metadata(dir.older_output()).unwrap();
        assert_eq!(older.len(), MAX_OUTPUT_BYTES);
        assert!(older.blocks() * 512 <= MAX_OUTPUT_BYTES + (1 << 20));
        assert!(read(dir.older_output()).unwrap().ends_with(b"last"));
        assert_eq!(dir.0.read_dir().unwrap().count(), 3);
    }

    #[test]
    fn a_copy_that_does_not_end_holds_up_nothing_and_is_not_begun_twice() {
        let (_root, dir, output) = instance();
        let mut kept = Output::new(&dir);
        let (end, ends) = mpsc::channel::<()>();
        assert!(kept.beside(move || assert!(ends.recv().is_err())));
        output.set_len(MAX_OUTPUT_BYTES + 1).unwrap();
        kept.limit();
        assert!(!kept.beside(|| unreachable!("one is at work")));
        drop(end);
        kept.finish();
        assert_eq!(metadata(dir.output()).unwrap().len(), 0);
    }

    #[test]
    fn what_a_workload_put_in_the_place_of_its_older_output_does_not_keep_the_file_from_its_limit()
    {
        let (_root, dir, output) = instance();
        std::fs::create_dir(dir.older_output()).unwrap();
        output.set_len(MAX_OUTPUT_BYTES + 1).unwrap();
        Output::new(&dir).finish();
        assert_eq!(metadata(dir.output()).unwrap().len(), 0);
        assert_eq!(dir.0.read_dir().unwrap().count(), 3);
    }
}
