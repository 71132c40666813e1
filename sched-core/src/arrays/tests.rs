//! Arrays in random histories, compared with lists that are searched.

use std::time::{Duration, Instant};

use bytes::Bytes;
use proptest::prelude::*;
use sched_model::{Indexes, Scheduling, Uuid};

use super::{Array, Arrays, ElementState, MAX_ARRAYS, NewArray, TooMany, from_text, to_text};
use crate::api::array::Values;
use crate::api::ids::{InstanceId, SessionId};
use crate::api::parcel::{Parcel, Tag};
use crate::api::start::{PlacedStart, StartRequest};

fn uuid(number: u8) -> Uuid {
    Uuid::from_u128(0x4000 + u128::from(number))
}

fn new(number: u8, indexes: &str, most: Option<u32>, bytes: usize) -> NewArray {
    let mut request = StartRequest::plain(InstanceId::Uuid(uuid(number)));
    let name = format!("a{number}");
    request.scheduling = Some(Box::new(Scheduling {
        name,
        ..Scheduling::default()
    }));
    let now = crate::simulated::start();
    NewArray {
        indexes: indexes.parse::<Indexes>().unwrap(),
        running_max: most,
        start: PlacedStart {
            sender: SessionId(1),
            request: request.into(),
            parcel: Parcel {
                tag: Tag(0),
                native_limit: u32::MAX,
                origin: Uuid::nil(),
                trace: None,
                payload: Bytes::from(vec![0; bytes]),
            },
            changes: None,
        },
        values: Values::of_lines(Bytes::from_static(b"v\nw\nx\ny\nz\n")).unwrap(),
        priority: 50 + number % 2,
        is_operators: number.is_multiple_of(2),
        arrived: now,
        deadline: Some(now + Duration::from_secs(number.into())),
    }
}

/// Five elements.
const INDEXES: &str = "1-3,7,9";

/// Arrays in play.
const ARRAYS: u8 = 3;

#[derive(Debug, Clone, Copy)]
enum Op {
    Insert(u8, Option<u32>),
    Next,
    End(u8, usize, u8),
    Queued(u8, usize, bool),
    Drop(u8),
    Rerun(u8),
    Remove(u8),
}

fn op() -> impl Strategy<Value = Op> {
    let array = || 0..ARRAYS;
    prop_oneof![
        2 => (array(), proptest::option::of(1..4_u32)).prop_map(|(it, most)| Op::Insert(it, most)),
        8 => Just(Op::Next),
        6 => (array(), 0..5_usize, 2..7_u8).prop_map(|(it, at, state)| Op::End(it, at, state)),
        4 => (array(), 0..5_usize, any::<bool>()).prop_map(|(it, at, is)| Op::Queued(it, at, is)),
        1 => array().prop_map(Op::Drop),
        1 => array().prop_map(Op::Rerun),
        1 => array().prop_map(Op::Remove),
    ]
}

/// What an array is to be.
#[derive(Debug, Clone)]
struct Naive {
    number: u8,
    order: u64,
    most: Option<u32>,
    states: [ElementState; 5],
    queued: [bool; 5],
}

impl Naive {
    fn count(&self, state: ElementState) -> u32 {
        self.states.iter().filter(|it| **it == state).count() as u32
    }

    fn is_ready(&self) -> bool {
        let live = self.count(ElementState::Live);
        self.count(ElementState::Waiting) > 0
            && !self.queued.contains(&true)
            && live < self.most.unwrap_or(u32::MAX)
    }
}

const INDEX: [u32; 5] = [1, 2, 3, 7, 9];

fn step(arrays: &mut Arrays, all: &mut Vec<Naive>, orders: &mut u64, op: Op) {
    let of = |all: &mut Vec<Naive>, number: u8| all.iter().position(|it| it.number == number);
    match op {
        Op::Insert(number, most) if of(all, number).is_none() => {
            *orders += 10;
            arrays.insert(Array::new(
                uuid(number),
                *orders,
                new(number, INDEXES, most, 3),
            ));
            all.push(Naive {
                number,
                order: *orders,
                most,
                states: [ElementState::Waiting; 5],
                queued: [false; 5],
            });
        }
        Op::Next => {
            let ready = all.iter_mut().filter(|it| it.is_ready());
            let first = ready.min_by_key(|it| (std::cmp::Reverse(50 + it.number % 2), it.order));
            assert_eq!(
                arrays.next_ready(),
                first.as_ref().map(|it| uuid(it.number))
            );
            let Some(first) = first else {
                return;
            };
            let at = first
                .states
                .iter()
                .position(|it| *it == ElementState::Waiting)
                .unwrap();
            first.states[at] = ElementState::Live;
            let taken = arrays.change(uuid(first.number), Array::take_next);
            let (element, start) = taken.flatten().unwrap();
            assert_eq!(element.index, INDEX[at]);
            assert_eq!(start.request.instance, element.instance());
            let own = start.changes.unwrap().element.unwrap();
            assert_eq!(own.value, ["v", "w", "x", "y", "z"][at]);
            assert_eq!(own.name(), format!("a{}-{}", first.number, INDEX[at]));
        }
        other => step_one(arrays, all, orders, other),
    }
}

/// Does one thing with one array of both.
fn step_one(arrays: &mut Arrays, all: &mut Vec<Naive>, orders: &mut u64, op: Op) {
    let of = |all: &mut Vec<Naive>, number: u8| all.iter().position(|it| it.number == number);
    match op {
        Op::End(number, at, state) => {
            let Some(it) = of(all, number).filter(|it| all[*it].states[at] == ElementState::Live)
            else {
                return;
            };
            let state = ElementState::ALL[usize::from(state)];
            (all[it].states[at], all[it].queued[at]) = (state, false);
            arrays.change(uuid(number), |it| it.set(INDEX[at], state));
        }
        Op::Queued(number, at, is_queued) => {
            let Some(it) = of(all, number).filter(|it| all[*it].states[at] == ElementState::Live)
            else {
                return;
            };
            all[it].queued[at] = is_queued;
            let element = arrays.get(uuid(number)).unwrap().element(INDEX[at]);
            arrays.set_queued(element, is_queued);
        }
        Op::Drop(number) => {
            let Some(it) = of(all, number) else {
                return;
            };
            let waits = all[it].count(ElementState::Waiting) > 0;
            for state in all[it]
                .states
                .iter_mut()
                .filter(|it| **it == ElementState::Waiting)
            {
                *state = ElementState::Deleted;
            }
            let dropped = |it: &mut Array| it.drop_waiting(ElementState::Deleted);
            assert_eq!(arrays.change(uuid(number), dropped), Some(waits));
        }
        Op::Rerun(number) => {
            let Some(it) = of(all, number) else {
                return;
            };
            *orders += 10;
            let is_again = |it: &&mut ElementState| it.is_over() && **it != ElementState::Succeeded;
            let again: Vec<_> = all[it].states.iter_mut().filter(is_again).collect();
            let count = again.len() as u32;
            again
                .into_iter()
                .for_each(|state| *state = ElementState::Waiting);
            if count > 0 {
                all[it].order = *orders;
            }
            let again = arrays.change(uuid(number), |it| it.rerun(*orders, None));
            assert_eq!(again, Some(count));
        }
        Op::Remove(number) => {
            arrays.remove(uuid(number));
            all.retain(|it| it.number != number);
        }
        Op::Insert(..) | Op::Next => {}
    }
}

proptest! {
    #[test]
    fn elements_are_taken_in_turn_and_counted(ops in prop::collection::vec(op(), 0..120)) {
        let (mut arrays, mut all, mut orders) = (Arrays::default(), Vec::new(), 0);
        for op in ops {
            step(&mut arrays, &mut all, &mut orders, op);
            prop_assert!(arrays.is_consistent());
            for it in &all {
                let array = arrays.get(uuid(it.number)).unwrap();
                prop_assert_eq!(array.states(), it.states);
                let text = to_text(array.states());
                prop_assert_eq!(from_text(&text, 5), Some(it.states.to_vec()));
            }
        }
    }

    #[test]
    fn no_text_is_taken_for_states_that_are_not_all(text in "[0-9wlsfnudx]{0,12}", count in 0..9_u32) {
        if let Some(states) = from_text(&text, count) {
            prop_assert_eq!(states.len(), count as usize);
        }
    }
}

#[test]
fn there_are_no_more_than_may_be_and_the_oldest_that_have_ended_make_place() {
    let mut arrays = Arrays::default();
    let now: Instant = crate::simulated::start();
    let id = |number: usize| Uuid::from_u128(number as u128);
    for number in 0..MAX_ARRAYS {
        arrays.insert(Array::new(id(number), 1, new(1, "0", None, 1)));
    }
    let full = TooMany {
        of_operators: false,
    };
    assert_eq!(arrays.may_add(10, false), Err(full));
    for number in [7, 9] {
        arrays.change(id(number), |it| {
            it.set(0, ElementState::Succeeded);
            it.end_if_over(now)
        });
    }
    assert_eq!(arrays.may_add(10, false), Ok(()));
    assert_eq!(arrays.to_forget(10, false), Some(id(7)));
    arrays.remove(id(7));
    assert_eq!(arrays.to_forget(10, false), None);
    assert!(arrays.is_consistent());
}
