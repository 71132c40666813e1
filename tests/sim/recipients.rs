//! What each recipient gets, as one hash: the messages of each peer in their order, and the records on the disk. The total
//! order of what one input causes does not count, so that it may change while each recipient gets the same.
//!
//! As in [`crate::behaviour`], whose hashes these are, no words count. Unlike there, what records contain counts, and the
//! records of one change are in the order of their keys.
//!
//! Network and disk draw how long each message and write takes from one generator, in the order in which they get them. So
//! where recipients are measured, what one input causes is done recipient by recipient, in an order of their own.
//!
//! ```text
//! SIM_RECIPIENTS=1 SIM_HASHES=/tmp/before SIM_SEEDS=1000 cargo test --release --test sim invariants_hold
//! SIM_RECIPIENTS=1 SIM_HASHES=/tmp/after SIM_SEEDS=1000 cargo test --release --test sim invariants_hold     the other version
//! diff /tmp/before /tmp/after && echo the same
//! ```
//! With `SIM_SEED=n` in place of `SIM_SEEDS` the file has all that each recipient got, one recipient after the other.

use std::collections::BTreeMap;
use std::fmt::{self, Write};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use ciao_scheduler::server::sim_support;
use proto_frames::Uuid;
use sched_core::{Action, Record, Scheduler, SessionId};
use serde::Serialize;

use crate::behaviour::{Measure, Measured};
use crate::fnv::Fnv;
use crate::payload;
use crate::run::run;
use crate::seeds::for_each_seed;
use crate::world::World;

/// Whose something is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Of {
    /// Everybody's: recipients are not told apart.
    All,
    /// The scheduler's own beginning and end.
    Scheduler,
    Disk,
    Peer(Uuid),
}

/// The hashes of all recipients.
#[derive(Debug)]
pub(crate) struct Streams {
    measure: Measure,
    /// Who is written of.
    at: Of,
    streams: BTreeMap<Of, Stream>,
    peers: BTreeMap<SessionId, Uuid>,
}

#[derive(Debug)]
struct Stream {
    hash: Fnv,
    /// What was hashed, for people.
    lines: String,
}

impl Streams {
    pub(crate) fn new(measure: Measure) -> Self {
        Self {
            measure,
            at: Of::All,
            streams: BTreeMap::new(),
            peers: BTreeMap::new(),
        }
    }

    /// Whether recipients are told apart.
    pub(crate) fn are_apart(&self) -> bool {
        matches!(self.measure, Measure::Recipients | Measure::RecipientSteps)
    }

    /// A session is that of this peer.
    pub(crate) fn belongs(&mut self, session: SessionId, peer: Uuid) {
        self.peers.insert(session, peer);
    }

    /// Whose a session is.
    pub(crate) fn of(&self, session: SessionId) -> Of {
        let peer = self.peers.get(&session);
        peer.map_or(Of::Scheduler, |peer| Of::Peer(*peer))
    }

    /// From now on what is written is this one's; its hash so far.
    pub(crate) fn turn_to(&mut self, of: Of) -> u64 {
        self.at = if self.are_apart() { of } else { Of::All };
        self.stream().hash.get()
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) {
        self.stream().hash.write(bytes);
    }

    /// Adds to the lines, which do not count.
    pub(crate) fn say(&mut self, what: fmt::Arguments<'_>) {
        if matches!(self.measure, Measure::Steps | Measure::RecipientSteps) {
            let lines = &mut self.stream().lines;
            lines.write_fmt(what).expect("a string takes everything");
        }
    }

    /// What all of it comes to.
    pub(crate) fn measured(&self) -> Measured {
        let mut all = Measured::default();
        if let Some(one) = self.streams.get(&Of::All) {
            all.hash = one.hash.get();
            all.steps.clone_from(&one.lines);
            return all;
        }
        let mut hash = Fnv::new();
        for (of, stream) in &self.streams {
            let number: u8 = match of {
                Of::All | Of::Scheduler => 1,
                Of::Disk => 2,
                Of::Peer(_) => 3,
            };
            hash.write(&[number]);
            if let Of::Peer(peer) = of {
                hash.write(peer.as_bytes());
            }
            hash.write(&stream.hash.get().to_le_bytes());
            if !stream.lines.is_empty() {
                write!(all.steps, "\n{of:?}{}", stream.lines).expect("a string takes everything");
            }
        }
        all.hash = hash.get();
        all
    }

    fn stream(&mut self) -> &mut Stream {
        self.streams.entry(self.at).or_insert_with(|| Stream {
            hash: Fnv::new(),
            lines: String::new(),
        })
    }
}

impl World {
    /// Does what one input causes, recipient by recipient.
    pub(crate) fn take_actions_by_recipient(&mut self) {
        loop {
            let mut actions = Vec::new();
            while let Some(mut action) = self.core.as_mut().and_then(Scheduler::poll_action) {
                sim_support::word(&mut action);
                actions.push(action);
            }
            if actions.is_empty() {
                return;
            }
            actions.sort_by_key(place);
            // The end of a connection is an input of its own, which causes more.
            actions.into_iter().for_each(|action| self.act_on(action));
        }
    }
}

/// Where an action stands among those of one input; those of one recipient stay in their order.
fn place(action: &Action) -> (u8, u64) {
    match action {
        Action::Notice(_) => (0, 0),
        Action::Send { to: session, .. }
        | Action::Disconnect { session, .. }
        | Action::Refuse { session, .. }
        | Action::Ends { session, .. }
        | Action::Image { session, .. }
        | Action::Reload { session, .. }
        | Action::TransferLeadership { session, .. }
        | Action::Configuration { session, .. }
        | Action::Configured { session, .. } => (1, session.0),
        Action::RememberNodes => (2, 0),
        Action::Persist(_) => (2, 1),
    }
}

/// The hash of what a record contains, without words.
pub(crate) fn content(record: &Record) -> u64 {
    fn json(of: &impl Serialize) -> u64 {
        payload::hash(&serde_json::to_vec(of).expect("records are JSON"))
    }
    match record {
        Record::Instance(it) => {
            json(it)
                ^ it.payload
                    .as_deref()
                    .map_or(0, |it| payload::hash(it).rotate_left(1))
        }
        Record::Node(it) => json(it),
        Record::Binding(it) => json(it),
        Record::Claims(it) => json(it),
        Record::Run(it) => json(it),
        Record::Array(it) => json(it) ^ payload::hash(&it.payload).rotate_left(1),
        Record::ArrayProgress(it) => json(it),
    }
}

/// Seeds that are recorded.
const SEEDS: u64 = 1_000;

/// Seeds of which one hash is recorded.
const BLOCK: u64 = 50;

/// Has what is found now recorded.
const UPDATE: &str = "UPDATE_RECIPIENTS";

#[test]
#[ignore = "compares with another version of the scheduler; record it again after a change of behaviour"]
fn recipients_get_what_is_recorded() {
    let hashes = Mutex::new(BTreeMap::new());
    for_each_seed(&[], SEEDS, |seed, _| {
        let sums = run(seed, Measure::Recipients);
        let hash = sums.behaviour.as_ref().map(|it| it.hash);
        hashes.lock().expect("no run holds it").insert(seed, hash);
        sums
    });
    let hashes = hashes.into_inner().expect("no run holds it");
    let found = blocks(&hashes);
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/sim/recipients.txt");
    let mut recorded = recorded(&path);
    if std::env::var_os(UPDATE).is_some() {
        recorded.extend(found);
        let lines = recorded
            .iter()
            .map(|(from, hash)| format!("{from} {hash:016x}\n"));
        return fs::write(path, lines.collect::<String>()).expect("it can be written");
    }
    let others = found
        .iter()
        .filter(|(from, hash)| recorded.get(from) != Some(hash));
    let others: Vec<u64> = others.map(|(from, _)| *from).collect();
    assert!(
        others.is_empty(),
        "in the {BLOCK} seeds from each of {others:?} on a recipient gets something else; SIM_FROM={} SIM_SEEDS={BLOCK} with \
         SIM_RECIPIENTS=1 and SIM_HASHES names the seeds, by both versions' files; if that is meant, {UPDATE}=1 records it",
        others[0]
    );
}

/// One hash for each whole block of seeds.
fn blocks(of_seeds: &BTreeMap<u64, Option<u64>>) -> BTreeMap<u64, u64> {
    let mut blocks: BTreeMap<u64, (u64, Fnv)> = BTreeMap::new();
    for (seed, hash) in of_seeds {
        let from = seed / BLOCK * BLOCK;
        let (count, all) = blocks.entry(from).or_insert((0, Fnv::new()));
        *count += 1;
        all.write(&hash.unwrap_or_default().to_le_bytes());
    }
    let whole = blocks.into_iter().filter(|(_, (count, _))| *count == BLOCK);
    whole.map(|(from, (_, hash))| (from, hash.get())).collect()
}

/// What is recorded of each block.
fn recorded(path: &PathBuf) -> BTreeMap<u64, u64> {
    let text = fs::read_to_string(path).unwrap_or_default();
    let lines = text.lines().filter_map(|line| line.split_once(' '));
    let line = |(from, hash): (&str, &str)| {
        let hash = u64::from_str_radix(hash, 16).expect("a hash");
        (from.parse().expect("a seed"), hash)
    };
    lines.map(line).collect()
}

#[test]
fn the_order_between_recipients_does_not_count() {
    let hash = |sends: &[(u128, u8)]| {
        let mut streams = Streams::new(Measure::Recipients);
        for (peer, byte) in sends {
            streams.turn_to(Of::Peer(Uuid::from_u128(*peer)));
            streams.write(&[*byte]);
        }
        streams.measured().hash
    };
    assert_eq!(
        hash(&[(1, 7), (2, 8), (1, 9)]),
        hash(&[(2, 8), (1, 7), (1, 9)])
    );
    assert_ne!(hash(&[(1, 7), (1, 9)]), hash(&[(1, 9), (1, 7)]));
    assert_ne!(hash(&[(1, 7)]), hash(&[(2, 7)]));
}

#[test]
fn a_run_measured_by_recipients_is_the_same_each_time() {
    let hash = |seed| {
        let sums = run(seed, Measure::Recipients);
        sums.behaviour.expect("it was measured").hash
    };
    assert_eq!(hash(3), hash(3));
    assert_ne!(hash(3), hash(4));
}

#[test]
fn a_block_is_recorded_where_all_of_its_seeds_ran() {
    let all = (0..BLOCK + 3).map(|seed| (seed, Some(seed))).collect();
    assert_eq!(blocks(&all).keys().collect::<Vec<_>>(), [&0]);
    let mut other = all.clone();
    other.insert(7, Some(0));
    assert_ne!(blocks(&all), blocks(&other));
}
