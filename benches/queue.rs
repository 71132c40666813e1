//! What those who wait cost when a node says that it has room: one round of [`BenchQueue::candidate`] with 100 000
//! waiting, each asking for amounts of its own.

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use sched_core::Resources;
use sched_core::bench_support::BenchFound::{GaveUp, NoWaiter, Waiter};
use sched_core::bench_support::BenchQueue;

/// How many wait.
const WAITING: u64 = 100_000;

/// Shapes where there are many that may go anywhere.
const SHAPES: u64 = 1_000;

/// What everybody asks for at least, of each.
const LEAST: i64 = 1_000;

/// More than anybody asks for.
const PLENTY: i64 = 1 << 40;

/// What a waiter asks for, different from all others; the later, the less memory and the more disk.
fn asked(order: u64) -> Resources {
    let order = i64::try_from(order).expect("there are few");
    let waiting = i64::try_from(WAITING).expect("there are few");
    Resources {
        mem_mib: LEAST + waiting - order,
        vcpus: 1,
        disk_mib: LEAST + order,
    }
}

/// A queue of one shape.
fn of_one_shape() -> BenchQueue {
    let mut queue = BenchQueue::default();
    for order in 1..=WAITING {
        queue.push(order, asked(order), 0, None);
    }
    queue
}

/// A queue of one shape in which memory is asked for by one and disk by the next, and never little of both.
fn crossed() -> BenchQueue {
    let mut queue = BenchQueue::default();
    for order in 1..=WAITING {
        let asked = asked(order);
        let (mem_mib, disk_mib) = if order % 2 == 0 {
            (2 * LEAST + asked.mem_mib, 0)
        } else {
            (0, 2 * LEAST + asked.disk_mib)
        };
        let crossed = Resources {
            mem_mib,
            disk_mib,
            ..asked
        };
        queue.push(order, crossed, 0, None);
    }
    queue
}

/// A queue with each pinned to a host of its own, none of them the one that asks.
fn pinned_elsewhere() -> BenchQueue {
    let mut queue = BenchQueue::default();
    for order in 1..=WAITING {
        queue.push(order, asked(order), 0, Some(&format!("other-{order}")));
    }
    queue
}

/// A queue with so many shapes in turn.
fn of_many_shapes() -> BenchQueue {
    let mut queue = BenchQueue::default();
    for order in 1..=WAITING {
        queue.push(order, asked(order), order % SHAPES, None);
    }
    queue
}

/// Room for all that ask for no more memory and no more disk than this.
fn free(mem_mib: i64, disk_mib: i64) -> Resources {
    Resources {
        mem_mib,
        vcpus: 8,
        disk_mib,
    }
}

fn candidate(criterion: &mut Criterion) {
    let (one, crossed) = (of_one_shape(), crossed());
    let (pinned, many) = (pinned_elsewhere(), of_many_shapes());
    let (too_little, plenty) = (free(LEAST - 1, PLENTY), free(PLENTY, PLENTY));
    let for_last = free(LEAST, PLENTY);
    let half = free(LEAST + 50_000, LEAST + 49_999);
    let cases = [
        ("nothing_fits", &one, too_little, true, NoWaiter),
        ("the_first_fits", &one, plenty, true, Waiter),
        ("only_the_last_fits", &one, for_last, true, Waiter),
        ("crossed", &crossed, free(LEAST, LEAST), true, GaveUp),
        ("all_pinned_elsewhere", &pinned, plenty, true, NoWaiter),
        (
            "many_shapes/nothing_fits",
            &many,
            too_little,
            true,
            NoWaiter,
        ),
        ("many_shapes/the_first_fits", &many, plenty, true, Waiter),
        ("many_shapes/last_fits", &many, for_last, true, Waiter),
        ("many_shapes/none_may", &many, plenty, false, GaveUp),
        ("many_shapes/crossed", &many, half, true, GaveUp),
    ];
    let mut group = criterion.benchmark_group("queue/candidate");
    for (name, queue, free, may, expected) in cases {
        assert_eq!(queue.candidate(free, may), expected, "{name}");
        group.bench_function(name, |bencher| {
            bencher.iter(|| queue.candidate(black_box(free), may));
        });
    }
    group.finish();
}

fn others(criterion: &mut Criterion) {
    let mut queue = of_one_shape();
    let mut group = criterion.benchmark_group("queue");
    let mut order = 0;
    let mut next = move || {
        // Any step that has no divisor in common with the number comes by all of them.
        order = (order + 37_813) % WAITING;
        order + 1
    };
    group.bench_function("take_and_put_back", |bencher| {
        bencher.iter(|| queue.take_and_put_back(next()));
    });
    group.bench_function("position", |bencher| {
        bencher.iter(|| queue.position(next()));
    });
    group.bench_function("outranks", |bencher| {
        bencher.iter(|| queue.outranks(black_box(free(PLENTY, PLENTY))));
    });
    group.bench_function("placed", |bencher| bencher.iter(|| queue.placed()));
    group.finish();
}

criterion_group!(benches, candidate, others);
criterion_main!(benches);
