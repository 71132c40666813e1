//! What a node says of an instance that is placed on another node counts for nothing: no one hears of it, and the instance
//! goes on as before. Who may speak of an instance that moves, waits or is lost stands in one place of the core
//! (`entitlement`); here each line of it is a sentence.

use std::time::Duration;

use proto_frames::Kind;
use proto_frames::payload::{
    CommandFailure, CommandFailureReason, InstanceStateEvent, LifecycleCommand, Migrate, PhaseName,
    Scheduling, Span, StartFailureReason, Topic,
};
use sched_core::{
    Capabilities, Command, IN_DOUBT_TIME, InstanceReport, InstanceState, LauncherCommand, Message,
    Report, ReportName, SessionId, StartRequest,
};

use crate::support::durability::{crash, durable, leased};
use crate::support::migration::able;
use crate::support::requests::Asking;
use crate::support::sending::{Sending, kind_in};
use crate::support::words::asking;
use crate::support::world::{World, id, node_uuid, request, running};

/// Longer than a lease and its margin.
const LEASE_IS_OVER: Duration = Duration::from_secs(40);

fn exited(name: &str) -> InstanceReport {
    InstanceReport {
        state: InstanceState::Exited,
        ..running(name, 0)
    }
}

/// A START that waits, and is tried on several nodes.
fn stubborn(name: &str, mem: i64) -> StartRequest {
    let scheduling = Scheduling {
        queue: Some(Span::from_ms(3_600_000)),
        attempts: Some(3),
        ..Scheduling::default()
    };
    asking(name, mem, scheduling)
}

/// Every way in which the liar may say that an instance is not there, or is not what it was.
fn lies(name: &str) -> Vec<Report> {
    let instance = || id(name);
    let node = || Box::<str>::from(node_uuid(LIAR).to_string());
    vec![
        Report::InstanceDeleted(instance()),
        Report::InstanceStopped(instance()),
        Report::InstanceCutOff(instance()),
        Report::StartFailed {
            node: node(),
            instance: Some(instance()),
            reason: StartFailureReason::LaunchFailure,
            detail: "".into(),
        },
        Report::StartFailed {
            node: "".into(),
            instance: Some(instance()),
            reason: StartFailureReason::AlreadyRunning,
            detail: "".into(),
        },
        Report::DeleteFailed {
            node: node(),
            instance: instance(),
            no_instance: true,
        },
        Report::DeleteFailed {
            node: node(),
            instance: instance(),
            no_instance: false,
        },
        Report::AttachVolumeFailed {
            node: node(),
            instance: instance(),
        },
        Report::CommandFailed(Box::new(CommandFailure {
            command: LifecycleCommand::Suspend,
            instance_uuid: name.to_owned(),
            node_uuid: String::new(),
            reason: CommandFailureReason::Failed,
            detail: String::new(),
        })),
        Report::InstanceState(Box::new(InstanceStateEvent {
            instance_uuid: name.to_owned(),
            state: PhaseName::Suspended,
            ..InstanceStateEvent::default()
        })),
    ]
}

const HONEST: u64 = 1;
const LIAR: u64 = 2;

/// An original controller and a native one, an honest node and a liar.
struct Scene {
    world: World,
    original: SessionId,
    native: SessionId,
    honest: SessionId,
    liar: SessionId,
}

impl Scene {
    fn new() -> Self {
        Self::of(World::new())
    }

    fn of(mut world: World) -> Self {
        let native = world.controller();
        let original = world.original_controller();
        let honest = world.node_with(HONEST, 1000);
        let liar = world.node_with(LIAR, 10);
        world.look_away();
        Self {
            world,
            original,
            native,
            honest,
            liar,
        }
    }

    fn tell_all_lies(&mut self, name: &str) {
        for lie in lies(name) {
            self.world.say(self.liar, lie);
        }
    }

    /// Names of the instances that a controller was shown in STATS since it last looked.
    fn shown(&mut self, controller: SessionId, listed: &[&str]) -> Vec<String> {
        let told = self.world.told(controller);
        let mut shown = Vec::new();
        for message in told {
            match message {
                Message::Forward(parcel) if kind_in(&parcel) == Kind::STATS => {
                    shown.extend(listed.iter().map(|it| (*it).to_owned()));
                }
                Message::StatsWithout(stats) => {
                    let is_left = |at: &usize| !stats.rows.contains(&(*at as u32));
                    let left = (0..listed.len()).filter(is_left);
                    shown.extend(left.map(|at| listed[at].to_owned()));
                }
                other => panic!("{other:?}"),
            }
        }
        shown
    }

    fn foreign(&self) -> u64 {
        self.world.scheduler.counters().foreign
    }

    /// Where an operator is told that an instance is.
    fn rows(&mut self, name: &str) -> Vec<(String, String)> {
        let operator = self.world.operator(&[]);
        let rows = self.world.instances(operator);
        let of_it = rows.into_iter().filter(|row| row.instance_uuid == name);
        of_it.map(|row| (row.node_uuid, row.life)).collect()
    }
}

#[test]
fn no_one_ends_a_plain_instance_of_another_node() {
    let mut scene = Scene::new();
    let (honest, native, original) = (scene.honest, scene.native, scene.original);
    assert_eq!(scene.world.place(native, "a", 600), Some(honest));
    // Before its node has listed it, and after.
    for round in 0..2 {
        scene.world.look_away();
        scene.tell_all_lies("a");
        scene.world.nothing_else();
        assert_eq!(scene.foreign(), (round + 1) * lies("a").len() as u64);
        assert_eq!(
            scene.world.place(native, "b", 600),
            None,
            "what it asked for is still claimed"
        );
        scene.world.stats(honest, vec![running("a", 1)]);
        scene.world.look_away();
    }
    // Its own node may say so.
    scene.world.gone(honest, Kind::INSTANCE_STOPPED, "a");
    for controller in [native, original] {
        assert!(matches!(
            scene.world.told_once(controller),
            Message::Forward(_)
        ));
    }
}

#[test]
fn no_one_ends_a_managed_instance_of_another_node() {
    for with_state in [false, true] {
        let world = if with_state {
            World::with(durable())
        } else {
            World::new()
        };
        let mut scene = Scene::of(world);
        let (honest, native) = (scene.honest, scene.native);
        let start = request("a", 600).movable();
        assert_eq!(scene.world.place_as(native, start), Some(honest));
        scene
            .world
            .stats_seen(honest, Some(1), vec![running("a", 1)]);
        scene.world.look_away();
        scene.tell_all_lies("a");
        scene.world.nothing_else();
        assert_eq!(scene.world.place(native, "b", 600), None);
        let uuid = node_uuid(HONEST).to_string();
        assert_eq!(scene.rows("a"), [(uuid, "running".to_owned())]);
    }
}

#[test]
fn what_a_liar_lists_of_others_is_not_shown_and_its_own_is() {
    let mut scene = Scene::new();
    let (honest, liar, native, original) = (scene.honest, scene.liar, scene.native, scene.original);
    scene.world.place(native, "plain", 100);
    scene.world.place_as(native, request("kept", 100).movable());
    let both = vec![running("plain", 1), running("kept", 1)];
    scene.world.stats_seen(honest, Some(2), both);
    let watching = scene.world.operator(&[Topic::Stats]);
    scene.world.look_away();
    let listed = vec![exited("plain"), running("own", 1), exited("kept")];
    scene.world.stats(liar, listed);
    for peer in [native, original, watching] {
        assert_eq!(scene.shown(peer, &["plain", "own", "kept"]), ["own"]);
    }
    assert_eq!(scene.foreign(), 2);
    // STARTs of what it claimed go where it really is.
    for name in ["plain", "kept"] {
        scene.world.look_away();
        scene.world.start(native, name, 100);
        assert_eq!(scene.world.placements(), [(name.to_owned(), honest)]);
    }
    // And what it claimed does not go with it.
    scene.world.stats(liar, vec![]);
    scene.world.cut(liar);
    scene.world.advance(IN_DOUBT_TIME * 2);
    let uuid = node_uuid(HONEST).to_string();
    assert_eq!(scene.rows("kept"), [(uuid.clone(), "running".to_owned())]);
    assert_eq!(scene.rows("plain"), [(uuid, String::new())]);
}

#[test]
fn a_stats_without_rows_of_others_is_carried_on_as_it_came() {
    let mut scene = Scene::new();
    let (honest, native, original) = (scene.honest, scene.native, scene.original);
    scene.world.place(native, "a", 100);
    scene.world.look_away();
    scene
        .world
        .stats(honest, vec![running("a", 1), running("b", 1)]);
    for controller in [native, original] {
        assert!(matches!(
            scene.world.told_once(controller),
            Message::Forward(_)
        ));
    }
    assert_eq!(scene.foreign(), 0);
}

#[test]
fn what_no_one_knows_is_told_as_ever() {
    let mut scene = Scene::new();
    let (liar, native, original) = (scene.liar, scene.native, scene.original);
    scene.world.gone(liar, Kind::INSTANCE_DELETED, "unknown");
    scene
        .world
        .start_failed(liar, "unknown", StartFailureReason::ImageFailure);
    for controller in [native, original] {
        assert_eq!(scene.world.told(controller).len(), 2);
    }
    // Also once the scheduler has been started again without a memory: the first to list an instance has it.
    scene.world.place(native, "a", 100);
    scene
        .world
        .restart(crate::support::world::config(), Default::default());
    let mut scene = Scene::of(scene.world);
    let (honest, liar, native) = (scene.honest, scene.liar, scene.native);
    scene.world.stats(honest, vec![running("a", 1)]);
    scene.world.look_away();
    scene.tell_all_lies("a");
    scene.world.nothing_else();
    scene.world.stats(liar, vec![exited("a")]);
    assert_eq!(scene.shown(native, &["a"]), [""; 0]);
    assert!(
        scene.world.told(liar).is_empty(),
        "nobody knows which is right"
    );
}

#[test]
fn a_node_that_lists_what_was_started_again_elsewhere_is_told_to_stop_it() {
    let mut scene = Scene::new();
    let (honest, native, original) = (scene.honest, scene.native, scene.original);
    scene.world.place(native, "a", 100);
    scene.world.stats(honest, vec![running("a", 1)]);
    scene.world.cut(honest);
    scene.world.advance(IN_DOUBT_TIME * 2);
    let other = scene.world.node_with(3, 1000);
    assert_eq!(scene.world.place(native, "a", 100), Some(other));
    // The first one comes back with its copy, before the second is known to run and after.
    let back = scene.world.node_with(HONEST, 1000);
    scene.world.look_away();
    scene.world.stats(back, vec![running("a", 1)]);
    assert_eq!(scene.world.stops(back), [""; 0]);
    scene.world.stats(other, vec![running("a", 1)]);
    scene.world.look_away();
    scene.world.stats(back, vec![running("a", 1)]);
    assert_eq!(scene.world.stops(back), ["a"]);
    let before = scene.foreign();
    // That it did so is no news, and no lie.
    scene.world.look_away();
    scene.world.gone(back, Kind::INSTANCE_STOPPED, "a");
    assert!(scene.world.told(original).is_empty() && scene.world.told(native).is_empty());
    assert_eq!(scene.foreign(), before);
    // Its room is free again.
    assert_eq!(scene.world.place(native, "big", 950), Some(back));
}

#[test]
fn a_late_end_of_what_was_started_again_elsewhere_ends_nothing() {
    let mut scene = Scene::new();
    let native = scene.native;
    let first = leased(&mut scene.world, 11, 5000);
    assert_eq!(
        scene
            .world
            .place_as(native, request("a", 2000).restarting()),
        Some(first)
    );
    scene
        .world
        .stats_seen(first, Some(1), vec![running("a", 1)]);
    let second = leased(&mut scene.world, 12, 5000);
    scene.world.cut(first);
    scene.world.look_away();
    scene.world.advance(LEASE_IS_OVER);
    assert_eq!(scene.world.placements(), [("a".to_owned(), second)]);
    scene
        .world
        .stats_seen(second, Some(1), vec![running("a", 1)]);
    let back = leased(&mut scene.world, 11, 5000);
    scene.world.look_away();
    let late = Report::InstanceCutOff(id("a"));
    scene.world.say(back, late);
    scene.world.nothing_else();
    assert_eq!(
        scene.foreign(),
        0,
        "it had the instance: it is late and does not lie"
    );
    // A copy that it still has is stopped.
    scene.world.stats_seen(back, Some(0), vec![running("a", 1)]);
    assert_eq!(scene.world.stops(back), ["a"]);
    assert_eq!(scene.world.placements(), []);
}

#[test]
fn both_nodes_of_a_move_are_heard_and_no_third() {
    let mut scene = Scene::new();
    let (native, source) = (scene.native, scene.honest);
    scene
        .world
        .run_movable(native, source, request("a", 600).movable(), &["a"]);
    let target = scene.world.node_with(3, 1000);
    scene.world.list(target, &[]);
    let migrate = Migrate {
        instance_uuid: "a".to_owned(),
        target_node_uuid: node_uuid(3).to_string(),
        ..Migrate::default()
    };
    let move_it = Command::Migrate(Box::new(migrate));
    scene.world.say(native, move_it);
    scene.world.look_away();
    // As if its holder had stopped it.
    scene.tell_all_lies("a");
    scene.world.stats(scene.liar, vec![running("a", 1)]);
    assert_eq!(scene.world.placements(), []);
    scene.world.look_away();
    scene.world.has_stopped(source, "a");
    assert_eq!(scene.world.placements(), [("a".to_owned(), target)]);
    // On its way to the target it is the target's alone.
    scene.world.look_away();
    scene.tell_all_lies("a");
    scene
        .world
        .start_failed(source, "a", StartFailureReason::LaunchFailure);
    scene.world.nothing_else();
    scene.world.list(target, &["a"]);
    let states = scene.world.states_of(native, "a");
    assert_eq!(states, [PhaseName::Running]);
}

#[test]
fn what_is_migrated_may_arrive_while_its_node_is_lost() {
    for (is_lost, forgets) in [(true, false), (false, true), (true, true)] {
        let mut world = World::with(durable());
        let native = world.controller();
        let source = world.silent_node(1);
        world.ready_with(source, able(Capabilities::MIGRATE));
        world.run_movable(native, source, request("a", 100).movable(), &["a"]);
        let target = world.silent_node(2);
        world.ready_with(target, able(Capabilities::MIGRATE));
        world.list(target, &[]);
        world.migrate(native, "a", Some(target));
        if is_lost {
            world.cut(source);
            world.advance(IN_DOUBT_TIME * 2);
        }
        let (native, target) = if forgets {
            crash(&mut world, 2);
            let native = world.controller();
            let target = world.silent_node(2);
            world.ready_with(target, able(Capabilities::MIGRATE));
            (native, target)
        } else {
            (native, target)
        };
        world.look_away();
        let liar = world.node_with(LIAR + 7, 10);
        world.list(liar, &["a"]);
        assert_eq!(world.states_of(native, "a"), []);
        world.list(target, &["a"]);
        assert_eq!(world.states_of(native, "a"), [PhaseName::Running]);
    }
}

#[test]
fn a_lost_instance_is_its_nodes_alone() {
    let mut scene = Scene::of(World::with(durable()));
    let (honest, native) = (scene.honest, scene.native);
    assert_eq!(
        scene.world.place_as(native, request("a", 600).movable()),
        Some(honest)
    );
    scene
        .world
        .stats_seen(honest, Some(1), vec![running("a", 1)]);
    crash(&mut scene.world, 2);
    let mut scene = Scene {
        native: scene.world.controller(),
        original: scene.world.original_controller(),
        liar: scene.world.node_with(LIAR, 10),
        ..scene
    };
    scene.world.look_away();
    scene.tell_all_lies("a");
    scene.world.stats(scene.liar, vec![running("a", 1)]);
    let native = scene.native;
    assert_eq!(scene.shown(native, &["a"]), [""; 0]);
    assert!(scene.world.told(scene.liar).is_empty());
    let back = scene.world.node_with(HONEST, 1000);
    scene.world.stats_seen(back, Some(0), vec![running("a", 1)]);
    let uuid = node_uuid(HONEST).to_string();
    assert!(scene.rows("a").contains(&(uuid, "running".to_owned())));
    assert_eq!(scene.world.stops(back), [""; 0]);
    // Now that it is placed, a second copy is one too many.
    scene.world.look_away();
    scene.world.stats(scene.liar, vec![running("a", 1)]);
    assert_eq!(scene.world.stops(scene.liar), ["a"]);
}

#[test]
fn what_waits_is_taken_up_from_a_node_that_had_it_and_from_no_other() {
    let mut scene = Scene::new();
    let native = scene.native;
    scene.world.place(native, "full", 1000);
    scene
        .world
        .start_as(native, request("a", 900).waiting(3600));
    scene.world.look_away();
    scene.tell_all_lies("a");
    scene.world.nothing_else();
    scene.world.stats(scene.liar, vec![running("a", 1)]);
    assert_eq!(scene.rows("a"), [(String::new(), "waiting".to_owned())]);
    assert_eq!(scene.world.stops(scene.liar), ["a"]);
    scene
        .world
        .gone(scene.honest, Kind::INSTANCE_STOPPED, "full");
    assert_eq!(scene.world.placements(), [("a".to_owned(), scene.honest)]);
    let failed = StartFailureReason::LaunchFailure;
    scene.world.list(scene.honest, &["a"]);
    scene.world.gone(scene.liar, Kind::INSTANCE_STOPPED, "a");
    let uuid = node_uuid(HONEST).to_string();
    assert_eq!(scene.rows("a"), [(uuid.clone(), "running".to_owned())]);
    // Its node has it end, fills up, and refuses it: it waits. That the node has it after all is believed.
    scene.world.start_as(native, stubborn("b", 900));
    scene.world.gone(scene.honest, Kind::INSTANCE_STOPPED, "a");
    scene.world.start_failed(scene.honest, "b", failed.clone());
    let states = scene.rows("b");
    assert_eq!(
        states,
        [(String::new(), "waiting".to_owned())],
        "{states:?}"
    );
    scene.world.look_away();
    // But not that it failed there once more.
    scene.world.start_failed(scene.honest, "b", failed);
    scene.world.nothing_else();
    scene.world.list(scene.honest, &["b"]);
    assert_eq!(scene.rows("b"), [(uuid, "running".to_owned())]);
    assert_eq!(scene.foreign(), lies("a").len() as u64 + 1);
}

#[test]
fn the_answer_to_a_command_is_told_whichever_node_has_the_instance() {
    let mut scene = Scene::new();
    let (native, original, liar) = (scene.native, scene.original, scene.liar);
    scene.world.place(native, "a", 100);
    let operator = scene.world.operator(&[]);
    scene.world.look_away();
    scene.world.delete(operator, "a", liar);
    scene.world.look_away();
    scene.world.gone(liar, Kind::INSTANCE_DELETED, "a");
    for peer in [native, original, operator] {
        assert!(matches!(scene.world.told_once(peer), Message::Forward(_)));
    }
    assert_eq!(scene.foreign(), 0);
    // Once: no one has asked again. And the one that has the instance has it still.
    scene.world.gone(liar, Kind::INSTANCE_DELETED, "a");
    scene.world.nothing_else();
    assert_eq!(scene.foreign(), 1);
    scene.world.start(native, "a", 100);
    assert_eq!(scene.world.placements(), [("a".to_owned(), scene.honest)]);
}

#[test]
fn what_cannot_be_read_is_not_carried_on_as_somebodys_end() {
    let mut scene = Scene::new();
    for name in [
        ReportName::InstanceDeleted,
        ReportName::InstanceStopped,
        ReportName::AttachVolumeFailure,
    ] {
        let fault = sched_core::Fault::Payload;
        let malformed = sched_core::Malformed::new(fault, None, "why".into());
        let unreadable = Sending::malformed_report(name, malformed);
        scene.world.say(scene.liar, unreadable);
        assert!(scene.world.told(scene.original).is_empty());
        assert!(scene.world.told(scene.native).is_empty());
        assert!(matches!(
            scene.world.told_once(scene.liar),
            Message::CommandRefused(_)
        ));
    }
}

#[test]
fn no_more_copies_are_stopped_at_once_than_can_be_answered_for() {
    const COPIES: usize = 200;
    let mut scene = Scene::new();
    let (honest, liar, native) = (scene.honest, scene.liar, scene.native);
    let names: Vec<String> = (0..COPIES).map(|number| format!("i{number}")).collect();
    for name in &names {
        scene.world.place_as(native, request(name, 1).movable());
    }
    let all = || names.iter().map(|name| running(name, 0)).collect();
    scene.world.stats_seen(honest, Some(COPIES as u64), all());
    scene.world.look_away();
    scene.world.stats(liar, all());
    let stops = scene.world.told(liar);
    let is_stop = |it: &Message| matches!(it, Message::LauncherCommand(order) if matches!(**order, LauncherCommand::Stop(_)));
    assert!(stops.iter().all(is_stop), "{stops:?}");
    assert_eq!(stops.len(), sched_core::MAX_QUESTIONS);
}
