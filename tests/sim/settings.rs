//! A run's cluster, drawn from its seed: times, how sure its parts are, and whether the scheduler has a state directory.

use std::time::Duration;

use fastrand::Rng;

use crate::features::{Feature, features};

/// What is the same for a whole run.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    /// Vcpus per cpu, for the scheduler and for all launchers.
    pub(crate) cpu_ratio: f64,
    pub(crate) in_doubt_time: Duration,
    pub(crate) recovery_window: Duration,
    pub(crate) report_interval: Duration,
    pub(crate) stop_grace: Duration,
    /// Whether the scheduler has a state directory.
    pub(crate) is_durable: bool,
    /// Whether lower priorities are preempted.
    pub(crate) preemption: bool,
    /// Whether every instance may be moved.
    pub(crate) relocation: bool,
    /// How long launchers that take leases let leased instances run unheard.
    pub(crate) lease: Duration,
    /// Longest time that a frame is on its way.
    pub(crate) latency: Duration,
    /// Frames that may be on their way in one direction; more wait in the sender's queue.
    pub(crate) window: usize,
    /// Frames in a launcher's queue beyond which it counts as long.
    pub(crate) high_water: usize,
    /// What trouble consists of, beside what it always does.
    features: Vec<Feature>,
}

impl Settings {
    /// Draws those of a run, which has more trouble than others.
    pub(crate) fn draw(chance: &mut Rng, more: &[Feature]) -> Self {
        let mut settings = Self::draw_usual(chance);
        settings.features.extend_from_slice(more);
        settings.is_durable |= settings.has(Feature::Schedulers);
        settings.preemption |= settings.has(Feature::Members);
        settings
    }

    fn draw_usual(chance: &mut Rng) -> Self {
        let ms = |choices: &[u64], chance: &mut Rng| {
            Duration::from_millis(choices[chance.usize(..choices.len())])
        };
        let report_interval = ms(&[1_000, 3_000, 6_000], chance);
        Self {
            cpu_ratio: [1.0, 2.0, 1.5][chance.usize(..3)],
            in_doubt_time: ms(&[2_000, 5_000, 15_000], chance),
            recovery_window: ms(&[3_000, 10_000], chance),
            report_interval,
            stop_grace: ms(&[300, 2_000, 10_000], chance),
            is_durable: chance.bool(),
            preemption: chance.bool(),
            relocation: chance.u8(..3) == 0,
            lease: report_interval * chance.u32(2..5),
            latency: ms(&[2, 20, 300], chance),
            window: [2, 8, 64][chance.usize(..3)],
            high_water: [2, 4, 20][chance.usize(..3)],
            features: features(),
        }
    }

    /// Whether this is part of the trouble.
    pub(crate) fn has(&self, feature: Feature) -> bool {
        self.features.contains(&feature)
    }

    /// Long enough for everything that waits for something to have waited enough: lost nodes given up, batches failed,
    /// instances missed in several STATS, what ignores its end killed, and everybody back from wherever they were.
    pub(crate) fn time_to_settle(&self) -> Duration {
        const OF_BATCHES: Duration = sched_core::BATCH_TIME;
        const OF_RETURNS: Duration = Duration::from_secs(30);
        const OF_FAIL_OVER: Duration = Duration::from_secs(60);
        let of_fail_over = match self.has(Feature::Schedulers) {
            true => OF_FAIL_OVER,
            false => Duration::ZERO,
        };
        let missed = self.report_interval * (2 + u32::from(sched_core::MISSED_STATS));
        self.in_doubt_time
            + self.recovery_window
            + self.stop_grace
            + missed
            + OF_BATCHES
            + OF_RETURNS
            + of_fail_over
    }
}
