//! What each instance uses: every process below its supervisor, and the files it keeps.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Instant;

use super::agent::Usage;
use super::procfs::{ProcStat, root_of};

/// Most files that are looked at to find an instance's disk usage; with more it is unknown (-1) rather than dear.
const MAX_FILES_COUNTED: usize = 4096;

const MIB: u64 = 1024 * 1024;

/// STATS count disk in units of 10⁶ bytes, as the original does.
const DISK_UNIT: u64 = 1_000_000;

/// What a file's block count is in, whatever the file system's own blocks are (`stat(2)`).
const BLOCK_BYTES: u64 = 512;

/// Finds usage, and remembers processor times between two looks.
#[derive(Debug, Default)]
pub(crate) struct Meter {
    /// Processor ticks of each instance, by its supervisor's pid, and when they were read.
    last: BTreeMap<i32, (u64, Instant)>,
}

/// What the processes of one instance have used.
#[derive(Debug, Default, Clone, Copy)]
struct Sum {
    pages: i64,
    ticks: u64,
}

impl Meter {
    /// What the instances use whose supervisors' pids and directories these are.
    pub(crate) fn read(
        &mut self,
        instances: &BTreeMap<i32, (String, std::path::PathBuf)>,
    ) -> BTreeMap<String, Usage> {
        let now = Instant::now();
        let sums = sum_processes(&ProcStat::all(), |pid| instances.contains_key(&pid));
        let last = std::mem::take(&mut self.last);
        let usage = |(pid, (id, dir)): (&i32, &(String, std::path::PathBuf))| {
            let sum = sums.get(pid).copied().unwrap_or_default();
            self.last.insert(*pid, (sum.ticks, now));
            let cpu_percent = last.get(pid).map_or(0, |(ticks, at)| {
                percent(sum.ticks.saturating_sub(*ticks), now - *at)
            });
            (
                id.clone(),
                Usage {
                    mem_mb: pages_to_mib(sum.pages),
                    disk_mb: disk_mb(dir),
                    cpu_percent,
                },
            )
        };
        instances.iter().map(usage).collect()
    }
}

fn sum_processes(
    processes: &BTreeMap<i32, ProcStat>,
    supervises: impl Fn(i32) -> bool,
) -> BTreeMap<i32, Sum> {
    let mut sums: BTreeMap<i32, Sum> = BTreeMap::new();
    for process in processes
        .values()
        .filter(|process| !supervises(process.pid))
    {
        if let Some(root) = root_of(processes, &supervises, process.pid) {
            let sum = sums.entry(root).or_default();
            sum.pages += process.rss_pages;
            sum.ticks += process.cpu_ticks;
        }
    }
    sums
}

fn percent(ticks: u64, elapsed: std::time::Duration) -> i64 {
    let per_second = u128::from(rustix::param::clock_ticks_per_second().max(1));
    let micros = elapsed.as_micros().max(1);
    i64::try_from(u128::from(ticks) * 100 * 1_000_000 / per_second / micros).unwrap_or(i64::MAX)
}

fn pages_to_mib(pages: i64) -> i64 {
    let bytes = u64::try_from(pages)
        .unwrap_or(0)
        .saturating_mul(u64::try_from(rustix::param::page_size()).unwrap_or(4096));
    i64::try_from(bytes / MIB).unwrap_or(i64::MAX)
}

/// Disk that the files under `dir` take, in 10⁶ bytes; -1 where there are too many.
fn disk_mb(dir: &Path) -> i64 {
    use std::os::unix::fs::MetadataExt;
    let mut blocks: u64 = 0;
    let mut counted = 0;
    let mut dirs = vec![dir.to_owned()];
    while let Some(dir) = dirs.pop() {
        let Ok(entries) = fs::read_dir(&dir) else {
            continue;
        };
        for entry in entries.flatten() {
            counted += 1;
            if counted > MAX_FILES_COUNTED {
                return -1;
            }
            // Of the link itself, where it is one.
            let Ok(metadata) = entry.metadata() else {
                continue;
            };
            blocks += metadata.blocks();
            if metadata.is_dir() {
                dirs.push(entry.path());
            }
        }
    }
    i64::try_from(blocks.saturating_mul(BLOCK_BYTES) / DISK_UNIT).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::time::Duration;

    use super::super::procfs::ProcStat;
    use super::{disk_mb, percent, sum_processes};

    #[test]
    fn a_supervisors_descendants_count_and_itself_does_not() {
        let stat = |pid, ppid, rss_pages, cpu_ticks| {
            (
                pid,
                ProcStat {
                    pid,
                    state: b'S',
                    ppid,
                    cpu_ticks,
                    start_ticks: 0,
                    rss_pages,
                },
            )
        };
        let processes = BTreeMap::from([
            stat(1, 0, 9, 9),
            stat(10, 1, 100, 100),
            stat(11, 10, 5, 7),
            stat(12, 11, 6, 8),
            stat(20, 1, 50, 50),
        ]);
        let sums = sum_processes(&processes, |pid| pid == 10);
        assert_eq!(sums.len(), 1);
        assert_eq!((sums[&10].pages, sums[&10].ticks), (11, 15));
    }

    #[test]
    fn a_processor_used_all_the_time_is_a_hundred_percent() {
        let second = rustix::param::clock_ticks_per_second();
        assert_eq!(percent(2 * second, Duration::from_secs(2)), 100);
        assert_eq!(percent(second, Duration::from_secs(2)), 50);
        assert!(percent(second, Duration::ZERO) > 0);
    }

    #[test]
    fn files_in_directories_below_count_and_too_many_are_unknown() {
        let dir = tempfile::tempdir().unwrap();
        let below = dir.path().join("below");
        std::fs::create_dir(&below).unwrap();
        std::fs::write(below.join("file"), vec![1; 3 << 20]).unwrap();
        assert_eq!(disk_mb(dir.path()), 3);
        for number in 0..=super::MAX_FILES_COUNTED {
            std::fs::write(below.join(number.to_string()), "").unwrap();
        }
        assert_eq!(disk_mb(dir.path()), -1);
    }
}
