//! What is told of programs on their way to the scheduler, which ships them to nodes.

use tokio::sync::mpsc;

/// Length of the channel to the coordinator. A sender that finds it full waits.
const BACKLOG: usize = 256;

/// What became of a task's program.
#[derive(Debug)]
pub(crate) enum News {
    /// The scheduler's store of programs did not take it, for this reason, which may pass. The START was not sent.
    Refused {
        /// Number of the task.
        id: u32,
        /// The reason, for people.
        why: String,
    },
}

/// A channel to the coordinator.
pub(crate) fn channel() -> (mpsc::Sender<News>, mpsc::Receiver<News>) {
    mpsc::channel(BACKLOG)
}
