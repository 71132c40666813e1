//! The files of one instance, shared by the launcher and the instance's supervisor, and how they are written: whole or
//! not at all (a temporary file, then a rename).
//!
//! Nothing is synced to disk: a crash of either program loses nothing, and after a crash of the machine no process is
//! left that a record could describe wrongly for long.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::cgroup::Group;
use super::limits::Limits;
use super::procfs::ProcessId;

/// Largest file that is read here, in bytes: a START's payload has 4 MiB at most, and JSON takes up to six times as much for
/// a byte of it. A workload can make any of its instance's files larger.
const MAX_FILE_BYTES: u64 = 32 * 1024 * 1024;

/// Where an instance keeps what; `<state>/instances/<instance>/`.
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

    /// Standard output and standard error of the workload.
    pub(crate) fn output(&self) -> PathBuf {
        self.0.join("output.log")
    }

    /// The part of the output before the current file, where it grew too large.
    pub(crate) fn older_output(&self) -> PathBuf {
        self.0.join("output.log.1")
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
    /// Its cgroup; `None` = it has none of its own. What launchers wrote that knew none lacks it.
    #[serde(default)]
    pub(crate) group: Option<Group>,
    /// The file of the lease that it runs under, if any.
    #[serde(default)]
    pub(crate) lease: Option<PathBuf>,
}

/// Who runs an instance.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Supervision {
    /// A launcher found the instance without a supervisor and gave it up; a supervisor that comes later must not run it.
    Abandoned,
    /// A supervisor took it.
    By(ProcessId),
}

/// How an instance ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Ended {
    /// The program ran and ended with this code, -n where signal n ended it; `None` = nobody knows.
    Exited(Option<i32>),
    /// The program never ran.
    NeverRan(Obstacle),
}

/// Why a program could not be run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Obstacle {
    /// Whether the program itself is at fault (not there, not executable) rather than its surroundings.
    pub(crate) image: bool,
    /// For people.
    pub(crate) detail: String,
}

/// Writes `value` to `path`, whole or not at all.
pub(crate) fn write_json(path: &Path, value: &impl Serialize) -> io::Result<()> {
    let temporary = write_temporary(path, value)?;
    fs::rename(temporary, path)
}

/// Writes `value` to `path` if there is no such file yet; whether there was none.
pub(crate) fn create_json(path: &Path, value: &impl Serialize) -> io::Result<bool> {
    let temporary = write_temporary(path, value)?;
    let linked = fs::hard_link(&temporary, path);
    fs::remove_file(&temporary)?;
    match linked {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
        Err(error) => Err(error),
    }
}

/// Reads what [`write_json`] wrote; `None` if there is no such file.
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
    Ok(Some(serde_json::from_slice(&text)?))
}

/// How to open what may be something else than it should, by a workload's doing: pipes do not block, links are not
/// followed.
pub(crate) fn careful() -> i32 {
    const FLAGS: OFlags = OFlags::NOFOLLOW
        .union(OFlags::NONBLOCK)
        .union(OFlags::CLOEXEC);
    FLAGS.bits().cast_signed()
}

fn write_temporary(path: &Path, value: &impl Serialize) -> io::Result<PathBuf> {
    // The process id keeps a launcher and a supervisor that race for one file apart.
    let temporary = path.with_extension(format!("{}.tmp", std::process::id()));
    let create = || {
        OpenOptions::new()
            .write(true)
            .create_new(true)
            .open(&temporary)
    };
    let mut file = create().or_else(|error| match error.kind() {
        // Of an earlier process with this id that was killed.
        io::ErrorKind::AlreadyExists => fs::remove_file(&temporary).and_then(|()| create()),
        _ => Err(error),
    })?;
    file.write_all(&serde_json::to_vec(value)?)?;
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
