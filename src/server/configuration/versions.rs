//! The versions of the cluster configuration: the newest one is in force, and some before it can be gone back to. In a
//! state directory they are one file, written whole and renamed into place.
//!
//! ```json
//! {"file": "sha256:…", "versions": [{"version": 7, "at_ms": …, "source": "command", "by": "O=ciao", "note": "",
//!  "document": "configure: …"}]}
//! ```
//!
//! It stands beside the store rather than in it: what the store loses when it is damaged is learned again from launchers,
//! and a policy is not. So a file that cannot be read ends the start, as a mistake in the configuration does.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use proto_frames::payload::configuration::{
    MAX_CONFIGURATION_NOTE_LEN, MAX_CONFIGURATION_VERSIONS,
};
use proto_frames::payload::cut::cut;
use proto_frames::payload::{ConfigurationSource, ConfigurationVersion};
use serde::{Deserialize, Serialize};

use super::{MAX_LEN, Originals};
use crate::image_file::Hash;
use crate::private::JsonFault;
use crate::server::shared::{SharedDocument, SharedStore};
use crate::server::state::write_atomically;

/// Name of the file in the state directory.
pub(in crate::server) const FILE: &str = "configuration";

/// Largest such file that is read, in bytes: every version at its largest, of which JSON may write each byte as six.
const MAX_FILE_LEN: u64 = (6 * MAX_LEN * MAX_CONFIGURATION_VERSIONS) as u64;

/// Why versions cannot be used.
#[derive(Debug, thiserror::Error)]
pub(in crate::server) enum VersionsError {
    /// The file cannot be read or written.
    #[error(transparent)]
    File(#[from] io::Error),
    /// It is longer than any such file.
    #[error("it has more than {MAX_FILE_LEN} bytes")]
    TooLong,
    /// It is not what was written.
    #[error(transparent)]
    Json(#[from] JsonFault),
}

/// A version that is kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::server) struct Version {
    /// Its number, from 1.
    pub(super) version: u64,
    /// Since when it is in force, milliseconds of Unix time.
    pub(super) at_ms: u64,
    /// Where it is from, in [`ConfigurationSource`]'s word.
    source: String,
    /// Who set it: the subject of a certificate, or a file.
    pub(super) by: String,
    /// What it is for, for people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(super) note: String,
    /// The configuration itself.
    pub(super) document: String,
}

impl Version {
    /// Where it is from.
    pub(super) fn source(&self) -> ConfigurationSource {
        self.source.as_str().into()
    }

    /// For whom it is complete.
    pub(super) fn originals(&self) -> Originals {
        match self.source() {
            ConfigurationSource::Controller => Originals::Always,
            _ => Originals::WhereComplete,
        }
    }

    /// All but the configuration itself.
    pub(super) fn view(&self) -> ConfigurationVersion {
        ConfigurationVersion {
            version: self.version,
            at_ms: self.at_ms,
            source: self.source(),
            by: self.by.clone(),
            note: self.note.clone(),
            bytes: self.document.len() as u64,
        }
    }
}

/// Who sets a version, and what for.
#[derive(Debug, Clone)]
pub(super) struct Author {
    pub(super) source: ConfigurationSource,
    pub(super) by: String,
    pub(super) note: String,
}

/// Where versions are kept.
#[derive(Debug, Clone, Default)]
enum Place {
    /// In memory alone.
    #[default]
    Memory,
    /// In this file.
    File(PathBuf),
    /// Where several schedulers have them.
    Shared(Arc<dyn SharedStore>),
}

/// Where they are kept that several schedulers share, as messages say it.
pub(super) const IN_SHARED: &str = "the cluster's store";

/// The versions there are.
#[derive(Debug, Clone, Default)]
pub(in crate::server) struct Versions {
    place: Place,
    kept: Kept,
}

/// What of them is in the file.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct Kept {
    /// The digest of the scheduler's own file as it was taken last; `None` where none was.
    #[serde(default)]
    file: Option<String>,
    /// Oldest first; at most [`MAX_CONFIGURATION_VERSIONS`].
    versions: VecDeque<Version>,
}

impl Versions {
    /// Those of a state directory; none yet where it has no such file, or where there is no directory.
    ///
    /// # Errors
    /// The file is there and cannot be used.
    pub(in crate::server) fn open(directory: Option<&Path>) -> Result<Self, VersionsError> {
        let path = directory.map(|directory| directory.join(FILE));
        let kept = match &path {
            Some(path) => read(path)?.unwrap_or_default(),
            None => Kept::default(),
        };
        let place = path.map_or(Place::Memory, Place::File);
        Ok(Self { place, kept })
    }

    /// Those that several schedulers share, as they were found; `json` is empty where none were.
    ///
    /// # Errors
    /// They are not what was written.
    pub(super) fn shared(json: &[u8], store: Arc<dyn SharedStore>) -> Result<Self, VersionsError> {
        let kept = match json {
            [] => Kept::default(),
            json => parse(json)?,
        };
        let place = Place::Shared(store);
        Ok(Self { place, kept })
    }

    /// Whether they are there after a restart.
    pub(super) fn are_kept(&self) -> bool {
        !matches!(self.place, Place::Memory)
    }

    /// Where they are kept, for messages; empty where they are not.
    pub(super) fn place(&self) -> String {
        match &self.place {
            Place::Memory => String::new(),
            Place::File(path) => path.display().to_string(),
            Place::Shared(_) => IN_SHARED.to_owned(),
        }
    }

    /// The newest, which is in force.
    pub(super) fn current(&self) -> Option<&Version> {
        self.kept.versions.back()
    }

    /// The number of the newest; 0 where there is none.
    pub(super) fn number(&self) -> u64 {
        self.current().map_or(0, |version| version.version)
    }

    /// The version of this number, while it is kept.
    pub(super) fn find(&self, number: u64) -> Option<&Version> {
        self.kept.versions.iter().find(|it| it.version == number)
    }

    /// All of them, newest first.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Version> {
        self.kept.versions.iter().rev()
    }

    /// Whether the scheduler's own file is as it was when it was taken last.
    pub(super) fn is_file_unchanged(&self, payload: &[u8]) -> bool {
        self.kept.file.is_some() && self.kept.file == digest(payload)
    }

    /// Notes that the file is this.
    pub(super) fn set_file(&mut self, payload: &[u8]) {
        self.kept.file = digest(payload);
    }

    /// Adds a version, which is the newest from now on; returns its number. The oldest one goes where there are too many.
    /// Not in the file before [`Versions::write`].
    pub(super) fn push(&mut self, author: Author, document: String, at_ms: u64) -> u64 {
        let version = self.number() + 1;
        self.kept.versions.push_back(Version {
            version,
            at_ms,
            source: author.source.as_str().to_owned(),
            by: author.by,
            note: cut(&author.note, MAX_CONFIGURATION_NOTE_LEN).into_owned(),
            document,
        });
        while self.kept.versions.len() > MAX_CONFIGURATION_VERSIONS {
            self.kept.versions.pop_front();
        }
        version
    }

    /// Writes them where they are kept. Blocks the calling thread, which must be none that runs tasks.
    ///
    /// # Errors
    /// The system's, or the shared store's; what is kept is as it was.
    pub(super) fn write(&self) -> io::Result<()> {
        let json = || serde_json::to_vec(&self.kept).map_err(io::Error::other);
        match &self.place {
            Place::Memory => Ok(()),
            Place::File(path) => write_atomically(path, &json()?),
            Place::Shared(store) => store
                .write_document(SharedDocument::Configuration, &json()?)
                .map_err(io::Error::other),
        }
    }
}

/// What is in the file; `None` if there is none.
fn read(path: &Path) -> Result<Option<Kept>, VersionsError> {
    let file = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened?,
    };
    let mut json = Vec::new();
    file.take(MAX_FILE_LEN + 1).read_to_end(&mut json)?;
    if json.len() as u64 > MAX_FILE_LEN {
        return Err(VersionsError::TooLong);
    }
    parse(&json).map(Some)
}

fn parse(json: &[u8]) -> Result<Kept, VersionsError> {
    let mut kept: Kept = serde_json::from_slice(json).map_err(JsonFault::from)?;
    // Of a file that somebody has edited: what is in force is the newest all the same.
    kept.versions.make_contiguous().sort_by_key(|it| it.version);
    Ok(kept)
}

/// The digest of a file's bytes.
fn digest(payload: &[u8]) -> Option<String> {
    let mut hash = Hash::new();
    hash.add(payload);
    hash.digest().map(|digest| digest.to_string())
}

#[cfg(test)]
mod tests {
    use proto_frames::payload::ConfigurationSource;
    use proto_frames::payload::configuration::MAX_CONFIGURATION_VERSIONS;

    use super::{Author, FILE, Versions};

    fn author() -> Author {
        Author {
            source: ConfigurationSource::Command,
            by: "O=ciao".to_owned(),
            note: "why".to_owned(),
        }
    }

    #[test]
    fn the_newest_versions_are_found_again_with_who_and_when() {
        let directory = tempfile::tempdir().unwrap();
        let open = || Versions::open(Some(directory.path())).unwrap();
        let mut versions = open();
        assert_eq!((versions.number(), versions.current()), (0, None));
        for number in 1..=20_u64 {
            let document = format!("configure: {{}}  # \"{number}\" \u{e9}\n");
            assert_eq!(versions.push(author(), document, number), number);
            versions.write().unwrap();
        }
        versions.set_file(b"one");
        versions.write().unwrap();
        let again = open();
        let numbers: Vec<u64> = again.iter().map(|it| it.version).collect();
        let expected: Vec<u64> = (5..=20).rev().collect();
        assert_eq!(numbers, expected);
        assert_eq!(numbers.len(), MAX_CONFIGURATION_VERSIONS);
        let view = again.find(7).unwrap().view();
        assert_eq!((view.at_ms, &*view.by, &*view.note), (7, "O=ciao", "why"));
        assert_eq!(view.source, ConfigurationSource::Command);
        assert!(again.current().unwrap().document.contains("\"20\" \u{e9}"));
        assert!(again.is_file_unchanged(b"one") && !again.is_file_unchanged(b"two"));
    }

    #[test]
    fn a_file_that_is_damaged_is_not_taken_for_none() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join(FILE), "{\"versions\": [{").unwrap();
        let error = Versions::open(Some(directory.path())).unwrap_err();
        assert!(error.to_string().contains("line 1 column"), "{error}");
    }
}
