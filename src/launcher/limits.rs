//! What one instance may take, in the two forms that the system enforces: files of a cgroup ([`super::cgroup`]) and
//! limits of each process.

use std::io;

use rustix::io::Errno;
use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit};
use serde::{Deserialize, Serialize};

/// Memory beyond `mem_mb` that a workload may have, in MiB: room for stacks, allocator and interpreter start, which
/// those who write `mem_mb` do not count.
const MEMORY_SLACK_MIB: i64 = 16;

/// Bytes of a MiB.
const MIB: u64 = 1024 * 1024;

/// Time over which a cgroup's processor time is counted, in µs: the kernel's default.
const CPU_PERIOD_US: u64 = 100_000;

/// What one instance may take. Part of the launch file and of the requests to a supervisor, as JSON:
/// `{"mem_mb":256,"vcpus":1}`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Limits {
    /// Memory, in MiB.
    pub(crate) mem_mb: i64,
    /// Virtual cpus; each is the time of one processor. 0 = as many as there are.
    #[serde(default)]
    pub(crate) vcpus: i64,
}

impl Limits {
    /// Memory in bytes, with what is not counted.
    pub(crate) fn memory_bytes(self) -> u64 {
        let mib = u64::try_from(self.mem_mb.saturating_add(MEMORY_SLACK_MIB)).unwrap_or(0);
        mib.saturating_mul(MIB)
    }

    /// As `cpu.max` has it: processor time and the time over which it is counted, both in µs.
    pub(crate) fn cpu_max(self) -> String {
        match u64::try_from(self.vcpus) {
            Ok(vcpus) if vcpus > 0 => {
                format!("{} {CPU_PERIOD_US}", vcpus.saturating_mul(CPU_PERIOD_US))
            }
            _ => format!("max {CPU_PERIOD_US}"),
        }
    }

    /// Limits the data segment (`RLIMIT_DATA`) of one process, `None` = this one: heap, private writable mappings and
    /// thread stacks. Processes it starts later have the same limit.
    ///
    /// Not the address space (`RLIMIT_AS`): runtimes reserve gigabytes of it that they never touch and would not start.
    /// The soft limit only: to raise the hard one later takes a privilege (`CAP_SYS_RESOURCE`). So a program can lift
    /// it that is made to; there is nothing to gain that it could not have by starting a second process.
    ///
    /// Says whether that changed anything.
    ///
    /// # Errors
    /// The system's. A process that has ended is none.
    pub(crate) fn apply_to(self, pid: Option<Pid>) -> io::Result<bool> {
        // What this process may have at most is what those that it starts may.
        let maximum = getrlimit(Resource::Data).maximum;
        let bytes = self.memory_bytes();
        let limit = Rlimit {
            current: Some(maximum.map_or(bytes, |maximum| bytes.min(maximum))),
            maximum,
        };
        match prlimit(pid, Resource::Data, limit) {
            Ok(earlier) => Ok(earlier != limit),
            Err(Errno::SRCH) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Limits;

    #[test]
    fn a_vcpu_is_the_time_of_one_processor_and_none_is_no_limit() {
        let cpu_max = |vcpus| Limits { mem_mb: 1, vcpus }.cpu_max();
        assert_eq!(cpu_max(3), "300000 100000");
        assert_eq!(cpu_max(0), "max 100000");
    }

    #[test]
    fn memory_has_some_slack_and_does_not_overflow() {
        let bytes = |mem_mb| Limits { mem_mb, vcpus: 1 }.memory_bytes();
        assert_eq!(bytes(48), 64 << 20);
        assert_eq!(bytes(i64::MAX), u64::MAX);
        assert_eq!(bytes(-99), 0);
    }
}
