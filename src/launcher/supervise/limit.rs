//! For how long a workload may run, and how it is asked to end: kept by its supervisor, so that it holds whatever has become
//! of the launcher.
//!
//! ```text
//! began ──────────── running ──frozen┊thawed──── running ───▶ limit: signal ──grace──▶ kill
//! ```
//! The clock is the one that goes on while the machine sleeps; the time in which the workload is frozen does not count.

use std::io;
use std::time::Duration;

use rustix::process::Signal;

use super::super::files::Launch;
use super::super::lease::{BootTimer, boottime};
use super::processes::Processes;

/// Time between the signal and the kill of a workload whose launcher did not say it: launchers before this one did not,
/// and set no limits either.
const USUAL_GRACE: Duration = Duration::from_secs(10);

/// How the workload is asked to end, and when it has to.
#[derive(Debug)]
pub(super) struct Limit {
    /// What it is sent first.
    pub(super) signal: Signal,
    /// How long after that it is killed, where the supervisor asked it to end.
    grace: Duration,
    /// How long it may run; `None` = without limit.
    time: Option<Duration>,
    /// When it began, on `CLOCK_BOOTTIME`.
    began: Duration,
    /// When it is killed, once its time is over.
    kill_at: Option<Duration>,
    timer: Option<BootTimer>,
}

impl Limit {
    /// The limits of a workload that begins now.
    ///
    /// # Errors
    /// The system has no more timers or descriptors.
    pub(super) fn new(launch: &Launch) -> io::Result<Self> {
        let time = launch.time_left_ms.map(Duration::from_millis);
        let signal = launch.stop_signal.and_then(Signal::from_named_raw);
        Ok(Self {
            signal: signal.unwrap_or(Signal::TERM),
            grace: launch
                .stop_grace_ms
                .map_or(USUAL_GRACE, Duration::from_millis),
            time,
            began: boottime(),
            kill_at: None,
            timer: time.map(|_| BootTimer::new()).transpose()?,
        })
    }

    /// How long the workload has run, without the time in which it was frozen.
    pub(super) fn counted(&self, processes: &Processes) -> Duration {
        let since = boottime().saturating_sub(self.began);
        since.saturating_sub(processes.frozen_for())
    }

    /// Whether it has run for as long as it may.
    pub(super) fn is_over(&self, processes: &Processes) -> bool {
        let counted = self.counted(processes);
        self.time.is_some_and(|time| counted >= time) && !processes.are_stopped()
    }

    /// Returns when it may have run for as long as it may: whether it has is to be looked at then. Never while it is
    /// frozen, or where there is no limit. May be given up at any time.
    pub(super) async fn over(&self, processes: &Processes) {
        let left = self
            .time
            .map(|time| time.saturating_sub(self.counted(processes)));
        match (left, &self.timer) {
            (Some(left), Some(timer)) if !processes.are_stopped() => {
                // A timer that fails ends nothing: what was begun goes on, as without a limit.
                if timer.reached(boottime() + left).await.is_err() {
                    std::future::pending::<()>().await;
                }
            }
            _ => std::future::pending().await,
        }
    }

    /// Its time is over: it is asked to end, and has its grace for that.
    pub(super) fn begin_grace(&mut self) {
        self.kill_at = Some(boottime() + self.grace);
    }

    /// Whether it was asked to end because its time is over.
    pub(super) fn is_in_grace(&self) -> bool {
        self.kill_at.is_some()
    }

    /// Returns when its grace is over; never where there is none.
    pub(super) async fn grace_over(&self) {
        match (self.kill_at, &self.timer) {
            (Some(at), Some(timer)) if timer.reached(at).await.is_ok() => {}
            _ => std::future::pending().await,
        }
    }
}
