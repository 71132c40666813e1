//! `ciao-funky ps`: asks the one that listens at the socket.

use std::io::{Read as _, Write as _};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, bail};

/// Longest time without a byte of the answer.
const ANSWER_TIME: Duration = Duration::from_secs(30);

/// Longest answer, bytes: all the tasks that there may be, with some KiB each.
const MAX_ANSWER: u64 = 1 << 30;

/// Prints what there is.
pub(crate) fn run(socket: &Path, json: bool) -> anyhow::Result<()> {
    let name = socket.display();
    let mut stream = UnixStream::connect(socket)
        .with_context(|| format!("{name}: no ciao-funky listens there (-socket)"))?;
    stream.set_read_timeout(Some(ANSWER_TIME))?;
    let command: &[u8] = if json { b"Ps: json\n" } else { b"Ps:\n" };
    stream.write_all(command)?;
    stream.shutdown(Shutdown::Write)?;
    let mut answer = String::new();
    stream.take(MAX_ANSWER).read_to_string(&mut answer)?;
    if let Some(why) = answer.strip_prefix("error: ") {
        bail!("{}", why.trim_end());
    }
    match std::io::stdout().lock().write_all(answer.as_bytes()) {
        // The reader has closed its end.
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        written => Ok(written?),
    }
}
