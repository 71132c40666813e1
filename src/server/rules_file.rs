//! The scheduler's own part of a cluster configuration, as the core's rules: `policy`, `aggregates` and `capacity` below
//! `configure.scheduler`. Everything else in there is [`super::configuration`]'s and read as leniently as ever.
//!
//! ```yaml
//! policy:
//!   preset: spread             # the keys below replace parts of it
//!   filters: [pin, tenants, labels, near, group, {name: starts-under-way, max: 8}]
//!   weighers: [{name: free-memory, multiplier: 1.0}, prefer]
//!   candidates: 64             # or all
//!   subset_size: 3
//!   seed: 42
//!   preemption: true           # START of higher priority takes the room of lower ones
//!   relocation: true           # every instance may be moved: its START is kept
//!   pressure: evict            # or keep: what is done about nodes that are short of memory
//! aggregates:
//!   - {name: ssd-hosts, zone: eu-1, nodes: [host-1], select: ["rack = r1"], labels: {ssd: "true"}, tenants: [blue]}
//! capacity:
//!   - {select: ["zone = eu-1"], cpu_ratio: 4.0, mem_ratio: 1.2, disk_ratio: 1.0, reserved_mem_mb: 4096,
//!      reserved_disk_mb: 10000, reserved_cpus: 2}
//! ```

use std::collections::{BTreeMap, HashMap};

use proto_frames::payload::guard::{SMALL, first_document};
use proto_frames::payload::similar;
use serde::de::IgnoredAny;

use super::strict::{self, Mistake};
use sched_core::{Aggregate, Rules};

mod sections;

use sections::Sections;

/// Where the sections stand.
const KEYS: [&str; 2] = ["configure", "scheduler"];

/// The sections.
const SECTIONS: [&str; 3] = ["policy", "aggregates", "capacity"];

/// The key beside them, which is the original's.
const ORIGINAL: &str = "storage_uri";

/// The rules that a configuration has; `None` if it has none of the sections.
///
/// # Errors
/// The first mistake in the sections, or that they cannot be made out. What is wrong elsewhere is not looked for.
pub(super) fn read(payload: &[u8]) -> Result<Option<Rules>, Mistake> {
    if let Some(mistake) = misspelt_section(payload) {
        return Err(mistake);
    }
    match read_sections(payload) {
        Err(mistake) if !concerns_sections(&mistake, payload) => Ok(None),
        result => result,
    }
}

/// Keys beside the sections that are not known: they are ignored, as the original ignores them.
pub(super) fn unknown_keys(payload: &[u8]) -> Vec<String> {
    let keys = first_document(payload, SMALL).map_or_else(|_| Vec::new(), other_keys);
    keys.iter().map(|key| path(key)).collect()
}

/// The first key beside the sections that is nearly one of them.
fn misspelt_section(payload: &[u8]) -> Option<Mistake> {
    let document = first_document(payload, SMALL).ok()?;
    other_keys(document).into_iter().find_map(|key| {
        let meant = similar(&key, &SECTIONS)?;
        let problem = format!("unknown key; did you mean `{meant}`?");
        Some(Mistake::at(document, path(&key), problem))
    })
}

/// Keys beside the sections that neither this project nor the original has.
fn other_keys(document: &[u8]) -> Vec<String> {
    let keys = strict::read::<BTreeMap<String, IgnoredAny>>(document, &KEYS);
    let keys = keys.ok().flatten().unwrap_or_default().into_keys();
    keys.filter(|key| key != ORIGINAL && !SECTIONS.contains(&key.as_str()))
        .collect()
}

/// Where a key of [`KEYS`] stands.
fn path(key: &str) -> String {
    format!("{}.{}", KEYS.join("."), strict::shorten(key))
}

fn read_sections(payload: &[u8]) -> Result<Option<Rules>, Mistake> {
    let document = first_document(payload, SMALL).map_err(Mistake::whole)?;
    strict::weigh(document, &KEYS)?;
    let Some(sections) = strict::read::<Sections>(document, &KEYS)? else {
        return Ok(None);
    };
    let Some(rules) = sections.into_rules() else {
        return Ok(None);
    };
    let at = |key: &str, problem: &str| {
        Mistake::at(document, format!("{}.{key}", KEYS.join(".")), problem)
    };
    if let Some((key, problem)) = repeated_name(&rules) {
        return Err(at(&key, &problem));
    }
    rules
        .check()
        .map_err(|error| at(&error.key, &error.problem))?;
    Ok(Some(rules))
}

/// Whether a mistake is one in the sections, or hides sections that seem to be there: a policy that is mistyped is not to
/// become none.
fn concerns_sections(mistake: &Mistake, payload: &[u8]) -> bool {
    let below = mistake.key.strip_prefix(&format!("{}.", KEYS.join(".")));
    let key = below.and_then(|below| below.split(['.', '[']).next());
    key.is_some_and(|key| SECTIONS.contains(&key)) || names_sections(payload)
}

/// Whether a text seems to have the key of a section somewhere, be it YAML or not.
fn names_sections(text: &[u8]) -> bool {
    let is_key = |before_colon: &[u8]| {
        let word = before_colon.trim_ascii_end();
        let word = word.strip_suffix(b"\"").unwrap_or(word);
        SECTIONS.iter().any(|key| {
            word.strip_suffix(key.as_bytes())
                .is_some_and(|before| !before.last().is_some_and(u8::is_ascii_alphanumeric))
        })
    };
    text.split_inclusive(|byte| *byte == b':')
        .filter_map(|part| part.strip_suffix(b":"))
        .any(is_key)
}

/// The key of the first aggregate that has the name of an earlier one, and what to say of it.
fn repeated_name(rules: &Rules) -> Option<(String, String)> {
    let mut seen = HashMap::new();
    let mut aggregates = rules.aggregates.iter().enumerate();
    aggregates.find_map(|(at, Aggregate { name, .. })| {
        let first = seen.insert(name, at)?;
        let problem = format!("expected a name of its own, found `{name}` of aggregates[{first}]");
        Some((format!("aggregates[{at}].name"), problem))
    })
}

#[cfg(test)]
mod tests;
