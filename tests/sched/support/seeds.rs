//! Runs with seeds: the same seed gives the same run, and one that fails is named.
//!
//! `SCHED_SEEDS=N` has every such test run that many seeds instead of its usual number; `SCHED_SEED=S` has it run the
//! one seed `S`, which is how a failure is looked at: `SCHED_SEED=17 cargo test --test sched overcommit`. With
//! `SCHED_GO_ON=1` all seeds that fail are named, not only the first; with `SCHED_FROM=F` they begin at `F`.

use std::env;
use std::panic::{self, AssertUnwindSafe};

use variables::number;

#[path = "../../common/variables.rs"]
mod variables;

/// Runs seeds from 0 on, or as the environment says.
pub(crate) fn for_each_seed(usual: u64, run: impl FnMut(u64)) {
    for_each_seed_and(&[], usual, run);
}

/// The same, with some that found a defect once before them.
pub(crate) fn for_each_seed_and(found: &[u64], usual: u64, mut run: impl FnMut(u64)) {
    if let Some(seed) = number("SCHED_SEED") {
        return run(seed);
    }
    let from = number("SCHED_FROM").unwrap_or(0);
    let goes_on = env::var_os("SCHED_GO_ON").is_some();
    let mut failed = 0;
    let seeds = from..from + number("SCHED_SEEDS").unwrap_or(usual);
    for seed in found.iter().copied().chain(seeds) {
        let mut named = || {
            let _named = Named(seed);
            run(seed);
        };
        if !goes_on {
            named();
        } else if panic::catch_unwind(AssertUnwindSafe(named)).is_err() {
            failed += 1;
        }
    }
    assert_eq!(failed, 0, "so many seeds failed");
}

/// Names its seed if the run fails.
struct Named(u64);

impl Drop for Named {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("failed with seed {0}: SCHED_SEED={0} repeats it", self.0);
        }
    }
}
