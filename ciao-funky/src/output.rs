//! The standard output, for programs that read the lines of Funky's primary: one line for each thing that happens.
//!
//! Writing blocks while a pipe is full, and the coordinator must not. So a thread writes, from a bounded queue. A
//! reader that stands still loses lines; the log has them too.

use std::fmt::Display;
use std::io::{self, Write as _};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread;

use ciao_scheduler::printable::Printable;

/// Lines that wait for the thread; with more, new ones are dropped.
const BACKLOG: usize = 1024;

/// The queue's sending end. The thread ends when the last of these is dropped.
#[derive(Debug, Clone)]
pub(crate) struct Output {
    lines: SyncSender<Printable>,
}

impl Output {
    /// Starts the thread.
    ///
    /// # Errors
    /// The system has no thread left.
    pub(crate) fn open() -> io::Result<Self> {
        let (lines, written) = sync_channel::<Printable>(BACKLOG);
        thread::Builder::new()
            .name("output".to_owned())
            .spawn(move || {
                let mut out = io::stdout().lock();
                for line in written {
                    // A reader that is gone is no reason to end.
                    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
                }
            })?;
        Ok(Self { lines })
    }

    /// Queues a line; drops it if the queue is full. Control characters in it are made visible, for parts of it come
    /// from clients.
    pub(crate) fn line(&self, text: impl Display) {
        let _ = self.lines.try_send(Printable::new(text));
    }
}
