//! Samples for tests: the states of each phase, the events of each kind, and the table of transitions that they give.

use std::collections::BTreeSet;
use std::time::Instant;

use sched_model::Uuid;

use crate::api::ids::{InstanceId, NodeKey};
use crate::api::phase::Phase;
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

/// All events, several where a state may tell them from each other by their data.
pub(crate) fn all_events(due: Instant) -> Vec<LifecycleEvent> {
    use LifecycleEvent as Event;
    let (node, to, asker) = (NodeKey(0), NodeKey(1), None);
    let victim = InstanceId::new("b");
    let by = SuspendedBy::Preemptor(victim.clone());
    let forgotten = loss(due, AfterLoss::Forget);
    let deleted = loss(due, AfterLoss::Delete);
    let mut events = vec![
        Event::Managed,
        Event::Restored(Before::Waited { pinned: None }),
        Event::Restored(Before::Lost(forgotten.clone())),
        Event::Restored(Before::Lost(deleted)),
        Event::Sought,
        Event::Queued,
        Event::Claimed { node },
        Event::VictimAway(victim.clone()),
        Event::Given { node },
        Event::Listed { node },
        Event::StartedAgain,
        Event::StartAwaited,
        Event::UpdateResumed { due },
        Event::UpdateSettled,
        Event::IsSuspended { by: by.clone() },
        Event::Runs,
        Event::Deleted { due },
        Event::Retargeted { to },
        Event::TargetLost { due },
        Event::LeftForTarget,
        Event::Arrived,
        Event::NodeLost(forgotten),
        Event::LossDeferred { until: due },
    ];
    for is_it in [false, true] {
        let is_suspended = is_it;
        events.push(Event::Adopted { node, is_suspended });
        let suspended = is_it.then(|| by.clone());
        events.push(Event::Reverted {
            suspended: suspended.clone(),
        });
        events.push(Event::NodeBack {
            node,
            suspended,
            due,
        });
        events.push(Event::MoveBegun { is_shipped: is_it });
    }
    let victims = BTreeSet::from([victim.clone()]);
    events.push(Event::Preempts { node, victims, due });
    events.push(Event::Preempted { by: victim, due });
    let change = change();
    events.push(Event::Updated { change, due });
    let suspends = by.clone();
    events.push(Event::SuspendAsked {
        by: suspends,
        asker,
        due,
    });
    events.push(Event::ResumeAsked { by, asker, due });
    let move_request = Box::default();
    events.push(Event::MovePlanned {
        to,
        move_request,
        due,
    });
    events
}

/// An event, and which phases it leads to from which, as [`transitions`] finds them.
#[derive(Debug)]
pub struct Row {
    /// The name of the event.
    pub event: &'static str,
    /// When it happens.
    pub when: &'static str,
    /// Pairs: the phases before, and the phases after. Several after where data decide.
    pub ways: Vec<(Vec<Phase>, Vec<Phase>)>,
}

/// Every transition there is, found by trying every event in every phase.
#[must_use]
pub fn transitions(due: Instant) -> Vec<Row> {
    let events = all_events(due);
    let row = |(event, when): &(&'static str, &'static str)| {
        let mut ways: Vec<(Vec<Phase>, Vec<Phase>)> = Vec::new();
        for phase in Phase::ALL {
            let tried = events.iter().filter(|it| it.name() == *event);
            let to: BTreeSet<Phase> = tried.flat_map(|event| ways_of(phase, event, due)).collect();
            let to = Vec::from_iter(to);
            match ways.iter_mut().find(|(_, known)| *known == to) {
                _ if to.is_empty() => {}
                Some((from, _)) => from.push(phase),
                None => ways.push((vec![phase], to)),
            }
        }
        Row {
            event,
            when: when.trim_start(),
            ways,
        }
    };
    let managed = |phase: &Phase| ![Phase::New, Phase::Gone].contains(phase);
    let ended = Row {
        event: "Ended",
        when: "it ended, failed, fits nowhere or waited too long; DELETE of what is on no node; its node is back without it, or \
               for too long not back",
        ways: vec![(
            Phase::ALL.into_iter().filter(managed).collect(),
            vec![Phase::Gone],
        )],
    };
    LifecycleEvent::WHEN
        .iter()
        .map(row)
        .chain([ended])
        .collect()
}

/// The phases that an event leads to from this one.
fn ways_of(phase: Phase, event: &LifecycleEvent, due: Instant) -> Vec<Phase> {
    if phase == Phase::New {
        return State::first(event.clone())
            .iter()
            .map(State::phase)
            .collect();
    }
    let states = states_in(phase, due).into_iter();
    let to = states.filter_map(|state| state.on(event.clone()));
    to.map(|(state, _)| state.phase()).collect()
}
