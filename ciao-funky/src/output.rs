//! Standard output, for those who read the original primary's: one line for each thing that happens. A reader that stands
//! still loses lines and stops nothing.

use std::fmt::Display;
use std::io::{self, Write as _};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread;

use ciao_scheduler::printable::Printable;

/// Lines that wait for the reader.
const BACKLOG: usize = 1024;

/// The way to standard output.
#[derive(Debug, Clone)]
pub(crate) struct Output {
    lines: SyncSender<Printable>,
}

impl Output {
    /// Opens it: a thread of its own writes, for writing may block.
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

    /// Writes a line, if it is read.
    pub(crate) fn line(&self, text: impl Display) {
        let _ = self.lines.try_send(Printable::new(text));
    }
}
