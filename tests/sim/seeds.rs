//! Runs with seeds: the same seed gives the same run, and one that fails is named with what repeats it.
//!
//! ```text
//! SIM_SEED=17 cargo test --test sim                     one seed, with SIM_TRACE=5000 for more of what happened
//! SIM_SEEDS=5000 cargo test --test sim                  so many instead of the usual number
//! SIM_GO_ON=1 SIM_SEEDS=5000 cargo test --test sim invariants_hold -- --nocapture    names all that fail, and how
//! SIM_FROM=1000000 SIM_SEEDS=1000000 cargo test --release --test sim invariants_hold -- --nocapture
//! ```
//! The last is how millions are run: `SIM_FROM` has each run try other seeds than the one before. Seeds are spread over
//! all cores; which of them runs a seed changes nothing.
//!
//! Whether two versions of the scheduler do the same is seen by what they do for the same seeds:
//!
//! ```text
//! SIM_HASHES=/tmp/before SIM_SEEDS=1000 cargo test --release --test sim invariants_hold
//! SIM_HASHES=/tmp/after SIM_SEEDS=1000 cargo test --release --test sim invariants_hold      with the other version
//! diff /tmp/before /tmp/after && echo the same
//! ```
//! The file has one line for each seed, in the order of the seeds: the seed, and a hash of what the scheduler did, in
//! which no words count ([`crate::behaviour`]); `failed` in place of the hash of a run that failed. It is empty if
//! not all seeds were run. A change that only moves, renames or words something leaves it as it is. With `SIM_SEED=n` in
//! place of `SIM_SEEDS` the file also has a line for each thing that happened, with the hash before it: `diff` finds the
//! first that differs. `SIM_RECIPIENTS=1` beside `SIM_HASHES` has the order between recipients not count
//! ([`crate::recipients`]).

use std::any::Any;
use std::collections::BTreeMap;
use std::env;
use std::fmt::{self, Write};
use std::fs;
use std::panic::{self, AssertUnwindSafe};
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use crate::behaviour::{Measure, Measured};
use crate::cluster::Seen;
use variables::number;

#[path = "../common/variables.rs"]
mod variables;

/// What runs came to.
#[derive(Debug, Clone, Default)]
pub(crate) struct Sums {
    /// The trace's hash; of several runs, all of theirs together, whatever their order.
    pub(crate) hash: u64,
    /// Of one run that was measured: what the scheduler did, without words.
    pub(crate) behaviour: Option<Measured>,
    pub(crate) seeds: u64,
    /// Things that happened.
    pub(crate) steps: u64,
    /// STARTs that the scheduler took in.
    pub(crate) starts: u64,
    /// Processes that began.
    pub(crate) began: u64,
    /// Instances that a check had to let off, so that everybody sees how much is left unchecked.
    pub(crate) excused: u64,
    /// Of runs with several schedulers.
    pub(crate) seen: Seen,
}

impl Sums {
    fn add(&mut self, other: &Self) {
        self.hash ^= other.hash;
        self.seeds += other.seeds;
        self.steps += other.steps;
        self.starts += other.starts;
        self.began += other.began;
        self.excused += other.excused;
        self.seen += other.seen;
    }
}

impl fmt::Display for Sums {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            hash,
            behaviour: _,
            seeds,
            steps,
            starts,
            began,
            excused,
            seen,
        } = self;
        if seen.leaders > 0 {
            write!(f, "{seen:?}; ")?;
        }
        write!(
            f,
            "{seeds} {}, {steps} steps: {starts} STARTs taken in, {began} processes began, {excused} instances let off by a check; hash {hash:016x}",
            if *seeds == 1 { "seed" } else { "seeds" }
        )
    }
}

/// Runs seeds from 0 on, and some that found a defect once; or as the environment says.
pub(crate) fn for_each_seed(
    found: &[u64],
    usual: u64,
    run: impl Fn(u64, Measure) -> Sums + Sync,
) -> Sums {
    let hashes = Hashes::new();
    let run = |seed| {
        hashes.put(seed, None);
        let mut sums = run(seed, hashes.measure);
        hashes.put(seed, sums.behaviour.take());
        sums
    };
    if let Some(seed) = number("SIM_SEED") {
        let _named = Named(seed);
        let sums = run(seed);
        hashes.write();
        return sums;
    }
    let from = number("SIM_FROM").unwrap_or(0);
    let (found, count) = match number("SIM_SEEDS") {
        Some(count) => (&[][..], count),
        None => (found, usual),
    };
    let end = from + count + found.len() as u64;
    let goes_on = env::var_os("SIM_GO_ON").is_some();
    let (next, has_failed) = (AtomicU64::new(from), AtomicBool::new(false));
    let failures = AtomicU64::new(0);
    let work = || {
        let mut sums = Sums::default();
        while !has_failed.load(Ordering::Relaxed) {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= end {
                break;
            }
            // Those that were found once stand behind the others.
            let seed = match seed.checked_sub(from + count) {
                Some(at) => found[at as usize],
                None => seed,
            };
            if goes_on {
                let ran = panic::catch_unwind(AssertUnwindSafe(|| run(seed)));
                ran.iter().for_each(|ran| sums.add(ran));
                if let Err(why) = ran {
                    failures.fetch_add(1, Ordering::Relaxed);
                    eprintln!("SIM_SEED={seed}: {}", text(&why));
                }
                continue;
            }
            let _named = Named(seed);
            let _stops = Stops(&has_failed);
            sums.add(&run(seed));
        }
        sums
    };
    let cores = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        let threads: Vec<_> = (0..cores).map(|_| scope.spawn(work)).collect();
        let mut sums = Sums::default();
        for thread in threads {
            sums.add(&thread.join().expect("no seed fails"));
        }
        hashes.write();
        let failures = failures.load(Ordering::Relaxed);
        assert_eq!(failures, 0, "of {count} seeds; each is named above");
        sums
    })
}

/// What `SIM_HASHES` names a file for: each seed, and the hash of what the scheduler did; `None` while a run is not over.
struct Hashes {
    file: Option<PathBuf>,
    measure: Measure,
    of_seeds: Mutex<BTreeMap<u64, Option<Measured>>>,
}

impl Hashes {
    /// Empties the file, so that one of an earlier run is not taken for this run's.
    fn new() -> Self {
        let file = env::var_os("SIM_HASHES").map(PathBuf::from);
        let is_by_recipient = env::var_os("SIM_RECIPIENTS").is_some();
        let measure = match (&file, env::var_os("SIM_SEED")) {
            (None, _) => Measure::No,
            (Some(_), None) if is_by_recipient => Measure::Recipients,
            (Some(_), None) => Measure::Whole,
            (Some(_), Some(_)) if is_by_recipient => Measure::RecipientSteps,
            (Some(_), Some(_)) => Measure::Steps,
        };
        let hashes = Self {
            file,
            measure,
            of_seeds: Mutex::default(),
        };
        hashes.write();
        hashes
    }

    /// What a run came to, or for now that it is not over.
    fn put(&self, seed: u64, measured: Option<Measured>) {
        let mut of_seeds = self.of_seeds.lock().expect("no run holds it");
        of_seeds.insert(seed, measured);
    }

    /// Writes all of them into the file, if one is named.
    fn write(&self) {
        let Some(file) = &self.file else {
            return;
        };
        let of_seeds = self.of_seeds.lock().expect("no run holds it");
        fs::write(file, text_of(&of_seeds)).expect("SIM_HASHES names a file that can be written");
    }
}

/// One line for each seed, in their order, and what happened where that was asked for.
fn text_of(of_seeds: &BTreeMap<u64, Option<Measured>>) -> String {
    of_seeds
        .iter()
        .fold(String::new(), |mut text, (seed, measured)| {
            match measured {
                Some(Measured { hash, steps }) => writeln!(text, "{seed} {hash:016x}{steps}"),
                None => writeln!(text, "{seed} failed"),
            }
            .expect("a string takes everything");
            text
        })
}

/// What a panic says.
fn text(why: &Box<dyn Any + Send>) -> &str {
    let text = why.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| why.downcast_ref::<&str>().copied())
        .unwrap_or("a panic")
}

/// Names its seed if the run fails.
struct Named(u64);

impl Drop for Named {
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!(
                "failed: SIM_SEED={} cargo test --test sim repeats it",
                self.0
            );
        }
    }
}

/// Keeps the other threads from beginning further seeds once one has failed.
struct Stops<'a>(&'a AtomicBool);

impl Drop for Stops<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.store(true, Ordering::Relaxed);
        }
    }
}

#[test]
fn hashes_stand_in_the_order_of_their_seeds() {
    let measured = |hash| {
        let steps = String::new();
        Some(Measured { hash, steps })
    };
    let of_seeds = BTreeMap::from([(10, measured(0xab)), (9, None), (17931, measured(u64::MAX))]);
    assert_eq!(
        text_of(&of_seeds),
        "9 failed\n10 00000000000000ab\n17931 ffffffffffffffff\n"
    );
}
