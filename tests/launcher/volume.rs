//! A small file system for a test, in a mount namespace of its own: it needs no privilege where user namespaces are allowed,
//! and is gone with the last process in it.

use std::fs::{self, File};
use std::io::{ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Mounts, says so, and stays until its standard input ends.
const HOLD: &str =
    "mount -t tmpfs -o mode=700,size=\"$1\"k volume \"$0\" && echo mounted && exec cat";

/// A mounted file system.
#[derive(Debug)]
pub(crate) struct Volume {
    place: PathBuf,
    holder: Child,
}

impl Volume {
    /// A file system of so many KiB at `place`, for those alone who enter its namespace.
    pub(crate) fn mount(place: PathBuf, kib: u32) -> Self {
        let mut holder = Command::new("unshare")
            .args(["--mount", "--user", "--map-root-user", "sh", "-c", HOLD])
            .arg(&place)
            .arg(kib.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut word = [0; 8];
        let said = holder.stdout.as_mut().unwrap().read_exact(&mut word);
        assert!(
            said.is_ok() && &word == b"mounted\n",
            "this test needs a file system of its own: allow user namespaces (unshare --mount --user --map-root-user)"
        );
        Self { place, holder }
    }

    /// A command that runs the program where the file system is.
    pub(crate) fn command(&self, program: &str) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--target={}", self.holder.id())).args([
            "--mount",
            "--user",
            "--preserve-credentials",
            program,
        ]);
        command
    }

    /// A path in the file system, for the test.
    pub(crate) fn seen(&self, path: &Path) -> PathBuf {
        let root = PathBuf::from(format!("/proc/{}/root", self.holder.id()));
        root.join(path.strip_prefix("/").unwrap())
    }

    /// Leaves no room for anything, until [`Volume::free`].
    pub(crate) fn fill(&self) {
        let mut ballast = File::create(self.ballast()).unwrap();
        for size in [64 * 1024, 4096, 1] {
            let piece = vec![0; size];
            let error = loop {
                if let Err(error) = ballast.write_all(&piece) {
                    break error;
                }
            };
            assert_eq!(error.kind(), ErrorKind::StorageFull);
        }
    }

    pub(crate) fn free(&self) {
        fs::remove_file(self.ballast()).unwrap();
    }

    /// Refuses writes to files that are opened from now on, until [`Volume::make_writable`].
    pub(crate) fn make_read_only(&self) {
        self.mounted("mount --bind \"$0\" \"$0\" && mount -o remount,bind,ro \"$0\"");
    }

    pub(crate) fn make_writable(&self) {
        self.mounted("mount -o remount,bind,rw \"$0\"");
    }

    /// Mounts another file system of so many KiB on a directory of this one.
    pub(crate) fn mount_below(&self, directory: &str, kib: u32) {
        let below = self.place.join(directory);
        self.shell(
            "mount -t tmpfs -o mode=700,size=\"$1\"k below \"$0\"",
            &[below.to_str().unwrap(), &kib.to_string()],
        );
    }

    fn mounted(&self, script: &str) {
        self.shell(script, &[self.place.to_str().unwrap()]);
    }

    fn shell(&self, script: &str, args: &[&str]) {
        let status = self.command("sh").args(["-c", script]).args(args).status();
        assert!(status.unwrap().success(), "{script}");
    }

    fn ballast(&self) -> PathBuf {
        self.seen(&self.place.join("ballast"))
    }
}

impl Drop for Volume {
    fn drop(&mut self) {
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}
