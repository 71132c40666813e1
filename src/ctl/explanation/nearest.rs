//! What the nearest node has too little of, where that is more than one amount.
//!
//! The scheduler's reasons name for each node the first that excludes it, so that a START which is short of memory and of
//! vcpus is told of one of them alone. What the node that is nearest has free of all of it is in the list of nodes.

use proto_frames::payload::{NodeView, PlacementDecision, Reason, ReasonKind, Start};

use crate::ctl::units::short;

/// Most amounts that are named; the rest is counted. With the largest figures they fit two lines of a terminal.
const MAX_NAMED: usize = 5;

/// The node that is nearest to having what was asked for, by UUID, if it is an amount that is missing; `None` too where
/// some of it fits, which has taken from what the list of nodes says.
#[must_use]
pub fn nearest_node(decision: &PlacementDecision) -> Option<&str> {
    let is_amount = |kind: &ReasonKind| {
        use ReasonKind::{Disk, Memory, Resource, Vcpus};
        matches!(kind, Memory | Vcpus | Disk | Resource)
    };
    let of_amounts = || {
        let reasons = decision.reasons.iter();
        reasons.filter(|it| is_amount(&it.reason) && !it.node_uuid.is_empty())
    };
    // Where no node has any of it, one is as near as another; what else it lacks is worth a word.
    let has_any = |it: &&Reason| it.capacity != Some(0);
    let reason = of_amounts().find(has_any).or_else(|| of_amounts().next())?;
    (decision.fits == 0).then_some(reason.node_uuid.as_str())
}

/// Names all amounts of a START that this node has too little of, if they are several:
/// `nearest is node-1 (4cb19522), with 100 of 4096 MiB of memory and 1 of 2 vcpus free`.
///
/// Disk is compared in the numbers of both sides, as the scheduler compares it. A figure that is not known is left out.
#[must_use]
pub fn shortfall(start: &Start, node: &NodeView) -> Option<String> {
    let asked = &start.requirements;
    let plain = [
        ("MiB of memory", asked.mem_mb, node.mem_free_mb),
        ("vcpus", asked.vcpus, node.vcpus_free),
        (
            "MiB of disk",
            start.disk_mib().unwrap_or(0),
            node.disk_free_mb,
        ),
    ];
    let resources = start.scheduling.iter().flat_map(|it| &it.resources);
    let resources = resources.map(|(name, asked)| {
        // A resource that is not listed as free has none left.
        let free = node.resources_free.get(name).copied().unwrap_or(0);
        (name.as_str(), *asked, free)
    });
    let missing = plain.into_iter().chain(resources);
    let missing = missing.filter(|(_, asked, free)| *free >= 0 && asked > free);
    let mut texts: Vec<String> = missing
        .map(|(what, asked, free)| format!("{free} of {asked} {what}"))
        .collect();
    if texts.len() < 2 {
        return None;
    }
    let more = texts.len().saturating_sub(MAX_NAMED);
    texts.truncate(MAX_NAMED);
    if more > 0 {
        texts.push(format!("too little of {more} more"));
    }
    let last = texts.pop()?;
    let host = match &*node.hostname {
        "" => short(&node.node_uuid).to_owned(),
        host => format!("{host} ({})", short(&node.node_uuid)),
    };
    let texts = texts.join(", ");
    Some(format!("nearest is {host}, with {texts} and {last} free"))
}

#[cfg(test)]
mod tests {
    use proto_frames::payload::{Requirements, Scheduling, Storage};

    use super::*;

    fn start(mem_mb: i64, vcpus: i64) -> Start {
        Start {
            requirements: Requirements {
                mem_mb,
                vcpus,
                ..Requirements::default()
            },
            ..Start::default()
        }
    }

    fn node() -> NodeView {
        NodeView {
            node_uuid: "4cb19522-1e18".into(),
            hostname: "node-1".into(),
            mem_free_mb: 100,
            vcpus_free: 1,
            disk_free_mb: 1000,
            resources_free: [("gpu".to_owned(), 1)].into(),
            ..NodeView::default()
        }
    }

    #[test]
    fn all_amounts_that_lack_are_named_where_they_are_several() {
        assert_eq!(shortfall(&start(101, 1), &node()), None);
        let text = shortfall(&start(4096, 2), &node()).unwrap();
        let begin = "nearest is node-1 (4cb19522), with 100 of 4096 MiB of memory";
        assert_eq!(text, format!("{begin} and 1 of 2 vcpus free"));
        let asked = Start {
            storage: vec![Storage {
                local: true,
                size: 1,
                ..Storage::default()
            }],
            scheduling: Some(Scheduling {
                resources: [("fpga".to_owned(), 1), ("gpu".to_owned(), 1)].into(),
                ..Scheduling::default()
            }),
            ..start(4096, 1)
        };
        let text = shortfall(&asked, &node()).unwrap();
        assert_eq!(
            text,
            format!("{begin}, 1000 of 1024 MiB of disk and 0 of 1 fpga free")
        );
        let unknown = NodeView {
            vcpus_free: -1,
            ..node()
        };
        assert_eq!(shortfall(&start(4096, 2), &unknown), None);
    }

    #[test]
    fn the_nearest_node_is_that_of_an_amount_where_nothing_fits() {
        let reason = |reason, node_uuid: &str| Reason {
            reason,
            node_uuid: node_uuid.into(),
            ..Reason::default()
        };
        let decision = PlacementDecision {
            reasons: vec![
                reason(ReasonKind::Group, "a"),
                reason(ReasonKind::Memory, ""),
                Reason {
                    capacity: Some(0),
                    ..reason(ReasonKind::Resource, "c")
                },
                reason(ReasonKind::Vcpus, "b"),
            ],
            ..PlacementDecision::default()
        };
        assert_eq!(nearest_node(&decision), Some("b"));
        let fits = PlacementDecision {
            fits: 1,
            ..decision
        };
        assert_eq!(nearest_node(&fits), None);
    }
}
