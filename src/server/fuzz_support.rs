//! The doors through which `fuzz/` reads what the server reads: files, and records of the store. For the fuzz targets
//! alone and no part of the interface, as `sim_support`.

use super::store::format;
use super::strict::Mistake;
use super::{node_file, rules_file};
use sched_core::{NodeRule, Record, RecordKey, Rules};

/// The scheduler's own part of a cluster configuration.
///
/// # Errors
/// The first mistake in it.
pub fn rules(configuration: &[u8]) -> Result<Option<Rules>, Mistake> {
    rules_file::read(configuration)
}

/// The keys in a cluster configuration that are unknown.
#[must_use]
pub fn unknown_keys(configuration: &[u8]) -> Vec<String> {
    rules_file::unknown_keys(configuration)
}

/// A node file.
///
/// # Errors
/// The first mistake in it.
pub fn node_file(document: &[u8]) -> Result<Vec<NodeRule>, Mistake> {
    node_file::parse(document)
}

/// The record of these bytes, in the format of this program; `None` if they are none.
#[must_use]
pub fn record(key: &[u8], value: &[u8]) -> Option<(RecordKey, Record)> {
    format::decode(key, value).ok()
}

/// A record as it is written.
#[must_use]
pub fn record_bytes(key: &RecordKey, record: &Record) -> (Vec<u8>, Vec<u8>) {
    (format::encode_key(key), format::encode(record))
}
