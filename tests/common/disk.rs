//! A small file system of a test's own, mounted in a namespace of its own: what it takes when it is full is seen by real
//! programs.

#![allow(dead_code, reason = "each test program uses a part of it")]
#![allow(clippy::unwrap_used, reason = "a test ends where it fails")]

use std::fs::File;
use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};

use crate::site::within;

/// A file system of its own, which goes with the test.
pub(crate) struct Disk {
    /// Where it is seen from outside the namespace in which it is mounted.
    pub(crate) path: PathBuf,
    _holder: Child,
}

impl Disk {
    /// One of so many KiB, mounted on a directory that it makes.
    pub(crate) async fn new(at: &Path, kib: u32) -> Self {
        std::fs::create_dir(at).unwrap();
        // It ends with its input, and so with this process, however that ends.
        let mut holder = Command::new("unshare")
            .args(["--map-root-user", "--mount", "sh", "-c"])
            .arg("mount -t tmpfs -o size=$1k tmpfs \"$0\" && echo mounted && exec cat")
            .arg(at)
            .arg(kib.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("util-linux has unshare");
        let mut lines = BufReader::new(holder.stdout.take().unwrap()).lines();
        let said = within(lines.next_line()).await.unwrap();
        assert_eq!(
            said.as_deref(),
            Some("mounted"),
            "this test mounts a small file system, as root or in a user namespace"
        );
        let root = PathBuf::from(format!("/proc/{}/root", holder.id().unwrap()));
        let path = root.join(at.strip_prefix("/").unwrap());
        Self {
            path,
            _holder: holder,
        }
    }

    /// Takes all the room that is left.
    pub(crate) fn fill(&self) {
        let mut file = File::create(self.path.join("filling")).unwrap();
        for len in [65_536, 4096, 1] {
            let bytes = vec![1; len];
            let full = loop {
                if let Err(error) = file.write_all(&bytes) {
                    break error;
                }
            };
            assert_eq!(full.kind(), ErrorKind::StorageFull);
        }
    }

    /// Gives it back.
    pub(crate) fn free(&self) {
        std::fs::remove_file(self.path.join("filling")).unwrap();
    }
}
