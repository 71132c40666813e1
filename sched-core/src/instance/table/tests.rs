//! What the table of instances does at each event in each phase, and what is looked up in it.

use std::time::Duration;

use super::*;
use crate::api::cause::Cause;
use crate::api::ids::NodeKey;
use crate::instance::samples::{all_events, loss, states_in, transitions};
use crate::instance::{AfterLoss, Before};

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

/// Applies an event to one that is managed.
fn on(
    instances: &mut Instances,
    name: &InstanceId,
    event: LifecycleEvent,
) -> Result<(), IllegalTransition> {
    let (state, _) = instances.next(name, event)?.expect("it is managed");
    instances.enter(name, state);
    Ok(())
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
        None => on(instances, name, event)?,
    }
    let managed = instances.get(name);
    Ok(managed.map_or(Phase::Gone, |managed| managed.state.phase()))
}

#[test]
fn what_a_phase_does_not_have_is_refused_and_changes_nothing() {
    let (now, name) = (some_moment(), InstanceId::new("a"));
    let mut refusals = 0;
    for phase in Phase::ALL {
        let states = states_in(phase, now).into_iter().map(Some);
        let new = (phase == Phase::New).then_some(None);
        for state in states.chain(new) {
            for event in all_events(now) {
                let mut instances = table_with(&name, state.clone(), now);
                let (before, kind) = (format!("{instances:?}"), event.name());
                if let Err(refused) = done(&mut instances, &name, event, now) {
                    refusals += 1;
                    assert_eq!((refused.phase, refused.event), (phase, kind));
                    assert_eq!(format!("{instances:?}"), before, "{phase}: {kind}");
                }
            }
        }
    }
    assert!(refusals > 0);
}

#[test]
fn each_event_has_a_sample_and_happens_in_some_phase() {
    let rows = transitions(some_moment());
    assert_eq!(rows.len(), LifecycleEvent::WHEN.len() + 1);
    for row in rows {
        assert!(
            !row.ways.is_empty(),
            "{} has no sample, or no phase",
            row.event
        );
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
        assert_eq!(
            on(&mut instances, &name, LifecycleEvent::Claimed { node }),
            Ok(())
        );
        epochs.extend(instances.get(&name).map(|managed| managed.epoch));
        instances.remove(&name, gone(now));
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
    let deferred = LifecycleEvent::LossDeferred { until: now };
    assert_eq!(on(&mut instances, &due[0], deferred), Ok(()));
    assert_eq!(instances.take_due(later), Some(due[0].clone()));
}
