//! Funky's socket as a file: taken over where no process listens, never from one that does, and its owner's alone.

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

/// Connections that wait to be accepted: as many as the kernel allows by default, so that of a burst none is refused.
const BACKLOG: u32 = 4096;

/// Why there is no socket.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SocketError {
    /// Somebody listens there.
    #[error("{}: another program listens there: stop it, or give -socket another path", .0.display())]
    InUse(PathBuf),
    /// Something is there that is no socket.
    #[error("{}: is there and is no socket: it stays; give -socket another path", .0.display())]
    NotASocket(PathBuf),
    /// It cannot be had.
    #[error("{}: {source}", path.display())]
    Io {
        /// Which file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// A socket that is listened at; its file goes when it is dropped.
#[derive(Debug)]
pub(crate) struct Socket {
    pub(crate) listener: UnixListener,
    path: PathBuf,
    /// The file's number, by which it is known to be this one still.
    inode: u64,
    /// Locked while it is listened at, so that of two that start at once one alone takes it.
    _lock: File,
}

impl Socket {
    /// Listens at this path, with a file of this mode.
    ///
    /// # Errors
    /// [`SocketError`].
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

/// Locks the file beside the socket, which stays there: removed, two could have locked one each.
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
