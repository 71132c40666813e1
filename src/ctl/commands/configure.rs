//! `ciaoctl configure`: the cluster configuration is shown, compared, checked, replaced and taken back.
//!
//! Everything that changes it sends a whole document with the number of the version that it was made from, so that two
//! people who do so at the same time do not undo each other's work.

use std::io::Read as _;
use std::path::Path;
use std::time::SystemTime;

use bytes::Bytes;
use proto_frames::Uuid;
use proto_frames::payload::configuration::MAX_CONFIGURATION_LEN;
use proto_frames::payload::{ConfigurationFailure, ConfigurationPart, WriteConfiguration};
use serde_json::{Value, json};
use tokio::process::Command;

use crate::ctl::args::ConfigureArgs;
use crate::ctl::client::{ConfigurationError, Which};
use crate::ctl::commands::{CommandError, Context};
use crate::ctl::difference::difference;
use crate::ctl::exit::Exit;
use crate::ctl::health::version_json;
use crate::ctl::units::{short, span};
use crate::image_file::unix_ms;
use crate::printable::{Printable, counted};
use crate::private;

/// What edits a file where nothing else is said.
const EDITOR: &str = "vi";

/// What a configuration that was changed is sent with.
#[derive(Debug, Clone, Default)]
pub(super) struct Change {
    /// The version that has to be in force.
    pub(super) if_version: Option<u64>,
    /// What it is for.
    pub(super) note: String,
}

/// Does what the options say.
///
/// # Errors
/// [`CommandError`].
pub async fn configure(
    context: &mut Context<'_>,
    args: &ConfigureArgs,
) -> Result<Exit, CommandError> {
    if let Some(version) = args.show {
        return show(context, version).await;
    }
    if args.versions {
        return versions(context).await;
    }
    if args.diff {
        return diff(context, args.file.as_deref()).await;
    }
    let note = args.note.clone();
    if let Some(number) = args.rollback {
        let change = Change {
            if_version: args.if_version,
            note: note.unwrap_or_else(|| format!("rollback to version {number}")),
        };
        return rollback(context, number, change).await;
    }
    let change = Change {
        if_version: args.if_version,
        note: note.unwrap_or_default(),
    };
    let Some(file) = &args.file else {
        return edit(context, change).await;
    };
    let document = read(file)?;
    if args.check {
        let checked = check(context, document, false).await?;
        match context.json {
            true => context.out.document(&check_json(&checked))?,
            false => print_check(context, &checked)?,
        }
        return Ok(Exit::Done);
    }
    put(context, document, change).await
}

/// Prints the configuration itself: on a terminal without what such a thing would not show, else byte for byte.
async fn show(context: &mut Context<'_>, version: Option<u64>) -> Result<Exit, CommandError> {
    let which = version.map_or(Which::Current, Which::Version);
    let (part, document) = context.client.configuration(which).await?;
    if context.json {
        context.out.document(&json!({
            "version": part.version,
            "current": part.current,
            "kept": part.kept,
            "file": part.file,
            "configuration": String::from_utf8_lossy(&document),
            "versions": part.versions.iter().map(version_json).collect::<Vec<_>>(),
        }))?;
        return Ok(Exit::Done);
    }
    if document.is_empty() {
        let line = "no configuration is in force: default placement";
        context.out.remark(&Printable::new(line))?;
    } else if context.out.is_terminal() {
        for line in String::from_utf8_lossy(&document).lines() {
            context.out.line(&Printable::new(line))?;
        }
    } else {
        context.out.verbatim(&document)?;
    }
    Ok(Exit::Done)
}

/// Lists the versions with who set each, when and what for.
async fn versions(context: &mut Context<'_>) -> Result<Exit, CommandError> {
    let (part, _) = context.client.configuration(Which::Current).await?;
    if context.json {
        let versions: Vec<Value> = part.versions.iter().map(version_json).collect();
        let all = json!({ "current": part.current, "kept": part.kept, "versions": versions });
        context.out.document(&all)?;
        return Ok(Exit::Done);
    }
    for version in &part.versions {
        let mark = if version.version == part.current {
            '*'
        } else {
            ' '
        };
        let age = (unix_ms(SystemTime::now()) - i64::try_from(version.at_ms).unwrap_or(i64::MAX))
            .max(0)
            / 1000;
        let note = match version.note.as_str() {
            "" => String::new(),
            note => format!(": {note}"),
        };
        let line = format_args!(
            "{mark} {:>5}  {:>4} ago  {} by {}{note}",
            version.version,
            span(age),
            version.source,
            version.by
        );
        context.out.line(&Printable::new(line))?;
    }
    if !part.kept {
        let line = "the scheduler has no --state-dir: versions are lost when it ends, and its file counts then";
        context.out.remark(&Printable::new(line))?;
    }
    Ok(Exit::Done)
}

/// Shows how a file, or the scheduler's own files, differ from what is in force, and whom they would move.
async fn diff(context: &mut Context<'_>, file: Option<&Path>) -> Result<Exit, CommandError> {
    let (current, live) = context.client.configuration(Which::Current).await?;
    let live_name = format!("version {}, in force", current.version);
    let (name, other) = match file {
        Some(file) => (file.display().to_string(), read(file)?),
        None => {
            let (part, document) = context.client.configuration(Which::File).await?;
            (part.file, document)
        }
    };
    let mut compared = Compared::of(context, (live_name, live), (name, other), false).await?;
    if file.is_none() {
        compared.nodes = node_file_diff(context).await?.map(Box::new);
    }
    compared.report(context)
}

/// The same of the node file; `None` where the scheduler has none, or is older than the question.
async fn node_file_diff(context: &mut Context<'_>) -> Result<Option<Compared>, CommandError> {
    let (part, live) = match context.client.configuration(Which::Nodes).await {
        Ok((part, live)) if part.nodes => (part, live),
        // An older one answers with the configuration.
        Ok(_) => return Ok(None),
        Err(ConfigurationError::Refused {
            failure: ConfigurationFailure::NotFound,
            ..
        }) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let (_, file) = context.client.configuration(Which::NodeFile).await?;
    let live_name = format!("{}, in force", part.file);
    let compared = Compared::of(context, (live_name, live), (part.file, file), true).await?;
    Ok(Some(compared))
}

/// How a document differs from the one in force, and what would come of it.
#[derive(Debug)]
struct Compared {
    /// What is in force, and what is compared with it, as they are called.
    names: [String; 2],
    lines: Vec<String>,
    /// What would come of the other; `None` where they are the same.
    checked: Option<ConfigurationPart>,
    /// The same of the node file.
    nodes: Option<Box<Compared>>,
}

impl Compared {
    /// Compares two documents, and has the scheduler check the second where they differ.
    async fn of(
        context: &mut Context<'_>,
        (live_name, live): (String, Bytes),
        (name, other): (String, Bytes),
        nodes: bool,
    ) -> Result<Self, CommandError> {
        let text = |bytes: &Bytes| String::from_utf8_lossy(bytes).into_owned();
        let lines = difference(&text(&live), &text(&other));
        let checked = match live == other {
            true => None,
            false => Some(check(context, other, nodes).await?),
        };
        Ok(Self {
            names: [live_name, name],
            lines,
            checked,
            nodes: None,
        })
    }

    fn report(&self, context: &mut Context<'_>) -> Result<Exit, CommandError> {
        if context.json {
            let mut all = self.json();
            if let Some(nodes) = &self.nodes {
                all["node_file"] = nodes.json();
            }
            context.out.document(&all)?;
            return Ok(Exit::Done);
        }
        self.print(context)?;
        if let Some(nodes) = &self.nodes {
            nodes.print(context)?;
        }
        Ok(Exit::Done)
    }

    fn json(&self) -> Value {
        let Some(part) = &self.checked else {
            return json!({ "differs": false });
        };
        let mut all = check_json(part);
        all["differs"] = true.into();
        all["difference"] = self.lines.clone().into();
        all
    }

    fn print(&self, context: &mut Context<'_>) -> Result<(), CommandError> {
        let [live, name] = &self.names;
        let Some(part) = &self.checked else {
            let line = format_args!("{name} is what is in force");
            context.out.line(&Printable::new(line))?;
            return Ok(());
        };
        if self.lines.is_empty() {
            let line = "they differ in the ends of lines alone";
            context.out.remark(&Printable::new(line))?;
        } else {
            let line = format_args!("--- {live}");
            context.out.line(&Printable::new(line))?;
            let line = format_args!("+++ {name}");
            context.out.line(&Printable::new(line))?;
        }
        for line in &self.lines {
            context.out.line(&Printable::new(line))?;
        }
        print_check(context, part)
    }
}

async fn rollback(
    context: &mut Context<'_>,
    number: u64,
    change: Change,
) -> Result<Exit, CommandError> {
    let (part, document) = context.client.configuration(Which::Version(number)).await?;
    let if_version = change.if_version.or(Some(part.current));
    let change = Change {
        if_version,
        ..change
    };
    put(context, document, change).await
}

/// Has the configuration in force edited, and puts what comes of it into force.
async fn edit(context: &mut Context<'_>, change: Change) -> Result<Exit, CommandError> {
    let (part, document) = context.client.configuration(Which::Current).await?;
    let name = format!("ciao-configuration-{}.yaml", Uuid::new_v4());
    let path = std::env::temp_dir().join(name);
    let mut file = private::create(&path)?;
    std::io::copy(&mut &document[..], &mut file)?;
    drop(file);
    // The session goes on meanwhile.
    let edited = run_editor(&path).await.and_then(|()| read(&path));
    let remove = || std::fs::remove_file(&path);
    let edited = match edited {
        Err(error) => {
            remove()?;
            return Err(error);
        }
        Ok(edited) => edited,
    };
    if edited == document {
        remove()?;
        let line = "nothing was changed";
        context.out.remark(&Printable::new(line))?;
        return Ok(Exit::Done);
    }
    let if_version = change.if_version.or(Some(part.current));
    let change = Change {
        if_version,
        ..change
    };
    match put(context, edited, change).await {
        // The work is not to be lost for a mistake in it.
        Err(error @ CommandError::Configuration(_)) => {
            let path = path.display();
            let line = format_args!("what you wrote is in {path}: ciaoctl configure {path}");
            context.out.remark(&Printable::new(line))?;
            Err(error)
        }
        done => {
            remove()?;
            done
        }
    }
}

/// Runs the editor on a file and waits until it ends. Its value may have arguments, as shells take it.
async fn run_editor(path: &Path) -> Result<(), CommandError> {
    let said = ["VISUAL", "EDITOR"].into_iter().find_map(|name| {
        let value = std::env::var(name).ok()?;
        (!value.trim().is_empty()).then_some(value)
    });
    let editor = said.unwrap_or_else(|| EDITOR.to_owned());
    let status = Command::new("sh")
        .arg("-c")
        .arg(format!("{editor} \"$1\""))
        .arg("sh")
        .arg(path)
        .status()
        .await?;
    match status.success() {
        true => Ok(()),
        false => Err(CommandError::Usage(format!(
            "the editor ({editor}) ended with {status}; nothing is changed"
        ))),
    }
}

/// Puts a configuration into force and reports it.
pub(super) async fn put(
    context: &mut Context<'_>,
    document: Bytes,
    change: Change,
) -> Result<Exit, CommandError> {
    let asked = WriteConfiguration {
        if_version: change.if_version,
        note: change.note,
        ..WriteConfiguration::default()
    };
    let part = context.client.configure(asked, document).await?;
    remark_warnings(context, &part)?;
    if context.json {
        context.out.document(&json!({
            "version": part.version, "kept": part.kept, "warnings": part.warnings,
        }))?;
    } else {
        let kept = match part.kept {
            true => "",
            false => "; it is lost when the scheduler ends, which has no --state-dir",
        };
        let line = format_args!("version {} is in force{kept}", part.version);
        context.out.line(&Printable::new(line))?;
    }
    Ok(Exit::Done)
}

fn remark_warnings(
    context: &mut Context<'_>,
    part: &ConfigurationPart,
) -> Result<(), CommandError> {
    if !context.json {
        for warning in &part.warnings {
            context.out.remark(&Printable::new(warning))?;
        }
    }
    Ok(())
}

/// What would come of a configuration, or of a node file.
async fn check(
    context: &mut Context<'_>,
    document: Bytes,
    nodes: bool,
) -> Result<ConfigurationPart, CommandError> {
    let asked = WriteConfiguration {
        check: true,
        nodes,
        ..WriteConfiguration::default()
    };
    Ok(context.client.configure(asked, document).await?)
}

/// A check for programs.
fn check_json(part: &ConfigurationPart) -> Value {
    let affected = part.affected.iter().map(|it| {
        json!({
            "instance_uuid": it.instance_uuid, "name": it.name, "node_uuid": it.node_uuid, "hostname": it.hostname,
            "reason": it.reason,
        })
    });
    let count = part.affected.len() as u64 + part.more_affected;
    json!({
        "current": part.current, "checked": part.checked, "warnings": part.warnings,
        "affected": affected.collect::<Vec<_>>(), "affected_count": count,
    })
}

/// A check for people.
fn print_check(context: &mut Context<'_>, part: &ConfigurationPart) -> Result<(), CommandError> {
    remark_warnings(context, part)?;
    let count = part.affected.len() as u64 + part.more_affected;
    let checked = counted(part.checked, "instance");
    let line = match count {
        0 => format!("it can be used; of {checked}, each would be placed where it is"),
        count => {
            format!("it can be used; {count} of {checked} would not be placed where they are:")
        }
    };
    context.out.line(&Printable::new(line))?;
    for it in &part.affected {
        let name = match it.name.as_str() {
            "" => it.instance_uuid.clone(),
            name => format!("{name} ({})", short(&it.instance_uuid)),
        };
        let node = match it.hostname.as_str() {
            "" => &it.node_uuid,
            hostname => hostname,
        };
        let line = format_args!("  {name} on {node}: the node is one {}", it.reason);
        context.out.line(&Printable::new(line))?;
    }
    if part.more_affected > 0 {
        let line = format_args!("  and {} more", part.more_affected);
        context.out.line(&Printable::new(line))?;
    }
    Ok(())
}

/// A configuration from a file, or from the standard input.
///
/// # Errors
/// [`CommandError::Usage`]: it cannot be read, or is too long.
fn read(path: &Path) -> Result<Bytes, CommandError> {
    let unreadable = |error: std::io::Error| {
        CommandError::Usage(format!("cannot read {}: {error}", path.display()))
    };
    let limit = MAX_CONFIGURATION_LEN as u64 + 1;
    let mut bytes = Vec::new();
    if path.as_os_str() == "-" {
        let mut stdin = std::io::stdin().lock().take(limit);
        stdin.read_to_end(&mut bytes).map_err(unreadable)?;
    } else {
        let file = std::fs::File::open(path).map_err(unreadable)?;
        let mut file = file.take(limit);
        file.read_to_end(&mut bytes).map_err(unreadable)?;
    }
    if bytes.len() > MAX_CONFIGURATION_LEN {
        return Err(CommandError::Usage(format!(
            "{} has more than {MAX_CONFIGURATION_LEN} bytes",
            path.display()
        )));
    }
    Ok(bytes.into())
}

impl From<ConfigurationError> for CommandError {
    fn from(error: ConfigurationError) -> Self {
        match error {
            ConfigurationError::Client(error) => error.into(),
            refused => Self::Configuration(Box::new(refused)),
        }
    }
}
