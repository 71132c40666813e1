//! A payload without its sentences, as bytes to be hashed: keys, numbers, booleans, UUIDs and the protocol's own words
//! remain, in their order.
//!
//! Left out are fields for people ([`FOR_PEOPLE`]), whether they are there or not, and the content of every string that
//! contains white space. How YAML is written (quotes, indentation) does not count.

use proto_frames::Uuid;
use serde::Deserialize;
use serde_yaml::{Deserializer, Value};

use crate::fnv::Fnv;

/// Fields whose values are sentences for people, be they of one word. `error` is one in the answer to a query; why something
/// failed, for programs, has the key `reason`.
const FOR_PEOPLE: &[&str] = &["detail", "error", "waits_for"];

/// What stands before each value, so that no two different payloads give the same bytes.
mod tag {
    pub(super) const NULL: u8 = 0;
    pub(super) const BOOL: u8 = 1;
    pub(super) const NUMBER: u8 = 2;
    pub(super) const WORD: u8 = 3;
    pub(super) const UUID: u8 = 4;
    pub(super) const SENTENCE: u8 = 5;
    pub(super) const LIST: u8 = 6;
    pub(super) const MAP: u8 = 7;
    pub(super) const TAGGED: u8 = 8;
    pub(super) const END: u8 = 9;
    /// A payload that is no YAML, byte for byte.
    pub(super) const OPAQUE: u8 = 10;
}

/// The hash of a payload without its sentences.
pub(crate) fn hash(payload: &[u8]) -> u64 {
    let mut fnv = Fnv::new();
    let documents = Deserializer::from_slice(payload).map(Value::deserialize);
    match documents.collect::<Result<Vec<Value>, _>>() {
        Ok(documents) => documents.iter().for_each(|it| value(it, &mut fnv)),
        Err(_) => sized(tag::OPAQUE, payload, &mut fnv),
    }
    fnv.get()
}

fn value(value: &Value, fnv: &mut Fnv) {
    match value {
        Value::Null => fnv.write(&[tag::NULL]),
        Value::Bool(is_so) => fnv.write(&[tag::BOOL, u8::from(*is_so)]),
        Value::Number(number) => sized(tag::NUMBER, number.to_string().as_bytes(), fnv),
        Value::String(text) => string(text, fnv),
        Value::Sequence(values) => {
            fnv.write(&[tag::LIST]);
            values.iter().for_each(|it| self::value(it, fnv));
            fnv.write(&[tag::END]);
        }
        Value::Mapping(entries) => {
            fnv.write(&[tag::MAP]);
            for (key, of_key) in entries {
                if key.as_str().is_some_and(|key| FOR_PEOPLE.contains(&key)) {
                    continue;
                }
                self::value(key, fnv);
                self::value(of_key, fnv);
            }
            fnv.write(&[tag::END]);
        }
        Value::Tagged(tagged) => {
            sized(tag::TAGGED, tagged.tag.to_string().as_bytes(), fnv);
            self::value(&tagged.value, fnv);
        }
    }
}

fn string(text: &str, fnv: &mut Fnv) {
    if let Ok(uuid) = Uuid::try_parse(text) {
        fnv.write(&[tag::UUID]);
        fnv.write(uuid.as_bytes());
    } else if text.contains(char::is_whitespace) {
        fnv.write(&[tag::SENTENCE]);
    } else {
        sized(tag::WORD, text.as_bytes(), fnv);
    }
}

fn sized(tag: u8, bytes: &[u8], fnv: &mut Fnv) {
    fnv.write(&[tag]);
    fnv.write(&(bytes.len() as u64).to_le_bytes());
    fnv.write(bytes);
}

#[cfg(test)]
mod tests {
    use super::hash;

    const FAILURE: &str = "\
start_failure:
  node_uuid: 0000000a-0000-0000-0000-000000000001
  instance_uuid: 00000001-0000-0000-0000-000000000007
  reason: full_cloud
  restart: false
  attempts:
  - reason: launch_failure
    at_ms: 17
    detail: it does not begin
  note: no node has room
  waits_for: its node is lost
  detail: no node has room
";

    /// The payload with another text in place of one that it has.
    fn with(text: &str, other: &str) -> String {
        assert!(FAILURE.contains(text), "{text}");
        FAILURE.replace(text, other)
    }

    #[test]
    fn sentences_do_not_count() {
        for same in [
            with("detail: it does not begin", "detail: it failed"),
            with("detail: it does not begin", "detail: failed"),
            with("    detail: it does not begin\n", ""),
            with("  detail: no node has room\n", ""),
            with("waits_for: its node is lost", "waits_for: room"),
            with("note: no node has room", "note: all nodes are full"),
            with("note: no node has room", "note: 'all: full'"),
            with("note: no node has room", "note: |\n    all\n    full"),
        ] {
            assert_eq!(hash(same.as_bytes()), hash(FAILURE.as_bytes()), "{same}");
        }
    }

    #[test]
    fn how_the_payload_is_written_does_not_count() {
        for same in [
            with("reason: full_cloud", "reason: 'full_cloud'"),
            with("restart: false", "restart:   false"),
            with("  - reason", "    - reason")
                .replace("    at_ms", "      at_ms")
                .replace("    detail", "      detail"),
        ] {
            assert_eq!(hash(same.as_bytes()), hash(FAILURE.as_bytes()), "{same}");
        }
    }

    #[test]
    fn everything_else_counts() {
        for other in [
            with("full_cloud", "full_cn"),
            with("restart: false", "restart: true"),
            with("restart: false", "restart: 'false'"),
            with("17", "18"),
            with("17", "'17'"),
            with("at_ms", "since_ms"),
            with("000000000007", "000000000008"),
            with("  restart: false\n", ""),
            with("  note: no node has room\n", ""),
            with("note: no node has room", "note: full"),
            with("note: no node has room", "note: [no, node]"),
            with("  - reason", "  - {}\n  - reason"),
            format!("{FAILURE}---\nmore: 1\n"),
        ] {
            assert_ne!(hash(other.as_bytes()), hash(FAILURE.as_bytes()), "{other}");
        }
    }

    #[test]
    fn what_is_no_payload_counts_byte_for_byte() {
        assert_eq!(hash(b"{ a: b"), hash(b"{ a: b"));
        assert_ne!(hash(b"{ a: b"), hash(b"{ a: c"));
        assert_ne!(hash(b""), hash(b"{}"));
    }
}
