//! A transition that the lifecycle does not have is refused before anything else of the workflow is done: claims, the
//! queue and the instance are what they were.

use std::time::{Duration, Instant};

use sched_model::{Role, Uuid};

use crate::api::cause::Cause;
use crate::api::config::Config;
use crate::api::ids::{InstanceId, NodeKey, SessionId};
use crate::api::input::{ClusterConfiguration, NodeReport};
use crate::api::parcel::{Parcel, Tag};
use crate::api::phase::Phase;
use crate::api::start::{PlacedStart, StartRequest};
use crate::cluster::ledger::{Entry, Extras};
use crate::instance::samples::{all_events, states_in};
use crate::instance::{
    AfterLoss, AfterStop, Instance, LateEffects, LifecycleEvent, Move, OnLoss, State, SuspendedBy,
    Terms, Transit,
};
use crate::{Resources, Scheduler};

/// A scheduler, and an instance on the first of two nodes.
struct Scene {
    scheduler: Scheduler,
    instance: InstanceId,
    one: NodeKey,
    other: NodeKey,
}

/// What a node reports that has room for all.
fn roomy() -> NodeReport {
    NodeReport {
        addresses: Box::default(),
        mem_total_mib: 1000,
        mem_available_mib: 1000,
        disk_total_mb: 1000,
        disk_available_mb: 1000,
        load: 0,
        cpus_online: 10,
        hostname: "".into(),
        extras: None,
    }
}

/// A scheduler with two nodes, and an instance on the first that is put into this state past all checks.
fn with_one(state: impl FnOnce(NodeKey, NodeKey, Instant) -> State) -> Scene {
    let now = crate::simulated::start();
    let config = Config::new(Uuid::from_u128(1));
    let mut scheduler = Scheduler::new(config, ClusterConfiguration::default(), now);
    let mut nodes = (2..4).map(|number| {
        let (uuid, session) = (Uuid::from_u128(number), SessionId(number as u64));
        let key = scheduler
            .cluster
            .add_node(uuid, Role::AGENT, session, now, None);
        scheduler.cluster.ready(key, Box::new(roomy()), now);
        key
    });
    let (one, other) = (nodes.next(), nodes.next());
    drop(nodes);
    let (one, other) = (one.expect("a node"), other.expect("another"));
    let instance = InstanceId::new("a");
    let asked = Resources {
        mem_mib: 100,
        vcpus: 1,
        disk_mib: 0,
    };
    let request = StartRequest {
        asked,
        ..StartRequest::plain(instance.clone())
    };
    let start = PlacedStart {
        sender: SessionId(0),
        request: request.into(),
        parcel: Parcel {
            tag: Tag(0),
            native_limit: u32::MAX,
            origin: Uuid::nil(),
            trace: None,
            payload: bytes::Bytes::new(),
        },
        changes: None,
    };
    let terms = Terms {
        start: Some(Box::new(start)),
        priority: None,
        waits_until: None,
        max_attempts: 1,
        relocates: false,
        on_loss: OnLoss::Report,
        is_operators: false,
    };
    let managed = Instance::started(terms, 0, now);
    let place = scheduler.instances.vacant(instance.clone());
    let inserted = place
        .expect("none has it")
        .insert(LifecycleEvent::Managed, managed);
    inserted.expect("a START may be managed");
    let entry = Entry::claimed(asked, Extras::default(), now).managed();
    scheduler.cluster.claim(one, &instance, entry);
    let state = state(one, other, now + Duration::from_secs(60));
    scheduler.instances.force(&instance, state);
    Scene {
        scheduler,
        instance,
        one,
        other,
    }
}

/// What a workflow does to the instance.
type Verb = fn(&mut Scene);

/// States in which much is refused: it is being deleted, nothing is known of it but its loss, and it waits.
const STATES: [fn(NodeKey, NodeKey, Instant) -> State; 4] = [
    |node, _, due| State::Stopping {
        node,
        then: AfterStop::End(None),
        late: LateEffects::default(),
        due,
    },
    |_, _, until| State::Lost {
        node: Uuid::from_u128(2),
        until,
        then: AfterLoss::Delete,
        bound_for: None,
        late: LateEffects::default(),
        transit: Transit::default(),
    },
    |_, _, _| State::Waiting {
        pinned: None,
        waits_with: 0,
    },
    |from, to, due| State::Migrating {
        from,
        to,
        how: Move::Cold,
        move_request: Box::default(),
        late: LateEffects::default(),
        due,
    },
];

/// What changes claims or the queue beside the state.
const VERBS: [(&str, Verb); 8] = [
    ("claim", |it| {
        it.scheduler
            .claim_managed(&it.instance, it.other, &Cause::Plain);
    }),
    ("reschedule", |it| {
        it.scheduler
            .release_and_reschedule(it.one, &it.instance, &Cause::Plain);
    }),
    ("give", |it| it.scheduler.give(&it.instance)),
    ("resume", |it| {
        let by = SuspendedBy::Command;
        it.scheduler
            .order_resume(it.one, &it.instance, by, None, &Cause::Plain);
    }),
    ("undo", |it| {
        let by = SuspendedBy::Command;
        it.scheduler
            .rolled_back(it.one, &it.instance, by, &Cause::Plain);
    }),
    ("stay", |it| {
        it.scheduler
            .stays(&it.instance, it.one, None, &Cause::Plain);
    }),
    ("come back", |it| {
        let then = AfterLoss::Forget;
        it.scheduler.came_back(it.one, &it.instance, then, false);
    }),
    ("end", |it| {
        it.scheduler.end_managing(&it.instance, &Cause::Plain)
    }),
];

/// All that a workflow may change.
fn picture(scheduler: &Scheduler) -> String {
    format!(
        "{:?}\n{:?}\n{:?}\n{:?}\n{:?}",
        scheduler.cluster,
        scheduler.instances,
        scheduler.queue,
        scheduler.placement,
        scheduler.journal,
    )
}

#[test]
fn room_is_not_claimed_for_an_instance_that_is_being_deleted() {
    let mut scene = with_one(STATES[0]);
    let before = picture(&scene.scheduler);
    let (instance, other) = (scene.instance.clone(), scene.other);
    scene
        .scheduler
        .claim_managed(&instance, other, &Cause::Plain);
    assert_eq!(scene.scheduler.counters.illegal_transitions, 1);
    assert_eq!(picture(&scene.scheduler), before);
}

#[test]
fn an_event_happens_with_its_change_of_claims_or_neither_does() {
    let now = crate::simulated::start();
    let (mut happened, mut refused) = (0, 0);
    for phase in Phase::ALL {
        for (state, event) in states_in(phase, now).into_iter().flat_map(|state| {
            all_events(now)
                .into_iter()
                .map(move |event| (state.clone(), event))
        }) {
            let kind = event.name();
            let mut scene = with_one(|_, _, _| state);
            let (one, instance) = (scene.one, scene.instance.clone());
            let before = picture(&scene.scheduler);
            let is_released = scene
                .scheduler
                .turn(&instance, event, &Cause::Plain, |cluster| {
                    cluster.release(one, &instance);
                });
            let is_illegal = scene.scheduler.counters.illegal_transitions > 0;
            assert_eq!(is_released, !is_illegal, "{kind} in {phase}");
            let is_claimed = scene.scheduler.cluster.entry(one, &instance).is_some();
            assert_eq!(is_claimed, !is_released, "{kind} in {phase}");
            if is_released {
                happened += 1;
            } else {
                refused += 1;
                assert_eq!(picture(&scene.scheduler), before, "{kind} in {phase}");
            }
        }
    }
    assert!(
        happened > 0 && refused > 0,
        "{happened} happened, {refused} were refused"
    );
}

#[test]
fn whatever_is_refused_leaves_everything_as_it_was() {
    for (name, verb) in VERBS {
        let mut refused = 0;
        for state in STATES {
            let mut scene = with_one(state);
            let before = picture(&scene.scheduler);
            verb(&mut scene);
            if scene.scheduler.counters.illegal_transitions > 0 {
                refused += 1;
                assert_eq!(picture(&scene.scheduler), before, "{name}");
            }
        }
        let may_follow_anywhere = ["give", "end"].contains(&name);
        assert!(refused > 0 || may_follow_anywhere, "{name}");
    }
}
