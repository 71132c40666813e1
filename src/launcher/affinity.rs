//! On which processors a process runs (`sched_setaffinity(2)`): its threads one by one, and by inheritance what they start.
//!
//! For where no cgroup says it. A program can undo it; it is to keep instances out of each other's way, not to lock them in.

use std::fs;
use std::io;

use rustix::io::Errno;
use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use super::agent::Cpus;

/// The processors on which this process may run; none where the system does not say, as with more than
/// [`CpuSet::MAX_CPU`].
#[must_use]
pub fn own_processors() -> Vec<u16> {
    let Ok(set) = sched_getaffinity(None) else {
        return Vec::new();
    };
    let numbers = (0..=u16::MAX).take(CpuSet::MAX_CPU);
    numbers
        .filter(|number| set.is_set(usize::from(*number)))
        .collect()
}

/// Has this process, and what it starts from now on, run on these alone.
///
/// # Errors
/// The system's: none of them is there.
pub(crate) fn pin_this(cpus: &Cpus) -> io::Result<()> {
    Ok(sched_setaffinity(None, &set_of(cpus))?)
}

/// Has every thread of a process run on these alone; whether that changed anything. Threads that have ended, or belong to
/// another user by now, are left out.
///
/// # Errors
/// The system's: none of the processors is there.
pub(crate) fn pin_threads(pid: i32, cpus: &Cpus) -> io::Result<bool> {
    let set = set_of(cpus);
    let threads = fs::read_dir(format!("/proc/{pid}/task"));
    let threads = threads.into_iter().flatten().flatten();
    let mut is_changed = false;
    for thread in threads {
        let number = thread.file_name().to_str().and_then(|it| it.parse().ok());
        let Some(thread) = number.and_then(Pid::from_raw) else {
            continue;
        };
        let before = sched_getaffinity(Some(thread)).ok();
        match sched_setaffinity(Some(thread), &set) {
            Ok(()) => is_changed |= before != sched_getaffinity(Some(thread)).ok(),
            Err(Errno::SRCH | Errno::PERM) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(is_changed)
}

fn set_of(cpus: &Cpus) -> CpuSet {
    let mut set = CpuSet::new();
    let numbers = cpus.0.iter().map(|number| usize::from(*number));
    for number in numbers.filter(|number| *number < CpuSet::MAX_CPU) {
        set.set(number);
    }
    set
}
