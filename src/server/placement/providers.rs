//! Resource providers: the list, and what is below one of them (inventories, usages, aggregates, traits). A provider is
//! a node that has reported what it has; there are no nested ones, so each is the root of its own tree.
//!
//! The list reads all nodes, a few hundred while the core's lock is held once; what is about a single node is one
//! look-up. All answers about one node have its `generation`, which is larger whenever its labels, size or
//! configuration have changed, and begins again with the process.

use std::borrow::Cow;

use proto_frames::Uuid;
use serde_json::{Map, Value, json};

use super::door::{Call, Reply};
use super::fault::{Fault, repeated};
use super::names::{COMPUTE, DISABLED, aggregate_uuid, class, trait_of, units_down, units_up};
use super::params::{Known, read_uuid};
use super::version::Version;
use crate::server::hub::Hub;
use sched_core::{Provider, ProvidersCursor, Stock};

/// Parameters of the list, each with the microversion that brought it.
const PARAMS: [Known; 6] = [
    ("name", 0),
    ("uuid", 0),
    ("member_of", 3),
    ("resources", 4),
    ("in_tree", 14),
    ("required", 18),
];

/// What every row has, copied while the core's lock is held; it becomes JSON outside it.
#[derive(Debug)]
pub(super) struct Row {
    uuid: Uuid,
    /// The host name; the UUID of a node without one, since OpenStack's clients expect a name.
    name: String,
    generation: u64,
}

impl Row {
    /// Reads a row.
    pub(super) fn of(provider: &Provider<'_>) -> Self {
        let uuid = provider.uuid();
        Self {
            uuid,
            name: name_of(provider).into_owned(),
            generation: provider.generation(),
        }
    }

    /// The row as a version has it. Links to what that version does not have are left out.
    fn json(&self, call: &Call<'_>) -> Value {
        let (uuid, version) = (self.uuid.to_string(), call.version);
        let path = format!("{}/resource_providers/{uuid}", call.base);
        let below = [
            ("inventories", 0),
            ("usages", 0),
            ("aggregates", 1),
            ("traits", 6),
            ("allocations", 11),
        ];
        // Links that the version does not have are left out.
        let below = below.iter().filter(|(_, since)| Version(*since) <= version);
        let links = below.map(|(rel, _)| json!({"rel": rel, "href": format!("{path}/{rel}")}));
        let own = json!({"rel": "self", "href": path});
        let links: Vec<Value> = std::iter::once(own).chain(links).collect();
        let mut row = json!({
            "uuid": uuid,
            "name": self.name,
            "generation": self.generation,
            "links": links,
        });
        // 1.14 brought trees of providers. Each node is a tree by itself.
        if version >= Version(14) {
            row["parent_provider_uuid"] = Value::Null;
            row["root_provider_uuid"] = uuid.into();
        }
        row
    }
}

/// What a node is called: its host name, or its UUID if it has none.
fn name_of<'a>(provider: &Provider<'a>) -> Cow<'a, str> {
    match provider.hostname() {
        "" => provider.uuid().to_string().into(),
        name => name.into(),
    }
}

/// `GET /resource_providers`: nodes that meet all parameters, by the figures that they have at this moment. Unlike
/// `allocation_candidates` the policy's filters do not count: a cordoned node is listed.
///
/// What labels and classes stand for is looked up first; nodes that report meanwhile are compared with that.
///
/// # Errors
/// 400 for a bad parameter, or a class or trait that there is not.
pub(super) async fn list(call: &Call<'_>) -> Result<Reply, Fault> {
    let params = call.params(&PARAMS)?;
    let (name, uuid) = (params.text("name"), params.uuid("uuid")?);
    let wanted = params.wanted(call.version)?;
    let meant = call.hub.read_now(|scheduler, _| wanted.meant(scheduler))?;
    // Runs under the core's lock, for each node.
    let is_wanted = |provider: &Provider<'_>| {
        uuid.is_none_or(|uuid| uuid == provider.uuid())
            && name.is_none_or(|name| name == name_of(provider))
            && meant.is_met_by(provider)
    };
    let mut rows = Vec::new();
    each(call.hub, |provider| {
        if is_wanted(provider) {
            rows.push(Row::of(provider));
        }
    })
    .await;
    let rows: Vec<Value> = rows.iter().map(|row| row.json(call)).collect();
    Ok(Reply::ok(json!({ "resource_providers": rows })))
}

/// Shows all nodes to `visit`, some while the core's lock is held, and yields in between. `visit` runs under the lock
/// and is to copy what it needs. Nodes that come or go meanwhile may be shown or not.
pub(super) async fn each(hub: &Hub, mut visit: impl FnMut(&Provider<'_>)) {
    let mut cursor = Some(ProvidersCursor::default());
    while let Some(from) = cursor {
        cursor = hub.read_now(|scheduler, _| {
            scheduler.visit_providers(from, &mut |provider| visit(&provider))
        });
        tokio::task::yield_now().await;
    }
}

/// Reads something of one node, under the core's lock.
///
/// # Errors
/// 404 where the text is no UUID, no node has it, or the node has not reported yet.
pub(super) fn of<T>(
    call: &Call<'_>,
    uuid: &str,
    read: impl FnOnce(&Provider<'_>) -> T,
) -> Result<T, Fault> {
    let found = read_uuid(uuid).and_then(|uuid| {
        call.hub
            .read_now(|scheduler, _| scheduler.provider(uuid).map(|it| read(&it)))
    });
    found.ok_or_else(|| {
        let uuid = repeated(uuid);
        Fault::not_found(format!(
            "No resource provider with uuid {uuid} found : No resource provider with uuid {uuid} found"
        ))
    })
}

/// `GET /resource_providers/{uuid}`.
pub(super) fn one(call: &Call<'_>, uuid: &str) -> Result<Reply, Fault> {
    call.params(&[])?;
    let row = of(call, uuid, Row::of)?;
    Ok(Reply::ok(row.json(call)))
}

/// What a node has of one class, in the class's unit; `None` where that is nothing, such as less than a GiB of disk.
/// `max_unit` is the capacity, because a START can have all that a node has.
fn inventory(stock: &Stock) -> Option<(String, Value)> {
    let total = units_down(&stock.of, stock.total);
    let inventory = json!({
        "total": total,
        "reserved": units_up(&stock.of, stock.reserved),
        "min_unit": 1,
        // At least 1, even where the capacity is less than a unit.
        "max_unit": units_down(&stock.of, stock.capacity).max(1),
        "step_size": 1,
        "allocation_ratio": stock.ratio,
    });
    (total > 0).then(|| (class(&stock.of).into_owned(), inventory))
}

/// `GET /resource_providers/{uuid}/inventories`: all classes of which the node has something.
pub(super) fn inventories(call: &Call<'_>, uuid: &str) -> Result<Reply, Fault> {
    let (generation, stocks) = of(call, uuid, |it| (it.generation(), it.stocks()))?;
    let inventories: Map<String, Value> = stocks.iter().filter_map(inventory).collect();
    Ok(Reply::ok(json!({
        "resource_provider_generation": generation,
        "inventories": inventories,
    })))
}

/// `GET /resource_providers/{uuid}/inventories/{class}`.
///
/// # Errors
/// 404 also for a class of which the node has nothing.
pub(super) fn inventory_of(call: &Call<'_>, uuid: &str, name: &str) -> Result<Reply, Fault> {
    let (generation, stocks) = of(call, uuid, |it| (it.generation(), it.stocks()))?;
    // Found by its name rather than by parsing the class, which is not unique.
    let mut found = stocks.iter().filter_map(inventory);
    match found.find(|(class, _)| class == name) {
        Some((_, mut inventory)) => {
            inventory["resource_provider_generation"] = generation.into();
            Ok(Reply::ok(inventory))
        }
        None => Err(Fault::not_found(format!(
            "No inventory of class {} found for resource provider {uuid}",
            repeated(name)
        ))),
    }
}

/// `GET /resource_providers/{uuid}/usages`: what instances asked for, of the classes that inventories have.
pub(super) fn usages(call: &Call<'_>, uuid: &str) -> Result<Reply, Fault> {
    let (generation, stocks) = of(call, uuid, |it| (it.generation(), it.stocks()))?;
    // The same classes as `inventory` shows: others have a total of 0 in their unit.
    let stocks = stocks.iter().filter(|it| units_down(&it.of, it.total) > 0);
    let usages: Map<String, Value> = stocks.map(usage).collect();
    Ok(Reply::ok(json!({
        "resource_provider_generation": generation,
        "usages": usages,
    })))
}

/// What is claimed of one class; a part of a GiB counts as a whole one.
fn usage(stock: &Stock) -> (String, Value) {
    let used = units_up(&stock.of, stock.claimed);
    (class(&stock.of).into_owned(), used.into())
}

/// `GET /resource_providers/{uuid}/aggregates`: UUIDs that are made of the aggregates' names.
pub(super) fn aggregates(call: &Call<'_>, uuid: &str) -> Result<Reply, Fault> {
    let (generation, names) = of(call, uuid, |it| {
        let names: Vec<String> = it.aggregates().map(str::to_owned).collect();
        (it.generation(), names)
    })?;
    let uuids = names.iter().map(|name| aggregate_uuid(name).to_string());
    let mut body = json!({ "aggregates": uuids.collect::<Vec<_>>() });
    // 1.19 brought the generation to this answer.
    if call.version >= Version(19) {
        body["resource_provider_generation"] = generation.into();
    }
    Ok(Reply::ok(body))
}

/// The traits of a node, in order, each once: several labels may be called the same. Labels whose name would be too
/// long are left out. A compute node has [`COMPUTE`], and a cordoned one [`DISABLED`].
pub(super) fn traits_of(provider: &Provider<'_>) -> Vec<String> {
    let traits = provider
        .labels()
        .filter_map(|(key, value)| trait_of(key, value));
    let compute = provider.is_compute().then(|| COMPUTE.to_owned());
    let disabled = provider.is_cordoned().then(|| DISABLED.to_owned());
    let mut traits: Vec<String> = traits.chain(compute).chain(disabled).collect();
    traits.sort_unstable();
    traits.dedup();
    traits
}

/// `GET /resource_providers/{uuid}/traits`.
pub(super) fn traits(call: &Call<'_>, uuid: &str) -> Result<Reply, Fault> {
    let (generation, traits) = of(call, uuid, |it| (it.generation(), traits_of(it)))?;
    Ok(Reply::ok(json!({
        "traits": traits,
        "resource_provider_generation": generation,
    })))
}
