//! The state directory: the scheduler's own UUID, and which nodes it knew, so that a restart can wait for them. Its
//! owner alone may look into it: the store, which is there as well, has the commands and environments of workloads.
//!
//! Four kinds of file: `uuid`, by which peers know this scheduler across restarts; `nodes`, the hint from which the
//! recovery window begins (who should come back, and where it was); and the database of [`super::store`], which this
//! module only knows by name, as it does that of [`super::configuration`]'s versions. Losing `nodes` costs nothing but the wait: the cluster is learned again from the
//! launchers either way, while losing the store loses what only the scheduler knows.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use proto_frames::{Role, Uuid};
use sched_core::KnownNode;
use tokio::task::spawn_blocking;
use tokio::time::{sleep, timeout};
use tracing::{info, warn};

use super::configuration::versions::FILE as CONFIGURATION_FILE;
use super::hub::{Hub, STORE_DEADLINE};
use super::shared::{SharedDocument, SharedStore};
use super::store::STORE_FILE;
use crate::printable::counted;
use crate::private;

/// File with the scheduler's UUID.
const UUID_FILE: &str = "uuid";

/// File with the known nodes, one a line: see [`node_line`].
const NODES_FILE: &str = "nodes";

/// About how long a line of it is, in bytes.
const LINE_LEN: usize = 96;

/// Largest list of nodes read, in bytes: more than half a million nodes.
const MAX_NODES_FILE: u64 = 64 * 1024 * 1024;

/// Pause between two writes of the list of nodes, so that the return of a large cluster is a few writes.
const SAVE_EVERY: Duration = Duration::from_secs(1);

/// Pause before a list that could not be written is tried again: how soon after there is room on the disk it is there.
const RETRY_AFTER: Duration = Duration::from_secs(5);

/// A directory that survives the process. Cheap to clone; holds no lock and no file open. That no second daemon uses
/// the directory is seen to by the store, which locks its file.
#[derive(Debug, Clone)]
pub(super) struct StateDir {
    path: PathBuf,
    /// Whether the list of nodes is the last of this process. Locked while one is written, so that an earlier one that is
    /// still on its way cannot replace it.
    is_last: Arc<Mutex<bool>>,
    /// Where the list of nodes goes instead.
    shared: Option<Arc<dyn SharedStore>>,
}

impl StateDir {
    /// Opens the directory, making it if need be. Permissions that let others in are taken away, or warned of where the
    /// directory has files that are not its own ([`private`]).
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        for remark in private::open_directory(path, is_own)? {
            warn!(event = "state_file_open_to_others", "{remark}");
        }
        Ok(Self {
            path: path.to_owned(),
            is_last: Arc::default(),
            shared: None,
        })
    }

    /// No directory, but a store that several schedulers share, for the list of nodes.
    pub(super) fn shared(store: Arc<dyn SharedStore>) -> Self {
        Self {
            path: PathBuf::new(),
            is_last: Arc::default(),
            shared: Some(store),
        }
    }

    /// The UUID kept there; a new one is kept from now on if there is none. A damaged file is replaced rather than
    /// refused, with a warning.
    pub(super) fn own_uuid(&self) -> io::Result<Uuid> {
        let path = self.path.join(UUID_FILE);
        match std::fs::read_to_string(&path) {
            Ok(text) => match Uuid::try_parse(text.trim()) {
                Ok(uuid) => return Ok(uuid),
                Err(_) => warn!(
                    event = "uuid_unreadable",
                    "{} holds no UUID: making a new one",
                    path.display()
                ),
            },
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        let uuid = Uuid::new_v4();
        write_atomically(&path, format!("{uuid}\n").as_bytes())?;
        Ok(uuid)
    }

    /// Where the list of nodes is.
    pub(super) fn nodes_file(&self) -> PathBuf {
        self.path.join(NODES_FILE)
    }

    /// Where the versions of the cluster configuration are.
    pub(super) fn configuration_file(&self) -> PathBuf {
        self.path.join(CONFIGURATION_FILE)
    }

    /// The nodes known before the restart. A list that cannot be read is none: the cluster is relearned either way. One
    /// line a node, so a list that was cut short still gives the nodes before the cut.
    pub(super) fn nodes(&self) -> Vec<KnownNode> {
        let path = self.path.join(NODES_FILE);
        match read_nodes_file(&path) {
            Ok(text) => read_nodes(&text),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(error) => {
                warn!(
                    event = "nodes_unreadable",
                    "{}: {error}: not waiting for earlier nodes",
                    path.display()
                );
                Vec::new()
            }
        }
    }

    /// Blocking, and as long as the disk takes: called from a thread for such work. Writes nothing behind the last list.
    fn save_nodes(&self, nodes: &[KnownNode], turn: Turn) -> io::Result<()> {
        let mut is_last = self.is_last.lock();
        if *is_last {
            return Ok(());
        }
        *is_last = turn == Turn::Last;
        let text = list_of(nodes);
        match &self.shared {
            Some(store) => store
                .write_document(SharedDocument::Nodes, text.as_bytes())
                .map_err(io::Error::other),
            None => write_atomically(&self.path.join(NODES_FILE), text.as_bytes()),
        }
    }
}

/// The list of these nodes.
pub(super) fn list_of(nodes: &[KnownNode]) -> String {
    let mut text = String::with_capacity(nodes.len() * LINE_LEN);
    for node in nodes {
        text.push_str(&node_line(node));
    }
    text
}

/// The nodes of a list.
pub(super) fn read_nodes(text: &str) -> Vec<KnownNode> {
    text.lines().filter_map(read_node).collect()
}

/// Whether a list of nodes is written while the daemon runs, or when it leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Turn {
    OneOfMany,
    Last,
}

/// The text of a list of nodes.
///
/// # Errors
/// It cannot be read, or has more than [`MAX_NODES_FILE`] bytes.
fn read_nodes_file(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    let mut file = File::open(path)?.take(MAX_NODES_FILE + 1);
    file.read_to_string(&mut text)?;
    if text.len() as u64 > MAX_NODES_FILE {
        let cause = format!("more than {MAX_NODES_FILE} bytes");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, cause));
    }
    Ok(text)
}

/// Keeps the list of nodes up to date; ends only when the daemon leaves. Runs as one of the daemon's tasks. The core
/// says that the set has changed (`Action::RememberNodes`), and this writes the list as it is at that moment: several
/// changes within [`SAVE_EVERY`] are one write. Without a change there is no write, but a list that could not be
/// written is tried again.
pub(super) async fn keep_nodes(hub: Arc<Hub>, directory: StateDir) {
    let mut has_failed = false;
    loop {
        if has_failed {
            // Whatever has changed since, and if nothing has.
            sleep(RETRY_AFTER).await;
        } else {
            hub.nodes_changed.notified().await;
        }
        // Connections end now because the daemon leaves, which has remembered who was there ([`remember_last`]).
        if hub.is_shutting_down() {
            return;
        }
        // Under the core's lock, but only the copy: writing is done outside.
        let nodes = hub.read(sched_core::Scheduler::known_nodes);
        let (count, directory) = (nodes.len(), directory.clone());
        match spawn_blocking(move || directory.save_nodes(&nodes, Turn::OneOfMany)).await {
            Ok(Ok(())) => {
                log_remembered(count);
                has_failed = false;
            }
            Ok(Err(error)) => {
                if !has_failed {
                    warn!(
                        event = "nodes_not_remembered",
                        "cannot remember the nodes: {error}: tried again until it can"
                    );
                }
                has_failed = true;
                continue;
            }
            // The writing thread panicked, or the runtime is being shut down: the task ends, and with it the daemon if
            // that is not leaving.
            Err(_) => return,
        }
        sleep(SAVE_EVERY).await;
    }
}

/// Remembers the nodes that are known when the daemon leaves, of which some may have come since the latest write. Waits no
/// longer for the disk than for that of the store. Does nothing without a state directory.
pub(super) async fn remember_last(directory: Option<StateDir>, nodes: Vec<KnownNode>) {
    let Some(directory) = directory else {
        return;
    };
    let count = nodes.len();
    let saving = spawn_blocking(move || directory.save_nodes(&nodes, Turn::Last));
    let outcome = match timeout(STORE_DEADLINE, saving).await {
        Ok(Ok(saved)) => saved,
        // Of this thread's panic the log has the rest.
        Ok(Err(error)) => Err(io::Error::other(error)),
        Err(_) => Err(io::ErrorKind::TimedOut.into()),
    };
    match outcome {
        Ok(()) => log_remembered(count),
        Err(error) => warn!(
            event = "nodes_not_remembered",
            "cannot remember the nodes: {error}: those that came last are not waited for after a restart"
        ),
    }
}

fn log_remembered(count: usize) {
    info!(
        event = "nodes_remembered",
        "{} remembered",
        counted(count, "node")
    );
}

/// The last field of a node's line, if it was lost soon after it was first known.
const BRIEF: &str = "brief";

/// A node's line: UUID, roles in decimal, instances, milliseconds of Unix time since when it is lost or `-`, address or
/// `-`, host name, and `brief` if it was lost soon after it was first known, with a tab between each. Versions before 0.2 wrote the UUID alone. Fields are added at the end only,
/// so that both an older and a newer program can read the line.
fn node_line(node: &KnownNode) -> String {
    let KnownNode {
        uuid,
        roles,
        instances,
        ..
    } = node;
    let lost = node.lost_since_ms.map(|ms| ms.to_string());
    let lost = lost.as_deref().unwrap_or("-");
    let address = node.address.map(|address| address.to_string());
    let address = address.as_deref().unwrap_or("-");
    // A host name with a control character is a launcher's mistake; it must not be another line.
    let hostname: String = node
        .hostname
        .chars()
        .filter(|it| !it.is_control())
        .collect();
    format!(
        "{uuid}\t{}\t{instances}\t{lost}\t{address}\t{hostname}\t{}\n",
        roles.0,
        if node.is_brief { BRIEF } else { "" }
    )
}

/// A node from its line; what is missing or unreadable behind the UUID is not known. `None` where even the UUID cannot
/// be read: a line of another program, or a damaged one.
fn read_node(line: &str) -> Option<KnownNode> {
    let mut fields = line.split('\t');
    let uuid = Uuid::try_parse(fields.next()?).ok()?;
    let mut next = || fields.next().unwrap_or_default();
    Some(KnownNode {
        roles: Role(next().parse().unwrap_or(0)),
        instances: next().parse().unwrap_or(0),
        lost_since_ms: next().parse().ok(),
        address: next().parse().ok(),
        hostname: next().into(),
        is_brief: next() == BRIEF,
        ..KnownNode::from(uuid)
    })
}

/// Whether a file in the directory is the scheduler's. [`private::open_directory`] uses it to tell its own files from a
/// directory that somebody else uses.
fn is_own(name: &str) -> bool {
    let name = name.strip_suffix(".new").unwrap_or(name);
    [UUID_FILE, NODES_FILE, CONFIGURATION_FILE].contains(&name) || name.starts_with(STORE_FILE)
}

/// Writes a file so that a crash leaves the old contents or the new, nothing in between. The file is created again with
/// an owner's permissions, so that its old ones do not matter.
pub(super) fn write_atomically(path: &Path, contents: &[u8]) -> io::Result<()> {
    // In the same directory, because renaming works within one file system alone.
    let unfinished = path.with_extension("new");
    let mut file = private::create(&unfinished)?;
    file.write_all(contents)?;
    file.sync_all()?;
    std::fs::rename(&unfinished, path)?;
    // The new name is on disk once the directory is.
    match path.parent() {
        Some(directory) => File::open(directory)?.sync_all(),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::{
        File, KnownNode, MAX_NODES_FILE, NODES_FILE, Role, StateDir, Turn, Uuid, read_nodes_file,
    };

    #[test]
    fn uuid_and_nodes_are_found_again() {
        let directory = tempfile::tempdir().unwrap();
        let state = StateDir::open(&directory.path().join("a/b")).unwrap();
        assert_eq!(state.own_uuid().unwrap(), state.own_uuid().unwrap());
        assert!(state.nodes().is_empty());
        let lost = KnownNode {
            uuid: Uuid::new_v4(),
            roles: Role::AGENT,
            hostname: "host-3".into(),
            address: Some("[::1]:4711".parse().unwrap()),
            instances: 3,
            lost_since_ms: Some(1_700_000_000_123),
            is_brief: true,
        };
        let nodes = [KnownNode::from(Uuid::new_v4()), lost];
        state.save_nodes(&nodes, Turn::OneOfMany).unwrap();
        assert_eq!(state.nodes(), nodes);
        // One that was on its way when the daemon began to leave changes nothing any more.
        state.save_nodes(&nodes[..1], Turn::Last).unwrap();
        state.save_nodes(&nodes, Turn::OneOfMany).unwrap();
        assert_eq!(state.nodes(), nodes[..1]);
    }

    #[test]
    fn a_list_that_is_too_long_is_not_read() {
        let directory = tempfile::tempdir().unwrap();
        let state = StateDir::open(directory.path()).unwrap();
        state
            .save_nodes(&[KnownNode::from(Uuid::new_v4())], Turn::OneOfMany)
            .unwrap();
        let path = directory.path().join(NODES_FILE);
        let file = File::options().write(true).open(&path).unwrap();
        file.set_len(MAX_NODES_FILE).unwrap();
        assert_eq!(state.nodes().len(), 1);
        file.set_len(MAX_NODES_FILE + 1).unwrap();
        let error = read_nodes_file(&path).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::FileTooLarge);
        assert!(state.nodes().is_empty());
    }

    #[test]
    fn a_host_name_cannot_add_a_node_and_the_list_of_an_earlier_version_is_read() {
        let directory = tempfile::tempdir().unwrap();
        let state = StateDir::open(directory.path()).unwrap();
        let (uuid, other) = (Uuid::new_v4(), Uuid::new_v4());
        let hostile = KnownNode {
            hostname: format!("a\n{other}\tb").into(),
            ..KnownNode::from(uuid)
        };
        state.save_nodes(&[hostile], Turn::OneOfMany).unwrap();
        let read: Vec<Uuid> = state.nodes().iter().map(|node| node.uuid).collect();
        assert_eq!(read, [uuid]);
        let earlier = format!("{uuid}\n{other}\n");
        std::fs::write(directory.path().join("nodes"), earlier).unwrap();
        assert_eq!(state.nodes(), [uuid.into(), other.into()]);
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
