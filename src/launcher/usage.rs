//! What each instance uses: memory and processor time of every process below its supervisor, and disk of the files it
//! keeps.
//!
//! Processes are read from `/proc` at each sample ([`Meter`]). Disk is measured by other threads in rounds and only
//! looked up here ([`Disks`]), because the time that takes is up to the workloads.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use parking_lot::Mutex;

use super::agent::Usage;
use super::procfs::{ProcStat, roots_of};

/// Most files that are looked at to find an instance's disk usage; with more it is unknown (-1) rather than dear.
const MAX_FILES_COUNTED: usize = 4096;

/// Files after which a round over all instances stops, to go on with the others in the next: some hundred milliseconds
/// of work. An instance that is looked at is looked at to its end, so a round may take as many more as one may have.
const MAX_FILES_PER_ROUND: usize = 16 * MAX_FILES_COUNTED;

/// Bytes of a MiB.
const MIB: u64 = 1024 * 1024;

/// What a figure says that could not be found out.
const UNKNOWN: i64 = -1;

/// STATS count disk in units of 10⁶ bytes, as the original does.
pub(super) const DISK_UNIT: u64 = 1_000_000;

/// The sum of the figures that are known: [`UNKNOWN`] ones count as nothing.
pub(super) fn sum_known(figures: impl Iterator<Item = i64>) -> i64 {
    figures.fold(0, |sum, figure| sum.saturating_add(figure.max(0)))
}

/// What a file's block count is in, whatever the file system's own blocks are (`stat(2)`).
const BLOCK_BYTES: u64 = 512;

/// Finds usage, and remembers processor times between two looks.
#[derive(Debug, Default)]
pub(crate) struct Meter {
    /// Processor ticks of each instance, by its supervisor's pid, and when they were read.
    last: BTreeMap<i32, (u64, Instant)>,
}

/// What the processes of one instance use together.
#[derive(Debug, Default, Clone, Copy)]
struct Sum {
    /// Resident memory, in pages; memory that processes share counts for each.
    pages: i64,
    /// Processor time in clock ticks, of user and system.
    ticks: u64,
}

impl Meter {
    /// What the instances use, by instance id. `instances` are ids and directories by the pid of the supervisor.
    /// Processor time is 0 in an instance's first sample, for there is nothing to compare it with.
    pub(crate) fn read(
        &mut self,
        instances: &BTreeMap<i32, (String, PathBuf)>,
        disks: &Disks,
    ) -> BTreeMap<String, Usage> {
        let now = Instant::now();
        let sums = sum_processes(&ProcStat::all(), |pid| instances.contains_key(&pid));
        let last = std::mem::take(&mut self.last);
        let usage = |(pid, (id, dir)): (&i32, &(String, PathBuf))| {
            let sum = sums.get(pid).copied().unwrap_or_default();
            self.last.insert(*pid, (sum.ticks, now));
            let cpu_percent = last.get(pid).map_or(0, |(ticks, at)| {
                percent(sum.ticks.saturating_sub(*ticks), now - *at)
            });
            (
                id.clone(),
                Usage {
                    mem_mb: pages_to_mib(sum.pages),
                    disk_mb: disks.of(dir),
                    cpu_percent,
                },
            )
        };
        instances.iter().map(usage).collect()
    }
}

/// Sums for each supervisor over all processes that descend from it, itself excluded.
fn sum_processes(
    processes: &BTreeMap<i32, ProcStat>,
    supervises: impl Fn(i32) -> bool,
) -> BTreeMap<i32, Sum> {
    let mut sums: BTreeMap<i32, Sum> = BTreeMap::new();
    for (pid, root) in roots_of(processes, supervises) {
        if pid != root {
            let sum = sums.entry(root).or_default();
            sum.pages += processes[&pid].rss_pages;
            sum.ticks += processes[&pid].cpu_ticks;
        }
    }
    sums
}

/// Ticks within a time as percent of one processor.
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

/// Disk that instances use, as it was found out last. To find it out takes as long as workloads and their file systems
/// make it take, so that no task waits for it.
#[derive(Debug, Default)]
pub(crate) struct Disks {
    /// In 10⁶ bytes, by directory.
    known: Mutex<BTreeMap<PathBuf, i64>>,
    /// The directory that was looked at last; held while a round is under way.
    last: Mutex<PathBuf>,
}

impl Disks {
    /// Disk that the files under `dir` take, in 10⁶ bytes; [`UNKNOWN`] where that has not been found out.
    fn of(&self, dir: &Path) -> i64 {
        self.known.lock().get(dir).copied().unwrap_or(UNKNOWN)
    }

    /// Looks at these directories, or at as many as one round allows, the others first in the next. Does nothing while
    /// another round is under way.
    pub(crate) fn measure(&self, mut dirs: Vec<PathBuf>) {
        let Some(mut last) = self.last.try_lock() else {
            return;
        };
        dirs.sort_unstable();
        self.known
            .lock()
            .retain(|dir, _| dirs.binary_search(dir).is_ok());
        let after = dirs.partition_point(|dir| *dir <= *last);
        dirs.rotate_left(after);
        let mut left = MAX_FILES_PER_ROUND;
        for dir in dirs {
            let (mb, counted) = disk_mb(&dir);
            last.clone_from(&dir);
            self.known.lock().insert(dir, mb);
            left = left.saturating_sub(counted);
            if left == 0 {
                return;
            }
        }
    }
}

/// Disk that the files under `dir` take, in 10⁶ bytes, [`UNKNOWN`] where there are too many; and how many there are, or
/// were looked at.
fn disk_mb(dir: &Path) -> (i64, usize) {
    let (bytes, counted) = disk_bytes(dir);
    let mb = bytes.map(|bytes| i64::try_from(bytes / DISK_UNIT).unwrap_or(i64::MAX));
    (mb.unwrap_or(UNKNOWN), counted)
}

/// Bytes of disk that a file takes, or the files under a directory, `None` where there are too many; and how many there
/// are, or were looked at.
pub(super) fn disk_bytes(path: &Path) -> (Option<u64>, usize) {
    use std::os::unix::fs::MetadataExt;
    let mut blocks = match fs::symlink_metadata(path) {
        Ok(file) if file.is_file() => file.blocks(),
        _ => 0,
    };
    let mut counted = 0;
    let mut dirs = vec![path.to_owned()];
    while let Some(dir) = dirs.pop() {
        let Ok(entries) = fs::read_dir(&dir) else {
            continue;
        };
        for entry in entries.flatten() {
            counted += 1;
            if counted > MAX_FILES_COUNTED {
                return (None, counted);
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
    (Some(blocks.saturating_mul(BLOCK_BYTES)), counted)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::time::Duration;

    use super::super::procfs::ProcStat;
    use super::{Disks, MAX_FILES_COUNTED, MAX_FILES_PER_ROUND, PathBuf, UNKNOWN};
    use super::{disk_mb, percent, sum_known, sum_processes};

    #[test]
    fn what_is_not_known_takes_nothing_from_a_sum() {
        assert_eq!(sum_known([40, UNKNOWN, 2].into_iter()), 42);
        assert_eq!(sum_known([i64::MAX, 1].into_iter()), i64::MAX);
    }

    #[test]
    fn a_supervisors_descendants_count_and_itself_does_not() {
        let stat = |pid, ppid, rss_pages, cpu_ticks| {
            let used = ProcStat {
                cpu_ticks,
                rss_pages,
                ..ProcStat::sleeping(pid, ppid)
            };
            (pid, used)
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
        assert_eq!(disk_mb(dir.path()), (3, 2));
        for number in 0..=MAX_FILES_COUNTED {
            std::fs::write(below.join(number.to_string()), "").unwrap();
        }
        assert_eq!(disk_mb(dir.path()).0, -1);
    }

    #[test]
    fn a_round_ends_at_its_limit_and_the_next_one_goes_on_where_it_did() {
        let root = tempfile::tempdir().unwrap();
        // Each has as many files as one may have, so that a round comes as far as this.
        let fits = MAX_FILES_PER_ROUND / MAX_FILES_COUNTED;
        let full = root.path().join("full");
        std::fs::create_dir(&full).unwrap();
        for number in 0..MAX_FILES_COUNTED {
            std::fs::write(full.join(number.to_string()), "").unwrap();
        }
        let dirs: Vec<PathBuf> = (0..fits + 2)
            .map(|number| root.path().join(format!("{number:02}")))
            .collect();
        for dir in &dirs {
            std::os::unix::fs::symlink(&full, dir).unwrap();
        }
        let disks = Disks::default();
        let known = || dirs.iter().filter(|dir| disks.of(dir) != UNKNOWN).count();
        disks.measure(dirs.clone());
        assert_eq!(known(), fits);
        disks.measure(dirs.clone());
        assert_eq!(known(), dirs.len());
        disks.measure(Vec::new());
        assert_eq!(known(), 0);
    }
}
