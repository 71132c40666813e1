//! ReadOutput and Output: what a workload wrote, fetched from its node a chunk at a time; DeleteOutput: what it left there
//! is deleted (added by this project).

use crate::{record, words};

/// Bytes of output in one answer at most: a client asks for the next once it has written the last, so that this is all that
/// one reader makes anybody hold.
pub const MAX_OUTPUT_CHUNK: usize = 64 * 1024;

/// Bytes of the path of a file: as many as Linux takes (`PATH_MAX`).
pub const MAX_PATH_LEN: usize = 4096;

/// Lines that may be asked for with `tail`.
pub const MAX_TAIL_LINES: u64 = 100_000;

record! {
    /// `read_output: {id, read, instance_uuid, run, offset, tail, follow, stream, file, after}`: from who reads to the
    /// scheduler, and from there to the launcher of the node that has the output, or had the instance last.
    pub struct ReadOutput {
        /// The number by which the reader knows the answer.
        id: u64 as "id",
        /// The scheduler's own number, by which it knows the answer; readers leave it out.
        read: u64 as "read" unless empty,
        /// The instance.
        instance_uuid: String as "instance_uuid",
        /// Which of its runs on the node, as an earlier answer said; 0 = the latest.
        run: u64 as "run" unless empty,
        /// Where to begin, in bytes from the first that the run wrote.
        offset: Option<u64> as "offset" unless empty,
        /// Begin with so many of the last lines; counts over `offset`.
        tail: Option<u64> as "tail" unless empty,
        /// Whether to wait a while for more where there is none yet.
        follow: bool as "follow" unless empty,
        /// Which stream, of a run that has them apart; empty for the first of them, or for both in one.
        stream: OutputStream as "stream" unless empty,
        /// Not the output but a file of the run's working directory, by its path there; a directory is answered with the
        /// list of what is in it, a line of JSON for each entry, and `.` is the working directory itself.
        file: String as "file" unless empty,
        /// Of such a list, what comes behind this name.
        after: String as "after" unless empty,
    }
}

record! {
    /// `delete_output: {id, read, instance_uuid, node_uuid}`: what an instance that is over has left on its node is to be deleted: its
    /// output and its working directory, of all its runs there. From who asks to the scheduler, and from there to the
    /// launcher. Answered with an [`OutputPart`] that says how much that was, or why nothing was deleted.
    pub struct DeleteOutput {
        /// The number by which who asks knows the answer.
        id: u64 as "id",
        /// The scheduler's own number, by which it knows the answer.
        read: u64 as "read" unless empty,
        /// The instance.
        instance_uuid: String as "instance_uuid",
        /// On which node; empty for the one that has its latest output.
        node_uuid: String as "node_uuid" unless empty,
    }
}

words! {
    /// One of the streams that a workload writes.
    pub enum OutputStream {
        /// Standard output.
        Stdout = "stdout",
        /// Standard error.
        Stderr = "stderr",
    }
}

record! {
    /// `output: {id, read, instance_uuid, run, offset, bytes, total, skipped, truncated, ended, stream, split, file, deleted,
    /// failure, detail}`: from a launcher to the scheduler, and from there to who reads. The output itself follows the
    /// document.
    pub struct OutputPart {
        /// The reader's number.
        id: u64 as "id",
        /// The scheduler's number; 0 where it answers itself.
        read: u64 as "read" unless empty,
        /// The instance.
        instance_uuid: String as "instance_uuid",
        /// Which of its runs on the node this is of.
        run: u64 as "run" unless empty,
        /// Where these bytes begin, from the first that the run wrote.
        offset: u64 as "offset" unless empty,
        /// How many bytes follow the document.
        bytes: u64 as "bytes" unless empty,
        /// How many the run has written by now.
        total: u64 as "total" unless empty,
        /// Bytes before these that were asked for and are not kept any more.
        skipped: u64 as "skipped" unless empty,
        /// Whether the workload has cut its output itself, so that offsets begin again.
        truncated: bool as "truncated" unless empty,
        /// Whether the run is over and these are its last bytes.
        ended: bool as "ended" unless empty,
        /// The stream that was asked for. Launchers that know none leave it out, and answer with both in one.
        stream: OutputStream as "stream" unless empty,
        /// Whether the run has its streams apart: what is not of the other one is all that these bytes are of.
        split: bool as "split" unless empty,
        /// The file that was asked for. Launchers that serve none leave it out, and answer with output.
        file: String as "file" unless empty,
        /// How many runs were deleted, as the answer to a DeleteOutput.
        deleted: Option<u64> as "deleted" unless empty,
        /// Why there is none; empty where there is.
        failure: OutputFailure as "failure" unless empty,
        /// More about that, for people.
        detail: String as "detail" unless empty,
    }
}

words! {
    /// Why output cannot be read.
    pub enum OutputFailure {
        /// There is no such instance, nor was recently.
        NoInstance = "no_instance",
        /// It has not begun on any node.
        NeverBegan = "never_began",
        /// It is not kept, or not any more.
        NotKept = "not_kept",
        /// The node's launcher cannot be asked for it.
        NotSupported = "not_supported",
        /// The node is not connected.
        NodeLost = "node_lost",
        /// As much is read as may be at a time.
        Busy = "busy",
        /// The node's launcher did not answer in time.
        Timeout = "timeout",
        /// The launcher could not read it.
        Failed = "failed",
        /// There is no such file.
        NoFile = "no_file",
        /// The instance is not over, so that nothing of it is deleted, and no file of it served.
        NotOver = "not_over",
        /// It is not for who asks.
        NotPermitted = "not_permitted",
    }
}

impl ReadOutput {
    /// The answer that there is none, and why.
    #[must_use]
    pub fn fail(&self, failure: OutputFailure, detail: impl Into<String>) -> OutputPart {
        OutputPart {
            id: self.id,
            read: self.read,
            instance_uuid: self.instance_uuid.clone(),
            run: self.run,
            stream: self.stream.clone(),
            file: self.file.clone(),
            failure,
            detail: detail.into(),
            ..OutputPart::default()
        }
    }
}

impl DeleteOutput {
    /// The read that is answered alike.
    #[must_use]
    pub fn as_read(&self) -> ReadOutput {
        ReadOutput {
            id: self.id,
            read: self.read,
            instance_uuid: self.instance_uuid.clone(),
            ..ReadOutput::default()
        }
    }
}

impl OutputPart {
    /// Whether it says why there is no output, rather than some.
    #[must_use]
    pub fn is_failure(&self) -> bool {
        !self.failure.as_str().is_empty()
    }

    /// Where the next bytes begin.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.offset.saturating_add(self.bytes)
    }
}
