//! Runs with seeds: the same seed gives the same run, and one that fails is named.
//!
//! `SCHED_SEEDS=N` has every such test run that many seeds instead of its usual number; `SCHED_SEED=S` has it run the
//! one seed `S`, which is how a failure is looked at: `SCHED_SEED=17 cargo test --test sched overcommit`.

use std::env::{self, VarError};

/// Runs seeds from 0 on, or as the environment says.
pub(crate) fn for_each_seed(usual: u64, mut run: impl FnMut(u64)) {
    if let Some(seed) = number("SCHED_SEED") {
        return run(seed);
    }
    for seed in 0..number("SCHED_SEEDS").unwrap_or(usual) {
        let _named = Named(seed);
        run(seed);
    }
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
        if std::thread::panicking() {
            eprintln!("failed with seed {0}: SCHED_SEED={0} repeats it", self.0);
        }
    }
}
