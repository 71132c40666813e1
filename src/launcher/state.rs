//! The state directory: who this node is, and what is known of each of its instances, across restarts.
//!
//! ```text
//! <state>/lock                  held by the running launcher
//! <state>/node.json             this node: UUID, whether it is evacuated, what its ends are numbered by
//! <state>/lease.json            until when instances under the lease may run; lease.spare replaces it on a full disk
//! <state>/instances/<instance>/ see the files of one instance
//! <state>/new/<instance>/       a directory of an instance that is about to take the place of the earlier one
//! <state>/running/<instance>.json   the record of an instance that has not ended once more, for where its directory is lost
//! <state>/kept/                 output of instances that are not on this node any more ([`KeptRunsDir`])
//! <state>/kept-clock.json       what the age of that is counted by ([`KeptClock`])
//! <state>/deleted.log           what was deleted of it, when and why ([`DeletedLog`])
//! <state>/trash/                what is being deleted
//! ```
//! Nothing here takes the longer the more files a workload makes: what is deleted is set aside first ([`Trash`]).

use std::collections::BTreeSet;
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use parking_lot::Mutex;
use proto_frames::Uuid;
use serde::{Deserialize, Serialize};
use tracing::{debug, warn};

use super::agent::{InstanceRecord, Numbering, Removal, Stage};
use super::files::{InstanceDir, Over, create_json, read_json, write_json};
use super::kept::clock::KeptClock;
use super::kept::deleted::{DeletedLog, Why};
use super::kept::{KeepOutput, KeptRunsDir, Surplus, has_output};
use super::trash::Trash;
use opening::{Writing, lock, own_directory, unusable};
use running::records_in;

mod opening;
mod running;

/// Why a state directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// It cannot be read or written, and no launcher has kept anything in it.
    #[error("state directory {}: {source}; give another with --state-dir", path.display())]
    Unusable {
        /// The directory, or the file in it.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// It is that of a node, and cannot be read or written.
    #[error(
        "state directory {}: {source}; make it usable for this user again: with another (--state-dir) this would be a new \
         node, and the cluster would lose what runs on the one that it is",
        path.display()
    )]
    OfNode {
        /// The directory.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// It is full or read-only, and no launcher has kept a UUID in it.
    #[error(
        "state directory {}: {source}; this node has no UUID yet, and one cannot be kept there: free space in it or make \
         it writable",
        path.display()
    )]
    NoUuid {
        /// The directory.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// It is another node's, some of whose instances may still run: under another UUID they would be reported as this
    /// node's, while the scheduler may start them again for the one that it has lost.
    #[error(
        "state directory {} is that of node {known}, whose instance {instance} may still run; it cannot become node \
         {uuid} before that has ended: start the launcher as {known} and stop its instances, or give another with \
         --state-dir",
        path.display()
    )]
    HasInstances {
        /// The directory.
        path: PathBuf,
        /// The node it is of.
        known: Uuid,
        /// The node it was to be of.
        uuid: Uuid,
        /// One that may run.
        instance: String,
    },
    /// Another launcher runs with it.
    #[error("state directory {} is in use by another launcher; give each its own with --state-dir", path.display())]
    InUse {
        /// The directory.
        path: PathBuf,
    },
}

/// What is remembered of the node itself: `node.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct NodeIdentity {
    /// The node's UUID, as text.
    uuid: String,
    /// Whether the node is evacuated: it takes no work until RESTORE.
    #[serde(default)]
    maintenance: bool,
    /// Whose numbers the ends of instances have; drawn with this directory. Launchers that did not number them lack it.
    #[serde(default)]
    incarnation: Option<Uuid>,
    /// How often a launcher has started with this directory: each numbers ends from where none before it can have come.
    #[serde(default)]
    starts: u32,
}

/// Ends that one launcher numbers at most, as a power of two: more than it can live to see. With it and the number of
/// starts in the other half, a number is never given twice although it is not put on disk for each end.
const ENDS_PER_START_BITS: u32 = 32;

/// Bytes that must fit before the directory counts as writable again after it was not: a START's files, and the records
/// of some instances.
const PROBE_BYTES: usize = 256 * 1024;

/// An opened state directory; no other process has it open.
#[derive(Debug)]
pub(crate) struct StateDir {
    root: PathBuf,
    node: NodeIdentity,
    uuid: Uuid,
    numbering: Numbering,
    trash: Trash,
    kept: KeptRunsDir,
    /// Instances here that ended by themselves, and keep their files where they are.
    exited: Arc<Mutex<BTreeSet<String>>>,
    clock: Arc<KeptClock>,
    deleted: DeletedLog,
    /// Why it could not be written when it was opened.
    fault: Option<io::Error>,
    /// Unlocked when this is dropped, or the process ends.
    _lock: File,
}

impl StateDir {
    /// Opens the directory, making it if needed. The node keeps its UUID between runs; `uuid` sets another. One that is
    /// full or read-only is opened if it has the node's UUID; [`StateDir::take_fault`] has the error then.
    pub(crate) fn open(root: &Path, uuid: Option<Uuid>) -> Result<Self, StateError> {
        let unusable = |source| unusable(root, source);
        let mut writing = Writing::default();
        let locked = own_directory(root)?;
        // Absolute, because supervisors work elsewhere.
        let root = root.canonicalize().map_err(unusable)?;
        let path = root.join("node.json");
        let known: Option<NodeIdentity> = read_json(&path).map_err(unusable)?;
        writing.has_uuid = known.is_some();
        let instances = DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(root.join("instances"));
        writing.tolerate(&root, instances)?;
        let lock = match locked {
            Some(lock) => lock,
            None => lock(&root, writing.has_uuid)?,
        };
        let known_uuid = known.as_ref().and_then(|node| node.uuid.parse().ok());
        let uuid = uuid.or(known_uuid).unwrap_or_else(Uuid::new_v4);
        if let Some(known) = known_uuid.filter(|known| *known != uuid)
            && let Some(instance) = records_in(&root).into_iter().find(|it| !it.has_ended())
        {
            return Err(StateError::HasInstances {
                path: root,
                known,
                uuid,
                instance: instance.instance,
            });
        }
        let before = known.as_ref();
        let starts = before.map_or(0, |node| node.starts).saturating_add(1);
        let incarnation = before.and_then(|node| node.incarnation);
        let incarnation = incarnation.unwrap_or_else(Uuid::new_v4);
        let mut node = NodeIdentity {
            uuid: uuid.to_string(),
            maintenance: before.is_some_and(|node| node.maintenance),
            incarnation: Some(incarnation),
            starts,
        };
        writing.tolerate(&root, write_json(&path, &node))?;
        if writing.fault.is_some() {
            // The next launcher would give the numbers of this start again.
            node.incarnation = Some(Uuid::new_v4());
        }
        let trash = Trash::open(root.join("trash")).map_err(unusable)?;
        let exited = records_in(&root).into_iter().filter(has_exited);
        let exited = exited.map(|record| record.instance).collect();
        let state = Self {
            trash,
            kept: KeptRunsDir::new(root.join("kept")),
            exited: Arc::new(Mutex::new(exited)),
            clock: Arc::new(KeptClock::open(root.join("kept-clock.json"))),
            deleted: DeletedLog::of(&root),
            numbering: Numbering {
                incarnation: node.incarnation.unwrap_or(incarnation),
                after: u64::from(starts) << ENDS_PER_START_BITS,
            },
            root,
            node,
            uuid,
            fault: writing.fault,
            _lock: lock,
        };
        state.tidy();
        Ok(state)
    }

    /// Why the directory could not be written when it was opened; then nothing of this start is in it yet.
    pub(crate) fn take_fault(&mut self) -> Option<io::Error> {
        self.fault.take()
    }

    /// Keeps the output of ended instances by this rule.
    pub(crate) fn set_keep(&mut self, rule: KeepOutput) {
        self.kept.set_rule(rule);
    }

    /// The rule by which output is kept.
    pub(crate) fn keep(&self) -> KeepOutput {
        self.kept.rule()
    }

    /// Lists the directories of everything that has ended and left something; for another thread, because it may be much.
    pub(crate) fn ended(&self) -> impl FnOnce() -> Vec<PathBuf> + Send + use<> {
        let (root, exited, kept) = (self.root.clone(), self.exited.clone(), self.kept.clone());
        move || {
            let exited: Vec<_> = exited.lock().iter().cloned().collect();
            let exited = exited.iter().map(|id| instance_dir(&root, id).0);
            exited.chain(kept.all()).collect()
        }
    }

    /// What the age of what has ended is counted by.
    pub(crate) fn clock(&self) -> Arc<KeptClock> {
        self.clock.clone()
    }

    /// Deletes what there is no room for of what has ended, and notes it; the instances that ended by themselves of which
    /// nothing is left but a record.
    pub(crate) fn delete_surplus(&self, surplus: &Surplus) -> Vec<String> {
        let (mut noted, mut bare) = (Vec::new(), Vec::new());
        for (path, why) in &surplus.whole {
            let dir = InstanceDir(path.clone());
            let had_output = fs::symlink_metadata(dir.output()).is_ok();
            let id = if self.kept.has(path) {
                self.delete(path);
                KeptRunsDir::instance_of(path)
            } else if self.has_exited(path) {
                self.strip_to(path, &[dir.record(), dir.over()]);
                let id = path.file_name().and_then(|id| id.to_str());
                bare.extend(id.map(str::to_owned));
                id
            } else {
                None
            };
            noted.extend(id.filter(|_| had_output).map(|id| (id, why.clone())));
        }
        for dir in &surplus.work {
            if self.kept.has(dir) || self.has_exited(dir) {
                self.delete(&InstanceDir(dir.clone()).work());
            }
        }
        self.deleted.note(noted);
        bare
    }

    /// What is left here of runs of an instance that are over.
    pub(crate) fn left_by(&self, id: &str) -> Vec<PathBuf> {
        let here = self.instance(id);
        let is_here = self.has_exited(&here.0) && has_output(&here);
        let kept = self.kept.all();
        let kept = kept.filter(|path| KeptRunsDir::instance_of(path) == Some(id));
        is_here.then_some(here.0).into_iter().chain(kept).collect()
    }

    /// Frees a full disk of some of what is kept, the oldest of it.
    pub(crate) fn free(&self) {
        let oldest = self.kept.oldest();
        oldest.iter().for_each(|dir| self.delete(dir));
        let ids = oldest
            .iter()
            .filter_map(|dir| KeptRunsDir::instance_of(dir));
        self.deleted.note(ids.map(|id| (id, Why::DiskFull)));
    }

    /// Whether the instance here has ended by itself, and no START of it has come since.
    fn has_exited(&self, dir: &Path) -> bool {
        let id = dir.file_name().and_then(|id| id.to_str());
        id.is_some_and(|id| self.exited.lock().contains(id))
    }

    fn delete(&self, path: &Path) {
        if let Err(error) = self.trash.take(path) {
            debug!(path = %path.display(), %error, "cannot be deleted");
        }
    }

    /// Finishes what an earlier launcher began to replace or to delete.
    fn tidy(&self) {
        for path in entries(&self.root.join("new")) {
            let place = path
                .file_name()
                .map(|id| self.root.join("instances").join(id));
            let is_missing = place.as_ref().is_some_and(|place| !place.exists());
            let done = match place.filter(|_| is_missing) {
                Some(place) => fs::rename(&path, place),
                // It was not in its place yet: as if it had not been begun.
                None => self.trash.take(&path),
            };
            if let Err(error) = done {
                warn!(event = "state_file_not_replaced", path = %path.display(), %error, "cannot be put in its place");
            }
        }
        self.put_back();
        for path in entries(&self.root.join("instances")) {
            let record = InstanceDir(path.clone()).record();
            let is_gone = fs::symlink_metadata(record)
                .is_err_and(|error| error.kind() == io::ErrorKind::NotFound);
            if is_gone && let Err(error) = self.trash.take(&path) {
                warn!(event = "state_file_not_deleted", path = %path.display(), %error, "cannot be deleted");
            }
        }
    }

    /// The directory itself.
    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// The node's UUID.
    pub(crate) fn uuid(&self) -> Uuid {
        self.uuid
    }

    /// What this launcher numbers ends by.
    pub(crate) fn numbering(&self) -> Numbering {
        self.numbering
    }

    /// Whether the node is evacuated.
    pub(crate) fn maintenance(&self) -> bool {
        self.node.maintenance
    }

    /// Sets whether the node is evacuated; [`StateDir::save_node`] remembers it.
    pub(crate) fn set_maintenance(&mut self, maintenance: bool) {
        self.node.maintenance = maintenance;
    }

    /// Remembers what is known of the node itself.
    pub(crate) fn save_node(&self) -> io::Result<()> {
        write_json(&self.root.join("node.json"), &self.node)
    }

    /// Whether there is room again for more than a file that just fits.
    pub(crate) fn probe(&self) -> io::Result<()> {
        let path = self.root.join("probe.tmp");
        let written = fs::write(&path, vec![b'x'; PROBE_BYTES]);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => written.and(Err(error)),
            _ => written,
        }
    }

    /// Where instances' directories are.
    pub(crate) fn instances(&self) -> PathBuf {
        self.root.join("instances")
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
    /// run. Of one that may run there are two records, because its directory is its workload's to remove.
    pub(crate) fn save(&self, record: &InstanceRecord) -> io::Result<()> {
        if !record.has_ended() {
            self.save_running(record)?;
        }
        let mut exited = self.exited.lock();
        let had_exited = exited.remove(&record.instance);
        let saved = self.save_after(record, had_exited);
        if has_exited(record) && saved.is_ok() {
            exited.insert(record.instance.clone());
        }
        if record.has_ended() && saved.is_ok() {
            self.forget_running(&record.instance);
        }
        saved
    }

    /// The same for one that had ended by itself before, or not.
    fn save_after(&self, record: &InstanceRecord, had_exited: bool) -> io::Result<()> {
        let dir = self.instance(&record.instance);
        note_over(&dir, record);
        // What was kept for its DELETE goes with that.
        let is_wanted = !(had_exited && matches!(record.stage, Stage::Gone(Removal::Deleted, _)));
        match make_dir(&dir.0) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
            Ok(()) => {
                return write_json(&dir.record(), record).inspect_err(|_| {
                    let _ = fs::remove_dir(&dir.0);
                });
            }
        }
        match record.stage {
            // Not of one that is being started already: its supervisor has files there.
            Stage::Starting if !is_starting(&dir) => self.replace(&dir, record, is_wanted),
            Stage::Gone(..) => self.replace(&dir, record, is_wanted).inspect_err(|_| {
                self.strip(&dir);
                self.deleted.note([(&*record.instance, Why::DiskFull)]);
            }),
            _ => write_json(&dir.record(), record),
        }
    }

    /// Removes what says how the latest run of an instance ended that is started again in the same directory. What cannot
    /// be removed keeps its supervisor from beginning, which is told as a start that failed.
    pub(crate) fn clear_run(&self, id: &str) {
        let dir = self.instance(id);
        // The process file last: without it, a launcher takes the instance for one that has not begun.
        for path in [dir.ran(), dir.ended(), dir.supervision()] {
            if let Err(error) = fs::remove_file(&path)
                && error.kind() != io::ErrorKind::NotFound
            {
                debug!(path = %path.display(), %error, "cannot be deleted");
            }
        }
    }

    /// Frees the room that an instance takes that is gone, where that cannot be put on record: what is left says how it
    /// ended.
    fn strip(&self, dir: &InstanceDir) {
        self.strip_to(
            &dir.0,
            &[dir.record(), dir.supervision(), dir.ended(), dir.ran()],
        );
    }

    fn strip_to(&self, dir: &Path, rest: &[PathBuf]) {
        for path in entries(dir).filter(|path| !rest.contains(path)) {
            self.delete(&path);
        }
    }

    /// Has the directory of an instance hold this record alone. Whenever that is interrupted, the record or the one
    /// before it is found again. What was there is kept elsewhere if it `is_wanted`.
    fn replace(
        &self,
        dir: &InstanceDir,
        record: &InstanceRecord,
        is_wanted: bool,
    ) -> io::Result<()> {
        let new = InstanceDir(self.root.join("new").join(&record.instance));
        self.trash.take(&new.0)?;
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&new.0)?;
        let clear = || {
            let taken = match is_wanted {
                true => self.kept.take(&record.instance, dir)?,
                false => Err(Why::InstanceDeleted),
            };
            let Err(why) = taken else { return Ok(()) };
            self.trash.take(&dir.0)?;
            // What makes room for a new run, and held nothing, is no loss.
            if why != Why::NothingWritten || record.has_ended() {
                self.deleted.note([(&*record.instance, why)]);
            }
            Ok(())
        };
        let written = write_json(&new.record(), record).and_then(|()| clear());
        if let Err(error) = written {
            let _ = fs::remove_dir_all(&new.0);
            return Err(error);
        }
        fs::rename(&new.0, &dir.0)
    }

    /// Forgets an instance with all its files.
    pub(crate) fn forget(&self, id: &str) -> io::Result<()> {
        self.exited.lock().remove(id);
        // First: without the directory it would be taken for one that was removed.
        self.forget_running(id);
        self.trash.take(&self.instance(id).0)
    }

    /// Everything remembered, in order of instance id. What cannot be read is left where it is, with a warning.
    pub(crate) fn records(&self) -> Vec<InstanceRecord> {
        records_in(&self.root)
    }
}

/// Notes beside the files of a run that is over how its end was told. Where that cannot be written, less is known of it
/// later.
fn note_over(dir: &InstanceDir, record: &InstanceRecord) {
    let Some(end) = record.ends.last().filter(|_| record.has_ended()) else {
        return;
    };
    let since_epoch = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    let over = Over {
        instance: record.instance.clone(),
        seq: end.seq,
        code: end.code,
        at_ms: i64::try_from(since_epoch.as_millis()).unwrap_or(i64::MAX),
    };
    if let Err(error) = create_json(&dir.over(), &over)
        && error.kind() != io::ErrorKind::NotFound
    {
        debug!(path = %dir.over().display(), %error, "cannot be written");
    }
}

fn has_exited(record: &InstanceRecord) -> bool {
    matches!(record.stage, Stage::Exited(_))
}

fn is_starting(dir: &InstanceDir) -> bool {
    let known = read_json::<InstanceRecord>(&dir.record());
    matches!(known, Ok(Some(known)) if known.stage == Stage::Starting)
}

/// The UUID of the node whose state directory this is, if it is one.
pub(crate) fn known_uuid(root: &Path) -> Option<Uuid> {
    let node: Option<NodeIdentity> = read_json(&root.join("node.json")).ok()?;
    node?.uuid.parse().ok()
}

/// Where an instance keeps its files, in the state directory `root`.
pub(crate) fn instance_dir(root: &Path, id: &str) -> InstanceDir {
    InstanceDir(root.join("instances").join(id))
}

/// What is in a directory; nothing where it cannot be read.
fn entries(dir: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    entries.map(|entry| entry.path())
}

fn make_dir(dir: &Path) -> io::Result<()> {
    DirBuilder::new().mode(0o700).create(dir)
}

#[cfg(test)]
mod tests;
