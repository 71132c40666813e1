//! Files of instances: what a workload makes of them neither ends the launcher nor holds it up.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::Signal;

use crate::world::{World, until};

/// Levels of directories: their names together are longer than any path may be.
const LEVELS: usize = 3_000;

/// Makes a directory with so many levels below it.
fn nest(dir: &Path) {
    let (inner, outer) = (dir.with_extension("inner"), dir.with_extension("outer"));
    fs::create_dir(&inner).unwrap();
    // From the inside out, since no path is long enough to name them.
    for _ in 0..LEVELS {
        fs::create_dir(&outer).unwrap();
        fs::rename(&inner, outer.join("d")).unwrap();
        fs::rename(&outer, &inner).unwrap();
    }
    fs::rename(inner, dir).unwrap();
}

/// Deletes a directory, which may be too deep for what would delete it otherwise.
struct Deleted(PathBuf);

impl Drop for Deleted {
    fn drop(&mut self) {
        let _ = Command::new("rm").arg("-rf").arg(&self.0).status();
    }
}

#[tokio::test]
async fn directories_of_any_depth_are_deleted_beside_everything_else_also_by_the_next_launcher() {
    let (world, mut launcher, mut peer) = World::connected(&[]).await;
    let _deleted = Deleted(world.state_dir());
    peer.shell("a", "exit 0").await;
    assert_eq!(peer.stopped().await.1, Some(0));
    let instances = world.state_dir().join("instances");
    nest(&instances.join("a").join("work").join("deep"));
    peer.delete("a", false).await;
    assert_eq!(peer.deleted().await, ("a".to_owned(), Some(0)));
    assert!(!instances.join("a/work").exists());
    peer.reports(3).await;
    until("its record's end", || !instances.join("a").exists()).await;
    launcher.signal(Signal::KILL);
    launcher.ended().await;

    let _launcher = world.launch(&[]);
    let mut peer = world.accept().await;
    let trash = world.state_dir().join("trash");
    // On a busy machine it takes long, because it has the lowest priority: as long as something is deleted, it goes on.
    let names = || -> BTreeSet<OsString> {
        let entries = fs::read_dir(&trash).unwrap().flatten();
        entries.map(|entry| entry.file_name()).collect()
    };
    loop {
        let before = names();
        if before.is_empty() {
            break;
        }
        until("the next deletion", || names() != before).await;
    }
    peer.reports(1).await;
}

#[tokio::test]
async fn a_launcher_starts_whatever_a_workload_has_made_of_its_files() {
    use rustix::fs::{CWD, FileType, Mode, mknodat};
    let (world, mut launcher, mut peer) = World::connected(&[]).await;
    for id in ["pipe", "large", "whole"] {
        peer.shell(id, "exec sleep 1000").await;
        peer.listed(id, "active").await;
    }
    let dir = world.state_dir().join("instances");
    let record = dir.join("pipe/record.json");
    fs::remove_file(&record).unwrap();
    mknodat(CWD, record, FileType::Fifo, Mode::RWXU, 0).unwrap();
    let launch = fs::OpenOptions::new()
        .write(true)
        .open(dir.join("large/launch.json"));
    launch.unwrap().set_len(1 << 40).unwrap();
    launcher.signal(Signal::KILL);
    launcher.ended().await;
    let supervisor = crate::world::supervisor(&world.state_dir(), "large");
    rustix::process::kill_process(supervisor, Signal::KILL).unwrap();
    let _launcher = world.launch(&[]);
    let mut peer = world.admit().await;
    assert_eq!(peer.stopped().await, ("large".to_owned(), None));
    peer.listed("whole", "active").await;
}
