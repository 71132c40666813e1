//! What a process costs, as `/proc` says: CPU time and resident memory of the server under load, and of this one.
//!
//! Linux only, like the rest of the project. Nothing here needs rights for processes of the same user.

use std::fs;
use std::path::PathBuf;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::load::error::LoadError;

/// Clock ticks per second in `/proc/PID/stat`; 100 on every Linux that Rust runs on (`USER_HZ`).
const TICKS_PER_S: f64 = 100.0;

/// Files that a generator or a scheduler has open beside one per launcher: the driving connection, and 64 for standard
/// streams, listeners, logs and the runtime's own, which is what the scheduler keeps back for such.
const SPARE_FILES: u64 = 65;

/// Figures of one process at one moment.
///
/// Two readings are subtracted, see [`Usage::cpu_s_since`].
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Usage {
    /// Run time of the threads it has now, in seconds, to the nanosecond.
    pub threads_s: f64,
    /// User and system time of all threads it ever had, in seconds, in steps of 10 ms.
    pub ticks_s: f64,
    /// Resident memory, in KiB.
    pub rss_kib: u64,
    /// Largest resident memory so far, in KiB.
    pub rss_peak_kib: u64,
}

impl Usage {
    /// CPU time between an earlier moment and this one, in seconds.
    ///
    /// The threads' figure is exact but loses what ended threads had taken; then the ticks, coarse but whole, are
    /// better.
    ///
    /// Two ticks of difference are taken for rounding.
    #[must_use]
    pub fn cpu_s_since(&self, earlier: &Self) -> f64 {
        let (exact, coarse) = (
            self.threads_s - earlier.threads_s,
            self.ticks_s - earlier.ticks_s,
        );
        if exact < coarse - 2.0 / TICKS_PER_S {
            coarse
        } else {
            exact.max(0.0)
        }
    }
}

/// Reads the figures of process `pid`; `None` if there is no such process or it may not be looked at.
///
/// Threads that end between the reads are left out.
#[must_use]
pub fn usage(pid: u32) -> Option<Usage> {
    let directory = PathBuf::from(format!("/proc/{pid}"));
    let stat = fs::read_to_string(directory.join("stat")).ok()?;
    let status = fs::read_to_string(directory.join("status")).ok()?;
    let threads = fs::read_dir(directory.join("task")).ok()?;
    let ns: u64 = threads
        .filter_map(|thread| fs::read_to_string(thread.ok()?.path().join("schedstat")).ok())
        .filter_map(|text| text.split_whitespace().next()?.parse::<u64>().ok())
        .sum();
    #[expect(
        clippy::cast_precision_loss,
        reason = "a double holds 104 days of nanoseconds exactly"
    )]
    let threads_s = ns as f64 / 1e9;
    Some(Usage {
        threads_s,
        ticks_s: cpu_of_stat(&stat)?,
        rss_kib: kib_of_status(&status, "VmRSS:")?,
        rss_peak_kib: kib_of_status(&status, "VmHWM:")?,
    })
}

/// Raises this process's soft limit of open files so that so many launchers fit, and looks whether they fit the
/// scheduler's, if its process is known.
///
/// The scheduler's limit is only looked at: it is raised by its own service manager or shell.
///
/// # Errors
/// [`LoadError::OpenFiles`] where a limit is too low and cannot be raised from here.
pub fn allow_launchers(launchers: u64, scheduler: Option<u32>) -> Result<(), LoadError> {
    let needed = launchers + SPARE_FILES;
    let too_low = |whose, limit: u64| LoadError::OpenFiles {
        launchers,
        needed,
        whose,
        limit,
        possible: limit.saturating_sub(SPARE_FILES),
    };
    raise_open_files(needed).map_err(|limit| too_low("this process's", limit))?;
    match scheduler.and_then(open_files_of) {
        Some(limit) if limit < needed => Err(too_low("the scheduler's", limit)),
        _ => Ok(()),
    }
}

/// Raises the soft limit of open files to `wanted`; `Err` is the limit there is where that cannot be done.
fn raise_open_files(wanted: u64) -> Result<(), u64> {
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_none_or(|current| current >= wanted) {
        return Ok(());
    }
    let maximum = limit.maximum.map_or(wanted, |maximum| maximum.max(wanted));
    // Only root may raise the hard limit; without that, as far as it goes.
    let raised = Rlimit {
        current: Some(wanted),
        maximum: limit.maximum.map(|_| maximum),
    };
    if setrlimit(Resource::Nofile, raised).is_ok() {
        return Ok(());
    }
    let available = limit.maximum.unwrap_or(wanted).min(wanted);
    let reached = setrlimit(
        Resource::Nofile,
        Rlimit {
            current: Some(available),
            maximum: limit.maximum,
        },
    );
    if reached.is_ok() && available >= wanted {
        Ok(())
    } else {
        Err(available)
    }
}

/// How many files process `pid` may have open now; `None` where that is not known or there is no limit.
fn open_files_of(pid: u32) -> Option<u64> {
    let limits = fs::read_to_string(format!("/proc/{pid}/limits")).ok()?;
    open_files_in(&limits)
}

/// The soft limit, which is the first number of the line.
fn open_files_in(limits: &str) -> Option<u64> {
    let line = limits
        .lines()
        .find_map(|line| line.strip_prefix("Max open files"))?;
    line.split_whitespace().next()?.parse().ok()
}

/// User and system time in `/proc/PID/stat`, in seconds. The name in parentheses may hold anything.
///
/// Fields 14 and 15 of `proc(5)`; counting starts behind the name, which is field 2.
fn cpu_of_stat(stat: &str) -> Option<f64> {
    let behind_name = &stat[stat.rfind(')')? + 1..];
    let mut fields = behind_name.split_whitespace().skip(11);
    let user: f64 = fields.next()?.parse().ok()?;
    let system: f64 = fields.next()?.parse().ok()?;
    Some((user + system) / TICKS_PER_S)
}

/// For lines such as `VmRSS:      5120 kB`.
fn kib_of_status(status: &str, key: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(key))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::{Usage, allow_launchers, cpu_of_stat, kib_of_status, open_files_in, usage};

    #[test]
    fn reads_a_stat_line_whose_name_has_spaces_and_parentheses() {
        let stat = "7 (a) b (c)) S 1 7 7 0 -1 4194560 100 0 0 0 150 50 0 0 20 0 3 0 99 0 0";
        assert_eq!(cpu_of_stat(stat), Some(2.0));
        assert_eq!(cpu_of_stat("7 (short) S 1"), None);
    }

    #[test]
    fn cpu_time_is_exact_while_no_thread_ends_and_whole_when_one_does() {
        let at = |threads_s, ticks_s| Usage {
            threads_s,
            ticks_s,
            ..Usage::default()
        };
        let close = |a: f64, b: f64| assert!((a - b).abs() < 1e-9, "{a} is not {b}");
        close(at(1.0042, 1.01).cpu_s_since(&at(1.0, 1.0)), 0.0042);
        close(at(0.2, 3.0).cpu_s_since(&at(1.0, 2.0)), 1.0);
        close(at(0.99, 1.0).cpu_s_since(&at(1.0, 1.0)), 0.0);
    }

    #[test]
    fn reads_kib_of_a_status_file() {
        assert_eq!(
            kib_of_status("Name:\tx\nVmHWM:\t  2048 kB\nVmRSS:\t  1024 kB\n", "VmRSS:"),
            Some(1024)
        );
        assert_eq!(kib_of_status("Name:\tx\n", "VmRSS:"), None);
    }

    #[test]
    fn knows_this_process_and_not_one_that_cannot_be() {
        let own = usage(std::process::id()).unwrap();
        assert!(own.rss_kib > 0 && own.rss_peak_kib >= own.rss_kib);
        assert_eq!(usage(u32::MAX), None);
    }

    #[test]
    fn a_modest_number_of_launchers_is_always_allowed() {
        assert!(allow_launchers(16, Some(std::process::id())).is_ok());
        assert!(allow_launchers(16, Some(u32::MAX)).is_ok());
    }

    #[test]
    fn a_limit_of_open_files_that_is_too_low_is_told_with_what_would_fit() {
        let launchers = 1 << 40; // beyond what any kernel opens
        let error = allow_launchers(launchers, None).unwrap_err().to_string();
        for said in [
            "1099511627776 launchers",
            "this process's hard limit",
            "ulimit -n",
            "launchers at most",
        ] {
            assert!(error.contains(said), "{error}");
        }
    }

    #[test]
    fn reads_the_soft_limit_of_open_files() {
        let limits = "Limit  Soft Limit  Hard Limit  Units\nMax open files            1024                 20000   files\n";
        assert_eq!(open_files_in(limits), Some(1024));
        assert_eq!(
            open_files_in("Max open files unlimited unlimited files"),
            None
        );
        assert_eq!(open_files_in(""), None);
    }
}
