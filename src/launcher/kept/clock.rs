//! For how long ended instances have left what they left: measured by a count of a node's own, not by the clock on the
//! wall, which can be set wrong and right again.
//!
//! ```text
//! <state>/kept-clock.json          {boot, boottime_ms, count_ms}: the count at one moment of one boot
//! <ended instance>/kept.json       {since_ms}: the count when its output was first seen to be over
//! ```
//! Within a boot the count goes on with `CLOCK_BOOTTIME`, whether a launcher runs or not. Time in which the machine is
//! off does not count, and a count that was lost begins again: either way output is kept longer, never shorter.

use std::path::PathBuf;
use std::time::Duration;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tracing::debug;

use super::super::files::{InstanceDir, read_json, write_json};
use super::super::lease::boottime;
use super::super::procfs::boot_id;

/// Time between two writes of the count, which a crash of the machine takes back at most.
const WRITE_INTERVAL: Duration = Duration::from_secs(60);

/// The count, as it is kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Reading {
    /// The boot that `boottime_ms` belongs to.
    boot: String,
    /// `CLOCK_BOOTTIME` when it was read, in ms.
    boottime_ms: u64,
    /// The count by then, in ms.
    count_ms: u64,
}

/// When output was first seen to be over, as it is kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Since {
    /// The count by then, in ms.
    since_ms: u64,
}

/// The count of one node.
#[derive(Debug)]
pub(crate) struct KeptClock {
    file: PathBuf,
    /// Where this launcher took it up.
    from: Reading,
    /// The count that was written last.
    written_ms: Mutex<u64>,
}

impl KeptClock {
    /// Takes the count in this file up. Nothing is written before the first [`KeptClock::write`].
    pub(crate) fn open(file: PathBuf) -> Self {
        let boot = boot_id().unwrap_or_default();
        let boottime_ms = ms(boottime());
        let before = read_json::<Reading>(&file).unwrap_or_else(|error| {
            debug!(path = %file.display(), %error, "the count cannot be read; it begins again");
            None
        });
        let count_ms = before.map_or(0, |before| {
            let is_same = !boot.is_empty() && before.boot == boot;
            let since = boottime_ms.saturating_sub(before.boottime_ms);
            before
                .count_ms
                .saturating_add(if is_same { since } else { 0 })
        });
        Self {
            file,
            from: Reading {
                boot,
                boottime_ms,
                count_ms,
            },
            // The first write is due at once: a boot that nobody wrote of does not count.
            written_ms: Mutex::new(0),
        }
    }

    /// The count now, in ms.
    pub(crate) fn now_ms(&self) -> u64 {
        let since = ms(boottime()).saturating_sub(self.from.boottime_ms);
        self.from.count_ms.saturating_add(since)
    }

    /// Writes the count, if that is due. Where it cannot be written, time that passes until it can does not count after
    /// the machine was off.
    pub(crate) fn write(&self) {
        let mut written = self.written_ms.lock();
        let now = self.now_ms();
        if *written != 0 && now.saturating_sub(*written) < ms(WRITE_INTERVAL) {
            return;
        }
        let reading = Reading {
            boot: self.from.boot.clone(),
            boottime_ms: self
                .from
                .boottime_ms
                .saturating_add(now - self.from.count_ms),
            count_ms: now,
        };
        match write_json(&self.file, &reading) {
            Ok(()) => *written = now.max(1),
            Err(error) => debug!(path = %self.file.display(), %error, "cannot be written"),
        }
    }
}

/// The count when the output in this directory was first seen to be over: now, where that is not noted yet, or where a
/// later moment is, which is of a count that was lost. Where it cannot be noted, the caller has to remember it.
pub(super) fn since_ms(dir: &InstanceDir, now_ms: u64) -> u64 {
    match read_json::<Since>(&dir.kept_since()) {
        Ok(Some(since)) if since.since_ms <= now_ms => since.since_ms,
        _ => {
            let since = Since { since_ms: now_ms };
            if let Err(error) = write_json(&dir.kept_since(), &since) {
                debug!(path = %dir.kept_since().display(), %error, "cannot be written");
            }
            now_ms
        }
    }
}

/// A time in ms.
pub(super) fn ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::{InstanceDir, KeptClock, Reading, boottime, ms, read_json, since_ms, write_json};

    #[test]
    fn the_count_goes_on_over_restarts_and_not_over_the_time_that_the_machine_was_off() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("kept-clock.json");
        let first = KeptClock::open(file.clone());
        first.write();
        let mut kept: Reading = read_json(&file).unwrap().unwrap();
        // As if a launcher had written it an hour ago, and none had run since.
        let hour = 3_600_000;
        kept.boottime_ms = ms(boottime()).saturating_sub(hour);
        write_json(&file, &kept).unwrap();
        let ago = ms(boottime()) - kept.boottime_ms;
        let later = KeptClock::open(file.clone()).now_ms();
        assert!(later >= kept.count_ms + ago, "{later}");
        kept.boot = "another".to_owned();
        write_json(&file, &kept).unwrap();
        let other_boot = KeptClock::open(file.clone());
        assert!(other_boot.now_ms() < kept.count_ms + hour / 2);
        std::fs::write(&file, "torn").unwrap();
        assert!(KeptClock::open(file).now_ms() < hour / 2);
    }

    #[test]
    fn a_moment_of_a_count_that_was_lost_is_now() {
        let root = tempfile::tempdir().unwrap();
        let dir = InstanceDir(root.path().to_owned());
        assert_eq!(since_ms(&dir, 500), 500);
        assert_eq!(since_ms(&dir, 700), 500);
        assert_eq!(since_ms(&dir, 100), 100, "the count began again");
        assert_eq!(since_ms(&dir, 700), 100);
    }
}
