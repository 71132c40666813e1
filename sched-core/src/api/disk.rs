//! What the core is told of the disk of its state directory, and what it says of it.

use std::fmt;
use std::time::Duration;

/// How long a START that needs the disk waits for it before it fails, unless [`crate::Config::disk_patience`] says otherwise. A
/// disk that writes at all takes milliseconds.
pub const DISK_PATIENCE: Duration = Duration::from_secs(5);

/// Whether the disk takes what is to be kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DiskState {
    /// Writes succeed.
    Writes,
    /// It does not, for this reason; what is on it can still be read at the next start.
    Refuses(Box<str>),
}

/// A time in which a disk does not answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DiskSilence {
    /// Nothing that was to be on disk came to be there for so long.
    Begun(Duration),
    /// The disk answers again.
    Over,
}

impl fmt::Display for DiskSilence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Begun(time) => write!(
                f,
                "the disk of the state directory has not answered for {time:?}: until it does, nothing is taken \
                 in that has to survive a restart"
            ),
            Self::Over => f.write_str("the disk of the state directory answers again"),
        }
    }
}
