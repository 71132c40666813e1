//! What one instance may take, in the two forms that the system enforces: files of a cgroup ([`super::cgroup`]) and
//! limits of each process.

use std::io;

use rustix::io::Errno;
use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit, setrlimit};
use serde::{Deserialize, Serialize};

/// Memory beyond `mem_mb` that a workload may have, in MiB: room for stacks, allocator and interpreter start, which
/// those who write `mem_mb` do not count.
const MEMORY_SLACK_MIB: i64 = 16;

/// Part of that memory that one stack may take: each thread of a process has one, all of which counts as data from its
/// start, used or not. With this part, some thirty threads fit into any limit; from 240 MiB on a stack may be as large as
/// it is on most systems (8 MiB).
const STACK_PART: u64 = 32;

/// Least and most bytes of a stack. A quarter of it is also what arguments and environment of a program may take.
const STACK_BYTES: std::ops::RangeInclusive<u64> = MIB..=8 * MIB;

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

impl Limits {
    /// Bytes of one stack, where memory is limited by process.
    fn stack_bytes(self) -> u64 {
        let (least, most) = STACK_BYTES.into_inner();
        (self.memory_bytes() / STACK_PART).clamp(least, most)
    }

    /// Limits the stacks of this process, and of the threads and processes that it starts (`RLIMIT_STACK`, the soft limit
    /// alone), to a part of the memory; a limit that is lower stays. For before its program begins: a program takes the
    /// size for its threads from what the limit is then.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn limit_stacks(self) -> io::Result<()> {
        let Rlimit { current, maximum } = getrlimit(Resource::Stack);
        let bytes = self.stack_bytes();
        let current = Some(current.map_or(bytes, |current| bytes.min(current)));
        Ok(setrlimit(Resource::Stack, Rlimit { current, maximum })?)
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
    fn a_stack_takes_a_part_of_the_memory_and_no_more_than_is_usual() {
        let stack = |mem_mb| Limits { mem_mb, vcpus: 1 }.stack_bytes();
        assert_eq!(stack(1), 1 << 20);
        assert_eq!(stack(64), (80 << 20) / 32);
        assert_eq!(stack(1 << 20), 8 << 20);
        for mem_mb in 16..4096 {
            let limits = Limits { mem_mb, vcpus: 1 };
            // Sixteen threads, and half of the memory for all else.
            assert!(
                limits.stack_bytes() * 16 <= limits.memory_bytes() / 2,
                "{mem_mb}"
            );
        }
    }

    #[test]
    fn memory_has_some_slack_and_does_not_overflow() {
        let bytes = |mem_mb| Limits { mem_mb, vcpus: 1 }.memory_bytes();
        assert_eq!(bytes(48), 64 << 20);
        assert_eq!(bytes(i64::MAX), u64::MAX);
        assert_eq!(bytes(-99), 0);
    }
}
