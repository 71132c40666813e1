//! Whether an instance is started again when its program has ended, and when: what its START says, and what has been done
//! of it. Plain data and arithmetic; who asks passes the time in, in milliseconds of the node's count.
//!
//! ```text
//! ended ── when? ──no──▶ NotWanted          the end is told
//!            │ ── max in window? ──no──▶ UsedUp
//!            └──────────────▶ After(pause)  first, twice that, … longest; first again after a run as long as the longest
//! ```

use std::collections::VecDeque;
use std::time::Duration;

use proto_frames::payload::scheduling::limits::MAX_RESTARTS;
use proto_frames::payload::{Backoff, RestartPolicy, RestartWhen, Span};
use serde::{Deserialize, Serialize};

/// When an instance is started again, as its START says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct RestartRule {
    /// Whether also after an exit status of 0.
    always: bool,
    /// How often; `None` = without limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    max: Option<u32>,
    /// The time in which there may be so many, in milliseconds; `None` = all count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    window_ms: Option<u64>,
    /// The first pause, in milliseconds.
    first_ms: u64,
    /// The longest, in milliseconds.
    longest_ms: u64,
}

/// The restarts of an instance on its node.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Restarts {
    /// How many there were.
    count: u32,
    /// How many in a row after runs that were no longer than the longest pause.
    row: u32,
    /// When those were that may still count, oldest first; at most as many as may be.
    #[serde(skip_serializing_if = "VecDeque::is_empty")]
    recent_ms: VecDeque<u64>,
    /// The exit code of the latest run that ended, -n where signal n ended it; `None` = not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    last_code: Option<i32>,
    /// When it is started again, while it waits for that.
    #[serde(skip_serializing_if = "Option::is_none")]
    next_ms: Option<u64>,
}

/// What is to be done after an end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AfterEnd {
    /// Its START wants no restart after such an end.
    NotWanted,
    /// It was started again as often as it may be.
    UsedUp,
    /// It is started again after this pause.
    After(Duration),
}

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunEnd {
    /// Its exit code; `None` = not known, or it could not be started.
    pub code: Option<i32>,
    /// How long it ran.
    pub ran: Duration,
    /// When it ended, in milliseconds of the node's count.
    pub at_ms: u64,
}

impl RestartRule {
    /// What a START says; `None` where it wants no restarts.
    #[must_use]
    pub fn of(policy: &RestartPolicy) -> Option<Self> {
        let always = match policy.when {
            RestartWhen::Always => true,
            RestartWhen::OnFailure => false,
            // The scheduler takes no other word; one of a newer scheduler is no reason to run anything.
            RestartWhen::Never | RestartWhen::Other(_) => return None,
        };
        let Backoff { first, longest } = policy.pauses();
        Some(Self {
            always,
            max: policy.max.map(|max| max.min(MAX_RESTARTS)),
            window_ms: policy.window.map(Span::ms),
            first_ms: first.ms().max(1),
            longest_ms: longest.ms().max(1),
        })
    }

    /// Whether it is to be started again after an end with this code.
    #[must_use]
    pub fn wants(&self, code: Option<i32>) -> bool {
        self.always || code != Some(0)
    }

    /// The pause before the restart with this number in a row, from 0.
    fn pause(&self, row: u32) -> Duration {
        let backoff = Backoff {
            first: Span::from_ms(self.first_ms),
            longest: Span::from_ms(self.longest_ms),
        };
        backoff.pause(row)
    }
}

impl Restarts {
    /// How many there were.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Whether there is nothing to tell of.
    pub(super) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The exit code of the latest run that ended.
    pub(super) fn last_code(&self) -> Option<i32> {
        self.last_code
    }

    /// When it is started again, in milliseconds of the node's count, while it waits for that.
    pub(super) fn next_ms(&self) -> Option<u64> {
        self.next_ms
    }

    /// Whether it would be started again after an end with this code at this moment of the node's count.
    #[must_use]
    pub fn would_follow(&self, rule: &RestartRule, code: Option<i32>, at_ms: u64) -> bool {
        rule.wants(code) && !self.are_used_up(rule, at_ms)
    }

    fn are_used_up(&self, rule: &RestartRule, at_ms: u64) -> bool {
        let from = rule
            .window_ms
            .map_or(0, |window| at_ms.saturating_sub(window));
        let counted = self.recent_ms.iter().filter(|at| **at >= from).count();
        rule.max.is_some_and(|max| counted >= max as usize)
    }

    /// Decides what is done after an end, and counts the restart that follows towards what is allowed.
    pub fn after(&mut self, rule: &RestartRule, end: RunEnd) -> AfterEnd {
        self.next_ms = None;
        if end.code.is_some() {
            self.last_code = end.code;
        }
        if !rule.wants(end.code) {
            return AfterEnd::NotWanted;
        }
        if rule.max.is_some() {
            if let Some(window) = rule.window_ms {
                let from = end.at_ms.saturating_sub(window);
                while self.recent_ms.front().is_some_and(|at| *at < from) {
                    self.recent_ms.pop_front();
                }
            }
            if self.are_used_up(rule, end.at_ms) {
                return AfterEnd::UsedUp;
            }
            self.recent_ms.push_back(end.at_ms);
        }
        if end.ran >= Duration::from_millis(rule.longest_ms) {
            self.row = 0;
        }
        let pause = rule.pause(self.row);
        self.row = self.row.saturating_add(1);
        let pause_ms = u64::try_from(pause.as_millis()).unwrap_or(u64::MAX);
        self.next_ms = Some(end.at_ms.saturating_add(pause_ms));
        AfterEnd::After(pause)
    }

    /// How long it waits yet. No longer than a pause may be: the node's count may have begun again, and the restart then
    /// lie ahead by all that was counted before.
    pub(super) fn pause_left(&mut self, rule: &RestartRule, now_ms: u64) -> Duration {
        let latest = now_ms.saturating_add(rule.longest_ms);
        let next = self.next_ms.map_or(now_ms, |next| next.min(latest));
        self.next_ms = Some(next);
        Duration::from_millis(next.saturating_sub(now_ms))
    }

    /// Puts the restart off that is due, because it cannot be done now; it is counted once all the same.
    pub(super) fn put_off(&mut self, rule: &RestartRule, now_ms: u64) -> Duration {
        let pause = rule.pause(self.row);
        let pause_ms = u64::try_from(pause.as_millis()).unwrap_or(u64::MAX);
        self.next_ms = Some(now_ms.saturating_add(pause_ms));
        pause
    }

    /// It is being started again.
    pub(super) fn begun(&mut self) {
        self.next_ms = None;
        self.count = self.count.saturating_add(1);
    }

    /// It was not started again, and is yet to be.
    pub(super) fn not_begun(&mut self) {
        self.count = self.count.saturating_sub(1);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::{
        Just, Strategy, any, prop_assert, prop_assert_eq, prop_oneof, proptest,
    };
    use proto_frames::payload::{RestartPolicy, RestartWhen, Span};

    use super::{AfterEnd, RestartRule, Restarts, RunEnd};

    fn policy(when: RestartWhen) -> RestartPolicy {
        RestartPolicy {
            when,
            ..RestartPolicy::default()
        }
    }

    fn end(code: i32, ran_s: u64, at_s: u64) -> RunEnd {
        RunEnd {
            code: Some(code),
            ran: Duration::from_secs(ran_s),
            at_ms: at_s * 1000,
        }
    }

    fn seconds(after: AfterEnd) -> Option<u64> {
        match after {
            AfterEnd::After(pause) => Some(pause.as_secs()),
            AfterEnd::NotWanted | AfterEnd::UsedUp => None,
        }
    }

    #[test]
    fn a_policy_says_after_which_ends() {
        let on_failure = RestartRule::of(&policy(RestartWhen::OnFailure)).unwrap();
        assert!(!on_failure.wants(Some(0)));
        for code in [Some(1), Some(-9), None] {
            assert!(on_failure.wants(code));
        }
        assert!(
            RestartRule::of(&policy(RestartWhen::Always))
                .unwrap()
                .wants(Some(0))
        );
        assert_eq!(RestartRule::of(&policy(RestartWhen::Never)), None);
        assert_eq!(RestartRule::of(&policy("unless-stopped".into())), None);
    }

    #[test]
    fn pauses_double_and_are_short_again_after_a_run_as_long_as_the_longest() {
        let rule = RestartRule::of(&policy(RestartWhen::OnFailure)).unwrap();
        let mut restarts = Restarts::default();
        let mut pauses = Vec::new();
        for at in 0..11 {
            pauses.extend(seconds(restarts.after(&rule, end(1, 1, at * 1000))));
            restarts.begun();
        }
        assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300]);
        assert_eq!(seconds(restarts.after(&rule, end(1, 300, 20_000))), Some(1));
        assert_eq!(restarts.count(), 11, "the latest is to come");
        assert_eq!(restarts.next_ms(), Some(20_001_000));
        assert_eq!(
            restarts.after(&rule, end(0, 1, 21_000)),
            AfterEnd::NotWanted
        );
        assert_eq!((restarts.next_ms(), restarts.last_code()), (None, Some(0)));
    }

    #[test]
    fn restarts_are_used_up_and_those_before_the_window_do_not_count() {
        let limited = |window: Option<Span>| {
            let policy = RestartPolicy {
                max: Some(2),
                window,
                ..policy(RestartWhen::Always)
            };
            RestartRule::of(&policy).unwrap()
        };
        let ends = |rule: RestartRule, at: &[u64]| -> Vec<bool> {
            let mut restarts = Restarts::default();
            let mut after = |at: &u64| restarts.after(&rule, end(0, 1, *at));
            at.iter().map(|at| after(at) != AfterEnd::UsedUp).collect()
        };
        assert_eq!(
            ends(limited(None), &[0, 9_999, 99_999]),
            [true, true, false]
        );
        let hour = limited(Some(Span::from_ms(3_600_000)));
        let at = [0, 10, 3600, 3601, 3611, 7300];
        assert_eq!(ends(hour, &at), [true, true, false, true, true, true]);
    }

    fn rules() -> impl Strategy<Value = RestartRule> {
        let max = prop_oneof![Just(None), (1..6_u32).prop_map(Some)];
        let window = prop_oneof![Just(None), (1..200_u64).prop_map(|s| Some(s * 1000))];
        (any::<bool>(), max, window, 1..20_u64, 0..200_u64).prop_map(
            |(always, max, window_ms, first, more)| RestartRule {
                always,
                max,
                window_ms: window_ms.filter(|_| max.is_some()),
                first_ms: first * 1000,
                longest_ms: (first + more) * 1000,
            },
        )
    }

    proptest! {
        /// Whatever happens when: no more restarts in a window than may be, pauses within bounds, and what is kept is
        /// bounded and the same after it was written and read.
        #[test]
        fn what_a_rule_promises_holds(
            rule in rules(),
            runs in proptest::collection::vec((0..3_i32, 0..400_u64), 1..60),
        ) {
            let mut restarts = Restarts::default();
            let (mut now_ms, mut given) = (0, Vec::new());
            for (code, ran_s) in runs {
                now_ms += ran_s * 1000;
                let text = serde_json::to_string(&restarts).unwrap();
                restarts = serde_json::from_str(&text).unwrap();
                let counted = |from: u64| given.iter().filter(|at| **at >= from).count();
                let from = rule.window_ms.map_or(0, |window| now_ms.saturating_sub(window));
                let is_used_up = rule.max.is_some_and(|max| counted(from) >= max as usize);
                match restarts.after(&rule, end(code, ran_s, now_ms / 1000)) {
                    AfterEnd::NotWanted => prop_assert!(code == 0 && !rule.always),
                    AfterEnd::UsedUp => {
                        prop_assert!(is_used_up);
                        break;
                    }
                    AfterEnd::After(pause) => {
                        prop_assert!(!is_used_up && rule.wants(Some(code)));
                        let ms = u64::try_from(pause.as_millis()).unwrap();
                        prop_assert!((rule.first_ms..=rule.longest_ms).contains(&ms));
                        given.push(now_ms);
                        now_ms += ms;
                        prop_assert_eq!(restarts.next_ms(), Some(now_ms));
                        restarts.begun();
                    }
                }
                prop_assert_eq!(restarts.count() as usize, given.len());
                prop_assert!(restarts.recent_ms.len() <= rule.max.unwrap_or(0) as usize);
            }
        }
    }
}
