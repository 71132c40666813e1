//! The cluster configuration at start: read from `--configuration-uri`, sent to every peer in CONNECTED.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, ErrorKind, Read as _};
use std::os::unix::ffi::OsStringExt as _;
use std::path::PathBuf;

use bytes::Bytes;
use percent_encoding::percent_decode_str;
use proto_frames::payload::{Configuration, Payload, PayloadError};
use tracing::{info, warn};

use super::rules_file;
use super::start::StartError;
use super::strict::Mistake;
use sched_core::{ClusterConfiguration, ConfigurationFlags};

/// Where the configuration is, unless said otherwise (as the original).
pub const DEFAULT_URI: &str = "file:///etc/ciao/configuration.yaml";

/// Largest configuration taken, from the file or from CONFIGURE, in bytes: every peer that connects is sent it.
pub(super) const MAX_LEN: usize = 1024 * 1024;

/// Reads the configuration that was asked for, or the one at [`DEFAULT_URI`], which need not exist.
///
/// # Errors
/// [`StartError::Configuration`]: it cannot be read, or what is wrong with it. A policy or a reservation that is mistyped
/// is not to become none.
pub(super) fn load(given: Option<&str>) -> Result<ClusterConfiguration, StartError> {
    let uri = given.unwrap_or(DEFAULT_URI);
    let in_uri = |mistake| StartError::Configuration {
        uri: uri.to_owned(),
        mistake,
    };
    let payload = match read(uri) {
        Ok(payload) => payload,
        Err(Unreadable::File(why)) if given.is_none() && why.kind() == ErrorKind::NotFound => {
            warn!(
                event = "configuration_unusable",
                "cluster configuration {uri}: {why}: default placement, and peers are sent no configuration"
            );
            return Ok(ClusterConfiguration::default());
        }
        Err(why) => return Err(in_uri(Mistake::whole(why))),
    };
    let rules = rules_file::read(&payload).map_err(in_uri)?;
    for key in rules_file::unknown_keys(&payload) {
        warn!(
            event = "configuration_key_unknown",
            "cluster configuration {uri}: {key} is not known, and ignored"
        );
    }
    let unusable = |error: PayloadError| {
        in_uri(Mistake {
            problem: error.fault.to_string(),
            key: error.key,
            position: error.position,
        })
    };
    let parsed = Configuration::decode(&payload).map_err(unusable)?;
    let original = for_original_peers(uri, &parsed, &payload).map_err(unusable)?;
    let flags = flags(&parsed);
    Ok(ClusterConfiguration {
        payload,
        original,
        flags,
        rules: rules.unwrap_or_default(),
    })
}

/// Why there are no bytes to be read as a configuration.
#[derive(Debug, thiserror::Error)]
enum Unreadable {
    #[error("scheme '{0}' is not supported, only file://")]
    Scheme(String),
    #[error(transparent)]
    File(#[from] io::Error),
    #[error("more than {MAX_LEN} bytes")]
    TooLong,
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

fn read(uri: &str) -> Result<Bytes, Unreadable> {
    let path = match uri.split_once("://") {
        Some(("file", path)) => path_of(path),
        Some((scheme, _)) => return Err(Unreadable::Scheme(scheme.to_owned())),
        None => uri.into(),
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

/// The configuration as peers of the original are sent it: with the original's defaults for what is missing, and none at
/// all where a key is missing without which the original does not call it valid. Native peers need none of those keys.
fn for_original_peers(
    uri: &str,
    parsed: &Configuration,
    payload: &Bytes,
) -> Result<Bytes, PayloadError> {
    let missing = parsed.missing_values();
    if missing.is_empty() {
        return Configuration::with_defaults(payload);
    }
    info!(
        event = "configuration_value_missing",
        "cluster configuration {uri}: no value for {}: the original's launchers and controllers are sent no \
         configuration; this project's need none of these keys",
        missing.join(", ")
    );
    Ok(Bytes::new())
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
