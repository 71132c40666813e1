//! `ciaoctl aggregate`, `tenant`, `node label` and `node resource`: single entries of the cluster configuration are changed
//! without an editor. Each reads the configuration in force, changes one entry, and puts the whole into force, unless another
//! version came between.
//!
//! The document is written again from what is in it. Comments are lost, which is said; the version before has them. What a
//! value may be is the scheduler's to say.

use serde_yaml::{Mapping, Value};

use crate::ctl::args::{AggregateCommand, EntryArgs, TenantCommand};
use crate::ctl::client::Which;
use crate::ctl::commands::configure::{Change, put};
use crate::ctl::commands::{CommandError, Context};
use crate::ctl::exit::Exit;
use crate::ctl::resolve::ResolveError;
use crate::printable::Printable;

/// A list of entries in the configuration: the keys that lead to it, and the key that an entry is known by.
#[derive(Debug, Clone, Copy)]
struct Section {
    path: &'static [&'static str],
    id: &'static str,
    /// What an entry is called, for people.
    kind: &'static str,
}

const AGGREGATES: Section = Section {
    path: &["configure", "scheduler", "aggregates"],
    id: "name",
    kind: "aggregate",
};

const TENANTS: Section = Section {
    path: &["configure", "scheduler", "policy", "tenants"],
    id: "tenant",
    kind: "tenant",
};

const NODES: Section = Section {
    path: &["configure", "scheduler", "nodes"],
    id: "node",
    kind: "node",
};

/// Changes aggregates.
///
/// # Errors
/// [`CommandError`].
pub async fn aggregate(
    context: &mut Context<'_>,
    command: &AggregateCommand,
) -> Result<Exit, CommandError> {
    match command {
        AggregateCommand::List => show(context, AGGREGATES).await,
        AggregateCommand::Set(args) => set(context, AGGREGATES, None, args).await,
        AggregateCommand::Delete(args) => delete(context, AGGREGATES, &args.name).await,
    }
}

/// Changes what STARTs of tenants ask for by default.
///
/// # Errors
/// [`CommandError`].
pub async fn tenant(
    context: &mut Context<'_>,
    command: &TenantCommand,
) -> Result<Exit, CommandError> {
    match command {
        TenantCommand::List => show(context, TENANTS).await,
        TenantCommand::Set(args) => set(context, TENANTS, None, args).await,
        TenantCommand::Delete(args) => delete(context, TENANTS, &args.name).await,
    }
}

/// Changes labels or custom resources of a node: what stands under `key` of its entry.
///
/// # Errors
/// [`CommandError`].
pub async fn node(
    context: &mut Context<'_>,
    key: &'static str,
    args: &EntryArgs,
) -> Result<Exit, CommandError> {
    set(context, NODES, Some(key), args).await
}

/// Lists the entries of a section in the words that `set` takes.
async fn show(context: &mut Context<'_>, section: Section) -> Result<Exit, CommandError> {
    let (_, document) = context.client.configuration(Which::Current).await?;
    let mut root = parse(&document)?;
    let entries = list(&mut root, section).map(std::mem::take);
    let entries = entries.unwrap_or_default();
    if context.json {
        let (key, entries) = (format!("{}s", section.kind), json(&entries)?);
        context.out.document(&serde_json::json!({ key: entries }))?;
        return Ok(Exit::Done);
    }
    for entry in &entries {
        let mut line = entry.get(section.id).map_or(Ok(String::new()), word)?;
        for (key, value) in entry.as_mapping().into_iter().flatten() {
            if key.as_str() != Some(section.id) {
                let (key, value) = (word(key)?, word(value)?);
                line.push_str(&format!("  {key}={value}"));
            }
        }
        context.out.line(&Printable::new(line))?;
    }
    if entries.is_empty() {
        let line = format!("there is no {}", section.kind);
        context.out.remark(&Printable::new(line))?;
    }
    Ok(Exit::Done)
}

/// A value on one line, as YAML: a text as it is, a list or a mapping as JSON, which is YAML too.
fn word(value: &Value) -> Result<String, CommandError> {
    match value {
        Value::String(text) => Ok(text.clone()),
        other => Ok(json(other)?.to_string()),
    }
}

fn json(value: &(impl serde::Serialize + ?Sized)) -> Result<serde_json::Value, CommandError> {
    serde_json::to_value(value).map_err(|error| {
        CommandError::Usage(format!(
            "the configuration in force cannot be shown: {error}: ciaoctl configure --show"
        ))
    })
}

/// Changes keys of an entry, or of a mapping in it; makes what is not there.
async fn set(
    context: &mut Context<'_>,
    section: Section,
    within: Option<&str>,
    args: &EntryArgs,
) -> Result<Exit, CommandError> {
    let mut values = Vec::new();
    for (key, text) in &args.pairs {
        let value: Value = serde_yaml::from_str(text)
            .map_err(|error| CommandError::Usage(format!("{key}={text}: {error}")))?;
        values.push((key.as_str(), (!text.is_empty()).then_some(value)));
    }
    let keys: Vec<&str> = values.iter().map(|(key, _)| *key).collect();
    let what = within.map_or(String::new(), |it| format!(" {it}"));
    let note = format!("{}{what} {}: {}", section.kind, args.name, keys.join(", "));
    let name = &args.name;
    edit(context, note, |root| {
        let list = list(root, section)?;
        let entry = match position(list, section, name) {
            Some(at) => &mut list[at],
            None => {
                let mut entry = Mapping::new();
                entry.insert(section.id.into(), name.as_str().into());
                list.push(entry.into());
                list.last_mut()?
            }
        };
        let keys = match within {
            Some(key) => below(entry, key)?,
            None => entry,
        };
        let keys = keys.as_mapping_mut()?;
        for (key, value) in values {
            match value {
                Some(value) => _ = keys.insert(key.into(), value),
                None => _ = keys.remove(key),
            }
        }
        Some(())
    })
    .await
}

async fn delete(
    context: &mut Context<'_>,
    section: Section,
    name: &str,
) -> Result<Exit, CommandError> {
    let kind = section.kind;
    let mut is_there = false;
    let note = format!("{kind} {name} deleted");
    let (part, document) = context.client.configuration(Which::Current).await?;
    let mut root = parse(&document)?;
    if let Some(list) = list(&mut root, section)
        && let Some(at) = position(list, section, name)
    {
        list.remove(at);
        is_there = true;
    }
    if !is_there {
        let name = name.to_owned();
        return Err(ResolveError::NotFound { kind, name }.into());
    }
    send(context, (&document, &root), part.current, note).await
}

/// Changes the configuration in force, and puts it into force.
async fn edit(
    context: &mut Context<'_>,
    note: String,
    change: impl FnOnce(&mut Value) -> Option<()>,
) -> Result<Exit, CommandError> {
    let (part, document) = context.client.configuration(Which::Current).await?;
    let mut root = parse(&document)?;
    if change(&mut root).is_none() {
        return Err(CommandError::Usage(
            "the configuration in force has something else where a list or mapping belongs: ciaoctl configure --edit"
                .to_owned(),
        ));
    }
    send(context, (&document, &root), part.current, note).await
}

fn parse(document: &[u8]) -> Result<Value, CommandError> {
    if document.is_empty() {
        return Ok(Value::Null);
    }
    serde_yaml::from_slice(document).map_err(|error| {
        CommandError::Usage(format!(
            "the configuration in force cannot be read: {error}"
        ))
    })
}

async fn send(
    context: &mut Context<'_>,
    (before, root): (&[u8], &Value),
    version: u64,
    note: String,
) -> Result<Exit, CommandError> {
    let text = serde_yaml::to_string(root)
        .map_err(|error| CommandError::Usage(format!("it cannot be written: {error}")))?;
    let note: String = note.chars().take(MAX_NOTE_CHARS).collect();
    let change = Change {
        if_version: Some(version),
        note,
    };
    let done = put(context, text.into(), change).await?;
    if has_comments(before) {
        let said = format!(
            "comments are not in the new version; `ciaoctl configure --show {version}` has them"
        );
        context.out.remark(&Printable::new(&said))?;
    }
    Ok(done)
}

/// Whether there are comments in a document, as far as lines show it: a `#` in a text counts as well.
fn has_comments(document: &[u8]) -> bool {
    let text = String::from_utf8_lossy(document);
    let mut lines = text.lines();
    lines.any(|line| line.trim_start().starts_with('#') || line.contains(" #"))
}

/// Characters of a note that this makes: no more bytes than one may have.
const MAX_NOTE_CHARS: usize = 64;

/// The entries of a section; it is made where there is none.
fn list(root: &mut Value, section: Section) -> Option<&mut Vec<Value>> {
    let (last, path) = section.path.split_last()?;
    let mut at = root;
    for key in path {
        at = below(at, key)?;
    }
    if at.is_null() {
        *at = Mapping::new().into();
    }
    let list = at.as_mapping_mut()?.entry((*last).into());
    let list = list.or_insert(Value::Null);
    if list.is_null() {
        *list = Value::Sequence(Vec::new());
    }
    list.as_sequence_mut()
}

/// The mapping below a key, made if there is nothing; `None` where something else is.
fn below<'a>(at: &'a mut Value, key: &str) -> Option<&'a mut Value> {
    if at.is_null() {
        *at = Mapping::new().into();
    }
    let below = at.as_mapping_mut()?.entry(key.into());
    let below = below.or_insert(Value::Null);
    if below.is_null() {
        *below = Mapping::new().into();
    }
    below.is_mapping().then_some(below)
}

/// Where the entry of this name is.
fn position(list: &[Value], section: Section, name: &str) -> Option<usize> {
    let is_meant = |entry: &Value| {
        let id = entry.get(section.id)?;
        let text = match id {
            Value::String(text) => text.clone(),
            // A host that is called 12, say.
            other => serde_yaml::to_string(other).ok()?.trim().to_owned(),
        };
        Some(text == name)
    };
    list.iter().position(|entry| is_meant(entry) == Some(true))
}
