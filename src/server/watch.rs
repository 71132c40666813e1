//! Whether files have changed, by looking at them every second: what each leads to, by whatever links, and of a
//! directory what is in it.
//!
//! Looking instead of being notified, because certificates are replaced in every way there is, and all of them show
//! here: written in place, renamed over (step), a link of a directory above swapped (cert-manager's `..data`), on a
//! file system of another machine. A look costs a system call for each file.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::task::spawn_blocking;
use tokio::time::sleep;

/// Pause between two looks. A change counts once the files have stayed the same from one look to the next, so that
/// files that are written one after the other, or in place, are mostly read whole.
pub(super) const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Entries of a directory that are looked at; it holds lists of revoked certificates, of which there is one for each CA.
const MAX_ENTRIES: usize = 1024;

/// Files, and how they were when they were looked at.
#[derive(Debug, Clone)]
pub(super) struct Watched {
    paths: Vec<PathBuf>,
    /// How they were when they were read last.
    read: Look,
    /// How they were at the latest look.
    last: Look,
}

/// What tells one version of all files from another.
type Look = Vec<Stamp>;

/// What tells one version of a file from another, whether it was replaced or written again, and one mode of it from
/// another; `changed` is another then. All zero while there is none.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Stamp {
    device: u64,
    inode: u64,
    len: u64,
    /// Its `ctime`: seconds, and nanoseconds of the next.
    changed: (i64, i64),
    /// Of a directory, what is in it, in the order of names.
    entries: Vec<(PathBuf, Stamp)>,
}

impl Watched {
    /// Looks at the files, and takes them for read: what changes from now on is a change.
    pub(super) fn new(paths: Vec<PathBuf>) -> Self {
        let read: Look = paths.iter().map(|path| Stamp::of(path)).collect();
        let last = read.clone();
        Self { paths, read, last }
    }

    /// One of the files by itself, read when the others were.
    pub(super) fn only(&self, path: &Path) -> Self {
        let index = self.paths.iter().position(|it| it == path);
        let read = index.map_or_else(|| Stamp::of(path), |index| self.read[index].clone());
        Self {
            paths: vec![path.to_owned()],
            read: vec![read.clone()],
            last: vec![read],
        }
    }

    /// Waits until the files have changed and stay as they are; takes them for read then. Nothing is lost where the wait
    /// is given up.
    pub(super) async fn changed(&mut self) {
        loop {
            sleep(LOOK_EVERY).await;
            if self.look().await {
                return;
            }
        }
    }

    /// Takes the files for read as they are now. For who is about to read them for another reason.
    pub(super) async fn are_read(&mut self) {
        if let Some(now) = self.stamps().await {
            self.read.clone_from(&now);
            self.last = now;
        }
    }

    /// How the files are. On a thread for that, because they may be on a disk that is slow to answer.
    async fn stamps(&self) -> Option<Look> {
        let paths = self.paths.clone();
        let look = move || paths.iter().map(|path| Stamp::of(path)).collect();
        spawn_blocking(look).await.ok()
    }

    /// Looks once; whether what is there differs from what was read, and has not changed since the last look.
    async fn look(&mut self) -> bool {
        let Some(now) = self.stamps().await else {
            return false;
        };
        let is_new = now != self.read && now == self.last;
        if is_new {
            self.read.clone_from(&now);
        }
        self.last = now;
        is_new
    }
}

impl Stamp {
    /// That of what a path leads to, and of a directory's entries.
    fn of(path: &Path) -> Self {
        let mut stamp = Self::alone(path);
        if path.is_dir()
            && let Ok(entries) = std::fs::read_dir(path)
        {
            let entries = entries.take(MAX_ENTRIES).filter_map(Result::ok);
            let entry = |entry: std::fs::DirEntry| (entry.path(), Self::alone(&entry.path()));
            stamp.entries = entries.map(entry).collect();
            stamp.entries.sort_by(|one, other| one.0.cmp(&other.0));
        }
        stamp
    }

    fn alone(path: &Path) -> Self {
        let Ok(metadata) = std::fs::metadata(path) else {
            return Self::default();
        };
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            len: metadata.len(),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
            entries: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn write(path: &Path, text: &str) {
        std::fs::write(path, text).unwrap();
    }

    /// A change is one once two looks have found the same.
    async fn assert_changed(watched: &mut Watched, how: &str) {
        assert!(!watched.look().await, "{how}: it may not be whole yet");
        assert!(watched.look().await, "{how}");
        assert!(!watched.look().await, "{how}: read");
    }

    #[tokio::test]
    async fn every_way_to_replace_a_file_is_a_change() {
        let root = tempfile::tempdir().unwrap();
        let path = |name: &str| root.path().join(name);
        // As cert-manager mounts a secret: a file leads through a link to a directory that is replaced.
        std::fs::create_dir(path("one")).unwrap();
        std::fs::create_dir(path("two")).unwrap();
        std::fs::create_dir(path("lists")).unwrap();
        write(&path("one/tls.pem"), "1");
        write(&path("two/tls.pem"), "2");
        symlink(path("one"), path("..data")).unwrap();
        symlink(path("..data/tls.pem"), path("linked.pem")).unwrap();
        write(&path("plain.pem"), "1");
        let names = ["linked.pem", "plain.pem", "absent.pem", "lists"];
        let mut watched = Watched::new(names.map(path).to_vec());
        assert!(!watched.look().await);

        symlink(path("two"), path("..next")).unwrap();
        std::fs::rename(path("..next"), path("..data")).unwrap();
        assert_changed(&mut watched, "a link above is swapped").await;
        write(&path("next.pem"), "2");
        std::fs::rename(path("next.pem"), path("plain.pem")).unwrap();
        assert_changed(&mut watched, "renamed over").await;
        write(&path("plain.pem"), "33");
        assert_changed(&mut watched, "written in place").await;
        write(&path("absent.pem"), "1");
        assert_changed(&mut watched, "made").await;
        write(&path("lists/a.crl"), "1");
        assert_changed(&mut watched, "added to a directory").await;
        write(&path("lists/a.crl"), "22");
        assert_changed(&mut watched, "written in a directory").await;
        std::fs::remove_file(path("plain.pem")).unwrap();
        assert_changed(&mut watched, "removed").await;
    }

    #[tokio::test]
    async fn what_was_read_for_another_reason_is_no_change() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("plain.pem");
        write(&path, "1");
        let mut watched = Watched::new(vec![path.clone()]);
        write(&path, "22");
        watched.are_read().await;
        assert!(!watched.look().await);
        assert!(!watched.look().await);
    }
}
