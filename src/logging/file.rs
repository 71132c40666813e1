//! The log file: one for each day, opened again under its name where that is asked for.
//!
//! Programs that rotate logs rename the file, or delete it, and send SIGHUP; without opening it again, what is logged
//! next would go where nobody looks for it.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tracing_appender::rolling::{RollingFileAppender, Rotation};

/// Daily log files kept; older ones are removed when the next is begun.
const MAX_LOG_FILES: usize = 14;

/// Has the log file opened again before the next line is written. Clones are of the same file.
#[derive(Debug, Clone)]
pub struct Reopen(Arc<AtomicBool>);

/// A file of today in a directory. Written by the log's own thread alone.
#[derive(Debug)]
pub(super) struct LogFile {
    directory: PathBuf,
    /// What its name begins with.
    program: &'static str,
    appender: RollingFileAppender,
    is_to_reopen: Arc<AtomicBool>,
}

impl Reopen {
    /// Asks for it. The thread that writes does it, with the next line.
    fn ask(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Has it opened again, and says why in the first line of the file under its name.
    pub fn reopen(&self, why: &str) {
        self.ask();
        tracing::info!(
            event = "log_reopened",
            "{why}: the log file is opened again"
        );
    }
}

impl LogFile {
    /// Makes the directory if it is not there, and opens the file.
    ///
    /// # Errors
    /// The system's.
    pub(super) fn open(directory: &Path, program: &'static str) -> io::Result<(Self, Reopen)> {
        let is_to_reopen = Arc::<AtomicBool>::default();
        let file = Self {
            directory: directory.to_owned(),
            program,
            appender: appender(directory, program)?,
            is_to_reopen: Arc::clone(&is_to_reopen),
        };
        Ok((file, Reopen(is_to_reopen)))
    }

    /// Opens the file of today under its name. Where that fails the log goes on in the file that is open.
    fn reopen(&mut self) {
        match appender(&self.directory, self.program) {
            Ok(appender) => self.appender = appender,
            // Into the queues of this log and of standard error, for which this thread waits no more than others do.
            Err(error) => tracing::warn!(
                event = "log_directory_unusable",
                "cannot open the log in {} again: {error}: it goes on in the file that was open; mend that and send \
                 SIGHUP once more",
                self.directory.display()
            ),
        }
    }
}

impl Write for LogFile {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if self.is_to_reopen.swap(false, Ordering::Relaxed) {
            self.reopen();
        }
        self.appender.write(line)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.appender.flush()
    }
}

fn appender(directory: &Path, program: &str) -> io::Result<RollingFileAppender> {
    std::fs::create_dir_all(directory)?;
    RollingFileAppender::builder()
        .rotation(Rotation::DAILY)
        .filename_prefix(program)
        .filename_suffix("log")
        .max_log_files(MAX_LOG_FILES)
        .build(directory)
        .map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The only log in a directory, and what is in it.
    fn log(directory: &Path) -> (PathBuf, String) {
        let mut logs: Vec<PathBuf> = std::fs::read_dir(directory)
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .filter(|path| path.extension().is_some_and(|it| it == "log"))
            .collect();
        let path = logs.pop().unwrap();
        assert!(logs.is_empty(), "{logs:?}");
        let text = std::fs::read_to_string(&path).unwrap();
        (path, text)
    }

    #[test]
    fn a_file_that_was_renamed_or_whose_directory_is_gone_is_opened_again_under_its_name() {
        let root = tempfile::tempdir().unwrap();
        let directory = root.path().join("logs");
        let (mut file, reopen) = LogFile::open(&directory, "test").unwrap();
        file.write_all(b"first\n").unwrap();
        let (path, _) = log(&directory);
        let renamed = directory.join("rotated.1");
        std::fs::rename(&path, &renamed).unwrap();
        file.write_all(b"second\n").unwrap();
        reopen.ask();
        file.write_all(b"third\n").unwrap();
        assert_eq!(log(&directory), (path.clone(), "third\n".to_owned()));
        let rotated = std::fs::read_to_string(&renamed).unwrap();
        assert_eq!(rotated, "first\nsecond\n");
        std::fs::remove_dir_all(&directory).unwrap();
        reopen.ask();
        file.write_all(b"fourth\n").unwrap();
        assert_eq!(log(&directory), (path, "fourth\n".to_owned()));
    }

    #[test]
    fn a_file_that_cannot_be_opened_again_stays_open() {
        let root = tempfile::tempdir().unwrap();
        let directory = root.path().join("logs");
        let (mut file, reopen) = LogFile::open(&directory, "test").unwrap();
        let moved = root.path().join("moved");
        std::fs::rename(&directory, &moved).unwrap();
        // What is there cannot be a directory.
        std::fs::write(&directory, "").unwrap();
        reopen.ask();
        file.write_all(b"goes on\n").unwrap();
        assert_eq!(log(&moved).1, "goes on\n");
        std::fs::remove_file(&directory).unwrap();
        reopen.ask();
        file.write_all(b"again\n").unwrap();
        assert_eq!(log(&directory).1, "again\n");
    }
}
