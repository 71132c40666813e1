//! Lists and single rows.
//!
//! A list may have a hundred thousand rows, and the core's lock may not be held for so long. So a page is gathered in
//! steps of [`ROWS_PER_STEP`] rows, between which the lock is free; rows become JSON, and selectors are tried, outside
//! it. The order of a query is stable, so what is there all the while is on some page, whatever comes and goes
//! meanwhile; and an instance is on one page, although it comes back from a lost node between two, and so is a node
//! ([`listings`]).
//!
//! [`listings`]: super::listings
//!
//! A selector is tried on JSON rows rather than in the core. A page whose selector few rows meet ends after
//! [`MAX_STEPS`] steps with what was found and where to go on; that is why a page may be short, or empty, without being
//! the last.

use std::collections::HashSet;

use axum::http::StatusCode;
use indexmap::IndexMap;
use proto_frames::Uuid;
use proto_frames::payload::cut::shorten;
use proto_frames::payload::{
    ControllerView, Expression, HistoryRow, InstanceView, NodeView, PlacementState, Query,
    QueryKind, QueryResult,
};
use sched_model::query::{DEFAULT_LIMIT, is_name_handed_on};
use sched_model::value::{Field, Record};
use serde_json::{Map, Value};
use tokio::time::{Instant, sleep_until};

use super::call::{Answer, Call, answer, answer_with, meets};
use super::commands::patience;
use super::interest::Filter;
use super::json::to_json;
use super::limits::{LOOK_EVERY, MAX_STEPS, ROWS_PER_STEP};
use super::listings::{Listed, Page, is_on_none};
use super::problem::Problem;
use super::ring::EventId;
use super::serve::App;
use crate::server::sentences::{worded_page, worded_row};
use sched_core::InstanceId;

/// A row as JSON.
type Row = Map<String, Value>;

/// What a page is to have.
struct Wanted<'a> {
    /// Which table.
    what: QueryKind,
    /// The beginning of an id, or a host name; for a history the instance.
    matching: Option<&'a str>,
    /// Rows wanted at most.
    limit: usize,
    /// What every row has to meet.
    selectors: Vec<Expression>,
}

/// `GET /v1/nodes`: nodes, lost ones included.
pub(super) async fn nodes(call: Call) -> Answer {
    list(call, QueryKind::Nodes, NodeView::FIELDS).await
}

/// `GET /v1/instances`: those that are placed, wait or are lost; with `?ended=true` those that have ended and are
/// remembered.
pub(super) async fn instances(call: Call) -> Answer {
    let what = match call.query.flag("ended") {
        true => QueryKind::Ended,
        false => QueryKind::Instances,
    };
    list(call, what, InstanceView::FIELDS).await
}

/// `GET /v1/queue`: what waits, in the order in which it is tried.
pub(super) async fn queue(call: Call) -> Answer {
    list(call, QueryKind::Queue, InstanceView::FIELDS).await
}

/// GET /v1/controllers.
pub(super) async fn controllers(call: Call) -> Answer {
    list(call, QueryKind::Controllers, ControllerView::FIELDS).await
}

/// `GET /v1/instances/{id}/history`: what became of one instance. 404 where nothing is remembered of it.
pub(super) async fn history(call: Call) -> Answer {
    list(call, QueryKind::History, HistoryRow::FIELDS).await
}

/// Answers with a page of rows, each cut down to `fields`. `known` are the fields of the row's type. The content is
/// `{"items": […], "next": …, "sequence": …}`.
///
/// # Errors
/// 400 for a field that rows do not have or a bad `after`; 404 for the history of an unknown instance.
pub(super) async fn list(call: Call, what: QueryKind, known: &[Field]) -> Answer {
    let fields = call.query.fields(known)?;
    // A history is of one instance, which the core expects where other queries have `match`.
    let matching = match what {
        QueryKind::History => Some(&*call.id),
        _ => call.query.text("match"),
    };
    let wanted = Wanted {
        what: what.clone(),
        matching,
        limit: call.query.number("limit").unwrap_or(DEFAULT_LIMIT) as usize,
        selectors: call.query.selectors(known)?,
    };
    let after = call.query.text("after");
    let key = listed_by(&what);
    let (of_list, after) = match key {
        Some(_) => Page::at(after),
        None => (Page::default(), after),
    };
    let page = page(&call.app, &wanted, after.map(str::to_owned)).await?;
    let (mut rows, mut next) = (page.rows, page.next);
    if let Some(key) = key {
        next = call.app.listings.pass(key, of_list, &mut rows, next);
    }
    if let Some(fields) = fields {
        for row in &mut rows {
            row.retain(|key, _| fields.contains(&&**key));
        }
    }
    let mut content = Map::new();
    let items = rows.into_iter().map(Value::Object);
    content.insert("items".to_owned(), items.collect());
    content.insert("next".to_owned(), next.into());
    if what == QueryKind::Ended {
        content.insert("forgotten".to_owned(), page.forgotten.into());
        content.insert("complete_for_ms".to_owned(), page.complete_for_ms.into());
    }
    Ok(answer(StatusCode::OK, page.at, content))
}

/// A page as it was gathered.
struct Gathered {
    /// The place in the stream of events at which it begins to hold.
    at: EventId,
    rows: Vec<Row>,
    /// Where to go on.
    next: Option<String>,
    /// Of those that have ended: how many earlier ends are forgotten, by the last step.
    forgotten: u64,
    /// Of those that have ended: for how long none was.
    complete_for_ms: Option<i64>,
}

/// Gathers a page of rows.
///
/// The place at which it holds is the first step's: what happens behind it may be in rows of later steps already, so a client that
/// follows from there may be told something twice, but misses nothing. At most [`MAX_STEPS`] steps.
///
/// # Errors
/// The core refuses the query.
async fn page(
    app: &App,
    wanted: &Wanted<'_>,
    mut after: Option<String>,
) -> Result<Gathered, Problem> {
    let mut rows = Vec::new();
    let mut begun = None;
    let (mut forgotten, mut complete_for_ms) = (0, None);
    let mut most = ROWS_PER_STEP;
    for _ in 0..MAX_STEPS {
        let left = wanted.limit - rows.len();
        // Without selectors all that is found is wanted. With them as much is tried as a step may, however few are wanted.
        if wanted.selectors.is_empty() {
            most = most.min(u32::try_from(left).unwrap_or(u32::MAX));
        }
        let (at, result) = app.look_up(&Query {
            what: wanted.what.clone(),
            matching: wanted.matching.map(str::to_owned),
            after: after.clone(),
            limit: Some(most),
            ..Query::default()
        });
        begun.get_or_insert(at);
        forgotten = result.forgotten.unwrap_or(0);
        complete_for_ms = result.complete_for_ms;
        if let Some(error) = result.error {
            return Err(refused(&wanted.what, error));
        }
        let looked_at = rows_of(&result);
        match last_wanted(&looked_at, &wanted.selectors, left) {
            // More was found than is wanted, and only the core knows how to go on behind a row that is not the last of a
            // step: the same once more, to that row.
            Some(count) if count < looked_at.len() => {
                most = u32::try_from(count).unwrap_or(ROWS_PER_STEP);
                continue;
            }
            _ => most = ROWS_PER_STEP,
        }
        // The place behind the last row that the step looked at, whether or not the row meets the selectors.
        after = result.next;
        let found = looked_at.into_iter();
        rows.extend(found.filter(|row| meets(row, &wanted.selectors)));
        // A step may have fewer rows than it was asked for and not be the last: the core bounds what one step looks at.
        if after.is_none() || rows.len() >= wanted.limit {
            break;
        }
        // Between two steps the lock is free, and other requests of this thread run.
        tokio::task::yield_now().await;
    }
    match listed_by(&wanted.what) {
        Some(Listed::Instances) => drop_superseded(&mut rows),
        Some(Listed::Nodes) => keep_latest(&mut rows),
        None => {}
    }
    Ok(Gathered {
        at: begun.unwrap_or_else(|| app.ring.end()),
        rows,
        next: after,
        forgotten,
        complete_for_ms,
    })
}

/// What of a list is to be on one page, as it may come and go between two; `None` where nothing is left out.
fn listed_by(what: &QueryKind) -> Option<Listed> {
    match what {
        QueryKind::Instances => Some(Listed::Instances),
        QueryKind::Nodes => Some(Listed::Nodes),
        _ => None,
    }
}

/// Leaves out the row of a node that a later step has once more: it came back between the two.
fn keep_latest(rows: &mut Vec<Row>) {
    let mut later = HashSet::new();
    let mut is_latest: Vec<bool> = rows
        .iter()
        .rev()
        .map(|row| match row.get("node_uuid").and_then(Value::as_str) {
            Some(node) => later.insert(node.to_owned()),
            None => true,
        })
        .collect();
    rows.retain(|_| is_latest.pop().unwrap_or(true));
}

/// Leaves out the row of an instance on no node that a later step has on one: it was placed, or its node came back,
/// between the two.
fn drop_superseded(rows: &mut Vec<Row>) {
    let id = |row: &Row| {
        row.get("instance_uuid")
            .and_then(Value::as_str)
            .map(str::to_owned)
    };
    let placed = rows.iter().filter(|row| !is_on_none(row));
    let placed: HashSet<_> = placed.filter_map(id).collect();
    rows.retain(|row| !is_on_none(row) || id(row).is_none_or(|id| !placed.contains(&id)));
}

/// With how many of these rows as many meet the selectors as are wanted; `None` if fewer do.
fn last_wanted(rows: &[Row], selectors: &[Expression], wanted: usize) -> Option<usize> {
    let met = rows.iter().enumerate();
    let mut met = met.filter(|(_, row)| meets(row, selectors));
    let (last, _) = met.nth(wanted.checked_sub(1)?)?;
    Some(last + 1)
}

/// What the core says is wrong with a query, by its sentence: it has no reason as data. Sentences about the cursor
/// begin with `query.after`.
fn refused(what: &QueryKind, error: String) -> Problem {
    match (what, error.starts_with("query.after")) {
        (_, true) => Problem::parameter("after", error.trim_start_matches("query.")),
        (QueryKind::History, _) => Problem::not_found("no_instance", error),
        _ => Problem::invalid_payload("", error),
    }
}

/// The rows of an answer as JSON. A query fills the one list that its kind has; the others are empty.
fn rows_of(result: &QueryResult) -> Vec<Row> {
    let nodes = result.nodes.iter().map(to_json);
    let instances = result.instances.iter().map(to_json);
    let controllers = result.controllers.iter().map(to_json);
    let history = result.history.iter().map(to_json);
    let arrays = result.arrays.iter().map(to_json);
    nodes
        .chain(instances)
        .chain(controllers)
        .chain(history)
        .chain(arrays)
        .collect()
}

/// `GET /v1/nodes/{id}`. `{id}` is a UUID or a host name.
///
/// # Errors
/// Those of [`find_node`]; 400 for a field that nodes do not have.
pub(super) async fn node(call: Call) -> Answer {
    let fields = call.query.fields(NodeView::FIELDS)?;
    let (at, node) = find_node(&call.app, &call.id).await?;
    let mut row = to_json(&node);
    if let Some(fields) = fields {
        row.retain(|key, _| fields.contains(&&**key));
    }
    Ok(answer_with(StatusCode::OK, at, "node", row.into()))
}

/// The node with this UUID or host name, and the place in the stream of events at which the row holds. A UUID counts
/// before a host name that looks the same. Also used by commands, which need the UUID.
///
/// The query matches ids by their beginning, so it may find nodes that are neither; those are left out. Steps end with
/// the first UUID that is it.
///
/// # Errors
/// 404 `no_such_node`; 409 `ambiguous` where several nodes have the host name.
pub(super) async fn find_node(app: &App, id: &str) -> Result<(EventId, NodeView), Problem> {
    let mut found: Vec<NodeView> = Vec::new();
    let mut after = None;
    let at = loop {
        let (at, mut result) = app.look_up(&Query {
            what: QueryKind::Nodes,
            matching: Some(id.to_owned()),
            after: after.take(),
            limit: Some(ROWS_PER_STEP),
            ..Query::default()
        });
        let is_it = |node: &NodeView| node.node_uuid == id || node.hostname == id;
        result.nodes.retain(is_it);
        found.append(&mut result.nodes);
        match result.next {
            Some(next) if found.iter().all(|node| node.node_uuid != id) => after = Some(next),
            _ => break at,
        }
        tokio::task::yield_now().await;
    };
    if let Some(exact) = found.iter().position(|node| node.node_uuid == id) {
        return Ok((at, found.swap_remove(exact)));
    }
    let shown = shorten(id);
    match found.len() {
        0 => Err(
            Problem::not_found("no_such_node", format!("no node '{shown}' is known"))
                .with_help("GET /v1/nodes lists those that are"),
        ),
        1 => Ok((at, found.swap_remove(0))),
        count => Err(Problem::new(
            StatusCode::CONFLICT,
            "ambiguous",
            format!("{count} nodes have the host name '{shown}'"),
        )
        .with_help("name it by its UUID")),
    }
}

/// The identifier of the instance that is meant: of the one that has this identifier, else of the one that is there and
/// is called so, else of the one called so that ended last. What is neither stays as it is: what that means is the
/// handler's. Steps as those of [`find_node`]; who is called what is not looked for where a UUID was given.
///
/// # Errors
/// 409 `ambiguous` where several that are there have the name, as in different tenants, or several tenants' that have
/// ended, or that ended and were there at once.
pub(super) async fn find_instance(app: &App, id: String) -> Result<String, Problem> {
    if Uuid::try_parse(&id).is_ok() || app.instance(&id).1.is_some() {
        return Ok(id);
    }
    let there = called(app, QueryKind::Instances, &id).await;
    let (mut found, list, is_one) = match there.is_empty() {
        false => {
            let is_one = there.len() == 1;
            (there, "GET /v1/instances", is_one)
        }
        true => {
            let mut ended = called(app, QueryKind::Ended, &id).await;
            ended.sort_by_key(|row| row.ended_at_ms);
            let is_one = ended.is_sorted_by(|before, after| {
                let end = (&*before.tenant, before.ended_at_ms);
                is_name_handed_on(end, (&after.tenant, after.began_at_ms))
            });
            (ended, "GET /v1/instances?ended=true", is_one)
        }
    };
    if !is_one {
        let detail = format!("{} instances are called '{}'", found.len(), shorten(&id));
        return Err(Problem::new(StatusCode::CONFLICT, "ambiguous", detail)
            .with_help(format!("name it by its UUID, which {list} lists")));
    }
    Ok(found.pop().map_or(id, |row| row.instance_uuid))
}

/// Who is or was called so: of a row no more than this, because there may be very many.
struct Called {
    instance_uuid: String,
    tenant: String,
    began_at_ms: Option<i64>,
    ended_at_ms: Option<i64>,
}

/// The instances called so, each once.
async fn called(app: &App, what: QueryKind, name: &str) -> Vec<Called> {
    let mut found: IndexMap<String, Called> = IndexMap::new();
    let mut after = None;
    loop {
        let (_, result) = app.look_up(&Query {
            what: what.clone(),
            matching: Some(name.to_owned()),
            after: after.take(),
            limit: Some(ROWS_PER_STEP),
            ..Query::default()
        });
        for row in result.instances.into_iter().filter(|row| row.name == name) {
            // Of several runs of one instance the last. Its place does not matter: they are put in order by their ends.
            let id = row.instance_uuid.clone();
            let called = Called {
                instance_uuid: row.instance_uuid,
                tenant: row.tenant,
                began_at_ms: row.began_at_ms,
                ended_at_ms: row.ended_at_ms,
            };
            found.insert(id, called);
        }
        after = result.next;
        if after.is_none() {
            return found.into_values().collect();
        }
        tokio::task::yield_now().await;
    }
}

/// `GET /v1/instances/{id}`: an instance wherever it is, else its latest run that is over and remembered. With `?wait=`
/// the answer comes once it has ended, or the time is over.
///
/// # Errors
/// 404 `no_instance`; 400 for a field that instances do not have.
pub(super) async fn instance(call: Call) -> Answer {
    let fields = call.query.fields(InstanceView::FIELDS)?;
    until_ended(&call).await;
    let (at, row) = call.app.instance(&call.id);
    let Some(mut row) = row.as_ref().map(to_json) else {
        return Err(no_instance(&call.id));
    };
    if let Some(fields) = fields {
        row.retain(|key, _| fields.contains(&&**key));
    }
    Ok(answer_with(StatusCode::OK, at, "instance", row.into()))
}

/// Waits as long as the request says until an instance has ended, is not known any more, or the scheduler leaves.
async fn until_ended(call: &Call) {
    let Some((deadline, _place)) = patience(call) else {
        return;
    };
    let own = Filter {
        instance: Some(call.id.clone()),
        ..Filter::default()
    };
    let news = call.app.ring.interests.register(&own);
    loop {
        let (_, row) = call.app.instance(&call.id);
        let is_there = row.is_some_and(|row| row.state != PlacementState::Ended);
        if !is_there || Instant::now() >= deadline {
            return;
        }
        let look = (Instant::now() + LOOK_EVERY).min(deadline);
        tokio::select! {
            () = news.told() => drop(news.take()),
            () = call.app.hub.leaving() => return,
            () = sleep_until(look) => {}
        }
    }
}

/// 404: no instance has this id, and none that is remembered had it.
pub(super) fn no_instance(id: &str) -> Problem {
    let detail = format!(
        "no instance '{}' is known, and none was recently",
        shorten(id)
    );
    Problem::not_found("no_instance", detail).with_help("GET /v1/instances lists those that are")
}

impl App {
    /// The answer to a query, and at which place in the stream of events it holds. Both are read under one hold of the
    /// core's lock; events are pushed to the ring under it, so that none is between them. The causes are put into words
    /// here as well.
    pub(super) fn look_up(&self, query: &Query) -> (EventId, QueryResult) {
        self.hub
            .ask_now(|scheduler, now| (self.ring.end(), worded_page(scheduler.look_up(now, query))))
    }

    /// The row of an instance, as [`App::look_up`]; `None` where nothing is known of it. A few look-ups by key, so that
    /// requests that wait may ask often.
    pub(super) fn instance(&self, id: &str) -> (EventId, Option<InstanceView>) {
        let instance = InstanceId::new(id);
        self.hub.ask_now(|scheduler, now| {
            let row = scheduler.explained_instance(now, &instance);
            (self.ring.end(), row.map(worded_row))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is left of these rows of one answer, by the ends of their identifiers.
    fn left(rows: &[(&str, PlacementState, &str)]) -> Vec<(String, String)> {
        let row = |(id, state, node): &(&str, PlacementState, &str)| {
            to_json(&InstanceView {
                instance_uuid: (*id).to_owned(),
                node_uuid: (*node).to_owned(),
                state: state.clone(),
                ..InstanceView::default()
            })
        };
        let mut rows: Vec<Row> = rows.iter().map(row).collect();
        drop_superseded(&mut rows);
        let text = |row: &Row, key: &str| row[key].as_str().unwrap().to_owned();
        let shown = rows.iter();
        shown
            .map(|row| (text(row, "instance_uuid"), text(row, "state")))
            .collect()
    }

    #[test]
    fn what_came_back_between_two_steps_of_one_answer_is_in_it_once() {
        use PlacementState::{Lost, Running, Waiting};
        let rows = [
            ("back", Lost, "n"),
            ("still", Lost, "n"),
            ("placed", Waiting, ""),
            ("waits", Waiting, ""),
            ("back", Running, "n"),
            ("placed", Running, "m"),
            // Two nodes list it: people have to see that.
            ("twice", Running, "n"),
            ("twice", Running, "m"),
        ];
        let expected = [
            ("still", "lost"),
            ("waits", "waiting"),
            ("back", "running"),
            ("placed", "running"),
            ("twice", "running"),
            ("twice", "running"),
        ];
        let expected = expected.map(|(id, state)| (id.to_owned(), state.to_owned()));
        assert_eq!(left(&rows), expected);
    }

    #[test]
    fn a_node_that_came_back_between_two_steps_of_one_answer_is_in_it_once() {
        let rows = [("a", "EXPECTED"), ("b", "LOST"), ("a", "READY")];
        let row = |(id, status): (&str, &str)| {
            to_json(&NodeView {
                node_uuid: id.to_owned(),
                status: status.to_owned(),
                ..NodeView::default()
            })
        };
        let mut rows: Vec<Row> = rows.map(row).into();
        keep_latest(&mut rows);
        assert_eq!(rows, [("b", "LOST"), ("a", "READY")].map(row));
    }

    #[test]
    fn rows_without_an_identifier_stay() {
        let node = to_json(&NodeView::default());
        let mut rows = vec![node, Row::new()];
        drop_superseded(&mut rows);
        assert_eq!(rows.len(), 2);
    }
}
