//! `start.scheduling`, from what a walk finds of it. Whether it makes sense is checked as the full parser checks it.

use super::walk::{Found, Place};
use crate::payload::scheduling::after::After;
use crate::payload::scheduling::limits::{RestartPolicy, Stop};
use crate::payload::scheduling::retry::RetryPolicy;
use crate::payload::scheduling::{Batch, Group, Near, Scheduling};

/// Takes in what was found in `scheduling`; `None` where a text is not what its key takes.
pub(super) fn found(scheduling: &mut Scheduling, at: &Place<'_>, what: &Found<'_>) -> Option<()> {
    match (at.record, what) {
        ("scheduling", what) => direct(scheduling, at.key, what)?,
        ("must_understand", Found::Text(text)) => {
            scheduling.must_understand.push(owned(text)?);
        }
        ("require", Found::Text(text)) => scheduling.require.push(parsed(text)?),
        ("prefer", Found::Text(text)) => scheduling.prefer.push(parsed(text)?),
        ("resources", Found::Int(amount)) => {
            scheduling.resources.insert(at.key.to_owned(), *amount);
        }
        ("labels", Found::Text(text)) => {
            scheduling.labels.insert(at.key.to_owned(), owned(text)?);
        }
        ("group", what) => {
            in_group(scheduling.group.get_or_insert_default(), at.key, what)?;
        }
        ("near", Found::Mapping) => scheduling.near.push(Near::default()),
        ("near", what) => in_near(scheduling.near.last_mut()?, at.key, what)?,
        ("same_node", Found::Text(text)) => scheduling.same_node.push(owned(text)?),
        ("different_node", Found::Text(text)) => {
            scheduling.different_node.push(owned(text)?);
        }
        ("batch", what) => {
            in_batch(scheduling.batch.get_or_insert_default(), at.key, what)?;
        }
        ("stop", what) => in_stop(scheduling.stop.get_or_insert_default(), at.key, what)?,
        ("restart", what) => {
            in_restart(scheduling.restart.get_or_insert_default(), at.key, what)?;
        }
        ("retry", what) => in_retry(scheduling.retry.get_or_insert_default(), at.key, what)?,
        ("on", Found::Text(text)) => {
            let retry = scheduling.retry.get_or_insert_default();
            retry.on.push(parsed(text)?);
        }
        ("after", Found::Mapping) => scheduling.after.push(After::default()),
        ("after", what) => in_after(scheduling.after.last_mut()?, at.key, what)?,
        _ => {}
    }
    Some(())
}

fn direct(scheduling: &mut Scheduling, key: &str, what: &Found<'_>) -> Option<()> {
    match (key, what) {
        ("version", Found::Int(version)) => scheduling.version = Some(unsigned(*version)?),
        ("priority", Found::Int(priority)) => scheduling.priority = Some(*priority),
        ("queue", Found::Text(text)) => scheduling.queue = Some(parsed(text)?),
        ("attempts", Found::Int(attempts)) => scheduling.attempts = Some(unsigned(*attempts)?),
        ("relocate", Found::Bool(relocate)) => scheduling.relocate = Some(*relocate),
        ("on_node_loss", Found::Text(text)) => {
            scheduling.on_node_loss = std::str::from_utf8(text).ok()?.into();
        }
        ("time_limit", Found::Text(text)) => scheduling.time_limit = Some(parsed(text)?),
        ("split_output", Found::Bool(split)) => scheduling.split_output = *split,
        ("image", Found::Text(text)) => scheduling.image = owned(text)?,
        ("name", Found::Text(text)) => scheduling.name = owned(text)?,
        ("dry_run", Found::Bool(dry_run)) => scheduling.dry_run = *dry_run,
        ("alternates", Found::Int(count)) => scheduling.alternates = Some(unsigned(*count)?),
        ("count", Found::Int(count)) => scheduling.count = Some(unsigned(*count)?),
        _ => {}
    }
    Some(())
}

fn in_group(group: &mut Group, key: &str, what: &Found<'_>) -> Option<()> {
    match (key, what) {
        ("id", Found::Text(text)) => group.id = owned(text)?,
        ("policy", Found::Text(text)) => group.policy = std::str::from_utf8(text).ok()?.into(),
        ("scope", Found::Text(text)) => group.scope = owned(text)?,
        ("max", Found::Int(max)) => group.max = Some(unsigned(*max)?),
        _ => {}
    }
    Some(())
}

fn in_near(near: &mut Near, key: &str, what: &Found<'_>) -> Option<()> {
    match (key, what) {
        ("label", Found::Text(text)) => near.label = owned(text)?,
        ("scope", Found::Text(text)) => near.scope = owned(text)?,
        ("hard", Found::Bool(hard)) => near.hard = *hard,
        _ => {}
    }
    Some(())
}

fn in_batch(batch: &mut Batch, key: &str, what: &Found<'_>) -> Option<()> {
    match (key, what) {
        ("id", Found::Text(text)) => batch.id = owned(text)?,
        ("count", Found::Int(count)) => batch.count = unsigned(*count)?,
        _ => {}
    }
    Some(())
}

fn in_stop(stop: &mut Stop, key: &str, what: &Found<'_>) -> Option<()> {
    match (key, what) {
        ("signal", Found::Text(text)) => stop.signal = std::str::from_utf8(text).ok()?.into(),
        ("grace", Found::Text(text)) => stop.grace = Some(parsed(text)?),
        _ => {}
    }
    Some(())
}

fn in_restart(restart: &mut RestartPolicy, key: &str, what: &Found<'_>) -> Option<()> {
    match (key, what) {
        ("when", Found::Text(text)) => restart.when = std::str::from_utf8(text).ok()?.into(),
        ("max", Found::Int(max)) => restart.max = Some(unsigned(*max)?),
        ("backoff", Found::Text(text)) => restart.backoff = Some(parsed(text)?),
        ("window", Found::Text(text)) => restart.window = Some(parsed(text)?),
        _ => {}
    }
    Some(())
}

fn in_retry(retry: &mut RetryPolicy, key: &str, what: &Found<'_>) -> Option<()> {
    if let ("max", Found::Int(max)) = (key, what) {
        retry.max = Some(unsigned(*max)?);
    }
    Some(())
}

fn in_after(after: &mut After, key: &str, what: &Found<'_>) -> Option<()> {
    match (key, what) {
        ("instance", Found::Text(text)) => after.instance = owned(text)?,
        ("array", Found::Text(text)) => after.array = owned(text)?,
        ("end", Found::Text(text)) => after.end = std::str::from_utf8(text).ok()?.into(),
        _ => {}
    }
    Some(())
}

fn owned(text: &[u8]) -> Option<String> {
    std::str::from_utf8(text).ok().map(str::to_owned)
}

fn parsed<T: std::str::FromStr>(text: &[u8]) -> Option<T> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

fn unsigned(value: i64) -> Option<u32> {
    u32::try_from(value).ok()
}
