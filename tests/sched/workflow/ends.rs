//! Ends that launchers number: told once, recorded, acknowledged; and an old one never ends what began after it.

use std::time::Duration;

use bytes::Bytes;
use proto_frames::payload::{StartFailureReason, Topic};
use proto_frames::{Kind, Role, Uuid};
use sched_core::{
    Dialect, EndHow, EndReport, EndsReport, FailedStart, IN_DOUBT_TIME, Input, InstanceReport,
    Message, Report, SessionId, StartRequest, StatsReport, TenantId,
};

use crate::support::durability::{crash, durable, leased, leased_ready};
use crate::support::requests::Asking;
use crate::support::scenes::one_failure;
use crate::support::sending::{kind_in, parcel};
use crate::support::world::{World, config, id, node_uuid, request, running};

const COUNT: Uuid = Uuid::from_u128(0xc0);

/// An end of an instance by itself.
pub(super) fn end(seq: u64, name: &str) -> EndReport {
    EndReport {
        seq,
        instance: id(name),
        how: EndHow::Stopped,
        exit_code: Some(7),
        ago: None,
        parcel: parcel(
            Kind::INSTANCE_STOPPED,
            Uuid::nil(),
            Bytes::from(format!("end {seq}")),
        ),
        facts: None,
    }
}

fn failed(seq: u64, name: &str, reason: StartFailureReason) -> EndReport {
    let text = Bytes::from(format!("failure {seq}"));
    EndReport {
        how: EndHow::Failed(Box::new(FailedStart {
            reason,
            detail: "".into(),
            parcel: parcel(Kind::START_FAILURE, Uuid::nil(), text),
        })),
        ..end(seq, name)
    }
}

impl World {
    /// STATS of a launcher that numbers ends and has seen so many STARTs.
    pub(super) fn ends(
        &mut self,
        node: SessionId,
        seen: u64,
        ended: Vec<EndReport>,
        instances: Vec<InstanceReport>,
    ) {
        let seq = ended.iter().map(|end| end.seq).max().unwrap_or(100);
        self.ends_of(COUNT, seq.max(100), node, seen, ended, instances);
    }

    fn ends_of(
        &mut self,
        incarnation: Uuid,
        seq: u64,
        node: SessionId,
        seen: u64,
        ended: Vec<EndReport>,
        instances: Vec<InstanceReport>,
    ) {
        let report = StatsReport {
            is_plain: true,
            node: self.uuid_of(node).to_string().into(),
            starts_seen: Some(seen),
            instances,
            ends: Some(Box::new(EndsReport {
                incarnation,
                seq,
                ended,
            })),
            ..StatsReport::default()
        };
        self.say(node, Report::Stats(Box::new(report)));
    }

    /// An end in a frame of its own.
    fn numbered(&mut self, node: SessionId, seq: u64, name: &str) {
        let told = Box::new(Report::InstanceStopped(id(name)));
        let exit_code = Some(7);
        let report = Report::Numbered {
            seq,
            exit_code,
            facts: None,
            told,
        };
        self.say(node, report);
    }

    /// The latest end that a node was told is recorded, each time it was.
    fn recorded(&mut self, node: SessionId) -> Vec<u64> {
        let told = self.told(node).into_iter();
        let recorded = told.filter_map(|message| match message {
            Message::EndsRecorded(recorded) => {
                assert_eq!(recorded.incarnation, COUNT.to_string());
                Some(recorded.seq)
            }
            _ => None,
        });
        recorded.collect()
    }

    /// The payloads of the ends and failures that a controller was told.
    fn heard(&mut self, controller: SessionId) -> Vec<String> {
        let told = self.told(controller).into_iter();
        let ends = told.filter_map(|message| match message {
            Message::Forward(parcel) if kind_in(&parcel) != Kind::STATS => {
                Some(String::from_utf8_lossy(&parcel.payload).into_owned())
            }
            _ => None,
        });
        ends.collect()
    }
}

/// A controller, and a node on which this runs.
fn with_running(name: &str) -> (World, SessionId, SessionId) {
    let (mut world, controller, node) = World::new().with_node(1000);
    world.start(controller, name, 10);
    world.ends(node, 1, vec![], vec![running(name, 0)]);
    world.look_away();
    (world, controller, node)
}

#[test]
fn an_end_that_only_stats_tell_is_passed_on_once_and_acknowledged_each_time() {
    let (mut world, controller, node) = with_running("a");
    for told in [&["end 1"][..], &[], &[]] {
        world.ends(node, 1, vec![end(1, "a")], vec![]);
        assert_eq!(world.heard(controller), told);
        assert_eq!(world.recorded(node), [1]);
    }
    assert_eq!(
        world.place(controller, "a", 1000),
        Some(node),
        "all is free"
    );
}

#[test]
fn an_end_told_by_a_frame_is_not_told_again_by_stats() {
    let (mut world, controller, node) = with_running("a");
    world.numbered(node, 1, "a");
    assert_eq!(world.heard(controller).len(), 1);
    assert_eq!(
        world.recorded(node),
        [0; 0],
        "STATS follow at once, and are answered"
    );
    world.ends(node, 1, vec![end(1, "a")], vec![]);
    assert_eq!(world.heard(controller), [""; 0]);
    assert_eq!(world.recorded(node), [1]);
    world.numbered(node, 1, "a");
    assert_eq!(world.heard(controller), [""; 0]);
}

#[test]
fn operators_that_deleted_it_and_originals_hear_of_it_too() {
    let (mut world, _, node) = with_running("a");
    let operator = world.operator(&[]);
    let watcher = world.operator(&[Topic::Instances]);
    let original = world.original_controller();
    world.delete(operator, "a", node);
    world.look_away();
    world.ends(node, 1, vec![end(1, "a")], vec![]);
    for peer in [operator, watcher, original] {
        assert_eq!(world.heard(peer), ["end 1"]);
    }
}

#[test]
fn an_end_is_acknowledged_only_once_it_is_on_disk_and_nothing_else_waits_for_that() {
    let (mut world, controller, node) = World::with(sched_core::Config {
        durable: true,
        ..config()
    })
    .with_node(1000);
    world.ends(node, 0, vec![], vec![running("a", 0), running("b", 0)]);
    world.look_away();
    world.store.be_slow();
    world.ends(node, 0, vec![end(1, "a")], vec![running("b", 0)]);
    assert_eq!(world.heard(controller), ["end 1"], "nobody else waits");
    world.ends(node, 0, vec![end(1, "a"), end(2, "b")], vec![]);
    world.ends(node, 0, vec![end(1, "a"), end(2, "b")], vec![]);
    assert_eq!(world.heard(controller), ["end 2"]);
    assert_eq!(world.recorded(node), [0; 0]);
    world.store.commit();
    world.handle(Input::Tick);
    assert_eq!(world.recorded(node), [1, 2], "one at a time");
    world.ends(node, 0, vec![end(1, "a"), end(2, "b")], vec![]);
    assert_eq!(world.recorded(node), [2], "nothing is left to be written");
}

#[test]
fn launchers_that_number_nothing_are_told_nothing() {
    let mut world = World::new();
    let native = world.node_with(1, 100);
    let original = world.join(Role::AGENT, node_uuid(2), Dialect::Original);
    for node in [native, original] {
        world.stats(node, vec![running("a", 0)]);
        world.gone(node, Kind::INSTANCE_STOPPED, "a");
        world.stats(node, vec![]);
        assert_eq!(world.recorded(node), [0; 0]);
    }
}

#[test]
fn an_old_end_does_not_end_what_runs_again_on_its_node() {
    let (mut world, controller, node) = with_running("a");
    // It has ended, and its launcher could not say so; the START that came again has begun it again.
    world.cut(node);
    let node = world.node_with(1, 1000);
    world.start(controller, "a", 10);
    world.look_away();
    world.ends(node, 1, vec![end(1, "a")], vec![running("a", 0)]);
    assert_eq!(world.heard(controller), [""; 0], "it runs");
    assert_eq!(world.recorded(node), [1]);
    // Of that START nothing is left to come.
    world.ends(node, 1, vec![end(2, "a")], vec![]);
    assert_eq!(world.heard(controller), ["end 2"]);
    for _ in 0..9 {
        world.ends(node, 1, vec![], vec![]);
    }
    assert_eq!(world.failures(controller), []);
}

#[test]
fn an_old_end_does_not_end_what_is_on_its_way_to_its_node() {
    let (mut world, controller, node) = with_running("a");
    world.cut(node);
    world.advance(IN_DOUBT_TIME);
    let node = world.node_with(1, 1000);
    assert_eq!(world.place(controller, "a", 10), Some(node));
    world.ends(node, 0, vec![end(1, "a")], vec![]);
    assert_eq!(world.recorded(node), [1]);
    world.ends(node, 1, vec![], vec![running("a", 0)]);
    assert_eq!(world.failures(controller), []);
    assert_eq!(world.place(controller, "a", 10), Some(node), "it has it");
}

#[test]
fn an_old_end_does_not_end_what_runs_elsewhere() {
    let (mut world, controller, node) = with_running("a");
    world.cut(node);
    world.advance(IN_DOUBT_TIME);
    let other = world.node_with(2, 1000);
    assert_eq!(world.place(controller, "a", 10), Some(other));
    world.ends(other, 1, vec![], vec![running("a", 0)]);
    let node = world.silent_node(1);
    world.look_away();
    world.ends(node, 0, vec![end(1, "a")], vec![]);
    assert_eq!(world.heard(controller), [""; 0]);
    assert_eq!(world.recorded(node), [1]);
    assert_eq!(world.place(controller, "a", 10), Some(other));
}

#[test]
fn how_an_instance_ended_is_in_its_history_whether_it_is_managed_or_not() {
    let mut world = World::new();
    let controller = world.controller();
    let node = world.node_with(1, 100);
    world.ends(node, 0, vec![], vec![]);
    for name in ["kept", "plain", "again"] {
        let asked = match name {
            "kept" => request(name, 10).waiting(30),
            _ => request(name, 10),
        };
        world.start_as(controller, asked);
    }
    let listed = || {
        ["kept", "plain", "again"]
            .map(|name| running(name, 1))
            .to_vec()
    };
    world.ends(node, 0, vec![], listed());
    world.numbered(node, 1, "kept");
    let ends = vec![end(2, "plain"), end(3, "again"), end(4, "unknown")];
    world.ends(node, 4, ends, vec![running("again", 1)]);
    for name in ["kept", "plain", "again", "unknown"] {
        let row = world.ended(name).remove(0);
        assert_eq!(row.exit_code, Some(7), "{name}");
        assert_eq!(row.node_uuid, node_uuid(1).to_string());
        let end = world.history_of(name);
        let end = end.iter().find(|row| row.what == "gone").unwrap();
        assert_eq!((end.exit_code, &end.node_uuid), (Some(7), &row.node_uuid));
    }
}

#[test]
fn an_end_that_was_dealt_with_before_a_crash_does_not_end_what_was_placed_there_since() {
    let mut world = World::with(sched_core::Config {
        durable: true,
        ..config()
    });
    let operator = world.operator(&[Topic::Instances]);
    let controller = world.controller();
    let node = leased(&mut world, 1, 100);
    world.run_on(controller, node, vec![request("a", 10).restarting()]);
    let cut_off = EndReport {
        how: EndHow::CutOff,
        ..end(1, "a")
    };
    world.ends(node, 1, vec![cut_off.clone()], vec![]);
    assert_eq!(
        world.orders(node),
        ["start a"],
        "once more on the same node"
    );
    assert_eq!(world.lives(operator).last().unwrap(), "a placing");
    // The START never arrives, and the acknowledgement neither.
    world.crash(config(), Default::default());
    let operator = world.operator(&[Topic::Instances]);
    let node = world.silent_node(1);
    world.look_away();
    world.ends(node, 0, vec![cut_off], vec![]);
    assert_eq!(world.recorded(node), [1]);
    assert!(
        !world.lives(operator).contains(&"a gone".to_owned()),
        "it is to be placed again"
    );
}

#[test]
fn an_end_by_itself_while_its_node_was_lost_is_its_end() {
    let mut world = World::new();
    let operator = world.operator(&[Topic::Instances]);
    let controller = world.controller();
    let node = leased(&mut world, 1, 100);
    world.run_on(controller, node, vec![request("a", 10).restarting()]);
    world.cut(node);
    world.advance(IN_DOUBT_TIME);
    let node = world.silent_node(1);
    world.ends(node, 0, vec![end(1, "a")], vec![]);
    assert_eq!(world.lives(operator).last().unwrap(), "a gone");
    assert_eq!(world.heard(controller), ["end 1"]);
}

/// Its START was given up because its node was away, and had begun there all the same.
#[test]
fn what_was_given_up_as_never_begun_has_ended_as_its_node_says_later() {
    for is_managed in [false, true] {
        let (mut world, controller, node) = World::with(durable()).with_node(100);
        let asked = match is_managed {
            true => request("a", 10).movable(),
            false => request("a", 10),
        };
        world.start_as(controller, asked);
        world.cut(node);
        world.advance(IN_DOUBT_TIME);
        let failed = one_failure("a", StartFailureReason::LaunchFailure);
        assert_eq!(world.failures(controller), failed);
        let node = world.node_with(1, 100);
        let exited = EndReport {
            how: EndHow::Exited,
            ..end(1, "a")
        };
        world.ends(node, 0, vec![exited], vec![]);
        let rows = world.ended("a");
        let ends: Vec<_> = rows
            .iter()
            .map(|it| (it.exit_code, it.failed.as_deref()))
            .collect();
        assert_eq!(ends, [(Some(7), None)], "{is_managed}");
        let history = world.history_of("a");
        let last = history.last().unwrap();
        assert_eq!(
            (last.exit_code, &last.failed),
            (Some(7), &None),
            "{history:?}"
        );
    }
}

#[test]
fn what_ended_before_a_crash_is_not_brought_back_by_what_is_on_disk_of_its_lost_node() {
    let mut world = World::with(durable());
    let controller = world.controller();
    let node = world.node_with(1, 100);
    world.start_as(controller, request("a", 10));
    world.ends(node, 1, vec![], vec![running("a", 1)]);
    world.cut(node);
    world.advance(Duration::from_secs(1));
    let node = world.silent_node(1);
    world.ends(node, 1, vec![end(1, "a")], vec![]);
    // The end is on disk at once, that the node is back a moment later.
    crash(&mut world, 1);
    assert_eq!(world.seen("a"), [], "it is known to have ended");
    let node = world.silent_node(1);
    for _ in 0..3 {
        world.ends(node, 1, vec![], vec![]);
        world.advance(Duration::from_secs(1));
    }
    let ended = world.ended("a");
    assert_eq!((ended.len(), ended[0].exit_code), (1, Some(7)), "{ended:?}");
}

#[test]
fn what_a_launcher_numbers_again_is_news() {
    let (mut world, controller, node) = with_running("a");
    world.ends(node, 1, vec![end(70, "a")], vec![]);
    world.look_away();
    // It has lost its state directory, and then an older one came back.
    let other = Uuid::from_u128(0xc1);
    world.ends_of(other, 1, node, 1, vec![end(1, "b")], vec![]);
    assert_eq!(world.heard(controller), ["end 1"]);
    world.look_away();
    world.ends_of(other, 200, node, 1, vec![end(200, "c")], vec![]);
    world.look_away();
    world.ends_of(other, 150, node, 1, vec![end(150, "d")], vec![]);
    assert_eq!(world.heard(controller), ["end 150"]);
}

#[test]
fn after_stats_that_cannot_be_used_a_frame_does_not_stand_for_the_ends_before_it() {
    let (mut world, controller, node) = with_running("b");
    let report = StatsReport {
        is_plain: true,
        node: node_uuid(9).to_string().into(),
        starts_seen: Some(1),
        ends: Some(Box::new(EndsReport {
            incarnation: COUNT,
            seq: 100,
            ended: vec![end(1, "a")],
        })),
        ..StatsReport::default()
    };
    world.say(node, Report::Stats(Box::new(report)));
    assert_eq!(world.heard(controller), [""; 0]);
    world.numbered(node, 2, "b");
    world.look_away();
    world.ends(node, 1, vec![end(1, "a"), end(2, "b")], vec![]);
    assert_eq!(world.heard(controller)[0], "end 1");
    assert_eq!(world.recorded(node), [2]);
}

#[test]
fn a_failure_that_was_lost_with_its_connection_reaches_the_sender_with_its_reason() {
    let (mut world, controller, node) = World::new().with_node(1000);
    world.ends(node, 0, vec![], vec![]);
    world.start(controller, "a", 10);
    world.cut(node);
    let node = world.silent_node(1);
    world.look_away();
    let reason = StartFailureReason::ImageFailure;
    world.ends(node, 0, vec![failed(1, "a", reason)], vec![]);
    assert_eq!(world.heard(controller), ["failure 1"]);
    world.advance(IN_DOUBT_TIME * 2);
    assert_eq!(world.failures(controller), [], "it has failed once");
}

#[test]
fn a_failure_that_comes_after_its_node_was_given_up_is_not_a_second_one() {
    let (mut world, controller, node) = World::new().with_node(1000);
    world.start_as(controller, request("a", 10));
    world.cut(node);
    world.look_away();
    world.advance(IN_DOUBT_TIME);
    assert_eq!(world.failures(controller).len(), 1);
    let node = world.silent_node(1);
    let reason = StartFailureReason::ImageFailure;
    world.ends(node, 0, vec![failed(1, "a", reason)], vec![]);
    assert_eq!(world.heard(controller), ["end 1"], "that it is gone");
}

/// What is placed again where one STATS says that "low" was cut off and either says so of "high" as well or does not
/// list it any more, and another node has room for one of them.
fn placed_again(ended: Vec<EndReport>) -> Vec<(String, SessionId)> {
    let (mut world, controller) = World::new().with_controller();
    let node = leased(&mut world, 1, 200);
    for (name, priority) in [("low", 20), ("high", 80)] {
        let start = request(name, 60).restarting().priority(priority);
        assert_eq!(world.place_as(controller, start), Some(node));
    }
    let both = || vec![running("low", 0), running("high", 0)];
    world.ends(node, 2, vec![], both());
    leased_ready(&mut world, node, 0);
    leased(&mut world, 2, 100);
    world.look_away();
    world.ends(node, 2, ended, vec![]);
    world.placements()
}

#[test]
fn what_one_report_has_placed_again_is_placed_in_the_order_of_priority() {
    let cut_off = |seq, name| EndReport {
        how: EndHow::CutOff,
        exit_code: None,
        ..end(seq, name)
    };
    let placed = placed_again(vec![cut_off(1, "low"), cut_off(2, "high")]);
    assert_eq!(placed.len(), 1);
    assert_eq!(placed[0].0, "high");
}

#[test]
fn what_has_ended_says_whose_its_name_was_and_since_when_it_was_there() {
    let (mut world, controller, node) = World::with(durable()).with_node(100);
    for (name, tenant) in [("a", Some("red")), ("b", None)] {
        let start = StartRequest {
            tenant: tenant.map(TenantId::new),
            ..request(name, 10).placed_as(|asked| asked.name = "web".into())
        };
        world.advance(Duration::from_secs(1));
        world.start_as(controller, start);
        world.list(node, &[name]);
        world.advance(Duration::from_secs(1));
        world.gone(node, Kind::INSTANCE_STOPPED, name);
    }
    for _ in 0..2 {
        let ended = world.ended("web");
        let tenants: Vec<&str> = ended.iter().map(|it| &*it.tenant).collect();
        assert_eq!(tenants, ["red", ""]);
        for it in &ended {
            let time = it.ended_at_ms.unwrap() - it.began_at_ms.unwrap();
            assert_eq!(time, 1000, "{it:?}");
        }
        crash(&mut world, 1);
    }
}

/// What the bound on the daemon's memory in a burst counts with.
#[test]
fn the_run_of_a_plain_instance_takes_at_most_half_a_kib() {
    const COUNT: usize = 64;
    let (mut world, _, node) = World::new().with_node(1000);
    let names: Vec<String> = (0..COUNT)
        .map(|it| node_uuid(it as u64).to_string())
        .collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    world.list(node, &names);
    for name in names {
        world.gone(node, Kind::INSTANCE_STOPPED, name);
    }
    let held = world.scheduler.footprint();
    assert_eq!(held.past, COUNT);
    assert!(held.past_bytes <= COUNT * 512, "{} bytes", held.past_bytes);
}
