//! The state directory: the scheduler's own UUID, and which nodes it knew, so that a restart can wait for them. Its owner
//! alone may look into it: the store, which is there as well, has the commands and environments of workloads.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use proto_frames::Uuid;
use tokio::time::sleep;
use tracing::{info, warn};

use super::hub::Hub;
use super::store::STORE_FILE;
use crate::private;

/// File with the scheduler's UUID.
const UUID_FILE: &str = "uuid";

/// File with the UUIDs of known nodes, one a line.
const NODES_FILE: &str = "nodes";

/// Largest list of nodes read, in bytes: over a million nodes.
const MAX_NODES_FILE: u64 = 64 * 1024 * 1024;

/// Pause between two writes of the list of nodes, so that the return of a large cluster is a few writes.
const SAVE_EVERY: Duration = Duration::from_secs(1);

/// Pause before a list that could not be written is tried again: how soon after there is room on the disk it is there.
const RETRY_AFTER: Duration = Duration::from_secs(5);

/// A directory that survives the process.
#[derive(Debug, Clone)]
pub(super) struct StateDir {
    path: PathBuf,
}

impl StateDir {
    /// Opens the directory, making it if need be.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        for remark in private::open_directory(path, is_own)? {
            warn!("{remark}");
        }
        Ok(Self {
            path: path.to_owned(),
        })
    }

    /// The UUID kept there; a new one is kept from now on if there is none.
    pub(super) fn own_uuid(&self) -> io::Result<Uuid> {
        let path = self.path.join(UUID_FILE);
        match std::fs::read_to_string(&path) {
            Ok(text) => match Uuid::try_parse(text.trim()) {
                Ok(uuid) => return Ok(uuid),
                Err(_) => warn!("{} holds no UUID: making a new one", path.display()),
            },
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        let uuid = Uuid::new_v4();
        write_atomically(&path, format!("{uuid}\n").as_bytes())?;
        Ok(uuid)
    }

    /// The nodes known before the restart. A list that cannot be read is none: the cluster is relearned either way.
    pub(super) fn nodes(&self) -> Vec<Uuid> {
        let path = self.path.join(NODES_FILE);
        let is_sane = std::fs::metadata(&path).is_ok_and(|found| found.len() <= MAX_NODES_FILE);
        if !is_sane {
            return Vec::new();
        }
        let text = std::fs::read_to_string(&path).unwrap_or_else(|error| {
            warn!("{}: {error}: not waiting for earlier nodes", path.display());
            String::new()
        });
        text.lines()
            .filter_map(|line| Uuid::try_parse(line).ok())
            .collect()
    }

    fn save_nodes(&self, nodes: &[Uuid]) -> io::Result<()> {
        let mut text = String::with_capacity(nodes.len() * 37);
        for node in nodes {
            text.push_str(&node.to_string());
            text.push('\n');
        }
        write_atomically(&self.path.join(NODES_FILE), text.as_bytes())
    }
}

/// Keeps the list of nodes up to date; ends never.
pub(super) async fn keep_nodes(hub: Arc<Hub>, directory: StateDir) {
    let mut has_failed = false;
    loop {
        if has_failed {
            // Whatever has changed since, and if nothing has.
            sleep(RETRY_AFTER).await;
        } else {
            hub.nodes_changed.notified().await;
        }
        if hub.is_shutting_down() {
            return;
        }
        let nodes = hub.read(sched_core::Scheduler::known_nodes);
        let (count, directory) = (nodes.len(), directory.clone());
        match tokio::task::spawn_blocking(move || directory.save_nodes(&nodes)).await {
            Ok(Ok(())) => {
                info!("{count} nodes remembered");
                has_failed = false;
            }
            Ok(Err(error)) => {
                if !has_failed {
                    warn!("cannot remember the nodes: {error}: tried again until it can");
                }
                has_failed = true;
                continue;
            }
            Err(_) => return,
        }
        sleep(SAVE_EVERY).await;
    }
}

/// Whether a file in the directory is the scheduler's.
fn is_own(name: &str) -> bool {
    let name = name.strip_suffix(".new").unwrap_or(name);
    [UUID_FILE, NODES_FILE].contains(&name) || name.starts_with(STORE_FILE)
}

/// Writes a file so that a crash leaves the old contents or the new, nothing in between.
fn write_atomically(path: &Path, contents: &[u8]) -> io::Result<()> {
    let unfinished = path.with_extension("new");
    let mut file = private::create(&unfinished)?;
    file.write_all(contents)?;
    file.sync_all()?;
    std::fs::rename(&unfinished, path)
}

#[cfg(test)]
mod tests {
    use super::{StateDir, Uuid};

    #[test]
    fn uuid_and_nodes_are_found_again() {
        let directory = tempfile::tempdir().unwrap();
        let state = StateDir::open(&directory.path().join("a/b")).unwrap();
        assert_eq!(state.own_uuid().unwrap(), state.own_uuid().unwrap());
        assert!(state.nodes().is_empty());
        let nodes = [Uuid::new_v4(), Uuid::new_v4()];
        state.save_nodes(&nodes).unwrap();
        assert_eq!(state.nodes(), nodes);
    }

    #[test]
    fn damaged_files_are_replaced_or_left_out() {
        let directory = tempfile::tempdir().unwrap();
        let state = StateDir::open(directory.path()).unwrap();
        std::fs::write(directory.path().join("uuid"), "torn").unwrap();
        std::fs::write(directory.path().join("nodes"), b"\xff\xfe").unwrap();
        assert_eq!(state.own_uuid().unwrap(), state.own_uuid().unwrap());
        assert!(state.nodes().is_empty());
    }
}
