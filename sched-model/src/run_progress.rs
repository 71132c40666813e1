//! How far an instance is with what its START says about it while it runs: its restarts and its time, and
//! the processors that it has (added by this project).

use crate::record;
use crate::value::{Shape, Value, ValueReader, ValueWriter};

record! {
    /// `{restarts, last_exit_code, next_try_ms, time_used_ms, time_limit_ms, cpus, unpinned}`: each absent where there is nothing to say.
    /// The key `run` of an instance in STATS, and in what the scheduler says of instances.
    pub struct RunProgress {
        /// How often its launcher has started it again.
        restarts: u32 as "restarts" unless empty,
        /// Exit status of its latest run that ended, or minus the signal that ended it.
        last_exit_code: Option<i64> as "last_exit_code" unless empty,
        /// In how many milliseconds it is started again, where it waits for that.
        next_try_ms: Option<u64> as "next_try_ms" unless empty,
        /// How much of its time limit it has used, in milliseconds.
        time_used_ms: Option<u64> as "time_used_ms" unless empty,
        /// Its time limit, in milliseconds.
        time_limit_ms: Option<u64> as "time_limit_ms" unless empty,
        /// The processors that are its own, as the kernel writes them (`0-3,8`), where its launcher gives each instance its own.
        cpus: String as "cpus" unless empty,
        /// Whether its launcher does, and had not as many free as it has vcpus: it runs on all of them.
        unpinned: bool as "unpinned" unless empty,
    }
}

/// Restarts from which on an instance that waits for the next is in a crash loop, rather than one that had a bad moment.
pub const CRASH_LOOP: u32 = 3;

impl RunProgress {
    /// Whether its program ends again and again: it was started again several times, and waits for the next time.
    #[must_use]
    pub fn is_crash_loop(&self) -> bool {
        self.restarts >= CRASH_LOOP && self.next_try_ms.is_some()
    }
}

/// In a box, because most instances have none.
impl Value for Box<RunProgress> {
    const SHAPE: Shape = RunProgress::SHAPE;

    fn read<R: ValueReader>(reader: R) -> Result<Self, R::Error> {
        RunProgress::read(reader).map(Self::new)
    }

    fn write<W: ValueWriter>(&self, out: &mut W) {
        RunProgress::write(self, out);
    }

    fn is_empty(&self) -> bool {
        RunProgress::is_empty(self)
    }
}
