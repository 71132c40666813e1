//! What `ciaoctl` prints of frames from the scheduler: nothing that a terminal or a reader of lines would obey.

use ciao_scheduler::ctl::event::Event;
use ciao_scheduler::ctl::explanation::{Explanation, Of, reasons_table};
use ciao_scheduler::ctl::resolve::{Candidate, resolve};
use ciao_scheduler::ctl::table::{Queued, Row, Style, Wide, document, ids, table};
use ciao_scheduler::printable::{self, Lines, Printable, is_unprintable, is_word};
use proto_frames::{Frame, Kind, Uuid};
use serde_json::Value;

use crate::choice;

/// The kinds that the scheduler sends to an operator.
pub const PRINTED: &[Kind] = &[
    Kind::QUERY_RESULT,
    Kind::START_FAILURE,
    Kind::PLACEMENT_DECISION,
    Kind::STATS,
    Kind::INSTANCE_STATE,
    Kind::INSTANCE_QUEUED,
    Kind::COMMAND_FAILURE,
    Kind::DRAIN_PROGRESS,
    Kind::COMMAND_REFUSED,
    Kind::NODE_CONNECTED,
    Kind::NODE_DISCONNECTED,
    Kind::INSTANCE_PLACED,
    Kind::INSTANCE_DELETED,
    Kind::INSTANCE_STOPPED,
    Kind::DELETE_FAILURE,
    Kind::ATTACH_VOLUME_FAILURE,
    Kind::CONCENTRATOR_INSTANCE_ADDED,
    Kind::new(3, 0x7f),
];

/// First byte: the kind of a frame. The rest is its payload.
pub fn printers(data: &[u8]) {
    let Some((which, payload)) = choice(data) else {
        return;
    };
    let kind = PRINTED[which % PRINTED.len()];
    let event = Event::from_frame(&Frame::new(kind, Uuid::nil(), payload.to_vec()));
    shows(&event.line());
    shows_json(&event.json());
    match event {
        Event::QueryResult(result) => {
            rows(&result.nodes);
            rows(&result.nodes.into_iter().map(Wide).collect::<Vec<_>>());
            rows(&result.controllers);
            rows(&result.instances);
            rows(
                &result
                    .instances
                    .iter()
                    .cloned()
                    .map(Wide)
                    .collect::<Vec<_>>(),
            );
            rows(&result.instances.into_iter().map(Queued).collect::<Vec<_>>());
        }
        Event::StartFailure(failure) => {
            shows_all(&reasons_table(&failure.reasons, None));
            let name = failure.instance_uuid.clone();
            shows_all(&Explanation::of_failure(name, 1, *failure).text(None));
        }
        Event::Decided(decision) => {
            let name = decision.instance_uuid.clone();
            let explanation = Explanation {
                name,
                node: None,
                nearest: None,
                decision: *decision,
                of: Of::Start,
            };
            shows_all(&explanation.text(None));
            shows_json(&explanation.json());
        }
        _ => {}
    }
}

/// Rows in every form in which they are listed, and names of which several fit.
fn rows<R: Row>(rows: &[R]) {
    for (headers, full_ids) in [(true, false), (false, true)] {
        let lines = table(
            rows,
            Style {
                headers,
                full_ids,
                width: None,
            },
        );
        assert_eq!(
            lines.len(),
            rows.len() + usize::from(headers),
            "a row is a line"
        );
        shows_all(&lines);
    }
    let (words, left_out) = ids(rows);
    assert_eq!(words.len() + left_out, rows.len());
    for (word, row) in words
        .iter()
        .zip(rows.iter().filter(|row| is_word(row.id())))
    {
        assert_eq!(&**word, row.id(), "a list for pipes changes no identifier");
    }
    shows_json(&document(rows));
    let candidate = |row: &R| Candidate {
        uuid: row.id().to_owned(),
        hostname: row.other_id().map(str::to_owned),
        about: row.id().to_owned(),
    };
    let candidates: Vec<Candidate> = rows.iter().map(candidate).collect();
    let name = rows.first().map_or("", |row| row.id());
    if let Err(error) = resolve("instance", name, candidates) {
        shows(&Printable::new(&error));
        shows_all(&error.candidates());
    }
}

fn shows_all(lines: &Lines) {
    let text = lines.to_string();
    assert_eq!(text.lines().count(), lines.len(), "a line is a line");
    lines.iter().for_each(shows);
}

fn shows(line: &Printable) {
    assert!(!line.contains(is_unprintable), "{line:?}");
}

/// In JSON line ends are escaped as well; and a program reads what was there.
fn shows_json(value: &Value) {
    let line = printable::json(value.to_string());
    assert!(!line.contains(is_unprintable), "{line:?}");
    let back: Value = serde_json::from_str(&line).expect("escaped JSON is JSON");
    assert_eq!(back, *value);
}
