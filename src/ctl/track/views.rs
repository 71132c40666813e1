//! What a listing of the scheduler says of an instance: where it is, and how far.

use proto_frames::payload::{InstanceQueued, InstanceView, PhaseName, PlacementState};

use crate::ctl::track::Stage;

/// `None` for one that waits and has no node.
pub(super) fn node_of(view: &InstanceView) -> Option<(String, String)> {
    let node = (view.node_uuid.clone(), view.hostname.clone());
    Some(node).filter(|(uuid, _)| !uuid.is_empty())
}

/// How far an instance is that is listed so.
///
/// A listing does not say where in its life an unmanaged instance is: it is then taken as placed.
pub(super) fn stage_of(view: &InstanceView) -> Stage {
    match view.state {
        PlacementState::Ended => match &view.failed {
            Some(reason) => Stage::Failed {
                reason: reason.clone(),
                detail: Some(view.waits_for.clone()).filter(|detail| !detail.is_empty()),
                reasons: Vec::new(),
                attempts: Vec::new(),
            },
            None => Stage::Ended {
                exit_code: view.exit_code,
            },
        },
        PlacementState::Waiting => Stage::Waiting(Box::new(InstanceQueued {
            position: view.position.unwrap_or(0),
            detail: view.waits_for.clone(),
            ..InstanceQueued::default()
        })),
        _ if is_running(view) => Stage::Running,
        _ if !view.life.is_empty() => Stage::Held {
            state: PhaseName::from(view.life.as_str()),
            detail: String::new(),
        },
        _ => Stage::Placed,
    }
}

/// Whether the scheduler's view says that the instance runs: its node has reported it, as nothing else but active.
pub(super) fn is_running(view: &InstanceView) -> bool {
    let life = PhaseName::from(view.life.as_str());
    let is_plain = view.life.is_empty() || matches!(life, PhaseName::Running | PhaseName::Updated);
    is_plain
        && view.state == PlacementState::Running
        && view
            .reported
            .as_deref()
            .is_none_or(|reported| reported == "active")
}
