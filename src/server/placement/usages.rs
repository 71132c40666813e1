//! `GET /usages`: what all instances of a project asked for, in sums by class. A project is a tenant.
//!
//! ```text
//! 1.9  ?project_id=P[&user_id=U]         {"usages": {"VCPU": 6, "MEMORY_MB": 2048}}
//! 1.38 the same [&consumer_type=…]       {"usages": {"INSTANCE": {"consumer_count": 2, "VCPU": 6, "MEMORY_MB": 2048}}}
//!      consumer_type=all                 {"usages": {"all": {"consumer_count": 2, "VCPU": 6, "MEMORY_MB": 2048}}}
//! ```
//!
//! Sums are of what `/allocations` says of each instance. They are gathered in steps, between which the core's lock is
//! free, so that an instance that moves meanwhile may count twice or not at all.

use std::collections::BTreeMap;

use proto_frames::Uuid;
use serde_json::{Map, Value, json};

use super::allocations::{INSTANCE, UNKNOWN, amounts};
use super::door::{Call, Reply};
use super::fault::Fault;
use super::limits::MAX_NAME_LEN;
use super::params::{Known, read_uuid};
use super::version::Version;
use sched_core::{ClaimsCursor, InstanceId, TenantId};

/// The parameters, each with the microversion that brought it.
const PARAMS: [Known; 3] = [("project_id", 9), ("user_id", 9), ("consumer_type", 38)];

/// The consumer type that stands for all of them, whose sums are one then.
const ALL: &str = "all";

/// That of consumers without a type, of which there are none here.
const WITHOUT_TYPE: &str = "unknown";

/// The version from which on sums are by type of consumer.
const BY_TYPE: Version = Version(38);

/// A project as a request names it.
struct Project {
    /// As it was sent.
    text: TenantId,
    /// Keystone writes projects without hyphens, and tenants usually have them: the same UUID in its usual form.
    uuid: Option<Uuid>,
}

impl Project {
    fn new(text: &str) -> Self {
        Self {
            text: InstanceId::new(text),
            uuid: read_uuid(text),
        }
    }

    /// Whether it is a tenant's. Instances without a tenant are of the project that `/allocations` says of them.
    fn is_of(&self, tenant: Option<&TenantId>) -> bool {
        match tenant {
            None => self.uuid == read_uuid(UNKNOWN),
            Some(tenant) => {
                let uuid = self.uuid.map(InstanceId::Uuid);
                *tenant == self.text || Some(tenant) == uuid.as_ref()
            }
        }
    }
}

/// Sums, and over how many instances.
#[derive(Default)]
struct Sums {
    consumers: u64,
    by_class: BTreeMap<String, i64>,
}

/// `GET /usages`.
///
/// # Errors
/// 400 without `project_id`, or for a value that no project, user or type of consumer has.
pub(super) async fn of_project(call: &Call<'_>) -> Result<Reply, Fault> {
    let params = call.params(&PARAMS)?;
    for (name, _) in PARAMS {
        if let Some(value) = params.text(name)
            && !(1..=MAX_NAME_LEN).contains(&value.len())
        {
            let detail =
                format!("Invalid query string parameters: '{name}' has 1 to {MAX_NAME_LEN} bytes");
            return Err(Fault::bad(detail));
        }
    }
    let Some(project) = params.text("project_id").map(Project::new) else {
        let detail = "Invalid query string parameters: 'project_id' is a required property";
        return Err(Fault::bad(detail.to_owned()));
    };
    let of_type = params.text("consumer_type");
    if of_type.is_some_and(|name| !is_consumer_type(name)) {
        let detail = "Invalid query string parameters: 'consumer_type' has capital letters, digits and '_', or is 'all' or \
                      'unknown'";
        return Err(Fault::bad(detail.to_owned()));
    }
    // Instances have the nil user and one type: of others there are none.
    let user = params.text("user_id");
    let is_anybodys = user.is_none_or(|user| read_uuid(user) == read_uuid(UNKNOWN))
        && of_type.is_none_or(|name| matches!(name, ALL | INSTANCE));
    let sums = match is_anybodys {
        true => sums(call, &project).await,
        false => Sums::default(),
    };
    let mut usages: Map<String, Value> = sums
        .by_class
        .into_iter()
        .map(|(class, sum)| (class, sum.into()))
        .collect();
    if call.version >= BY_TYPE {
        usages.insert("consumer_count".to_owned(), sums.consumers.into());
        let key = of_type.unwrap_or(INSTANCE);
        let by_type = (sums.consumers > 0).then(|| (key.to_owned(), Value::Object(usages)));
        usages = by_type.into_iter().collect();
    }
    Ok(Reply::ok(json!({ "usages": usages })))
}

/// Sums up what instances of a project asked for.
async fn sums(call: &Call<'_>, project: &Project) -> Sums {
    let mut sums = Sums::default();
    let mut cursor = Some(ClaimsCursor::default());
    while let Some(from) = cursor {
        let mut found = Vec::new();
        cursor = call.hub.read_now(|scheduler, _| {
            let is_wanted = |tenant: Option<&TenantId>| project.is_of(tenant);
            scheduler.visit_claims(from, &is_wanted, &mut |claimed| found.push(claimed))
        });
        for claimed in &found {
            sums.consumers += 1;
            for (class, amount) in amounts(claimed) {
                let sum = sums.by_class.entry(class).or_default();
                *sum = sum.saturating_add(amount);
            }
        }
        tokio::task::yield_now().await;
    }
    sums
}

/// Whether a request may ask for this type of consumer.
fn is_consumer_type(name: &str) -> bool {
    let is_sign = |byte: u8| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_';
    matches!(name, ALL | WITHOUT_TYPE) || name.bytes().all(is_sign)
}
