//! `GET /v1/status`: the scheduler, and the cluster at a glance. What a page needs to draw its head, or a script to see
//! whether all is well, in one request: sums, no rows.

use axum::http::StatusCode;
use serde_json::{Map, Value, json};

use super::call::{Answer, Call, answer};
use super::configuration::version_json;
use super::ring::EventId;
use super::routes::Access;
use super::serve::App;
use crate::server::restore::unix_ms;
use crate::server::sentences::{of_schedulers, worded_condition, worded_store};
use sched_core::{Condition, ResourceTotal, Totals, TotalsCursor, about};
use sched_model::{SchedulersView, StoreView};

/// `GET /v1/status`. Totals are summed in steps ([`App::totals`]); counters, queue and store are read in one step
/// behind them, so the two parts may differ by what happened in between. `sequence` is that of the first step.
///
/// Amounts of `mem_mb` and `disk_mb` are in MiB, except that what is `used` of disk is in 10⁶ bytes, as launchers
/// report it. `caller` says what the certificate of this request may do, so that a page can leave out commands that
/// would be refused.
pub(super) async fn status(call: Call) -> Answer {
    let app = &call.app;
    let (at, totals) = app.totals().await;
    // One hold of the lock, so that these belong together.
    let (counters, glance, store, conditions, process) = app.hub.read_now(|scheduler, now| {
        (
            scheduler.counters(),
            scheduler.glance(),
            worded_store(scheduler.store(now)),
            scheduler.conditions(now),
            about(scheduler).clone(),
        )
    });
    let schedulers = app.hub.schedulers();
    let conditions = not_well(&conditions, &store, schedulers.as_ref());
    // By the monotonic clock; `started_at_ms` is what that comes to on the wall clock at this moment.
    let uptime = app.started.elapsed();
    let mut by_status: Map<String, Value> = Map::new();
    for (kind, count) in &totals.nodes {
        // Nodes are counted by role and status; here roles do not matter.
        let before = by_status.get(kind.status).and_then(Value::as_u64);
        let sum = before.unwrap_or_default() + count;
        by_status.insert(kind.status.to_owned(), sum.into());
    }
    let custom = totals.custom.iter();
    // Those that the configuration names, and the others together as `other`.
    let custom: Map<String, Value> = custom
        .map(|(name, it)| (name.clone(), resource(it)))
        .collect();
    let content = json!({
        "version": env!("CARGO_PKG_VERSION"),
        "uuid": app.hub.uuid.to_string(),
        "role": if app.hub.is_shutting_down() { "leaving" } else { "active" },
        "caller": {
            "role": call.connection.identity.roles.to_string(),
            "may_command": call.connection.identity.roles.intersects(Access::Command.roles()),
        },
        "uptime_s": uptime.as_secs(),
        "started_at_ms": unix_ms().saturating_sub(u64::try_from(uptime.as_millis()).unwrap_or(u64::MAX)),
        "nodes": {"total": totals.nodes.values().sum::<u64>(), "by_status": by_status},
        "instances": {
            "on_nodes": totals.instances,
            "unconfirmed": totals.unconfirmed,
            "in_doubt": totals.in_doubt,
            "queued": glance.queued,
        },
        "controllers": glance.controllers,
        "well": conditions.is_empty(),
        "conditions": conditions,
        "configuration": version_json(process.configuration.as_ref()),
        "log_levels": process.log_levels,
        "recovering": glance.is_recovering,
        "schedulers": schedulers.as_ref().map(super::json::to_json),
        "store": super::json::to_json(&store),
        "resources": {
            "mem_mb": resource(&totals.mem),
            "vcpus": resource(&totals.vcpus),
            "disk_mb": resource(&totals.disk),
            "custom": custom,
        },
        // Since the scheduler began.
        "starts": {
            "total": counters.starts,
            "placed": counters.placed,
            "failed": counters.failed,
        },
    });
    // `json!` of an object always is one.
    let content = match content {
        Value::Object(content) => content,
        _ => Map::new(),
    };
    Ok(answer(StatusCode::OK, at, content))
}

/// What is not well, of the cluster and of the schedulers behind one name.
fn not_well(
    conditions: &[Condition],
    store: &StoreView,
    schedulers: Option<&SchedulersView>,
) -> Vec<Value> {
    let conditions = conditions.iter().map(|it| worded_condition(it, store));
    let of_schedulers = schedulers.into_iter().flat_map(of_schedulers);
    let all = conditions.chain(of_schedulers);
    all.map(|it| super::json::to_json(&it).into()).collect()
}

/// One resource's sums. `largest_free` is the most that is free on one node, which is what bounds a START, unlike the
/// sum.
fn resource(total: &ResourceTotal) -> Value {
    json!({
        "capacity": total.capacity,
        "claimed": total.claimed,
        "used": total.used,
        "largest_free": total.largest_free,
    })
}

impl App {
    /// Sums the cluster in steps of some hundred nodes, between which others get the core's lock; and the place in the
    /// stream of events at which the first step was. Nodes that come or go meanwhile are counted or not. Also used by
    /// `GET /metrics`.
    pub(super) async fn totals(&self) -> (EventId, Totals) {
        let mut totals = Totals::default();
        let mut next = Some(TotalsCursor::default());
        let mut begun = None;
        while let Some(from) = next {
            next = self.hub.read_now(|scheduler, _| {
                begun.get_or_insert_with(|| self.ring.end());
                scheduler.add_totals(from, &mut totals)
            });
            tokio::task::yield_now().await;
        }
        (begun.unwrap_or_else(|| self.ring.end()), totals)
    }
}
