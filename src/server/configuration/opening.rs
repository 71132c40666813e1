//! The configuration at start: the newest version that is kept, unless that is of the scheduler's own file and the file has
//! changed since; and that the two differ.

use std::io;
use std::path::Path;
use std::sync::{Arc, Weak};

use bytes::Bytes;
use proto_frames::payload::{ConfigurationSource, ConfigurationVersion};
use tracing::{info, warn};

use super::keeper::Keeper;
use super::versions::{Author, FILE, IN_SHARED, Version, Versions};
use super::{DEFAULT_URI, Document, Originals, Warning, parse, read_file};
use crate::printable::Printable;
use crate::server::hub::Hub;
use crate::server::restore::unix_ms;
use crate::server::shared::Begun;
use crate::server::start::StartError;
use crate::server::strict::Mistake;
use sched_core::ClusterConfiguration;

/// The versions, before anything is served.
#[derive(Debug)]
pub(in crate::server) struct Opened {
    pub(super) versions: Versions,
    uri: Option<String>,
    /// Whether the first version is to be written.
    is_new: bool,
}

/// The versions that are kept: those that several schedulers share, or those of a state directory.
///
/// # Errors
/// They cannot be used.
pub(in crate::server) fn versions(
    state_dir: Option<&Path>,
    shared: Option<&Begun>,
) -> Result<Versions, StartError> {
    let versions = match shared {
        Some(Begun { found, .. }) => {
            Versions::shared(&found.configuration, Arc::clone(&found.store))
        }
        None => Versions::open(state_dir),
    };
    versions.map_err(|source| StartError::StoredConfiguration {
        path: match shared {
            Some(_) => IN_SHARED.into(),
            None => state_dir.unwrap_or("".as_ref()).join(FILE),
        },
        why: source.to_string(),
    })
}

/// Finds what is in force: the newest one that is kept, or the file, where there is none or where
/// the newest is of the file, which has changed since. A changed file with a mistake leaves the version in force.
///
/// # Errors
/// The newest version cannot be used; there are none, and the file cannot be used.
pub(in crate::server) fn open(
    uri: Option<String>,
    mut versions: Versions,
) -> Result<(Opened, ClusterConfiguration), StartError> {
    let given = uri.as_deref();
    let name = given.unwrap_or(DEFAULT_URI).to_owned();
    if let Some(current) = versions.current()
        && !is_of_file_that_changed(&versions, current, given)
    {
        let cluster = stored(&versions, current)?;
        compare_with_file(current, &name, given);
        let opened = Opened {
            versions,
            uri,
            is_new: false,
        };
        return Ok((opened, cluster));
    }
    let in_uri = |mistake| StartError::Configuration {
        uri: name.clone(),
        mistake,
    };
    let payload = read_file(given).map_err(|why| in_uri(Mistake::whole(why)))?;
    let Some(payload) = payload else {
        warn!(
            event = "configuration_unusable",
            "cluster configuration {name}: there is none: default placement, and peers are sent no configuration"
        );
        let opened = Opened {
            versions,
            uri,
            is_new: false,
        };
        return Ok((opened, ClusterConfiguration::default()));
    };
    let document = parse(payload.clone(), Originals::WhereComplete).map_err(in_uri)?;
    log_warnings(&name, &document);
    versions.set_file(&payload);
    versions.push(of_file(&name), text(&payload), unix_ms());
    let opened = Opened {
        versions,
        uri,
        is_new: true,
    };
    Ok((opened, document.cluster))
}

/// Whether a version is of the scheduler's own file, which has changed since and can be used.
fn is_of_file_that_changed(versions: &Versions, current: &Version, given: Option<&str>) -> bool {
    let is_usable = |payload: &Bytes| parse(payload.clone(), Originals::WhereComplete).is_ok();
    current.source() == ConfigurationSource::File
        && matches!(read_file(given), Ok(Some(payload))
            if !versions.is_file_unchanged(&payload) && is_usable(&payload))
}

/// What a version that is kept means.
fn stored(versions: &Versions, current: &Version) -> Result<ClusterConfiguration, StartError> {
    let document = parse(current.document.clone().into(), current.originals());
    let document = document.map_err(|mistake| StartError::StoredConfiguration {
        path: versions.place().into(),
        why: format!("version {}: {mistake}", current.version),
    })?;
    log_warnings(&format!("version {}", current.version), &document);
    info!(
        event = "configuration_restored",
        "cluster configuration: version {} of {} is in force",
        current.version,
        said_by(current)
    );
    Ok(document.cluster)
}

/// Warns where the file says something else than what is in force.
fn compare_with_file(current: &Version, name: &str, given: Option<&str>) {
    let (number, by) = (current.version, said_by(current));
    let payload = match read_file(given) {
        Ok(None) => return,
        Ok(Some(payload)) if *payload == *current.document.as_bytes() => return,
        Ok(Some(payload)) => payload,
        Err(why) => {
            return warn!(
                event = "configuration_differs",
                "the cluster configuration {name} cannot be read: {why}; version {number} of {by} counts"
            );
        }
    };
    match parse(payload, Originals::WhereComplete) {
        Ok(_) => warn!(
            event = "configuration_differs",
            "the cluster configuration {name} differs from version {number} of {by}, which counts: `ciaoctl configure \
             --diff` shows how; `ciaoctl reload --force` takes the file"
        ),
        Err(mistake) => warn!(
            event = "configuration_differs",
            "cannot use the cluster configuration {name}: {mistake}; version {number} of {by} counts"
        ),
    }
}

/// Who set a version, for the log.
pub(super) fn said_by(version: &Version) -> String {
    format!("{} ({})", Printable::new(&version.by), version.source())
}

/// The file as the author of a version.
pub(super) fn of_file(name: &str) -> Author {
    Author {
        source: ConfigurationSource::File,
        by: name.to_owned(),
        note: String::new(),
    }
}

pub(super) fn text(payload: &[u8]) -> String {
    String::from_utf8_lossy(payload).into_owned()
}

pub(super) fn log_warnings(name: &str, document: &Document) {
    for warning in &document.warnings {
        match warning {
            Warning::UnknownKey(_) => warn!(
                event = "configuration_key_unknown",
                "cluster configuration {name}: {warning}"
            ),
            Warning::NotForOriginals(_) => info!(
                event = "configuration_value_missing",
                "cluster configuration {name}: {warning}"
            ),
        }
    }
}

impl Opened {
    /// The version in force, without the configuration itself; `None` where there is none.
    pub(in crate::server) fn view(&self) -> Option<ConfigurationVersion> {
        self.versions.current().map(Version::view)
    }

    /// Starts the thread that serves the hub's peers. It holds the hub only weakly. The first version is written.
    ///
    /// # Errors
    /// The system has no thread for it.
    pub(in crate::server) fn start(self, hub: Weak<Hub>) -> io::Result<Keeper> {
        if self.is_new
            && let Err(error) = self.versions.write()
        {
            warn!(
                event = "configuration_not_kept",
                "the cluster configuration cannot be kept: {error}; it is read from its file after a restart"
            );
        }
        Keeper::start(self.uri, self.versions, hub)
    }
}
