//! `ciaoctl history`: what became of an instance so far.

use jiff::Timestamp;
use jiff::tz::TimeZone;
use proto_frames::payload::HistoryRow;
use serde_json::{Value, json};

use crate::ctl::args::HistoryArgs;
use crate::ctl::commands::instances::instance;
use crate::ctl::commands::{CommandError, Context};
use crate::ctl::exit::Exit;
use crate::ctl::table::{Columns, grid};
use crate::ctl::units::{UNKNOWN, short};

const COLUMNS: Columns = &[
    ("TIME", false),
    ("WHAT", false),
    ("NODE", false),
    ("DETAIL", false),
];

/// Shows what became of an instance, the oldest first.
///
/// # Errors
/// [`CommandError`]; also for an instance of which the scheduler knows nothing.
pub async fn history(context: &mut Context<'_>, args: &HistoryArgs) -> Result<Exit, CommandError> {
    let meant = instance(&mut context.client, &args.instance).await;
    let id = match &meant {
        Ok(view) => view.instance_uuid.clone(),
        // One that is gone is not listed, and may have a history.
        Err(CommandError::Resolve(_)) => args.instance.clone(),
        Err(_) => return meant.map(|_| Exit::Done),
    };
    let rows = context.client.history(&id).await?;
    if rows.is_empty() {
        meant?;
    }
    if context.json {
        let rows: Vec<Value> = rows.iter().map(json_of).collect();
        let document = json!({ "instance_uuid": id, "history": rows });
        context.out.document(&document)?;
        return Ok(Exit::Done);
    }
    let zone = TimeZone::system();
    let cells: Vec<Vec<String>> = rows.iter().map(|row| cells(row, &zone)).collect();
    context
        .out
        .lines(&grid(COLUMNS, &cells, !args.no_headers))?;
    Ok(Exit::Done)
}

fn cells(row: &HistoryRow, zone: &TimeZone) -> Vec<String> {
    let time = Timestamp::from_millisecond(row.at_ms).map_or_else(
        |_| UNKNOWN.to_owned(),
        |at| {
            let at = at.to_zoned(zone.clone());
            at.strftime("%F %T%.3f").to_string()
        },
    );
    let node = match short(&row.node_uuid) {
        "" => UNKNOWN,
        node => node,
    };
    vec![time, row.what.clone(), node.to_owned(), row.detail.clone()]
}

fn json_of(row: &HistoryRow) -> Value {
    let time = Timestamp::from_millisecond(row.at_ms).ok();
    json!({
        "time": time.map(|at| at.to_string()),
        "at_ms": row.at_ms,
        "what": row.what,
        "node_uuid": row.node_uuid,
        "detail": row.detail,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_have_their_time_in_the_zone_of_the_reader() {
        let row = HistoryRow {
            at_ms: 1_795_000_000_123,
            what: "placed".into(),
            node_uuid: "4cb19522-aaaa".into(),
            ..HistoryRow::default()
        };
        let expected = ["2026-11-18 11:06:40.123", "placed", "4cb19522", ""];
        assert_eq!(cells(&row, &TimeZone::UTC), expected);
        assert_eq!(json_of(&row)["time"], "2026-11-18T11:06:40.123Z");
        let never = HistoryRow {
            at_ms: i64::MAX,
            ..HistoryRow::default()
        };
        assert_eq!(cells(&never, &TimeZone::UTC)[0], "-");
    }
}
