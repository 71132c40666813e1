//! What a cell tells its routers: how many nodes have how much left, counted in steps, and no node by itself. Written as
//! bytes and read from them, so that what is counted as sent is all that a router knows.

use crate::workload::{Request, Want};

/// Steps of memory, GiB, and of CPUs: each about √2 times the one before.
const MEM_STEPS: [i64; 14] = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128];
const VCPU_STEPS: [i64; 12] = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64];

/// Rows and columns: below the first step is one more of each.
const ROWS: usize = MEM_STEPS.len() + 1;
const COLUMNS: usize = VCPU_STEPS.len() + 1;

/// Sets of nodes that are counted by themselves: all, those with an SSD, those with 1, 2 and 4 GPUs left.
const SETS: usize = 5;

/// What is left on a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Free {
    pub(crate) mem_gib: i64,
    pub(crate) vcpus: i64,
    pub(crate) gpus: i64,
    /// Whether it has an SSD, of which there is always enough.
    pub(crate) ssd: bool,
}

impl Free {
    fn sets(&self) -> [bool; SETS] {
        let gpus = self.gpus;
        [true, self.ssd, gpus >= 1, gpus >= 2, gpus >= 4]
    }

    fn place(&self) -> usize {
        let row = step_of(&MEM_STEPS, self.mem_gib);
        row * COLUMNS + step_of(&VCPU_STEPS, self.vcpus)
    }
}

/// The nodes of a cell, counted.
#[derive(Debug, Clone)]
pub(crate) struct Aggregate {
    mem_gib: u64,
    nodes: [[u32; ROWS * COLUMNS]; SETS],
}

impl Aggregate {
    pub(crate) fn of(nodes: &[Free]) -> Self {
        let mut aggregate = Self {
            mem_gib: 0,
            nodes: [[0; ROWS * COLUMNS]; SETS],
        };
        nodes.iter().for_each(|node| aggregate.add(node));
        aggregate
    }

    /// What is left on a node is something else now.
    pub(crate) fn change(&mut self, from: &Free, to: &Free) {
        self.mem_gib -= from.mem_gib as u64;
        for (set, is_in) in self.nodes.iter_mut().zip(from.sets()) {
            set[from.place()] -= u32::from(is_in);
        }
        self.add(to);
    }

    fn add(&mut self, node: &Free) {
        self.mem_gib += node.mem_gib as u64;
        for (set, is_in) in self.nodes.iter_mut().zip(node.sets()) {
            set[node.place()] += u32::from(is_in);
        }
    }

    /// The memory left in all, then of each set how many places are not empty, and each as the distance from the one before and its
    /// nodes; every number in groups of seven bits.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        push(&mut bytes, self.mem_gib);
        for set in &self.nodes {
            push(
                &mut bytes,
                set.iter().filter(|nodes| **nodes > 0).count() as u64,
            );
            let mut before = 0;
            for (place, nodes) in set.iter().enumerate().filter(|(_, nodes)| **nodes > 0) {
                push(&mut bytes, (place - before) as u64);
                push(&mut bytes, u64::from(*nodes));
                before = place;
            }
        }
        bytes
    }
}

/// How many nodes of a cell fit a START, as far as counts in steps tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Fits {
    /// These do.
    pub(crate) surely: u32,
    /// Of these some may.
    pub(crate) maybe: u32,
}

/// What a router knows of a cell.
#[derive(Debug, Clone)]
pub(crate) struct View {
    /// Memory left in all.
    pub(crate) mem_gib: i64,
    /// Nodes with at least so much of both.
    at_least: Vec<[u32; ROWS * COLUMNS]>,
}

impl View {
    /// Reads what [`Aggregate::encode`] wrote.
    pub(crate) fn decode(mut bytes: &[u8]) -> Self {
        let mem_gib = pull(&mut bytes) as i64;
        let mut at_least = vec![[0; ROWS * COLUMNS]; SETS];
        for set in &mut at_least {
            let mut place = 0;
            for _ in 0..pull(&mut bytes) {
                place += pull(&mut bytes) as usize;
                set[place] = pull(&mut bytes) as u32;
            }
            for row in (0..ROWS).rev() {
                for column in (0..COLUMNS).rev() {
                    let at = |set: &[u32], row: usize, column: usize| match row < ROWS
                        && column < COLUMNS
                    {
                        true => set[row * COLUMNS + column],
                        false => 0,
                    };
                    let others = at(set, row + 1, column) + at(set, row, column + 1)
                        - at(set, row + 1, column + 1);
                    set[row * COLUMNS + column] += others;
                }
            }
        }
        Self { mem_gib, at_least }
    }

    /// How many nodes fit.
    pub(crate) fn fits(&self, request: &Request) -> Fits {
        let set = match request.want {
            Want::Ssd => 1,
            Want::Gpus(count) => 2 + count.ilog2() as usize,
            _ => 0,
        };
        let count = |row: usize, column: usize| match row < ROWS && column < COLUMNS {
            true => self.at_least[set][row * COLUMNS + column],
            false => 0,
        };
        let surely = count(
            whole_step(&MEM_STEPS, request.mem_gib),
            whole_step(&VCPU_STEPS, request.vcpus),
        );
        let all = count(
            step_of(&MEM_STEPS, request.mem_gib),
            step_of(&VCPU_STEPS, request.vcpus),
        );
        Fits {
            surely,
            maybe: all - surely,
        }
    }
}

/// The step that an amount is in: from 0, below the first, on.
fn step_of(steps: &[i64], amount: i64) -> usize {
    steps.partition_point(|step| *step <= amount)
}

/// The first step all of which is as much as this; one past the last if there is none.
fn whole_step(steps: &[i64], amount: i64) -> usize {
    1 + steps.partition_point(|step| *step < amount)
}

fn push(bytes: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

/// The next number; bytes are this program's own.
fn pull(bytes: &mut &[u8]) -> u64 {
    let mut number = 0;
    for group in 0.. {
        let (byte, rest) = bytes.split_first().expect("there is one more");
        *bytes = rest;
        number |= u64::from(byte & 0x7f) << (7 * group);
        if byte & 0x80 == 0 {
            break;
        }
    }
    number
}
