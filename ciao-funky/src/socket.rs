//! The file of Funky's socket: made with the right mode, taken over from a process that crashed, never from one that
//! listens.
//!
//! Beside the socket there is a lock file, `<socket>.lock`. Its lock decides which of two processes that start at once
//! may remove a socket that was left behind. The kernel drops the lock when its holder ends, however it ends.

use std::fs::{File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{
    FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _,
};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, Mode, OFlags, flock};
use rustix::process::umask;
use tokio::net::{UnixListener, UnixSocket};

/// Connections that may wait to be accepted. 4096 is the kernel's own limit by default (`net.core.somaxconn`), so that
/// of a burst of clients none is refused.
const BACKLOG: u32 = 4096;

/// Why the program cannot listen at its path; it ends the start.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SocketError {
    /// Another process holds the lock, or accepts connections there without one, as Funky's own primary does.
    #[error("{}: another program listens there: stop it, or give -socket another path", .0.display())]
    InUse(PathBuf),
    /// The path is a file, directory or link; it is left as it is.
    #[error("{}: is there and is no socket: it stays; give -socket another path", .0.display())]
    NotASocket(PathBuf),
    /// Some operation on the path or its lock failed.
    #[error("cannot listen at the socket {}: {source}; give -socket another path", path.display())]
    Io {
        /// The socket or the lock file.
        path: PathBuf,
        /// What the system said of it.
        source: io::Error,
    },
}

/// A socket that accepts connections. Dropping it removes its file, unless another file has taken the name.
#[derive(Debug)]
pub(crate) struct Socket {
    pub(crate) listener: UnixListener,
    path: PathBuf,
    /// Inode of the file, compared before the file is removed.
    inode: u64,
    /// Holds the lock for as long as this lives. The lock file itself stays.
    _lock: File,
}

impl Socket {
    /// Makes the socket's file with this mode and listens.
    ///
    /// In this order: take the lock; see what is at the path, and connect to it to see whether a process answers;
    /// remove a socket that does not answer; bind under a umask that gives the file 0600, and only then set `mode`. At
    /// no moment can a user connect whom `mode` does not allow. The umask is the process's: call this before other
    /// threads make files.
    ///
    /// # Errors
    /// [`SocketError`]. Nothing that another program uses has been changed then.
    pub(crate) fn bind(path: &Path, mode: u32) -> Result<Self, SocketError> {
        let io = |source| SocketError::Io {
            path: path.to_owned(),
            source,
        };
        let lock = lock(path)?;
        match std::fs::symlink_metadata(path) {
            Ok(file) if !file.file_type().is_socket() => {
                return Err(SocketError::NotASocket(path.to_owned()));
            }
            Ok(_) if UnixStream::connect(path).is_ok() => {
                return Err(SocketError::InUse(path.to_owned()));
            }
            // One that was left behind.
            Ok(_) => std::fs::remove_file(path).map_err(io)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(io(error)),
        }
        let socket = UnixSocket::new_stream().map_err(io)?;
        // It must never be there with another mode. No other thread makes files at this time.
        let before = umask(Mode::from_raw_mode(0o177));
        let bound = socket.bind(path);
        umask(before);
        bound.map_err(io)?;
        std::fs::set_permissions(path, Permissions::from_mode(mode)).map_err(io)?;
        Ok(Self {
            listener: socket.listen(BACKLOG).map_err(io)?,
            path: path.to_owned(),
            inode: std::fs::symlink_metadata(path).map_err(io)?.ino(),
            _lock: lock,
        })
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        let is_ours = std::fs::symlink_metadata(&self.path).is_ok_and(|it| it.ino() == self.inode);
        if is_ours {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Opens and locks the file beside the socket, without waiting. The file is never removed: a second process that had
/// opened it before the removal would lock a file that a third no longer finds.
///
/// # Errors
/// [`SocketError::InUse`] if another process has the lock.
fn lock(socket: &Path) -> Result<File, SocketError> {
    let mut name = socket.as_os_str().to_owned();
    name.push(".lock");
    let path = PathBuf::from(name);
    let opened = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        // Not through a link that somebody else has put there.
        .custom_flags(OFlags::NOFOLLOW.bits().cast_signed())
        .open(&path);
    let io = |source| SocketError::Io {
        path: path.clone(),
        source,
    };
    let file = opened.map_err(io)?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(file),
        Err(rustix::io::Errno::WOULDBLOCK) => Err(SocketError::InUse(socket.to_owned())),
        Err(error) => Err(io(error.into())),
    }
}
