//! The scheduler's own part of a cluster configuration, as the core's rules: `policy`, `aggregates` and `capacity`
//! below
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
//!
//! The sections share a file with ciao's own configuration, which is read leniently: unknown keys there are ignored, as
//! ciao's scheduler ignores them. These sections are read strictly, because a mistyped policy or reservation that
//! counted as absent would place work where it must not go. The difference is drawn in [`concerns_sections`]: a mistake
//! elsewhere in the file is none of this module's, unless it could hide a section.
//!
//! Called with the bytes of the file at start ([`super::configuration`]), and with the payload of a CONFIGURE
//! ([`super::wire`]) on that connection's task, outside the core's lock. What the rules mean, and which filters and
//! weighers there are, the core knows ([`Rules::check`]); [`sections`] knows their shapes.

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
pub(super) const SECTIONS: [&str; 4] = ["policy", "aggregates", "capacity", "nodes"];

/// The one key beside them, `configure.scheduler.storage_uri` of ciao's `payloads/configure.go`.
const ORIGINAL: &str = "storage_uri";

/// The rules that a configuration has; `None` if it has none of the sections.
///
/// Also `None` where nothing at this place of the file can be read and nothing looks like a section: then the file is
/// at most a bad configuration of ciao's, which its own reader refuses.
///
/// # Errors
/// The first mistake in the sections, or that they cannot be made out. What is wrong elsewhere is not looked for.
pub(super) fn read(payload: &[u8]) -> Result<Option<Rules>, Mistake> {
    // First the keys themselves: `polcy:` beside the sections would otherwise be an unknown key, and the policy none.
    if let Some(mistake) = misspelt_section(payload) {
        return Err(mistake);
    }
    // A mistake that has nothing to do with the sections is left to the reader of the whole configuration.
    match read_sections(payload) {
        Err(mistake) if !concerns_sections(&mistake, payload) => Ok(None),
        result => result,
    }
}

/// Keys beside the sections that are not known: they are ignored, as the original ignores them. They are named in the
/// log at start, where [`misspelt_section`] has found none of them to be near a section's name. A document that cannot
/// be read has none.
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

/// Where a key beside the sections stands, for a mistake or a log line; a key that is too long to be shown is cut.
fn path(key: &str) -> String {
    format!("{}.{}", KEYS.join("."), strict::shorten(key))
}

/// Reads and checks the sections: their weight, their shape, names that occur twice, then what only the core can tell.
fn read_sections(payload: &[u8]) -> Result<Option<Rules>, Mistake> {
    // Only the first document counts.
    let document = first_document(payload, SMALL).map_err(Mistake::whole)?;
    // Before serde builds anything: aliases in YAML could make a short text a huge value.
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
    let repeated = repeated_name(&rules).or_else(|| repeated_tenant(&rules));
    if let Some((key, problem)) = repeated {
        return Err(at(&key, &problem));
    }
    rules
        // The core checks what takes its knowledge, such as whether a filter of this name exists.
        .check()
        .map_err(|error| at(&error.key, &error.problem))?;
    Ok(Some(rules))
}

/// Whether a mistake is one in the sections, or hides sections that seem to be there: a policy that is mistyped is not
/// to become none. A mistake whose key is below a section is one in it. One whose key is not (a syntax error, say)
/// hides the sections only if the text seems to name one of them.
fn concerns_sections(mistake: &Mistake, payload: &[u8]) -> bool {
    let below = mistake.key.strip_prefix(&format!("{}.", KEYS.join(".")));
    let key = below.and_then(|below| below.split(['.', '[']).next());
    key.is_some_and(|key| SECTIONS.contains(&key)) || names_sections(payload)
}

/// Whether a text seems to have the key of a section somewhere, be it YAML or not. Deliberately crude, because the text
/// may be broken: any of the names before a colon, quoted or not, and not as the end of a longer word. That it may see
/// a section where there is none costs a refused configuration with a mistake in it, not a lost policy.
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

/// The key of the first aggregate that has the name of an earlier one, and what to say of it. Names are the identity of
/// aggregates: labels, limits and log lines go by them.
fn repeated_name(rules: &Rules) -> Option<(String, String)> {
    let mut seen = HashMap::new();
    let mut aggregates = rules.aggregates.iter().enumerate();
    aggregates.find_map(|(at, Aggregate { name, .. })| {
        let first = seen.insert(name, at)?;
        let problem = format!("expected a name of its own, found `{name}` of aggregates[{first}]");
        Some((format!("aggregates[{at}].name"), problem))
    })
}

/// The same of a tenant that stands twice in the policy: which of them counts would be open.
fn repeated_tenant(rules: &Rules) -> Option<(String, String)> {
    let mut seen = HashMap::new();
    let mut tenants = rules.policy.tenants.iter().enumerate();
    tenants.find_map(|(at, (tenant, _))| {
        let first = seen.insert(tenant, at)?;
        let problem = format!("expected each tenant once, found that of policy.tenants[{first}]");
        Some((format!("policy.tenants[{at}].tenant"), problem))
    })
}

#[cfg(test)]
mod tests;
