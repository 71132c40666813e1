//! Files that are to be deleted: set aside at once, deleted when there is time.
//!
//! How many files an instance leaves is its workload's affair, and deleting a million takes minutes. So a directory
//! that is not needed any more is only renamed into the trash, which takes one step whatever is in it, and a thread of
//! its own deletes what is there: at the lowest priority, at most half of the time, one entry after the other. Where
//! that is not enough, because instances come and go faster, a second thread at the usual priority helps until few are
//! left ([`MANY`]). What is left when the launcher ends is deleted by the next one.
//!
//! ```text
//! <state>/trash/<name>     a directory, or a file, with whatever is below it
//! ```
//! A directory in a directory is moved up into the trash before its own turn comes: so no path becomes long, nothing is
//! remembered but the trash itself, and a million levels are as good as one.

use std::collections::BTreeSet;
use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use tracing::{debug, warn};

use super::files::is_storage_fault;

/// Entries that are deleted before the thread rests for as long as they took.
const ENTRIES_PER_TURN: u32 = 256;

/// Longest rest, so that a disk that was slow once is not waited for much longer than it takes.
const MAX_REST: Duration = Duration::from_millis(250);

/// Things in the trash with which the second thread begins; with a quarter of it, it stops. A node that is not behind has
/// some tens, and a file system with a thousand more files is no worse.
const MANY: usize = 1024;

/// Most things in the trash that cannot be deleted and are remembered, so that they are not tried again and again. With
/// more nothing further is deleted until the next launcher.
const MAX_STUCK: usize = 1024;

/// Weakest claim on the processor, for the thread that deletes.
const LOWEST_PRIORITY: i32 = 19;

/// The trash of one state directory.
#[derive(Debug)]
pub(crate) struct Trash {
    shared: Arc<TrashState>,
    /// Tells the thread that there is more.
    more: SyncSender<()>,
    /// Tells the second thread that there are many.
    many: SyncSender<()>,
}

/// What the launcher and the thread share.
#[derive(Debug)]
struct TrashState {
    dir: PathBuf,
    /// What distinguishes names given by this launcher from those of earlier ones.
    epoch: u128,
    /// Counts the names given.
    named: AtomicU64,
    /// About how many things are in the trash: some are counted late, and each look of the thread counts them again.
    count: AtomicUsize,
    /// Set when the launcher ends; the thread then stops after the entry it is at.
    is_over: AtomicBool,
}

impl Trash {
    /// The trash in the directory `dir`, which is made if needed; what is in it is being deleted from now on. Where
    /// there is no room for the directory, it is made when something is put there.
    ///
    /// # Errors
    /// The directory cannot be made for another reason, or no thread be started.
    pub(crate) fn open(dir: PathBuf) -> io::Result<Self> {
        let (trash, deleter, helper) = Self::idle(dir)?;
        thread::Builder::new()
            .name("trash".to_owned())
            .spawn(move || deleter.run())?;
        thread::Builder::new()
            .name("trash-helper".to_owned())
            .spawn(move || helper.help())?;
        Ok(trash)
    }

    /// The trash, and what its threads would run; tests run them step by step.
    fn idle(dir: PathBuf) -> io::Result<(Self, Deleter, Deleter)> {
        make(&dir).or_else(|error| match is_storage_fault(&error) {
            true => Ok(()),
            false => Err(error),
        })?;
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let shared = Arc::new(TrashState {
            dir,
            epoch: since.map_or(0, |since| since.as_nanos()),
            named: AtomicU64::new(0),
            count: AtomicUsize::new(0),
            is_over: AtomicBool::new(false),
        });
        let deleter = |wake, pace| Deleter {
            shared: shared.clone(),
            wake,
            stuck: BTreeSet::new(),
            pace,
        };
        let (more, wake) = sync_channel(1);
        let patient = deleter(wake, Some(Throttle::default()));
        let (many, wake) = sync_channel(1);
        let helper = deleter(wake, None);
        Ok((Self { shared, more, many }, patient, helper))
    }

    /// Moves a file, or a directory with all that is in it, into the trash at once. A path that does not exist is no
    /// error.
    ///
    /// # Errors
    /// Those of renaming; then it is where it was.
    pub(crate) fn take(&self, path: &Path) -> io::Result<()> {
        let rename = || fs::rename(path, self.shared.fresh());
        match rename() {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                if fs::symlink_metadata(path).is_err() {
                    return Ok(());
                }
                make(&self.shared.dir).and_then(|()| rename())?;
            }
            Err(error) => return Err(error),
        }
        // Full: it has been told already. Disconnected: the next launcher will see to it.
        let _ = self.more.try_send(());
        if self.shared.count.fetch_add(1, Ordering::Relaxed) >= MANY {
            let _ = self.many.try_send(());
        }
        Ok(())
    }
}

/// Makes the directory, for its owner alone.
fn make(dir: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(dir)
}

impl Drop for Trash {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::Relaxed);
    }
}

impl TrashState {
    /// A name in the trash that nothing has.
    fn fresh(&self) -> PathBuf {
        let number = self.named.fetch_add(1, Ordering::Relaxed);
        self.dir.join(format!("{:x}-{number}", self.epoch))
    }

    fn one_less(&self) {
        let less = |count: usize| Some(count.saturating_sub(1));
        let _ = self
            .count
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
    }

    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }
}

/// The thread's side.
struct Deleter {
    shared: Arc<TrashState>,
    wake: Receiver<()>,
    /// Entries that cannot be deleted and are not tried again.
    stuck: BTreeSet<PathBuf>,
    /// How often it rests; `None` = it does not.
    pace: Option<Throttle>,
}

impl Deleter {
    /// Deletes what is there, then waits to be told that there is more; ends with the launcher's side.
    fn run(mut self) {
        // Of this thread alone. It only takes longer, or disturbs more, where that is not allowed.
        let _ = rustix::process::setpriority_process(None, LOWEST_PRIORITY);
        loop {
            while self.look() {}
            if self.wake.recv().is_err() {
                return;
            }
        }
    }

    /// Deletes beside the other, whenever there are many, until there are few again.
    fn help(mut self) {
        while self.wake.recv().is_ok() {
            while self.shared.count.load(Ordering::Relaxed) > MANY / 4 && self.look() {}
        }
    }

    /// Deletes what is in the trash now; whether to look again, because that put more there.
    fn look(&mut self) -> bool {
        let entries = match fs::read_dir(&self.shared.dir) {
            Ok(entries) => entries,
            // It could not be made: nothing is in it.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return false,
            Err(error) => {
                warn!(event = "trash_unreadable", path = %self.shared.dir.display(), %error, "trash cannot be read");
                return false;
            }
        };
        let mut any = false;
        let entries: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
        self.shared.count.store(entries.len(), Ordering::Relaxed);
        for path in entries {
            if self.pace.is_none() && self.shared.count.load(Ordering::Relaxed) <= MANY / 4 {
                return false;
            }
            if self.shared.is_over() || self.stuck.len() >= MAX_STUCK {
                return false;
            }
            if self.stuck.contains(&path) {
                continue;
            }
            match self.delete(&path) {
                Ok(()) => {
                    any = true;
                    self.shared.one_less();
                }
                // The other thread has deleted it.
                Err(error) if error.kind() == io::ErrorKind::NotFound => any = true,
                Err(_) if self.shared.is_over() => return false,
                Err(error) => {
                    if self.stuck.is_empty() {
                        warn!(event = "trash_not_deleted", path = %path.display(), %error, "cannot be deleted; the next launcher tries again");
                    } else {
                        debug!(path = %path.display(), %error, "cannot be deleted");
                    }
                    self.stuck.insert(path);
                }
            }
        }
        any
    }

    /// Deletes something in the trash, after moving directories in it up into the trash.
    fn delete(&mut self, path: &Path) -> io::Result<()> {
        if remove(path)? {
            self.step();
            return Ok(());
        }
        let entries = fs::read_dir(path).or_else(|_| {
            open_up(path)?;
            fs::read_dir(path)
        })?;
        let mut failed = None;
        for entry in entries {
            if self.shared.is_over() {
                return Err(io::ErrorKind::Interrupted.into());
            }
            let path = entry?.path();
            if let Err(error) = self.take_out(&path) {
                failed = Some(error);
            }
            self.step();
        }
        match failed {
            None => fs::remove_dir(path),
            Some(error) => Err(error),
        }
    }

    /// Counts an entry, and rests if it is time.
    fn step(&mut self) {
        if let Some(pace) = &mut self.pace {
            pace.step();
        }
    }

    /// Deletes an entry of a directory in the trash, or moves it up if it is a directory that has entries itself.
    fn take_out(&self, path: &Path) -> io::Result<()> {
        let attempt = || match remove(path)? {
            true => Ok(()),
            false => {
                fs::rename(path, self.shared.fresh())?;
                self.shared.count.fetch_add(1, Ordering::Relaxed);
                Ok(())
            }
        };
        attempt().or_else(|_| {
            // A directory without the right to write keeps what is in it, and where it is.
            path.parent().map_or(Ok(()), open_up)?;
            if fs::symlink_metadata(path)?.is_dir() {
                open_up(path)?;
            }
            attempt()
        })
    }
}

/// Removes a file or an empty directory; whether it was one.
fn remove(path: &Path) -> io::Result<bool> {
    let removed = match fs::remove_dir(path) {
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => fs::remove_file(path),
        removed => removed,
    };
    match removed {
        Ok(()) => Ok(true),
        Err(error) => match error.kind() {
            io::ErrorKind::DirectoryNotEmpty => Ok(false),
            io::ErrorKind::NotFound => Ok(true),
            _ => Err(error),
        },
    }
}

/// Gives its owner all rights in a directory.
fn open_up(dir: &Path) -> io::Result<()> {
    fs::set_permissions(dir, Permissions::from_mode(0o700))
}

/// Makes the thread rest half of the time.
#[derive(Debug, Default)]
struct Throttle {
    entries: u32,
    since: Option<Instant>,
}

impl Throttle {
    /// Counts an entry, and rests after [`ENTRIES_PER_TURN`] for as long as those took.
    fn step(&mut self) {
        let since = *self.since.get_or_insert_with(Instant::now);
        self.entries += 1;
        if self.entries >= ENTRIES_PER_TURN {
            thread::sleep(since.elapsed().min(MAX_REST));
            *self = Self::default();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::{Path, PathBuf};

    use super::{ENTRIES_PER_TURN, MANY, Trash};

    fn entries(dir: &Path) -> usize {
        fs::read_dir(dir).unwrap().count()
    }

    /// A directory with files and directories, one of them deeper than any path may be long, one that may not be
    /// written.
    fn tree(root: &Path) -> PathBuf {
        use std::os::unix::fs::PermissionsExt;
        let tree = root.join("tree");
        fs::create_dir(&tree).unwrap();
        for number in 0..ENTRIES_PER_TURN * 2 {
            fs::write(tree.join(number.to_string()), "").unwrap();
        }
        std::os::unix::fs::symlink("/", tree.join("link")).unwrap();
        let closed = tree.join("closed");
        fs::create_dir_all(closed.join("below")).unwrap();
        fs::write(closed.join("below/file"), "").unwrap();
        fs::set_permissions(&closed, fs::Permissions::from_mode(0o500)).unwrap();
        // Each level is put below the next, from the inside out.
        let deep = root.join("deep");
        fs::create_dir(&deep).unwrap();
        for _ in 0..3000 {
            let above = root.join("above");
            fs::create_dir(&above).unwrap();
            fs::rename(&deep, above.join("deep")).unwrap();
            fs::rename(&above, &deep).unwrap();
        }
        fs::rename(deep, tree.join("deep")).unwrap();
        tree
    }

    #[test]
    fn what_is_taken_is_away_at_once_and_deleted_later_however_deep_it_is() {
        let root = tempfile::tempdir().unwrap();
        let dir = root.path().join("trash");
        let (trash, mut deleter, _) = Trash::idle(dir.clone()).unwrap();
        trash.take(&root.path().join("nothing")).unwrap();
        trash.take(&tree(root.path())).unwrap();
        assert_eq!((entries(root.path()), entries(&dir)), (1, 1));
        while deleter.look() {}
        assert_eq!(entries(&dir), 0);
    }

    #[test]
    fn what_one_launcher_leaves_in_the_trash_the_next_one_deletes() {
        let root = tempfile::tempdir().unwrap();
        let dir = root.path().join("trash");
        let (trash, mut deleter, _) = Trash::idle(dir.clone()).unwrap();
        trash.take(&tree(root.path())).unwrap();
        drop(trash);
        assert!(!deleter.look(), "it is not held up by it");
        assert_eq!(entries(&dir), 1);
        let (trash, mut deleter, _) = Trash::idle(dir.clone()).unwrap();
        fs::write(root.path().join("file"), "").unwrap();
        trash.take(&root.path().join("file")).unwrap();
        while deleter.look() {}
        assert_eq!(entries(&dir), 0);
    }

    #[test]
    fn a_second_thread_helps_with_many_and_leaves_few() {
        let root = tempfile::tempdir().unwrap();
        let dir = root.path().join("trash");
        let (trash, mut patient, mut helper) = Trash::idle(dir.clone()).unwrap();
        let take = |number: usize| {
            let instance = root.path().join("instance");
            fs::create_dir_all(instance.join("work")).unwrap();
            fs::write(instance.join("work/file"), number.to_string()).unwrap();
            trash.take(&instance).unwrap();
        };
        (0..MANY).for_each(take);
        assert!(helper.wake.try_recv().is_err(), "they are not many yet");
        (0..MANY).for_each(take);
        assert!(helper.wake.try_recv().is_ok());
        while helper.look() {}
        let left = entries(&dir);
        assert!(left <= MANY / 4, "{left}");
        while patient.look() {}
        assert_eq!(entries(&dir), 0);
    }

    #[test]
    fn two_threads_at_once_delete_all_and_take_nothing_for_stuck() {
        let root = tempfile::tempdir().unwrap();
        let dir = root.path().join("trash");
        let (trash, mut patient, mut other) = Trash::idle(dir.clone()).unwrap();
        other.pace = Some(super::Throttle::default());
        for _ in 0..4 {
            trash.take(&tree(root.path())).unwrap();
        }
        std::thread::scope(|scope| {
            for deleter in [&mut patient, &mut other] {
                scope.spawn(|| {
                    while entries(&dir) > 0 {
                        deleter.look();
                    }
                });
            }
        });
        assert!(patient.stuck.is_empty() && other.stuck.is_empty());
    }
}
