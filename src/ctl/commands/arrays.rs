//! Arrays: `ciaoctl run --array`, `ciaoctl arrays`, `ciaoctl rerun`, and what `wait` and `delete` do with one.

use std::path::Path;
use std::time::Duration;

use jiff::Timestamp;
use proto_frames::payload::array::{MAX_ELEMENTS, StartArray};
use proto_frames::payload::{
    ArrayOrder, ArrayState, ArrayView, Delete, InstanceView, Payload, QueryKind, Start, Topic,
};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, timeout_at};

use crate::ctl::args::{ArrayArgs, ArrayListArgs, RerunArgs, RunArgs, WaitFor};
use crate::ctl::client::{Client, ClientError, StartError};
use crate::ctl::commands::listing::{print, repeat};
use crate::ctl::commands::start::{new_uuid, start_of};
use crate::ctl::commands::wait::{Losses, Reconnect};
use crate::ctl::commands::{CommandError, Context, files, instances, nodes};
use crate::ctl::event::Event;
use crate::ctl::exit::Exit;
use crate::ctl::resolve::ResolveError;
use crate::ctl::table::{Column, Columns, Row};
use crate::ctl::units::{short, span_of_ms};
use crate::printable::{Printable, counted};

/// Longest pause between two looks at an array that is waited for; its end is an event.
const LOOK: Duration = Duration::from_secs(2);

/// Pause between two tries to connect again.
const TRY_PAUSE: Duration = Duration::from_millis(500);

/// Shortest beginning of a UUID by which an array is known to commands that also take instances.
const SHORTEST_PREFIX: usize = 8;

/// Characters of the bar.
const BAR: u64 = 20;

/// Makes the array that the options ask for, with a UUID of its own.
///
/// Called before there is a session, to find errors, and again with names of nodes and instances resolved.
///
/// # Errors
/// [`CommandError::Usage`].
pub fn make(args: &RunArgs, node_id: &str) -> Result<(String, ArrayOrder), CommandError> {
    if args.submit.wait == Some(WaitFor::Running) {
        let text = "--wait=running is for instances: an array is waited for until it has ended";
        return Err(CommandError::Usage(text.to_owned()));
    }
    let ArrayArgs { array, each } = &args.array;
    let values = match each {
        Some(path) => values_of(path)?,
        None => String::new(),
    };
    let (indexes, running_max) = match array {
        Some(array) => (array.indexes.to_string(), array.running_max),
        None => (String::new(), None),
    };
    let count = values.lines().count();
    let wanted = array
        .as_ref()
        .map_or(count, |it| it.indexes.count() as usize);
    if each.is_some() && count != wanted {
        let values = counted(count, "value");
        let text = format!("--each has {values}, and --array {wanted} indexes: each needs one");
        return Err(CommandError::Usage(text));
    }
    if count > MAX_ELEMENTS as usize {
        let text =
            format!("--each has {count} values, and an array at most {MAX_ELEMENTS} elements");
        return Err(CommandError::Usage(text));
    }
    let mut start = start_of(args)?;
    start.requirements.node_id = node_id.to_owned();
    start.instance_uuid = new_uuid();
    let payload = start.encode();
    Start::decode(&payload)
        .map_err(|error| CommandError::Usage(format!("{}: {}", error.key, error.fault)))?;
    let head = StartArray {
        indexes,
        running_max,
        ..StartArray::default()
    };
    let order = ArrayOrder::of(head, &payload, values.as_bytes());
    Ok((start.instance_uuid, order))
}

/// The lines of a file, each ended by one line feed.
fn values_of(path: &Path) -> Result<String, CommandError> {
    let bytes = files::bytes(path)
        .map_err(|error| CommandError::Usage(format!("--each {}: {error}", path.display())))?;
    let text = String::from_utf8(bytes)
        .map_err(|_| CommandError::Usage(format!("--each {}: not UTF-8", path.display())))?;
    let mut values = String::with_capacity(text.len());
    for line in text.lines() {
        values.push_str(line);
        values.push('\n');
    }
    match values.is_empty() {
        true => Err(CommandError::Usage(format!(
            "--each {}: it has no line, and each is a value",
            path.display()
        ))),
        false => Ok(values),
    }
}

/// Starts an array, and with `--wait` waits for it.
///
/// # Errors
/// [`CommandError`].
pub async fn run(context: &mut Context<'_>, args: &RunArgs) -> Result<Exit, CommandError> {
    let node = match &args.node {
        Some(name) => Some(nodes::node(&mut context.client, name).await?),
        None => None,
    };
    let mut args = args.clone();
    args.placement = instances::name_by_uuid(&mut context.client, &args.placement).await?;
    let (uuid, order) = make(&args, node.as_ref().map_or("", |node| &node.uuid))?;
    if args.submit.wait.is_some() {
        context.client.watch_also(Topic::Instances).await?;
    }
    let answer = context.client.start_array(&uuid, &order).await;
    let Some(view) = answered(context, &uuid, answer)? else {
        return Ok(Exit::Refused);
    };
    if args.submit.quiet {
        context.out.line(&Printable::new(&view.array_uuid))?;
    } else if context.json && args.submit.wait.is_none() {
        context.out.document(&view.json())?;
    } else if !context.json {
        let elements = counted(view.elements, "element");
        let line = format_args!("array {} accepted: {elements}", named(&view));
        context.out.line(&Printable::new(line))?;
    }
    if args.submit.wait.is_none() {
        return Ok(Exit::Done);
    }
    follow(context, vec![view], args.submit.reconnect).await
}

/// What the scheduler answers; `None` if it refuses, which is printed.
fn answered(
    context: &mut Context<'_>,
    uuid: &str,
    answer: Result<ArrayView, StartError>,
) -> Result<Option<ArrayView>, CommandError> {
    match answer {
        Ok(view) => Ok(Some(view)),
        Err(StartError::Failed(failure)) => {
            let why = StartError::Failed(failure);
            let line = format_args!("array {uuid} {why}");
            context.out.remark(&Printable::new(line))?;
            Ok(None)
        }
        Err(StartError::Client(error)) => Err(error.into()),
    }
}

/// Lists the arrays, the latest first.
///
/// # Errors
/// [`CommandError`].
pub async fn list(context: &mut Context<'_>, args: &ArrayListArgs) -> Result<Exit, CommandError> {
    let list = &args.list;
    repeat(context, list.watch, async |context| {
        let matching = list.matching.as_deref();
        let listing = context.client.list(QueryKind::Arrays, matching).await?;
        if !args.expand {
            return print(context, list, &listing.arrays);
        }
        let is_listed = |view: &InstanceView| {
            let mut arrays = listing.arrays.iter();
            arrays.any(|array| array.array_uuid == view.array_uuid)
        };
        let all = context.client.list(QueryKind::Instances, None).await?;
        let mut elements = all.instances;
        elements.retain(is_listed);
        elements.sort_by_key(|it| (it.array_uuid.clone(), it.array_index));
        print(context, list, &elements)
    })
    .await
}

/// Has what did not succeed of an array run once more.
///
/// # Errors
/// [`CommandError`].
pub async fn rerun(context: &mut Context<'_>, args: &RerunArgs) -> Result<Exit, CommandError> {
    let found = meant(&mut context.client, &args.array).await?;
    let Some(array) = found else {
        let (kind, name) = ("array", args.array.clone());
        return Err(ResolveError::NotFound { kind, name }.into());
    };
    if args.wait {
        context.client.watch_also(Topic::Instances).await?;
    }
    let answer = context.client.rerun_array(&array.array_uuid).await;
    let Some(view) = answered(context, &array.array_uuid, answer)? else {
        return Ok(Exit::Refused);
    };
    if !context.json {
        let again = array.not_succeeded().saturating_sub(view.not_succeeded());
        let again = counted(again, "element");
        let line = format_args!("array {}: {again} to run once more", named(&view));
        context.out.line(&Printable::new(line))?;
    } else if !args.wait {
        context.out.document(&view.json())?;
    }
    match args.wait {
        true => follow(context, vec![view], args.reconnect).await,
        false => Ok(Exit::Done),
    }
}

/// The array that a name means: that has it, the latest of those that have not ended first, or whose UUID is this or alone
/// begins so; `None` if there is none.
///
/// # Errors
/// [`CommandError`].
pub async fn meant(client: &mut Client, name: &str) -> Result<Option<ArrayView>, CommandError> {
    let found = client.arrays(Some(name)).await?;
    let is_exact = |it: &&ArrayView| it.name == name || it.array_uuid.eq_ignore_ascii_case(name);
    let exact = || found.iter().filter(is_exact);
    let open = exact().find(|it| it.state != ArrayState::Ended);
    let only = match &found[..] {
        [only] if name.len() >= SHORTEST_PREFIX => Some(only),
        _ => None,
    };
    Ok(open.or_else(|| exact().next()).or(only).cloned())
}

/// Adds an array to others, unless it is among them.
pub(super) fn add(arrays: &mut Vec<ArrayView>, array: ArrayView) {
    if arrays.iter().all(|it| it.array_uuid != array.array_uuid) {
        arrays.push(array);
    }
}

/// Deletes an array: what waits of it, and its instances.
///
/// # Errors
/// [`CommandError`].
pub async fn delete(context: &mut Context<'_>, array: &ArrayView) -> Result<(), CommandError> {
    let delete = Delete {
        instance_uuid: array.array_uuid.clone(),
        // An array is on no node, and a DELETE names one.
        workload_agent_uuid: array.array_uuid.clone(),
        ..Delete::default()
    };
    context.client.delete(&delete).await?;
    context.client.sync().await?;
    let what = match array.state {
        ArrayState::Ended => "forgotten".to_owned(),
        _ => format!(
            "deleted: {} waiting dropped, {} ending",
            array.waiting,
            counted(array.running + array.queued, "instance")
        ),
    };
    match context.json {
        true => context.out.document_line(
            &json!({"array_uuid": array.array_uuid, "deleted": true, "dropped": array.waiting}),
        )?,
        false => {
            let line = format_args!("array {} {what}", named(array));
            context.out.line(&Printable::new(line))?;
        }
    }
    Ok(())
}

/// Waits until arrays have ended; how they did is the exit code.
///
/// # Errors
/// [`CommandError`].
pub async fn follow(
    context: &mut Context<'_>,
    arrays: Vec<ArrayView>,
    reconnect: Duration,
) -> Result<Exit, CommandError> {
    let deadline = Instant::now() + context.wait;
    let mut exit = Exit::Done;
    for array in arrays {
        let view = ended(context, array, deadline, reconnect).await?;
        context.out.end_progress()?;
        match context.json {
            true => context.out.document(&view.json())?,
            false => {
                let line = format_args!("array {} {}", named(&view), how(&view));
                let is_good = view.succeeded == view.elements;
                context.out.verdict(&Printable::new(line), is_good)?;
            }
        }
        exit = worse(exit, exit_of(&view));
    }
    Ok(exit)
}

async fn ended(
    context: &mut Context<'_>,
    mut view: ArrayView,
    deadline: Instant,
    reconnect: Duration,
) -> Result<ArrayView, CommandError> {
    let (since, before) = (Instant::now(), view.ended());
    let text = format!(
        "array {} goes on; `ciaoctl wait {}`",
        named(&view),
        view.array_uuid
    );
    context.aftermath.text(text);
    while view.state != ArrayState::Ended {
        if !context.json {
            let line = progress(&view, before, since.elapsed());
            context.out.progress(&Printable::new(line))?;
        }
        if Instant::now() >= deadline {
            return Err(CommandError::NotInTime {
                what: format!("array {} ended", view.array_uuid),
                waited: context.wait,
            });
        }
        let pause = (Instant::now() + LOOK).min(deadline);
        let uuid = view.array_uuid.clone();
        view = match look(&mut context.client, &uuid, pause).await {
            Ok(view) => view,
            Err(CommandError::Client(ClientError::Closed(lost))) => {
                let again = Reconnect {
                    after: Losses::All,
                    config: context.config.clone(),
                    patience: reconnect,
                };
                connect_again(context, &again, lost).await?;
                continue;
            }
            Err(error) => return Err(error),
        };
    }
    Ok(view)
}

/// How an array is once it has ended, or at this moment.
async fn look(client: &mut Client, uuid: &str, until: Instant) -> Result<ArrayView, CommandError> {
    while let Ok(event) = timeout_at(until, client.next_event()).await {
        match event.map_err(ClientError::from)? {
            Event::Array(view) if view.array_uuid == uuid && view.state == ArrayState::Ended => {
                return Ok(*view);
            }
            _ => {}
        }
    }
    let found = client.arrays(Some(uuid)).await?;
    let found = found.into_iter().find(|it| it.array_uuid == uuid);
    found.ok_or_else(|| {
        let (kind, name) = ("array", uuid.to_owned());
        ResolveError::NotFound { kind, name }.into()
    })
}

async fn connect_again(
    context: &mut Context<'_>,
    how: &Reconnect,
    lost: crate::net::link::LinkClosed,
) -> Result<(), CommandError> {
    let until = Instant::now() + how.patience;
    while Instant::now() < until {
        if let Ok(mut client) = Client::connect(&how.config).await {
            client.watch(&[Topic::Instances]).await?;
            context.client = client;
            return Ok(());
        }
        sleep(TRY_PAUSE).await;
    }
    let waited = how.patience;
    Err(CommandError::NotBack { lost, waited })
}

/// A bar, and what is how far.
fn progress(view: &ArrayView, before: u64, since: Duration) -> String {
    let (ended, all) = (view.ended(), view.elements.max(1));
    let full = (ended * BAR / all) as usize;
    let mut line = format!(
        "[{}{}] {ended}/{} ended, {} running, {} failed",
        "#".repeat(full),
        " ".repeat(BAR as usize - full),
        view.elements,
        view.running,
        view.not_succeeded(),
    );
    let done = ended.saturating_sub(before);
    if done > 0 {
        let left = u128::from(view.elements - ended) * since.as_millis() / u128::from(done);
        let left = i64::try_from(left).unwrap_or(i64::MAX);
        line.push_str(&format!(", {} left", span_of_ms(left)));
    }
    line
}

/// Why no element of an array waits for a node.
pub(super) fn why_not_queued(view: &ArrayView) -> String {
    let named = named(view);
    match (&view.state, view.running_max) {
        (ArrayState::Ended, _) => format!("array {named} {}", how(view)),
        (_, Some(most)) if view.running >= most && view.waiting > 0 => format!(
            "array {named}: {} wait because {most} run, which is the most that may at a time",
            counted(view.waiting, "element")
        ),
        (_, _) if view.waiting > 0 => format!(
            "array {named}: {} wait; none is looked for a node at this moment, as while nodes come back after a restart of \
             the scheduler",
            counted(view.waiting, "element")
        ),
        _ => format!("array {named}: nothing waits, {} running", view.running),
    }
}

/// How it ended: what is not there is not said.
fn how(view: &ArrayView) -> String {
    let counts = [
        (view.succeeded, "succeeded"),
        (view.failed, "failed"),
        (view.not_started, "not started"),
        (view.unknown, "ended, how is not known"),
        (view.deleted, "deleted"),
    ];
    let said = counts.iter().filter(|(count, _)| *count > 0);
    let said: Vec<String> = said
        .map(|(count, what)| format!("{count} {what}"))
        .collect();
    format!("has ended: {}", said.join(", "))
}

fn exit_of(view: &ArrayView) -> Exit {
    match view {
        view if view.failed > 0 => Exit::Workload,
        view if view.not_started > 0 || view.deleted > 0 => Exit::Refused,
        view if view.unknown > 0 => Exit::Unknown,
        _ => Exit::Done,
    }
}

/// The exit code of both: that a workload failed counts over that it never ran, and that over that nothing is known.
pub(super) fn worse(a: Exit, b: Exit) -> Exit {
    let rank = |exit: Exit| match exit {
        Exit::Done => 0,
        Exit::Unknown => 1,
        Exit::Refused => 2,
        _ => 3,
    };
    if rank(b) > rank(a) { b } else { a }
}

/// `sweep (67d86208)`, or the UUID of one without a name.
fn named(view: &ArrayView) -> String {
    match &*view.name {
        "" => view.array_uuid.clone(),
        name => format!("{name} ({})", short(&view.array_uuid)),
    }
}

impl Row for ArrayView {
    const LIST: &'static str = "arrays";
    const COLUMNS: Columns = &[
        Column::text("ARRAY"),
        Column::text("NAME"),
        Column::text("STATE"),
        Column::amount("ELEMENTS"),
        Column::amount("WAITING").dropped(3),
        Column::amount("RUNNING"),
        Column::amount("SUCCEEDED"),
        Column::amount("FAILED"),
        Column::amount("MOST").dropped(4),
        Column::amount("AGE").dropped(2),
    ];

    fn id(&self) -> &str {
        &self.array_uuid
    }

    fn name(&self) -> &str {
        match &*self.name {
            "" => &self.array_uuid,
            name => name,
        }
    }

    fn cells(&self, id: &dyn Fn(&str) -> String) -> Vec<String> {
        let age = Timestamp::now().as_millisecond() - self.submitted_at_ms;
        vec![
            id(&self.array_uuid),
            self.name.clone(),
            self.state.to_string(),
            self.elements.to_string(),
            (self.waiting + self.queued).to_string(),
            self.running.to_string(),
            self.succeeded.to_string(),
            self.not_succeeded().to_string(),
            self.running_max
                .map_or_else(|| "-".to_owned(), |it| it.to_string()),
            span_of_ms(age.max(0)),
        ]
    }

    fn json(&self) -> Value {
        json_of(self)
    }
}

/// An array as it is in documents and events; what there is none of is null.
pub fn json_of(view: &ArrayView) -> Value {
    let text = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
    json!({
        "array_uuid": view.array_uuid,
        "name": text(&view.name),
        "tenant_uuid": text(&view.tenant),
        "state": view.state.as_str(),
        "indexes": view.indexes,
        "elements": view.elements,
        "waiting": view.waiting,
        "queued": view.queued,
        "running": view.running,
        "succeeded": view.succeeded,
        "failed": view.failed,
        "not_started": view.not_started,
        "unknown": view.unknown,
        "deleted": view.deleted,
        "running_max": view.running_max,
        "priority": view.priority,
        "submitted_at_ms": view.submitted_at_ms,
        "deadline_at_ms": view.deadline_at_ms,
        "ended_at_ms": view.ended_at_ms,
        "queued_instance_uuid": text(&view.queued_instance_uuid),
    })
}
