//! What the START of an instance says about it while it runs, how much of it is used up, and the count by which that is
//! told: `time_limit`, `stop` and `restart` of `scheduling`.
//!
//! The time limit counts from when the instance is first started, over all its restarts, the pauses between them
//! included, and over earlier nodes; the time in which it is suspended does not count. Whether it is over is for the
//! supervisor to see, whose clock is the machine's and who lives on where the launcher does not; here it is counted for
//! reports, for the next run, and for the pauses, in which there is no supervisor.

use std::time::{Duration, Instant};

use proto_frames::payload::{Scheduling, Span, Start, StopSignal};
use rustix::process::Signal;
use serde::{Deserialize, Serialize};

use super::ends::Ran;
use super::restarts::{RestartRule, Restarts};

/// The terms of an instance, as they are kept with it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RunTerms {
    /// How long it may be there, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) time_limit_ms: Option<u64>,
    /// How long after it is asked to end it is killed, in milliseconds; `None` = as the launcher is configured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) grace_ms: Option<u64>,
    /// When it is started again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) restart: Option<RestartRule>,
    /// How often it was.
    #[serde(skip_serializing_if = "Restarts::is_empty")]
    pub(super) restarts: Restarts,
    /// How long it has been there.
    #[serde(skip_serializing_if = "TimeUsed::is_empty")]
    pub(super) used: TimeUsed,
    /// What earlier runs here have used.
    #[serde(skip_serializing_if = "Ran::is_empty")]
    pub(super) earlier: Ran,
    /// Whether it ends because its time limit is reached.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(super) is_over_time: bool,
}

/// How long an instance has been there, by the node's count in milliseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TimeUsed {
    /// Before the present run, pauses included.
    before_ms: u64,
    /// By `since_ms`, or altogether while nothing is counted.
    used_ms: u64,
    /// When it was first started here.
    #[serde(skip_serializing_if = "Option::is_none")]
    began_ms: Option<u64>,
    /// Since when it is counted again; `None` while it is not: it has not begun, or is suspended.
    #[serde(skip_serializing_if = "Option::is_none")]
    since_ms: Option<u64>,
}

/// How an instance is asked to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StopTerms {
    /// What its processes are sent.
    pub signal: Signal,
    /// How long after that they are killed.
    pub grace: Duration,
}

/// The node's count and the agent's clock at the same moment: to keep times of the one as times of the other, which goes
/// on over restarts of the launcher.
#[derive(Debug, Clone, Copy)]
pub struct NodeClock {
    /// The moment.
    pub at: Instant,
    /// The count then, in milliseconds.
    pub ms: u64,
}

impl NodeClock {
    /// The count at a moment; 0 before it began.
    pub(super) fn ms_at(&self, now: Instant) -> u64 {
        match now.checked_duration_since(self.at) {
            Some(later) => self.ms.saturating_add(ms(later)),
            None => self.ms.saturating_sub(ms(self.at - now)),
        }
    }
}

impl TimeUsed {
    fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// How long it has been there, in milliseconds.
    pub(super) fn at(&self, now_ms: u64) -> u64 {
        let since = self
            .since_ms
            .map_or(0, |since| now_ms.saturating_sub(since));
        self.used_ms.saturating_add(since)
    }

    /// It is there from now on, or again, or goes on.
    pub(super) fn go_on(&mut self, now_ms: u64) {
        self.since_ms.get_or_insert(now_ms);
    }

    /// It is suspended, or has ended.
    pub(super) fn pause(&mut self, now_ms: u64) {
        self.used_ms = self.at(now_ms);
        self.since_ms = None;
    }

    /// A run begins: what was counted until now was before it.
    pub(super) fn begin_run(&mut self, now_ms: u64) {
        self.used_ms = self.at(now_ms);
        self.before_ms = self.used_ms;
        self.since_ms = Some(now_ms);
        self.began_ms.get_or_insert(now_ms);
    }

    /// How long ago it was first started here.
    pub(super) fn since_begin(&self, now_ms: u64) -> Option<u64> {
        self.began_ms.map(|began| now_ms.saturating_sub(began))
    }

    /// The run took so long, by the supervisor's count, which is better than this one.
    pub(super) fn correct_run(&mut self, now_ms: u64, run_ms: u64) {
        self.used_ms = self.before_ms.saturating_add(run_ms);
        self.since_ms = Some(now_ms);
    }

    /// How long the present run has taken.
    pub(super) fn run_ms(&self, now_ms: u64) -> u64 {
        self.at(now_ms).saturating_sub(self.before_ms)
    }
}

impl RunTerms {
    /// Those of a START, of which earlier nodes may have used up some.
    pub(super) fn of(start: &Start) -> Self {
        let Some(scheduling) = &start.scheduling else {
            return Self::default();
        };
        let used_ms = start.time_used.map_or(0, Span::ms);
        Self {
            time_limit_ms: scheduling.time_limit.map(Span::ms),
            grace_ms: scheduling
                .stop
                .as_ref()
                .and_then(|stop| stop.grace)
                .map(Span::ms),
            restart: scheduling.restart_policy().and_then(RestartRule::of),
            restarts: Restarts::default(),
            used: TimeUsed {
                before_ms: used_ms,
                used_ms,
                ..TimeUsed::default()
            },
            earlier: Ran::default(),
            is_over_time: false,
        }
    }

    /// Whether they say nothing that an instance of the original has not.
    pub(super) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Whether its START says anything that is counted: else its time does not matter.
    pub(super) fn are_counted(&self) -> bool {
        self.time_limit_ms.is_some() || self.restart.is_some()
    }

    /// How much of the time limit is left; `None` where there is none.
    pub(super) fn time_left(&self, now_ms: u64) -> Option<Duration> {
        let limit = self.time_limit_ms?;
        let left = limit.saturating_sub(self.used.at(now_ms));
        Some(Duration::from_millis(left))
    }
}

/// The signal that a START asks for.
pub(super) fn stop_signal(scheduling: Option<&Scheduling>) -> Signal {
    let stop = scheduling.and_then(|it| it.stop.as_ref());
    match stop.map(|stop| &stop.signal) {
        Some(StopSignal::Int) => Signal::INT,
        Some(StopSignal::Hup) => Signal::HUP,
        Some(StopSignal::Quit) => Signal::QUIT,
        Some(StopSignal::Usr1) => Signal::USR1,
        Some(StopSignal::Usr2) => Signal::USR2,
        Some(StopSignal::Winch) => Signal::WINCH,
        // A word that this launcher does not know was the scheduler's to refuse.
        Some(StopSignal::Term | StopSignal::Other(_)) | None => Signal::TERM,
    }
}

/// A time in whole milliseconds.
pub(super) fn ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use proptest::prelude::{prop_assert_eq, proptest};

    use super::{NodeClock, RunTerms, TimeUsed};

    #[test]
    fn a_moment_is_the_same_by_both_clocks() {
        let at = Instant::now();
        let clock = NodeClock { at, ms: 5000 };
        for later in [0, 1, 10_000] {
            let moment = at + Duration::from_millis(later);
            assert_eq!(clock.ms_at(moment), 5000 + later);
        }
        assert_eq!(clock.ms_at(at - Duration::from_secs(1)), 4000);
    }

    #[derive(Debug, Clone, Copy)]
    enum Step {
        Begin,
        Suspend,
        Resume,
    }

    proptest! {
        /// What is counted is the time from the first start on but for the times of suspension, over any number of runs
        /// and of launchers, and what is left never grows.
        #[test]
        fn all_time_but_suspended_counts(
            steps in proptest::collection::vec((0..3_u8, 0..1000_u64), 0..40),
            earlier in 0..5000_u64,
        ) {
            let mut used = TimeUsed { before_ms: earlier, used_ms: earlier, ..TimeUsed::default() };
            let (mut now, mut expected, mut counts);
            (now, expected) = (7_u64, earlier);
            let mut terms = RunTerms { time_limit_ms: Some(8000), ..RunTerms::default() };
            for (step, time) in steps {
                let step = [Step::Begin, Step::Suspend, Step::Resume][usize::from(step)];
                match step {
                    Step::Begin => used.begin_run(now),
                    Step::Suspend => used.pause(now),
                    Step::Resume => used.go_on(now),
                }
                counts = !matches!(step, Step::Suspend);
                terms.used = used;
                let before = terms.time_left(now);
                now += time;
                expected += if counts { time } else { 0 };
                prop_assert_eq!(used.at(now), expected);
                prop_assert_eq!(terms.time_left(now).unwrap().as_millis(), u128::from(8000_u64.saturating_sub(expected)));
                assert!(terms.time_left(now) <= before);
                let text = serde_json::to_string(&terms).unwrap();
                prop_assert_eq!(serde_json::from_str::<RunTerms>(&text).unwrap(), terms.clone());
            }
        }
    }
}
