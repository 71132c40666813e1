//! The output of a workload: read from it through a pipe, written to its file, and kept within its limit as it is
//! written, beside the loop that obeys.
//!
//! ```text
//! workload ──stdout, stderr──▶ pipe ──a thread of the supervisor──▶ output.log ──copied when it is full──▶ output.log.1
//! ```
//! While the file is copied nothing is read, so a workload that writes faster than the disk waits, and nothing of what
//! it writes is lost. Where the disk is full what comes is left out rather than waited with, because a workload is not to
//! hang for its output; a line in the file says how much that was.
//!
//! What else a workload makes of the file is its own affair: it may write to it by its name, make it sparse and
//! terabytes long, replace it by a pipe without a reader. So it is looked at from time to time as well; a copy is made
//! in a thread, is never longer than the file may be, and opens nothing that could block. The file is copied and
//! then truncated, not renamed: its number names the run to readers.

use std::fs::{self, File, OpenOptions};
use std::io::{self, PipeReader, PipeWriter, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, JoinHandle};

use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::{Errno, ioctl_fionbio};

use super::super::files::{InstanceDir, OutputStart, careful, read_json, write_json};

/// Size at which the output file becomes the older output and starts again: with the older one, and the copy that takes
/// its place while that is made, an instance's output takes little more than three times this at any moment.
pub const MAX_OUTPUT_BYTES: u64 = 64 * 1024 * 1024;

/// Bytes that are read of a workload at a time: as many as a pipe holds, and by how much the file may be too long for a
/// moment.
const READ_BYTES: usize = 64 * 1024;

/// Reads after a workload's end, of what is in the pipe still: more than a pipe ever holds (1 MiB) is written by others,
/// who were given the workload's end of it.
const LAST_READS: usize = 16;

/// The output files of one workload, as its supervisor keeps them.
#[derive(Debug)]
pub(super) struct Output {
    files: Arc<Files>,
    /// The copy that is being made, or the latest, of a file that did not grow through the pipe.
    copy: Option<JoinHandle<()>>,
    pump: Option<Pump>,
}

/// The thread that reads the pipe. It ends with the pipe's other end, or when this is dropped.
#[derive(Debug)]
struct Pump {
    thread: JoinHandle<()>,
    /// Closed to say that all processes are gone.
    _until: PipeWriter,
}

/// The files, and who cuts them: one at a time.
#[derive(Debug)]
struct Files {
    dir: InstanceDir,
    /// How long the current file may be.
    max_bytes: u64,
    cutting: Mutex<()>,
    /// Bytes that came through the pipe.
    came: AtomicU64,
}

impl Output {
    /// Makes the file, which may be so long, and the pipe whose writing end the workload is to have as its standard output,
    /// its standard error, or both.
    ///
    /// # Errors
    /// The file cannot be made, or the system has no pipe or thread left.
    pub(super) fn open(dir: &InstanceDir, max_bytes: u64) -> io::Result<(Self, PipeWriter)> {
        let mut output = Self::new(dir, max_bytes);
        let sink = Sink::open(&output.files)?;
        let (from, to) = io::pipe()?;
        let (over, until) = io::pipe()?;
        let thread = thread::Builder::new()
            .name("output".to_owned())
            .spawn(move || pump(from, &over, sink))?;
        output.pump = Some(Pump {
            thread,
            _until: until,
        });
        Ok((output, to))
    }

    fn new(dir: &InstanceDir, max_bytes: u64) -> Self {
        let files = Files {
            dir: dir.clone(),
            max_bytes,
            cutting: Mutex::default(),
            came: AtomicU64::default(),
        };
        Self {
            files: Arc::new(files),
            copy: None,
            pump: None,
        }
    }

    /// Begins to move a too large file's end to the older output, unless that is being done; returns at once.
    pub(super) fn limit(&mut self) {
        if self.files.are_too_large() {
            let files = self.files.clone();
            self.beside(move || files.cut());
        }
    }

    /// Writes what is left in the pipe, when all processes are gone, and has the files within their limit; returns when
    /// it is done. How many bytes came through the pipe.
    pub(super) fn finish(mut self) -> u64 {
        if let Some(Pump { thread, _until }) = self.pump.take() {
            drop(_until);
            let _ = thread.join();
        }
        let copy = self.copy.take();
        copy.into_iter().for_each(|copy| drop(copy.join()));
        if self.files.are_too_large() {
            self.files.cut();
        }
        self.files.came.load(Ordering::Relaxed)
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

impl Files {
    fn are_too_large(&self) -> bool {
        is_too_large(&self.dir.output(), self.max_bytes)
    }

    /// Has the files within their limit.
    fn cut(&self) {
        let _alone = self.cutting.lock();
        let _ = cut(&self.dir, self.max_bytes);
    }
}

/// Reads the pipe until all its writing ends are closed, or `over` is and nothing more is in it.
fn pump(mut from: PipeReader, over: &PipeReader, mut sink: Sink) {
    let mut buffer = vec![0; READ_BYTES];
    let mut reads_left = None;
    loop {
        if reads_left.is_none() {
            let mut ends = [
                PollFd::new(&from, PollFlags::IN),
                PollFd::new(over, PollFlags::IN),
            ];
            match poll(&mut ends, None) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(_) => return,
            }
            if !ends[1].revents().is_empty() {
                if ioctl_fionbio(&from, true).is_err() {
                    return;
                }
                reads_left = Some(LAST_READS);
            } else if ends[0].revents().is_empty() {
                continue;
            }
        }
        match reads_left.as_mut() {
            Some(0) => return,
            Some(left) => *left -= 1,
            None => {}
        }
        match from.read(&mut buffer) {
            Ok(0) => return,
            Ok(len) => {
                sink.files.came.fetch_add(len as u64, Ordering::Relaxed);
                sink.write(&buffer[..len]);
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return,
        }
    }
}

/// Where what is read goes.
struct Sink {
    files: Arc<Files>,
    file: File,
    /// Bytes that could not be written since the last that could.
    left_out: u64,
}

impl Sink {
    /// Opens the file, making it if needed.
    ///
    /// # Errors
    /// The system's.
    fn open(files: &Arc<Files>) -> io::Result<Self> {
        Ok(Self {
            file: append_to(&files.dir.output())?,
            files: files.clone(),
            left_out: 0,
        })
    }

    /// Appends to the file, and cuts it if that makes it too long. What cannot be written is left out and counted.
    fn write(&mut self, text: &[u8]) {
        self.find_again();
        if self.left_out > 0 {
            let line = format!(
                "\n--- left out: {} bytes, which could not be written to this file ---\n",
                self.left_out
            );
            if append(&mut self.file, line.as_bytes()) < line.len() {
                self.left_out = self.left_out.saturating_add(text.len() as u64);
                return;
            }
            self.left_out = 0;
        }
        let written = append(&mut self.file, text);
        self.left_out = (text.len() - written) as u64;
        if self
            .file
            .metadata()
            .is_ok_and(|it| it.len() > self.files.max_bytes)
        {
            self.files.cut();
        }
    }

    /// Opens the file again where the workload, or somebody else, has removed it: one without a name takes room on the disk
    /// and cannot be read, nor cut.
    fn find_again(&mut self) {
        let is_removed = self.file.metadata().is_ok_and(|it| it.nlink() == 0);
        if !is_removed {
            return;
        }
        match append_to(&self.files.dir.output()) {
            Ok(file) => self.file = file,
            Err(_) => drop(self.file.set_len(0)),
        }
    }
}

/// Opens a plain file to append to it, making it if needed.
fn append_to(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new()
        .create(true)
        .append(true)
        .custom_flags(careful())
        .open(path)?;
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::other("is no file")),
    }
}

/// How much of the text was written.
fn append(file: &mut File, text: &[u8]) -> usize {
    let mut written = 0;
    while written < text.len() {
        match file.write(&text[written..]) {
            Ok(0) => break,
            Ok(more) => written += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => break,
        }
    }
    written
}

/// Whether the output is a plain file beyond its limit. What else a workload has put there is left as it is.
fn is_too_large(output: &Path, max_bytes: u64) -> bool {
    fs::symlink_metadata(output).is_ok_and(|it| it.is_file() && it.len() > max_bytes)
}

/// Makes the end of the output the older output, and the file empty. It is emptied also where there is no room for a
/// copy: a full disk must not be made worse by an output that grows.
///
/// The length at which it is cut is noted before and after, so that readers can tell the offset of what follows at any
/// moment.
///
/// # Errors
/// The copy or the truncation failed.
fn cut(dir: &InstanceDir, max_bytes: u64) -> io::Result<()> {
    let output = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(careful())
        .open(dir.output())?;
    let file = output.metadata()?;
    if !file.is_file() || file.len() <= max_bytes {
        return Ok(());
    }
    let earlier = start(dir);
    let copied = copy_end(&output, (file.len(), max_bytes), dir, &earlier);
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

/// Copies the last `max_bytes` of `len` to the older output, whole or not at all: into another file, which
/// then takes the name.
///
/// # Errors
/// Nothing of it is there then, and the earlier copy stays.
fn copy_end(
    mut output: &File,
    (len, max_bytes): (u64, u64),
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
        .seek(SeekFrom::Start(len - max_bytes))
        .and_then(|_| io::copy(&mut output.take(max_bytes), &mut &older))
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
    use super::{MAX_OUTPUT_BYTES, Output, READ_BYTES, start};

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
        Output::new(&dir, MAX_OUTPUT_BYTES).finish();
        assert!(!dir.older_output().exists());
        // A sparse file that is longer than the disk of most machines.
        let len = 1 << 40;
        output.set_len(len).unwrap();
        output.seek(SeekFrom::Start(len - 4)).unwrap();
        output.write_all(b"last").unwrap();
        let mut kept = Output::new(&dir, MAX_OUTPUT_BYTES);
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
        let mut kept = Output::new(&dir, MAX_OUTPUT_BYTES);
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
        Output::new(&dir, MAX_OUTPUT_BYTES).finish();
        assert_eq!(metadata(dir.output()).unwrap().len(), 0);
        assert_eq!(dir.0.read_dir().unwrap().count(), 3);
    }

    /// So many bytes of lines that count up.
    fn numbered(writer: &mut impl Write, bytes: u64) -> u64 {
        let mut written = 0;
        let mut number = 0_u64;
        while written < bytes {
            let block: String = (0..4096)
                .map(|_| {
                    number += 1;
                    format!("{number:015}\n")
                })
                .collect();
            writer.write_all(block.as_bytes()).unwrap();
            written += block.len() as u64;
        }
        written
    }

    #[test]
    fn what_comes_through_the_pipe_never_makes_the_file_much_too_long_and_none_of_it_is_lost() {
        let root = tempfile::tempdir().unwrap();
        let dir = InstanceDir(root.path().to_owned());
        let (output, mut pipe) = Output::open(&dir, MAX_OUTPUT_BYTES).unwrap();
        let (path, files) = (dir.output(), dir.clone());
        let (end, ends) = mpsc::channel::<()>();
        // Looks at it all the while.
        let watch = std::thread::spawn(move || {
            let mut longest = 0;
            while ends.try_recv() == Err(mpsc::TryRecvError::Empty) {
                let len = metadata(&path).map_or(0, |it| it.len());
                longest = longest.max(len);
            }
            longest
        });
        let written = numbered(&mut pipe, 3 * MAX_OUTPUT_BYTES + MAX_OUTPUT_BYTES / 2);
        drop(pipe);
        output.finish();
        drop(end);
        let longest = watch.join().unwrap();
        assert!(longest <= MAX_OUTPUT_BYTES + READ_BYTES as u64, "{longest}");
        // The two files are the end of what was written.
        let all = [
            read(files.older_output()).unwrap(),
            read(files.output()).unwrap(),
        ]
        .concat();
        let first: u64 = std::str::from_utf8(&all[..15]).unwrap().parse().unwrap();
        let last: u64 = std::str::from_utf8(&all[all.len() - 16..all.len() - 1])
            .unwrap()
            .parse()
            .unwrap();
        assert_eq!((last - first + 1) * 16, all.len() as u64);
        assert_eq!(last * 16, written);
        let noted = start(&files);
        assert_eq!(
            noted.from + metadata(files.output()).unwrap().len(),
            written
        );
        assert_eq!(noted.older_to, noted.from);
    }

    #[test]
    fn a_pipe_that_somebody_else_holds_open_keeps_no_workload_from_its_end() {
        let root = tempfile::tempdir().unwrap();
        let dir = InstanceDir(root.path().to_owned());
        let (output, mut pipe) = Output::open(&dir, MAX_OUTPUT_BYTES).unwrap();
        pipe.write_all(b"last words").unwrap();
        output.finish();
        assert_eq!(read(dir.output()).unwrap(), b"last words");
        drop(pipe);
    }

    #[test]
    fn a_file_that_was_removed_is_made_again() {
        let root = tempfile::tempdir().unwrap();
        let dir = InstanceDir(root.path().join("instance"));
        std::fs::create_dir(&dir.0).unwrap();
        let (output, mut pipe) = Output::open(&dir, MAX_OUTPUT_BYTES).unwrap();
        std::fs::remove_file(dir.output()).unwrap();
        pipe.write_all(b"after that").unwrap();
        while read(dir.output()).unwrap_or_default() != b"after that" {
            std::thread::yield_now();
        }
        std::fs::remove_dir_all(&dir.0).unwrap();
        pipe.write_all(b"nowhere").unwrap();
        drop(pipe);
        output.finish();
        assert!(!dir.0.exists());
    }
}
