//! Runs with seeds: the same seed gives the same run, and one that fails is named with what repeats it.
//!
//! ```text
//! SIM_SEED=17 cargo test --test sim                     one seed, with SIM_TRACE=5000 for more of what happened
//! SIM_SEEDS=5000 cargo test --test sim                  so many instead of the usual number
//! SIM_GO_ON=1 SIM_SEEDS=5000 cargo test --test sim whatever_breaks -- --nocapture    names all that fail, and how
//! SIM_FROM=1000000 SIM_SEEDS=1000000 cargo test --release --test sim whatever_breaks -- --nocapture
//! ```
//! The last is how millions are run: `SIM_FROM` has each run try other seeds than the one before. Seeds are spread over
//! all cores; which of them runs a seed changes nothing.

use std::any::Any;
use std::env::{self, VarError};
use std::fmt;
use std::panic::{self, AssertUnwindSafe};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

/// What runs came to.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Sums {
    /// The trace's hash; of several runs, all of theirs together, whatever their order.
    pub(crate) hash: u64,
    pub(crate) seeds: u64,
    /// Things that happened.
    pub(crate) steps: u64,
    /// STARTs that the scheduler took in.
    pub(crate) starts: u64,
    /// Processes that began.
    pub(crate) began: u64,
    /// Instances that a check had to let off, so that everybody sees how much is left unchecked.
    pub(crate) excused: u64,
}

impl Sums {
    fn add(&mut self, other: &Self) {
        self.hash ^= other.hash;
        self.seeds += other.seeds;
        self.steps += other.steps;
        self.starts += other.starts;
        self.began += other.began;
        self.excused += other.excused;
    }
}

impl fmt::Display for Sums {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            hash,
            seeds,
            steps,
            starts,
            began,
            excused,
        } = self;
        write!(
            f,
            "{seeds} seeds, {steps} steps: {starts} STARTs taken in, {began} processes began, {excused} instances let off by a check; hash {hash:016x}"
        )
    }
}

/// Runs seeds from 0 on, and some that found a defect once; or as the environment says.
pub(crate) fn for_each_seed(found: &[u64], usual: u64, run: impl Fn(u64) -> Sums + Sync) -> Sums {
    if let Some(seed) = number("SIM_SEED") {
        let _named = Named(seed);
        return run(seed);
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
        let failures = failures.load(Ordering::Relaxed);
        assert_eq!(failures, 0, "of {count} seeds; each is named above");
        sums
    })
}

/// What a panic says.
fn text(why: &Box<dyn Any + Send>) -> &str {
    let text = why.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| why.downcast_ref::<&str>().copied())
        .unwrap_or("a panic")
}

fn number(variable: &str) -> Option<u64> {
    match env::var(variable) {
        Ok(text) => Some(text.parse().expect("the variable is a number")),
        Err(VarError::NotPresent) => None,
        Err(error) => panic!("{variable}: {error}"),
    }
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
