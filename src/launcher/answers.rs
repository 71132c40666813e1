//! Whether the scheduler still answers reports. A network that is gone ends no connection, and a scheduler that is
//! stopped has its kernel acknowledge all that is sent to it; so what counts is what it sends itself.
//!
//! ```text
//! STATS 1 ─ answer ─ STATS 2 ─── STATS 3 ───| 20 s after STATS 2: dial again
//! ```
//!
//! A scheduler says in CONNECTED whether it answers each STATS ([`proto_frames::Connected::answers_reports`]); of others
//! nothing is expected.

use std::time::{Duration, Instant};

use crate::net::link::{Link, LinkClosed};

/// Reports without an answer, after which a connection is given up: one may be under way.
const MAX_UNANSWERED: u32 = 2;

/// How long the first of them must have been without an answer, however short the time between reports. With the usual
/// 6 s between reports a dead network is noticed within 27 s. Less than a lease, so that another way to the scheduler
/// may be found before that is over; far above what a scheduler takes that is at work.
const ANSWER_TIME: Duration = Duration::from_secs(20);

/// Time given once more when that is over: where this process itself did not run, the answers are read in it.
const LAST_CHANCE: Duration = Duration::from_secs(1);

/// What is unanswered on one connection.
#[derive(Debug, Default)]
pub struct Answers {
    /// Whether answers are to be expected.
    are_expected: bool,
    unanswered: u32,
    /// When the first of these was made.
    since: Option<Instant>,
    /// When the connection is given up, once the time was over and nothing had come.
    until: Option<Instant>,
}

impl Answers {
    /// Nothing was reported on this connection yet.
    #[must_use]
    pub fn on(link: &Link) -> Self {
        Self {
            are_expected: link.connected.answers_reports(),
            ..Self::default()
        }
    }

    /// A STATS was made; `heard` is when anything was last received.
    pub fn reported(&mut self, now: Instant, heard: Option<Instant>) {
        if self.are_expected {
            self.take_answers(heard);
            self.unanswered = self.unanswered.saturating_add(1);
            self.since.get_or_insert(now);
        }
    }

    /// Whatever came after the first unanswered report answers all of them: the scheduler was there.
    fn take_answers(&mut self, heard: Option<Instant>) {
        if self.since.is_some_and(|since| heard >= Some(since)) {
            *self = Self {
                are_expected: self.are_expected,
                ..Self::default()
            };
        }
    }

    /// When to call [`Answers::look`].
    #[must_use]
    pub fn due(&self) -> Option<Instant> {
        let is_enough = self.unanswered >= MAX_UNANSWERED;
        let over = self.since.filter(|_| is_enough).map(|it| it + ANSWER_TIME);
        self.until.or(over)
    }

    /// Looks whether the time is over; `heard` is when anything was last received. Why the connection is to be given up,
    /// if it is.
    pub fn look(&mut self, now: Instant, heard: Option<Instant>) -> Option<LinkClosed> {
        self.take_answers(heard);
        let (due, since) = (self.due()?, self.since?);
        if now < due {
            return None;
        }
        if self.until.is_none() {
            self.until = Some(now + LAST_CHANCE);
            return None;
        }
        let silent = humantime::format_duration(Duration::from_secs(
            now.saturating_duration_since(since).as_secs(),
        ));
        Some(LinkClosed::unclear(format!(
            "the scheduler has answered none of {} reports for {silent}; its process, its machine or the network may \
             have stopped",
            self.unanswered
        )))
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::{ANSWER_TIME, Answers, LAST_CHANCE};

    const INTERVAL: Duration = Duration::from_secs(6);

    /// A connection on which answers are expected; nothing was reported on it.
    fn expecting() -> Answers {
        Answers {
            are_expected: true,
            ..Answers::default()
        }
    }

    #[test]
    fn two_reports_without_an_answer_end_a_connection_and_one_does_not() {
        let began = Instant::now();
        let mut answers = expecting();
        answers.reported(began, None);
        assert_eq!(answers.due(), None);
        answers.reported(began + INTERVAL, None);
        let over = began + ANSWER_TIME;
        assert_eq!(answers.due(), Some(over));
        // Once more, for the answers may be there and not be read yet.
        assert!(answers.look(over, None).is_none());
        assert_eq!(answers.due(), Some(over + LAST_CHANCE));
        assert!(answers.look(over, None).is_none());
        let why = answers.look(over + LAST_CHANCE, None).unwrap().to_string();
        assert!(why.contains("none of 2 reports for 21s"), "{why}");
    }

    #[test]
    fn whatever_comes_counts_from_when_it_came() {
        let began = Instant::now();
        let mut answers = expecting();
        answers.reported(began, None);
        answers.reported(began + INTERVAL, None);
        let over = began + ANSWER_TIME;
        // What came before the first of them says nothing.
        let before = began.checked_sub(Duration::from_millis(1));
        assert!(answers.look(over, before).is_none());
        assert!(answers.due().is_some());
        assert!(answers.look(over + LAST_CHANCE, Some(began)).is_none());
        assert_eq!(answers.due(), None);
        // And from there it begins again.
        answers.reported(over + INTERVAL, Some(began));
        answers.reported(over + INTERVAL * 2, Some(began));
        assert_eq!(answers.due(), Some(over + INTERVAL + ANSWER_TIME));
    }

    #[test]
    fn the_time_counts_from_the_first_report_after_what_came_last() {
        let began = Instant::now();
        let mut answers = expecting();
        let mut heard = None;
        let mut at = began;
        for _ in 0..10 {
            answers.reported(at, heard);
            heard = Some(at + Duration::from_millis(1));
            at += INTERVAL;
        }
        // The latest was answered, and nothing after it.
        answers.reported(at, heard);
        answers.reported(at + INTERVAL, heard);
        assert_eq!(answers.due(), Some(at + ANSWER_TIME));
    }

    #[test]
    fn of_a_scheduler_that_does_not_answer_reports_nothing_is_expected() {
        let mut answers = Answers::default();
        let now = Instant::now();
        for number in 0..5 {
            answers.reported(now + INTERVAL * number, None);
        }
        assert_eq!(answers.due(), None);
        assert!(
            answers
                .look(now + Duration::from_secs(3600), None)
                .is_none()
        );
    }
}
