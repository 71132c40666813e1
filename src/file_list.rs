//! The list of a directory as launchers answer it and `ciaoctl` reads it: a line of JSON for each entry.
//!
//! ```text
//! {"name":"result.csv","kind":"file","bytes":1024,"modified_ms":1795000000000}
//! ```

use serde::{Deserialize, Serialize};

/// An entry of a directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FileEntry {
    /// Its name there. One that is no text is shown as far as it is, and cannot be read.
    pub(crate) name: String,
    pub(crate) kind: FileKind,
    /// How long a file is.
    #[serde(default)]
    pub(crate) bytes: u64,
    /// When it was changed last, milliseconds of Unix time.
    #[serde(default)]
    pub(crate) modified_ms: i64,
}

/// What an entry is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum FileKind {
    File,
    Directory,
    /// A symbolic link, which is not followed.
    Link,
    /// Something else, or what a later version calls otherwise.
    #[serde(other)]
    Special,
}

impl FileEntry {
    /// The line of it, with its end.
    pub(crate) fn line(&self) -> String {
        let mut line = serde_json::to_string(self).unwrap_or_default();
        line.push('\n');
        line
    }

    /// The entries of whole lines.
    ///
    /// # Errors
    /// A line is none.
    pub(crate) fn of_lines(text: &[u8]) -> Result<Vec<Self>, serde_json::Error> {
        let lines = text.split(|byte| *byte == b'\n');
        let lines = lines.filter(|line| !line.is_empty());
        lines.map(serde_json::from_slice).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_come_back_whatever_the_names_are() {
        let entries: Vec<FileEntry> = ["a", "line\nend", "\"", "ü"]
            .into_iter()
            .map(|name| FileEntry {
                name: name.to_owned(),
                kind: FileKind::File,
                bytes: 7,
                modified_ms: -1,
            })
            .collect();
        let text: String = entries.iter().map(FileEntry::line).collect();
        assert_eq!(FileEntry::of_lines(text.as_bytes()).unwrap(), entries);
        let later = FileEntry::of_lines(b"{\"name\":\"x\",\"kind\":\"fork\"}\n").unwrap();
        assert_eq!(later[0].kind, FileKind::Special);
        assert!(FileEntry::of_lines(b"{\"name\"").is_err());
    }
}
