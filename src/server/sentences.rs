//! Every sentence for people about what the core decided: written into what it tells peers, clients of the HTTP API and
//! the store, before any of them gets it. The core knows causes as data alone.
//!
//! [`super::hub`] calls [`word`] for each action as it takes it from the core, under its lock, before it is queued,
//! stored or logged; the pages that the HTTP API reads without an action go through [`worded_page`], [`worded_row`] and
//! [`worded_store`]. Nothing else writes sentences about decisions. Lines of the log about the daemon itself are made
//! in [`super::notices`], refusals of frames in [`super::wire`].
//!
//! Each file words one type of cause: [`cause`] those of instances, [`declined`] refused STARTs and commands,
//! [`no_fit`] what nodes lack, [`condition`] what is not well, [`drain`] drains, [`unread`] output that cannot be had. To change a sentence is to
//! change what operators grep for: `CHANGELOG.md` says so.
//!
//! ```text
//! core: StartFailure { detail: None } with Cause::NoFit(…)
//! word: StartFailure { detail: "none of 12 compute nodes fits: 10 short of mem_mb (…); 2 cordoned" }
//! ```

mod cause;
mod condition;
mod declined;
mod drain;
mod no_fit;
mod schedulers;
mod unread;

use sched_core::{
    Action, Cause, Change, DrainSummary, Explained, Lack, Message, QueryProblem, Record, RowCauses,
    RunRecord, ShortText,
};
use sched_model::cut::shorten;
use sched_model::{
    InstanceView, NodeView, QueryKind, QueryResult, StartFailure, StoreState, StoreView,
};

pub(super) use self::cause::Why;
pub(super) use self::condition::{certificate, worded as worded_condition};
pub(super) use self::schedulers::of_schedulers;

/// The reason given for a store whose disk does not answer: there is no error of the system to show.
const SILENT_DISK: &str = "its disk has not answered in time";

/// What a node lacks, in words that follow it or a number of nodes.
pub(super) fn lacking(lack: &Lack) -> String {
    no_fit::Lacking(lack).to_string()
}

/// Writes the sentences into what the core wants done. Called once for each action, under the core's lock, as it is
/// taken from the core; most actions carry no cause and pass as they are.
pub(super) fn write(action: &mut Action) {
    match action {
        Action::Send { message, .. } => word_message(message),
        Action::Persist(change) => word_change(change),
        _ => {}
    }
}

/// A query's answer with its sentences. For the HTTP API, which reads a page from the core directly, and calls this
/// while it holds the core's lock.
pub(super) fn worded_page(mut page: Explained<QueryResult, RowCauses>) -> QueryResult {
    word_page(&mut page);
    page.payload
}

/// An instance's row with its sentence. Only `waits_for` is for people; all other columns are values.
pub(super) fn worded_row(mut row: Explained<InstanceView>) -> InstanceView {
    row.payload.waits_for = short(&row.cause);
    row.payload
}

/// How the store is, with its sentence. The core gives no detail where the disk said nothing at all.
pub(super) fn worded_store(mut store: StoreView) -> StoreView {
    if store.state == StoreState::Refused && store.detail.is_empty() {
        SILENT_DISK.clone_into(&mut store.detail);
    }
    store
}

/// Puts the sentences into a message's payload. Those that carry none are passed over: forwarded frames keep the words
/// of their senders. Matches on the kinds that have a sentence; one that gains one must be added here.
fn word_message(message: &mut Message) {
    match message {
        Message::StartFailure(it) | Message::StartFailureCopy(it) => word_failure(it),
        Message::InstanceQueued(it) => it.payload.detail = short(&it.cause),
        Message::InstanceState(it) => it.payload.detail = Why(&it.cause).to_string(),
        // A launcher's own failure comes without a cause, and with its own detail.
        Message::CommandFailure(it) if it.cause != Cause::Plain => {
            it.payload.detail = short(&it.cause);
        }
        Message::PlacementDecision(it) => it.payload.detail = Why(&it.cause).to_string(),
        Message::DrainProgress(it) => drain::word(it),
        Message::NoOutput(it) => it.payload.detail = unread::NoOutput(&it.cause).to_string(),
        Message::QueryResult(page) => word_page(page),
        Message::Snapshot(page) => {
            let (payload, causes) = (&mut page.payload, &page.cause);
            // A snapshot is a page for a controller that becomes master: its rows are those of a query.
            word_nodes(&mut payload.nodes, &causes.drains);
            word_instances(&mut payload.instances, &causes.instances);
        }
        _ => {}
    }
}

/// A failure without a cause is a launcher's, which has its own detail; that one stays as it is.
fn word_failure(failure: &mut Explained<StartFailure>) {
    if failure.cause != Cause::Plain {
        failure.payload.detail = Some(Why(&failure.cause).to_string());
    }
}

/// Puts the sentences into a page: causes stand in the order of the rows they belong to, drains by the row's index.
fn word_page(page: &mut Explained<QueryResult, RowCauses>) {
    let (payload, causes) = (&mut page.payload, &page.cause);
    word_nodes(&mut payload.nodes, &causes.drains);
    word_instances(&mut payload.instances, &causes.instances);
    for (row, cause) in payload.history.iter_mut().zip(&causes.history) {
        row.detail = short(cause);
    }
    if let Some(status) = &mut payload.status {
        let store = worded_store(status.store.clone());
        let worded = causes
            .conditions
            .iter()
            .map(|it| worded_condition(it, &store));
        status.conditions = worded.collect();
        status.well = Some(status.conditions.is_empty());
    }
    payload.store = payload.store.take().map(worded_store);
    // Mistakes in the query itself. The HTTP API and `ciaoctl` show these texts as they are.
    payload.error = causes.problem.as_ref().map(|problem| match problem {
        QueryProblem::UnknownInstance(instance) => {
            format!(
                "no instance '{}' is known, or was recently",
                shorten(&instance.to_string())
            )
        }
        QueryProblem::UnknownCursor(after) => {
            format!(
                "query.after is '{}', which no earlier page gave as its next",
                shorten(after)
            )
        }
        QueryProblem::UnknownKind(what) => {
            let known = QueryKind::KNOWN.join(", ");
            format!("query.what is '{}': expected one of {known}", shorten(what))
        }
    });
}

/// Only nodes that are being drained have an entry, so this goes by index.
fn word_nodes(rows: &mut [NodeView], drains: &[(usize, DrainSummary)]) {
    for (at, summary) in drains {
        if let Some(row) = rows.get_mut(*at) {
            row.drain = drain::summary(summary);
        }
    }
}

/// One cause for each row; rows and causes are built together in the core.
fn word_instances(rows: &mut [InstanceView], causes: &[Cause]) {
    for (row, cause) in rows.iter_mut().zip(causes) {
        row.waits_for = short(cause);
    }
}

/// History is stored with its sentences, so that the next run shows them unchanged, even if this table has other
/// sentences by then.
fn word_change(change: &mut Change) {
    let records = change.entries.iter_mut();
    for record in records.filter_map(|(_, record)| record.as_mut()) {
        let history = match record {
            Record::Instance(record) => &mut record.history,
            Record::Run(record) => &mut record.history,
            Record::Node(_)
            | Record::Binding(_)
            | Record::Claims(_)
            | Record::Array(_)
            | Record::ArrayProgress(_) => continue,
        };
        for event in history {
            event.detail = short(&event.cause).into();
        }
    }
}

/// A run that is over with its sentences, as a change to be put on disk has them.
pub(super) fn worded_run(mut run: RunRecord) -> RunRecord {
    for event in &mut run.history {
        event.detail = short(&event.cause).into();
    }
    run
}

/// A cause as people read it, cut where it is too long. [`ShortText`] bounds it, because rows and history are kept and
/// sent by the thousand, and a cause may repeat text of a launcher.
fn short(cause: &Cause) -> String {
    ShortText::from(Why(cause).to_string()).into()
}
