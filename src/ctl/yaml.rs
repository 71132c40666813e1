//! Documents as YAML for people and programs: mappings and lists as blocks, texts always in double quotes as in JSON,
//! so that none is taken for anything else and none reaches a terminal as it came.
//!
//! `ciaoctl … -o yaml` prints with it. It is a small subset of YAML that any reader takes:
//!
//! ```text
//! nodes:
//!   - node_uuid: "4cb19522-1e18-439a-883a-f9b2a3a95f5e"
//!     labels:
//!       zone:
//!         - "a"
//!     lease_ms: null
//! ```

use std::fmt::Write as _;

use serde_json::Value;

use crate::printable::{self, Printable};

/// A document, each line with its end.
///
/// An empty mapping or list is written as `{}` or `[]`.
#[must_use]
pub fn yaml(value: &Value) -> String {
    let mut out = String::new();
    block(value, 0, &mut out);
    out
}

/// Writes a value whose lines begin so many characters to the right.
///
/// Appends whole lines to `out`.
fn block(value: &Value, indent: usize, out: &mut String) {
    match value {
        Value::Object(fields) if !fields.is_empty() => {
            for (key, value) in fields {
                let key = scalar(&Value::String(key.clone()));
                entry(&format!("{}:", plain(&key)), value, indent, out);
            }
        }
        Value::Array(items) if !items.is_empty() => {
            for item in items {
                let mut inner = String::new();
                block(item, indent + 2, &mut inner);
                // The first line of an item stands behind its dash.
                let inner = inner.trim_start();
                // Writing to memory does not fail, here and below.
                let _ = write!(out, "{:indent$}- {inner}", "");
            }
        }
        scalar_value => {
            let _ = writeln!(out, "{:indent$}{}", "", scalar(scalar_value));
        }
    }
}

/// `key` has its colon. A value that is empty or a scalar stands on the same line.
fn entry(key: &str, value: &Value, indent: usize, out: &mut String) {
    let is_nested = match value {
        Value::Object(fields) => !fields.is_empty(),
        Value::Array(items) => !items.is_empty(),
        _ => false,
    };
    if is_nested {
        let _ = writeln!(out, "{:indent$}{key}", "");
        block(value, indent + 2, out);
    } else {
        let _ = writeln!(out, "{:indent$}{key} {}", "", scalar(value));
    }
}

/// JSON's notation of scalars is YAML too. Everything that is not printable is escaped.
fn scalar(value: &Value) -> String {
    Printable::new(printable::json(value.to_string())).to_string()
}

/// A key without its quotes, where it can do without them.
///
/// `y` and `n` keep their quotes: YAML 1.1 reads them as true and false.
fn plain(quoted: &str) -> &str {
    let text = quoted.trim_matches('"');
    let is_plain = |byte: u8| byte.is_ascii_lowercase() || matches!(byte, b'_' | b'.');
    match !text.is_empty() && text.bytes().all(is_plain) && !matches!(text, "y" | "n") {
        true => text,
        false => quoted,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::yaml;

    #[test]
    fn a_document_is_the_same_as_yaml() {
        let document = json!({
            "nodes": [
                {"a": 1, "labels": {"zone": ["x", "yes"], "no": []}, "empty": {}, "b": null},
                [], [[1, 2], "- a: b"], "two\nlines \u{1b}[2J \u{202e} é \"q\"", true, -1.5, "null", "~",
            ],
            "a key: with #": "# no comment", "n": "y", "": 0,
        });
        let text = yaml(&document);
        let read: Value = serde_yaml::from_str(&text).unwrap();
        assert_eq!(read, document, "{text}");
        assert!(
            !text.contains('\u{1b}') && !text.contains('\u{202e}'),
            "{text}"
        );
        assert!(text.contains("nodes:\n  - a: 1\n"), "{text}");
        for plain in [json!({}), json!([]), json!("x"), json!(1)] {
            let read: Value = serde_yaml::from_str(&yaml(&plain)).unwrap();
            assert_eq!(read, plain);
        }
    }
}
