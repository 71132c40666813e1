//! What the launcher of an instance does about it by itself, also while it is cut off from the scheduler: `time_limit`,
//! `stop` and `restart` of `start.scheduling`.
//!
//! ```yaml
//! scheduling:
//!   time_limit: 10m
//!   stop: {signal: INT, grace: 30s}
//!   restart: {when: on-failure, max: 5, backoff: 1s..5m, window: 1h}
//! ```

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::error::Fault;
use crate::span::Span;
use crate::value::Text;
use crate::{record, words};

/// Shortest time limit: below it a program has hardly begun.
pub const MIN_TIME_LIMIT: Span = Span::from_ms(1000);

/// Longest time limit: a year. What runs longer has no limit.
pub const MAX_TIME_LIMIT: Span = Span::from_ms(365 * 24 * 3_600_000);

/// Longest time between the signal and the kill: what needs more is not ending. A START that waits for its room waits as
/// long.
pub const MAX_GRACE: Span = Span::from_ms(3_600_000);

/// Most restarts that `max` allows: what has ended a hundred times is not mended by one more, and each that `window`
/// counts is remembered. Without `max` there is no limit.
pub const MAX_RESTARTS: u32 = 100;

/// Longest time over which `window` counts restarts.
pub const MAX_RESTART_WINDOW: Span = Span::from_ms(30 * 24 * 3_600_000);

/// Shortest pause before a restart: a program that ends at once is not to keep a node busy.
pub const MIN_BACKOFF: Span = Span::from_ms(100);

/// Longest pause before a restart.
pub const MAX_BACKOFF: Span = Span::from_ms(24 * 3_600_000);

record! {
    /// How an instance is asked to end, and how long it has for it.
    pub struct Stop {
        /// What its processes are sent first; empty for [`StopSignal::Term`]; a known word in a START that was decoded.
        signal: StopSignal as "signal" unless empty,
        /// How long after that they are killed, at most [`MAX_GRACE`]; none = as the launcher is configured.
        grace: Option<Span> as "grace" unless empty,
    }
}

words! {
    /// The signals that an instance can be asked to end with.
    pub enum StopSignal {
        /// SIGTERM.
        Term = "TERM",
        /// SIGINT.
        Int = "INT",
        /// SIGHUP.
        Hup = "HUP",
        /// SIGQUIT.
        Quit = "QUIT",
        /// SIGUSR1.
        Usr1 = "USR1",
        /// SIGUSR2.
        Usr2 = "USR2",
        /// SIGWINCH.
        Winch = "WINCH",
    }
}

record! {
    /// Whether and how an instance is started again on its node when its program has ended.
    pub struct RestartPolicy {
        /// After which ends; a known word in a START that was decoded.
        when: RestartWhen as "when" unless empty,
        /// How often, 1 to [`MAX_RESTARTS`]; none = without limit.
        max: Option<u32> as "max" unless empty,
        /// The pause before a restart; none = [`Backoff::USUAL`].
        backoff: Option<Backoff> as "backoff" unless empty,
        /// The time in which there may be `max` restarts, at most [`MAX_RESTART_WINDOW`]; none = all count.
        window: Option<Span> as "window" unless empty,
    }
}

words! {
    /// After which ends an instance is started again.
    pub enum RestartWhen {
        /// Where its exit status is not 0, or a signal ended it, or it could not be started again.
        OnFailure = "on-failure",
        /// After each.
        Always = "always",
        /// After none.
        Never = "never",
    }
}

/// The pause before a restart: the first, which doubles with each that follows, and the longest.
///
/// Written `1s..5m`, or `10s` for one that stays the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backoff {
    /// The first.
    pub first: Span,
    /// The longest, not shorter than the first.
    pub longest: Span,
}

/// The text is no pause.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("expected one length of time, or the shortest and the longest such as 1s..5m")]
pub struct NotABackoff;

impl Backoff {
    /// The pause of a policy that does not say it.
    pub const USUAL: Self = Self {
        first: Span::from_ms(1000),
        longest: Span::from_ms(300_000),
    };

    /// The pause before the restart with this number, counted from 0.
    #[must_use]
    pub fn pause(self, number: u32) -> Duration {
        let doubled = 1_u64.checked_shl(number).unwrap_or(u64::MAX);
        let ms = self.first.ms().saturating_mul(doubled);
        Duration::from_millis(ms.min(self.longest.ms()))
    }
}

impl Default for Backoff {
    fn default() -> Self {
        Self::USUAL
    }
}

impl FromStr for Backoff {
    type Err = NotABackoff;

    fn from_str(text: &str) -> Result<Self, NotABackoff> {
        let (first, longest) = text.split_once("..").unwrap_or((text, text));
        let span = |text: &str| text.parse().map_err(|_| NotABackoff);
        let (first, longest) = (span(first)?, span(longest)?);
        match first <= longest {
            true => Ok(Self { first, longest }),
            false => Err(NotABackoff),
        }
    }
}

impl fmt::Display for Backoff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.first == self.longest {
            true => self.first.fmt(f),
            false => write!(f, "{}..{}", self.first, self.longest),
        }
    }
}

impl Text for Backoff {
    const EXPECTED: &'static str =
        "one length of time, or the shortest and the longest such as 1s..5m";

    fn parse(text: &str) -> Result<Self, Fault> {
        text.parse()
            .map_err(|NotABackoff| Fault::wrong_text(Self::EXPECTED, text))
    }

    fn null() -> Result<Self, Fault> {
        Ok(Self::default())
    }

    fn text(&self) -> Cow<'_, str> {
        Cow::Owned(self.to_string())
    }

    fn is_null(&self) -> bool {
        false
    }
}

impl RestartPolicy {
    /// The pause before a restart.
    #[must_use]
    pub fn pauses(&self) -> Backoff {
        self.backoff.unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::Backoff;

    #[test]
    fn a_pause_is_one_time_or_two_and_is_written_as_it_is_read() {
        for text in ["1s..5m", "10s", "250ms..1h"] {
            assert_eq!(text.parse::<Backoff>().unwrap().to_string(), text);
        }
        for text in ["", "5m..1s", "1s..", "..1s", "1s..2s..3s", "1", "1s...5m"] {
            assert!(text.parse::<Backoff>().is_err(), "{text}");
        }
    }

    #[test]
    fn the_pause_doubles_until_it_is_the_longest_however_often() {
        let pauses: Vec<u64> = (0..6)
            .map(|number| "1s..10s".parse::<Backoff>().unwrap().pause(number))
            .map(|pause| pause.as_secs())
            .collect();
        assert_eq!(pauses, [1, 2, 4, 8, 10, 10]);
        assert_eq!(Backoff::USUAL.pause(u32::MAX).as_secs(), 300);
    }
}
