//! What a process costs, as `/proc` says: CPU time and resident memory of the server under load, and of this one.

use std::fs;
use std::path::PathBuf;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Clock ticks per second in `/proc/PID/stat`; 100 on every Linux that Rust runs on (`USER_HZ`).
const TICKS_PER_S: f64 = 100.0;

/// File descriptors this process needs beside one per connection.
const SPARE_FILES: u64 = 256;

/// Figures of one process at one moment.
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
    /// The threads' figure is exact but loses what ended threads had taken; then the ticks, coarse but whole, are better.
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

/// Raises the soft limit of open files so that `connections` fit; `Err` is the hard limit where it is too low.
///
/// # Errors
/// The limit there is, if it cannot be raised far enough.
pub fn allow_connections(connections: u64) -> Result<(), u64> {
    let wanted = connections + SPARE_FILES;
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

/// User and system time in `/proc/PID/stat`, in seconds. The name in parentheses may hold anything.
fn cpu_of_stat(stat: &str) -> Option<f64> {
    let behind_name = &stat[stat.rfind(')')? + 1..];
    let mut fields = behind_name.split_whitespace().skip(11);
    let user: f64 = fields.next()?.parse().ok()?;
    let system: f64 = fields.next()?.parse().ok()?;
    Some((user + system) / TICKS_PER_S)
}

fn kib_of_status(status: &str, key: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(key))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::{Usage, allow_connections, cpu_of_stat, kib_of_status, usage};

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
    fn a_modest_number_of_connections_is_always_allowed() {
        assert_eq!(allow_connections(16), Ok(()));
    }
}
