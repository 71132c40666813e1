//! Allocation candidates: the nodes that something fits on, as the search of a choice finds them. Nothing is claimed,
//! so a node may be full by the time a client uses the answer.
//!
//! ```text
//! ?resources=VCPU:1,MEMORY_MB:512 ──▶ Wanted ──▶ Meant ──▶ a START and constraints
//!                                                                │ Scheduler::candidates
//! JSON ◀── Candidate, a few hundred at a time ◀── UUIDs of nodes, in order
//! ```
//!
//! The search holds the core's lock once and looks at every node at worst, as the choice for a START does.

use proto_frames::Uuid;
use serde_json::{Map, Value, json};

use super::door::{Call, Reply};
use super::fault::Fault;
use super::groups::Wanted;
use super::limits::{MAX_CANDIDATES, ROWS_PER_STEP};
use super::names::{class, units_down, units_up};
use super::params::Known;
use super::providers::traits_of;
use super::version::Version;
use crate::server::hub::Hub;
use sched_core::{Provider, Scheduler, Stock};

/// Parameters, each with the microversion that brought it.
const PARAMS: [Known; 12] = [
    ("resources", 10),
    ("limit", 16),
    ("required", 17),
    ("member_of", 21),
    ("resources{S}", 25),
    ("required{S}", 25),
    ("member_of{S}", 25),
    ("group_policy", 25),
    ("in_tree", 31),
    ("in_tree{S}", 31),
    ("root_required", 35),
    ("same_subtree", 36),
];

/// A node that fits, with what is shown of it, copied under the core's lock.
#[derive(Debug)]
struct Candidate {
    uuid: Uuid,
    stocks: Vec<Stock>,
    /// Left empty for versions that do not show them.
    traits: Vec<String>,
}

impl Candidate {
    fn of(provider: &Provider<'_>, version: Version) -> Self {
        Self {
            uuid: provider.uuid(),
            stocks: provider.stocks(),
            traits: match version >= Version(17) {
                true => traits_of(provider),
                false => Vec::new(),
            },
        }
    }
}

/// `GET /allocation_candidates`: the first nodes in the order in which the scheduler would try them, at most `limit`
/// and [`MAX_CANDIDATES`]. Filters of the policy count, as they do for a START.
///
/// # Errors
/// 400: no resources are asked for, or a parameter, class or trait is bad.
pub(super) async fn list(call: &Call<'_>) -> Result<Reply, Fault> {
    let params = call.params(&PARAMS)?;
    let wanted = params.wanted(call.version)?;
    wanted.check(&params, call.version)?;
    let limit = params
        .limit()?
        .map_or(MAX_CANDIDATES, |it| it.min(MAX_CANDIDATES));
    let meant = call.hub.read_now(|scheduler, _| wanted.meant(scheduler))?;
    // `None`: no single node can provide it, so none need be searched.
    let found = meant.start().map_or_else(Vec::new, |start| {
        // Mutable, because a search builds sets that the next one uses; what is chosen later does not depend on it.
        call.hub.ask_now(|scheduler: &mut Scheduler, now| {
            scheduler.candidates(now, (&start, &meant.constraints), limit)
        })
    });
    let candidates = read(call.hub, &found, call.version).await;
    Ok(Reply::ok(document(&candidates, &wanted, call.version)))
}

/// Reads what is shown of these nodes, some while the core's lock is held once. One that has left meanwhile is left
/// out.
async fn read(hub: &Hub, found: &[Uuid], version: Version) -> Vec<Candidate> {
    let mut candidates = Vec::with_capacity(found.len());
    for some in found.chunks(ROWS_PER_STEP) {
        hub.read_now(|scheduler, _| {
            let providers = some.iter().filter_map(|&uuid| scheduler.provider(uuid));
            candidates.extend(providers.map(|it| Candidate::of(&it, version)));
        });
        tokio::task::yield_now().await;
    }
    candidates
}

/// The answer: an allocation request, which is what Nova would PUT, and a summary for each candidate, in two lists.
fn document(candidates: &[Candidate], wanted: &Wanted, version: Version) -> Value {
    let requests = candidates
        .iter()
        .map(|it| request(it.uuid, wanted, version));
    let summaries = candidates.iter().map(|it| {
        let summary = summary(it, wanted, version);
        (it.uuid.to_string(), summary)
    });
    json!({
        "allocation_requests": requests.collect::<Vec<_>>(),
        "provider_summaries": summaries.collect::<Map<_, _>>(),
    })
}

/// What a client would write to claim the resources on this node, in the form of a version: a list before 1.12, then a
/// map by provider; from 1.34 on with the node that provides each request group, which is always this one.
fn request(uuid: Uuid, wanted: &Wanted, version: Version) -> Value {
    let (uuid, resources) = (uuid.to_string(), wanted.resources());
    if version < Version(12) {
        let allocation = json!({"resource_provider": {"uuid": uuid}, "resources": resources});
        return json!({ "allocations": [allocation] });
    }
    let mut request = json!({ "allocations": { &uuid: {"resources": resources} } });
    if version >= Version(34) {
        let groups = wanted.group_names();
        let mappings: Map<_, _> = groups.map(|it| (it.to_owned(), json!([uuid]))).collect();
        request["mappings"] = mappings.into();
    }
    request
}

/// What a node has and what of it is claimed. Before 1.27 only classes that were asked for are shown.
fn summary(candidate: &Candidate, wanted: &Wanted, version: Version) -> Value {
    let resources = candidate.stocks.iter().filter_map(|stock| {
        let class = class(&stock.of);
        let is_shown = units_down(&stock.of, stock.total) > 0
            && (version >= Version(27) || wanted.resources().contains_key(&*class));
        let figures = json!({
            "capacity": units_down(&stock.of, stock.capacity),
            "used": units_up(&stock.of, stock.claimed),
        });
        is_shown.then(|| (class.into_owned(), figures))
    });
    let mut summary = json!({ "resources": resources.collect::<Map<_, _>>() });
    if version >= Version(17) {
        summary["traits"] = candidate.traits.as_slice().into();
    }
    if version >= Version(29) {
        summary["parent_provider_uuid"] = Value::Null;
        summary["root_provider_uuid"] = candidate.uuid.to_string().into();
    }
    summary
}
