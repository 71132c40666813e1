//! The cluster configuration at start: read from `--configuration-uri`, sent to every peer in CONNECTED.

use std::path::Path;

use bytes::Bytes;
use proto_frames::payload::Configuration;
use tracing::warn;

use crate::sched::{ClusterConfiguration, ConfigurationFlags, Rules};

/// Where the configuration is, unless said otherwise (as the original).
pub const DEFAULT_URI: &str = "file:///etc/ciao/configuration.yaml";

/// Largest configuration read, in bytes.
const MAX_LEN: u64 = 1024 * 1024;

/// Reads the configuration; whatever is wrong with it is a warning and an empty payload, as with the original.
pub(super) fn load(uri: &str) -> ClusterConfiguration {
    match read(uri) {
        Ok(configuration) => configuration,
        Err(why) => {
            warn!("cluster configuration {uri}: {why}: peers get none");
            ClusterConfiguration::default()
        }
    }
}

fn read(uri: &str) -> Result<ClusterConfiguration, String> {
    let path = match uri.split_once("://") {
        Some(("file", path)) => path,
        Some((scheme, _)) => {
            return Err(format!("scheme '{scheme}' is not supported, only file://"));
        }
        None => uri,
    };
    let path = Path::new(path);
    let found = std::fs::metadata(path).map_err(|error| error.to_string())?;
    if found.len() > MAX_LEN {
        return Err(format!(
            "{} bytes are over the limit of {MAX_LEN}",
            found.len()
        ));
    }
    let payload = Bytes::from(std::fs::read(path).map_err(|error| error.to_string())?);
    let parsed = Configuration::decode(&payload).map_err(|error| error.to_string())?;
    let missing = parsed.missing_values();
    if !missing.is_empty() {
        warn!(
            "cluster configuration {uri}: no value for {}",
            missing.join(", ")
        );
    }
    Ok(ClusterConfiguration {
        payload,
        flags: flags(&parsed),
        rules: Rules::default(),
    })
}

/// What of a configuration matters to the scheduler.
pub(super) fn flags(configuration: &Configuration) -> ConfigurationFlags {
    let launcher = &configuration.launcher;
    ConfigurationFlags {
        mem_limit: launcher.mem_limit,
        disk_limit: launcher.disk_limit,
    }
}
