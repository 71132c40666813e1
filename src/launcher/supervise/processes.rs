//! Every process of an instance at once, seen from its supervisor: stopped, continued, limited, killed.
//!
//! With a cgroup the kernel does it. Without, it is done process by process, again and again until a look finds nothing
//! left to do: a process that forks while it is looked for has a child that the next look finds. A process that has
//! been sent SIGSTOP neither runs code of its own nor forks any more, even where it has not come to its stop.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::io;
use std::rc::Rc;
use std::time::Duration;

use rustix::process::{Pid, Signal};

use super::super::affinity;
use super::super::agent::Cpus;
use super::super::cgroup::Cgroup;
use super::super::lease::boottime;
use super::super::limits::Limits;
use super::super::procfs::{self, ProcStat};

/// Time between two looks.
const LOOK_INTERVAL: Duration = Duration::from_millis(1);

/// Looks in a row that find nothing left to do, before it is done: a child that was born during the first is seen by
/// the second.
const QUIET_LOOKS: u32 = 2;

/// Every process of the instance. Clones share what is known, for a request is served beside the loop; all run on one
/// thread.
#[derive(Debug, Clone)]
pub(super) struct Processes {
    /// The cgroup that all are in, if the launcher uses cgroups.
    group: Option<Cgroup>,
    /// The limits that were set last.
    limits: Rc<Cell<Limits>>,
    /// Whether they are stopped, or some may be.
    stopped: Rc<Cell<bool>>,
    /// Since when, on `CLOCK_BOOTTIME`, and how long they were before.
    frozen: Rc<Cell<(Duration, Duration)>>,
    /// How much memory they were found to hold, in KiB, where that was too much.
    too_much_kib: Rc<Cell<Option<u64>>>,
}

impl Processes {
    pub(super) fn new(group: Option<Cgroup>, limits: Limits) -> Self {
        Self {
            group,
            limits: Rc::new(Cell::new(limits)),
            stopped: Rc::default(),
            frozen: Rc::default(),
            too_much_kib: Rc::default(),
        }
    }

    /// Notes that they hold so much memory, in KiB, which is too much.
    pub(super) fn hold_too_much(&self, kib: u64) {
        self.too_much_kib.set(Some(kib));
    }

    /// How much memory they were found to hold, in KiB, where that was too much.
    pub(super) fn held_too_much(&self) -> Option<u64> {
        self.too_much_kib.get()
    }

    /// Whether they are stopped, or some may be.
    pub(super) fn are_stopped(&self) -> bool {
        self.stopped.get()
    }

    /// How long they have been stopped altogether.
    pub(super) fn frozen_for(&self) -> Duration {
        let (since, before) = self.frozen.get();
        match self.stopped.get() {
            true => before + boottime().saturating_sub(since),
            false => before,
        }
    }

    /// The cgroup that they are in, if they have one of their own.
    pub(super) fn group(&self) -> Option<&Cgroup> {
        self.group.as_ref()
    }

    /// Stops all of them and returns when they have stopped. If the wait is dropped, [`Processes::go_on`] undoes what
    /// was done.
    ///
    /// # Errors
    /// The cgroup cannot be frozen.
    pub(super) async fn stop(&self) -> io::Result<()> {
        if !self.stopped.replace(true) {
            let (_, before) = self.frozen.get();
            self.frozen.set((boottime(), before));
        }
        match self.group.as_ref().filter(|group| group.has_freezer()) {
            Some(group) => group.freeze().await,
            None => {
                stop_each().await;
                Ok(())
            }
        }
    }

    /// Lets them go on, if they were stopped.
    pub(super) fn go_on(&self) -> io::Result<()> {
        if !self.stopped.get() {
            return Ok(());
        }
        if let Some(group) = self.group.as_ref().filter(|group| group.has_freezer()) {
            group.thaw()?;
        } else {
            // None of them can have forked since the last was stopped.
            signal_each(Signal::CONT, |_| true);
        }
        let frozen_for = self.frozen_for();
        self.stopped.set(false);
        self.frozen.set((Duration::ZERO, frozen_for));
        Ok(())
    }

    /// Sets the limits; after a failure those from before are set again, as far as that can be done.
    ///
    /// # Errors
    /// Why the limits are not set.
    pub(super) async fn limit(&self, limits: Limits) -> io::Result<()> {
        let done = self.try_limit(limits).await;
        if done.is_ok() {
            self.limits.set(limits);
        } else {
            // What could not be reached before cannot be now.
            let _ = self.try_limit(self.limits.get()).await;
        }
        done
    }

    /// Has all of them run on these processors alone.
    ///
    /// # Errors
    /// The system's: none of the processors is there.
    pub(super) async fn pin(&self, cpus: &Cpus) -> io::Result<()> {
        match &self.group {
            Some(group) if group.pin(cpus) => Ok(()),
            _ => pin_each(cpus).await,
        }
    }

    /// Kills those that are there, and with a cgroup those that they start meanwhile. Without one the caller repeats it
    /// until none is left.
    pub(super) fn kill(&self) {
        if let Some(group) = &self.group {
            group.kill();
        }
        signal_each(Signal::KILL, |_| true);
    }

    /// Removes the cgroup, when no process is left.
    pub(super) async fn gone(&self) {
        if let Some(group) = &self.group {
            group.remove().await;
        }
    }

    async fn try_limit(&self, limits: Limits) -> io::Result<()> {
        if let Some(group) = &self.group {
            group.limit(limits)?;
        }
        match &self.group {
            Some(group) if group.memory => Ok(()),
            _ => limit_each(limits).await,
        }
    }
}

/// Sends each of those that `concerns` picks a signal.
pub(super) fn signal_each(signal: Signal, concerns: impl Fn(&ProcStat) -> bool) {
    for process in below().iter().filter(|it| concerns(it)) {
        // One that may not be signalled is not ours to end, and one that has ended needs nothing.
        let _ = process.signal(signal);
    }
}

async fn stop_each() {
    let mut sent = BTreeSet::new();
    let mut quiet = 0;
    while quiet < QUIET_LOOKS {
        let mut busy = false;
        for process in below() {
            match process.state {
                b'T' | b't' | b'Z' | b'X' => {}
                // Waiting for a disk, or for a child that is stopped already, and stops before anything else.
                b'D' if sent.contains(&process.pid) => {}
                _ => {
                    busy = true;
                    sent.insert(process.pid);
                    let _ = process.signal(Signal::STOP);
                }
            }
        }
        quiet = if busy { 0 } else { quiet + 1 };
        if busy {
            tokio::time::sleep(LOOK_INTERVAL).await;
        }
    }
}

async fn limit_each(limits: Limits) -> io::Result<()> {
    let mut quiet = 0;
    while quiet < QUIET_LOOKS {
        let mut busy = false;
        for process in below() {
            // Those that are started meanwhile by one that has its limit have it from the start.
            let pid = Pid::from_raw(process.pid);
            busy |= pid.is_some() && limits.apply_to(pid)?;
        }
        quiet = if busy { 0 } else { quiet + 1 };
        tokio::task::yield_now().await;
    }
    Ok(())
}

async fn pin_each(cpus: &Cpus) -> io::Result<()> {
    let mut quiet = 0;
    while quiet < QUIET_LOOKS {
        let mut busy = false;
        for process in below() {
            busy |= affinity::pin_threads(process.pid, cpus)?;
        }
        quiet = if busy { 0 } else { quiet + 1 };
        tokio::task::yield_now().await;
    }
    Ok(())
}

fn below() -> Vec<ProcStat> {
    procfs::descendants(rustix::process::getpid().as_raw_pid())
}
