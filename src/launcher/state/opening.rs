//! How a state directory is opened: made if needed, closed to others, locked; and what is made of a disk that takes no
//! writes meanwhile.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::{FlockOperation, flock};
use tracing::warn;

use super::StateError;
use crate::launcher::files::is_storage_fault;
use crate::private;

/// What is made of errors of writing while the directory is being opened.
#[derive(Debug, Default)]
pub(super) struct Writing {
    /// Whether the directory has the node's UUID, so that the rest can wait.
    pub(super) has_uuid: bool,
    /// The first error.
    pub(super) fault: Option<io::Error>,
}

impl Writing {
    /// Goes on after an error of the storage where the node has its UUID.
    ///
    /// # Errors
    /// What the directory cannot be used with.
    pub(super) fn tolerate(
        &mut self,
        root: &Path,
        written: io::Result<()>,
    ) -> Result<(), StateError> {
        match written {
            Ok(()) => {}
            Err(source) if !is_storage_fault(&source) => return Err(unusable(root, source)),
            Err(source) if !self.has_uuid => {
                let path = root.to_owned();
                return Err(StateError::NoUuid { path, source });
            }
            Err(source) => drop(self.fault.get_or_insert(source)),
        }
        Ok(())
    }
}

/// Makes the directory, or closes the one that is there to others: instances' environments and outputs are private. One
/// that is there is locked before anything of it is changed, because it may be another launcher's; `None` for a new one.
pub(super) fn own_directory(root: &Path) -> Result<Option<File>, StateError> {
    let locked = match root.is_dir() {
        true => Some(lock(root, root.join("node.json").exists())?),
        false => None,
    };
    match private::open_directory(root, is_own) {
        Ok(remarks) => remarks
            .iter()
            .for_each(|remark| warn!(event = "state_file_open_to_others", "{remark}")),
        Err(source) if is_storage_fault(&source) && !root.exists() => {
            let path = root.to_owned();
            return Err(StateError::NoUuid { path, source });
        }
        Err(source) => return Err(unusable(root, source)),
    }
    Ok(locked)
}

/// Locks the directory for this launcher.
pub(super) fn lock(root: &Path, has_uuid: bool) -> Result<File, StateError> {
    let path = root.to_owned();
    let file = root.join("lock");
    let open = || {
        OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(private::FILE)
            .open(&file)
    };
    // A file that is there can be locked also where it cannot be written.
    let lock = match open().or_else(|error| File::open(&file).map_err(|_| error)) {
        Ok(lock) => lock,
        Err(source) if is_storage_fault(&source) && !has_uuid => {
            return Err(StateError::NoUuid { path, source });
        }
        Err(source) => return Err(unusable(root, source)),
    };
    match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(lock),
        Err(rustix::io::Errno::WOULDBLOCK) => Err(StateError::InUse { path }),
        Err(error) => Err(unusable(root, error.into())),
    }
}

/// Why a directory cannot be used, by whether it is a node's.
pub(super) fn unusable(root: &Path, source: io::Error) -> StateError {
    let path = root.to_owned();
    match fs::symlink_metadata(root.join("node.json")) {
        Err(error) if error.kind() != io::ErrorKind::PermissionDenied => {
            StateError::Unusable { path, source }
        }
        _ => StateError::OfNode { path, source },
    }
}

/// Whether what is in the directory is the launcher's.
fn is_own(name: &str) -> bool {
    let own = [
        "lock",
        "node.json",
        "lease.json",
        "lease.spare",
        "instances",
        "new",
        "kept",
        "kept-clock.json",
        "deleted.log",
        "deleted.log.1",
        "running",
        "trash",
    ];
    own.contains(&name) || name.ends_with(".tmp")
}
