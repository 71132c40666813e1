//! What an instance used over a window of time: what measured accounting counts it as, instead of its latest sample.
//!
//! The window is cut into slots, of which each keeps the most that was seen in it. So however often a launcher reports,
//! an instance costs the same memory, and what it counts as follows from the times of the reports alone.

use std::collections::VecDeque;
use std::time::Duration;

use crate::api::resources::MAX_ADOPTED;

/// Slots of a window: the 95th percentile is the second largest of so many.
const SLOTS: u32 = 20;

/// All of one CPU, in percent.
const ONE_CPU: i64 = 100;

/// How long is looked back, and which part of what is found counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Window {
    /// How long; zero = only the latest sample counts.
    pub(crate) length: Duration,
    /// Which percentile of the slots' peaks counts, from 1; 100 = the peak.
    pub(crate) percentile: u8,
}

/// What one instance used, one peak for each slot of the window, the oldest first.
#[derive(Debug, Clone, Default)]
pub(crate) struct Usage {
    slots: VecDeque<Slot>,
    /// What it counts as since the latest report, kept because it is read much more often than it changes.
    pub(super) counted: Sample,
}

/// What an instance used at one moment, or what it counts as.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Sample {
    /// Memory, in MiB.
    pub(crate) mem_mib: i64,
    /// Processor time, in percent of one CPU.
    pub(crate) cpu_percent: i64,
}

/// The peak of one slot.
#[derive(Debug, Clone, Copy)]
struct Slot {
    /// Which slot: the age of the instance's entry, in lengths of a slot. Slots without a report do not exist.
    number: u128,
    peak: Sample,
}

impl Usage {
    /// Takes in a sample, drops slots that the window has left behind, and works out what the instance counts as. `age`
    /// is the time since the instance's entry was made; it must not decrease. With a window of length zero only this
    /// sample counts.
    pub(super) fn note(&mut self, age: Duration, sample: Sample, window: Window) {
        let length = (window.length / SLOTS).as_nanos();
        let number = age.as_nanos().checked_div(length).unwrap_or(0);
        if length == 0 {
            self.slots.clear();
        }
        let is_old = |slot: &Slot| slot.number + u128::from(SLOTS) <= number;
        while self.slots.front().is_some_and(is_old) {
            self.slots.pop_front();
        }
        match self.slots.back_mut() {
            Some(last) if last.number == number => last.peak = last.peak.larger(sample),
            _ => self.slots.push_back(Slot {
                number,
                peak: sample,
            }),
        }
        let of = |figure: fn(&Sample) -> i64| {
            let figures = self.slots.iter().map(|slot| figure(&slot.peak));
            percentile(figures.collect(), window.percentile)
        };
        self.counted = Sample {
            mem_mib: of(|sample| sample.mem_mib),
            cpu_percent: of(|sample| sample.cpu_percent),
        };
    }
}

impl Sample {
    /// Virtual CPUs that its processor time takes: whole ones, rounded up; at least one for an instance that asked for
    /// any.
    pub(super) fn vcpus(self, asked: i64) -> i64 {
        let used = self.cpu_percent.saturating_add(ONE_CPU - 1) / ONE_CPU;
        used.max(asked.min(1)).min(MAX_ADOPTED)
    }

    /// The larger of both figures, each on its own.
    fn larger(self, other: Self) -> Self {
        Self {
            mem_mib: self.mem_mib.max(other.mem_mib),
            cpu_percent: self.cpu_percent.max(other.cpu_percent),
        }
    }
}

/// The smallest of these figures that at least `percent` percent of them do not exceed; 0 for no figures.
fn percentile(mut figures: Vec<i64>, percent: u8) -> i64 {
    figures.sort_unstable();
    let rank = (figures.len() * usize::from(percent)).div_ceil(100);
    let at = rank.clamp(1, figures.len().max(1)) - 1;
    figures.get(at).copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Sample, Usage, Window, percentile};

    const WINDOW: Window = Window {
        length: Duration::from_secs(100),
        percentile: 100,
    };

    fn noted(window: Window, samples: &[(u64, i64)]) -> i64 {
        let mut usage = Usage::default();
        for &(at, mem_mib) in samples {
            let sample = Sample {
                mem_mib,
                cpu_percent: 0,
            };
            usage.note(Duration::from_secs(at), sample, window);
            assert!(usage.slots.len() <= super::SLOTS as usize);
        }
        usage.counted.mem_mib
    }

    #[test]
    fn the_peak_counts_until_it_is_older_than_the_window() {
        assert_eq!(noted(WINDOW, &[(0, 10), (5, 90), (50, 20)]), 90);
        assert_eq!(noted(WINDOW, &[(5, 90), (50, 20), (104, 10)]), 90);
        assert_eq!(noted(WINDOW, &[(5, 90), (50, 20), (105, 10)]), 20);
        let each_second: Vec<_> = (0..1000).map(|at| (at, 1000 - at as i64)).collect();
        assert_eq!(noted(WINDOW, &each_second), 100);
    }

    #[test]
    fn a_percentile_leaves_out_the_highest_slots() {
        let mut samples: Vec<_> = (0..20).map(|slot| (slot * 5, 10)).collect();
        samples[7].1 = 500;
        assert_eq!(noted(WINDOW, &samples), 500);
        let window = Window {
            percentile: 95,
            ..WINDOW
        };
        assert_eq!(noted(window, &samples), 10);
        assert_eq!(percentile(vec![3, 1, 2], 1), 1);
        assert_eq!(percentile(vec![3, 1, 2], 34), 2);
        assert_eq!(percentile(Vec::new(), 50), 0);
    }

    #[test]
    fn without_a_window_the_latest_sample_counts() {
        let window = Window {
            length: Duration::ZERO,
            ..WINDOW
        };
        assert_eq!(noted(window, &[(0, 90), (0, 10)]), 10);
    }

    #[test]
    fn processor_time_takes_whole_vcpus_and_one_at_least() {
        for (cpu_percent, asked, vcpus) in [
            (0, 4, 1),
            (100, 4, 1),
            (101, 4, 2),
            (350, 2, 4),
            (0, 0, 0),
            (20, 0, 1),
        ] {
            let sample = Sample {
                mem_mib: 0,
                cpu_percent,
            };
            assert_eq!(sample.vcpus(asked), vcpus, "{cpu_percent} {asked}");
        }
    }
}
