//! What an instance asks for in the environment of its containers. RIK's own controller keeps of a definition only the
//! keys that it knows, and these are among them:
//!
//! ```text
//! "containers": [{"name": …, "image": …, "env": [{"name": "CIAO_START_MEM_MB", "value": "512"}]}]
//! ```
//!
//! A name may stand once in a definition, in any container. The worker is given them as well.

use proto_frames::payload::OnNodeLoss;
use proto_frames::payload::scheduling::MAX_PRIORITY;
use serde_json::Value;
use serde_json::value::RawValue;

use super::{Asked, DefinitionError};

/// What the names begin with. Others of the environment are the worker's alone.
const PREFIX: &str = "CIAO_START_";

/// The entries that are read, without the prefix.
const NAMES: [&str; 4] = ["MEM_MB", "VCPUS", "PRIORITY", "ON_NODE_LOSS"];

/// Adds what the containers' environments ask for to what the definition's `spec` says.
///
/// # Errors
/// [`DefinitionError::Environment`]: an unknown name, a wrong value, or what is asked for twice.
pub(super) fn add(
    containers: &RawValue,
    requirements: &mut Option<Asked>,
    scheduling: &mut Option<Value>,
) -> Result<(), DefinitionError> {
    // Hardly any definition has one, and containers may be long.
    if memchr::memmem::find(containers.get().as_bytes(), PREFIX.as_bytes()).is_none() {
        return Ok(());
    }
    let containers: Value = serde_json::from_str(containers.get())?;
    for (name, value) in entries(&containers) {
        let wrong = |what: String| DefinitionError::Environment(format!("{PREFIX}{name}: {what}"));
        let text = value.and_then(Value::as_str);
        let text = text.ok_or_else(|| wrong("its value is no text".to_owned()))?;
        let is_new = match name {
            "MEM_MB" => set(
                &mut requirements.get_or_insert_default().mem_mb,
                number(text, i64::MAX).map_err(wrong)?,
            ),
            "VCPUS" => set(
                &mut requirements.get_or_insert_default().vcpus,
                number(text, i64::MAX).map_err(wrong)?,
            ),
            "PRIORITY" => put(
                scheduling,
                "priority",
                number(text, MAX_PRIORITY).map_err(wrong)?.into(),
            ),
            "ON_NODE_LOSS" => {
                let words = [OnNodeLoss::Report, OnNodeLoss::Restart];
                if !words.iter().any(|it| it.as_str() == text) {
                    return Err(wrong(format!("{text:?} is neither report nor restart")));
                }
                put(scheduling, "on_node_loss", text.into())
            }
            _ => {
                let known = NAMES.map(|it| format!("{PREFIX}{it}")).join(", ");
                return Err(wrong(format!("is none of {known}")));
            }
        };
        if !is_new {
            return Err(wrong("the definition says it twice".to_owned()));
        }
    }
    Ok(())
}

/// Name, without the prefix, and value of the entries that are meant. What has another form is the worker's.
fn entries(containers: &Value) -> impl Iterator<Item = (&str, Option<&Value>)> {
    let containers = containers.as_array().into_iter().flatten();
    let all = containers.filter_map(|it| it.get("env")?.as_array());
    all.flatten().filter_map(|it| {
        let name = it.get("name")?.as_str()?.strip_prefix(PREFIX)?;
        Some((name, it.get("value")))
    })
}

/// A whole number from 0 on.
fn number(text: &str, most: i64) -> Result<i64, String> {
    let number = text.parse().ok().filter(|it| (0..=most).contains(it));
    number.ok_or_else(|| match most {
        i64::MAX => format!("{text:?} is no whole number from 0 on"),
        most => format!("{text:?} is no whole number from 0 to {most}"),
    })
}

/// Whether it was not set before.
fn set(to: &mut Option<i64>, value: i64) -> bool {
    to.replace(value).is_none()
}

/// Whether the key was not there before. What is no object is refused with the rest of the definition.
fn put(scheduling: &mut Option<Value>, key: &str, value: Value) -> bool {
    let scheduling = scheduling.get_or_insert_with(|| Value::Object(serde_json::Map::new()));
    let object = scheduling.as_object_mut();
    object.is_none_or(|it| it.insert(key.to_owned(), value).is_none())
}
