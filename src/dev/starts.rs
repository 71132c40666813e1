//! `--start FILE…`: submitted at once, each followed to its end.
//!
//! The client is one of `ciaoctl`'s, and so are the lines: see [`crate::ctl::track`].

use std::io::Write;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::time::Duration;

use proto_frames::Uuid;

use super::cluster::Cluster;
use crate::ctl::commands::start;
use crate::ctl::commands::wait::News;
use crate::ctl::exit::Exit;
use crate::ctl::start_file::{StartFile, StartFileError, StartRequest};
use crate::ctl::track::{Tracked, Until};
use crate::printable::Printable;

/// Bytes of an instance's output that are shown; the rest is in its file.
///
/// A workload that writes without end must not fill the terminal.
const MAX_SHOWN: u64 = 64 * 1024;

/// Reads START files; every instance gets a UUID.
///
/// Before the cluster is up: an unusable file ends the program at once. What does not do what it seems to is warned of on
/// standard error.
pub(super) fn read(
    files: &[PathBuf],
    count: NonZeroU32,
) -> Result<Vec<StartRequest>, StartFileError> {
    let mut requests = Vec::new();
    for file in files {
        let file = StartFile::read(file)?;
        // With standard error gone, warnings have no reader.
        let _ = write!(std::io::stderr(), "{}", file.warning_lines());
        file.check_program()?;
        requests.extend(file.requests(count.get(), || Uuid::new_v4().to_string())?);
    }
    Ok(requests)
}

/// Submits them, prints a line for each step of each, and in the end what each has written.
///
/// Returns the exit code that `ciaoctl start --wait` would have. Output is read from the launchers' files on this
/// machine.
pub(super) async fn follow(
    cluster: &Cluster,
    requests: &[StartRequest],
    patience: Duration,
    out: &mut dyn Write,
) -> anyhow::Result<Exit> {
    let mut client = cluster.client().await?;
    let tracker = start::follow(
        &mut client,
        requests,
        Until::Exited,
        patience,
        None,
        &mut |news| match news {
            News::Changed(tracked) => writeln!(out, "{}", tracked.line()),
            News::Connection(text) => writeln!(out, "{}", Printable::new(text)),
        },
    )
    .await?;
    // Out of time: these go on as long as the cluster does.
    for tracked in tracker.open() {
        writeln!(out, "{}; gave up waiting", tracked.line())?;
    }
    for tracked in tracker.all() {
        show_output(cluster, tracked, out)?;
    }
    Ok(tracker.exit())
}

/// Nothing for an instance that was never placed. A file that cannot be read is a line of its own, not an error.
fn show_output(cluster: &Cluster, tracked: &Tracked, out: &mut dyn Write) -> std::io::Result<()> {
    let Some((_, hostname)) = &tracked.node else {
        return Ok(());
    };
    let path = cluster.output(hostname, &tracked.instance_uuid);
    let header = format_args!("--- output of {} on {hostname}:", tracked.instance_uuid);
    writeln!(out, "{}", Printable::new(header))?;
    // The bytes as the workload wrote them, as if it had been run in this terminal: they are this user's own START
    // files, run on this machine.
    copy(&path, out).or_else(|error| {
        let line = format_args!("(cannot read {}: {error})", path.display());
        writeln!(out, "{}", Printable::new(line))
    })
}

/// At most [`MAX_SHOWN`] bytes, and a line that says how many were left out.
fn copy(path: &Path, out: &mut dyn Write) -> std::io::Result<()> {
    use std::io::Read as _;
    let file = std::fs::File::open(path)?;
    let len = file.metadata()?.len();
    std::io::copy(&mut file.take(MAX_SHOWN), out)?;
    if len > MAX_SHOWN {
        writeln!(
            out,
            "… and {} bytes more in {}",
            len - MAX_SHOWN,
            path.display()
        )?;
    }
    Ok(())
}
