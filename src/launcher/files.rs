//! The files of one instance, shared by the launcher and the instance's supervisor, and how they are written: whole or
//! not at all (a temporary file, then a rename).
//!
//! Nothing is synced to disk: a crash of either program loses nothing, and after a crash of the machine no process is
//! left that a record could describe wrongly for long.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use rustix::io::Errno;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::agent::Cpus;
use super::cgroup::Cgroup;
use super::limits::Limits;
use super::procfs::ProcessId;
use crate::private::{self, JsonFault};

/// Largest file that is read here, in bytes: a START's payload has 4 MiB at most, and JSON takes up to six times as
/// much for a byte of it. A workload can make any of its instance's files larger.
const MAX_FILE_BYTES: u64 = 32 * 1024 * 1024;

/// The directory of one instance, `<state>/instances/<instance>/`, or `<state>/kept/<instance>.<n>/` when it is kept.
/// The methods name its files and touch none.
#[derive(Debug, Clone)]
pub(crate) struct InstanceDir(pub(crate) PathBuf);

impl InstanceDir {
    /// What the launcher knows of the instance; written by the launcher alone.
    pub(crate) fn record(&self) -> PathBuf {
        self.0.join("record.json")
    }

    /// What to run ([`Launch`]); written by the launcher, read by the supervisor.
    pub(crate) fn launch(&self) -> PathBuf {
        self.0.join("launch.json")
    }

    /// Who runs it ([`Supervision`]); created exactly once, by the supervisor, or by a launcher that gives it up.
    pub(crate) fn supervision(&self) -> PathBuf {
        self.0.join("process.json")
    }

    /// How it ended ([`Ended`]); written by the supervisor as its last act.
    pub(crate) fn ended(&self) -> PathBuf {
        self.0.join("exit.json")
    }

    /// Figures of its run ([`super::agent::Ran`]); written by the supervisor before its last act.
    pub(crate) fn ran(&self) -> PathBuf {
        self.0.join("ran.json")
    }

    /// How the launcher has told its end ([`Over`]); written by the launcher, once.
    pub(crate) fn over(&self) -> PathBuf {
        self.0.join("over.json")
    }

    /// Since when its output is kept, where it is over (`super::kept::clock`); written by the launcher.
    pub(crate) fn kept_since(&self) -> PathBuf {
        self.0.join("kept.json")
    }

    /// Standard output and standard error of the workload.
    pub(crate) fn output(&self) -> PathBuf {
        self.0.join("output.log")
    }

    /// The part of the output before the current file, where it grew too large.
    pub(crate) fn older_output(&self) -> PathBuf {
        self.0.join("output.log.1")
    }

    /// Where the current output file begins ([`OutputStart`]); written by the supervisor when it cuts that.
    pub(crate) fn output_start(&self) -> PathBuf {
        self.0.join("output.json")
    }

    /// Where its standard error is, in files of the same names, if that is kept apart.
    pub(crate) fn stderr(&self) -> Self {
        Self(self.0.join("stderr"))
    }

    /// What every process of the workload has open ([`super::orphans`]).
    pub(crate) fn mark(&self) -> PathBuf {
        self.0.join("mark")
    }

    /// Working directory of a workload that names none.
    pub(crate) fn work(&self) -> PathBuf {
        self.0.join("work")
    }
}

/// What a supervisor runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Launch {
    /// Program and arguments; never empty.
    pub(crate) command: Vec<String>,
    /// The whole environment.
    pub(crate) env: BTreeMap<String, String>,
    /// Working directory; `None` = [`InstanceDir::work`].
    pub(crate) working_dir: Option<PathBuf>,
    /// What the workload may take.
    #[serde(flatten)]
    pub(crate) limits: Limits,
    /// The processors that are its own; none = it runs where its launcher does.
    #[serde(default)]
    pub(crate) cpus: Cpus,
    /// Its cgroup; `None` = it has none of its own. What launchers wrote that knew none lacks it.
    #[serde(default)]
    pub(crate) group: Option<Cgroup>,
    /// The file of the lease that it runs under, if any.
    #[serde(default)]
    pub(crate) lease: Option<PathBuf>,
    /// The signal that its processes are asked to end with, by its number; none = SIGTERM.
    #[serde(default)]
    pub(crate) stop_signal: Option<i32>,
    /// How long after that they are killed where the supervisor alone asked, in milliseconds.
    #[serde(default)]
    pub(crate) stop_grace_ms: Option<u64>,
    /// How long it may run, in milliseconds; none = without limit.
    #[serde(default)]
    pub(crate) time_left_ms: Option<u64>,
    /// Whether its standard error is kept apart.
    #[serde(default)]
    pub(crate) split_output: bool,
}

/// Who runs an instance.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Supervision {
    /// A launcher found the instance without a supervisor and gave it up; a supervisor that comes later must not run
    /// it.
    Abandoned,
    /// A supervisor took it.
    By(ProcessId),
}

/// How an instance ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Ended {
    /// The program ran and ended with this code, -n where signal n ended it; `None` = not known.
    Exited(Option<i32>),
    /// The same, and no stop had been requested. Supervisors of earlier launchers do not tell that.
    ByItself(i32),
    /// The program never ran.
    NeverRan(Obstacle),
}

/// Where the current output file begins among all that a run has written: the files together are the end of that.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct OutputStart {
    /// Bytes that were written before the first of the current file.
    pub(crate) from: u64,
    /// How many were when the older file ends; what was written between is lost.
    pub(crate) older_to: u64,
    /// The number of the older file on its file system; another one than this is not of here. 0 = not known.
    pub(crate) older: u64,
    /// The length of the current file, which is about to be cut; `from` is that before it is.
    pub(crate) cutting: Option<u64>,
}

/// A run of an instance that is over, as its launcher has told it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Over {
    /// The instance.
    pub(crate) instance: String,
    /// The number of its end.
    pub(crate) seq: u64,
    /// Its exit code, -n where signal n ended it; `None` = not known.
    pub(crate) code: Option<i32>,
    /// When that was told, milliseconds of Unix time.
    pub(crate) at_ms: i64,
}

/// Why a program could not be run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Obstacle {
    /// Whether the program itself is at fault (not there, not executable) rather than its surroundings.
    pub(crate) image: bool,
    /// Whether that is the state directory, which cannot be written. Supervisors that do not tell lack it.
    #[serde(default)]
    pub(crate) storage: bool,
    /// For people.
    pub(crate) detail: String,
}

impl Obstacle {
    /// What could not be done, and the system's word on it.
    pub(crate) fn of(what: impl Display, error: &io::Error) -> Self {
        Self {
            image: false,
            storage: is_storage_fault(error),
            detail: format!("{what}: {error}"),
        }
    }
}

impl<T: Into<String>> From<T> for Obstacle {
    fn from(detail: T) -> Self {
        Self {
            image: false,
            storage: false,
            detail: detail.into(),
        }
    }
}

/// Whether the file system is at fault: full, read-only or broken. It may be mended while the program runs, and what
/// was written before can still be read.
pub(crate) fn is_storage_fault(error: &io::Error) -> bool {
    let faults = [Errno::NOSPC, Errno::DQUOT, Errno::ROFS, Errno::IO];
    let is = |errno: &Errno| error.raw_os_error() == Some(errno.raw_os_error());
    faults.iter().any(is)
}

/// Whether there is no room left.
pub(crate) fn is_full(error: &io::Error) -> bool {
    let faults = [Errno::NOSPC, Errno::DQUOT];
    let is = |errno: &Errno| error.raw_os_error() == Some(errno.raw_os_error());
    faults.iter().any(is)
}

/// Writes `value` to `path`, whole or not at all: a reader sees the earlier contents or these.
///
/// # Errors
/// Those of writing a file; the earlier contents are there then.
pub(crate) fn write_json(path: &Path, value: &impl Serialize) -> io::Result<()> {
    write_text(path, &serde_json::to_vec(value)?)
}

/// As [`write_json`], for a text.
///
/// # Errors
/// Those of writing a file.
pub(crate) fn write_text(path: &Path, text: &[u8]) -> io::Result<()> {
    let temporary = write_temporary(path, text)?;
    fs::rename(temporary, path)
}

/// Room on disk for a file that must not fail to be written later because the disk is full by then: a temporary file of
/// spaces, which are valid JSON after a document.
#[derive(Debug)]
pub(crate) struct Reserved {
    path: PathBuf,
    temporary: PathBuf,
    file: File,
}

/// Bytes that are reserved for a file: a process's end in JSON, with a long sentence on why it never ran.
const RESERVED_BYTES: usize = 512;

impl Reserved {
    /// Reserves room for `path`.
    ///
    /// # Errors
    /// Those of writing a file.
    pub(crate) fn new(path: PathBuf) -> io::Result<Self> {
        let temporary = write_temporary(&path, &[b' '; RESERVED_BYTES])?;
        let file = OpenOptions::new().write(true).open(&temporary)?;
        Ok(Self {
            path,
            temporary,
            file,
        })
    }

    /// As the function [`write_json`], in the room that was reserved if that is enough.
    ///
    /// # Errors
    /// Neither the reserved file nor a new one can be written.
    pub(crate) fn write_json(self, value: &impl Serialize) -> io::Result<()> {
        let text = serde_json::to_vec(value)?;
        let in_place = || {
            if text.len() > RESERVED_BYTES {
                return Err(io::ErrorKind::StorageFull.into());
            }
            // What is left of the spaces ends the document.
            self.file.write_all_at(&text, 0)?;
            fs::rename(&self.temporary, &self.path)
        };
        in_place().or_else(|_| {
            let written = write_json(&self.path, value);
            let _ = fs::remove_file(&self.temporary);
            written
        })
    }
}

/// Writes `value` to `path` if there is no such file yet; false if there is one. Of several processes that try, exactly
/// one gets true, and no reader sees a part of the file: the complete temporary file is linked to the name.
///
/// # Errors
/// Those of writing or linking a file.
pub(crate) fn create_json(path: &Path, value: &impl Serialize) -> io::Result<bool> {
    let temporary = write_temporary(path, &serde_json::to_vec(value)?)?;
    let linked = fs::hard_link(&temporary, path);
    fs::remove_file(&temporary)?;
    match linked {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
        Err(error) => Err(error),
    }
}

/// Reads what [`write_json`] wrote; `None` if there is no such file. A workload may have put anything in its place.
///
/// # Errors
/// It cannot be read, is no plain file, is longer than 32 MiB, or not the JSON of `T`.
pub(crate) fn read_json<T: DeserializeOwned>(path: &Path) -> io::Result<Option<T>> {
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(careful())
        .open(path);
    let file = match file {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let metadata = file.metadata()?;
    if !metadata.is_file() || metadata.len() > MAX_FILE_BYTES {
        let text = format!("is no file of at most {MAX_FILE_BYTES} bytes");
        return Err(io::Error::new(io::ErrorKind::InvalidData, text));
    }
    let mut text = Vec::new();
    file.take(MAX_FILE_BYTES).read_to_end(&mut text)?;
    // Environments of workloads are in some of them.
    Ok(Some(
        serde_json::from_slice(&text).map_err(JsonFault::from)?,
    ))
}

/// How to open what may be something else than it should, by a workload's doing: pipes do not block, links are not
/// followed.
pub(crate) fn careful() -> i32 {
    const FLAGS: OFlags = OFlags::NOFOLLOW
        .union(OFlags::NONBLOCK)
        .union(OFlags::CLOEXEC);
    FLAGS.bits().cast_signed()
}

/// Writes `text` to a file beside `path`; leaves none where that fails.
fn write_temporary(path: &Path, text: &[u8]) -> io::Result<PathBuf> {
    // The process id keeps a launcher and a supervisor that race for one file apart.
    let temporary = path.with_extension(format!("{}.tmp", std::process::id()));
    let create = || {
        OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(private::FILE)
            .open(&temporary)
    };
    let mut file = create().or_else(|error| match error.kind() {
        // Of an earlier process with this id that was killed.
        io::ErrorKind::AlreadyExists => fs::remove_file(&temporary).and_then(|()| create()),
        _ => Err(error),
    })?;
    if let Err(error) = file.write_all(text) {
        let _ = fs::remove_file(&temporary);
        return Err(error);
    }
    Ok(temporary)
}

#[cfg(test)]
mod tests {
    use super::{Supervision, create_json, read_json, write_json};

    #[test]
    fn only_one_of_two_creators_wins_and_no_temporary_file_stays() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("process.json");
        assert_eq!(read_json::<Supervision>(&path).unwrap(), None);
        assert!(create_json(&path, &Supervision::Abandoned).unwrap());
        assert!(!create_json(&path, &1).unwrap());
        assert_eq!(read_json(&path).unwrap(), Some(Supervision::Abandoned));
        write_json(&path, &2).unwrap();
        assert_eq!(read_json(&path).unwrap(), Some(2));
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn what_is_no_small_file_is_an_error_and_blocks_nobody() {
        use rustix::fs::{CWD, FileType, Mode, mknodat};
        let dir = tempfile::tempdir().unwrap();
        let pipe = dir.path().join("pipe");
        mknodat(CWD, &pipe, FileType::Fifo, Mode::RWXU, 0).unwrap();
        assert!(read_json::<Supervision>(&pipe).is_err());
        let large = dir.path().join("large");
        let file = std::fs::File::create(&large).unwrap();
        file.set_len(1 << 40).unwrap();
        let error = read_json::<Supervision>(&large).unwrap_err();
        assert!(error.to_string().contains("bytes"), "{error}");
    }
}
