//! What was deleted of ended instances, when and why: for those who ask for it later.
//!
//! ```text
//! <state>/deleted.log       a line of JSON for each, appended
//! <state>/deleted.log.1     the same, of before that grew too long
//! ```
//! The launcher only appends, and who asks for output that is not there reads the files. What cannot be written, because
//! the disk is full, is not known later.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};
use tracing::debug;

use super::super::files::careful;
use crate::private;

/// Bytes at which the file becomes the older one: of some ten thousand runs each.
const MAX_FILE_BYTES: u64 = 2 * 1024 * 1024;

/// The end of the year 9999, in milliseconds of Unix time.
const LATEST_MS: u64 = 253_402_300_799_000;

/// Why output was deleted, or not kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Why {
    /// It was kept for as long as output is: so many milliseconds.
    Age(u64),
    /// Output that is newer takes the bytes that all together may take: so many.
    Bytes(u64),
    /// The disk was full.
    DiskFull,
    /// Its instance was deleted after it had ended.
    InstanceDeleted,
    /// That was requested.
    Requested,
    /// The launcher keeps none.
    NoneIsKept,
    /// There was none: the instance was removed and had written nothing.
    NothingWritten,
}

impl Why {
    /// Why, for people, behind "it was deleted on such a day".
    fn text(&self) -> String {
        match self {
            Self::Age(ms) => {
                let age = humantime::format_duration(Duration::from_millis(*ms));
                format!("output of ended instances is kept for {age} (--keep-output-for)")
            }
            Self::Bytes(bytes) => {
                let mib = bytes / (1024 * 1024);
                format!(
                    "newer output takes the {mib} MiB ({bytes} bytes) that output of ended instances may take there \
                     (--keep-output-bytes)"
                )
            }
            Self::DiskFull => "the disk of its node was full".to_owned(),
            Self::InstanceDeleted => "its instance was deleted after it had ended".to_owned(),
            Self::Requested => {
                "that was requested (`ciaoctl instance forget --data`)".to_owned()
            }
            Self::NoneIsKept => {
                "its node keeps no output of ended instances (--keep-output-for or --keep-output-bytes is 0)".to_owned()
            }
            Self::NothingWritten => String::new(),
        }
    }
}

/// One line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Deleted {
    instance: String,
    /// When, milliseconds of Unix time.
    at_ms: u64,
    why: Why,
}

/// The file in the state directory.
#[derive(Debug, Clone)]
pub(crate) struct DeletedLog {
    file: PathBuf,
}

impl DeletedLog {
    /// Of the state directory `root`.
    pub(crate) fn of(root: &Path) -> Self {
        Self {
            file: root.join("deleted.log"),
        }
    }

    /// Notes that the output of a run of each of these instances was deleted just now.
    pub(crate) fn note<'a>(&self, all: impl IntoIterator<Item = (&'a str, Why)>) {
        let since_epoch = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let at_ms = since_epoch.map_or(0, |it| u64::try_from(it.as_millis()).unwrap_or(u64::MAX));
        let mut text = Vec::new();
        for (instance, why) in all {
            let instance = instance.to_owned();
            let line = serde_json::to_vec(&Deleted {
                instance,
                at_ms,
                why,
            });
            text.extend(line.unwrap_or_default());
            text.push(b'\n');
        }
        if text.is_empty() {
            return;
        }
        if let Err(error) = self.append(&text) {
            debug!(path = %self.file.display(), %error, "cannot be written");
        }
    }

    fn append(&self, text: &[u8]) -> io::Result<()> {
        let is_long = fs::symlink_metadata(&self.file).is_ok_and(|it| it.len() >= MAX_FILE_BYTES);
        if is_long {
            fs::rename(&self.file, self.older())?;
        }
        let mut file = OpenOptions::new()
            .append(true)
            .create(true)
            .mode(private::FILE)
            .custom_flags(careful())
            .open(&self.file)?;
        file.write_all(text)
    }

    /// When and why the output of an instance's latest run was deleted, as far as it is noted; a sentence for people.
    pub(crate) fn what_of(&self, instance: &str) -> Option<String> {
        let latest = latest_in(&self.file, instance);
        let deleted = latest.or_else(|| latest_in(&self.older(), instance))?;
        Some(match deleted.why {
            Why::NothingWritten => "its instance was removed and had written nothing".to_owned(),
            why => {
                // A time beyond the year 9999 cannot be shown, and nobody wrote one in earnest.
                let at = Duration::from_millis(deleted.at_ms.min(LATEST_MS));
                let at = humantime::format_rfc3339_seconds(SystemTime::UNIX_EPOCH + at);
                format!("its output was deleted on {at}: {}", why.text())
            }
        })
    }

    fn older(&self) -> PathBuf {
        self.file.with_extension("log.1")
    }
}

/// The last line of an instance. Lines that cannot be read, as one that was cut off, are passed over.
fn latest_in(path: &Path, instance: &str) -> Option<Deleted> {
    let file: File = OpenOptions::new()
        .read(true)
        .custom_flags(careful())
        .open(path)
        .ok()?;
    // A batch may have made it longer than its limit, by a little.
    let mut lines = BufReader::new(file.take(MAX_FILE_BYTES * 2)).split(b'\n');
    let mut latest = None;
    while let Some(Ok(line)) = lines.next() {
        let deleted = serde_json::from_slice::<Deleted>(&line);
        latest = deleted.ok().filter(|it| it.instance == instance).or(latest);
    }
    latest
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::{DeletedLog, MAX_FILE_BYTES, Why};

    #[test]
    fn the_latest_of_an_instance_is_found_also_behind_a_broken_line_and_in_the_older_file() {
        let root = tempfile::tempdir().unwrap();
        let log = DeletedLog::of(root.path());
        assert_eq!(log.what_of("a"), None);
        log.note([("a", Why::DiskFull), ("b", Why::NothingWritten)]);
        let of_a = log.what_of("a").unwrap();
        assert!(of_a.starts_with("its output was deleted on 2"), "{of_a}");
        assert!(of_a.ends_with("the disk of its node was full"), "{of_a}");
        let of_b = log.what_of("b").unwrap();
        assert!(of_b.contains("had written nothing"), "{of_b}");
        let mut text = fs::read(root.path().join("deleted.log")).unwrap();
        text.extend(b"{\"instance\":\"a\",\xff\n");
        text.resize(text.len() + usize::try_from(MAX_FILE_BYTES).unwrap(), b'\n');
        fs::write(root.path().join("deleted.log"), text).unwrap();
        log.note([
            ("a", Why::Age(7 * 24 * 3_600_000)),
            ("c", Why::Bytes(1 << 30)),
        ]);
        let of_a = log.what_of("a").unwrap();
        assert!(of_a.contains("kept for 7days"), "{of_a}");
        let of_c = log.what_of("c").unwrap();
        assert!(of_c.contains("1024 MiB"), "{of_c}");
        assert!(log.what_of("b").is_some(), "in the older file");
        assert_eq!(log.what_of("d"), None);
        assert_eq!(fs::read_dir(root.path()).unwrap().count(), 2);
    }
}
