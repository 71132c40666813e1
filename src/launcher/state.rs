//! The state directory: who this node is, and what is known of each of its instances, across restarts.
//!
//! ```text
//! <state>/lock                  held by the running launcher
//! <state>/node.json             this node: UUID, whether it is evacuated
//! <state>/lease.json            until when instances under the lease may run
//! <state>/instances/<instance>/ see the files of one instance
//! ```

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use proto_frames::Uuid;
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};
use tracing::warn;

use super::agent::{Record, Stage};
use super::files::{InstanceDir, read_json, write_json};

/// Why a state directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// It cannot be read or written.
    #[error("state directory {}: {source}; give another with --state-dir", path.display())]
    Unusable {
        /// The directory, or the file in it.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// Another launcher runs with it.
    #[error("state directory {} is in use by another launcher; give each its own with --state-dir", path.display())]
    InUse {
        /// The directory.
        path: PathBuf,
    },
}

/// What is remembered of the node itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Node {
    uuid: String,
    #[serde(default)]
    maintenance: bool,
}

/// An opened state directory; nobody else has it open.
#[derive(Debug)]
pub(crate) struct StateDir {
    root: PathBuf,
    node: Node,
    uuid: Uuid,
    /// Unlocked when this is dropped, or the process ends.
    _lock: File,
}

impl StateDir {
    /// Opens the directory, making it if needed. The node keeps its UUID between runs; `uuid` sets another.
    pub(crate) fn open(root: &Path, uuid: Option<Uuid>) -> Result<Self, StateError> {
        // Private: instances' environments and outputs are nobody else's business.
        let unusable = |source| StateError::Unusable {
            path: root.to_owned(),
            source,
        };
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(root.join("instances"))
            .map_err(unusable)?;
        // Absolute, because supervisors work elsewhere.
        let root = root.canonicalize().map_err(unusable)?;
        let lock = File::create(root.join("lock")).map_err(unusable)?;
        match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => return Err(StateError::InUse { path: root }),
            Err(error) => return Err(unusable(error.into())),
        }
        let path = root.join("node.json");
        let unusable = |source| StateError::Unusable {
            path: path.clone(),
            source,
        };
        let known: Option<Node> = read_json(&path).map_err(unusable)?;
        let known_uuid = known.as_ref().and_then(|node| node.uuid.parse().ok());
        let uuid = uuid.or(known_uuid).unwrap_or_else(Uuid::new_v4);
        let node = Node {
            uuid: uuid.to_string(),
            maintenance: known.is_some_and(|node| node.maintenance),
        };
        write_json(&path, &node).map_err(unusable)?;
        Ok(Self {
            root,
            node,
            uuid,
            _lock: lock,
        })
    }

    /// The directory itself.
    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// The node's UUID.
    pub(crate) fn uuid(&self) -> Uuid {
        self.uuid
    }

    /// Whether the node is evacuated.
    pub(crate) fn maintenance(&self) -> bool {
        self.node.maintenance
    }

    /// Remembers whether the node is evacuated.
    pub(crate) fn set_maintenance(&mut self, maintenance: bool) -> io::Result<()> {
        self.node.maintenance = maintenance;
        write_json(&self.root.join("node.json"), &self.node)
    }

    /// The file of the lease.
    pub(crate) fn lease(&self) -> PathBuf {
        self.root.join("lease.json")
    }

    /// Where an instance keeps its files.
    pub(crate) fn instance(&self, id: &str) -> InstanceDir {
        instance_dir(&self.root, id)
    }

    /// Remembers an instance. Of one that is gone nothing else is kept, and one that begins finds nothing of an earlier
    /// run.
    pub(crate) fn save(&self, record: &Record) -> io::Result<()> {
        let dir = self.instance(&record.instance);
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&dir.0)?;
        if let Stage::Starting | Stage::Gone(..) = record.stage {
            remove_all_but(&dir.record(), &dir.0)?;
        }
        write_json(&dir.record(), record)
    }

    /// Forgets an instance with all its files.
    pub(crate) fn forget(&self, id: &str) -> io::Result<()> {
        remove_if_there(&self.instance(id).0)
    }

    /// Everything remembered, in order of instance id. What cannot be read is left where it is, with a warning.
    pub(crate) fn records(&self) -> Vec<Record> {
        let entries = fs::read_dir(self.root.join("instances"))
            .into_iter()
            .flatten()
            .flatten();
        let mut records: Vec<Record> = entries
            .filter_map(|entry| {
                let dir = InstanceDir(entry.path());
                match read_json::<Record>(&dir.record()) {
                    Ok(record) => record,
                    Err(error) => {
                        warn!(path = %dir.record().display(), %error, "instance record cannot be read; ignored");
                        None
                    }
                }
            })
            .collect();
        records.sort_by(|a, b| a.instance.cmp(&b.instance));
        records
    }
}

/// Where an instance keeps its files, in the state directory `root`.
pub(crate) fn instance_dir(root: &Path, id: &str) -> InstanceDir {
    InstanceDir(root.join("instances").join(id))
}

fn remove_all_but(kept: &Path, dir: &Path) -> io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        match entry.path() {
            path if path == kept => {}
            path if entry.file_type()?.is_dir() => fs::remove_dir_all(path)?,
            path => fs::remove_file(path)?,
        }
    }
    Ok(())
}

fn remove_if_there(dir: &Path) -> io::Result<()> {
    match fs::remove_dir_all(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        result => result,
    }
}

#[cfg(test)]
mod tests {
    use super::super::agent::{Demand, Outcome, Record, Stage};
    use super::{StateDir, StateError};

    fn record(instance: &str, stage: Stage) -> Record {
        let demand = Demand {
            mem_mb: 64,
            vcpus: 1,
            ..Demand::default()
        };
        Record {
            instance: instance.to_owned(),
            demand,
            group: String::new(),
            restart: false,
            leased: false,
            update: None,
            stage,
            unheard: false,
        }
    }

    #[test]
    fn a_node_keeps_its_uuid_and_its_evacuation() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("a/b");
        let mut state = StateDir::open(&root, None).unwrap();
        let uuid = state.uuid();
        state.set_maintenance(true).unwrap();
        drop(state);
        let state = StateDir::open(&root, None).unwrap();
        assert_eq!((state.uuid(), state.maintenance()), (uuid, true));
        drop(state);
        let other = proto_frames::Uuid::new_v4();
        assert_eq!(StateDir::open(&root, Some(other)).unwrap().uuid(), other);
        assert_eq!(StateDir::open(&root, None).unwrap().uuid(), other);
    }

    #[test]
    fn a_second_launcher_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let _first = StateDir::open(dir.path(), None).unwrap();
        assert!(matches!(
            StateDir::open(dir.path(), None),
            Err(StateError::InUse { .. })
        ));
    }

    #[test]
    fn records_come_back_in_order_and_a_broken_one_harms_no_other() {
        let dir = tempfile::tempdir().unwrap();
        let state = StateDir::open(dir.path(), None).unwrap();
        let records = [
            record("a", Stage::Running),
            record("b", Stage::Exited(Some(3))),
        ];
        state.save(&records[1]).unwrap();
        state.save(&records[0]).unwrap();
        state.save(&record("c", Stage::Running)).unwrap();
        std::fs::write(state.instance("c").record(), "{").unwrap();
        assert_eq!(state.records(), records);
        state.forget("a").unwrap();
        state.forget("a").unwrap();
        assert_eq!(state.records(), records[1..]);
    }

    #[test]
    fn a_record_from_before_groups_and_further_resources_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let state = StateDir::open(dir.path(), None).unwrap();
        let old = record("a", Stage::Running);
        state.save(&old).unwrap();
        let text = "{\"instance\":\"a\",\"demand\":{\"mem_mb\":64,\"vcpus\":1,\"disk_mb\":0},\
            \"restart\":false,\"stage\":\"Running\",\"unheard\":false}";
        let written = std::fs::read_to_string(state.instance("a").record()).unwrap();
        assert_eq!(written, text, "what has neither is written as before");
        assert_eq!(state.records(), std::slice::from_ref(&old));
        let mut new = old;
        new.demand.resources.insert("gpu".to_owned(), 2);
        new.group = "web".to_owned();
        state.save(&new).unwrap();
        assert_eq!(state.records(), [new]);
    }

    #[test]
    fn nothing_but_the_record_stays_of_a_gone_instance() {
        let dir = tempfile::tempdir().unwrap();
        let state = StateDir::open(dir.path(), None).unwrap();
        state.save(&record("a", Stage::Running)).unwrap();
        std::fs::write(state.instance("a").output(), "text").unwrap();
        let gone = record("a", Stage::Gone(Outcome::Deleted, Some(0)));
        state.save(&gone).unwrap();
        assert!(!state.instance("a").output().exists());
        assert_eq!(state.records(), [gone]);
    }
}
