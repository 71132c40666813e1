//! A master dies: who is promoted is told of everything there is, and of what only the dead one heard; and what the dead one
//! had sent is carried out once or has failed.

use std::collections::BTreeMap;
use std::time::Duration;

use proto_frames::payload::{
    ControllerRole, DeleteFailureReason, InstanceView, NodeView, PhaseName, PlacementState,
    Scheduling, Snapshot, StartFailureReason,
};
use proto_frames::{Kind, Role};
use sched_core::{Backlog, Dialect, Input, MAX_REPLAY, Message, REPLAY_TIME, SessionId};

use crate::support::requests::Asking;
use crate::support::scenes::one_failure;
use crate::support::words::asking;
use crate::support::world::{Size, World, node_uuid, request, running};

/// What a controller makes of pages and events, the later one overriding.
#[derive(Debug, Default)]
struct Picture {
    nodes: BTreeMap<String, NodeView>,
    instances: BTreeMap<String, InstanceView>,
    pages: u32,
    is_whole: bool,
}

impl Picture {
    fn take_in(&mut self, told: Vec<Message>) {
        for message in told {
            match message {
                Message::Snapshot(page) => self.take_in_page(page.payload),
                Message::NodeConnected(event) => {
                    self.nodes.insert(event.node_uuid, NodeView::default());
                }
                Message::NodeDisconnected(event) => {
                    self.nodes.remove(&event.node_uuid);
                }
                Message::InstanceState(event) if event.state == PhaseName::Gone => {
                    self.instances.remove(&event.instance_uuid);
                }
                Message::InstanceState(event) => {
                    let event = event.payload;
                    let row = self.instances.entry(event.instance_uuid).or_default();
                    row.life = event.state.as_str().to_owned();
                    row.node_uuid = event.node_uuid;
                }
                _ => {}
            }
        }
    }

    fn take_in_page(&mut self, page: Snapshot) {
        assert!(page.nodes.len() + page.instances.len() <= 1000);
        if page.page == 0 {
            *self = Self::default();
        }
        assert_eq!((page.page, self.is_whole), (self.pages, false));
        (self.pages, self.is_whole) = (self.pages + 1, page.last);
        let nodes = page.nodes.into_iter();
        self.nodes.extend(
            nodes
                .filter(|row| row.status != "LOST")
                .map(|row| (row.node_uuid.clone(), row)),
        );
        let instances = page.instances.into_iter();
        self.instances
            .extend(instances.map(|row| (row.instance_uuid.clone(), row)));
    }

    /// Which instances are where, and how.
    fn places(&self) -> Vec<(&str, &str, &str)> {
        let rows = self.instances.iter();
        rows.map(|(name, row)| (&**name, &*row.node_uuid, &*row.life))
            .collect()
    }
}

impl World {
    /// A native controller that is master, and one that will be.
    fn with_backup(mut self) -> (Self, SessionId, SessionId) {
        let (master, backup) = (self.controller(), self.controller());
        self.look_away();
        (self, master, backup)
    }

    /// What a backup is told after the pages.
    fn told_after_pages(&mut self, backup: SessionId) -> Vec<Message> {
        let mut told = self.told(backup);
        let is_last = |message: &Message| matches!(message, Message::Snapshot(page) if page.last);
        let last = told.iter().position(is_last).expect("there is a last page");
        told.split_off(last + 1)
    }
}

/// The StartFailures among what somebody was told.
fn failed(told: &[Message]) -> Vec<(&str, StartFailureReason)> {
    let failure = |message| match message {
        &(Message::StartFailure(ref failure) | Message::StartFailureCopy(ref failure)) => {
            Some((failure.instance_uuid.as_str(), failure.reason.clone()))
        }
        _ => None,
    };
    told.iter().filter_map(failure).collect()
}

#[test]
fn the_promoted_is_told_its_role_then_everything_there_is() {
    let (mut world, master, backup) = World::new().with_backup();
    let node = world.node_with(1, 100);
    world.start_as(master, request("a", 100).waiting(60).priority(50));
    world.stats(node, vec![running("a", 100)]);
    world.start_as(master, request("b", 100).waiting(60).priority(50));
    world.look_away();
    world.cut(master);
    let told = world.told(backup);
    let Message::ControllerStatus(status) = &told[0] else {
        panic!("{told:#?}");
    };
    assert_eq!(status.status, ControllerRole::Master);
    let Message::Snapshot(page) = &told[1] else {
        panic!("{told:#?}");
    };
    assert_eq!((page.page, page.last, page.nodes.len()), (0, true, 1));
    let rows: Vec<_> = page
        .instances
        .iter()
        .map(|row| (&*row.instance_uuid, row.state.clone()))
        .collect();
    let expected = [
        ("b", PlacementState::Waiting),
        ("a", PlacementState::Running),
    ];
    assert_eq!(rows, expected);
}

#[test]
fn pages_and_events_in_the_order_received_give_the_right_picture() {
    let (mut world, master, backup) = World::new().check_every(500).with_backup();
    let nodes: Vec<_> = (0..1500)
        .map(|at| world.node(at, Size::default()))
        .collect();
    for at in 0..1500 {
        world.start_as(
            master,
            request(&format!("i{at:04}"), 600).waiting(60).priority(50),
        );
    }
    let late = world.controller();
    world.look_away();
    world.cut(master);
    let mut picture = Picture::default();
    let mut step = 0;
    while !picture.is_whole {
        // Everything changes between two pages, before and behind the place they have come to.
        let (low, high) = (step, 1499 - step);
        world.cut(nodes[1000 + step]);
        world.gone(nodes[low], Kind::INSTANCE_DELETED, &format!("i{low:04}"));
        world.gone(nodes[high], Kind::INSTANCE_DELETED, &format!("i{high:04}"));
        world.start_as(
            backup,
            request(&format!("n{step}"), 900).waiting(60).priority(50),
        );
        world.node(5000 + step as u64, Size::default());
        world.handle(Input::Tick);
        step += 1;
        picture.take_in(world.told(backup));
    }
    assert!(picture.pages >= 3, "{} pages", picture.pages);
    world.check();

    // Who is promoted now is told the same in one go.
    world.look_away();
    world.cut(backup);
    world.advance(Duration::ZERO);
    let mut whole = Picture::default();
    whole.take_in(world.told(late));
    assert!(whole.is_whole);
    assert_eq!(picture.places(), whole.places());
    assert!(picture.nodes.keys().eq(whole.nodes.keys()));
}

#[test]
fn further_pages_wait_until_the_controller_has_read_the_ones_before() {
    let (mut world, master, backup) = World::new().check_every(500).with_backup();
    for at in 0..2500 {
        world.silent_node(at);
    }
    world.cut(master);
    let session = backup;
    let backlog = Backlog::Filling;
    world.look_away();
    world.handle(Input::Backlog { session, backlog });
    world.advance(Duration::from_secs(1));
    assert_eq!(world.told(backup), []);
    let backlog = Backlog::Clear;
    world.handle(Input::Backlog { session, backlog });
    world.advance(Duration::ZERO);
    let told = world.told(backup);
    assert!(matches!(&told[1], Message::Snapshot(page) if page.page == 2 && page.last));
}

#[test]
fn a_connection_replaced_while_it_is_being_told_is_told_from_the_start() {
    let (mut world, master, backup) = World::new().check_every(500).with_backup();
    for at in 0..1500 {
        world.silent_node(at);
    }
    assert_eq!(world.place(master, "a", 1), None);
    world.cut(master);
    let again = world.join(Role::CONTROLLER, world.uuid_of(backup), Dialect::Native);
    world.advance(Duration::ZERO);
    let mut picture = Picture::default();
    let told = world.told(again);
    assert_eq!(failed(&told).len(), 1);
    picture.take_in(told);
    assert!(picture.is_whole);
    assert_eq!(picture.nodes.len(), 1500);
}

#[test]
fn an_original_controller_is_promoted_without_a_word() {
    let mut world = World::new();
    let master = world.controller();
    let backup = world.original_controller();
    assert_eq!(world.place(master, "a", 1), None);
    world.cut(master);
    assert_eq!(failed(&world.told(backup)), []);
    world.nothing_else();
}

#[test]
fn failures_that_only_a_dead_master_was_told_of_are_told_once_to_each_backup() {
    let (mut world, master, backup) = World::new().with_backup();
    let last = world.controller();
    world.start(master, "a", 1);
    world.cut(master);
    let no_nodes = StartFailureReason::NoComputeNodes;
    assert_eq!(
        failed(&world.told_after_pages(backup)),
        [("a", no_nodes.clone())]
    );
    assert_eq!(failed(&world.told(last)), []);
    world.start(backup, "b", 1);
    world.cut(backup);
    let told = world.told_after_pages(last);
    assert_eq!(failed(&told), [("a", no_nodes.clone()), ("b", no_nodes)]);
}

#[test]
fn what_was_not_written_to_a_dead_master_is_told_once() {
    let (mut world, master, backup) = World::new().with_backup();
    let other = world.controller();
    world.look_away();
    world.start(master, "a", 1);
    world.delete_at(master, "b", node_uuid(1));
    world.cut_unsent(master);
    let told = world.told_after_pages(backup);
    assert_eq!(failed(&told).len(), 1, "{told:#?}");
    let deletes = told
        .iter()
        .filter(|message| matches!(message, Message::DeleteFailure(_)));
    assert_eq!((deletes.count(), told.len()), (1, 2));
    assert_eq!(failed(&world.told(other)).len(), 1);
}

#[test]
fn an_outcome_is_not_told_again_once_the_instance_is_there() {
    let (mut world, master, backup) = World::new().with_backup();
    world.start(master, "a", 1);
    world.start(master, "b", 1);
    world.node_with(1, 100);
    world.start(master, "a", 1);
    world.cut(master);
    let told = world.told_after_pages(backup);
    assert_eq!(failed(&told), [("b", StartFailureReason::NoComputeNodes)]);
}

#[test]
fn outcomes_are_forgotten_after_a_while_and_beyond_a_number() {
    let (mut world, master, backup) = World::new().check_every(500).with_backup();
    let last = world.controller();
    for at in 0..=MAX_REPLAY {
        world.start(master, &format!("a{at}"), 1);
    }
    world.cut(master);
    let told = world.told_after_pages(backup);
    let told = failed(&told);
    assert_eq!((told.len(), told[0].0), (MAX_REPLAY, "a1"));
    world.advance(REPLAY_TIME + Duration::from_millis(1));
    world.cut(backup);
    assert_eq!(world.told_after_pages(last), []);
}

#[test]
fn who_waits_is_told_again_as_it_waits_now_and_not_once_it_is_placed() {
    let (mut world, master, backup) = World::new().with_backup();
    let node = world.node_with(1, 100);
    for name in ["a", "b", "c"] {
        world.start_as(master, request(name, 100).waiting(60).priority(50));
    }
    world.gone(node, Kind::INSTANCE_DELETED, "a");
    world.cut(master);
    let told = world.told_after_pages(backup);
    let [Message::InstanceQueued(event)] = &*told else {
        panic!("{told:#?}");
    };
    assert_eq!((&*event.instance_uuid, event.position), ("c", 1));
}

#[test]
fn the_backup_hears_how_a_wait_ends_that_the_dead_master_began() {
    let (mut world, master, backup) = World::new().with_backup();
    world.node_with(1, 100);
    world.start_as(master, request("a", 100).waiting(60).priority(50));
    world.start_as(master, request("b", 100).waiting(60).priority(50));
    world.cut(master);
    world.look_away();
    world.advance(Duration::from_secs(61));
    assert_eq!(
        world.failures(backup),
        one_failure("b", StartFailureReason::QueueTimeout)
    );
}

#[test]
fn a_start_on_its_way_when_its_master_dies_runs_once() {
    let (mut world, master, backup) = World::new().with_backup();
    let nodes = [world.node_with(1, 100), world.node_with(2, 100)];
    let first = world.place(master, "a", 10).expect("there is room");
    world.cut(master);
    world.look_away();
    // The backup asks for it as well: the node that has it answers.
    assert_eq!(world.place(backup, "a", 10), Some(first));
    let scheduling = Scheduling {
        attempts: Some(2),
        ..Scheduling::default()
    };
    let kept = world.place_as(backup, asking("b", 10, scheduling.clone()));
    let again = world.place_as(backup, asking("b", 10, scheduling));
    assert_eq!(kept, again);
    assert!(nodes.contains(&first));
}

#[test]
fn a_start_that_no_node_was_told_of_when_its_master_died_fails_for_the_backup() {
    let (mut world, master, backup) = World::new().with_backup();
    let node = world.node_with(1, 100);
    world.look_away();
    world.start(master, "a", 10);
    world.cut(master);
    let start = world.told(node);
    world.look_away();
    world.cut_returning(node, start);
    assert_eq!(
        world.failures(backup),
        one_failure("a", StartFailureReason::NoComputeNodes)
    );
}

#[test]
fn a_delete_that_no_node_was_told_of_when_its_master_died_fails_for_the_backup() {
    let (mut world, master, backup) = World::new().with_backup();
    let node = world.node_with(1, 100);
    world.start(master, "a", 10);
    world.start_as(master, request("b", 10).waiting(60).priority(50));
    world.stats(node, vec![running("a", 10), running("b", 10)]);
    world.look_away();
    world.delete(master, "a", node);
    world.delete(master, "b", node);
    world.cut(master);
    let deletes = world.told(node);
    assert_eq!(deletes.len(), 2);
    world.look_away();
    world.cut_returning(node, deletes);
    let told = world.told(backup);
    let failure = |message: &Message| match message {
        Message::DeleteFailure(it) => Some((it.instance_uuid.clone(), it.reason.clone())),
        _ => None,
    };
    let failures: Vec<_> = told.iter().filter_map(failure).collect();
    let no_instance = DeleteFailureReason::NoInstance;
    assert_eq!(
        failures,
        [
            ("a".to_owned(), no_instance.clone()),
            ("b".to_owned(), no_instance)
        ]
    );

    // It has failed, so it is not carried out later.
    let back = world.node_with(1, 100);
    world.look_away();
    world.stats(back, vec![running("a", 10), running("b", 10)]);
    world.advance(Duration::from_secs(120));
    assert_eq!(world.told(back), []);
    assert_eq!(world.seen("b")[0].life, "running");
}

#[test]
fn a_first_controller_is_told_if_there_is_anything_to_tell() {
    let mut world = World::new();
    let operator = world.operator(&[]);
    world.look_away();
    world.start(operator, "a", 1);
    world.cut(operator);
    let is_page = |message: &Message| matches!(message, Message::Snapshot(_));
    let first = world.controller();
    assert!(
        !world.told(first).iter().any(is_page),
        "an operator's failure, told to it"
    );
    world.start(first, "b", 1);
    world.cut_unsent(first);
    let next = world.controller();
    let told = world.told_after_pages(next);
    assert_eq!(failed(&told), [("b", StartFailureReason::NoComputeNodes)]);

    world.node_with(1, 100);
    world.start_as(next, request("c", 1));
    world.cut(next);
    let third = world.controller();
    let mut picture = Picture::default();
    picture.take_in(world.told(third));
    assert_eq!(picture.instances.keys().collect::<Vec<_>>(), ["c"]);
}
