//! Samples for tests: the states of each phase, and the events of each kind.

use std::collections::BTreeSet;
use std::time::Instant;

use sched_model::Uuid;

use crate::api::ids::{InstanceId, NodeKey};
use crate::api::phase::{EventKind, Phase};
use crate::api::start::Demand;
use crate::instance::{
    AfterLoss, AfterStop, Awaits, Before, DemandChange, LateEffects, LifecycleEvent, Loss, Move,
    Placing, State, SuspendedBy, Transit,
};

pub(crate) fn loss(until: Instant, then: AfterLoss) -> Loss {
    Loss::new(Uuid::from_u128(1), until, then)
}

/// All states of this phase that an event may tell from each other; none for the two that have none.
#[expect(clippy::too_many_lines, reason = "a line for each")]
pub(crate) fn states_in(phase: Phase, due: Instant) -> Vec<State> {
    let (node, to, uuid) = (NodeKey(0), NodeKey(1), Uuid::from_u128(1));
    let (by, transit) = (SuspendedBy::Command, Transit::default());
    let placing = |pending_on| {
        State::Placing(Placing {
            node,
            pending_on,
            transit,
        })
    };
    let victims = |names: &[&str]| {
        let victims = names.iter().map(|name| InstanceId::new(name)).collect();
        placing(Awaits::Victims(victims, due))
    };
    let late = LateEffects::default;
    let stopping = |then| State::Stopping {
        node,
        then,
        late: late(),
        due,
    };
    let is_stop_sent = false;
    let moving = |how| State::Migrating {
        from: node,
        to,
        how,
        move_request: Box::default(),
        late: late(),
        due,
    };
    let lost = |then| State::Lost {
        node: uuid,
        until: due,
        then,
        bound_for: None,
        late: late(),
        transit,
    };
    let asker = None;
    match phase {
        Phase::New | Phase::Gone => Vec::new(),
        Phase::Seeking => vec![State::Seeking { transit }],
        Phase::Waiting => vec![State::Waiting {
            pinned: None,
            waits_with: 0,
        }],
        Phase::Claimed => vec![placing(Awaits::Commit)],
        Phase::Preempting => vec![victims(&["b"]), victims(&["b", "c"])],
        Phase::Starting => vec![placing(Awaits::Node { is_stop_sent })],
        Phase::Running => vec![State::Running { node, late: late() }],
        Phase::Updating => {
            let change = change();
            vec![State::Updating {
                node,
                change,
                late: late(),
                due,
            }]
        }
        Phase::Suspending => vec![State::Suspending {
            node,
            by,
            asker,
            is_stop_sent,
            due,
        }],
        Phase::Suspended => vec![State::Suspended {
            node,
            by,
            is_stop_sent,
        }],
        Phase::Resuming => vec![State::Resuming {
            node,
            by,
            asker,
            is_stop_sent,
            due,
        }],
        Phase::Preempted => vec![stopping(AfterStop::Wait(InstanceId::new("b")))],
        Phase::Relocating => vec![stopping(AfterStop::Again(Box::default()))],
        Phase::Deleting => vec![
            stopping(AfterStop::End(None)),
            stopping(AfterStop::End(Some(change()))),
        ],
        Phase::MoveClaimed => vec![moving(Move::Claimed)],
        Phase::MoveStopping => vec![moving(Move::Cold)],
        Phase::Shipping => vec![moving(Move::Shipped)],
        Phase::Lost => vec![lost(AfterLoss::Forget)],
        Phase::LostDeleted => vec![lost(AfterLoss::Delete)],
    }
}

fn change() -> Box<DemandChange> {
    Box::new(DemandChange {
        before: Demand::default(),
        demand: Demand::default(),
        asker: None,
    })
}

/// All events of this kind that a state may tell from each other.
#[expect(clippy::too_many_lines, reason = "a line for each")]
pub(crate) fn events_of(kind: EventKind, due: Instant) -> Vec<LifecycleEvent> {
    let (node, to, asker) = (NodeKey(0), NodeKey(1), None);
    let by = || SuspendedBy::Preemptor(InstanceId::new("b"));
    let forgotten = || loss(due, AfterLoss::Forget);
    let suspended = |suspended| LifecycleEvent::Reverted { suspended };
    let back = |suspended| LifecycleEvent::NodeBack {
        node,
        suspended,
        due,
    };
    match kind {
        EventKind::Managed => vec![LifecycleEvent::Managed],
        EventKind::Adopted => [false, true]
            .map(|is_suspended| LifecycleEvent::Adopted { node, is_suspended })
            .into(),
        EventKind::Restored => vec![
            LifecycleEvent::Restored(Before::Waited { pinned: None }),
            LifecycleEvent::Restored(Before::Lost(forgotten())),
            LifecycleEvent::Restored(Before::Lost(loss(due, AfterLoss::Delete))),
        ],
        EventKind::Sought => vec![LifecycleEvent::Sought],
        EventKind::Queued => vec![LifecycleEvent::Queued],
        EventKind::Claimed => vec![LifecycleEvent::Claimed { node }],
        EventKind::Preempts => vec![LifecycleEvent::Preempts {
            node,
            victims: BTreeSet::from([InstanceId::new("b")]),
            due,
        }],
        EventKind::VictimAway => vec![LifecycleEvent::VictimAway(InstanceId::new("b"))],
        EventKind::Given => vec![LifecycleEvent::Given { node }],
        EventKind::Listed => vec![LifecycleEvent::Listed { node }],
        EventKind::StartedAgain => vec![LifecycleEvent::StartedAgain],
        EventKind::StartAwaited => vec![LifecycleEvent::StartAwaited],
        EventKind::Updated => vec![LifecycleEvent::Updated {
            change: change(),
            due,
        }],
        EventKind::UpdateResumed => vec![LifecycleEvent::UpdateResumed { due }],
        EventKind::UpdateSettled => vec![LifecycleEvent::UpdateSettled],
        EventKind::SuspendAsked => vec![LifecycleEvent::SuspendAsked {
            by: by(),
            asker,
            due,
        }],
        EventKind::IsSuspended => vec![LifecycleEvent::IsSuspended { by: by() }],
        EventKind::ResumeAsked => vec![LifecycleEvent::ResumeAsked {
            by: by(),
            asker,
            due,
        }],
        EventKind::Runs => vec![LifecycleEvent::Runs],
        EventKind::Reverted => vec![suspended(None), suspended(Some(by()))],
        EventKind::Preempted => vec![LifecycleEvent::Preempted {
            by: InstanceId::new("b"),
            due,
        }],
        EventKind::Deleted => vec![LifecycleEvent::Deleted { due }],
        EventKind::MovePlanned => vec![LifecycleEvent::MovePlanned {
            to,
            move_request: Box::default(),
            due,
        }],
        EventKind::MoveBegun => [false, true]
            .map(|is_shipped| LifecycleEvent::MoveBegun { is_shipped })
            .into(),
        EventKind::Retargeted => vec![LifecycleEvent::Retargeted { to }],
        EventKind::TargetLost => vec![LifecycleEvent::TargetLost { due }],
        EventKind::LeftForTarget => vec![LifecycleEvent::LeftForTarget],
        EventKind::Arrived => vec![LifecycleEvent::Arrived],
        EventKind::NodeLost => vec![LifecycleEvent::NodeLost(forgotten())],
        EventKind::LossDeferred => vec![LifecycleEvent::LossDeferred { until: due }],
        EventKind::NodeBack => vec![back(None), back(Some(by()))],
        EventKind::Ended => vec![LifecycleEvent::Ended],
    }
}
