//! A disk that takes no writes, or does not answer: what needs it is told so, what does not goes on.

use std::time::Duration;

use bytes::Bytes;
use proto_frames::payload::{
    Evacuate, EvacuateMode, Migrate, Query, QueryKind, RefusalReason, StartFailureReason,
    StoreState, StoreView, Update,
};
use proto_frames::{Kind, Uuid};
use sched_core::{
    Command, Config, DISK_PATIENCE, DiskState, Input, MAX_HELD_FOR_DISK, MAX_HELD_FOR_DISK_BYTES,
    Message, PolicyRules, Rules, SessionId, StartRequest,
};

use crate::support::durability::{crash, durable};
use crate::support::requests::Asking;
use crate::support::scenes::one_failure;
use crate::support::world::{World, node_uuid, request, running};

const MOMENT: Duration = Duration::from_millis(1);

/// A controller, and a node with this much memory of which an instance has as much.
fn world(mem: i64, taken: i64) -> (World, SessionId, SessionId) {
    ruled(mem, taken, Rules::default())
}

fn ruled(mem: i64, taken: i64, rules: Rules) -> (World, SessionId, SessionId) {
    configured(durable(), mem, taken, rules)
}

fn configured(config: Config, mem: i64, taken: i64, rules: Rules) -> (World, SessionId, SessionId) {
    let (mut world, controller, node) = World::ruled(config, rules).with_node(mem);
    if taken > 0 {
        let start = request("taken", taken).waiting(0).priority(20);
        assert_eq!(world.place_as(controller, start), Some(node));
        world.stats(node, vec![running("taken", 1)]);
        world.look_away();
    }
    (world, controller, node)
}

impl World {
    fn disk_refuses(&mut self) {
        self.store.be_slow();
        self.handle(Input::Disk(DiskState::Refuses("no room".into())));
    }

    fn disk_writes(&mut self) {
        self.handle(Input::Disk(DiskState::Writes));
        self.store.be_fast();
        self.handle(Input::Tick);
    }

    fn store_view(&mut self, peer: SessionId) -> StoreView {
        let what = QueryKind::Controllers;
        let query = Query {
            what,
            ..Query::default()
        };
        self.say(peer, Command::Query(Box::new(query)));
        let told = self.told(peer).into_iter();
        let mut answers = told.filter_map(|message| match message {
            Message::QueryResult(result) => result.payload.store,
            _ => None,
        });
        answers.next().expect("it says how its store is")
    }

    fn refusals(&mut self, peer: SessionId) -> Vec<RefusalReason> {
        let told = self.told(peer).into_iter();
        let refused = told.filter_map(|message| match message {
            Message::CommandRefused(refused) => Some(refused.cause.reason()),
            _ => None,
        });
        refused.collect()
    }
}

/// Lower priorities leave.
fn preempting() -> Rules {
    let policy = PolicyRules {
        preemption: true,
        ..PolicyRules::default()
    };
    Rules {
        policy,
        ..Rules::default()
    }
}

fn not_recorded(names: &[&str]) -> Vec<(String, StartFailureReason)> {
    let reason = StartFailureReason::NotRecorded;
    let failed = names
        .iter()
        .map(|name| ((*name).to_owned(), reason.clone()));
    failed.collect()
}

#[test]
fn a_start_that_needs_a_disk_that_takes_no_writes_fails_when_its_time_is_up() {
    let (mut world, controller, _) = world(100, 100);
    world.disk_refuses();
    world.start_as(controller, request("waits", 50).waiting(600));
    world.start_as(controller, request("fits", 0).waiting(600));
    world.advance(DISK_PATIENCE - MOMENT);
    world.nothing_else();
    world.advance(MOMENT);
    let failed = not_recorded(&["waits", "fits"]);
    assert_eq!(world.failures(controller), failed);
    // And nothing of it is ever there.
    world.disk_writes();
    assert!(!world.store.has("waits") && !world.store.has("fits"));
    world.nothing_else();
}

#[test]
fn a_start_that_was_taken_in_before_the_disk_failed_fails_too_and_its_claim_is_free() {
    let (mut world, controller, node) = world(100, 0);
    world.store.be_slow();
    let mut again = request("again", 60).waiting(600);
    if let Some(scheduling) = &mut again.scheduling {
        scheduling.attempts = Some(2);
    }
    world.start_as(controller, again);
    world.start_as(controller, request("big", 100).waiting(600));
    assert_eq!(world.placements(), [("again".to_owned(), node)]);
    world.advance(MOMENT);
    world.disk_refuses();
    world.advance(DISK_PATIENCE);
    assert_eq!(world.failures(controller), not_recorded(&["big"]));
    // Its node, which might have taken it, refuses it: it waits for the disk from then on.
    world.start_failed(node, "again", StartFailureReason::FullComputeNode);
    assert_eq!(world.failures(controller), []);
    world.advance(DISK_PATIENCE);
    assert_eq!(world.failures(controller), not_recorded(&["again"]));
    world.disk_writes();
    assert!(!world.store.has("big") && !world.store.has("again"));
    assert_eq!(
        world.place(controller, "next", 100),
        Some(node),
        "all of it is free"
    );
}

#[test]
fn a_plain_start_goes_on() {
    let (mut world, controller, node) = world(100, 0);
    world.disk_refuses();
    world.start(controller, "plain", 50);
    assert_eq!(world.placements(), [("plain".to_owned(), node)]);
    world.stats(node, vec![running("plain", 1)]);
    world.look_away();
    world.delete(controller, "plain", node);
    let told = world.told(node);
    assert!(matches!(told[..], [Message::Targeted(_)]), "{told:?}");
}

#[test]
fn what_was_acknowledged_waits_for_the_disk_and_is_not_given_up() {
    let (mut world, controller, node) = world(100, 100);
    world.start_as(controller, request("waits", 100).waiting(600));
    assert_eq!(world.queued(controller).len(), 1);
    world.disk_refuses();
    // There is room: it waits for the disk to say that it has left the queue.
    world.gone(node, Kind::INSTANCE_DELETED, "taken");
    world.advance(3 * DISK_PATIENCE);
    assert_eq!(world.failures(controller), []);
    assert_eq!(world.placements(), []);
    world.disk_writes();
    assert_eq!(world.placements(), [("waits".to_owned(), node)]);
}

#[test]
fn a_start_sent_again_is_not_told_that_it_waits_before_that_is_on_disk() {
    let (mut world, controller, _) = world(100, 100);
    world.store.be_slow();
    world.start_as(controller, request("waits", 100).waiting(600));
    world.start_as(controller, request("waits", 100).waiting(600));
    assert_eq!(world.queued(controller).len(), 0);
    // It is told as the first one is.
    world.store.be_fast();
    world.handle(Input::Tick);
    assert_eq!(world.queued(controller).len(), 1);
    // Once it is there, at once, whatever else is not.
    world.disk_refuses();
    world.start_as(controller, request("waits", 100).waiting(600));
    assert_eq!(world.queued(controller).len(), 1);
}

#[test]
fn a_start_sent_again_of_what_cannot_be_recorded_is_refused_at_once() {
    let (mut world, controller, _) = world(100, 100);
    world.store.be_slow();
    world.start_as(controller, request("waits", 100).waiting(600));
    world.disk_refuses();
    world.start_as(controller, request("waits", 100).waiting(600));
    let there = one_failure("waits", StartFailureReason::InstanceExists);
    assert_eq!(world.failures(controller), there);
    world.advance(DISK_PATIENCE);
    assert_eq!(world.failures(controller), not_recorded(&["waits"]));
}

#[test]
fn a_crash_while_nothing_can_be_written_leaves_what_was_acknowledged() {
    let (mut world, controller, _) = world(100, 100);
    world.start_as(controller, request("waits", 100).waiting(600));
    world.disk_refuses();
    world.start_as(controller, request("other", 100).waiting(600));
    world.advance(2 * DISK_PATIENCE);
    assert_eq!(world.failures(controller), not_recorded(&["other"]));
    crash(&mut world, 1);
    assert!(world.store.has("waits") && world.store.has("taken"));
    assert!(!world.store.has("other"));
}

#[test]
fn a_failure_of_what_is_on_disk_is_told_once_a_crash_would_not_undo_it() {
    let (mut world, controller, _) = world(100, 100);
    world.start_as(controller, request("waits", 100).waiting(2));
    world.look_away();
    world.disk_refuses();
    world.advance(2 * DISK_PATIENCE);
    assert_eq!(world.failures(controller), []);
    world.disk_writes();
    let timeout = one_failure("waits", StartFailureReason::QueueTimeout);
    assert_eq!(world.failures(controller), timeout);

    world.start_as(controller, request("waits", 100).waiting(2));
    world.look_away();
    world.disk_refuses();
    world.advance(2 * DISK_PATIENCE);
    assert_eq!(world.failures(controller), []);
    crash(&mut world, 1);
    let controller = world.controller();
    world.node_with(1, 100);
    world.disk_writes();
    world.advance(2 * DISK_PATIENCE);
    assert_eq!(world.failures(controller), timeout, "once");
}

#[test]
fn nor_is_one_told_before_while_nothing_is_known_of_a_disk_that_takes_its_time() {
    let (mut world, controller, _) = world(100, 100);
    world.start_as(controller, request("waits", 100).waiting(2));
    world.look_away();
    world.store.be_slow();
    world.advance(DISK_PATIENCE / 2 + DISK_PATIENCE / 4);
    assert_eq!(world.failures(controller), []);
    world.disk_writes();
    let timeout = ("waits".to_owned(), StartFailureReason::QueueTimeout);
    assert_eq!(world.failures(controller), [timeout]);
}

#[test]
fn a_store_that_may_take_longer_is_waited_for_so_long() {
    let config = Config {
        disk_patience: 3 * DISK_PATIENCE,
        ..durable()
    };
    let (mut world, controller, _) = configured(config, 100, 100, Rules::default());
    world.store.be_slow();
    world.start_as(controller, request("waits", 50).waiting(600));
    world.advance(3 * DISK_PATIENCE - MOMENT);
    assert_eq!(world.failures(controller), []);
    assert_eq!(world.store_view(controller).state, StoreState::Written);
    world.advance(MOMENT);
    assert_eq!(world.failures(controller), not_recorded(&["waits"]));
    assert_eq!(world.store_view(controller).state, StoreState::Refused);
}

#[test]
fn starts_at_the_door_go_in_when_the_disk_is_back_the_most_urgent_first() {
    let (mut world, controller, node) = world(100, 0);
    world.disk_refuses();
    for name in ["a", "b", "c"] {
        world.start_as(controller, request(name, 40).waiting(600));
    }
    world.start_as(controller, request("d", 40).waiting(600).priority(60));
    // Sent again, and taken back.
    world.start_as(controller, request("a", 30).waiting(600));
    world.delete(controller, "b", node);
    let undone = ("b".to_owned(), StartFailureReason::LaunchFailure);
    assert_eq!(world.failures(controller), [undone]);
    world.look_away();
    world.disk_writes();
    let placed: Vec<String> = world
        .placements()
        .into_iter()
        .map(|(name, _)| name)
        .collect();
    assert_eq!(placed, ["d", "c"]);
    assert_eq!(
        world.queued(controller).len(),
        1,
        "the one sent again is the last"
    );
}

#[test]
fn a_start_at_the_door_preempts_nothing_before_one_of_higher_priority_that_waits() {
    let (mut world, controller, node) = ruled(100, 0, preempting());
    let start = request("taken", 100).waiting(0).priority(20);
    assert_eq!(world.place_as(controller, start), Some(node));
    // While "taken" is on its way it cannot be preempted.
    world.start_as(controller, request("urgent", 100).waiting(600).priority(90));
    world.disk_refuses();
    world.stats(node, vec![running("taken", 1)]);
    world.start_as(controller, request("later", 100).waiting(600).priority(50));
    world.look_away();
    world.disk_writes();
    world.gone(node, Kind::INSTANCE_STOPPED, "taken");
    assert_eq!(world.placements(), [("urgent".to_owned(), node)]);
}

#[test]
fn a_start_that_needs_no_disk_waits_where_an_earlier_one_of_its_instance_does() {
    let (mut world, controller, node) = world(100, 0);
    world.disk_refuses();
    world.start_as(controller, request("a", 40).waiting(600));
    world.start(controller, "a", 40);
    assert_eq!(world.scheduler.footprint().held, 1);
    assert_eq!(world.placements(), []);
    world.disk_writes();
    assert_eq!(world.placements(), [("a".to_owned(), node)]);
    assert!(world.failures(controller).is_empty());
}

#[test]
fn as_many_wait_at_the_door_as_may() {
    let (mut world, controller, _) = world(100, 0);
    let mut world = {
        world.disk_refuses();
        world.check_every(1000)
    };
    for number in 0..MAX_HELD_FOR_DISK + 3 {
        world.start_as(
            controller,
            request(&format!("start-{number}"), 40).waiting(600),
        );
    }
    assert_eq!(world.failures(controller).len(), 3);
    assert_eq!(world.scheduler.footprint().held, MAX_HELD_FOR_DISK);
    // Of one that waits already, the newer takes the place of the earlier.
    world.start_as(controller, request("start-0", 40).waiting(600));
    assert!(world.failures(controller).is_empty());
    assert_eq!(world.scheduler.footprint().held, MAX_HELD_FOR_DISK);
    world.advance(DISK_PATIENCE);
    assert_eq!(world.failures(controller).len(), MAX_HELD_FOR_DISK);
    let footprint = world.scheduler.footprint();
    assert_eq!((footprint.held, footprint.held_bytes), (0, 0));
    // And as many bytes.
    let len = MAX_HELD_FOR_DISK_BYTES / 4;
    for number in 0..5 {
        let start = request(&format!("long-{number}"), 40).waiting(600);
        let payload = vec![b' '; len];
        let start = Command::Start(start.into());
        world.say_with(controller, start, Bytes::from(payload));
    }
    assert_eq!(world.failures(controller), not_recorded(&["long-4"]));
}

#[test]
fn a_disk_that_does_not_answer_is_taken_for_one_that_refuses() {
    let (mut world, controller, node) = world(100, 100);
    world.store.be_slow();
    world.start_as(controller, request("first", 50).waiting(600));
    world.advance(DISK_PATIENCE);
    assert_eq!(world.failures(controller), not_recorded(&["first"]));
    let view = world.store_view(controller);
    assert_eq!((view.state, view.since_s), (StoreState::Refused, Some(5)));
    world.start_as(controller, request("second", 50).waiting(600));
    world.gone(node, Kind::INSTANCE_DELETED, "taken");
    assert_eq!(world.placements(), []);
    world.store.be_fast();
    world.handle(Input::Tick);
    assert_eq!(world.placements(), [("second".to_owned(), node)]);
    assert_eq!(world.store_view(controller).state, StoreState::Written);
}

#[test]
fn nothing_is_stopped_for_what_could_not_start() {
    let (mut world, controller, node) = ruled(100, 100, preempting());
    world.disk_refuses();
    world.start_as(controller, request("urgent", 100).waiting(600).priority(90));
    // This one did not ask to be kept.
    world.start(controller, "plain", 100);
    world.advance(2 * DISK_PATIENCE);
    assert_eq!(world.told(node).len(), 0, "it is told nothing");
    world.look_away();
    world.disk_writes();
    world.start_as(controller, request("next", 100).waiting(600).priority(90));
    assert_eq!(world.told(node).len(), 1, "the other is preempted");
}

#[test]
fn nothing_is_stopped_for_what_waited_before() {
    let (mut world, controller, node) = ruled(100, 0, preempting());
    let start = request("taken", 100).waiting(0).priority(20);
    assert_eq!(world.place_as(controller, start), Some(node));
    // While it is on its way it cannot leave.
    world.start_as(controller, request("urgent", 100).waiting(600).priority(90));
    assert_eq!(world.queued(controller).len(), 1);
    world.look_away();
    world.disk_refuses();
    world.stats(node, vec![running("taken", 1)]);
    world.advance(2 * DISK_PATIENCE);
    assert_eq!(world.told(node).len(), 0, "it is told nothing");
    world.disk_writes();
    assert_eq!(world.told(node).len(), 1, "now it is told to stop");
}

#[test]
fn nothing_is_stopped_before_it_is_on_disk_that_it_goes_on() {
    let (mut world, controller, node) = ruled(100, 100, preempting());
    world.store.be_slow();
    world.start_as(controller, request("urgent", 100).waiting(600).priority(90));
    assert_eq!(world.told(node).len(), 0, "it is told nothing");
    world.store.be_fast();
    world.handle(Input::Tick);
    assert_eq!(world.told(node).len(), 1, "it is told to stop");
}

#[test]
fn who_was_told_to_leave_before_a_crash_is_placed_again_after_it() {
    let (mut world, controller, node) = ruled(100, 100, preempting());
    world.start_as(controller, request("urgent", 100).waiting(600).priority(90));
    assert_eq!(world.told(node).len(), 1, "it is told to stop");
    crash(&mut world, 1);
    let node = world.node_with(1, 100);
    world.gone(node, Kind::INSTANCE_STOPPED, "taken");
    assert!(world.store.has("taken"), "that was not its own end");
    world.stats(node, Vec::new());
    assert_eq!(world.placements(), [("urgent".to_owned(), node)]);
    world.stats(node, vec![running("urgent", 1)]);
    world.gone(node, Kind::INSTANCE_STOPPED, "urgent");
    assert_eq!(world.placements(), [("taken".to_owned(), node)]);
}

#[test]
fn nothing_is_stopped_for_what_could_not_be_recorded() {
    let (mut world, controller, node) = ruled(100, 100, preempting());
    world.store.be_slow();
    world.start_as(controller, request("urgent", 100).waiting(600).priority(90));
    world.advance(DISK_PATIENCE);
    assert_eq!(world.failures(controller), not_recorded(&["urgent"]));
    world.look_away();
    world.store.be_fast();
    world.handle(Input::Tick);
    assert_eq!(world.told(node).len(), 0, "it is told nothing");
    world.start_as(controller, request("next", 100).waiting(600).priority(90));
    assert_eq!(world.told(node).len(), 1, "now it is told to stop");
}

#[test]
fn what_was_to_leave_and_was_not_told_ends_by_itself() {
    let (mut world, controller, node) = ruled(100, 100, preempting());
    world.store.be_slow();
    world.start_as(controller, request("urgent", 100).waiting(600).priority(90));
    world.advance(20 * DISK_PATIENCE);
    world.stats(node, vec![running("taken", 1)]);
    world.look_away();
    world.gone(node, Kind::INSTANCE_STOPPED, "taken");
    world.store.be_fast();
    world.handle(Input::Tick);
    assert!(!world.store.has("taken"), "that was its own end");
}

#[test]
fn commands_that_have_to_outlive_a_restart_are_refused() {
    let (mut world, controller, node) = world(100, 100);
    world.start_as(controller, request("waits", 100).waiting(600));
    world.look_away();
    world.disk_refuses();
    let instance_uuid = "taken".to_owned();
    let migrate = Migrate {
        instance_uuid: instance_uuid.clone(),
        ..Migrate::default()
    };
    let update = Update {
        instance_uuid,
        ..Update::default()
    };
    world.migrate_as(controller, migrate);
    world.update_as(controller, update);
    world.delete_at(controller, "waits", Uuid::nil());
    for mode in [EvacuateMode::Cordon, EvacuateMode::Relocate] {
        let evacuate = Evacuate {
            workload_agent_uuid: node_uuid(1).to_string(),
            mode,
            ..Evacuate::default()
        };
        let command = Command::Evacuate(Box::new(evacuate));
        world.say(controller, command);
    }
    let expected = vec![RefusalReason::NotRecorded; 5];
    assert_eq!(world.refusals(controller), expected);
    world.delete(controller, "taken", node);
    assert_eq!(world.told(node).len(), 1, "its end is its node's to tell");
    world.disk_writes();
    world.delete_at(controller, "waits", Uuid::nil());
    assert_eq!(world.refusals(controller), []);
    assert!(!world.store.has("waits"));
}

#[test]
fn a_scheduler_that_leaves_while_nothing_can_be_written_answers_what_it_has_not_acknowledged() {
    let (mut world, controller, _) = world(100, 100);
    world.start_as(controller, request("waits", 100).waiting(600));
    world.look_away();
    world.store.be_slow();
    world.start_as(controller, request("late", 100).waiting(600));
    world.disk_refuses();
    world.start_as(controller, request("later", 100).waiting(600));
    world.handle(Input::Leaving);
    assert_eq!(world.failures(controller), not_recorded(&["later", "late"]));
    // Found out while it leaves.
    let (mut world, controller, _) = self::world(100, 100);
    world.store.be_slow();
    world.start_as(controller, request("late", 100).waiting(600));
    world.handle(Input::Leaving);
    world.nothing_else();
    world.disk_refuses();
    assert_eq!(world.failures(controller), not_recorded(&["late"]));
}

#[test]
fn what_is_said_of_the_store_is_how_it_is() {
    let (mut world, controller, _) = world(100, 100);
    let view = world.store_view(controller);
    assert_eq!(
        (view.state, view.detail.as_str()),
        (StoreState::Written, "")
    );
    world.disk_refuses();
    world.start_as(controller, request("waits", 50).waiting(600));
    world.advance(2 * MOMENT);
    let view = world.store_view(controller);
    assert_eq!(view.state, StoreState::Refused);
    assert_eq!((view.detail.as_str(), view.waiting), ("no room", 1));
    world.disk_writes();
    assert_eq!(world.store_view(controller).state, StoreState::Written);
    let mut without = World::new();
    let controller = without.controller();
    assert_eq!(without.store_view(controller).state, StoreState::Memory);
}

#[test]
fn a_dry_run_and_a_start_of_an_instance_that_is_there_need_no_disk() {
    let (mut world, controller, node) = world(100, 50);
    world.disk_refuses();
    let mut trial: StartRequest = request("trial", 10).waiting(600);
    if let Some(scheduling) = &mut trial.scheduling {
        scheduling.dry_run = true;
    }
    world.start_as(controller, trial);
    assert_eq!(
        world.told(controller).len(),
        1,
        "it is told where it would be"
    );
    world.start_as(controller, request("taken", 50).waiting(0).priority(20));
    assert_eq!(world.placements(), [("taken".to_owned(), node)]);
}
