//! Labels and the like that a node reports of itself, checked: they are kept for every node, and searched by.
//!
//! None of this is in the original's READY and STATS, so that a node with an original launcher has no extras at all.
//! Counts are checked before anything is copied, and one mistake refuses the whole report, with the key in the
//! sentence.

use std::time::Duration;

use proto_frames::Uuid;
use proto_frames::payload::UNKNOWN;
use proto_frames::payload::expression::{MAX_NAME_LEN as MAX_KEY_LEN, is_name};
use proto_frames::payload::identifier::usual_form;
use proto_frames::payload::peek::{Figures, InstancePeek};
use proto_frames::payload::scheduling;

use super::inputs::Unusable;
use super::names::bad_text;
use sched_core::{
    Available, Capabilities, MAX_PARTS, MAX_RESOURCES_PER_NODE, MAX_VOLUMES_PER_NODE, NodeExtras,
    ShortText, VmTypes, canonical_uuid,
};

/// Labels that a node may report. Each is kept for as long as the node is, and every change of one is an update of the
/// search index under the core's lock.
const MAX_LABELS: usize = 64;

/// Words for what a launcher runs: `qemu`, `docker` and `process` are known, all others are one.
const MAX_VM_TYPES: usize = 16;

/// What a node says of itself beyond the original's figures; `None` if nothing, which is the usual case for STATS of
/// original launchers and takes no memory. Figures decide nothing, since original launchers report them as well: a report
/// with these alone says nothing, and leaves what the node said before as it is.
///
/// # Errors
/// [`Unusable::Extras`], with the key and what is expected.
pub(super) fn of(figures: &Figures<'_>) -> Result<Option<Box<NodeExtras>>, Unusable> {
    let is_silent = figures.labels.is_empty()
        && figures.resources.is_empty()
        && figures.shares.is_empty()
        && figures.shared_by.is_empty()
        && figures.capabilities.is_empty()
        && figures.vm_types.is_empty()
        && figures.fault.is_empty()
        && !figures.pressure
        && figures.lease.is_none()
        && figures.volumes.is_empty()
        && figures.incarnation.is_empty();
    if is_silent {
        return Ok(None);
    }
    check(figures)?;
    let labels = figures.labels.iter();
    let resources = figures.resources.iter();
    Ok(Some(Box::new(NodeExtras {
        labels: labels
            .map(|(key, value)| (boxed(key), boxed(value)))
            .collect(),
        resources: resources
            .map(|(name, amount)| (boxed(name), *amount))
            .collect(),
        shares: match &*figures.shares {
            "" => None,
            uuid => Some(node_uuid("shares", uuid)?),
        },
        incarnation: match &*figures.incarnation {
            "" => None,
            uuid => Some(
                canonical_uuid(uuid)
                    .map_or_else(|| bad("incarnation: expected a UUID".to_owned()), Ok)?,
            ),
        },
        shared_by: figures
            .shared_by
            .iter()
            .map(|uuid| node_uuid("shared_by", uuid))
            .collect::<Result<_, _>>()?,
        capabilities: Capabilities::from_names(figures.capabilities.iter().map(|name| &**name)),
        vm_types: (!figures.vm_types.is_empty())
            .then(|| VmTypes::from_names(figures.vm_types.iter().map(|name| &**name))),
        volumes: (figures.volumes.iter())
            .map(|id| usual_form(id).into())
            .collect(),
        fault: (!figures.fault.is_empty()).then(|| ShortText::new(&figures.fault)),
        is_short_of_memory: figures.pressure,
        available: Some(Available {
            mem_mib: known(figures.mem_available_mb),
            disk_mb: known(figures.disk_available_mb),
            load: known(figures.load),
        }),
        lease: figures.lease.map(|lease| Duration::from_millis(lease.ms())),
    })))
}

/// Refuses lists that are too long, and names that are none. Amounts of resources must not be negative.
fn check(figures: &Figures<'_>) -> Result<(), Unusable> {
    check_count("labels", figures.labels.len(), MAX_LABELS)?;
    check_count("resources", figures.resources.len(), MAX_RESOURCES_PER_NODE)?;
    check_count("vm_types", figures.vm_types.len(), MAX_VM_TYPES)?;
    check_count("volumes", figures.volumes.len(), MAX_VOLUMES_PER_NODE)?;
    check_count("shared_by", figures.shared_by.len(), MAX_PARTS)?;
    for (key, value) in &figures.labels {
        check_name("labels", key)?;
        if let Some(why) = bad_text(value) {
            return bad(format!("labels.{key}: {why}"));
        }
    }
    for (name, amount) in &figures.resources {
        check_name("resources", name)?;
        if *amount < 0 {
            return bad(format!("resources.{name}: negative: {amount}"));
        }
    }
    for id in &figures.volumes {
        if let Some(why) = bad_text(id) {
            return bad(format!("volumes: {why}"));
        }
    }
    Ok(())
}

/// A figure that is not reported is `UNKNOWN` (-1), which the core tells from 0.
fn known(figure: Option<i64>) -> i64 {
    figure.unwrap_or(UNKNOWN)
}

/// Refuses what a STATS says of an instance that no START can have asked for: all of it is kept, and names of resources
/// for good. The group and the custom resources are looked at; the amounts are numbers already.
pub(super) fn check_instance(instance: &InstancePeek<'_>) -> Result<(), Unusable> {
    if !instance.group.is_empty() {
        check_name("instances.group", &instance.group)?;
    }
    let Some(requested) = &instance.requested else {
        return Ok(());
    };
    let key = "instances.requested.resources";
    check_count(key, requested.resources.len(), scheduling::MAX_RESOURCES)?;
    requested
        .resources
        .keys()
        .try_for_each(|name| check_name(key, name))
}

/// A UUID in its canonical form: small letters, with hyphens.
fn node_uuid(key: &str, text: &str) -> Result<Uuid, Unusable> {
    canonical_uuid(text).map_or_else(|| bad(format!("{key}: expected the UUID of a node")), Ok)
}

fn boxed(text: &str) -> Box<str> {
    text.into()
}

/// Refuses a list of more entries than `max`.
fn check_count(key: &str, count: usize, max: usize) -> Result<(), Unusable> {
    if count > max {
        return bad(format!("{key}: {count} entries, at most {max} are taken"));
    }
    Ok(())
}

/// Refuses a key or name that expressions could not name.
fn check_name(key: &str, name: &str) -> Result<(), Unusable> {
    if is_name(name) {
        return Ok(());
    }
    bad(format!(
        "{key}: a name is not 1 to {MAX_KEY_LEN} letters, digits and . _ / -"
    ))
}

fn bad<T>(detail: String) -> Result<T, Unusable> {
    Err(Unusable::Extras(detail))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proto_frames::Kind;

    use super::super::inputs::tests::input_of;
    use sched_core::{Input, NodeExtras, Report};

    /// What a READY and a STATS with this key say of their node.
    fn extras(key: &str) -> [Option<Box<NodeExtras>>; 2] {
        let uuid = "00000000-0000-4000-8000-000000000001";
        let payload = format!("node_uuid: {uuid}\nmem_total_mb: 8\nload: 1\n{key}");
        [Kind::READY, Kind::STATS].map(|kind| match input_of(kind, &payload) {
            Input::Report {
                report: Report::Ready(ready),
                ..
            } => ready.extras,
            Input::Report {
                report: Report::Stats(stats),
                ..
            } => stats.extras,
            other => panic!("{other:?}"),
        })
    }

    #[test]
    fn a_report_that_says_only_that_memory_is_short_or_only_a_lease_says_it() {
        for said in extras("pressure: true\n") {
            assert!(said.expect("it says something").is_short_of_memory);
        }
        for said in extras("lease: 30s\n") {
            let lease = said.expect("it says something").lease;
            assert_eq!(lease, Some(Duration::from_secs(30)));
        }
        assert_eq!(extras(""), [None, None], "as of original launchers");
    }
}
