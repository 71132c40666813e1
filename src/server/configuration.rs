//! The cluster configuration: what a document means ([`parse`]), where the scheduler's own file is ([`read_file`]), the
//! versions of it that are kept ([`versions`]), what is in force at start ([`opening`]), the file read again ([`again`]), who is
//! answered about it ([`keeper`]), and about the node file ([`nodes`]).
//!
//! ```text
//! file, at start and when it is read again ──┐
//! WriteConfiguration of operators, PUT ──────┼─▶ parse ─▶ Versions, on disk ─▶ core (Input::Configure)
//! CONFIGURE of controllers ─▶ core, at once ─┘
//! ```
//!
//! What is in force is the newest version, wherever it is from. With a state directory versions outlive the process, and the
//! newest one counts over the file; without one they are the process's own, and the first one is the file.

pub(super) mod again;
pub(super) mod keeper;
mod merge;
mod nodes;
pub(super) mod opening;
pub(super) mod versions;

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::ffi::OsStringExt as _;
use std::path::PathBuf;

use bytes::Bytes;
use percent_encoding::percent_decode_str;
use proto_frames::payload::configuration::MAX_CONFIGURATION_LEN;
use proto_frames::payload::{Configuration, Payload, PayloadError};

use super::rules_file;
use super::strict::Mistake;
use sched_core::{ClusterConfiguration, ConfigurationFlags};

/// Where the configuration is, unless said otherwise (as the original).
pub const DEFAULT_URI: &str = "file:///etc/ciao/configuration.yaml";

/// Largest configuration taken, from the file or from CONFIGURE, in bytes: every peer that connects is sent it.
pub(super) const MAX_LEN: usize = MAX_CONFIGURATION_LEN;

/// A configuration that was read and holds together.
#[derive(Debug, Clone)]
pub(super) struct Document {
    /// What the core is given.
    pub(super) cluster: ClusterConfiguration,
    /// What in it counts for nothing, for people.
    pub(super) warnings: Vec<Warning>,
}

/// Something in a configuration that counts for nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Warning {
    /// A key that is not known.
    UnknownKey(String),
    /// Keys without which the original's peers take it for no configuration: they are sent none.
    NotForOriginals(Vec<&'static str>),
}

impl std::fmt::Display for Warning {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::UnknownKey(key) => write!(f, "{key} is not known, and ignored"),
            Self::NotForOriginals(keys) => write!(
                f,
                "no value for {}: the original's launchers and controllers are sent no configuration; this project's need \
                 none of these keys",
                keys.join(", ")
            ),
        }
    }
}

/// For whom a configuration is complete.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Originals {
    /// The original's peers are sent it where it has all that they need.
    WhereComplete,
    /// They are sent it as it is: it is from one of them.
    Always,
}

/// Reads a configuration, as strictly as at start.
///
/// # Errors
/// The first mistake. A policy or a reservation that is mistyped is not to become none.
pub(super) fn parse(payload: Bytes, originals: Originals) -> Result<Document, Mistake> {
    if payload.len() > MAX_LEN {
        let len = payload.len();
        return Err(Mistake::whole(format_args!(
            "{len} bytes, at most {MAX_LEN} are taken: every peer that connects is sent it"
        )));
    }
    let rules = rules_file::read(&payload)?;
    let unusable = |error: PayloadError| Mistake {
        problem: error.fault.to_string(),
        key: error.key,
        position: error.position,
    };
    let parsed = Configuration::decode(&payload).map_err(unusable)?;
    let unknown = rules_file::unknown_keys(&payload).into_iter();
    let mut warnings: Vec<_> = unknown.map(Warning::UnknownKey).collect();
    let missing = parsed.missing_values();
    let original = if missing.is_empty() || originals == Originals::Always {
        Configuration::with_defaults(&payload).map_err(unusable)?
    } else {
        warnings.push(Warning::NotForOriginals(missing));
        Bytes::new()
    };
    Ok(Document {
        cluster: ClusterConfiguration {
            flags: flags(&parsed),
            rules: rules.unwrap_or_default(),
            original,
            payload,
        },
        warnings,
    })
}

/// Why there are no bytes to be read as a configuration.
#[derive(Debug, thiserror::Error)]
pub(super) enum Unreadable {
    #[error("scheme '{0}' is not supported, only file://")]
    Scheme(String),
    #[error(transparent)]
    File(#[from] io::Error),
    #[error("more than {MAX_LEN} bytes")]
    TooLong,
}

/// The file that was asked for, or the one at [`DEFAULT_URI`], which need not exist: `None` then.
///
/// # Errors
/// It cannot be read, or is too long.
pub(super) fn read_file(given: Option<&str>) -> Result<Option<Bytes>, Unreadable> {
    match read(given.unwrap_or(DEFAULT_URI)) {
        Err(Unreadable::File(why)) if given.is_none() && why.kind() == io::ErrorKind::NotFound => {
            Ok(None)
        }
        read => read.map(Some),
    }
}

/// The path of a `file` URI (RFC 8089), which stands behind `file://`: what is escaped by `%` is put in, and the host is
/// this machine.
fn path_of(rest: &str) -> PathBuf {
    let local = rest
        .strip_prefix("localhost")
        .filter(|path| path.starts_with('/'));
    let path: Vec<u8> = percent_decode_str(local.unwrap_or(rest)).collect();
    OsString::from_vec(path).into()
}

/// The path of the file behind a URI; `None` where that is none.
pub(super) fn file_of(uri: &str) -> Option<PathBuf> {
    match uri.split_once("://") {
        Some(("file", path)) => Some(path_of(path)),
        Some(_) => None,
        None => Some(uri.into()),
    }
}

fn read(uri: &str) -> Result<Bytes, Unreadable> {
    let Some(path) = file_of(uri) else {
        let scheme = uri.split("://").next().unwrap_or_default();
        return Err(Unreadable::Scheme(scheme.to_owned()));
    };
    let mut payload = Vec::new();
    File::open(path)?
        .take(MAX_LEN as u64 + 1)
        .read_to_end(&mut payload)?;
    if payload.len() > MAX_LEN {
        return Err(Unreadable::TooLong);
    }
    Ok(payload.into())
}

/// What of a configuration matters to the scheduler.
pub(super) fn flags(configuration: &Configuration) -> ConfigurationFlags {
    let launcher = &configuration.launcher;
    ConfigurationFlags {
        mem_limit: launcher.mem_limit,
        disk_limit: launcher.disk_limit,
    }
}

#[cfg(test)]
mod tests {
    use super::path_of;

    #[test]
    fn a_file_uri_names_the_path_that_it_escapes() {
        for (rest, path) in [
            (
                "/etc/ciao/configuration.yaml",
                "/etc/ciao/configuration.yaml",
            ),
            ("/a%20b/%C3%A9.yaml", "/a b/é.yaml"),
            ("localhost/a", "/a"),
            ("localhost%2Fa", "localhost/a"),
            ("/100%", "/100%"),
        ] {
            assert_eq!(path_of(rest).to_str(), Some(path), "{rest}");
        }
    }
}
