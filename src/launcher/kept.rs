//! What instances that have ended leave on this node: their output and working directory, kept by one rule, whatever
//! ended them.
//!
//! ```text
//! <state>/instances/<instance>/    one that ended by itself, until it is deleted, or a START of it comes
//! <state>/kept/<instance>.<n>/     one that was removed from this node (stopped, deleted, moved, preempted, cut off),
//!                                  or that began here again; n counts the runs of one instance, from 1
//! ```
//! The rule: the latest [`MAX_KEPT`], none longer than [`KeepOutput::age`], all together no more than
//! [`KeepOutput::bytes`]; the newest come first. Where a working directory does not fit, the output alone is kept. What
//! is kept counts as used disk of the node. A disk that is full is freed of it, the oldest first.
//!
//! How much an ended instance takes is found out once, by a thread of its own ([`Shelf::surplus`]): it does not change
//! any more, and takes as long as its workload made it take.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;
use proto_frames::payload::KeptRun;

use super::agent::MAX_INSTANCE_ID_LEN;
use super::files::{InstanceDir, Over, read_json};
use super::usage::disk_bytes;

/// Most ended instances whose output is kept: as many as a launcher remembers of those that ended by themselves.
pub const MAX_KEPT: usize = super::agent::MAX_EXITED;

/// How long output is kept unless the command line says otherwise: long enough for a person back from a week away.
pub const DEFAULT_KEEP_OUTPUT_FOR: Duration = Duration::from_secs(7 * 24 * 3600);

/// Bytes that kept output may take unless the command line says otherwise.
pub const DEFAULT_KEEP_OUTPUT_BYTES: u64 = 1 << 30;

/// The part of what is kept that a full disk is freed of at a time: one in so many, at least one.
const FREED_PART: usize = 4;

/// How much is kept of instances that have ended, and for how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeepOutput {
    /// For how long.
    pub age: Duration,
    /// How many bytes of all together.
    pub bytes: u64,
}

impl Default for KeepOutput {
    fn default() -> Self {
        Self {
            age: DEFAULT_KEEP_OUTPUT_FOR,
            bytes: DEFAULT_KEEP_OUTPUT_BYTES,
        }
    }
}

/// The directory of what is kept of instances that are not on this node any more.
#[derive(Debug)]
pub(crate) struct KeptRunsDir {
    dir: PathBuf,
    rule: KeepOutput,
}

impl KeptRunsDir {
    /// Keeps in this directory by the default rule.
    pub(crate) fn new(dir: PathBuf) -> Self {
        let rule = KeepOutput::default();
        Self { dir, rule }
    }

    /// Keeps by this rule from now on.
    pub(crate) fn set_rule(&mut self, rule: KeepOutput) {
        self.rule = rule;
    }

    pub(crate) fn rule(&self) -> KeepOutput {
        self.rule
    }

    /// Takes the files of an instance away from their place, in one step; whether there was anything to keep.
    ///
    /// # Errors
    /// Those of renaming; then they are where they were.
    pub(crate) fn take(&self, id: &str, from: &InstanceDir) -> io::Result<bool> {
        if self.rule.age.is_zero() || self.rule.bytes == 0 || !has_output(from) {
            return Ok(false);
        }
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&self.dir)?;
        let number = |name: &str| {
            let (other, number) = name.rsplit_once('.')?;
            number.parse::<u64>().ok().filter(|_| other == id)
        };
        let latest = self
            .all()
            .filter_map(|path| number(path.file_name()?.to_str()?));
        let next = latest.max().unwrap_or(0).saturating_add(1);
        fs::rename(&from.0, self.dir.join(format!("{id}.{next}")))?;
        Ok(true)
    }

    /// Everything kept here, in no order.
    pub(crate) fn all(&self) -> impl Iterator<Item = PathBuf> + use<> {
        let entries = fs::read_dir(&self.dir).into_iter().flatten().flatten();
        entries.map(|entry| entry.path())
    }

    /// What a full disk is to be freed of next.
    pub(crate) fn oldest(&self) -> Vec<PathBuf> {
        let mut all: Vec<_> = self.all().map(|path| (ended_at(&path), path)).collect();
        all.sort_unstable();
        let count = all.len().div_ceil(FREED_PART);
        all.into_iter().take(count).map(|(_, path)| path).collect()
    }

    /// Whether a path is of something kept here.
    pub(crate) fn has(&self, path: &Path) -> bool {
        path.parent() == Some(&self.dir)
    }
}

/// What ended instances take, as far as it is known.
#[derive(Debug, Default)]
pub(crate) struct Shelf {
    sizes: Mutex<BTreeMap<PathBuf, Known>>,
}

/// What is known of one: as of which change of its directory, what it takes, and how its end was told, if it was.
type Known = (SystemTime, Size, Option<Over>);

/// Bytes that one ended instance takes; `None` = more files than are counted, which fits nowhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Size {
    /// All but its working directory.
    output: Option<u64>,
    /// Its working directory.
    work: Option<u64>,
}

/// What is to be deleted of ended instances.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Surplus {
    /// Directories of instances of which nothing stays.
    pub(crate) whole: Vec<PathBuf>,
    /// Directories of instances of which the output stays, and the working directory does not.
    pub(crate) work: Vec<PathBuf>,
    /// Bytes that the rest takes.
    pub(crate) kept: u64,
    /// The runs whose ends were told, and where the output of each is, if it stays.
    pub(crate) runs: Vec<KeptRun>,
}

impl Shelf {
    /// What the rule leaves no room for, of these directories of ended instances. The caller deletes it. `None` where
    /// another look is under way.
    ///
    /// Directories are gone through from the newest end to the oldest; each gets room for its output, then for its
    /// working directory, as long as there is some. Sizes are measured once for each end, which may take long.
    pub(crate) fn surplus(&self, dirs: Vec<PathBuf>, rule: KeepOutput) -> Option<Surplus> {
        let now = SystemTime::now();
        let mut sizes = self.sizes.try_lock()?;
        let known = std::mem::take(&mut *sizes);
        let mut all = Vec::new();
        for dir in dirs {
            let at = ended_at(&dir);
            let (size, over) = match known.get(&dir).filter(|(then, _, _)| *then == at) {
                Some((_, size, over)) => (*size, over.clone()),
                None => (Size::of(&dir), over_of(&dir)),
            };
            sizes.insert(dir.clone(), (at, size, over.clone()));
            // It may have been deleted since.
            let has_work = fs::symlink_metadata(InstanceDir(dir.clone()).work()).is_ok();
            let work = if has_work { size.work } else { Some(0) };
            all.push((at, dir, Size { work, ..size }, over));
        }
        drop(sizes);
        all.sort_unstable_by(|a, b| (b.0, &b.1).cmp(&(a.0, &a.1)));
        let mut surplus = Surplus::default();
        let mut count = 0;
        for (at, dir, size, over) in all {
            let is_old = now.duration_since(at).is_ok_and(|age| age >= rule.age);
            let left = rule.bytes.saturating_sub(surplus.kept);
            let fits = |bytes: Option<u64>| bytes.filter(|bytes| *bytes <= left);
            let output = fits(size.output).filter(|_| !is_old && count < MAX_KEPT);
            let place = output.is_some() && has_output(&InstanceDir(dir.clone()));
            surplus
                .runs
                .extend(over.map(|over| kept_run(over, place.then_some(&dir))));
            let Some(output) = output else {
                surplus.whole.push(dir);
                continue;
            };
            count += 1;
            match fits(size.work.and_then(|work| work.checked_add(output))) {
                Some(both) => surplus.kept += both,
                None => {
                    surplus.kept += output;
                    surplus.work.push(dir);
                }
            }
        }
        Some(surplus)
    }
}

impl Size {
    fn of(dir: &Path) -> Self {
        let work = InstanceDir(dir.to_owned()).work();
        let entries = fs::read_dir(dir).into_iter().flatten().flatten();
        let mut output = Some(0_u64);
        for path in entries
            .map(|entry| entry.path())
            .filter(|path| *path != work)
        {
            output = output.and_then(|sum| sum.checked_add(disk_bytes(&path).0?));
        }
        let work = disk_bytes(&work).0;
        Self { output, work }
    }
}

/// How the end of the run here was told, if it was and that is known.
fn over_of(dir: &Path) -> Option<Over> {
    let over = read_json::<Over>(&InstanceDir(dir.to_owned()).over());
    // A workload can put anything there.
    over.ok()
        .flatten()
        .filter(|over| over.instance.len() <= MAX_INSTANCE_ID_LEN)
}

/// A run as the scheduler is told it; `dir` is where its output is, if it stays.
fn kept_run(over: Over, dir: Option<&PathBuf>) -> KeptRun {
    let place = dir.and_then(|dir| std::path::absolute(dir).ok());
    KeptRun {
        instance_uuid: over.instance,
        seq: over.seq,
        ended_at_ms: over.at_ms,
        exit_code: over.code.map(i64::from),
        output: place
            .map(|place| place.display().to_string())
            .unwrap_or_default(),
    }
}

/// Whether anything is left that somebody may want to read.
fn has_output(dir: &InstanceDir) -> bool {
    let has_text = |path: PathBuf| fs::symlink_metadata(path).is_ok_and(|file| file.len() > 0);
    has_text(dir.output())
        || has_text(dir.older_output())
        || fs::read_dir(dir.work()).is_ok_and(|mut entries| entries.next().is_some())
}

/// When an instance ended, as its files say: the later of its exit file and its record.
fn ended_at(dir: &Path) -> SystemTime {
    let dir = InstanceDir(dir.to_owned());
    let written = |path: PathBuf| fs::symlink_metadata(path).and_then(|it| it.modified()).ok();
    let latest = written(dir.ended()).max(written(dir.record()));
    latest.unwrap_or(SystemTime::UNIX_EPOCH)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::{Path, PathBuf};
    use std::time::{Duration, SystemTime};

    use super::{InstanceDir, KeepOutput, KeptRunsDir, MAX_KEPT, Shelf, Surplus};

    const BLOCK: usize = 4096;

    /// An ended instance with so many blocks of output and of other files, that ended so many minutes ago.
    fn ended(root: &Path, name: &str, blocks: (usize, usize), minutes: u64) -> PathBuf {
        let dir = InstanceDir(root.join(name));
        fs::create_dir_all(dir.work()).unwrap();
        fs::write(dir.output(), vec![1; blocks.0 * BLOCK]).unwrap();
        fs::write(dir.work().join("file"), vec![1; blocks.1 * BLOCK]).unwrap();
        let record = fs::File::create(dir.record()).unwrap();
        let at = SystemTime::now() - Duration::from_secs(minutes * 60);
        record.set_modified(at).unwrap();
        dir.0
    }

    fn rule(hours: u64, bytes: usize) -> KeepOutput {
        KeepOutput {
            age: Duration::from_secs(hours * 3600),
            bytes: bytes as u64,
        }
    }

    #[test]
    fn the_newest_come_first_and_output_before_working_directories() {
        let root = tempfile::tempdir().unwrap();
        let [old, big, new] = [("old", 1, 59), ("big", 100, 2), ("new", 1, 1)]
            .map(|(name, work, minutes)| ended(root.path(), name, (2, work), minutes));
        let all = || vec![old.clone(), big.clone(), new.clone()];
        let shelf = Shelf::default();
        let surplus = shelf.surplus(all(), rule(1, 1 << 30)).unwrap();
        assert_eq!((surplus.whole.len(), surplus.work.len()), (0, 0));
        assert!(surplus.kept >= (106 * BLOCK) as u64);
        let Surplus {
            whole, work, kept, ..
        } = shelf.surplus(all(), rule(1, 20 * BLOCK)).unwrap();
        assert_eq!((whole.len(), work), (0, vec![big.clone()]));
        assert!(kept <= (20 * BLOCK) as u64);
        let surplus = shelf.surplus(all(), rule(0, 1 << 30)).unwrap();
        assert_eq!(surplus.whole, [new.clone(), big.clone(), old.clone()]);
        let surplus = shelf.surplus(all(), rule(1, BLOCK)).unwrap();
        assert_eq!(surplus.whole.len(), 3);
    }

    #[test]
    fn there_are_so_many_at_most_and_the_oldest_go_first() {
        let root = tempfile::tempdir().unwrap();
        let name = |number: usize| format!("{number:03}");
        let all: Vec<PathBuf> = (0..=MAX_KEPT)
            .map(|at| ended(root.path(), &name(at), (0, 0), at as u64))
            .collect();
        let surplus = Shelf::default().surplus(all, rule(1000, 1 << 30)).unwrap();
        assert_eq!(surplus.whole, [root.path().join(name(MAX_KEPT))]);
    }

    #[test]
    fn each_run_of_an_instance_has_a_place_of_its_own_and_what_is_empty_none() {
        let root = tempfile::tempdir().unwrap();
        let kept = KeptRunsDir::new(root.path().join("kept"));
        for (id, blocks, is_kept) in [
            ("a", 1, true),
            ("a.1", 1, true),
            ("a", 1, true),
            ("a", 0, false),
        ] {
            let dir = InstanceDir(ended(root.path(), "instance", (blocks, 0), 1));
            if blocks == 0 {
                fs::remove_dir_all(dir.work()).unwrap();
            }
            assert_eq!(kept.take(id, &dir).unwrap(), is_kept);
            assert_eq!(dir.0.exists(), !is_kept);
        }
        let mut names: Vec<_> = kept
            .all()
            .map(|path| path.file_name().unwrap().to_owned())
            .collect();
        names.sort_unstable();
        assert_eq!(names, ["a.1", "a.1.1", "a.2"]);
        assert_eq!(kept.oldest().len(), 1);
    }
}
