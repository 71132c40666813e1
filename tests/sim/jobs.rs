//! Jobs: what ends by itself as a rule, is started again or not, and may have to wait for others; and arrays of these.

use fastrand::Rng;
use proto_frames::payload::{
    After, AfterEnd, ArrayOrder, Backoff, Delete, OnNodeLoss, Payload, Requirements, RestartPolicy,
    RestartWhen, RetryPolicy, Scheduling, Span, Start, StartArray, Stop, StopSignal,
};
use proto_frames::{Frame, Kind};

use crate::facts::Fact;
use crate::names::{self, MOST_ELEMENTS};
use crate::network::Peer;
use crate::work;
use crate::world::World;

/// Most elements of one array.
const ELEMENTS: u32 = 9;

/// How a job ends by itself, one as likely as another.
pub(crate) const CODES: [i32; 6] = [0, 0, 0, 1, 2, -11];

/// An array as the controllers remember it.
#[derive(Debug)]
pub(crate) struct SentArray {
    pub(crate) start: Start,
    pub(crate) count: u32,
    pub(crate) running_max: Option<u32>,
}

/// Draws a job, which may come after some of these.
pub(crate) fn job(chance: &mut Rng, instance: u32, earlier: &[u32]) -> Start {
    let start = work::plain(chance, instance);
    let retry = chance.bool().then(|| retries(chance));
    let is_lost_retried = retry.as_ref().is_some_and(RetryPolicy::covers_node_failure);
    let restarts = chance.bool() && !is_lost_retried;
    let stop = Stop {
        signal: StopSignal::Int,
        grace: Some(Span::from_ms(chance.u64(100..3_000))),
    };
    let scheduling = Scheduling {
        priority: Some([10, 50, 50, 90][chance.usize(..4)]),
        queue: Some(Span::from_ms(chance.u64(1_000..60_000))),
        attempts: Some(chance.u32(1..=4)),
        relocate: chance.bool().then_some(true),
        on_node_loss: match restarts {
            true => OnNodeLoss::Restart,
            false => OnNodeLoss::default(),
        },
        time_limit: (chance.u8(..3) == 0).then(|| Span::from_ms(chance.u64(1_000..12_000))),
        stop: (chance.u8(..4) == 0).then_some(stop),
        restart: (chance.u8(..3) == 0).then(|| restarts_here(chance)),
        retry,
        after: after(chance, earlier),
        ..Scheduling::default()
    };
    Start {
        requirements: Requirements {
            mem_mb: chance.i64(1..50),
            vcpus: chance.i64(0..2),
            ..start.requirements
        },
        scheduling: Some(scheduling),
        ..start
    }
}

fn retries(chance: &mut Rng) -> RetryPolicy {
    let ends = ["1", "2", "1-2", "signal", "node_failure"];
    let mut on: Vec<_> = ends.iter().filter(|_| chance.u8(..3) == 0).collect();
    if on.is_empty() {
        on.push(&ends[2]);
    }
    RetryPolicy {
        on: on.iter().map(|end| end.parse().expect("an end")).collect(),
        max: Some(chance.u32(1..=3)),
    }
}

fn restarts_here(chance: &mut Rng) -> RestartPolicy {
    let pause = chance.u64(100..1_000);
    RestartPolicy {
        when: [RestartWhen::OnFailure, RestartWhen::Always][chance.usize(..2)].clone(),
        max: Some(chance.u32(1..=3)),
        backoff: Some(Backoff {
            first: Span::from_ms(pause),
            longest: Span::from_ms(pause * 2),
        }),
        window: None,
    }
}

fn after(chance: &mut Rng, earlier: &[u32]) -> Vec<After> {
    if earlier.is_empty() || chance.u8(..3) > 0 {
        return Vec::new();
    }
    let ends = [AfterEnd::Ok, AfterEnd::Any, AfterEnd::Failed];
    let mut one = |_| After {
        instance: names::instance_uuid(earlier[chance.usize(..earlier.len())]),
        end: ends[chance.usize(..3)].clone(),
        ..After::default()
    };
    (0..1 + earlier.len() % 2).map(&mut one).collect()
}

/// Draws an array.
pub(crate) fn array(chance: &mut Rng, array: u32, earlier: &[u32]) -> SentArray {
    let is_bounded = chance.u8(..4) > 0;
    SentArray {
        start: Start {
            instance_uuid: names::array_uuid(array).to_string(),
            ..job(chance, 0, earlier)
        },
        count: chance.u32(1..=ELEMENTS.min(MOST_ELEMENTS)),
        running_max: is_bounded.then(|| chance.u32(1..4)),
    }
}

impl World {
    /// Whether an instance is a job, which ends by itself.
    pub(crate) fn is_job(&self, instance: u32) -> bool {
        let sent = self.starts.get(&instance);
        names::element_of(instance).is_some() || sent.is_some_and(|sent| sent.is_job)
    }

    /// What a START says of an instance: its own, or that of its array.
    pub(crate) fn scheduling_of(&self, instance: u32) -> Option<&Scheduling> {
        let start = match names::element_of(instance) {
            Some((array, _)) => &self.arrays.get(&array)?.start,
            None => &self.starts.get(&instance)?.start,
        };
        start.scheduling.as_ref()
    }

    /// Sends an array, for the first time or again.
    pub(crate) fn start_array(&mut self, number: usize, array: u32) {
        let (Some(sent), Some(link)) = (self.arrays.get(&array), self.controllers[number].link())
        else {
            return;
        };
        let head = StartArray {
            indexes: format!("0-{}", sent.count - 1),
            running_max: sent.running_max,
            ..StartArray::default()
        };
        let order = ArrayOrder::of(head, &sent.start.encode(), b"");
        let (count, most) = (sent.count, sent.running_max);
        self.note(format_args!(
            "controller {number} starts array {array}: {count} elements, {most:?} at a time"
        ));
        let origin = Peer::Controller(number).uuid();
        self.send_up(link, Frame::new(Kind::START_ARRAY, origin, order.encode()));
    }

    /// Has what did not succeed of an array run once more.
    pub(crate) fn rerun_array(&mut self, number: usize, array: u32) {
        let head = StartArray {
            array_uuid: names::array_uuid(array).to_string(),
            rerun: true,
            ..StartArray::default()
        };
        self.note(format_args!("controller {number} reruns array {array}"));
        let order = ArrayOrder::of(head, b"", b"");
        self.command(number, Kind::START_ARRAY, order.encode());
    }

    /// Has an array deleted.
    pub(crate) fn delete_array(&mut self, number: usize, array: u32) {
        let delete = Delete {
            instance_uuid: names::array_uuid(array).to_string(),
            // A DELETE names a node, also where what it is about has none.
            workload_agent_uuid: names::machine_uuid(0).to_string(),
            ..Delete::default()
        };
        self.note(format_args!("controller {number} deletes array {array}"));
        self.command(number, Kind::DELETE, delete.encode());
    }

    /// What a controller's frame is about an array, as a fact.
    pub(crate) fn see_array(&mut self, frame: &Frame) {
        match frame.kind {
            Kind::START_ARRAY => {
                let order = ArrayOrder::decode(&frame.payload);
                let order = order.expect("controllers write StartArray well");
                if let Some(array) = names::array_of(&order.part.array_uuid) {
                    self.facts.push(Fact::ArrayRerun { array });
                } else if let Some((start, _)) = order.parts() {
                    let start = Start::decode(&start).expect("it is a START");
                    let array = names::array_of(&start.instance_uuid);
                    let array = array.expect("arrays are named here");
                    self.facts.push(Fact::ArrayStarted { array });
                }
            }
            Kind::DELETE => {
                let delete = Delete::decode(&frame.payload);
                let delete = delete.expect("controllers write DELETE well");
                if let Some(array) = names::array_of(&delete.instance_uuid) {
                    self.facts.push(Fact::ArrayDeleted { array });
                }
            }
            _ => {}
        }
    }
}
