//! Allocations: what instances asked for where they are. An instance is a consumer, by the identifier of its START,
//! which need not be a UUID.

use serde_json::{Map, Value, json};

use super::door::{Call, Reply};
use super::fault::Fault;
use super::names::{class, units_up};
use super::providers::of;
use super::version::Version;
use sched_core::{Claimed, InstanceId};

/// The generation of every consumer. Placement's clients give it back when they write; nothing can be written here, so
/// that any constant will do.
const CONSUMER_GENERATION: u64 = 1;

/// The user of every consumer, which from 1.12 on must be there: the scheduler knows none. The project of those that
/// have no tenant, or whose tenant is not known.
pub(super) const UNKNOWN: &str = "00000000-0000-0000-0000-000000000000";

/// The type of every consumer, from 1.38 on.
pub(super) const INSTANCE: &str = "INSTANCE";

/// The amounts of a claim by class, in each class's unit.
fn resources(claimed: &Claimed) -> Map<String, Value> {
    let amounts = amounts(claimed);
    amounts
        .map(|(class, amount)| (class, amount.into()))
        .collect()
}

/// The same as numbers.
pub(super) fn amounts(claimed: &Claimed) -> impl Iterator<Item = (String, i64)> {
    let amounts = claimed.amounts.iter();
    amounts.map(|(of, amount)| (class(of).into_owned(), units_up(of, *amount)))
}

/// `GET /resource_providers/{uuid}/allocations`: the instances of a node, some while the core's lock is held once.
/// Instances that leave meanwhile shift the others, so that one may be missing; one that is read twice is in the answer
/// once. `generation` is that of the last step.
///
/// # Errors
/// 404 also if the node is forgotten in between.
pub(super) async fn of_provider(call: &Call<'_>, uuid: &str) -> Result<Reply, Fault> {
    let mut allocations = Map::new();
    let (mut from, mut generation) = (Some(0), 0);
    while let Some(at) = from {
        let (claims, next);
        (generation, (claims, next)) = of(call, uuid, |it| (it.generation(), it.claims(at)))?;
        for claimed in &claims {
            let mut allocation = json!({ "resources": resources(claimed) });
            if call.version >= Version(28) {
                allocation["consumer_generation"] = CONSUMER_GENERATION.into();
            }
            allocations.insert(claimed.instance.to_string(), allocation);
        }
        from = next;
        tokio::task::yield_now().await;
    }
    Ok(Reply::ok(json!({
        "resource_provider_generation": generation,
        "allocations": allocations,
    })))
}

/// `GET /allocations/{consumer}`: where an instance is and what it asked for. One that is not known has none, which is
/// no fault, as in Placement.
pub(super) fn of_consumer(call: &Call<'_>, consumer: &str) -> Result<Reply, Fault> {
    call.params(&[])?;
    let instance = InstanceId::new(consumer);
    // Both look-ups under one hold of the lock, so that the instance cannot leave the node in between.
    let found = call.hub.read_now(|scheduler, _| {
        let (provider, consumed) = scheduler.consumed(&instance)?;
        Some((provider.uuid(), provider.generation(), consumed))
    });
    let Some((uuid, generation, consumed)) = found else {
        return Ok(Reply::ok(json!({ "allocations": {} })));
    };
    let allocation = json!({"generation": generation, "resources": resources(&consumed.claimed)});
    let mut body = json!({ "allocations": { uuid.to_string(): allocation } });
    if call.version >= Version(12) {
        let tenant = consumed.tenant.map(|tenant| tenant.to_string());
        body["project_id"] = tenant.unwrap_or_else(|| UNKNOWN.to_owned()).into();
        body["user_id"] = UNKNOWN.into();
    }
    if call.version >= Version(28) {
        body["consumer_generation"] = CONSUMER_GENERATION.into();
    }
    if call.version >= Version(38) {
        body["consumer_type"] = INSTANCE.into();
    }
    Ok(Reply::ok(body))
}
