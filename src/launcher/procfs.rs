//! What `/proc` says of processes: just the fields the launcher and its supervisors need.
//!
//! A process is named by pid, start time and boot, because pids are reused; for the same reason signals are sent
//! through pidfds. Not here: figures of the whole machine ([`super::host`]).

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde::{Deserialize, Serialize};

/// One line of `/proc/<pid>/stat` (see `proc_pid_stat(5)`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ProcStat {
    /// Process id.
    pub(crate) pid: i32,
    /// What it is doing, as one letter: `R` running, `S` and `D` waiting, `T` and `t` stopped, `Z` and `X` ended.
    pub(crate) state: u8,
    /// Parent's process id.
    pub(crate) ppid: i32,
    /// Its process group: the process id of the process that began it.
    pub(crate) group: i32,
    /// Its session: the process id of the process that began it.
    pub(crate) session: i32,
    /// Processor time used, user and kernel, in clock ticks.
    pub(crate) cpu_ticks: u64,
    /// When it started, in clock ticks after boot.
    pub(crate) start_ticks: u64,
    /// Resident memory, in pages.
    pub(crate) rss_pages: i64,
}

impl ProcStat {
    /// The process with this pid, if there is one.
    pub(crate) fn of(pid: i32) -> Option<Self> {
        Self::parse(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
    }

    /// Every process there is, by pid. Those that end meanwhile are left out.
    pub(crate) fn all() -> BTreeMap<i32, Self> {
        let Ok(entries) = fs::read_dir("/proc") else {
            return BTreeMap::new();
        };
        entries
            .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
            .filter_map(|pid| Some((pid, Self::of(pid)?)))
            .collect()
    }

    /// Whether it has ended and only waits for its parent to ask how.
    pub(crate) fn has_ended(&self) -> bool {
        matches!(self.state, b'Z' | b'X')
    }

    /// Sends this very process a signal, and no other that has its pid meanwhile; one that has ended is sent none.
    ///
    /// # Errors
    /// The system's: that it may not, above all.
    pub(crate) fn signal(&self, signal: Signal) -> Result<(), Errno> {
        let Some(pid) = Pid::from_raw(self.pid) else {
            return Ok(());
        };
        let done = pidfd_open(pid, PidfdFlags::empty()).and_then(|pidfd| {
            // Only after opening: the process that has this pid and that start time now had it then.
            match Self::of(self.pid) {
                Some(it) if it.start_ticks == self.start_ticks => pidfd_send_signal(pidfd, signal),
                _ => Ok(()),
            }
        });
        match done {
            Err(Errno::SRCH) => Ok(()),
            done => done,
        }
    }

    /// Reads the line; `None` if it is of another form. The indices are those of `proc_pid_stat(5)` less 3, for the
    /// fields behind the name begin with the third.
    fn parse(line: &str) -> Option<Self> {
        // The name stands in parentheses and may hold anything, also spaces and parentheses.
        let (pid, rest) = line.split_once(" (")?;
        let fields: Vec<&str> = rest.rsplit_once(") ")?.1.split_ascii_whitespace().collect();
        let number = |index: usize| fields.get(index)?.parse::<u64>().ok();
        Some(Self {
            pid: pid.parse().ok()?,
            state: *fields.first()?.as_bytes().first()?,
            ppid: fields.get(1)?.parse().ok()?,
            group: fields.get(2)?.parse().ok()?,
            session: fields.get(3)?.parse().ok()?,
            cpu_ticks: number(11)?.saturating_add(number(12)?),
            start_ticks: number(19)?,
            rss_pages: fields.get(21)?.parse().ok()?,
        })
    }
}

/// A process, told apart from a later one with the same pid.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ProcessId {
    /// Process id.
    pub(crate) pid: i32,
    /// [`ProcStat::start_ticks`].
    pub(crate) start_ticks: u64,
    /// The boot it belongs to (`/proc/sys/kernel/random/boot_id`).
    pub(crate) boot: String,
}

impl ProcessId {
    /// The process that has this pid now.
    pub(crate) fn of(pid: i32) -> Option<Self> {
        let boot = boot_id()?;
        Some(Self {
            pid,
            start_ticks: ProcStat::of(pid)?.start_ticks,
            boot,
        })
    }

    /// Whether that very process still runs. One that has ended does not, although a process 1 that waits for none may leave
    /// it there for good: what it did last happened when it says so, and not now.
    pub(crate) fn is_running(&self) -> bool {
        let Some(stat) = ProcStat::of(self.pid) else {
            return false;
        };
        let is_it = stat.start_ticks == self.start_ticks && boot_id().as_ref() == Some(&self.boot);
        is_it && !stat.has_ended()
    }
}

/// Memory that the processes below this one hold together and the kernel cannot take back, in bytes: private pages, shared
/// memory and swap, of what several share the part of each. `proc` is where that is read (`/proc`).
///
/// Where a process does not let its pages be counted (`smaps_rollup`), its private pages count in full.
pub(crate) fn memory_below(proc: &Path, supervisor: i32) -> u64 {
    let held = |process: ProcStat| held_by(&proc.join(process.pid.to_string()));
    descendants(supervisor).into_iter().map(held).sum()
}

/// The same of one process, by its directory.
fn held_by(dir: &Path) -> u64 {
    const COUNTED: [&str; 3] = ["Pss_Anon:", "Pss_Shmem:", "SwapPss:"];
    let kib = |line: &str| {
        let mut words = line.split_ascii_whitespace();
        let is_counted = words.next().is_some_and(|name| COUNTED.contains(&name));
        words.next().filter(|_| is_counted)?.parse::<u64>().ok()
    };
    if let Ok(rollup) = fs::read_to_string(dir.join("smaps_rollup")) {
        return rollup
            .lines()
            .filter_map(kib)
            .sum::<u64>()
            .saturating_mul(1024);
    }
    // Size, resident and shared, in pages.
    let statm = fs::read_to_string(dir.join("statm")).unwrap_or_default();
    let pages: Vec<u64> = statm
        .split(' ')
        .filter_map(|it| it.trim().parse().ok())
        .collect();
    let private = match pages.get(1..3) {
        Some([resident, shared]) => resident.saturating_sub(*shared),
        _ => 0,
    };
    let page = u64::try_from(rustix::param::page_size()).unwrap_or(4096);
    private.saturating_mul(page)
}

/// The present boot (`/proc/sys/kernel/random/boot_id`).
pub(crate) fn boot_id() -> Option<String> {
    Some(
        fs::read_to_string("/proc/sys/kernel/random/boot_id")
            .ok()?
            .trim_end()
            .to_owned(),
    )
}

/// Which of the processes for which `is_root` holds each process descends from, the nearest one, itself included. Those
/// that descend from none are left out.
///
/// Each process is walked over once, however long the chains are that a workload makes. A picture that was taken while
/// parents changed may hold a loop: what is in it descends from none.
pub(crate) fn roots_of(
    processes: &BTreeMap<i32, ProcStat>,
    is_root: impl Fn(i32) -> bool,
) -> BTreeMap<i32, i32> {
    let mut known: BTreeMap<i32, Option<i32>> = BTreeMap::new();
    let mut walked = Vec::new();
    for &pid in processes.keys() {
        let mut at = pid;
        let root = loop {
            if let Some(root) = known.get(&at) {
                break *root;
            }
            if is_root(at) {
                known.insert(at, Some(at));
                break Some(at);
            }
            // Until it is known, for loops.
            known.insert(at, None);
            walked.push(at);
            match processes.get(&at) {
                Some(process) => at = process.ppid,
                None => break None,
            }
        };
        known.extend(walked.drain(..).map(|pid| (pid, root)));
    }
    known.retain(|pid, _| processes.contains_key(pid));
    let found = known.into_iter();
    found.filter_map(|(pid, root)| Some((pid, root?))).collect()
}

/// Every process that descends from `root`, without `root`.
pub(crate) fn descendants(root: i32) -> Vec<ProcStat> {
    let processes = ProcStat::all();
    let mut below = roots_of(&processes, |pid| pid == root);
    below.remove(&root);
    below.keys().map(|pid| processes[pid]).collect()
}

#[cfg(test)]
impl ProcStat {
    /// One that waits and has used nothing yet.
    pub(crate) fn sleeping(pid: i32, ppid: i32) -> Self {
        Self {
            pid,
            state: b'S',
            ppid,
            group: 0,
            session: 0,
            cpu_ticks: 0,
            start_ticks: 0,
            rss_pages: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::collections::BTreeMap;

    use super::{ProcStat, ProcessId, roots_of};

    fn stat(pid: i32, ppid: i32) -> (i32, ProcStat) {
        (pid, ProcStat::sleeping(pid, ppid))
    }

    #[test]
    fn a_name_with_spaces_and_parentheses_is_no_trouble() {
        let line = "4711 (a) R (b) S 12 4711 4712 0 -1 4194304 1 2 3 4 50 7 0 0 20 0 1 0 88123 1000000 321 18446";
        let expected = ProcStat {
            pid: 4711,
            state: b'S',
            ppid: 12,
            group: 4711,
            session: 4712,
            cpu_ticks: 57,
            start_ticks: 88123,
            rss_pages: 321,
        };
        assert_eq!(ProcStat::parse(line), Some(expected));
        assert_eq!(ProcStat::parse("4711 (cut off"), None);
    }

    #[test]
    fn a_process_is_found_under_its_nearest_ancestor_and_a_loop_ends() {
        let processes = BTreeMap::from([
            stat(10, 1),
            stat(11, 10),
            stat(12, 11),
            stat(13, 12),
            stat(20, 21),
            stat(21, 20),
            stat(22, 21),
        ]);
        let found = roots_of(&processes, |pid| pid == 10 || pid == 12);
        let expected = [(10, 10), (11, 10), (12, 12), (13, 12)];
        assert_eq!(found, BTreeMap::from(expected));
        assert_eq!(roots_of(&processes, |pid| pid == 1).len(), 4);
    }

    #[test]
    fn a_long_chain_of_processes_is_walked_over_once() {
        const LEN: i32 = 20_000;
        // Each is the child of the one after it, so that every walk begins at the far end.
        let processes: BTreeMap<_, _> = (2..LEN).map(|pid| stat(pid, pid + 1)).collect();
        let looks = Cell::new(0);
        let found = roots_of(&processes, |pid| {
            looks.set(looks.get() + 1);
            pid == LEN
        });
        assert_eq!(found.len(), processes.len());
        assert!(looks.get() <= LEN, "{}", looks.get());
    }

    #[test]
    fn memory_is_what_a_process_shares_with_none_and_its_part_of_the_rest() {
        let dir = tempfile::tempdir().unwrap();
        let held = || super::held_by(dir.path());
        assert_eq!(held(), 0, "it has ended");
        std::fs::write(dir.path().join("statm"), "5000 900 300 10 0 400 0\n").unwrap();
        let page = u64::try_from(rustix::param::page_size()).unwrap();
        assert_eq!(held(), 600 * page);
        // As recorded of a worker that shares most of its pages with its parent.
        let rollup = "55d0c0e00000-7ffd3a5fe000 ---p 00000000 00:00 0    [rollup]\nRss:      102400 kB\nPss:       30720 kB\n\
            Pss_Dirty:  20480 kB\nPss_Anon:  18432 kB\nPss_File:  10240 kB\nPss_Shmem:  2048 kB\nSwap:       4096 kB\n\
            SwapPss:    1024 kB\nLocked:        0 kB\n";
        std::fs::write(dir.path().join("smaps_rollup"), rollup).unwrap();
        assert_eq!(held(), (18_432 + 2048 + 1024) * 1024);
    }

    #[test]
    fn this_process_runs_and_another_start_time_is_another_process() {
        let pid = i32::try_from(std::process::id()).unwrap();
        let me = ProcessId::of(pid).unwrap();
        assert!(me.is_running());
        assert!(
            !ProcessId {
                start_ticks: me.start_ticks + 1,
                ..me.clone()
            }
            .is_running()
        );
        assert!(
            !ProcessId {
                boot: "another".to_owned(),
                ..me
            }
            .is_running()
        );
    }

    #[test]
    fn a_process_that_has_ended_and_was_not_waited_for_does_not_run() {
        let mut child = std::process::Command::new("cat")
            .stdin(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let it = ProcessId::of(i32::try_from(child.id()).unwrap()).unwrap();
        assert!(it.is_running());
        drop(child.stdin.take());
        let begun = std::time::Instant::now();
        while !ProcStat::of(it.pid).unwrap().has_ended() {
            assert!(begun.elapsed() < std::time::Duration::from_secs(60));
            std::thread::park_timeout(std::time::Duration::from_millis(5));
        }
        assert!(!it.is_running());
        child.wait().unwrap();
    }
}
