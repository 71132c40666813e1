//! What the table of instances does at each event in each phase, and what is looked up in it.

use std::time::Duration;

use super::*;
use crate::api::cause::Cause;
use crate::api::ids::NodeKey;
use crate::api::start::Demand;
use crate::instance::lifecycle::TRANSITIONS;
use crate::instance::{
    AfterLoss, AfterStop, Awaits, Before, DemandChange, LateEffects, Loss, Move, Placing,
    SuspendedBy, Transit,
};

fn loss(until: Instant, then: AfterLoss) -> Loss {
    Loss::new(Uuid::from_u128(1), until, then)
}

/// All states of this phase that an event may tell from each other; none for the two that have none.
#[expect(clippy::too_many_lines, reason = "a line for each")]
fn states_in(phase: Phase, due: Instant) -> Vec<State> {
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
fn events_of(kind: EventKind, due: Instant) -> Vec<LifecycleEvent> {
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

fn gone(at: Instant) -> HistoryEvent {
    HistoryEvent {
        at,
        what: sched_model::PhaseName::Gone,
        node: None,
        cause: Cause::Plain,
        run: 0,
    }
}

/// A table with one instance, which was put into this state past all checks.
fn table_with(name: &InstanceId, state: Option<State>, now: Instant) -> Instances {
    let mut instances = Instances::default();
    if let Some(state) = state {
        let place = instances.vacant(name.clone()).expect("none has it");
        let inserted = place.insert(LifecycleEvent::Managed, Instance::new(0, now));
        inserted.expect("it may be managed");
        instances.force(name, state);
    }
    instances
}

/// What an event makes of one.
fn done(
    instances: &mut Instances,
    name: &InstanceId,
    event: LifecycleEvent,
    now: Instant,
) -> Result<Phase, IllegalTransition> {
    match instances.vacant(name.clone()) {
        Some(place) => place.insert(event, Instance::new(0, now))?,
        None if event == LifecycleEvent::Ended => instances.remove(name, gone(now))?,
        None => {
            instances.on(name, event)?;
        }
    }
    let managed = instances.get(name);
    Ok(managed.map_or(Phase::Gone, |managed| managed.state.phase()))
}

#[test]
fn each_event_in_each_phase_does_what_the_table_of_the_lifecycle_says_and_else_changes_nothing() {
    let (now, name) = (some_moment(), InstanceId::new("a"));
    for phase in Phase::ALL {
        for kind in EventKind::ALL {
            let mut found = BTreeSet::new();
            let states = states_in(phase, now).into_iter().map(Some);
            let new = (phase == Phase::New).then_some(None);
            for state in states.chain(new) {
                for event in events_of(kind, now) {
                    let mut instances = table_with(&name, state.clone(), now);
                    let before = format!("{instances:?}");
                    let may = match phase {
                        Phase::New => !phase.on(kind).is_empty(),
                        _ => instances.may(&name, kind).is_ok(),
                    };
                    let done = done(&mut instances, &name, event, now);
                    assert!(may >= done.is_ok(), "{phase}: {kind}");
                    match done {
                        Ok(phase) => {
                            found.insert(phase);
                        }
                        Err(refused) => {
                            assert_eq!((refused.phase, refused.event), (phase, kind));
                            assert_eq!(format!("{instances:?}"), before, "{phase}: {kind}");
                        }
                    }
                }
            }
            let expected: BTreeSet<Phase> = phase.on(kind).iter().copied().collect();
            assert_eq!(found, expected, "{phase}: {kind}");
        }
    }
}

#[test]
fn each_event_has_one_row_in_the_table_of_the_lifecycle_and_each_phase_one_way_in_it() {
    let rows: Vec<EventKind> = TRANSITIONS.iter().map(|row| row.event).collect();
    assert_eq!(rows, EventKind::ALL);
    for row in TRANSITIONS {
        let from: Vec<Phase> = row
            .ways
            .iter()
            .flat_map(|(from, _)| *from)
            .copied()
            .collect();
        let once: BTreeSet<Phase> = from.iter().copied().collect();
        assert_eq!(from.len(), once.len(), "{}: {from:?}", row.event);
    }
}

/// Any moment will do.
fn some_moment() -> Instant {
    crate::simulated::start()
}

#[test]
fn no_state_of_an_instance_has_the_number_of_one_of_an_earlier_instance_of_its_name() {
    let (now, name) = (some_moment(), InstanceId::new("a"));
    let mut instances = Instances::default();
    let mut epochs = BTreeSet::new();
    for _ in 0..2 {
        insert(&mut instances, "a", LifecycleEvent::Managed, now);
        epochs.extend(instances.get(&name).map(|managed| managed.epoch));
        let node = NodeKey(0);
        let effects = instances.on(&name, LifecycleEvent::Claimed { node });
        assert!(effects.is_ok_and(|effects| effects.is_some()));
        epochs.extend(instances.get(&name).map(|managed| managed.epoch));
        instances.remove(&name, gone(now)).expect("it is deleted");
    }
    assert_eq!(epochs.len(), 4);
}

fn insert(instances: &mut Instances, name: &str, event: LifecycleEvent, now: Instant) {
    let place = instances.vacant(InstanceId::new(name));
    let place = place.expect("none has it");
    let inserted = place.insert(event, Instance::new(0, now));
    inserted.expect("a lifecycle begins so");
}

fn lost(until: Instant) -> LifecycleEvent {
    LifecycleEvent::Restored(Before::Lost(loss(until, AfterLoss::Restart)))
}

#[test]
fn one_that_is_managed_has_no_vacant_place() {
    let (mut instances, now) = (Instances::default(), some_moment());
    insert(&mut instances, "a", lost(now), now);
    assert!(instances.vacant(InstanceId::new("a")).is_none());
    assert!(instances.is_consistent());
}

#[test]
fn what_is_due_comes_up_once_whatever_is_done_about_it_and_what_is_stale_does_not() {
    let (mut instances, now) = (Instances::default(), some_moment());
    let later = now + Duration::from_secs(1);
    for name in ["a", "b"] {
        insert(&mut instances, name, lost(now), now);
    }
    // One that no state has.
    instances
        .indexes
        .due
        .insert((now, InstanceId::new("a stale one")));
    let mut due: Vec<_> = std::iter::from_fn(|| instances.take_due(now)).collect();
    due.sort();
    assert_eq!(due, [InstanceId::new("a"), InstanceId::new("b")]);
    assert_eq!(instances.due(), None);
    // The same moment again, for what was put off.
    let done = instances.on(&due[0], LifecycleEvent::LossDeferred { until: now });
    assert!(done.is_ok_and(|effects| effects.is_some()));
    assert_eq!(instances.take_due(later), Some(due[0].clone()));
}
