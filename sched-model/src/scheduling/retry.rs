//! When an instance that has ended is placed again by the scheduler: `retry` of `start.scheduling`.
//!
//! ```yaml
//! scheduling:
//!   retry: {on: [75, 100-120, signal, node_failure], max: 3}
//! ```
//!
//! What its launcher does alone comes before that: an instance is retried once its restarts are used up.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use crate::error::Fault;
use crate::record;
use crate::value::Text;

/// Most entries of `on`: each is compared with the end of each run.
pub const MAX_RETRY_ON: usize = 32;

/// How often an instance is retried whose START does not say it.
pub const DEFAULT_RETRIES: u32 = 3;

/// Most retries that `max` allows: what has failed a hundred times is not mended by one more.
pub const MAX_RETRIES: u32 = 100;

/// The word for an end by a signal.
const SIGNAL: &str = "signal";

/// The word for an end with its node.
const NODE_FAILURE: &str = "node_failure";

record! {
    /// After which ends an instance is placed again, and how often.
    pub struct RetryPolicy {
        /// The ends, at least one and at most [`MAX_RETRY_ON`].
        on: Vec<RetryOn> as "on",
        /// How often, 1 to [`MAX_RETRIES`]; none = [`DEFAULT_RETRIES`].
        max: Option<u32> as "max" unless empty,
    }
}

/// One kind of end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RetryOn {
    /// By itself, with an exit status from the first to the last, both 1 to 255.
    Exit(u8, u8),
    /// By a signal that was not sent for a command or a time limit.
    Signal,
    /// Its node was lost, or cut off for longer than its lease.
    NodeFailure,
}

/// The text is no kind of end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("expected {}", RetryOn::EXPECTED)]
pub struct NotARetry;

impl RetryPolicy {
    /// How often it is placed again.
    #[must_use]
    pub fn most(&self) -> u32 {
        self.max.unwrap_or(DEFAULT_RETRIES)
    }

    /// Whether it is retried after it has ended by itself so: an exit status, or minus the signal.
    #[must_use]
    pub fn covers_exit(&self, code: i64) -> bool {
        self.on.iter().any(|on| match *on {
            RetryOn::Exit(first, last) => (i64::from(first)..=i64::from(last)).contains(&code),
            RetryOn::Signal => code < 0,
            RetryOn::NodeFailure => false,
        })
    }

    /// Whether it is retried when its node is lost.
    #[must_use]
    pub fn covers_node_failure(&self) -> bool {
        self.on.contains(&RetryOn::NodeFailure)
    }
}

impl FromStr for RetryOn {
    type Err = NotARetry;

    fn from_str(text: &str) -> Result<Self, NotARetry> {
        match text {
            SIGNAL => return Ok(Self::Signal),
            NODE_FAILURE => return Ok(Self::NodeFailure),
            _ => {}
        }
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let status = |text: &str| {
            let is_plain = text.bytes().all(|byte| byte.is_ascii_digit());
            let status = text.parse::<u8>().ok().filter(|_| is_plain);
            status.filter(|status| *status > 0).ok_or(NotARetry)
        };
        let (first, last) = (status(first)?, status(last)?);
        match first <= last {
            true => Ok(Self::Exit(first, last)),
            false => Err(NotARetry),
        }
    }
}

impl fmt::Display for RetryOn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exit(first, last) if first == last => first.fmt(f),
            Self::Exit(first, last) => write!(f, "{first}-{last}"),
            Self::Signal => f.write_str(SIGNAL),
            Self::NodeFailure => f.write_str(NODE_FAILURE),
        }
    }
}

impl Text for RetryOn {
    const EXPECTED: &'static str =
        "an exit status from 1 to 255, a range of these such as 100-120, signal or node_failure";

    fn parse(text: &str) -> Result<Self, Fault> {
        text.parse()
            .map_err(|NotARetry| Fault::wrong_text(Self::EXPECTED, text))
    }

    fn text(&self) -> Cow<'_, str> {
        Cow::Owned(self.to_string())
    }

    fn is_null(&self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::{RetryOn, RetryPolicy};

    #[test]
    fn ends_are_written_as_they_are_read() {
        for text in ["75", "1", "255", "100-120", "signal", "node_failure"] {
            assert_eq!(text.parse::<RetryOn>().unwrap().to_string(), text);
        }
        for text in [
            "", "0", "256", "0-3", "3-1", "+3", "-3", "3-", "1-2-3", "Signal", "oom", " 3",
        ] {
            assert!(text.parse::<RetryOn>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_policy_covers_the_ends_that_it_names() {
        let policy = |words: &[&str]| RetryPolicy {
            on: words.iter().map(|word| word.parse().unwrap()).collect(),
            max: None,
        };
        let statuses = policy(&["75", "100-120"]);
        for (code, is_covered) in [
            (75, true),
            (100, true),
            (120, true),
            (0, false),
            (121, false),
        ] {
            assert_eq!(statuses.covers_exit(code), is_covered, "{code}");
        }
        assert!(!statuses.covers_exit(-9) && !statuses.covers_node_failure());
        let signal = policy(&["signal", "node_failure"]);
        assert!(signal.covers_exit(-9) && signal.covers_node_failure() && !signal.covers_exit(137));
        assert_eq!(signal.most(), 3);
    }
}
