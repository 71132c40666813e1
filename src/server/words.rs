//! Every sentence for people about what the core decided: written into what it tells peers, clients of the HTTP API and the
//! store, before any of them gets it. The core knows causes as data alone.

mod cause;
mod declined;
mod drain;
mod no_fit;
mod unread;

use sched_core::{
    Action, Cause, Change, DrainStanding, Explained, Message, QueryProblem, Record, RowCauses,
    ShortText,
};
use sched_model::{
    InstanceView, NodeView, QueryKind, QueryResult, StartFailure, StoreState, StoreView,
};

pub(super) use self::cause::Why;

/// What is said of a disk that says nothing.
const SILENT_DISK: &str = "its disk has not answered in time";

/// Writes the sentences into what the core wants done.
pub(super) fn word(action: &mut Action) {
    match action {
        Action::Send { message, .. } => word_message(message),
        Action::Persist(change) => word_change(change),
        _ => {}
    }
}

/// A query's answer with its sentences.
pub(super) fn worded_page(mut page: Explained<QueryResult, RowCauses>) -> QueryResult {
    word_page(&mut page);
    page.payload
}

/// An instance's row with its sentence.
pub(super) fn worded_row(mut row: Explained<InstanceView>) -> InstanceView {
    row.payload.waits_for = short(&row.cause);
    row.payload
}

/// How the store is, with its sentence.
pub(super) fn worded_store(mut store: StoreView) -> StoreView {
    if store.state == StoreState::Refused && store.detail.is_empty() {
        SILENT_DISK.clone_into(&mut store.detail);
    }
    store
}

fn word_message(message: &mut Message) {
    match message {
        Message::StartFailure(it) | Message::StartFailureCopy(it) => word_failure(it),
        Message::InstanceQueued(it) => it.payload.detail = short(&it.cause),
        Message::InstanceState(it) => it.payload.detail = Why(&it.cause).to_string(),
        Message::CommandFailure(it) if it.cause != Cause::Plain => {
            it.payload.detail = short(&it.cause);
        }
        Message::PlacementDecision(it) => it.payload.detail = Why(&it.cause).to_string(),
        Message::DrainProgress(it) => drain::word(it),
        Message::NoOutput(it) => it.payload.detail = unread::NoOutput(&it.cause).to_string(),
        Message::QueryResult(page) => word_page(page),
        Message::Snapshot(page) => {
            let (payload, causes) = (&mut page.payload, &page.cause);
            word_nodes(&mut payload.nodes, &causes.drains);
            word_instances(&mut payload.instances, &causes.instances);
        }
        _ => {}
    }
}

/// What others have worded stays as it is.
fn word_failure(failure: &mut Explained<StartFailure>) {
    if failure.cause != Cause::Plain {
        failure.payload.detail = Some(Why(&failure.cause).to_string());
    }
}

fn word_page(page: &mut Explained<QueryResult, RowCauses>) {
    let (payload, causes) = (&mut page.payload, &page.cause);
    word_nodes(&mut payload.nodes, &causes.drains);
    word_instances(&mut payload.instances, &causes.instances);
    for (row, cause) in payload.history.iter_mut().zip(&causes.history) {
        row.detail = short(cause);
    }
    payload.store = payload.store.take().map(worded_store);
    payload.error = causes.problem.as_ref().map(|problem| match problem {
        QueryProblem::UnknownInstance(instance) => {
            format!("no instance '{instance}' is known, or was recently")
        }
        QueryProblem::UnknownCursor(after) => {
            format!("query.after is '{after}', which no earlier page gave as its next")
        }
        QueryProblem::UnknownKind(what) => {
            let known = QueryKind::KNOWN.join(", ");
            format!("query.what is '{what}': expected one of {known}")
        }
    });
}

fn word_nodes(rows: &mut [NodeView], drains: &[(usize, DrainStanding)]) {
    for (at, standing) in drains {
        if let Some(row) = rows.get_mut(*at) {
            row.drain = drain::standing(standing);
        }
    }
}

fn word_instances(rows: &mut [InstanceView], causes: &[Cause]) {
    for (row, cause) in rows.iter_mut().zip(causes) {
        row.waits_for = short(cause);
    }
}

fn word_change(change: &mut Change) {
    let records = change.entries.iter_mut();
    for record in records.filter_map(|(_, record)| record.as_mut()) {
        let history = match record {
            Record::Instance(record) => &mut record.history,
            Record::Run(record) => &mut record.history,
            Record::Node(_) | Record::Binding(_) | Record::Claims(_) => continue,
        };
        for event in history {
            event.detail = short(&event.cause).into();
        }
    }
}

/// A cause as people read it, cut where it is too long.
fn short(cause: &Cause) -> String {
    ShortText::from(Why(cause).to_string()).into()
}
