//! A directory of a test that leaves nothing behind also where the test is killed: neither itself nor a process.

#![allow(dead_code, reason = "each test program uses a part of it")]
#![allow(clippy::unwrap_used, reason = "a test ends where it fails")]

use std::ops::Deref;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

/// What watches over the directory, `$1`: reads until the test has ended, however that was, then kills every process that
/// names the directory on its command line or in its environment, and those that such a process has started meanwhile.
/// Supervisors and their workloads outlive a launcher, and name its state directory.
const GUARD: &str = r#"trap '' INT TERM HUP
read -r _
for _ in 1 2 3; do
    for found in $(grep -laF -- "$1" /proc/[0-9]*/cmdline /proc/[0-9]*/environ 2>/dev/null); do
        process=${found#/proc/}
        process=${process%%/*}
        [ "$process" = $$ ] || kill -9 "$process" 2>/dev/null
    done
done
rm -rf -- "$1"
"#;

/// A temporary directory with a guard: a shell that outlives the test by the time that it takes to clean up after it.
#[derive(Debug)]
pub(crate) struct GuardedDir {
    guard: Child,
    dir: TempDir,
}

impl GuardedDir {
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut guard = Command::new("sh");
        guard.args(["-c", GUARD, "guard-of-a-test"]).arg(dir.path());
        // A group of its own: what ends the test's whole group leaves it.
        guard.process_group(0).stdin(Stdio::piped());
        let guard = guard.stdout(Stdio::null()).spawn().unwrap();
        Self { guard, dir }
    }
}

impl Deref for GuardedDir {
    type Target = TempDir;

    fn deref(&self) -> &TempDir {
        &self.dir
    }
}

impl Drop for GuardedDir {
    /// The test ends by itself, and cleans up after itself.
    fn drop(&mut self) {
        let _ = self.guard.kill();
        let _ = self.guard.wait();
    }
}
