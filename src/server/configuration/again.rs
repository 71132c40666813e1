//! The scheduler's own file is read again: it is a new version where it has changed, unless a newer one was set
//! otherwise. Reading and taking are two steps, so that it can be checked together with whatever else is read again.

use std::io;
use std::path::Path;

use bytes::Bytes;
use proto_frames::payload::ConfigurationSource;

use super::keeper::Keeper;
use super::opening::{log_warnings, of_file};
use super::versions::Version;
use super::{DEFAULT_URI, Document, Originals, Unreadable, parse, read_file};
use crate::printable::Printable;
use crate::server::strict::Mistake;

/// Why the scheduler's own file is not taken.
#[derive(Debug, thiserror::Error)]
pub enum FileRefused {
    /// It cannot be read.
    #[error("cannot read the cluster configuration {uri}: {why}")]
    Unreadable {
        /// Where it is.
        uri: String,
        /// Why not.
        why: String,
    },
    /// It is wrong.
    #[error("cannot use the cluster configuration {uri}: {mistake}")]
    Mistake {
        /// Where it is.
        uri: String,
        /// What is wrong with it.
        mistake: Mistake,
    },
    /// A newer version was set otherwise.
    #[error(
        "the cluster configuration {uri} has changed, and version {version} was set since by {by} ({source_word}): `ciaoctl \
         configure --diff` shows how they differ; a reload with --force takes the file"
    )]
    Newer {
        /// Where it is.
        uri: String,
        /// The number of that version.
        version: u64,
        /// Who set it.
        by: String,
        /// Where it is from, in a word.
        source_word: String,
    },
    /// It cannot be kept.
    #[error("cannot keep the cluster configuration in {path}: {source}")]
    Write {
        /// The file of the versions.
        path: String,
        /// The system's reason.
        source: io::Error,
    },
}

/// The scheduler's own file, read again and found right; nothing is changed before it is taken.
#[derive(Debug)]
pub(in crate::server) struct NewFile {
    document: Document,
    payload: Bytes,
    /// The number of the version that was in force when it was read; 0 where there was none.
    over: u64,
}

impl FileRefused {
    /// This version was set otherwise, and is newer than what was read of the file.
    fn newer(uri: &str, version: &Version) -> Self {
        Self::Newer {
            uri: uri.to_owned(),
            version: version.version,
            by: Printable::new(&version.by).to_string(),
            source_word: version.source().to_string(),
        }
    }

    /// Where the file is, and the line of the mistake, from 1, where there is one.
    pub(in crate::server) fn place(&self) -> (Option<&Path>, Option<usize>) {
        let (uri, line) = match self {
            Self::Mistake { uri, mistake } => (uri, mistake.position.map(|at| at.line)),
            Self::Unreadable { uri, .. } | Self::Newer { uri, .. } => (uri, None),
            Self::Write { path, .. } => (path, None),
        };
        (Some(Path::new(uri)), line)
    }
}

/// Whether the file is taken over a newer version that was set by command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::server) enum Force {
    Yes,
    No,
}

impl Keeper {
    /// Reads the scheduler's own file again and checks it; `None` where there is nothing to be taken, because it has not
    /// changed or is what is in force. Nothing is changed before [`Keeper::take`]. Blocks for the file.
    ///
    /// # Errors
    /// It cannot be used, or, without `force`, a newer version was set by command.
    pub(in crate::server) fn read_again(
        &self,
        force: Force,
    ) -> Result<Option<NewFile>, FileRefused> {
        let given = self.shared.uri.as_deref();
        let uri = || given.unwrap_or(DEFAULT_URI).to_owned();
        let unreadable = |why: Unreadable| FileRefused::Unreadable {
            uri: uri(),
            why: why.to_string(),
        };
        let Some(payload) = read_file(given).map_err(unreadable)? else {
            return Ok(None);
        };
        let document = parse(payload.clone(), Originals::WhereComplete);
        let document = document.map_err(|mistake| FileRefused::Mistake {
            uri: uri(),
            mistake,
        })?;
        let mut versions = self.shared.versions.lock();
        self.shared.take_configured(&mut versions);
        let current = versions.current();
        if current.is_some_and(|it| *it.document.as_bytes() == *payload) {
            return Ok(None);
        }
        let is_unchanged = versions.is_file_unchanged(&payload);
        if is_unchanged && force == Force::No {
            return Ok(None);
        }
        match current {
            Some(newer) if newer.source() != ConfigurationSource::File && force == Force::No => {
                Err(FileRefused::newer(&uri(), newer))
            }
            _ => Ok(Some(NewFile {
                document,
                payload,
                over: versions.number(),
            })),
        }
    }

    /// Puts a file into force that was read before, as a new version; returns its number.
    ///
    /// # Errors
    /// It cannot be kept, or another version was set since it was read: nothing is changed.
    pub(in crate::server) fn take(&self, file: NewFile) -> Result<u64, FileRefused> {
        let name = self.shared.uri.as_deref().unwrap_or(DEFAULT_URI);
        log_warnings(name, &file.document);
        let mut versions = self.shared.versions.lock();
        self.shared.take_configured(&mut versions);
        if let Some(newer) = versions.current().filter(|it| it.version != file.over) {
            return Err(FileRefused::newer(name, newer));
        }
        let mut next = versions.clone();
        next.set_file(&file.payload);
        let put = self
            .shared
            .put(&mut versions, next, of_file(name), file.document.cluster);
        put.map_err(|source| FileRefused::Write {
            path: versions.place(),
            source,
        })
    }
}
