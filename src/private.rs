//! Files that no other user may read: state directories, which hold the commands and environments of workloads, and
//! private keys.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;

/// Mode of a directory that its owner alone may use.
const DIRECTORY: u32 = 0o700;

/// Mode of a file that its owner alone may use.
pub(crate) const FILE: u32 = 0o600;

/// The mode bits of everybody but the owner.
const OTHERS: u32 = 0o077;

/// The bits of a mode that `chmod` sets.
const MODE: u32 = 0o7777;

/// Opens a directory that its owner alone may use, making it if need be; what is above it is made as the umask has it.
///
/// One that is there and open to others is closed, with the files in it: those that `is_own` names, so that a directory
/// given by mistake, such as `/var/lib`, is left as it is. What was done, and what could not be, is said in words for the
/// log.
///
/// # Errors
/// The directory cannot be made or looked at.
pub fn open_directory(path: &Path, is_own: impl Fn(&str) -> bool) -> io::Result<Vec<String>> {
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent)?;
    }
    match DirBuilder::new().mode(DIRECTORY).create(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => {}
        made => return made.map(|()| Vec::new()),
    }
    let (mut own, mut foreign) = (Vec::new(), None);
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        match entry.file_name().to_str() {
            Some(name) if is_own(name) => own.push(entry),
            _ => foreign = Some(entry.file_name()),
        }
    }
    let mut said = Vec::new();
    let mode = mode(path)?;
    let name = path.display();
    match foreign {
        _ if mode & OTHERS == 0 => {}
        Some(foreign) => said.push(format!(
            "{name} is open to others (mode {mode:04o}) and holds '{}', which is not its own: it stays so; give a \
             directory of its own, or chmod 700 {name}",
            foreign.display()
        )),
        None => said.push(match close(path, DIRECTORY) {
            Ok(()) => format!(
                "{name}: was open to others (mode {mode:04o}): closed to them ({DIRECTORY:04o})"
            ),
            Err(error) => {
                format!("{name} is open to others (mode {mode:04o}): cannot close it: {error}")
            }
        }),
    }
    for file in own {
        // Not through a link: that is somebody else's file.
        if file.file_type()?.is_file() && file.metadata()?.permissions().mode() & OTHERS != 0 {
            let path = file.path();
            said.push(match close(&path, FILE) {
                Ok(()) => format!("{}: was open to others: closed to them", path.display()),
                Err(error) => format!(
                    "{} is open to others: cannot close it: {error}",
                    path.display()
                ),
            });
        }
    }
    Ok(said)
}

/// Makes a file that its owner alone may use, or empties the one that is there.
pub(crate) fn create(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(FILE)
        .open(path)
}

/// Opens a file to be read and written as it is; makes one that its owner alone may use where there is none.
pub(crate) fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(FILE)
        .open(path)
}

/// The mode of a file that others may read or write; `None` if they may not, or that cannot be found out.
pub(crate) fn open_to_others(path: &Path) -> Option<u32> {
    /// Reading and writing, by the group or by everybody.
    const READ_OR_WRITE: u32 = 0o066;
    mode(path).ok().filter(|mode| mode & READ_OR_WRITE != 0)
}

fn mode(path: &Path) -> io::Result<u32> {
    Ok(fs::metadata(path)?.permissions().mode() & MODE)
}

fn close(path: &Path, mode: u32) -> io::Result<()> {
    fs::set_permissions(path, Permissions::from_mode(mode))
}
