//! What waits, in random histories, compared with lists that are searched.

use std::time::{Duration, Instant};

use bytes::Bytes;
use proptest::prelude::*;
use sched_model::{Batch as BatchAsked, Uuid};

use super::batches::{BATCH_TIME, BatchId};
use super::{Pending, Waits};
use crate::api::disk::DISK_PATIENCE;
use crate::api::ids::{InstanceId, SessionId};
use crate::api::parcel::{Parcel, Tag};
use crate::api::start::{PlacedStart, StartRequest};
use crate::peers::owner::Owner;

/// Instances in play: few, so that the same comes again while it waits.
const INSTANCES: u8 = 8;

/// STARTs of each batch.
const COUNT: u32 = 3;

#[derive(Debug, Clone, Copy)]
enum Op {
    ForDisk(u8),
    ForNodes(u8),
    ToBatch(u8, bool),
    Take(u8),
    TakeForNodes,
    TakeForDisk,
    TakeLate,
    TakeBatch(bool),
    TryComplete,
    TakeLateBatch,
    Wait(u8),
}

fn op() -> impl Strategy<Value = Op> {
    let instance = || 0..INSTANCES;
    prop_oneof![
        4 => instance().prop_map(Op::ForDisk),
        4 => instance().prop_map(Op::ForNodes),
        6 => (instance(), any::<bool>()).prop_map(|(it, batch)| Op::ToBatch(it, batch)),
        3 => instance().prop_map(Op::Take),
        2 => Just(Op::TakeForNodes),
        1 => Just(Op::TakeForDisk),
        2 => Just(Op::TakeLate),
        1 => any::<bool>().prop_map(Op::TakeBatch),
        2 => Just(Op::TryComplete),
        2 => Just(Op::TakeLateBatch),
        2 => (1_u8..20).prop_map(Op::Wait),
    ]
}

fn start(number: u8) -> Box<PlacedStart> {
    let request = StartRequest::plain(InstanceId::new(&number.to_string()));
    Box::new(PlacedStart {
        sender: SessionId(0),
        request: request.into(),
        parcel: Parcel {
            tag: Tag(0),
            native_limit: u32::MAX,
            origin: Uuid::nil(),
            trace: None,
            payload: Bytes::from(vec![0; usize::from(number)]),
        },
        changes: None,
    })
}

fn number(start: &PlacedStart) -> u8 {
    let number = start.request.instance.to_string().parse();
    number.expect("each has a number for a name")
}

fn batch(second: bool) -> BatchId {
    BatchId::new(Owner::Controllers, if second { "second" } else { "first" })
}

/// What the table is to be: instances in the order they came, with what they wait for.
#[derive(Debug, Default)]
struct Lists {
    waiting: Vec<(u8, Waits)>,
    /// Batches in the order of their first START, whether it is the second, and until when they may be incomplete.
    batches: Vec<(bool, Instant)>,
}

impl Lists {
    fn put(&mut self, number: u8, waits: Waits) {
        self.waiting.retain(|(it, _)| *it != number);
        self.waiting.push((number, waits));
    }

    fn waits(&self, number: u8) -> Option<&Waits> {
        let mut waiting = self.waiting.iter();
        waiting
            .find(|(it, _)| *it == number)
            .map(|(_, waits)| waits)
    }

    /// Takes out those that wait so.
    fn take(&mut self, is_so: impl Fn(&Waits) -> bool, most: usize) -> Vec<u8> {
        let mut taken = Vec::new();
        self.waiting.retain(|(number, waits)| {
            let stays = taken.len() >= most || !is_so(waits);
            if !stays {
                taken.push(*number);
            }
            stays
        });
        taken
    }

    fn take_batch(&mut self, second: bool) -> Vec<u8> {
        self.batches.retain(|(it, _)| *it != second);
        let mut taken = self.take(|it| *it == Waits::Batch(batch(second)), usize::MAX);
        taken.sort_unstable();
        taken
    }

    fn in_batch(&self, second: bool) -> usize {
        let waits = Waits::Batch(batch(second));
        self.waiting.iter().filter(|(_, it)| *it == waits).count()
    }
}

fn sorted(starts: &[PlacedStart]) -> Vec<u8> {
    let mut numbers: Vec<u8> = starts.iter().map(number).collect();
    numbers.sort_unstable();
    numbers
}

/// Does one thing with both.
fn step(pending: &mut Pending, lists: &mut Lists, now: &mut Instant, op: Op) {
    let is_disk = |it: &Waits| matches!(it, Waits::Disk(_));
    let is_late = |it: &Waits, now: Instant| matches!(it, Waits::Disk(due) if *due <= now);
    match op {
        Op::ForDisk(it) | Op::ForNodes(it)
            if pending.batch_of(&start(it).request.instance).is_some() =>
        {
            let waits = lists.waits(it);
            assert!(matches!(waits, Some(Waits::Batch(_))), "{waits:?}");
        }
        Op::ForDisk(it) => {
            let until = *now + DISK_PATIENCE;
            assert!(pending.hold_for_disk(until, start(it)).is_ok());
            lists.put(it, Waits::Disk(until));
        }
        Op::ForNodes(it) => {
            assert!(pending.hold_for_nodes(start(it)).is_ok());
            lists.put(it, Waits::Nodes);
        }
        Op::ToBatch(it, second) => to_batch(pending, lists, *now, it, second),
        Op::Take(it) => {
            let taken = pending.take(&start(it).request.instance);
            let stays = matches!(lists.waits(it), None | Some(Waits::Batch(_)));
            assert_eq!(taken.is_none(), stays);
            lists.waiting.retain(|(other, _)| stays || *other != it);
        }
        Op::TakeForNodes => {
            let taken = pending.take_for_nodes().map(|it| number(&it));
            assert_eq!(
                Vec::from_iter(taken),
                lists.take(|it| *it == Waits::Nodes, 1)
            );
        }
        Op::TakeForDisk => {
            let taken: Vec<u8> = pending.take_for_disk().iter().map(number).collect();
            assert_eq!(taken, lists.take(is_disk, usize::MAX));
        }
        Op::TakeLate => {
            let taken = pending.take_late(*now).map(|it| number(&it));
            assert_eq!(Vec::from_iter(taken), lists.take(|it| is_late(it, *now), 1));
        }
        Op::TakeBatch(second) => {
            let taken = pending.take_batch(&batch(second));
            assert_eq!(sorted(&taken), lists.take_batch(second));
        }
        Op::TryComplete => {
            for id in pending.complete_batches(1) {
                let starts = pending.take_batch(&id);
                assert_eq!(starts.len(), COUNT as usize);
                pending.put_back_batch(&id, starts, *now);
                let second = id == batch(true);
                lists.batches.retain(|(it, _)| *it != second);
                lists.batches.push((second, *now));
            }
        }
        Op::TakeLateBatch => {
            let is_late = |(second, due): &&(bool, Instant)| {
                *due <= *now && lists.in_batch(*second) < COUNT as usize
            };
            let late = lists
                .batches
                .iter()
                .find(is_late)
                .map(|(second, _)| *second);
            let taken = pending.take_late_batch(*now);
            let taken = taken.map(|(id, count, starts)| (id, count, sorted(&starts)));
            let expected = late.map(|it| (batch(it), COUNT, lists.take_batch(it)));
            assert_eq!(taken, expected);
        }
        Op::Wait(seconds) => *now += Duration::from_secs(seconds.into()),
    }
}

/// A START of a batch comes. One that waits in the other is refused before (`join_batch`).
fn to_batch(pending: &mut Pending, lists: &mut Lists, now: Instant, it: u8, second: bool) {
    let (id, instance) = (batch(second), start(it).request.instance.clone());
    if pending
        .batch_of(&instance)
        .is_some_and(|other| *other != id)
    {
        return;
    }
    let is_there = lists.waits(it) == Some(&Waits::Batch(id.clone()));
    let is_full = lists.in_batch(second) >= COUNT as usize && !is_there;
    let asked = BatchAsked {
        id: id.name().to_owned(),
        count: COUNT,
    };
    pending.take(&instance);
    let added = pending.add_to_batch(&id, &asked, start(it), now);
    lists.waiting.retain(|(other, _)| is_there || *other != it);
    if is_full {
        assert!(added.is_err());
        return;
    }
    if !is_there {
        lists.put(it, Waits::Batch(id));
    }
    if lists.batches.iter().all(|(other, _)| *other != second) {
        lists.batches.push((second, now + BATCH_TIME));
    }
    let is_complete = lists.in_batch(second) == COUNT as usize;
    assert_eq!(added.ok(), Some(is_complete));
}

proptest! {
    #[test]
    fn each_start_waits_once_and_is_found_by_what_it_waits_for(
        ops in prop::collection::vec(op(), 0..200)
    ) {
        let (mut pending, mut lists) = (Pending::default(), Lists::default());
        let mut now = crate::simulated::start();
        for op in ops {
            step(&mut pending, &mut lists, &mut now, op);
            prop_assert!(pending.is_consistent() && pending.are_batches_consistent());
            for it in 0..INSTANCES {
                let instance = start(it).request.instance.clone();
                prop_assert_eq!(pending.waits(&instance), lists.waits(it));
            }
        }
    }
}
