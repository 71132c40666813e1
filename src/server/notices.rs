//! What the core wants people to know, in the log: no more lines a second than anybody could read, because they are
//! written while everybody else waits.

use std::fmt::Display;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tracing::{Level, debug, info, warn};

use crate::sched::Notice;

/// Lines a second; what is beyond is counted, and the count is said with the next line.
const MAX_LINES_PER_SECOND: u32 = 100;

/// Bytes of one line, about: identifiers and texts that peers choose are in it.
const MAX_LINE_LEN: usize = 1024;

/// The log of notices.
#[derive(Debug, Default)]
pub(super) struct Notices {
    throttle: Mutex<Throttle>,
}

/// Lets a number of lines through in each second.
#[derive(Debug, Default)]
struct Throttle {
    second: Option<Instant>,
    lines: u32,
    left_out: u64,
}

impl Notices {
    /// Logs a notice, or counts it.
    pub(super) fn log(&self, notice: &Notice, now: Instant) {
        if notice.is_per_start() {
            debug!("{}", printable(notice));
        } else if notice.is_warning() {
            self.say(Level::WARN, notice, now);
        } else {
            self.say(Level::INFO, notice, now);
        }
    }

    /// Logs a line as a warning or a piece of news, or counts it.
    pub(super) fn say(&self, level: Level, line: impl Display, now: Instant) {
        let Some(left_out) = self.throttle.lock().admit(now) else {
            return;
        };
        if left_out > 0 {
            warn!(
                "{left_out} lines about peers and STARTs left out: more than {MAX_LINES_PER_SECOND} in a second"
            );
        }
        if level == Level::WARN {
            warn!("{}", printable(line));
        } else {
            info!("{}", printable(line));
        }
    }
}

/// A line that may repeat what a peer sent: control characters escaped, and not longer than [`MAX_LINE_LEN`] or so.
pub(super) fn printable(line: impl Display) -> String {
    let line = line.to_string();
    let is_plain = line.len() <= MAX_LINE_LEN && !line.contains(char::is_control);
    if is_plain {
        return line;
    }
    let mut printable = String::with_capacity(MAX_LINE_LEN);
    for char in line.chars() {
        if printable.len() >= MAX_LINE_LEN {
            printable.push('…');
            break;
        }
        if char.is_control() {
            printable.extend(char.escape_default());
        } else {
            printable.push(char);
        }
    }
    printable
}

impl Throttle {
    /// Whether a line may be written now, and how many were left out before it.
    fn admit(&mut self, now: Instant) -> Option<u64> {
        let is_new = self
            .second
            .is_none_or(|second| now.saturating_duration_since(second) >= Duration::from_secs(1));
        if is_new {
            self.second = Some(now);
            self.lines = 0;
        }
        if self.lines >= MAX_LINES_PER_SECOND {
            self.left_out += 1;
            return None;
        }
        self.lines += 1;
        Some(std::mem::take(&mut self.left_out))
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::{MAX_LINE_LEN, MAX_LINES_PER_SECOND, Throttle, printable};

    #[test]
    fn lines_beyond_the_limit_are_counted_and_said_later() {
        let now = Instant::now();
        let mut throttle = Throttle::default();
        for _ in 0..MAX_LINES_PER_SECOND {
            assert_eq!(throttle.admit(now), Some(0));
        }
        assert_eq!(throttle.admit(now), None);
        assert_eq!(throttle.admit(now), None);
        assert_eq!(throttle.admit(now + Duration::from_secs(1)), Some(2));
        assert_eq!(throttle.admit(now + Duration::from_secs(1)), Some(0));
    }

    #[test]
    fn what_peers_send_cannot_forge_or_flood_a_line() {
        assert_eq!(printable("a \u{e9} b"), "a \u{e9} b");
        assert_eq!(printable("a\nb\u{1b}[1m\u{9b}"), "a\\nb\\u{1b}[1m\\u{9b}");
        let long = printable("x".repeat(200_000));
        assert_eq!(long, "x".repeat(MAX_LINE_LEN) + "…");
        assert!(printable("\n".repeat(200_000)).len() < MAX_LINE_LEN + 16);
    }
}
