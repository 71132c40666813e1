//! `ciaoctl history` without an instance: the ends of instances on record, the latest first, and what they come to.

use std::collections::BTreeMap;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use proto_frames::Uuid;
use proto_frames::payload::{EndFilter, EndOutcome, EndedRun};
use serde_json::{Map, Value, json};

use crate::ctl::args::{EndArgs, HistoryArgs, HistoryFormat};
use crate::ctl::commands::history::format;
use crate::ctl::commands::{CommandError, Context, arrays};
use crate::ctl::exit::Exit;
use crate::ctl::resolve::ResolveError;
use crate::ctl::status::how_it_exited;
use crate::ctl::table::{Column, Columns, Row, Style, table};
use crate::ctl::units::{UNKNOWN, mebibytes, span_of_ms};
use crate::printable::{Printable, counted};

/// The columns of comma-separated values: the keys of [`EndedRun`].
const CSV: &[&str] = &[
    "number",
    "instance_uuid",
    "name",
    "array_uuid",
    "index",
    "program",
    "tenant_uuid",
    "node_uuid",
    "hostname",
    "outcome",
    "exit_code",
    "failed",
    "detail",
    "submitted_at_ms",
    "started_at_ms",
    "ended_at_ms",
    "run",
    "restarts",
    "retries",
    "ran_ms",
    "peak_kib",
    "cpu_ms",
    "output_bytes",
    "by",
    "labels",
];

/// Lists ends.
///
/// # Errors
/// [`CommandError`].
pub(super) async fn ends(
    context: &mut Context<'_>,
    args: &HistoryArgs,
) -> Result<Exit, CommandError> {
    let filter = filter(context, &args.ends).await?;
    let format = format(args, context.json);
    let mut listed = Listed::default();
    let mut left = args.ends.limit.map_or(usize::MAX, |limit| limit as usize);
    let mut after = None;
    if format == HistoryFormat::Csv {
        context.out.line(&Printable::new(CSV.join(",")))?;
    }
    while left > 0 {
        let page = context.client.ends_on_record(&filter, after, left).await?;
        left = left.saturating_sub(page.rows.len());
        for row in &page.rows {
            listed.totals.add(row);
            match format {
                HistoryFormat::Jsonl => context.out.document_line(&json_of(row))?,
                HistoryFormat::Csv => context.out.line(&Printable::new(csv_line(row)))?,
                _ => {}
            }
        }
        if !matches!(format, HistoryFormat::Jsonl | HistoryFormat::Csv) {
            listed.rows.extend(page.rows.into_iter().map(End));
        }
        listed.in_memory |= page.in_memory;
        listed.forgotten = listed.forgotten.max(page.forgotten);
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    listed.is_cut = after.is_some();
    print(context, args, format, &listed)
}

/// What was listed.
#[derive(Debug, Default)]
struct Listed {
    /// Empty where rows are printed as they come.
    rows: Vec<End>,
    totals: Totals,
    /// Whether there may be more than `--limit` let in.
    is_cut: bool,
    /// Whether the scheduler has them in its memory alone.
    in_memory: bool,
    /// How many ends it has forgotten.
    forgotten: u64,
}

/// What the ends listed come to.
#[derive(Debug, Default)]
struct Totals {
    ends: u64,
    by_outcome: BTreeMap<String, u64>,
    cpu_ms: u64,
    ran_ms: u64,
}

impl Totals {
    fn add(&mut self, row: &EndedRun) {
        self.ends += 1;
        let outcome = row.outcome.as_str().to_owned();
        *self.by_outcome.entry(outcome).or_default() += 1;
        self.cpu_ms = self.cpu_ms.saturating_add(row.cpu_ms.unwrap_or(0));
        self.ran_ms = self.ran_ms.saturating_add(row.ran_ms.unwrap_or(0));
    }

    /// The outcomes in the order of their words' declaration.
    fn outcomes(&self) -> impl Iterator<Item = (&str, u64)> {
        let known = EndOutcome::KNOWN.iter();
        let known = known.filter_map(|word| Some((*word, *self.by_outcome.get(*word)?)));
        let others = self.by_outcome.iter();
        let others = others.filter(|(word, _)| !EndOutcome::KNOWN.contains(&word.as_str()));
        known.chain(others.map(|(word, count)| (word.as_str(), *count)))
    }

    /// `12 ended: 10 succeeded, 2 failed; 1h 3m of processor time`.
    fn line(&self) -> String {
        let outcomes = self.outcomes();
        let outcomes: Vec<String> = outcomes
            .map(|(word, count)| format!("{count} {}", word.replace('_', " ")))
            .collect();
        format!(
            "{} ended: {}; {} of processor time, {} of running",
            self.ends,
            outcomes.join(", "),
            time(self.cpu_ms),
            time(self.ran_ms)
        )
    }

    fn json(&self) -> Value {
        let outcomes: Map<String, Value> = self
            .outcomes()
            .map(|(word, count)| (word.to_owned(), count.into()))
            .collect();
        json!({ "ends": self.ends, "by_outcome": outcomes, "cpu_ms": self.cpu_ms, "ran_ms": self.ran_ms })
    }
}

fn print(
    context: &mut Context<'_>,
    args: &HistoryArgs,
    format: HistoryFormat,
    listed: &Listed,
) -> Result<Exit, CommandError> {
    let rows = &listed.rows;
    let document = || {
        json!({
            "ends": rows.iter().map(Row::json).collect::<Vec<_>>(),
            "totals": listed.totals.json(),
            "is_cut": listed.is_cut,
            "in_memory": listed.in_memory,
            "forgotten": listed.forgotten,
        })
    };
    match format {
        HistoryFormat::Json => context.out.document(&document())?,
        HistoryFormat::Yaml => context.out.yaml(&document())?,
        HistoryFormat::Jsonl | HistoryFormat::Csv => {}
        HistoryFormat::Table | HistoryFormat::Wide => {
            let style = Style {
                headers: !args.no_headers,
                full_ids: args.full,
                width: context
                    .out
                    .width()
                    .filter(|_| format != HistoryFormat::Wide),
            };
            context.out.lines(&table(rows, style))?;
        }
    }
    // Documents have them in themselves.
    let is_document = matches!(format, HistoryFormat::Json | HistoryFormat::Yaml);
    if listed.totals.ends > 0 && !is_document {
        context.out.remark(&Printable::new(listed.totals.line()))?;
    }
    if listed.is_cut {
        let text = "there may be more: these are the latest (--limit)";
        context.out.remark(&Printable::new(text))?;
    }
    if listed.in_memory {
        let forgotten = match listed.forgotten {
            0 => String::new(),
            count => format!("; {} forgotten", counted(count, "earlier end")),
        };
        let text = format!(
            "the scheduler has no state directory that it can read: these ends are in its memory, and lost when it ends{forgotten}"
        );
        context.out.remark(&Printable::new(text))?;
    }
    Ok(Exit::Done)
}

/// What is asked of the scheduler.
///
/// # Errors
/// [`CommandError`]: a time cannot be read, or there is no such array.
pub(super) async fn filter(
    context: &mut Context<'_>,
    args: &EndArgs,
) -> Result<EndFilter, CommandError> {
    let array = match &args.array {
        Some(name) => array_uuid(context, name).await?,
        None => String::new(),
    };
    let (now, zone) = (Timestamp::now(), TimeZone::system());
    let since_ms = args
        .since
        .unix_ms(now, &zone)
        .map_err(CommandError::Usage)?;
    let until = args.until.map(|until| until.unix_ms(now, &zone));
    let until_ms = until.transpose().map_err(CommandError::Usage)?.flatten();
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    Ok(EndFilter {
        since_ms,
        until_ms,
        state: text(&args.state),
        tenant: text(&args.tenant),
        node: text(&args.node),
        name: text(&args.name),
        program: text(&args.program),
        instance: String::new(),
        by: text(&args.by),
        labels: args.labels.clone(),
        array,
    })
}

/// The UUID of an array. One that is forgotten is named by its whole UUID.
async fn array_uuid(context: &mut Context<'_>, name: &str) -> Result<String, CommandError> {
    match arrays::meant(&mut context.client, name).await? {
        Some(array) => Ok(array.array_uuid),
        None if name.parse::<Uuid>().is_ok() => Ok(name.to_owned()),
        None => {
            let (kind, name) = ("array", name.to_owned());
            Err(ResolveError::NotFound { kind, name }.into())
        }
    }
}

/// A row of the list.
#[derive(Debug)]
struct End(EndedRun);

impl Row for End {
    const LIST: &'static str = "ends";
    const COLUMNS: Columns = &[
        Column::text("INSTANCE"),
        Column::text("NAME").dropped(1),
        Column::text("PROGRAM").dropped(5),
        Column::text("NODE").dropped(4),
        Column::text("ENDED"),
        Column::text("OUTCOME"),
        Column::text("HOW"),
        Column::amount("RAN"),
        Column::amount("CPU").dropped(2),
        Column::amount("PEAK").dropped(3),
        Column::amount("RESTARTS").dropped(6),
    ];

    fn id(&self) -> &str {
        &self.0.instance_uuid
    }

    fn name(&self) -> &str {
        match &*self.0.name {
            "" => &self.0.instance_uuid,
            name => name,
        }
    }

    fn cells(&self, id: &dyn Fn(&str) -> String) -> Vec<String> {
        let it = &self.0;
        let or_unknown = |text: &str| match text {
            "" => UNKNOWN.to_owned(),
            text => text.to_owned(),
        };
        let node = match &*it.hostname {
            "" => id(&it.node_uuid),
            hostname => hostname.to_owned(),
        };
        let peak = it.peak_kib.map(|kib| i64::try_from(kib.div_ceil(1024)));
        vec![
            id(&it.instance_uuid),
            or_unknown(&it.name),
            or_unknown(&it.program),
            or_unknown(&node),
            clock(it.ended_at_ms),
            it.outcome.to_string(),
            how(it),
            it.ran_ms.map_or_else(|| UNKNOWN.to_owned(), time),
            it.cpu_ms.map_or_else(|| UNKNOWN.to_owned(), time),
            peak.map_or_else(
                || UNKNOWN.to_owned(),
                |mib| mebibytes(mib.unwrap_or(i64::MAX)),
            ),
            it.restarts.to_string(),
        ]
    }

    fn json(&self) -> Value {
        json_of(&self.0)
    }
}

/// Exit status, signal, or why it never ran; and what else is said of it.
fn how(row: &EndedRun) -> String {
    let how = match &*row.failed {
        "" => how_it_exited(row.exit_code),
        reason => format!("not started: {reason}"),
    };
    let by = match &*row.by {
        "" => String::new(),
        by => format!("; by {by}"),
    };
    match &*row.detail {
        "" => format!("{how}{by}"),
        detail => format!("{how}{by}; {detail}"),
    }
}

/// A moment in the reader's zone, without milliseconds.
fn clock(at_ms: i64) -> String {
    let at = Timestamp::from_millisecond(at_ms);
    at.map_or_else(
        |_| UNKNOWN.to_owned(),
        |at| {
            let at = at.to_zoned(TimeZone::system());
            at.strftime("%F %T").to_string()
        },
    )
}

fn time(ms: u64) -> String {
    span_of_ms(i64::try_from(ms).unwrap_or(i64::MAX))
}

/// The same object as a row of `GET /v1/history`: what is not known is left out.
pub(super) fn json_of(row: &EndedRun) -> Value {
    let mut object = Map::new();
    for (key, value) in CSV.iter().zip(values(row)) {
        let is_always = ["number", "instance_uuid", "outcome", "ended_at_ms"].contains(key);
        let is_empty = value.is_null() || value == "" || value == 0 || value == json!({});
        // Counts of restarts and retries alone are left out at 0; other figures say that they are 0.
        if is_always || !is_empty || value == 0 && !["restarts", "retries"].contains(key) {
            object.insert((*key).to_owned(), value);
        }
    }
    object.into()
}

/// The values of [`CSV`].
fn values(row: &EndedRun) -> [Value; 25] {
    [
        row.number.into(),
        (*row.instance_uuid).into(),
        (*row.name).into(),
        (*row.array_uuid).into(),
        row.index.into(),
        (*row.program).into(),
        (*row.tenant).into(),
        (*row.node_uuid).into(),
        (*row.hostname).into(),
        row.outcome.as_str().into(),
        row.exit_code.into(),
        (*row.failed).into(),
        (*row.detail).into(),
        row.submitted_at_ms.into(),
        row.started_at_ms.into(),
        row.ended_at_ms.into(),
        row.run.into(),
        row.restarts.into(),
        row.retries.into(),
        row.ran_ms.into(),
        row.peak_kib.into(),
        row.cpu_ms.into(),
        row.output_bytes.into(),
        (*row.by).into(),
        row.labels.clone().into_iter().collect(),
    ]
}

/// A line of comma-separated values (RFC 4180); what is not known is empty.
fn csv_line(row: &EndedRun) -> String {
    let field = |value: Value| match value {
        Value::Null => String::new(),
        Value::String(text) if text.contains([',', '"']) => {
            format!("\"{}\"", text.replace('"', "\"\""))
        }
        Value::String(text) => text,
        Value::Object(labels) => {
            let labels: Vec<String> = labels
                .iter()
                .map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()))
                .collect();
            labels.join(" ")
        }
        other => other.to_string(),
    };
    values(row).map(field).join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row() -> EndedRun {
        EndedRun {
            number: 7,
            instance_uuid: "a".to_owned(),
            name: "one, \"two\"".to_owned(),
            outcome: EndOutcome::Failed,
            exit_code: Some(0),
            ended_at_ms: 1,
            cpu_ms: Some(0),
            ..EndedRun::default()
        }
    }

    #[test]
    fn a_line_of_values_quotes_what_has_commas() {
        let line = csv_line(&row());
        assert!(line.starts_with("7,a,\"one, \"\"two\"\"\",,"), "{line}");
        assert_eq!(
            line.replace("one, ", "").matches(',').count() + 1,
            CSV.len()
        );
    }

    #[test]
    fn an_object_leaves_out_what_is_not_known_and_no_figure_that_is_0() {
        let object = json_of(&row());
        assert_eq!(object["exit_code"], 0);
        assert_eq!(object["cpu_ms"], 0);
        assert!(object.get("ran_ms").is_none() && object.get("restarts").is_none());
    }

    #[test]
    fn totals_count_by_outcome_and_sum_processor_time() {
        let mut totals = Totals::default();
        for outcome in [
            EndOutcome::Failed,
            EndOutcome::Succeeded,
            EndOutcome::Failed,
        ] {
            totals.add(&EndedRun {
                outcome,
                cpu_ms: Some(1500),
                ran_ms: Some(2000),
                ..EndedRun::default()
            });
        }
        let line = totals.line();
        assert!(
            line.starts_with("3 ended: 1 succeeded, 2 failed; "),
            "{line}"
        );
        assert_eq!(totals.json()["cpu_ms"], 4500);
    }
}
