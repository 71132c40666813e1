//! `ciaoctl describe`: all there is of one node or instance, in sections.
//!
//! It puts together what several queries answer: the view of the node or instance, the instances on the node, the
//! history and the last output of the instance. These are asked one after the other, so that they can be of slightly
//! different moments.
//!
//! ```text
//! Node
//!   uuid           4cb19522-1e18-439a-883a-f9b2a3a95f5e
//!   host           node-a
//! Status
//!   status         READY
//! ```

use jiff::Timestamp;
use jiff::tz::TimeZone;
use proto_frames::payload::{InstanceView, NodeView, PlacementState, QueryKind, ReadOutput};
use serde_json::{Value, json};

use crate::ctl::args::DescribeCommand;
use crate::ctl::commands::history::{self, latest_called, remark_reach};
use crate::ctl::commands::instances::instance;
use crate::ctl::commands::nodes::node;
use crate::ctl::commands::{CommandError, Context};
use crate::ctl::exit::Exit;
use crate::ctl::hosts::Hosts;
use crate::ctl::neutral::Neutral;
use crate::ctl::resolve::ResolveError;
use crate::ctl::status::exit_of;
use crate::ctl::table::{Row, Style, grid, retry, table};
use crate::ctl::units::{UNKNOWN, count, end_of, mebibytes, megabytes, span, span_of_ms};
use crate::printable::Printable;

/// Last lines of an instance's output that are shown.
///
/// Enough to see how it ended; `ciaoctl logs` shows more.
const LAST_LINES: u64 = 10;

/// What is said of something, line by line: its name and its value. A value that is empty or unknown is left out when
/// it is printed, so that functions that collect facts need not look.
type Facts = Vec<(&'static str, String)>;

/// Shows all there is of a node or an instance.
///
/// # Errors
/// [`CommandError`].
pub async fn describe(
    context: &mut Context<'_>,
    what: &DescribeCommand,
) -> Result<Exit, CommandError> {
    match what {
        DescribeCommand::Node { node } => describe_node(context, node).await,
        DescribeCommand::Instance { instance } => describe_instance(context, instance).await,
    }
}

/// The node can leave the list between the query that resolves its name and the one for its view: that is an error of
/// its own.
async fn describe_node(context: &mut Context<'_>, name: &str) -> Result<Exit, CommandError> {
    let meant = node(&mut context.client, name).await?;
    let listing = context
        .client
        .list(QueryKind::Nodes, Some(&meant.uuid))
        .await?;
    let mut nodes = listing.nodes.into_iter();
    let Some(view) = nodes.find(|view| view.node_uuid == meant.uuid) else {
        let text = format!("the node {meant} has left the list just now");
        return Err(CommandError::Usage(text));
    };
    // By its host name, which is what the scheduler looks for.
    let on_it = context
        .client
        .list(QueryKind::Instances, Some(&view.hostname))
        .await?;
    let mut instances = on_it.instances;
    instances.retain(|it| it.node_uuid == view.node_uuid);
    if context.json {
        let rows: Vec<Value> = instances.iter().map(Row::json).collect();
        let document = json!({"node": view.json(), "instances": rows});
        context.out.document(&document)?;
        return Ok(Exit::Done);
    }
    for (title, facts) in node_sections(&view, Timestamp::now().as_second()) {
        section(context, title, &facts)?;
    }
    let rows = table(&instances, Style::with_headers(context.out.width()));
    title(context, "Instances")?;
    match instances.is_empty() {
        true => context.out.line(&Printable::new("  none"))?,
        false => context.out.lines(&rows)?,
    }
    Ok(Exit::Done)
}

/// Pure. Memory is in MiB and disk in units of 10⁶ bytes, as [`NodeView`] has them; a lost node has `lost for` instead
/// of `connected for`.
fn node_sections(view: &NodeView, now_s: i64) -> Vec<(&'static str, Facts)> {
    let of = |free: String, total: String| format!("{free} free of {total}");
    // Lines that would be empty are left out by `section`.
    let status = vec![
        ("status", view.status.clone()),
        ("fault", view.fault.clone()),
        ("cordoned", yes(view.cordoned)),
        ("drain", view.drain.clone()),
        ("lost for", view.lost_s.map(span).unwrap_or_default()),
        (
            "connected for",
            match view.lost_s {
                None => span(view.connected_s),
                Some(_) => String::new(),
            },
        ),
        (
            "last report",
            view.reported_s
                .map(|ago| format!("{} ago", span(ago)))
                .unwrap_or_default(),
        ),
        ("address", view.address.clone()),
        (
            "certificate",
            view.certificate_ends_at_s
                .map(|at| end_of(at.saturating_sub(now_s)))
                .unwrap_or_default(),
        ),
        ("lease", view.lease_ms.map(span_of_ms).unwrap_or_default()),
        ("failures", view.failures.clone()),
        ("can", view.capabilities.join(", ")),
    ];
    // Free is what placement still has; "reported free" is what the node itself measures.
    let mut has = vec![
        (
            "memory",
            of(mebibytes(view.mem_free_mb), mebibytes(view.mem_total_mb)),
        ),
        ("reported free", mebibytes(view.mem_available_mb)),
        (
            "disk",
            of(megabytes(view.disk_free_mb), megabytes(view.disk_total_mb)),
        ),
        (
            "vcpus",
            format!(
                "{} free, {} processors",
                count(view.vcpus_free),
                count(view.cpus_online)
            ),
        ),
        ("load", count(view.load)),
    ];
    for (name, total) in &view.resources_total {
        let free = view.resources_free.get(name).copied().unwrap_or_default();
        has.push(("resource", format!("{name}: {free} free of {total}")));
    }
    let labels = view.labels.iter();
    let labels = labels.flat_map(|(key, all)| all.iter().map(move |it| format!("{key}={it}")));
    vec![
        (
            "Node",
            vec![
                ("uuid", view.node_uuid.clone()),
                ("host", view.hostname.clone()),
                ("roles", view.roles.clone()),
            ],
        ),
        ("Status", status),
        ("Resources", has),
        ("Labels", labels.map(|label| ("label", label)).collect()),
    ]
}

/// An instance that is not listed is looked for among those that have ended; of several runs with one UUID the latest
/// is shown. Only if there is none either, the first error is returned.
async fn describe_instance(context: &mut Context<'_>, name: &str) -> Result<Exit, CommandError> {
    let meant = instance(&mut context.client, name).await;
    // `error` is kept as the sign that the instance is not listed any more.
    let (view, error) = match meant {
        Ok(view) => (view, None),
        Err(CommandError::Resolve(error @ ResolveError::NotFound { .. })) => {
            let known = context.client.ended_history(Some(name)).await?;
            match latest_called(context, name, &known.instances)? {
                Some(view) => (view.clone(), Some(error)),
                None => {
                    remark_reach(context, &known)?;
                    return Err(CommandError::Resolve(error));
                }
            }
        }
        Err(error) => return Err(error),
    };
    let is_there = error.is_none();
    let id = view.instance_uuid.clone();
    // One that is not managed has no history.
    let told = context.client.history(&id).await.unwrap_or_default();
    let last = last_lines(context, &id).await?;
    if context.json {
        let rows: Vec<Value> = told.history.iter().map(history::json_of).collect();
        let outputs = told.outputs.iter().map(history::json_of_output);
        let document = json!({
            "instance": view.json(),
            "history": rows,
            "outputs": outputs.collect::<Vec<_>>(),
            "last_output": last,
        });
        context.out.document(&document)?;
        return Ok(Exit::Done);
    }
    for (title, facts) in instance_sections(&view, is_there) {
        section(context, title, &facts)?;
    }
    // Names of the nodes in the history, by one more query.
    let nodes = told.history.iter().map(|row| row.node_uuid.as_str());
    let hosts = Hosts::of(&mut context.client, nodes).await?;
    let zone = TimeZone::system();
    let (columns, cells) = history::table(&told.history, &zone, &hosts);
    if !cells.is_empty() {
        title(context, "History")?;
        let lines = grid(columns, &cells, Style::with_headers(context.out.width()));
        context.out.lines(&lines)?;
    }
    // Where earlier runs left their output, one line each.
    for output in &told.outputs {
        let line = history::output_line(output, &zone);
        context.out.line(&Printable::new(line))?;
    }
    if let Some(text) = last.filter(|text| !text.is_empty()) {
        title(context, "Last output")?;
        for line in text.lines() {
            context
                .out
                .line(&Printable::new(format_args!("  {line}")))?;
        }
    }
    Ok(Exit::Done)
}

/// `is_there` is false for an instance that has ended: it has an exit status, and no resources any more. The disk that
/// is used is in units of 10⁶ bytes, what was asked for is in MiB.
fn instance_sections(view: &InstanceView, is_there: bool) -> Vec<(&'static str, Facts)> {
    let state = match &*view.life {
        "" => view.state.as_str(),
        life => life,
    };
    let exit = match is_there {
        true => String::new(),
        false => exit_of(view.exit_code, Some(&view.node_uuid)),
    };
    let is_lost = matches!(view.state, PlacementState::Lost | PlacementState::InDoubt);
    let number = |number: Option<String>| number.unwrap_or_default();
    let mut sections = vec![
        (
            "Instance",
            vec![
                ("uuid", view.instance_uuid.clone()),
                ("name", view.name.clone()),
                ("program", view.program.clone()),
                ("group", view.group.clone()),
                ("priority", number(view.priority.map(|it| it.to_string()))),
            ],
        ),
        (
            "State",
            vec![
                ("state", state.to_owned()),
                ("reported", view.reported.clone().unwrap_or_default()),
                (
                    "run",
                    number(view.run.filter(|run| *run > 1).map(|it| it.to_string())),
                ),
                ("exit", exit),
                ("why", view.waits_for.clone()),
                (
                    "in the queue",
                    number(view.position.map(|it| it.to_string())),
                ),
                (
                    // How long it may still wait or move, or its node be lost.
                    if is_lost { "given up in" } else { "time left" },
                    number(view.deadline_ms.map(span_of_ms)),
                ),
                ("tried", number(view.attempts.map(|it| it.to_string()))),
                ("restarts", restarts_of(view)),
                (
                    "retries",
                    retry(view).unwrap_or_else(|| {
                        let retries = Some(view.retries).filter(|it| *it > 0);
                        number(retries.map(|it| it.to_string()))
                    }),
                ),
                ("time limit", time_limit_of(view)),
                (
                    if is_there { "known for" } else { "ended" },
                    match is_there {
                        true => span(view.age_s),
                        false => format!("{} ago", span(view.age_s)),
                    },
                ),
                ("host", view.hostname.clone()),
                ("node", view.node_uuid.clone()),
                ("moves to", view.target_node_uuid.clone()),
            ],
        ),
    ];
    if is_there {
        sections.push(("Resources", resources_of(view)));
    }
    sections
}

/// How often an instance was started again on its node, how its latest run ended, and when it is tried next.
fn restarts_of(view: &InstanceView) -> String {
    let Some(progress) = view.progress.as_deref() else {
        return String::new();
    };
    let last = progress
        .last_exit_code
        .map(|code| exit_of(Some(code), None));
    let next = progress.next_try_ms.and_then(|ms| i64::try_from(ms).ok());
    let last = last.map_or_else(String::new, |last| {
        format!(", the latest run ended with {last}")
    });
    let next = next.map_or_else(String::new, |ms| {
        format!(", the next in {}", span_of_ms(ms))
    });
    match (progress.restarts, last.is_empty() && next.is_empty()) {
        (0, true) => String::new(),
        (restarts, _) => format!("{restarts}{last}{next}"),
    }
}

/// How much of its time limit an instance has used.
fn time_limit_of(view: &InstanceView) -> String {
    let span = |ms: Option<u64>| Some(span_of_ms(i64::try_from(ms?).ok()?));
    let progress = view.progress.as_deref();
    let of = progress.and_then(|it| Some((span(it.time_used_ms)?, span(it.time_limit_ms)?)));
    of.map_or_else(String::new, |(used, limit)| {
        format!("{used} used of {limit}")
    })
}

/// What an instance asked for, and uses of it.
fn resources_of(view: &InstanceView) -> Facts {
    let of = |used: String, asked: String| format!("{used} used of {asked}");
    let mut asks = vec![
        (
            "memory",
            of(mebibytes(view.mem_used_mb), mebibytes(view.mem_mb)),
        ),
        (
            "disk",
            of(megabytes(view.disk_used_mb), mebibytes(view.disk_mb)),
        ),
        ("vcpus", count(view.vcpus)),
    ];
    for (name, amount) in &view.resources {
        asks.push(("resource", format!("{name}: {amount}")));
    }
    asks
}

/// The last lines of what an instance wrote, fit for a terminal; `None` where there is none to be had.
///
/// A refusal and a failure to read are both no output: `describe` shows the rest all the same.
async fn last_lines(context: &mut Context<'_>, id: &str) -> Result<Option<String>, CommandError> {
    let request = ReadOutput {
        instance_uuid: id.to_owned(),
        tail: Some(LAST_LINES),
        ..ReadOutput::default()
    };
    let chunk = match context.client.read_output(&request).await {
        Ok(chunk) => chunk,
        // A scheduler that does not know the question refuses it.
        Err(crate::ctl::client::ClientError::Refused(_)) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let shown = Neutral::default().show(&chunk.data);
    Ok((!chunk.part.is_failure()).then_some(shown))
}

/// A section begins with its title at the left margin; its lines are indented.
fn title(context: &mut Context<'_>, title: &str) -> Result<(), CommandError> {
    Ok(context.out.line(&Printable::new(title))?)
}

/// Prints a section; none that says nothing.
///
/// Values are escaped here; the names are constants.
fn section(context: &mut Context<'_>, name: &str, facts: &Facts) -> Result<(), CommandError> {
    let says = |text: &str| !text.is_empty() && text != UNKNOWN;
    let said: Vec<_> = facts.iter().filter(|(_, text)| says(text)).collect();
    if said.is_empty() {
        return Ok(());
    }
    title(context, name)?;
    for (what, text) in said {
        let line = format_args!("  {what:14} {text}");
        context.out.line(&Printable::new(line))?;
    }
    Ok(())
}

/// Empty for no, so that the line is left out.
fn yes(is_so: bool) -> String {
    if is_so { "yes" } else { "" }.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn disk_that_is_used_is_converted_to_the_unit_of_what_was_asked_for() {
        let view = InstanceView {
            disk_used_mb: 10_000,
            disk_mb: 20_480,
            ..InstanceView::default()
        };
        let sections = instance_sections(&view, true);
        let (_, resources) = sections.iter().find(|it| it.0 == "Resources").unwrap();
        let (_, disk) = resources.iter().find(|it| it.0 == "disk").unwrap();
        assert_eq!(disk, "9.3 GiB used of 20.0 GiB");
    }

    #[test]
    fn the_time_that_is_left_says_of_a_lost_instance_when_its_node_is_given_up() {
        let label = |state| {
            let view = InstanceView {
                state,
                deadline_ms: Some(9_000),
                ..InstanceView::default()
            };
            let sections = instance_sections(&view, true);
            let (_, state) = sections.iter().find(|it| it.0 == "State").unwrap();
            let (label, _) = state.iter().find(|it| it.1 == "9s").unwrap();
            *label
        };
        assert_eq!(label(PlacementState::Lost), "given up in");
        assert_eq!(label(PlacementState::Waiting), "time left");
    }
}
