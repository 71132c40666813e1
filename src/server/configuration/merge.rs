//! CONFIGURE of a controller that knows nothing of the scheduler's own sections: the version that is kept of it has those
//! that stay in force, so that it means the same after a restart.

use bytes::Bytes;
use serde_yaml::{Mapping, Value};

use crate::server::rules_file::SECTIONS;

/// The document with the sections of another, if it has none itself; the same bytes where there is nothing to add, or
/// where a place for it is not to be found.
pub(super) fn with_sections_of(document: &Bytes, other: &[u8]) -> Bytes {
    let Some(sections) = sections(other).filter(|sections| !sections.is_empty()) else {
        return document.clone();
    };
    if self::sections(document).is_some_and(|own| !own.is_empty()) {
        return document.clone();
    }
    let mut root = serde_yaml::from_slice(document).unwrap_or(Value::Null);
    let merged = below(&mut root, "configure")
        .and_then(|configure| below(configure, "scheduler"))
        .and_then(Value::as_mapping_mut)
        .map(|scheduler| scheduler.extend(sections));
    match merged.and_then(|()| serde_yaml::to_string(&root).ok()) {
        Some(text) => text.into(),
        None => document.clone(),
    }
}

/// The sections that a document has.
fn sections(document: &[u8]) -> Option<Mapping> {
    let root: Value = serde_yaml::from_slice(document).ok()?;
    let scheduler = root.get("configure")?.get("scheduler")?.as_mapping()?;
    let own = SECTIONS
        .iter()
        .filter_map(|key| Some((Value::from(*key), scheduler.get(*key)?.clone())));
    Some(own.filter(|(_, value)| !value.is_null()).collect())
}

/// The mapping below a key, made if there is nothing; `None` where something else is.
fn below<'a>(at: &'a mut Value, key: &str) -> Option<&'a mut Value> {
    if at.is_null() {
        *at = Value::Mapping(Mapping::new());
    }
    let below = at
        .as_mapping_mut()?
        .entry(key.into())
        .or_insert(Value::Null);
    if below.is_null() {
        *below = Value::Mapping(Mapping::new());
    }
    Some(below)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use serde_yaml::Value;

    use super::with_sections_of;

    const RULES: &[u8] = b"configure:\n  scheduler:\n    aggregates: [{name: a, nodes: [h1]}]\n";

    fn merged(text: &'static str) -> String {
        let bytes = with_sections_of(&Bytes::from_static(text.as_bytes()), RULES);
        String::from_utf8(bytes.to_vec()).unwrap()
    }

    #[test]
    fn what_knows_no_sections_gets_those_in_force_and_keeps_the_rest() {
        for text in [
            "configure:\n  launcher: {mem_limit: false}\n",
            "configure:\n  launcher: {mem_limit: false}\n  scheduler:\n",
            "configure:\n  launcher: {mem_limit: false}\n  scheduler: {storage_uri: x}\n",
        ] {
            let merged: Value = serde_yaml::from_str(&merged(text)).unwrap();
            let configure = &merged["configure"];
            assert_eq!(
                configure["launcher"]["mem_limit"],
                Value::from(false),
                "{text}"
            );
            assert_eq!(
                configure["scheduler"]["aggregates"][0]["name"],
                Value::from("a"),
                "{text}"
            );
        }
    }

    #[test]
    fn what_has_sections_or_no_place_for_them_stays_as_it_is() {
        for text in [
            "configure:\n  scheduler: {policy: {preset: pack}}  # mine\n",
            "configure: 3\n",
            "configure: {scheduler: 4}\n",
        ] {
            assert_eq!(merged(text), text);
        }
    }
}
