//! `ciaoctl nodes`, `instances`, `queue`, `controllers`.
//!
//! Each command asks, filters what the scheduler cannot filter, and prints through `print`, which knows all output
//! formats. `--watch` repeats the whole command with `repeat`.

use std::time::Duration;

use proto_frames::payload::{Expression, NodeView, QueryKind, StoreState, StoreView};
use serde_json::{Value, json};
use tokio::time::MissedTickBehavior;

use crate::ctl::args::{InstanceListArgs, ListArgs, ListFormat, NodeListArgs};
use crate::ctl::commands::history::remark_reach;
use crate::ctl::commands::{CommandError, Context};
use crate::ctl::exit::Exit;
use crate::ctl::natural::by_name;
use crate::ctl::table::{Queued, Row, Style, Wide, WithEnded, document, ids, names, table};
use crate::ctl::units::span;
use crate::printable::{Lines, Printable, counted};

/// Lists the nodes, by host name.
///
/// Those without one come last. Selectors are applied here, over labels; the scheduler filters by host name and UUID only.
///
/// # Errors
/// [`CommandError`].
pub async fn nodes(context: &mut Context<'_>, args: &NodeListArgs) -> Result<Exit, CommandError> {
    repeat(context, args.list.list.watch, async |context| {
        list_nodes(context, args).await
    })
    .await
}

/// One look of [`nodes`].
async fn list_nodes(context: &mut Context<'_>, args: &NodeListArgs) -> Result<Exit, CommandError> {
    let list = &args.list.list;
    let listing = context
        .client
        .list(QueryKind::Nodes, list.matching.as_deref())
        .await?;
    let mut nodes = listing.nodes;
    nodes.retain(|node| args.selector.iter().all(|selector| is_met(selector, node)));
    nodes.sort_by(|a, b| {
        let is_nameless = |node: &NodeView| node.hostname.is_empty();
        let by_host = || by_name(&a.hostname, &b.hostname);
        let by_uuid = || a.node_uuid.cmp(&b.node_uuid);
        let by_name = is_nameless(a).cmp(&is_nameless(b)).then_with(by_host);
        by_name.then_with(by_uuid)
    });
    if args.list.is_wide() {
        let wide: Vec<Wide<NodeView>> = nodes.into_iter().map(Wide).collect();
        return print(context, list, &wide);
    }
    print(context, list, &nodes)
}

/// Lists the instances.
///
/// Running, waiting and lost ones; with `--all` also what has ended.
///
/// # Errors
/// [`CommandError`].
pub async fn instances(
    context: &mut Context<'_>,
    args: &InstanceListArgs,
) -> Result<Exit, CommandError> {
    repeat(context, args.list.list.watch, async |context| {
        list_instances(context, args).await
    })
    .await
}

/// With `--all` there are other columns, so that `--wide` is not possible with it.
async fn list_instances(
    context: &mut Context<'_>,
    args: &InstanceListArgs,
) -> Result<Exit, CommandError> {
    let list = &args.list.list;
    let listing = context
        .client
        .list(QueryKind::Instances, list.matching.as_deref())
        .await?;
    if args.all {
        let matching = list.matching.as_deref();
        let ended = context.client.ended_history(matching).await?;
        remark_reach(context, &ended)?;
        let all = listing.instances.into_iter().chain(ended.instances);
        let all: Vec<WithEnded> = all.map(WithEnded).collect();
        return print(context, list, &all);
    }
    if args.list.is_wide() {
        let wide: Vec<Wide<_>> = listing.instances.into_iter().map(Wide).collect();
        return print(context, list, &wide);
    }
    print(context, list, &listing.instances)
}

/// Lists the STARTs that wait, in the order in which they will be looked at.
///
/// # Errors
/// [`CommandError`].
pub async fn queue(context: &mut Context<'_>, args: &ListArgs) -> Result<Exit, CommandError> {
    repeat(context, args.watch, async |context| {
        list_queue(context, args).await
    })
    .await
}

async fn list_queue(context: &mut Context<'_>, args: &ListArgs) -> Result<Exit, CommandError> {
    let listing = context
        .client
        .list(QueryKind::Queue, args.matching.as_deref())
        .await?;
    let rows: Vec<Queued> = listing.instances.into_iter().map(Queued).collect();
    print(context, args, &rows)
}

/// Lists the controllers and operators, and says how the scheduler's state directory is.
///
/// A state directory that cannot be written is a remark on standard error for people, and the key `store` for
/// programs.
///
/// # Errors
/// [`CommandError`].
pub async fn controllers(context: &mut Context<'_>, args: &ListArgs) -> Result<Exit, CommandError> {
    repeat(context, args.watch, async |context| {
        list_controllers(context, args).await
    })
    .await
}

/// A scheduler that says nothing of its state directory gets the plain list.
async fn list_controllers(
    context: &mut Context<'_>,
    args: &ListArgs,
) -> Result<Exit, CommandError> {
    let listing = context
        .client
        .list(QueryKind::Controllers, args.matching.as_deref())
        .await?;
    let Some(store) = listing.store else {
        return print(context, args, &listing.controllers);
    };
    // The same document as for other lists, and one key more.
    let mut document = document(&listing.controllers);
    document["store"] = store_json(&store);
    match args.format(context.json) {
        ListFormat::Json => {
            context.out.document(&document)?;
            return Ok(Exit::Done);
        }
        ListFormat::Yaml => {
            context.out.yaml(&document)?;
            return Ok(Exit::Done);
        }
        _ => {}
    }
    if store.state == StoreState::Refused {
        context.out.remark(&Printable::new(store_remark(&store)))?;
    }
    print(context, args, &listing.controllers)
}

/// `since_s` and `detail` are null while it can be written.
fn store_json(store: &StoreView) -> Value {
    json!({
        "state": store.state.as_str(),
        "since_s": store.since_s,
        "detail": (!store.detail.is_empty()).then_some(&store.detail),
        "waiting": store.waiting,
    })
}

/// The remark about a state directory that cannot be written.
fn store_remark(store: &StoreView) -> String {
    let since = i64::try_from(store.since_s.unwrap_or_default()).unwrap_or(i64::MAX);
    let waiting = match store.waiting {
        1 => "1 thing waits".to_owned(),
        several => format!("{several} things wait"),
    };
    format!(
        "the scheduler has not been able to write its state directory for {}: {}; {waiting} for it, and nothing is taken in that \
         has to survive a restart",
        span(since),
        store.detail
    )
}

/// Whether a node's labels meet an expression, as they would for a START that requires it.
///
/// A negative test such as `!=` is true for a node without the label.
fn is_met(expression: &Expression, node: &NodeView) -> bool {
    let mut values = node.labels.get(expression.key()).into_iter().flatten();
    let test = expression.test();
    values.any(|value| test.holds_for(value)) != test.is_negative()
}

/// Identifiers are cut in tables alone. `--quiet` replaces the table by UUIDs; with `--json` it has no effect.
pub(super) fn print<R: Row>(
    context: &mut Context<'_>,
    args: &ListArgs,
    rows: &[R],
) -> Result<Exit, CommandError> {
    let style = Style {
        headers: !args.no_headers,
        full_ids: args.full,
        width: context.out.width().filter(|_| !args.is_wide()),
    };
    let out = &mut context.out;
    match args.format(context.json) {
        ListFormat::Json => out.document(&document(rows))?,
        ListFormat::Yaml => out.yaml(&document(rows))?,
        ListFormat::Jsonl => {
            for row in rows {
                out.document_line(&row.json())?;
            }
        }
        ListFormat::Name => words(context, names(rows))?,
        ListFormat::Table | ListFormat::Wide if args.quiet => words(context, ids(rows))?,
        ListFormat::Table | ListFormat::Wide => out.lines(&table(rows, style))?,
    }
    Ok(Exit::Done)
}

/// Prints words for another program, and says how many could not be.
///
/// The remark goes to standard error, so that the pipe carries only words.
fn words(context: &mut Context<'_>, (words, left_out): (Lines, usize)) -> Result<(), CommandError> {
    context.out.lines(&words)?;
    if left_out > 0 {
        let left_out = counted(left_out as u64, "identifier");
        context.out.remark(&Printable::new(format_args!(
            "{left_out} left out: with white space, quotes, a dash in front or characters that are \
             not shown, another program would take them for something else; --json lists them all"
        )))?;
    }
    Ok(())
}

/// Does something once, or with an interval again and again, each time on an empty screen or behind an empty line.
///
/// Ends only with an error, for example a lost connection, or with Ctrl-C. A look that takes longer than the interval
/// delays the next one instead of being followed by several at once.
///
/// # Errors
/// [`CommandError`].
pub(super) async fn repeat<'c>(
    context: &mut Context<'c>,
    interval: Option<Duration>,
    once: impl AsyncFn(&mut Context<'c>) -> Result<Exit, CommandError>,
) -> Result<Exit, CommandError> {
    let Some(interval) = interval else {
        return once(context).await;
    };
    let mut looks = tokio::time::interval(interval);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut is_first = true;
    loop {
        looks.tick().await;
        if !std::mem::take(&mut is_first) && !context.out.is_terminal() {
            context.out.line(&Printable::default())?;
        }
        context.out.clear()?;
        once(context).await?;
        context.out.flush()?;
    }
}
