//! The lease: how long the instances that are placed again when their node is lost may still run here.
//!
//! The deadline stands in one file of the state directory, on the clock that goes on while the machine sleeps
//! (`CLOCK_BOOTTIME`). The launcher puts it off at each renewal; each supervisor reads it and kills its workload when
//! it has passed, whatever has become of the launcher. What the lease is to the cluster stands in [`super::agent`].

use std::fs::OpenOptions;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::time::{
    ClockId, Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, clock_gettime,
    timerfd_create, timerfd_settime,
};
use serde::{Deserialize, Serialize};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::files::{read_json, write_text};
use super::procfs::boot_id;

/// By how much the two clocks may drift apart without the machine having slept: they are read one after the other.
const SLEEP_NOTICED: Duration = Duration::from_millis(100);

/// Bytes of the file: a boot id of 36 letters and a number, in JSON, and spaces.
const FILE_BYTES: usize = 128;

/// What the spare file's name ends in.
const SPARE: &str = "spare";

/// The deadline, as it is kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Deadline {
    /// The boot that the clock belongs to.
    boot: String,
    /// `CLOCK_BOOTTIME` at which killing begins, in ms.
    until_ms: u64,
}

impl Deadline {
    /// As it stands in a file, of one length always.
    fn text(&self) -> io::Result<Vec<u8>> {
        let mut text = serde_json::to_vec(self)?;
        text.resize(text.len().max(FILE_BYTES), b' ');
        Ok(text)
    }
}

/// Time since the machine booted, with the time it slept.
pub(crate) fn boottime() -> Duration {
    let time = clock_gettime(ClockId::Boottime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let nanos = u32::try_from(time.tv_nsec).unwrap_or(0);
    Duration::new(seconds, nanos)
}

/// How long the lease in the file still lasts; nothing where it is over, of another boot, missing or unreadable: what
/// cannot be shown to be allowed is not.
pub(crate) fn remaining(file: &Path) -> Duration {
    until(file).saturating_sub(boottime())
}

/// When the lease in the file is over, on `CLOCK_BOOTTIME`.
fn until(file: &Path) -> Duration {
    match read_json::<Deadline>(file) {
        Ok(Some(deadline)) if Some(&deadline.boot) == boot_id().as_ref() => {
            Duration::from_millis(deadline.until_ms)
        }
        _ => Duration::ZERO,
    }
}

/// The launcher's side: writes the deadline for all supervisors of the node.
#[derive(Debug)]
pub(crate) struct LeaseWriter {
    /// `<state>/lease.json`.
    file: PathBuf,
    /// A file of the same size, which takes its place where there is no room for a new one.
    spare: PathBuf,
    /// How far `CLOCK_BOOTTIME` was ahead of the clock of [`Instant`]s, where the latest sample was taken.
    offset: Offset,
    /// The latest sample after a sleep: what was promised for reports before it is not to be counted from now on.
    woke: Option<Instant>,
}

/// The same moment on both clocks, to convert one into the other.
#[derive(Debug, Clone, Copy)]
struct Offset {
    instant: Instant,
    boottime: Duration,
}

impl Offset {
    /// The two clocks at this moment, read one after the other.
    fn now() -> Self {
        Self {
            instant: Instant::now(),
            boottime: boottime(),
        }
    }

    /// How long the machine has slept between the two.
    fn slept_until(self, later: Self) -> Duration {
        let awake = later.instant.saturating_duration_since(self.instant);
        later
            .boottime
            .saturating_sub(self.boottime)
            .saturating_sub(awake)
    }

    /// That instant on `CLOCK_BOOTTIME`, if the machine does not sleep in between.
    fn boottime_at(self, at: Instant) -> Duration {
        match at.checked_duration_since(self.instant) {
            Some(later) => self.boottime + later,
            None => self.boottime.saturating_sub(self.instant - at),
        }
    }
}

impl LeaseWriter {
    /// A writer of this file, which may hold what an earlier launcher wrote; nothing is written yet.
    pub(crate) fn new(file: PathBuf) -> Self {
        Self {
            spare: file.with_extension(SPARE),
            file,
            offset: Offset::now(),
            woke: None,
        }
    }

    /// Makes the spare file, so that the deadline can be renewed also once the disk is full. One that is there is kept.
    ///
    /// # Errors
    /// Those of writing a file.
    pub(crate) fn reserve(&self) -> io::Result<()> {
        if self.spare.exists() {
            return Ok(());
        }
        let over = Deadline {
            boot: boot_id().unwrap_or_default(),
            until_ms: 0,
        };
        write_text(&self.spare, &over.text()?)
    }

    /// When what an earlier launcher wrote is over; `None` = it is, or there is none.
    pub(crate) fn until(&self) -> Option<Instant> {
        let left = remaining(&self.file);
        (!left.is_zero()).then(|| Instant::now() + left)
    }

    /// Notes that a report is about to be made, and whether the machine has slept since the last one.
    pub(crate) fn reports(&mut self) {
        let now = Offset::now();
        if self.offset.slept_until(now) > SLEEP_NOTICED {
            self.woke = Some(now.instant);
        }
        self.offset = now;
    }

    /// Renews the deadline to `until`, which a report of `length` before promised. Nothing is written for a report from
    /// before a sleep: the scheduler may have given up the node meanwhile.
    ///
    /// # Errors
    /// Those of writing a file: then the old deadline stands.
    pub(crate) fn extend(&self, until: Instant, length: Duration) -> io::Result<()> {
        if self
            .woke
            .is_some_and(|woke| until.checked_sub(length).is_none_or(|sent| sent < woke))
        {
            return Ok(());
        }
        let boot = boot_id().ok_or_else(|| io::Error::other("no boot id"))?;
        let until = self.offset.boottime_at(until);
        let until_ms = u64::try_from(until.as_millis()).unwrap_or(u64::MAX);
        let text = Deadline { boot, until_ms }.text()?;
        write_text(&self.file, &text).or_else(|error| self.exchange(&text).map_err(|_| error))
    }

    /// Writes over the spare file and has it change places with the file, which needs no room.
    fn exchange(&self, text: &[u8]) -> io::Result<()> {
        let spare = OpenOptions::new().write(true).open(&self.spare)?;
        spare.write_all_at(text, 0)?;
        Ok(renameat_with(
            CWD,
            &self.spare,
            CWD,
            &self.file,
            RenameFlags::EXCHANGE,
        )?)
    }
}

/// A supervisor's side: waits for the end of a lease.
#[derive(Debug)]
pub(crate) struct Watch {
    file: PathBuf,
    timer: BootTimer,
}

impl Watch {
    /// # Errors
    /// The system has no more timers or descriptors.
    pub(crate) fn new(file: PathBuf) -> io::Result<Self> {
        let timer = BootTimer::new()?;
        Ok(Self { file, timer })
    }

    /// Returns when the lease is over, as the file says then. May be called again, and given up.
    ///
    /// # Errors
    /// The timer fails.
    pub(crate) async fn over(&self) -> io::Result<()> {
        loop {
            let until = until(&self.file);
            if until <= boottime() {
                return Ok(());
            }
            self.timer.fired(until).await?;
        }
    }
}

/// A timer on the clock that goes on while the machine sleeps.
#[derive(Debug)]
pub(crate) struct BootTimer(AsyncFd<OwnedFd>);

impl BootTimer {
    /// # Errors
    /// The system has no more timers or descriptors.
    pub(crate) fn new() -> io::Result<Self> {
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let timer = timerfd_create(TimerfdClockId::Boottime, flags)?;
        #[expect(
            deprecated,
            reason = "its successor is unsafe, for types that lie about their descriptor; an OwnedFd does not"
        )]
        let timer = AsyncFd::with_interest(timer, Interest::READABLE)?;
        Ok(Self(timer))
    }

    /// Returns at this moment on `CLOCK_BOOTTIME`, at once where it has passed. May be called again, and given up.
    ///
    /// # Errors
    /// The timer fails.
    pub(crate) async fn reached(&self, until: Duration) -> io::Result<()> {
        while until > boottime() {
            self.fired(until).await?;
        }
        Ok(())
    }

    /// Returns when the timer has fired that is set to this moment, or one that was set before.
    async fn fired(&self, until: Duration) -> io::Result<()> {
        self.set(until)?;
        self.0.readable().await?.clear_ready();
        Ok(())
    }

    /// Sets the timer to this moment on `CLOCK_BOOTTIME`; one that has passed fires at once.
    fn set(&self, until: Duration) -> io::Result<()> {
        let at = Timespec {
            tv_sec: i64::try_from(until.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: until.subsec_nanos().into(),
        };
        let once = Itimerspec {
            it_interval: Timespec {
                tv_sec: 0,
                tv_nsec: 0,
            },
            it_value: at,
        };
        timerfd_settime(&self.0, TimerfdTimerFlags::ABSTIME, &once)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::{Deadline, LeaseWriter, Offset, Watch, boot_id, boottime, remaining};

    const LENGTH: Duration = Duration::from_secs(30);

    #[test]
    fn a_lease_lasts_as_long_as_it_was_extended_and_a_missing_or_foreign_one_is_over() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("lease.json");
        let writer = LeaseWriter::new(file.clone());
        assert_eq!(writer.until(), None);
        writer.extend(Instant::now() + LENGTH, LENGTH).unwrap();
        let left = remaining(&file);
        assert!(left <= LENGTH && left > LENGTH / 2, "{left:?}");
        assert!(writer.until().is_some());
        let boot = "another".to_owned();
        let until_ms = u64::MAX;
        std::fs::write(&file, Deadline { boot, until_ms }.text().unwrap()).unwrap();
        assert_eq!(remaining(&file), Duration::ZERO);
        std::fs::write(&file, "torn").unwrap();
        assert_eq!(remaining(&file), Duration::ZERO);
    }

    #[test]
    fn a_lease_is_extended_without_a_new_file_as_often_as_needed() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("lease.json");
        let writer = LeaseWriter::new(file.clone());
        writer.extend(Instant::now() + LENGTH, LENGTH).unwrap();
        writer.reserve().unwrap();
        for later in 2..5 {
            let boot = boot_id().unwrap();
            let until_ms = (boottime() + LENGTH * later)
                .as_millis()
                .try_into()
                .unwrap();
            writer
                .exchange(&Deadline { boot, until_ms }.text().unwrap())
                .unwrap();
            assert!(remaining(&file) > LENGTH * (later - 1));
        }
    }

    #[test]
    fn what_a_report_before_a_sleep_promised_counts_the_sleep() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("lease.json");
        let mut writer = LeaseWriter::new(file.clone());
        // As if the machine had slept for an hour since: the file's clock went on, that of instants did not.
        let hour = Duration::from_secs(3600);
        writer.offset.boottime = boottime().saturating_sub(hour);
        let sent = Instant::now();
        writer.extend(sent + LENGTH, LENGTH).unwrap();
        assert_eq!(remaining(&file), Duration::ZERO);
        writer.reports();
        writer.extend(sent + LENGTH, LENGTH).unwrap();
        assert_eq!(remaining(&file), Duration::ZERO, "also after a new report");
        writer.extend(Instant::now() + LENGTH, LENGTH).unwrap();
        assert!(remaining(&file) > Duration::ZERO);
    }

    #[test]
    fn sleep_is_what_one_clock_counts_and_the_other_does_not() {
        let before = Offset::now();
        let later = |awake, all| Offset {
            instant: before.instant + Duration::from_secs(awake),
            boottime: before.boottime + Duration::from_secs(all),
        };
        assert_eq!(before.slept_until(later(5, 5)), Duration::ZERO);
        assert_eq!(before.slept_until(later(5, 65)), Duration::from_secs(60));
    }

    #[tokio::test]
    async fn a_watch_ends_when_the_lease_does_and_not_before_one_that_was_extended_meanwhile() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("lease.json");
        let writer = LeaseWriter::new(file.clone());
        let watch = Watch::new(file.clone()).unwrap();
        watch.over().await.unwrap();
        let short = Instant::now() + Duration::from_millis(50);
        writer.extend(short, LENGTH).unwrap();
        tokio::select! {
            biased;
            _ = watch.over() => {}
            () = std::future::ready(()) => {}
        }
        let longer = Instant::now() + Duration::from_millis(150);
        writer.extend(longer, LENGTH).unwrap();
        watch.over().await.unwrap();
        assert!(Instant::now() + Duration::from_millis(2) >= longer);
    }
}
