//! `ciao-funky ps`: sends `Ps:` to the ciao-funky that listens at the socket, and prints its reply.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, bail};

/// Longest time without a byte of the answer. The coordinator answers from memory, but after the write to disk that is
/// under way.
const ANSWER_TIME: Duration = Duration::from_secs(30);

/// Longest answer in bytes, against a process at the socket that never ends its reply. All the tasks that there may be,
/// with some KiB each, are less.
const MAX_ANSWER: u64 = 1 << 30;

/// Asks and prints. A reader of the output that closes early, as `head` does, is no error.
///
/// # Errors
/// No process listens, it is not allowed, the answer does not come in time, or it begins with `error: `.
pub(crate) fn run(socket: &Path, json: bool) -> anyhow::Result<()> {
    let name = socket.display();
    let mut stream = UnixStream::connect(socket)
        .with_context(|| format!("{name}: no ciao-funky listens there (-socket)"))?;
    stream.set_read_timeout(Some(ANSWER_TIME))?;
    let command: &[u8] = if json { b"Ps: json\n" } else { b"Ps:\n" };
    // An adapter that refuses its client answers and closes without reading: what it says is read all the same.
    let sent = stream.write_all(command);
    let sent = sent.and_then(|()| stream.shutdown(Shutdown::Write));
    let mut answer = Vec::new();
    match stream.take(MAX_ANSWER).read_to_end(&mut answer) {
        // A user who may not give commands is told so and not read from, which resets the connection.
        Err(error) if error.kind() == ErrorKind::ConnectionReset && !answer.is_empty() => {}
        read => drop(read?),
    }
    if answer.is_empty() {
        sent?;
    }
    let answer = String::from_utf8(answer).context("the answer is not UTF-8")?;
    if let Some(why) = answer.strip_prefix("error: ") {
        bail!("{}", why.trim_end());
    }
    match std::io::stdout().lock().write_all(answer.as_bytes()) {
        // The reader has closed its end.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        written => Ok(written?),
    }
}
