//! What a workload writes, in one file or with its standard error in another, and within one limit either way.

use std::fs::DirBuilder;
use std::io::{self, PipeWriter};
use std::os::unix::fs::DirBuilderExt;

use super::super::files::InstanceDir;
use super::output::{MAX_OUTPUT_BYTES, Output};

/// The output of one workload.
#[derive(Debug)]
pub(super) struct Outputs(Vec<Output>);

/// Where the workload is to write.
#[derive(Debug)]
pub(super) struct Pipes {
    /// Its standard output, where that is kept apart.
    pub(super) stdout: Option<PipeWriter>,
    /// Its standard error, and its standard output where both are kept together.
    pub(super) last: PipeWriter,
}

impl Outputs {
    /// Makes the files and their pipes. Two of them have half of the limit each.
    ///
    /// # Errors
    /// As [`Output::open`].
    pub(super) fn open(dir: &InstanceDir, is_split: bool) -> io::Result<(Self, Pipes)> {
        if !is_split {
            let (output, last) = Output::open(dir, MAX_OUTPUT_BYTES)?;
            let pipes = Pipes { stdout: None, last };
            return Ok((Self(vec![output]), pipes));
        }
        let errors_dir = dir.stderr();
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&errors_dir.0)?;
        let (output, stdout) = Output::open(dir, MAX_OUTPUT_BYTES / 2)?;
        let (errors, last) = Output::open(&errors_dir, MAX_OUTPUT_BYTES / 2)?;
        let stdout = Some(stdout);
        Ok((Self(vec![output, errors]), Pipes { stdout, last }))
    }

    /// As [`Output::limit`], of each.
    pub(super) fn limit(&mut self) {
        self.0.iter_mut().for_each(Output::limit);
    }

    /// As [`Output::finish`]: the bytes of all.
    pub(super) fn finish(self) -> u64 {
        let bytes = self.0.into_iter().map(Output::finish);
        bytes.fold(0, u64::saturating_add)
    }
}
