//! Writing certificate files: whole or not at all, and a private key readable by its owner from the first byte on.
//!
//! Used by `ciao-cert` and by `ciao-scheduler dev`. Not used for reading, which is [`crate::net::tls`].

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use uuid::Uuid;

/// Mode of a file with a private key.
pub const PRIVATE_MODE: u32 = 0o600;

/// Mode of a file with certificates alone (cut by the umask).
pub const PUBLIC_MODE: u32 = 0o644;

/// What to do where a file of that name is there already.
///
/// `-force` makes it [`Existing::Replace`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Existing {
    /// Leave it and fail.
    Keep,
    /// Replace it.
    Replace,
}

/// Why a file was not written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WriteError {
    /// A file of that name is there already.
    #[error("{} exists already; remove it, choose another -directory, or say -force", .0.display())]
    Exists(PathBuf),
    /// The system refuses.
    #[error("cannot write {}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
}

/// Writes `contents` to `path` under a temporary name beside it, then gives it its name in one step.
///
/// The temporary name is in the same directory, because a rename across file systems is a copy. The contents are on
/// disk before the file has its name.
///
/// # Errors
/// [`WriteError`]; `path` is as it was then.
pub fn write(path: &Path, contents: &str, mode: u32, existing: Existing) -> Result<(), WriteError> {
    let temporary = path.with_file_name(format!(".ciao-cert-{}", Uuid::new_v4().simple()));
    let written = write_new(&temporary, contents, mode).and_then(|()| match existing {
        Existing::Replace => fs::rename(&temporary, path),
        // A hard link, unlike a rename, fails where the name is taken, without a moment between looking and doing.
        Existing::Keep => fs::hard_link(&temporary, path),
    });
    // Gone already after a rename; after anything else it must not stay behind.
    let _ = fs::remove_file(&temporary);
    written.map_err(|source| match source.kind() {
        io::ErrorKind::AlreadyExists => WriteError::Exists(path.into()),
        _ => WriteError::Io {
            path: path.into(),
            source,
        },
    })
}

/// The mode applies from the creation on, so that there is no moment in which others can read a key.
fn write_new(path: &Path, contents: &str, mode: u32) -> io::Result<()> {
    let mut file: File = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(mode)
        .open(path)?;
    file.write_all(contents.as_bytes())?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::{Existing, PRIVATE_MODE, WriteError, write};

    #[test]
    fn a_private_file_is_its_owners_alone_and_nothing_else_is_left_behind() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("key.pem");
        write(&path, "secret", PRIVATE_MODE, Existing::Keep).unwrap();
        assert_eq!(
            fs::metadata(&path).unwrap().permissions().mode() & 0o777,
            0o600
        );
        assert_eq!(fs::read_to_string(&path).unwrap(), "secret");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn an_existing_file_stays_unless_it_is_to_be_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("key.pem");
        fs::write(&path, "old").unwrap();
        assert!(matches!(
            write(&path, "new", PRIVATE_MODE, Existing::Keep),
            Err(WriteError::Exists(_))
        ));
        assert_eq!(fs::read_to_string(&path).unwrap(), "old");
        write(&path, "new", PRIVATE_MODE, Existing::Replace).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "new");
        assert_eq!(
            fs::metadata(&path).unwrap().permissions().mode() & 0o777,
            0o600,
            "the old mode is not taken over"
        );
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_missing_directory_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let error = write(
            &dir.path().join("none/key.pem"),
            "",
            PRIVATE_MODE,
            Existing::Keep,
        )
        .unwrap_err();
        assert!(error.to_string().contains("none/key.pem"), "{error}");
    }
}
