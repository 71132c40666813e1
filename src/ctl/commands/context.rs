//! `ciaoctl context`: where schedulers are and which certificates to show them, under names.

use std::path::Path;

use serde_json::{Value, json};

use crate::ctl::args::{ContextCommand, GlobalArgs};
use crate::ctl::commands::CommandError;
use crate::ctl::contexts::{ContextError, Contexts, NamedContext, place};
use crate::ctl::exit::Exit;
use crate::ctl::output::Output;
use crate::ctl::table::{Column, Columns, Style, grid};
use crate::ctl::units::UNKNOWN;
use crate::printable::Printable;

/// The first column marks the current context with an asterisk.
const COLUMNS: Columns = &[
    Column::text(""),
    Column::text("CONTEXT"),
    Column::text("SERVER"),
    Column::text("CERTIFICATES"),
];

/// Lists, shows or changes contexts. Connects to nothing.
///
/// The file is read and written whole. Two commands at the same time can lose the change of one: the file is small,
/// belongs to one user and has no lock.
///
/// # Errors
/// [`CommandError::Usage`]: there is no such context, or the file cannot be used.
pub fn context(
    command: &ContextCommand,
    global: &GlobalArgs,
    mut out: Output<'_>,
) -> Result<Exit, CommandError> {
    let path = place()?;
    let mut all = Contexts::read(&path)?;
    let done = match command {
        ContextCommand::List => {
            list(&all, global.json, &mut out)?;
            return Ok(Exit::Done);
        }
        ContextCommand::Show { name } => {
            let name = name.as_deref().or(all.current.as_deref());
            // Neither named nor current.
            let Some(name) = name else {
                let text = "no context is current; `ciaoctl context list` lists all".to_owned();
                return Err(CommandError::Usage(text));
            };
            show(name, all.named(name)?, global.json, &mut out)?;
            return Ok(Exit::Done);
        }
        // What follows changes the contexts: the arms return the line to print, and the file is written behind them.
        ContextCommand::Use { name } => {
            // An unknown name must not become the current one.
            all.named(name)?;
            all.current = Some(name.clone());
            format!("{name} is current")
        }
        ContextCommand::Set { name } => {
            // `set` on an existing context changes what is given and keeps the rest.
            let before = all.contexts.get(name).cloned().unwrap_or_default();
            all.set(name, before.with(global))?;
            format!("{name} is set")
        }
        ContextCommand::Delete { name } => {
            all.delete(name)?;
            format!("{name} is deleted")
        }
    };
    all.write(&path)?;
    out.line(&Printable::new(done))?;
    Ok(Exit::Done)
}

/// The certificates column shows the directory, or else the file of the certificate.
fn list(all: &Contexts, is_json: bool, out: &mut Output<'_>) -> Result<(), CommandError> {
    if is_json {
        let rows: Vec<Value> = all
            .contexts
            .iter()
            .map(|(name, it)| row(name, it))
            .collect();
        return Ok(out.document(&json!({"current": all.current, "contexts": rows}))?);
    }
    let is_current = |name: &String| all.current.as_ref() == Some(name);
    let cells = all.contexts.iter().map(|(name, it)| {
        // One cell for either form of naming certificates.
        let files = it.certs.as_deref().or(it.cert.as_deref());
        vec![
            if is_current(name) { "*" } else { "" }.to_owned(),
            name.clone(),
            it.server.clone().unwrap_or_else(|| UNKNOWN.to_owned()),
            files.map_or_else(|| UNKNOWN.to_owned(), path_text),
        ]
    });
    let cells: Vec<_> = cells.collect();
    Ok(out.lines(&grid(COLUMNS, &cells, Style::with_headers(out.width())))?)
}

/// Only what is set has a line. With `--json`, what is not set is null.
fn show(
    name: &str,
    context: &NamedContext,
    is_json: bool,
    out: &mut Output<'_>,
) -> Result<(), CommandError> {
    let row = row(name, context);
    if is_json {
        return Ok(out.document(&row)?);
    }
    for (key, value) in row.as_object().into_iter().flatten() {
        let texts = value.as_array().into_iter().flatten().chain([value]);
        for text in texts.filter_map(Value::as_str) {
            out.line(&Printable::new(format_args!("{key:12} {text}")))?;
        }
    }
    Ok(())
}

/// Paths as text: JSON has no other form for them. Bytes that are not UTF-8 are replaced.
fn row(name: &str, context: &NamedContext) -> Value {
    json!({
        "name": name,
        "server": context.server,
        "server_name": context.server_name,
        "cert": context.cert.as_deref().map(path_text),
        "cacert": context.cacert.as_deref().map(path_text),
        "certs": context.certs.as_deref().map(path_text),
        "crl": context.crl.iter().map(|it| path_text(it)).collect::<Vec<_>>(),
    })
}

fn path_text(path: &Path) -> String {
    path.display().to_string()
}

impl From<ContextError> for CommandError {
    fn from(error: ContextError) -> Self {
        // A wrong name and an unreadable file have the same exit code, because both are settled before anything is
        // connected.
        Self::Usage(error.to_string())
    }
}
