//! Logs of all programs: glog's flags, as the original's deployments use them, mapped onto `tracing`.
//!
//! One line for each event, in `tracing-subscriber`'s default format, with the field `event` in front of the sentence:
//!
//! ```text
//! 2026-11-24T12:00:00.000000Z  INFO ciao_scheduler::server::notices: event=node_lost node-7 (…) is lost: …
//! ```
//!
//! Level by `-v`, `-vmodule` and a file ([`Levels`]); where it goes by `-logtostderr`, `-log_dir` and the program's [`Destination`]. Files and
//! standard error are each written by a thread of their own, so that neither a slow disk nor a terminal that was stopped,
//! nor a pipe that is not read, stops the program.

mod fields;
mod file;
mod levels;

use std::backtrace::{Backtrace, BacktraceStatus};
use std::borrow::Cow;
use std::io::{self, Write};
use std::panic::PanicHookInfo;
use std::path::{Path, PathBuf};

use clap::Args;
use clap::builder::{OsStringValueParser, TypedValueParser};
use tokio::sync::watch;
use tracing::Level;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt::{self, MakeWriter};
use tracing_subscriber::layer::{Layer as _, SubscriberExt as _};
use tracing_subscriber::util::{SubscriberInitExt as _, TryInitError};

use self::fields::EventFirst;
use self::file::LogFile;
pub use self::file::Reopen;
pub use self::levels::{Levels, LevelsError, NewLevels};
use crate::line_queue::{LineQueue, line_queue};
use crate::printable::{Printable, is_unprintable};

/// Most bytes of lines that wait to be written, for each of the two threads.
const MAX_WAITING_BYTES: usize = 8 << 20;

/// glog's flags.
// The comments on the fields are the help texts that `clap` shows.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Logging")]
pub struct LogFlags {
    /// Log level for V logs: 1 adds what happens to each workload, 2 and more everything
    #[arg(long = "v", value_name = "N", default_value_t = 0)]
    pub verbosity: u8,
    /// Comma-separated list of MODULE=N: another -v for a module, e.g. sched=2
    #[arg(
        long,
        value_name = "PATTERN=N,…",
        default_value = "",
        hide_default_value = true
    )]
    pub vmodule: String,
    /// Read log levels from this file, a line v=N or MODULE=N each, over --v and --vmodule; again on SIGHUP
    #[arg(long, value_name = "FILE")]
    pub log_levels: Option<PathBuf>,
    /// Log to standard error instead of files
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value = "false", hide_default_value = true)]
    pub logtostderr: Flag,
    /// Log to standard error as well as files
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value = "false", hide_default_value = true)]
    pub alsologtostderr: Flag,
    /// Logs at or above this threshold go to standard error besides the files: INFO, WARNING, ERROR, FATAL or 0 to 3
    #[arg(long, value_name = "LEVEL", default_value = "ERROR")]
    pub stderrthreshold: Threshold,
    /// Write log files in this directory
    #[arg(long = "log_dir", alias = "log-dir", value_name = "DIR", value_parser = path_or_nothing())]
    pub log_dir: Option<PathBuf>,
    /// Accepted for compatibility, without effect
    #[arg(
        long = "log_backtrace_at",
        alias = "log-backtrace-at",
        value_name = "FILE:LINE",
        hide = true
    )]
    pub log_backtrace_at: Option<String>,
}

/// Reads a path that may be empty: Go's flags take `-log_dir=`, which stands for the default.
#[must_use]
pub fn path_or_nothing() -> impl TypedValueParser<Value = PathBuf> {
    OsStringValueParser::new().map(PathBuf::from)
}

/// Whether a path is that of a flag that was given no value.
#[must_use]
pub fn is_nothing(path: &Path) -> bool {
    path.as_os_str().is_empty()
}

/// A boolean flag as Go reads it: `-flag`, `-flag=true`, `-flag=0`. A type of its own, because `clap` takes only `true`
/// and `false` for a `bool`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Flag(pub bool);

impl std::str::FromStr for Flag {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(Self(true)),
            "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(Self(false)),
            _ => Err("expected true or false".to_owned()),
        }
    }
}

impl std::fmt::Display for Flag {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// glog's severities, by name or number; `FATAL` is the same as `ERROR`, as nothing is logged above that here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Threshold(Level);

impl Default for Threshold {
    fn default() -> Self {
        Self(Level::ERROR)
    }
}

impl std::str::FromStr for Threshold {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.to_ascii_uppercase().as_str() {
            "INFO" | "0" => Ok(Self(Level::INFO)),
            "WARNING" | "1" => Ok(Self(Level::WARN)),
            "ERROR" | "2" | "FATAL" | "3" => Ok(Self(Level::ERROR)),
            _ => Err("expected INFO, WARNING, ERROR, FATAL or 0 to 3".to_owned()),
        }
    }
}

/// Where logs go when no flag says so.
#[derive(Debug, Clone, Copy)]
pub enum Destination {
    /// To daily files in this directory, as the original's daemons.
    Files(&'static str),
    /// To standard error, as tools and tests want it.
    Stderr,
}

/// Why logging cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// `-vmodule` cannot be read.
    #[error("-vmodule '{0}': expected MODULE=N, separated by commas")]
    Vmodule(String),
    /// The file of levels cannot be used.
    #[error("cannot use the log levels in {}: {source}", .path.display())]
    Levels {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: LevelsError,
    },
    /// Logging was set up before.
    #[error(transparent)]
    Init(#[from] TryInitError),
    /// There is no thread to write with.
    #[error("cannot start the thread that writes the log: {0}")]
    Thread(io::Error),
}

/// The logs of a process. Keep it until the end: dropping it waits until what is left is written, a second at most for
/// each of the two. Lines that are logged after that may be lost.
#[derive(Debug)]
pub struct Logs {
    /// `None` where no file is written.
    file: Option<Writing>,
    stderr: Writing,
    reopen: Option<Reopen>,
    /// `None` in tests alone.
    levels: Option<Levels>,
}

/// A thread that writes a log.
#[derive(Debug)]
struct Writing {
    queue: LineQueue,
    /// Closed when the thread has ended, because its end of the channel is dropped with what it writes to.
    ended: watch::Receiver<()>,
}

impl Drop for Writing {
    fn drop(&mut self) {
        self.queue.drain();
    }
}

impl Logs {
    /// With which the log file is opened again, as after it was renamed. `None` where no file is written.
    #[must_use]
    pub fn reopen(&self) -> Option<Reopen> {
        self.reopen.clone()
    }

    /// What is logged, and how that is changed. `None` of logs that are not those of a process.
    #[must_use]
    pub fn levels(&self) -> Option<Levels> {
        self.levels.clone()
    }

    /// Waits until nothing is written to the log file any more, though the process goes on: its writer has panicked.
    /// Pending for ever where no file is written.
    pub fn writer_ended(&self) -> impl Future<Output = ()> + Send + use<> {
        let ended = self.file.as_ref().map(|file| file.ended.clone());
        async move {
            match ended {
                Some(mut ended) => while ended.changed().await.is_ok() {},
                None => std::future::pending().await,
            }
        }
    }
}

/// Sets up logging for the process, panics included. Called once, first of all; what is logged before is lost.
/// `program` is the beginning of the files' names, as in `ciao-scheduler.2026-11-24.log`.
///
/// # Errors
/// [`LogError`]. A log directory that cannot be written is no error: logs go to standard error, which says so.
pub fn init(
    flags: &LogFlags,
    program: &'static str,
    default: Destination,
) -> Result<Logs, LogError> {
    let (filter, levels) = Levels::new(flags)?;
    let (file, failed) = match directory(flags, default) {
        None => (None, None),
        Some(directory) => match open(&directory, program) {
            Ok((opened, reopen)) => (Some((opened, reopen)), None),
            Err(error) => (None, Some((directory, error))),
        },
    };
    let all_to_stderr = file.is_none() || flags.alsologtostderr.0;
    let stderr_level = if all_to_stderr {
        LevelFilter::TRACE
    } else {
        flags.stderrthreshold.0.into()
    };
    let (file, reopen) = file.unzip();
    let logs = Logs {
        file,
        stderr: written_to(io::stderr()).map_err(LogError::Thread)?,
        reopen,
        levels: Some(levels),
    };
    let writer = logs.file.as_ref().map(|file| file.queue.clone());
    tracing_subscriber::registry()
        .with(filter)
        .with(writer.map(|writer| {
            let layer = fmt::layer().with_ansi(false).with_writer(OneLine(writer));
            layer.fmt_fields(EventFirst)
        }))
        .with(
            fmt::layer()
                .with_ansi(false)
                .with_writer(OneLine(logs.stderr.queue.clone()))
                .fmt_fields(EventFirst)
                .with_filter(stderr_level),
        )
        .try_init()?;
    if let Some((directory, error)) = failed {
        tracing::warn!(
            event = "log_directory_unusable",
            "cannot log to {}: {error}: logging to standard error",
            directory.display()
        );
    }
    std::panic::set_hook(Box::new(log_panic));
    Ok(logs)
}

/// A panic is a defect, and the log is where people look for it. Installed as the process's panic hook. Backtraces are
/// in it if `RUST_BACKTRACE` asks for them.
fn log_panic(panic: &PanicHookInfo<'_>) {
    let backtrace = Backtrace::capture();
    match backtrace.status() {
        BacktraceStatus::Captured => tracing::error!(event = "panic", "{panic}\n{backtrace}"),
        _ => tracing::error!(event = "panic", "{panic}"),
    }
}

/// Writes each event as one line, whatever text of a peer is in it: a line end would forge a second one, a control
/// character would be obeyed by the terminal it is read on. Here rather than where lines are made, so that no field of
/// any event is forgotten.
struct OneLine<M>(M);

/// A writer of [`OneLine`].
struct OneLineWriter<W>(W);

impl<'a, M: MakeWriter<'a>> MakeWriter<'a> for OneLine<M> {
    type Writer = OneLineWriter<M::Writer>;

    fn make_writer(&'a self) -> Self::Writer {
        OneLineWriter(self.0.make_writer())
    }
}

impl<W: Write> Write for OneLineWriter<W> {
    /// Takes a whole event: that is how the layer hands them on.
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        self.0.write_all(&one_line(event))?;
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// An event with everything escaped that is not shown, but the line end behind it.
fn one_line(event: &[u8]) -> Cow<'_, [u8]> {
    let (line, end) = match event.strip_suffix(b"\n") {
        Some(line) => (line, "\n"),
        None => (event, ""),
    };
    match std::str::from_utf8(line) {
        Ok(text) if !text.contains(is_unprintable) => event.into(),
        _ => {
            let text = String::from_utf8_lossy(line);
            format!("{}{end}", Printable::new(text)).into_bytes().into()
        }
    }
}

/// `None`: to standard error alone. `-logtostderr` counts above `-log_dir`, and that above the program's default.
fn directory(flags: &LogFlags, default: Destination) -> Option<PathBuf> {
    if flags.logtostderr.0 {
        return None;
    }
    let named = flags.log_dir.clone().filter(|it| !is_nothing(it));
    named.or(match default {
        Destination::Files(directory) => Some(directory.into()),
        Destination::Stderr => None,
    })
}

/// A daily file in this directory, which is made if it is not there, and with which it is opened again.
///
/// # Errors
/// The system's: the directory or the file cannot be made, or there is no thread left.
fn open(directory: &Path, program: &'static str) -> io::Result<(Writing, Reopen)> {
    let (file, reopen) = LogFile::open(directory, program)?;
    Ok((written_to(file)?, reopen))
}

/// A log that is written by a thread of its own.
///
/// # Errors
/// The system has no thread left.
fn written_to(to: impl Write + Send + 'static) -> io::Result<Writing> {
    let (queue, ended) = line_queue("log", MAX_WAITING_BYTES, to)?;
    Ok(Writing { queue, ended })
}

#[cfg(test)]
mod tests {
    use std::io::{self, Write};
    use std::sync::{Arc, Mutex};
    use std::time::Duration;

    use tracing_subscriber::fmt;
    use tracing_subscriber::layer::SubscriberExt as _;

    use super::{EventFirst, Logs, OneLine, one_line, written_to};

    /// A log file whose writer panics.
    struct Defective;

    impl Write for Defective {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            panic!("injected")
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[tokio::test]
    async fn a_log_writer_that_panics_is_noticed() {
        let writing = written_to(Defective).unwrap();
        let mut writer = writing.queue.clone();
        let logs = Logs {
            file: Some(writing),
            stderr: written_to(io::sink()).unwrap(),
            reopen: None,
            levels: None,
        };
        writer.write_all(b"a line\n").unwrap();
        tokio::time::timeout(Duration::from_secs(60), logs.writer_ended())
            .await
            .expect("it is noticed");
    }

    #[test]
    fn an_event_is_one_line_whatever_is_in_its_fields() {
        #[derive(Clone, Default)]
        struct Kept(Arc<Mutex<Vec<u8>>>);
        impl Write for Kept {
            fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
                self.0.lock().unwrap().write(bytes)
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let kept = Kept::default();
        let writer = kept.clone();
        let layer = fmt::layer()
            .with_ansi(false)
            .with_writer(OneLine(move || writer.clone()))
            .fmt_fields(EventFirst);
        let subscriber = tracing_subscriber::registry().with(layer);
        let evil = "a\u{1b}[2J\nforged\r\u{9b}\u{202e}";
        tracing::subscriber::with_default(subscriber, || {
            tracing::warn!(event = "tested", shown = %evil, debugged = ?evil, plain = evil, "{evil}");
        });
        let text = String::from_utf8(kept.0.lock().unwrap().clone()).unwrap();
        assert_eq!(text.matches('\n').count(), 1, "{text}");
        assert!(text.ends_with('\n'), "{text}");
        assert!(
            !text.trim_end().contains(crate::printable::is_unprintable),
            "{text}"
        );
        assert!(text.contains("tests: event=tested a"), "{text}");
        assert!(text.contains("shown=") && text.contains("forged"), "{text}");
        assert_eq!(*one_line(b"as it is\n"), *b"as it is\n");
    }
}
