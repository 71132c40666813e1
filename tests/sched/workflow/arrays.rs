//! Arrays: elements become instances one after the other, each ends once, and never too many hold a claim.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use proptest::prelude::*;
use proto_frames::payload::{After, ArrayState, ArrayView, Query, QueryKind, StartFailureReason};
use proto_frames::{Kind, Uuid};
use sched_core::{
    ArrayCommand, Command, ElementId, IN_DOUBT_TIME, Input, InstanceId, Message, RECOVERY_WINDOW,
    Report, SessionId, StartRequest,
};

use crate::support::durability::{crash, durable};
use crate::support::requests::Asking;
use crate::support::world::{Size, World, id, request, running};

pub(super) const ARRAY: &str = "67d86208-b46c-4465-9018-e14187d4010f";

fn array() -> Uuid {
    ARRAY.parse().expect("it is a UUID")
}

/// The instance of an element, as payloads write it.
pub(super) fn element(index: u32) -> String {
    let array = array();
    ElementId { array, index }.instance().to_string()
}

/// The index of an instance among so many.
fn index_of(name: &str, count: u32) -> u32 {
    let found = (0..count).find(|it| element(*it) == name);
    found.expect("it is an element's")
}

pub(super) fn elements(
    indexes: impl IntoIterator<Item = u32>,
    node: SessionId,
) -> Vec<(String, SessionId)> {
    indexes.into_iter().map(|it| (element(it), node)).collect()
}

/// What each element asks for.
pub(super) fn template(mem: i64) -> StartRequest {
    request(ARRAY, mem)
}

/// The array as queries show it.
pub(super) fn view(world: &mut World) -> ArrayView {
    let query = Query {
        what: QueryKind::Arrays,
        ..Query::default()
    };
    let now = world.now;
    let page = world.scheduler.look_up(now, &query);
    let [view] = &page.payload.arrays[..] else {
        panic!("there is one array: {:?}", page.payload.arrays);
    };
    view.clone()
}

/// An element has ended by itself with this exit status.
pub(super) fn exited(world: &mut World, node: SessionId, index: u32, code: i64) {
    let instance = id(&element(index));
    let report = Report::Numbered {
        seq: u64::from(index) + 1,
        exit_code: Some(code),
        facts: None,
        told: Box::new(Report::InstanceExited(instance)),
    };
    world.say(node, report);
}

/// States that an array was said to be in.
fn told_states(world: &mut World, session: SessionId) -> Vec<ArrayState> {
    world.told_of(session, |message| match message {
        Message::ArrayState(view) => Some(view.state.clone()),
        _ => None,
    })
}

pub(super) fn list(world: &mut World, node: SessionId, indexes: impl IntoIterator<Item = u32>) {
    let rows = indexes.into_iter().map(|it| running(&element(it), 1));
    world.stats(node, rows.collect());
}

#[test]
fn elements_begin_in_order_and_no_more_than_running_max_at_a_time() {
    let (mut world, controller, [a]) = World::new().with_nodes([1000]);
    world.look_away();
    world.start_array(controller, template(10), (5, Some(2)));
    assert_eq!(world.placements(), elements([0, 1], a));
    list(&mut world, a, [0, 1]);
    exited(&mut world, a, 1, 0);
    assert_eq!(world.placements(), elements([2], a));
    list(&mut world, a, [0, 2]);
    exited(&mut world, a, 0, 3);
    exited(&mut world, a, 2, 0);
    assert_eq!(world.placements(), elements([3, 4], a));
    list(&mut world, a, [3, 4]);
    let now = view(&mut world);
    assert_eq!((now.succeeded, now.failed, now.running), (2, 1, 2));
    assert_eq!(now.state, ArrayState::Running);
    exited(&mut world, a, 3, 0);
    exited(&mut world, a, 4, 0);
    let now = view(&mut world);
    assert_eq!((now.succeeded, now.failed, now.waiting), (4, 1, 0));
    assert_eq!(now.state, ArrayState::Ended);
    let said = told_states(&mut world, controller);
    assert_eq!(said.last(), Some(&ArrayState::Ended));
}

#[test]
fn one_element_alone_waits_in_the_queue_and_the_array_comes_before_who_came_later() {
    let (mut world, controller, [a]) = World::new().with_nodes([100]);
    world.start_as(controller, request("first", 100).waiting(600));
    world.stats(a, vec![running("first", 1)]);
    world.start_array(controller, template(40), (4, None));
    world.start_as(controller, request("later", 40).waiting(600));
    let now = view(&mut world);
    assert_eq!((now.queued, now.waiting), (1, 3));
    assert_eq!(now.queued_instance_uuid, element(0));
    world.look_away();
    world.gone(a, Kind::INSTANCE_DELETED, "first");
    assert_eq!(world.placements(), elements([0, 1], a));
    let now = view(&mut world);
    assert_eq!((now.queued, now.waiting, now.running), (1, 1, 2));
}

#[test]
fn an_element_that_a_full_node_refuses_begins_later_and_counts_as_none_that_failed() {
    let (mut world, controller, [a]) = World::new().with_nodes([100]);
    world.look_away();
    world.start_array(controller, template(40), (4, None));
    assert_eq!(world.placements(), elements([0, 1], a));
    list(&mut world, a, [0]);
    // The next one waits already, and has its room.
    world.start_failed(a, &element(1), StartFailureReason::FullComputeNode);
    assert_eq!(world.placements(), elements([2], a));
    world.start_failed(a, &element(2), StartFailureReason::FullComputeNode);
    let now = view(&mut world);
    assert_eq!((now.failed, now.not_started, now.queued), (0, 0, 2));
    assert_eq!(world.placements(), []);
    world.advance(Duration::from_secs(1));
    assert_eq!(world.placements(), elements([1], a));
    list(&mut world, a, [0, 1]);
    exited(&mut world, a, 0, 0);
    exited(&mut world, a, 1, 0);
    assert_eq!(world.placements(), elements([2, 3], a));
    assert_eq!(view(&mut world).succeeded, 2);
}

#[test]
fn what_no_node_could_ever_run_ends_the_array_with_one_failure() {
    let (mut world, controller, [_a]) = World::new().with_nodes([100]);
    world.look_away();
    world.start_array(controller, template(4000), (1000, None));
    let failures = world.failures(controller);
    assert_eq!(failures, [(element(0), StartFailureReason::FullCloud)]);
    let now = view(&mut world);
    assert_eq!((now.not_started, now.state), (1000, ArrayState::Ended));
}

#[test]
fn an_array_of_which_the_time_to_wait_is_over_begins_no_further_element() {
    let (mut world, controller, [a]) = World::new().with_nodes([100]);
    let asked = template(10).waiting(60);
    world.start_array(controller, asked, (3, Some(1)));
    list(&mut world, a, [0]);
    world.advance(Duration::from_secs(61));
    let now = view(&mut world);
    assert_eq!((now.running, now.not_started), (1, 2));
    exited(&mut world, a, 0, 0);
    let now = view(&mut world);
    assert_eq!((now.succeeded, now.not_started), (1, 2));
    assert_eq!(now.state, ArrayState::Ended);
}

#[test]
fn delete_drops_what_waits_and_ends_what_runs() {
    let (mut world, controller, [a]) = World::new().with_nodes([1000]);
    world.start_array(controller, template(10), (6, Some(2)));
    list(&mut world, a, [0, 1]);
    world.look_away();
    world.delete(controller, ARRAY, a);
    let deleted = world.told_of(a, |message| match message {
        Message::LauncherCommand(_) => Some(()),
        _ => None,
    });
    assert_eq!(deleted.len(), 2);
    let answered = world.told_of(controller, |message| match message {
        Message::InstanceDeleted(it) => Some(it.instance_uuid.clone()),
        _ => None,
    });
    assert_eq!(answered, [ARRAY]);
    for index in [0, 1] {
        world.gone(a, Kind::INSTANCE_DELETED, &element(index));
    }
    let now = view(&mut world);
    assert_eq!((now.deleted, now.state), (6, ArrayState::Ended));
    assert!(world.placements().is_empty());
    // One that has ended is forgotten.
    world.delete(controller, ARRAY, a);
    let now = world.now;
    let query = Query {
        what: QueryKind::Arrays,
        ..Query::default()
    };
    assert!(
        world
            .scheduler
            .look_up(now, &query)
            .payload
            .arrays
            .is_empty()
    );
}

#[test]
fn what_did_not_succeed_runs_once_more_and_nothing_else() {
    let (mut world, controller, [a]) = World::new().with_nodes([1000]);
    world.start_array(controller, template(10), (3, None));
    list(&mut world, a, [0, 1, 2]);
    for (index, code) in [(0, 0), (1, 7), (2, 0)] {
        exited(&mut world, a, index, code);
    }
    world.look_away();
    world.say(controller, Command::Array(ArrayCommand::Rerun(id(ARRAY))));
    assert_eq!(world.placements(), elements([1], a));
    list(&mut world, a, [1]);
    let end = Report::Numbered {
        seq: 9,
        exit_code: Some(0),
        facts: None,
        told: Box::new(Report::InstanceExited(id(&element(1)))),
    };
    world.say(a, end);
    let now = view(&mut world);
    assert_eq!((now.succeeded, now.state), (3, ArrayState::Ended));
}

#[test]
fn the_same_array_again_is_answered_and_another_of_its_uuid_refused() {
    let (mut world, controller, [a]) = World::new().with_nodes([1000]);
    world.start_array(controller, template(10), (3, Some(1)));
    world.look_away();
    world.start_array(controller, template(10), (3, Some(1)));
    assert_eq!(told_states(&mut world, controller), [ArrayState::Running]);
    assert!(world.placements().is_empty());
    world.start_array(controller, template(10), (4, Some(1)));
    let exists = StartFailureReason::InstanceExists;
    assert_eq!(world.failures(controller), [(ARRAY.to_owned(), exists)]);
    list(&mut world, a, [0]);
    assert_eq!(view(&mut world).elements, 3);
}

#[test]
fn elements_come_after_what_their_start_names_or_end_together_where_that_cannot_come() {
    for (code, succeeds) in [(0, true), (3, false)] {
        let (mut world, controller, [a]) = World::new().with_nodes([1000]);
        world.start_as(controller, request("first", 10).waiting(60));
        world.stats(a, vec![running("first", 1)]);
        world.look_away();
        let after = After {
            instance: "first".to_owned(),
            ..After::default()
        };
        let asked = template(10).placed_as(|it| it.after = vec![after]);
        world.start_array(controller, asked, (3, Some(2)));
        assert!(world.placements().is_empty(), "the first runs");
        let now = view(&mut world);
        assert_eq!((now.queued, now.waiting), (1, 2));
        let end = Report::Numbered {
            seq: 1,
            exit_code: Some(code),
            facts: None,
            told: Box::new(Report::InstanceExited(id("first"))),
        };
        world.say(a, end);
        world.handle(Input::Tick);
        let now = view(&mut world);
        if succeeds {
            assert_eq!(world.placements(), elements([0, 1], a));
            assert_eq!((now.running, now.waiting), (2, 1));
        } else {
            let reason = StartFailureReason::DependencyFailed;
            assert_eq!(world.failures(controller), [(element(0), reason)]);
            assert_eq!((now.not_started, now.state), (3, ArrayState::Ended));
        }
    }
}

#[test]
fn no_start_of_an_element_leaves_before_it_is_on_disk() {
    let mut world = World::with(durable());
    let (controller, a) = (world.controller(), world.node_with(1, 1000));
    world.look_away();
    world.store.be_slow();
    world.start_array(controller, template(10), (2, Some(1)));
    assert!(world.placements().is_empty());
    assert!(told_states(&mut world, controller).is_empty());
    world.store.commit();
    world.handle(Input::Tick);
    assert_eq!(world.placements(), elements([0], a));
    assert_eq!(told_states(&mut world, controller).len(), 1);
}

/// What happens in a random history.
#[derive(Debug, Clone, Copy)]
enum Op {
    /// One that runs ends, the how-manieth of all, with this exit status.
    End(usize, i64),
    /// A node reports.
    Stats(bool),
    /// The scheduler crashes, and what was not on disk is lost.
    Crash,
    /// From now on nothing is on disk until it is again.
    SlowDisk,
    /// It is.
    FastDisk,
    /// A node is cut off and is back.
    Cut(bool),
    /// A node is cut off, and is back when it is no longer waited for.
    Away(bool),
    /// Time passes.
    Wait(u8),
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        6 => (any::<usize>(), 0..2_i64).prop_map(|(which, code)| Op::End(which, code)),
        4 => any::<bool>().prop_map(Op::Stats),
        1 => Just(Op::Crash),
        1 => Just(Op::SlowDisk),
        2 => Just(Op::FastDisk),
        1 => any::<bool>().prop_map(Op::Cut),
        1 => any::<bool>().prop_map(Op::Away),
        1 => (0..20_u8).prop_map(Op::Wait),
    ]
}

/// Two launchers that do what they are sent, and an oracle that knows what must come of it.
struct Model {
    world: World,
    nodes: [SessionId; 2],
    count: u32,
    most: u32,
    /// What really runs on each.
    runs: [BTreeSet<u32>; 2],
    /// Ends that were not acknowledged, by node: number and exit status.
    ended: BTreeMap<u32, (usize, u64, i64)>,
    /// How often each was begun.
    begun: BTreeMap<u32, u32>,
    /// How each ended.
    codes: BTreeMap<u32, i64>,
    ends: [u64; 2],
}

impl Model {
    fn new(count: u32, most: u32) -> Self {
        let mut world = World::with(durable());
        let controller = world.controller();
        let nodes = [world.node_with(1, 100), world.node_with(2, 100)];
        world.start_array(controller, template(30), (count, Some(most)));
        let mut model = Self {
            world,
            nodes,
            count,
            most,
            runs: Default::default(),
            ended: BTreeMap::new(),
            begun: BTreeMap::new(),
            codes: BTreeMap::new(),
            ends: [0; 2],
        };
        model.carry_out();
        model
    }

    /// The launchers begin what they were sent.
    fn carry_out(&mut self) {
        for (name, node) in self.world.placements() {
            let at = usize::from(node == self.nodes[1]);
            assert_eq!(node, self.nodes[at]);
            let index = index_of(&name, self.count);
            *self.begun.entry(index).or_default() += 1;
            assert_eq!(self.begun[&index], 1, "element {index} began twice");
            self.runs[at].insert(index);
        }
        let running: usize = self.runs.iter().map(BTreeSet::len).sum();
        assert!(running <= self.most as usize, "{running} run at a time");
        self.world.look_away();
    }

    fn stats(&mut self, at: usize) {
        // Ends that the scheduler may have forgotten are told once more, and before what is listed, as in a STATS.
        let open: Vec<_> = self
            .ended
            .iter()
            .map(|(index, end)| (*index, *end))
            .collect();
        for (index, (_, seq, code)) in open.into_iter().filter(|(_, end)| end.0 == at) {
            self.tell(at, index, seq, code);
        }
        let indexes = self.runs[at].clone();
        list(&mut self.world, self.nodes[at], indexes);
    }

    fn tell(&mut self, at: usize, index: u32, seq: u64, code: i64) {
        let told = Box::new(Report::InstanceExited(id(&element(index))));
        let report = Report::Numbered {
            seq,
            exit_code: Some(code),
            facts: None,
            told,
        };
        self.world.say(self.nodes[at], report);
        if self.world.store.is_up_to_date() {
            self.ended.remove(&index);
        }
    }

    fn end(&mut self, which: usize, code: i64) {
        let all: Vec<(usize, u32)> = (0..2)
            .flat_map(|at| self.runs[at].iter().map(move |index| (at, *index)))
            .collect();
        let Some(&(at, index)) = all.get(which % all.len().max(1)) else {
            return;
        };
        self.runs[at].remove(&index);
        self.codes.insert(index, code);
        self.ends[at] += 1;
        let seq = self.ends[at];
        self.ended.insert(index, (at, seq, code));
        self.tell(at, index, seq, code);
    }

    fn back(&mut self, at: usize) {
        self.nodes[at] = self.world.node(at as u64 + 1, Size::of_mem(100));
        self.stats(at);
    }

    fn step(&mut self, op: Op) {
        match op {
            Op::End(which, code) => self.end(which, code),
            Op::Stats(second) => self.stats(usize::from(second)),
            Op::Crash => {
                crash(&mut self.world, 2);
                self.world.controller();
                (0..2).for_each(|at| self.back(at));
            }
            Op::SlowDisk => self.world.store.be_slow(),
            Op::FastDisk => {
                self.world.store.be_fast();
                self.world.handle(Input::Tick);
                let acknowledged = std::mem::take(&mut self.ended);
                for (index, (at, seq, code)) in acknowledged {
                    self.tell(at, index, seq, code);
                }
            }
            Op::Cut(second) => {
                let at = usize::from(second);
                self.world.cut(self.nodes[at]);
                self.back(at);
            }
            Op::Away(second) => {
                let at = usize::from(second);
                self.world.cut(self.nodes[at]);
                self.world.advance(IN_DOUBT_TIME * 2);
                self.carry_out();
                self.back(at);
            }
            Op::Wait(seconds) => self.world.advance(Duration::from_secs(seconds.into())),
        }
        self.carry_out();
    }

    /// All goes on until nothing is left.
    fn finish(&mut self) {
        self.step(Op::FastDisk);
        for _ in 0..self.count * 4 {
            (0..2).for_each(|at| self.stats(at));
            self.carry_out();
            self.end(0, 0);
            self.carry_out();
            self.world.advance(RECOVERY_WINDOW);
            self.carry_out();
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn each_element_runs_once_and_is_counted_as_it_ended_whatever_crashes(
        ops in prop::collection::vec(op(), 0..40),
        count in 1_u32..9,
        most in 1_u32..5,
    ) {
        let mut model = Model::new(count, most);
        for op in ops {
            model.step(op);
        }
        model.finish();
        let begun: Vec<u32> = model.begun.keys().copied().collect();
        prop_assert_eq!(begun, (0..count).collect::<Vec<u32>>(), "some never began");
        let now = view(&mut model.world);
        prop_assert_eq!(&now.state, &ArrayState::Ended, "{:?}", now);
        let succeeded = model.codes.values().filter(|code| **code == 0).count() as u64;
        prop_assert_eq!(now.succeeded, succeeded, "{:?}", now);
        prop_assert_eq!(now.failed, u64::from(count) - succeeded, "{:?}", now);
    }
}

#[test]
fn an_identifier_that_is_no_uuid_is_no_array() {
    let (mut world, controller, [a]) = World::new().with_nodes([100]);
    world.start_array(controller, template(10), (1, None));
    list(&mut world, a, [0]);
    let other = InstanceId::new("other");
    world.look_away();
    world.say(controller, Command::Array(ArrayCommand::Rerun(other)));
    let failed = StartFailureReason::InvalidData;
    assert_eq!(world.failures(controller), [("other".to_owned(), failed)]);
}
