//! What `/proc` says of processes: just the fields the launcher and its supervisors need.
//!
//! A process is named by pid, start time and boot, because pids are reused. Not here: figures of the whole machine
//! ([`super::host`]).

use std::collections::BTreeMap;
use std::fs;

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

    fn parse(line: &str) -> Option<Self> {
        // The name stands in parentheses and may hold anything, also spaces and parentheses.
        let (pid, rest) = line.split_once(" (")?;
        let fields: Vec<&str> = rest.rsplit_once(") ")?.1.split_ascii_whitespace().collect();
        let number = |index: usize| fields.get(index)?.parse::<u64>().ok();
        Some(Self {
            pid: pid.parse().ok()?,
            state: *fields.first()?.as_bytes().first()?,
            ppid: fields.get(1)?.parse().ok()?,
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

    /// Whether that very process is still there (running, or ended and not waited for).
    pub(crate) fn is_there(&self) -> bool {
        Self::of(self.pid).as_ref() == Some(self)
    }
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

/// Which of `roots` a process descends from, itself included.
///
/// The walk is bounded by the number of processes, because a picture taken while parents change may hold a loop.
pub(crate) fn root_of(
    processes: &BTreeMap<i32, ProcStat>,
    roots: impl Fn(i32) -> bool,
    pid: i32,
) -> Option<i32> {
    let mut at = pid;
    for _ in 0..processes.len() {
        if roots(at) {
            return Some(at);
        }
        at = processes.get(&at)?.ppid;
    }
    None
}

/// Every process that descends from `root`, without `root`.
pub(crate) fn descendants(root: i32) -> Vec<ProcStat> {
    let processes = ProcStat::all();
    let below = |process: &&ProcStat| {
        process.pid != root && root_of(&processes, |at| at == root, process.pid).is_some()
    };
    processes.values().filter(below).copied().collect()
}

/// Every process that was started with this variable in its environment. Environments that may not be read do not
/// match.
pub(crate) fn with_environment(name: &str, value: &str) -> Vec<i32> {
    let wanted = format!("{name}={value}");
    let matches = |pid: &i32| {
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment
            .split(|byte| *byte == 0)
            .any(|variable| variable == wanted.as_bytes())
    };
    ProcStat::all().into_keys().filter(matches).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::{ProcStat, ProcessId, root_of};

    fn stat(pid: i32, ppid: i32) -> (i32, ProcStat) {
        (
            pid,
            ProcStat {
                pid,
                state: b'S',
                ppid,
                cpu_ticks: 0,
                start_ticks: 0,
                rss_pages: 0,
            },
        )
    }

    #[test]
    fn a_name_with_spaces_and_parentheses_is_no_trouble() {
        let line = "4711 (a) R (b) S 12 4711 4711 0 -1 4194304 1 2 3 4 50 7 0 0 20 0 1 0 88123 1000000 321 18446";
        let expected = ProcStat {
            pid: 4711,
            state: b'S',
            ppid: 12,
            cpu_ticks: 57,
            start_ticks: 88123,
            rss_pages: 321,
        };
        assert_eq!(ProcStat::parse(line), Some(expected));
        assert_eq!(ProcStat::parse("4711 (cut off"), None);
    }

    #[test]
    fn a_process_is_found_under_its_ancestor_and_a_loop_ends() {
        let processes = BTreeMap::from([
            stat(10, 1),
            stat(11, 10),
            stat(12, 11),
            stat(20, 21),
            stat(21, 20),
        ]);
        assert_eq!(root_of(&processes, |pid| pid == 10, 12), Some(10));
        assert_eq!(root_of(&processes, |pid| pid == 10, 20), None);
    }

    #[test]
    fn this_process_is_there_and_another_start_time_is_another_process() {
        let pid = i32::try_from(std::process::id()).unwrap();
        let me = ProcessId::of(pid).unwrap();
        assert!(me.is_there());
        assert!(
            !ProcessId {
                start_ticks: me.start_ticks + 1,
                ..me.clone()
            }
            .is_there()
        );
        assert!(
            !ProcessId {
                boot: "another".to_owned(),
                ..me
            }
            .is_there()
        );
    }
}
