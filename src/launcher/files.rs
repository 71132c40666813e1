//! The files of one instance, shared by the launcher and the instance's supervisor, and how they are written: whole or
//! not at all (a temporary file, then a rename).
//!
//! Nothing is synced to disk: a crash of either program loses nothing, and after a crash of the machine no process is
//! left that a record could describe wrongly for long.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::cgroup::Group;
use super::limits::Limits;
use super::procfs::ProcessId;

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
    match fs::read(path) {
        Ok(text) => Ok(Some(serde_json::from_slice(&text)?)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

fn write_temporary(path: &Path, value: &impl Serialize) -> io::Result<PathBuf> {
    // The process id keeps a launcher and a supervisor that race for one file apart.
    let temporary = path.with_extension(format!("{}.tmp", std::process::id()));
    fs::write(&temporary, serde_json::to_vec(value)?)?;
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
}
