//! What a launcher knows of a run that is over, beyond its exit status (added by this project).

use std::collections::BTreeMap;

use crate::value::{Shape, Value, ValueReader, ValueWriter};
use crate::{record, words};

record! {
    /// `{ran_ms, why, peak_kib, cpu_ms, output_bytes, restarts, time_used_ms, program, labels}`: figures of a run, each absent where its launcher does
    /// not know it. The key `facts` of an end, in STATS and in the frame that tells it.
    pub struct EndFacts {
        /// How long it ran, in milliseconds, from its first start to its end; time that the machine slept counts.
        ran_ms: Option<u64> as "ran_ms" unless empty,
        /// What ended it, where that was its launcher's or the kernel's doing and no command's.
        why: EndWhy as "why" unless empty,
        /// The most memory that it had at a time, in KiB.
        peak_kib: Option<u64> as "peak_kib" unless empty,
        /// Processor time of all its processes, user and kernel, in milliseconds.
        cpu_ms: Option<u64> as "cpu_ms" unless empty,
        /// Bytes that it has written to its output, kept or not.
        output_bytes: Option<u64> as "output_bytes" unless empty,
        /// How often its launcher has started it again.
        restarts: u32 as "restarts" unless empty,
        /// How much of its time limit it has used, on this node and those before, in milliseconds.
        time_used_ms: Option<u64> as "time_used_ms" unless empty,
        /// What it ran, where the scheduler was not told that before ([`crate::InstanceView`]'s `program`).
        program: String as "program" unless empty,
        /// The labels that its START gave it.
        labels: BTreeMap<String, String> as "labels" unless empty,
    }
}

words! {
    /// What ended a run, other than itself and commands.
    pub enum EndWhy {
        /// It had run for as long as it may.
        TimeLimit = "time_limit",
        /// It needed more memory than it may have.
        Oom = "oom",
    }
}

impl EndFacts {
    /// Bytes that it has on the heap.
    #[must_use]
    pub fn heap_len(&self) -> usize {
        const OF_LABEL: usize = 2 * size_of::<String>();
        let labels = self.labels.iter();
        let labels = labels.map(|(key, value)| OF_LABEL + key.len() + value.len());
        self.why.heap_len() + self.program.len() + labels.sum::<usize>()
    }
}

impl EndWhy {
    /// Bytes that it has on the heap.
    #[must_use]
    pub fn heap_len(&self) -> usize {
        match self {
            Self::Other(word) => word.len(),
            Self::TimeLimit | Self::Oom => 0,
        }
    }
}

/// In a box, because most messages that may have facts have none.
impl Value for Box<EndFacts> {
    const SHAPE: Shape = EndFacts::SHAPE;

    fn read<R: ValueReader>(reader: R) -> Result<Self, R::Error> {
        EndFacts::read(reader).map(Self::new)
    }

    fn write<W: ValueWriter>(&self, out: &mut W) {
        EndFacts::write(self, out);
    }

    fn is_empty(&self) -> bool {
        EndFacts::is_empty(self)
    }
}
