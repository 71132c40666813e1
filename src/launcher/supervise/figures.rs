//! What a run has used, as its supervisor finds it when no process of it is left: from the kernel's account of all
//! children that were waited for, and from the cgroup where there is one.
//!
//! Processes whose parents ignored their end (SIGCHLD) are in no account but a cgroup's.

use std::time::Duration;

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeVal;
use rustix::time::{ClockId, clock_gettime};

use super::super::agent::Ran;
use super::super::cgroup::Cgroup;

/// A moment on the clock that goes on while the machine sleeps.
#[derive(Debug, Clone, Copy)]
pub(super) struct SinceBoot(Duration);

impl SinceBoot {
    pub(super) fn now() -> Self {
        let now = clock_gettime(ClockId::Boottime);
        let seconds = u64::try_from(now.tv_sec).unwrap_or_default();
        Self(Duration::new(
            seconds,
            u32::try_from(now.tv_nsec).unwrap_or_default(),
        ))
    }

    /// How long ago it was.
    pub(super) fn elapsed(self) -> Duration {
        Self::now().0.saturating_sub(self.0)
    }
}

/// What a run has used that began then and is over.
pub(super) fn of_ended(group: Option<&Cgroup>, began: SinceBoot) -> Ran {
    let waited_for = getrusage(UsageWho::RUSAGE_CHILDREN).ok();
    let largest_kib = waited_for.and_then(|it| u64::try_from(it.max_rss()).ok());
    let cpu = waited_for.map(|it| time(it.user_time()) + time(it.system_time()));
    Ran {
        ran_ms: Some(whole_ms(began.elapsed())),
        peak_kib: group
            .and_then(Cgroup::peak_bytes)
            .map(|bytes| bytes >> 10)
            .or(largest_kib.filter(|kib| *kib > 0)),
        cpu_ms: group.and_then(Cgroup::cpu_time).or(cpu).map(whole_ms),
        ..Ran::default()
    }
}

fn time(time: TimeVal) -> Duration {
    let seconds = u64::try_from(time.tv_sec()).unwrap_or_default();
    let micros = u64::try_from(time.tv_usec()).unwrap_or_default();
    Duration::from_secs(seconds) + Duration::from_micros(micros)
}

fn whole_ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
