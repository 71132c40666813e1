//! `ciaoctl history`: what became of an instance so far.
//!
//! The scheduler keeps the history of managed instances; the directories with output are reported by the nodes. An
//! instance that has ended is in no list, and can still have a history, so that its name is looked up in two places.

use std::collections::HashSet;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use proto_frames::payload::identifier::usual_form;
use proto_frames::payload::query::is_name_handed_on;
use proto_frames::payload::{HistoryRow, InstanceView, OutputRow, PhaseName};
use serde_json::{Value, json};

use crate::ctl::args::{HistoryArgs, HistoryFormat};
use crate::ctl::client::{ClientError, Ended, Listing};
use crate::ctl::commands::ends::ends;
use crate::ctl::commands::instances::{ago, instance};
use crate::ctl::commands::{CommandError, Context};
use crate::ctl::exit::Exit;
use crate::ctl::hosts::Hosts;
use crate::ctl::resolve::{Candidate, ResolveError, resolve};
use crate::ctl::status::how_it_exited;
use crate::ctl::table::{Column, Columns, Style, grid};
use crate::ctl::units::{UNKNOWN, short};
use crate::printable::{Printable, counted};

/// Of an instance that ran once, or not yet.
const COLUMNS: Columns = &[
    Column::text("TIME"),
    Column::text("WHAT"),
    Column::text("NODE"),
    Column::text("DETAIL"),
];

/// Of one that ran more than once: which run each row is of.
const COLUMNS_OF_RUNS: Columns = &[
    Column::text("TIME"),
    Column::text("WHAT"),
    Column::text("RUN"),
    Column::text("NODE"),
    Column::text("DETAIL"),
];

/// Shows what became of an instance, the oldest first.
///
/// Times are shown in the zone of the reader; JSON has UTC and milliseconds.
///
/// # Errors
/// [`CommandError`]; also for an instance of which the scheduler knows nothing.
pub async fn history(context: &mut Context<'_>, args: &HistoryArgs) -> Result<Exit, CommandError> {
    match &args.instance {
        Some(instance) => of_one(context, args, instance).await,
        None => ends(context, args).await,
    }
}

/// What became of one instance.
async fn of_one(
    context: &mut Context<'_>,
    args: &HistoryArgs,
    name: &str,
) -> Result<Exit, CommandError> {
    let meant = instance(&mut context.client, name).await;
    let id = match &meant {
        Ok(view) => view.instance_uuid.clone(),
        // One that is gone is not listed, and may have a history.
        Err(CommandError::Resolve(ResolveError::NotFound { .. })) => {
            ended_id(context, name).await?
        }
        Err(_) => return meant.map(|_| Exit::Done),
    };
    let Listing {
        history: rows,
        outputs,
        ..
    } = match context.client.history(&id).await {
        // The scheduler knows nothing of it: the error of the look-up says that as all commands do.
        Err(ClientError::Query { .. }) if meant.is_err() => return meant.map(|_| Exit::Done),
        answer => answer?,
    };
    // Nothing is known of it under this UUID: the error of the look-up says that best.
    if rows.is_empty() && outputs.is_empty() {
        meant?;
    }
    let format = format(args, context.json);
    if !matches!(format, HistoryFormat::Table | HistoryFormat::Wide) {
        return print_one(context, format, &id, (&rows, &outputs));
    }
    let nodes = rows.iter().map(|row| row.node_uuid.as_str());
    let hosts = Hosts::of(&mut context.client, nodes).await?;
    let zone = TimeZone::system();
    let (columns, cells) = table(&rows, &zone, &hosts);
    // `--output wide` lifts the limit of the width.
    let style = Style {
        headers: !args.no_headers,
        full_ids: false,
        width: context
            .out
            .width()
            .filter(|_| format != HistoryFormat::Wide),
    };
    context.out.lines(&grid(columns, &cells, style))?;
    for output in &outputs {
        let line = output_line(output, &zone);
        context.out.line(&Printable::new(line))?;
    }
    if let Some(line) = live_line(&id, &rows, &hosts) {
        context.out.line(&Printable::new(line))?;
    }
    Ok(Exit::Done)
}

/// How to print a history, where `--json` was or was not given.
pub(super) fn format(args: &HistoryArgs, json: bool) -> HistoryFormat {
    let usual = match json {
        true => HistoryFormat::Json,
        false => HistoryFormat::Table,
    };
    args.output.unwrap_or(usual)
}

/// What became of one instance, for programs.
fn print_one(
    context: &mut Context<'_>,
    format: HistoryFormat,
    id: &str,
    (rows, outputs): (&[HistoryRow], &[OutputRow]),
) -> Result<Exit, CommandError> {
    let rows: Vec<Value> = rows.iter().map(json_of).collect();
    let outputs: Vec<Value> = outputs.iter().map(json_of_output).collect();
    let document = || json!({ "instance_uuid": id, "history": rows, "outputs": outputs });
    match format {
        HistoryFormat::Yaml => context.out.yaml(&document())?,
        HistoryFormat::Jsonl => {
            for row in &rows {
                context.out.document_line(row)?;
            }
        }
        HistoryFormat::Csv => {
            let why = "-o csv lists ends; what became of one INSTANCE is printed with -o json or -o jsonl";
            return Err(CommandError::Usage(why.to_owned()));
        }
        _ => context.out.document(&document())?,
    }
    Ok(Exit::Done)
}

/// Columns and cells of a history. `describe` prints the same table as one of its sections.
pub(super) fn table(
    rows: &[HistoryRow],
    zone: &TimeZone,
    hosts: &Hosts,
) -> (Columns, Vec<Vec<String>>) {
    let mut runs = rows.iter().filter_map(|row| row.run);
    let first = runs.next();
    // The end of an earlier run may be the last that became known, and all that is still remembered is of a later one.
    let has_several = first.is_some_and(|run| run > 1) || runs.any(|run| Some(run) != first);
    let with_run = |row: &HistoryRow| {
        let mut cells = cells(row, zone, hosts);
        if has_several {
            let run = row
                .run
                .map_or_else(|| UNKNOWN.to_owned(), |run| run.to_string());
            cells.insert(2, run);
        }
        cells
    };
    let columns = if has_several {
        COLUMNS_OF_RUNS
    } else {
        COLUMNS
    };
    (columns, rows.iter().map(with_run).collect())
}

/// The cells of [`COLUMNS`]. `DETAIL` of an end also says how the process exited.
fn cells(row: &HistoryRow, zone: &TimeZone, hosts: &Hosts) -> Vec<String> {
    let node = match row.node_uuid.as_str() {
        "" => UNKNOWN.to_owned(),
        node => hosts.named(node),
    };
    vec![
        time(row.at_ms, zone),
        row.what.clone(),
        node,
        detail_of(row),
    ]
}

/// A moment in the reader's zone.
///
/// With milliseconds, because several things happen within a second. Unknown if the number is no time.
fn time(at_ms: i64, zone: &TimeZone) -> String {
    Timestamp::from_millisecond(at_ms).map_or_else(
        |_| UNKNOWN.to_owned(),
        |at| {
            let at = at.to_zoned(zone.clone());
            at.strftime("%F %T%.3f").to_string()
        },
    )
}

/// The detail of a row; for an end that its node reported, how the process exited as well, and what ended it where that was
/// its time limit or the like.
///
/// `ended` as a detail says nothing that the exit status does not say: it is replaced by that.
fn detail_of(row: &HistoryRow) -> String {
    if let Some(reason) = &row.failed {
        return match row.detail.as_str() {
            "" => format!("could not be started: {reason}"),
            detail => format!("could not be started: {reason}: {detail}"),
        };
    }
    let is_end = PhaseName::from(row.what.as_str()) == PhaseName::Gone && !row.node_uuid.is_empty();
    if !is_end {
        return row.detail.clone();
    }
    let said = [row.why.as_str(), row.detail.as_str()];
    let said = said.into_iter().filter(|it| !matches!(*it, "" | "ended"));
    let all: Vec<_> = said
        .map(str::to_owned)
        .chain([how_it_exited(row.exit_code)])
        .collect();
    all.join("; ")
}

/// Where the output of a run is that is over: it stays on the node where it was.
pub(super) fn output_line(output: &OutputRow, zone: &TimeZone) -> String {
    let node = match output.hostname.as_str() {
        "" => short(&output.node_uuid),
        name => name,
    };
    let ended = time(output.ended_at_ms, zone);
    format!("output on {node}: {} (ended {ended})", output.path)
}

/// Where the output of the run is that goes on, if one does.
///
/// The file can be read on that node only; `ciaoctl logs` reads it from here.
fn live_line(id: &str, rows: &[HistoryRow], hosts: &Hosts) -> Option<String> {
    let last = rows.last()?;
    let state = PhaseName::from(last.what.as_str());
    let runs = matches!(state, PhaseName::Running | PhaseName::Suspended);
    (runs && !last.node_uuid.is_empty()).then(|| {
        let node = hosts.named(&last.node_uuid);
        format!(
            "output on {node}: instances/{id} in its launcher's state directory (it has not ended)"
        )
    })
}

/// `ended_at` is RFC 3339 in UTC, or null.
pub(super) fn json_of_output(output: &OutputRow) -> Value {
    let time = Timestamp::from_millisecond(output.ended_at_ms).ok();
    json!({
        "node_uuid": output.node_uuid,
        "hostname": output.hostname,
        "ended_at": time.map(|at| at.to_string()),
        "path": output.path,
    })
}

/// The UUID of the ended instance that this name means, see [`latest_called`]; what was typed if there is none.
///
/// The caller's next query then finds nothing, which is reported with this text. Where there is none and the scheduler has
/// forgotten ends, it says how far back its history reaches.
///
/// # Errors
/// [`CommandError::Resolve`] where it means several.
pub(super) async fn ended_id(
    context: &mut Context<'_>,
    name: &str,
) -> Result<String, CommandError> {
    let known = context.client.ended_history(Some(name)).await?;
    match latest_called(context, name, &known.instances)? {
        Some(view) => Ok(view.instance_uuid.clone()),
        None => {
            remark_reach(context, &known)?;
            Ok(usual_form(name).into_owned())
        }
    }
}

/// The ended instance that a name, a UUID or the beginning of one means, by the rules of [`resolve`]; of several of one
/// tenant that had this name one after the other the latest, because a name is free again when its instance has ended.
/// Standard error says then which that is.
///
/// # Errors
/// [`ResolveError::Ambiguous`], also where several tenants used the name, or several instances at once.
pub(super) fn latest_called<'a>(
    context: &mut Context<'_>,
    name: &str,
    ended: &'a [InstanceView],
) -> Result<Option<&'a InstanceView>, CommandError> {
    let (meant, others) = latest_of_several(name, ended)?;
    if let Some(view) = meant.filter(|_| others > 0) {
        context.out.remark(&taken(name, view, others))?;
    }
    Ok(meant)
}

/// Which of several was taken.
fn taken(name: &str, view: &InstanceView, others: usize) -> Printable {
    let ended = view.ended_at_ms.map_or_else(|| "before".to_owned(), ago);
    Printable::new(format_args!(
        "{} called {name:?} have ended, one after the other: this is of the latest, {}, which ended {ended}; `ciaoctl \
         instances --all` lists the others",
        counted(others as u64 + 1, "instance"),
        view.instance_uuid,
    ))
}

/// The same, and how many others had the name before.
fn latest_of_several<'a>(
    name: &str,
    ended: &'a [InstanceView],
) -> Result<(Option<&'a InstanceView>, usize), ResolveError> {
    match only_called(name, ended) {
        Err(ResolveError::Ambiguous { candidates, .. })
            if candidates
                .iter()
                .all(|it| it.hostname.as_deref() == Some(name))
                && is_handed_on(name, ended) =>
        {
            let latest = candidates.first().map(|it| &*it.uuid);
            let meant = latest.and_then(|id| last_run(id, ended));
            Ok((meant, candidates.len() - 1))
        }
        found => Ok((found?, 0)),
    }
}

/// Whether all that were called so are of one tenant, and each began after the one before it had ended, as far as that
/// is known. Runs of one instance may overlap: it was given up with its node.
fn is_handed_on(name: &str, ended: &[InstanceView]) -> bool {
    let mut called: Vec<&InstanceView> = ended.iter().filter(|view| view.name == name).collect();
    called.sort_by_key(|view| view.ended_at_ms);
    called.windows(2).all(|pair| {
        let [before, after] = pair else { return true };
        let (end, began) = (before.ended_at_ms, after.began_at_ms);
        before.instance_uuid == after.instance_uuid
            || is_name_handed_on((&before.tenant, end), (&after.tenant, began))
    })
}

/// The same, and of several that had this name none.
///
/// `ended` has the oldest first, also such that the scheduler found by the name of their host.
///
/// # Errors
/// [`ResolveError::Ambiguous`], with the latest first.
pub(super) fn only_called<'a>(
    name: &str,
    ended: &'a [InstanceView],
) -> Result<Option<&'a InstanceView>, ResolveError> {
    let mut candidates: Vec<Candidate> = Vec::new();
    let mut seen = HashSet::new();
    for view in ended.iter().rev() {
        if seen.insert(&*view.instance_uuid) {
            candidates.push(Candidate {
                uuid: view.instance_uuid.clone(),
                hostname: (!view.name.is_empty()).then(|| view.name.clone()),
                about: about_ended(view),
            });
        }
    }
    match resolve("instance", name, candidates) {
        Ok(meant) => Ok(last_run(&meant.uuid, ended)),
        Err(ResolveError::NotFound { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// What distinguishes one that has ended: `ended 3s ago, of tenant 67d86208-b46c-4465-9018-e14187d4010c`.
fn about_ended(view: &InstanceView) -> String {
    let ended = view.ended_at_ms.map(|at| format!("ended {}", ago(at)));
    let ended = ended.unwrap_or_else(|| "ended".to_owned());
    match view.tenant.as_str() {
        "" => ended,
        tenant => format!("{ended}, of tenant {tenant}"),
    }
}

/// The last run of an instance: it has its outcome, whenever the ends of earlier ones became known.
fn last_run<'a>(id: &str, ended: &'a [InstanceView]) -> Option<&'a InstanceView> {
    let mut runs = ended.iter().rev().filter(|view| view.instance_uuid == id);
    let outcome = runs.clone().find(|view| !view.earlier);
    outcome.or_else(|| runs.next())
}

/// Says on standard error how far back the history of ends reaches, where earlier ones are forgotten.
pub(super) fn remark_reach(context: &mut Context<'_>, ended: &Ended) -> std::io::Result<()> {
    match reach(ended, Timestamp::now(), &TimeZone::system()) {
        Some(text) => context.out.remark(&Printable::new(text)),
        None => Ok(()),
    }
}

/// How far back the history of ends reaches; `None` while nothing is forgotten.
fn reach(ended: &Ended, now: Timestamp, zone: &TimeZone) -> Option<String> {
    if ended.forgotten == 0 {
        return None;
    }
    let forgotten = counted(ended.forgotten, "earlier end");
    let since = ended.complete_for.and_then(|time| {
        let time = i64::try_from(time.as_millis()).ok()?;
        let since = Timestamp::from_millisecond(now.as_millisecond().checked_sub(time)?);
        Some(
            since
                .ok()?
                .to_zoned(zone.clone())
                .strftime("%F %T")
                .to_string(),
        )
    });
    Some(match since {
        Some(since) => {
            format!("the history of ends reaches back to {since}; {forgotten} forgotten")
        }
        None => format!("the history of ends is not whole; {forgotten} forgotten"),
    })
}

/// `time` is RFC 3339 in UTC; `at_ms` is the same moment as a number.
pub(super) fn json_of(row: &HistoryRow) -> Value {
    let time = Timestamp::from_millisecond(row.at_ms).ok();
    json!({
        "time": time.map(|at| at.to_string()),
        "at_ms": row.at_ms,
        "what": row.what,
        "node_uuid": row.node_uuid,
        "detail": row.detail,
        "exit_code": row.exit_code,
        "why": Some(row.why.as_str()).filter(|why| !why.is_empty()),
        "failed": row.failed,
        "run": row.run,
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proto_frames::payload::EndWhy;

    use super::*;

    #[test]
    fn what_is_forgotten_is_said_with_how_far_back_the_history_reaches() {
        let now = Timestamp::from_millisecond(1_795_000_000_000).unwrap();
        let ended = |forgotten, complete_for: Option<u64>| Ended {
            instances: Vec::new(),
            complete_for: complete_for.map(Duration::from_secs),
            forgotten,
        };
        let said = |ended: Ended| reach(&ended, now, &TimeZone::UTC);
        assert_eq!(said(ended(0, Some(60))), None);
        let text =
            "the history of ends reaches back to 2026-11-18 10:06:40; 2 earlier ends forgotten";
        assert_eq!(said(ended(2, Some(3_600))).as_deref(), Some(text));
        let unknown = "the history of ends is not whole; 1 earlier end forgotten";
        assert_eq!(said(ended(1, None)).as_deref(), Some(unknown));
    }

    /// One that was called `web` and ended then.
    fn web(id: &str, began: i64, ended: i64, tenant: &str) -> InstanceView {
        InstanceView {
            instance_uuid: id.into(),
            name: "web".into(),
            began_at_ms: Some(began),
            ended_at_ms: Some(ended),
            tenant: tenant.into(),
            ..InstanceView::default()
        }
    }

    #[test]
    fn of_several_that_had_a_name_one_after_the_other_the_latest_is_meant() {
        let mut ended = vec![web("a", 1, 2, ""), web("b", 2, 4, ""), web("c", 5, 6, "")];
        let (meant, others) = latest_of_several("web", &ended).unwrap();
        assert_eq!((meant.unwrap().instance_uuid.as_str(), others), ("c", 2));
        let said = taken("web", meant.unwrap(), others).to_string();
        let begin = "3 instances called \"web\" have ended, one after the other: this is of the latest, c, which ended ";
        assert!(said.starts_with(begin), "{said}");
        // Two runs of one instance are one instance, also where they overlap.
        ended.push(web("c", 3, 7, ""));
        assert_eq!(latest_of_several("web", &ended).unwrap().1, 2);
        // By its UUID any of them is meant, without a word.
        assert_eq!(latest_of_several("b", &ended).unwrap().1, 0);
        // What a scheduler of an earlier version does not say is no reason to refuse.
        for view in &mut ended {
            view.began_at_ms = None;
        }
        assert_eq!(latest_of_several("web", &ended).unwrap().1, 2);
    }

    #[test]
    fn a_name_of_several_tenants_or_of_several_at_once_is_ambiguous() {
        let of_two = [web("a", 1, 2, "red"), web("b", 3, 4, "blue")];
        let at_once = [web("a", 1, 4, ""), web("b", 3, 5, "")];
        let within = [web("a", 2, 3, ""), web("b", 1, 5, "")];
        for ended in [&of_two, &at_once, &within] {
            let error = latest_of_several("web", ended).unwrap_err();
            assert!(error.to_string().starts_with("\"web\" means 2 instances"));
        }
        let error = latest_of_several("web", &of_two).unwrap_err();
        let listed = error.candidates().to_string();
        assert!(listed.starts_with("  b  ended "), "{listed}");
        assert!(listed.contains(" ago, of tenant blue\n"), "{listed}");
    }

    #[test]
    fn of_several_runs_each_row_says_which_it_is_of() {
        let row = |what: &str, run| HistoryRow {
            what: what.into(),
            run,
            ..HistoryRow::default()
        };
        let of = |rows: &[HistoryRow]| {
            let (columns, cells) = table(rows, &TimeZone::UTC, &Hosts::default());
            assert!(cells.iter().all(|cells| cells.len() == columns.len()));
            cells
                .iter()
                .map(|cells| cells[2].clone())
                .collect::<Vec<_>>()
        };
        let once = [row("waiting", None), row("gone", Some(1))];
        assert_eq!(of(&once), ["-", "-"], "the node");
        let twice = [&once[..], &[row("running", Some(2))]].concat();
        assert_eq!(of(&twice), ["-", "1", "2"]);
        // The first was forgotten; the second one's end became known after the third had begun.
        assert_eq!(of(&[row("running", Some(2))]), ["2"]);
        let late = [row("running", Some(3)), row("gone", Some(2))];
        assert_eq!(of(&late), ["3", "2"]);
    }

    #[test]
    fn rows_have_their_time_in_the_zone_of_the_reader() {
        let row = HistoryRow {
            at_ms: 1_795_000_000_123,
            what: "placed".into(),
            node_uuid: "4cb19522-aaaa".into(),
            ..HistoryRow::default()
        };
        let expected = ["2026-11-18 11:06:40.123", "placed", "4cb19522", ""];
        let hosts = Hosts::default();
        assert_eq!(cells(&row, &TimeZone::UTC, &hosts), expected);
        assert_eq!(json_of(&row)["time"], "2026-11-18T11:06:40.123Z");
        let never = HistoryRow {
            at_ms: i64::MAX,
            ..HistoryRow::default()
        };
        assert_eq!(cells(&never, &TimeZone::UTC, &hosts)[0], "-");
        let ended = |detail: &str, exit_code| {
            detail_of(&HistoryRow {
                what: "gone".into(),
                detail: detail.into(),
                exit_code,
                ..row.clone()
            })
        };
        assert_eq!(ended("ended", Some(7)), "exited, status 7");
        assert_eq!(ended("ended", Some(-9)), "killed by SIGKILL");
        assert_eq!(ended("deleted", None), "deleted; exited, status unknown");
        let late = HistoryRow {
            what: "gone".into(),
            detail: "ended".into(),
            exit_code: Some(-15),
            why: EndWhy::TimeLimit,
            ..row.clone()
        };
        assert_eq!(detail_of(&late), "time_limit; killed by SIGTERM");
        assert_eq!(json_of(&late)["why"], "time_limit");
        let failed = detail_of(&HistoryRow {
            what: "gone".into(),
            detail: "no such file".into(),
            failed: Some("launch_failure".into()),
            ..row.clone()
        });
        assert_eq!(failed, "could not be started: launch_failure: no such file");
    }
}
