//! Files that no other user may read: state directories, which hold the commands and environments of workloads, and
//! private keys; and errors about files of which nothing may be shown.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;

use serde_json::error::Category;

/// Mode of a directory that its owner alone may use.
const DIRECTORY: u32 = 0o700;

/// Mode of a file that its owner alone may use.
pub(crate) const FILE: u32 = 0o600;

/// The mode bits of everybody but the owner.
const OTHERS: u32 = 0o077;

/// The bits of a mode that `chmod` sets.
const MODE: u32 = 0o7777;

/// What is wrong with JSON that may hold secrets, such as the environments of workloads: where, and what was expected.
/// Nothing of its content: errors of `serde_json` quote values.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line} column {column}: {what}")]
pub struct JsonFault {
    line: usize,
    column: usize,
    what: String,
}

impl From<serde_json::Error> for JsonFault {
    fn from(error: serde_json::Error) -> Self {
        // The name of a field is the reader's own.
        const MISSING: &str = "missing field `";
        let text = error.to_string();
        let missing = text.strip_prefix(MISSING);
        let missing = missing.and_then(|rest| rest.split_once('`'));
        let what = match (error.classify(), missing) {
            (Category::Data, Some((field, _))) => format!("`{field}` is missing"),
            (Category::Data, None) => "a value of another kind is expected there".to_owned(),
            (Category::Eof, _) => "it ends too early".to_owned(),
            (Category::Syntax | Category::Io, _) => "it is not JSON".to_owned(),
        };
        Self {
            line: error.line(),
            column: error.column(),
            what,
        }
    }
}

impl From<JsonFault> for io::Error {
    fn from(fault: JsonFault) -> Self {
        Self::new(io::ErrorKind::InvalidData, fault)
    }
}

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

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::JsonFault;

    #[test]
    fn nothing_of_a_content_is_in_what_is_wrong_with_it() {
        #[derive(Debug, Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Record {
            _name: Kind,
            _count: u8,
        }

        #[derive(Debug, Deserialize)]
        #[serde(rename_all = "lowercase")]
        enum Kind {
            Plain,
        }

        let long = "hunter2".repeat(200_000);
        let long = format!(r#"{{"_name": "plain", "_count": "{long}"}}"#);
        for (text, wanted) in [
            (r#"{"_name": "hunter2"}"#, "another kind"),
            (r#"{"_name": "plain", "_count": "hunter2"}"#, "another kind"),
            (r#"{"_name": "plain", "_count": 7777}"#, "another kind"),
            (r#"{"hunter2": 1}"#, "another kind"),
            (r#""hunter2""#, "another kind"),
            (r#"{"_name": "plain"}"#, "`_count` is missing"),
            (r#"{"_name": "hunter2"#, "ends too early"),
            ("hunter2", "not JSON"),
            (r#"{"_name": hunter2}"#, "not JSON"),
            (&long, "another kind"),
        ] {
            let fault = JsonFault::from(serde_json::from_str::<Record>(text).unwrap_err());
            for shown in [fault.to_string(), format!("{fault:?}")] {
                let is_shown = ["hunter2", "7777"].iter().any(|it| shown.contains(it));
                assert!(!is_shown, "{shown}");
            }
            assert!(fault.to_string().contains(wanted), "{fault}");
            assert!(fault.to_string().starts_with("line 1 column "), "{fault}");
        }
    }
}
