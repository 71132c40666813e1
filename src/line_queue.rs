//! Lines that a thread of its own writes, so that what is written to may be stopped: a terminal, a pipe that is not
//! read, a slow disk. Who has a line never waits.
//!
//! Lines wait in memory up to a limit of each queue; further ones are dropped, and a line in their place says how many.

use std::collections::VecDeque;
use std::fmt;
use std::io::{self, Write};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use tokio::sync::watch;
use tracing_subscriber::fmt::MakeWriter;

/// How long the end of a program waits for what is left to be written. What a stopped reader has not taken by then is
/// lost.
const END_DEADLINE: Duration = Duration::from_secs(1);

/// The way into a queue. The thread ends with the process, or when what it writes to panics.
#[derive(Clone)]
pub(crate) struct LineQueue(Arc<SharedLines>);

struct SharedLines {
    state: Mutex<State>,
    /// Signalled when there is something to write.
    filled: Condvar,
    /// Signalled once every line is written.
    emptied: Condvar,
    /// Most bytes that wait, each line with what it takes beside its text.
    max_bytes: usize,
}

#[derive(Default)]
struct State {
    lines: VecDeque<Line>,
    /// Of `lines`, as [`Line::cost`] counts them.
    bytes: usize,
    /// Lines dropped since the latest of `lines`.
    dropped: u64,
    /// Whether the thread has something in hand.
    is_writing: bool,
}

impl State {
    /// Whether something is left to write.
    fn is_busy(&self) -> bool {
        self.is_writing || self.dropped > 0 || !self.lines.is_empty()
    }
}

struct Line {
    text: Box<[u8]>,
    /// Lines that were dropped before this one.
    dropped_before: u64,
}

impl Line {
    fn cost(text: &[u8]) -> usize {
        text.len() + size_of::<Self>()
    }
}

impl fmt::Debug for LineQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LineQueue").finish_non_exhaustive()
    }
}

/// A queue of so many bytes at most whose thread writes to `to`; and what is closed when that thread has ended, because its sender goes with it.
///
/// # Errors
/// The system has no thread left.
pub(crate) fn line_queue(
    name: &str,
    max_bytes: usize,
    to: impl Write + Send + 'static,
) -> io::Result<(LineQueue, watch::Receiver<()>)> {
    let shared = Arc::new(SharedLines {
        state: Mutex::default(),
        filled: Condvar::new(),
        emptied: Condvar::new(),
        max_bytes,
    });
    let (lives, ended) = watch::channel(());
    let queue = LineQueue(Arc::clone(&shared));
    std::thread::Builder::new()
        .name(name.to_owned())
        .spawn(move || {
            let _lives = lives;
            shared.write_to(to)
        })?;
    Ok((queue, ended))
}

impl LineQueue {
    /// Waits until all is written, a second at most.
    pub(crate) fn drain(&self) {
        let mut state = self.0.state.lock();
        let emptied = &self.0.emptied;
        emptied.wait_while_for(&mut state, |state| state.is_busy(), END_DEADLINE);
    }
}

impl Write for LineQueue {
    /// Takes a whole line. Never fails, and never waits for what it is written to.
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        let mut state = self.0.state.lock();
        if state.bytes + Line::cost(text) > self.0.max_bytes {
            state.dropped += 1;
        } else {
            let dropped_before = std::mem::take(&mut state.dropped);
            state.bytes += Line::cost(text);
            state.lines.push_back(Line {
                text: text.into(),
                dropped_before,
            });
        }
        self.0.filled.notify_one();
        Ok(text.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for LineQueue {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

impl SharedLines {
    /// The work of the thread. A line that cannot be written, as to a full disk, is counted like one that was dropped.
    fn write_to(&self, mut to: impl Write) -> ! {
        let mut missing = 0;
        loop {
            let line = self.next();
            missing += line.dropped_before;
            if missing > 0 && report(&mut to, missing).is_ok() {
                missing = 0;
            }
            if to.write_all(&line.text).and_then(|()| to.flush()).is_err() {
                missing += 1;
            }
        }
    }

    /// The next line, once there is one; after the last of them, one without text that says how many were dropped behind
    /// it.
    fn next(&self) -> Line {
        let mut state = self.state.lock();
        loop {
            if let Some(line) = state.lines.pop_front() {
                state.bytes -= Line::cost(&line.text);
                state.is_writing = true;
                return line;
            }
            if state.dropped > 0 {
                state.is_writing = true;
                return Line {
                    text: Box::default(),
                    dropped_before: std::mem::take(&mut state.dropped),
                };
            }
            state.is_writing = false;
            self.emptied.notify_all();
            self.filled.wait(&mut state);
        }
    }
}

/// Writes how many lines are missing, as a line of the log.
fn report(to: &mut impl Write, missing: u64) -> io::Result<()> {
    let now = jiff::Timestamp::now();
    writeln!(
        to,
        "{now:.6}  WARN ciao_scheduler::logging: event=log_lines_dropped {missing} lines of this log are missing here: \
         they could not be written, or not as fast as they came"
    )
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    const MAX_BYTES: usize = 4096;

    /// What is written only while the test lets it.
    struct Stopped(mpsc::Receiver<()>, Arc<Mutex<Vec<u8>>>);

    impl Write for Stopped {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let _ = self.0.recv();
            self.1.lock().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// Waits for as long as it takes, unlike the end of a program.
    fn wait_for_all(queue: &LineQueue) {
        let mut state = queue.0.state.lock();
        let emptied = &queue.0.emptied;
        emptied.wait_while(&mut state, |state| state.is_busy());
    }

    #[test]
    fn lines_that_cannot_be_taken_are_counted_where_they_are_missing() {
        const TOO_MANY: u64 = 5;
        let (go_on, stopped) = mpsc::channel();
        let written = Arc::<Mutex<Vec<u8>>>::default();
        let stopped = Stopped(stopped, Arc::clone(&written));
        let (mut queue, _) = line_queue("test", MAX_BYTES, stopped).unwrap();
        let dropped = |queue: &LineQueue| queue.0.state.lock().dropped;
        let mut lines = 1;
        queue.write_all(b"before\n").unwrap();
        // Until the thread has it in hand, and takes no more out of the queue.
        while !queue.0.state.lock().lines.is_empty() {
            std::thread::yield_now();
        }
        while dropped(&queue) < TOO_MANY {
            queue.write_all(b"before\n").unwrap();
            lines += 1;
        }
        assert!(queue.0.state.lock().bytes <= MAX_BYTES);
        queue.drain(); // it is stopped: given up after a while
        drop(go_on);
        wait_for_all(&queue);
        queue.write_all(b"after\n").unwrap();
        wait_for_all(&queue);
        let text = String::from_utf8(written.lock().clone()).unwrap();
        assert_eq!(text.matches("before\n").count() as u64, lines - TOO_MANY);
        let (before, after) = text.split_once("event=log_lines_dropped 5 lines").unwrap();
        assert!(before.contains("before\n") && !after.contains("before\n"));
        assert!(after.ends_with("\nafter\n"));
        assert!(!after.contains("log_lines_dropped"), "told once");
    }

    /// A disk that is full for the first lines.
    struct Full(usize, Arc<Mutex<Vec<u8>>>);

    impl Write for Full {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            match self.0.checked_sub(1) {
                Some(left) => {
                    self.0 = left;
                    Err(io::ErrorKind::StorageFull.into())
                }
                None => self.1.lock().write(bytes),
            }
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn lines_that_could_not_be_written_are_counted_once_it_is_possible_again() {
        let written = Arc::<Mutex<Vec<u8>>>::default();
        // Of the second, what says that the first is missing fails as well.
        let (mut queue, _) = line_queue("test", MAX_BYTES, Full(3, Arc::clone(&written))).unwrap();
        for line in ["first\n", "second\n", "third\n"] {
            queue.write_all(line.as_bytes()).unwrap();
            wait_for_all(&queue);
        }
        let text = String::from_utf8(written.lock().clone()).unwrap();
        assert!(text.contains("event=log_lines_dropped 2 lines"), "{text}");
        assert!(text.ends_with("\nthird\n"), "{text}");
        assert!(!text.contains("first"), "{text}");
        queue.write_all(&[b'a'; MAX_BYTES]).unwrap();
        wait_for_all(&queue);
        let text = String::from_utf8(written.lock().clone()).unwrap();
        assert!(text.contains("event=log_lines_dropped 1 lines"), "{text}");
    }
}
