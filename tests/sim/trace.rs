//! What happened, line by line: the last of it is printed when a run fails, and a hash of all of it tells two runs apart.

use std::collections::VecDeque;
use std::fmt::Write;
use std::time::Duration;

use crate::fnv::Fnv;

/// Lines kept for who looks at a failure; `SIM_TRACE` sets another number.
const LINES: usize = 200;

/// A run's history.
#[derive(Debug)]
pub(crate) struct Trace {
    hash: Fnv,
    kept: usize,
    lines: VecDeque<String>,
}

impl Trace {
    pub(crate) fn new() -> Self {
        let kept = std::env::var("SIM_TRACE").ok();
        let kept = kept.map(|text| text.parse().expect("SIM_TRACE is a number"));
        Self {
            hash: Fnv::new(),
            kept: kept.unwrap_or(LINES),
            lines: VecDeque::new(),
        }
    }

    /// Adds a line.
    pub(crate) fn note(&mut self, at: Duration, what: std::fmt::Arguments<'_>) {
        let mut line = if self.lines.len() >= self.kept {
            self.lines.pop_front().unwrap_or_default()
        } else {
            String::new()
        };
        line.clear();
        write!(line, "{:>10.3} {what}", at.as_secs_f64()).expect("a string takes everything");
        self.hash.write(line.as_bytes());
        self.lines.push_back(line);
    }

    /// Tells apart runs in which different things happened.
    pub(crate) fn hash(&self) -> u64 {
        self.hash.get()
    }

    /// Prints the last lines.
    pub(crate) fn print(&self) {
        for line in &self.lines {
            eprintln!("{line}");
        }
    }
}
