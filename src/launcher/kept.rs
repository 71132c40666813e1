//! What instances that have ended leave on this node: their output and working directory, kept by one rule, whatever
//! ended them.
//!
//! ```text
//! <state>/instances/<instance>/    one that ended by itself, until it is deleted, or a START of it comes
//! <state>/kept/<instance>.<n>/     one that was removed from this node (stopped, deleted, moved, preempted, cut off),
//!                                  or that began here again; n counts the runs of one instance, from 1
//! ```
//! The rule: none longer than [`KeepOutput::age`], by a count of the node's own ([`clock`]), and all together no more
//! than [`KeepOutput::bytes`]; the newest come first. How many there are does not matter. Where a working directory does
//! not fit, the output alone is kept. What is kept counts as used disk of the node. A disk that is full is freed of it,
//! the oldest first. What is deleted is noted, with the reason ([`deleted`]).
//!
//! How much an ended instance takes is found out once, by a thread of its own ([`Shelf::surplus`]): it does not change
//! any more, and takes as long as its workload made it take.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use parking_lot::Mutex;
use proto_frames::payload::KeptRun;

use super::agent::MAX_INSTANCE_ID_LEN;
use super::files::{InstanceDir, Over, read_json};
use super::usage::disk_bytes;
use clock::{ms, since_ms};
use deleted::Why;

pub(crate) mod clock;
pub(crate) mod deleted;

/// How long output is kept unless the command line says otherwise: long enough for a person back from a week away.
pub const DEFAULT_KEEP_OUTPUT_FOR: Duration = Duration::from_secs(7 * 24 * 3600);

/// Bytes that kept output may take unless the command line says otherwise.
pub const DEFAULT_KEEP_OUTPUT_BYTES: u64 = 1 << 30;

/// Bytes that the launcher's own files of a run count as at least: less than they take on most file systems, and so much
/// that [`KeepOutput::bytes`] bounds how many runs are kept also where small files take no block.
const OWN_BYTES: u64 = 16 * 1024;

/// After a look at all that is kept it is not looked at again for so many times as long as the look took.
const LOOK_SHARE: u32 = 10;

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
#[derive(Debug, Clone)]
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

    /// Takes the files of an instance away from their place, in one step; why not, if they are not kept.
    ///
    /// # Errors
    /// Those of renaming; then they are where they were.
    pub(crate) fn take(&self, id: &str, from: &InstanceDir) -> io::Result<Result<(), Why>> {
        if !has_output(from) {
            return Ok(Err(Why::NothingWritten));
        }
        if self.rule.age.is_zero() || self.rule.bytes == 0 {
            return Ok(Err(Why::NoneIsKept));
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
        Ok(Ok(()))
    }

    /// Everything kept here, in no order.
    pub(crate) fn all(&self) -> impl Iterator<Item = PathBuf> + use<> {
        let entries = fs::read_dir(&self.dir).into_iter().flatten().flatten();
        entries.map(|entry| entry.path())
    }

    /// What a full disk is to be freed of next.
    pub(crate) fn oldest(&self) -> Vec<PathBuf> {
        let mut all: Vec<_> = self.all().map(|path| (changed_at(&path), path)).collect();
        all.sort_unstable();
        let count = all.len().div_ceil(FREED_PART);
        all.into_iter().take(count).map(|(_, path)| path).collect()
    }

    /// The instance that something kept here is of.
    pub(crate) fn instance_of(path: &Path) -> Option<&str> {
        let (id, _) = path.file_name()?.to_str()?.rsplit_once('.')?;
        Some(id)
    }

    /// Whether a path is of something kept here.
    pub(crate) fn has(&self, path: &Path) -> bool {
        path.parent() == Some(&self.dir)
    }
}

/// What ended instances take, as far as it is known.
#[derive(Debug, Default)]
pub(crate) struct Shelf {
    known: Mutex<Looks>,
}

/// What earlier looks found, and when the next is due.
#[derive(Debug, Default)]
struct Looks {
    runs: BTreeMap<PathBuf, Known>,
    due: Option<Instant>,
}

/// What is known of one.
#[derive(Debug, Clone)]
struct Known {
    /// As of which change of its directory that is.
    changed: SystemTime,
    /// Since when it is kept, by the node's count in ms.
    since_ms: u64,
    /// What it takes.
    size: Size,
    /// How its end was told, if it was.
    over: Option<Over>,
}

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
    /// Directories of instances of which nothing stays, and why.
    pub(crate) whole: Vec<(PathBuf, Why)>,
    /// Directories of instances of which the output stays, and the working directory does not.
    pub(crate) work: Vec<PathBuf>,
    /// Bytes that the rest takes.
    pub(crate) kept: u64,
    /// The runs whose ends were told, and where the output of each is, if it stays.
    pub(crate) runs: Vec<KeptRun>,
}

impl Shelf {
    /// What the rule leaves no room for at this count, of the directories of ended instances that `dirs` lists. The
    /// caller deletes it. `None` where another look is under way, or has just been.
    pub(crate) fn surplus(
        &self,
        dirs: impl FnOnce() -> Vec<PathBuf>,
        rule: KeepOutput,
        now_ms: u64,
    ) -> Option<Surplus> {
        let mut looks = self.known.try_lock()?;
        let begun = Instant::now();
        if looks.due.is_some_and(|due| begun < due) {
            return None;
        }
        let surplus = looks.look(dirs(), rule, now_ms);
        looks.due = begun
            .elapsed()
            .checked_mul(LOOK_SHARE)
            .and_then(|rest| Instant::now().checked_add(rest));
        Some(surplus)
    }
}

impl Looks {
    /// Goes through directories from the newest end to the oldest; each gets room for its output, then for its working
    /// directory, as long as there is some. Sizes are measured once for each end, which may take long.
    fn look(&mut self, dirs: Vec<PathBuf>, rule: KeepOutput, now_ms: u64) -> Surplus {
        let known = std::mem::take(&mut self.runs);
        let mut all = Vec::new();
        for dir in dirs {
            let changed = changed_at(&dir);
            let run = match known.get(&dir).filter(|run| run.changed == changed) {
                Some(run) => run.clone(),
                None => Known {
                    changed,
                    since_ms: since_ms(&InstanceDir(dir.clone()), now_ms),
                    size: Size::of(&dir),
                    over: over_of(&dir),
                },
            };
            self.runs.insert(dir.clone(), run.clone());
            all.push((dir, run));
        }
        // The time of the files tells those apart that were first seen by the same look.
        let newest = |(dir, run): &(PathBuf, Known)| (run.since_ms, run.changed, dir.clone());
        all.sort_by_cached_key(|run| std::cmp::Reverse(newest(run)));
        let mut surplus = Surplus::default();
        for (dir, run) in all {
            surplus.add(dir, run, rule, now_ms);
        }
        surplus
    }
}

impl Surplus {
    /// Finds out what stays of the next run, newest first.
    fn add(&mut self, dir: PathBuf, run: Known, rule: KeepOutput, now_ms: u64) {
        // It may have been deleted since it was measured.
        let has_work = fs::symlink_metadata(InstanceDir(dir.clone()).work()).is_ok();
        let work = if has_work { run.size.work } else { Some(0) };
        let age = Duration::from_millis(now_ms.saturating_sub(run.since_ms));
        let left = rule.bytes.saturating_sub(self.kept);
        let fits = |bytes: Option<u64>| bytes.filter(|bytes| *bytes <= left);
        let output = match fits(run.size.output) {
            _ if rule.age.is_zero() || rule.bytes == 0 => Err(Why::NoneIsKept),
            _ if age >= rule.age => Err(Why::Age(ms(rule.age))),
            None => Err(Why::Bytes(rule.bytes)),
            Some(bytes) => Ok(bytes),
        };
        let place = output.is_ok() && has_output(&InstanceDir(dir.clone()));
        self.runs
            .extend(run.over.map(|over| kept_run(over, place.then_some(&dir))));
        match output {
            Err(why) => self.whole.push((dir, why)),
            Ok(output) => match fits(work.and_then(|work| work.checked_add(output))) {
                Some(both) => self.kept += both,
                None => {
                    self.kept += output;
                    self.work.push(dir);
                }
            },
        }
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
        let output = output.map(|bytes| bytes.max(OWN_BYTES));
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
pub(crate) fn has_output(dir: &InstanceDir) -> bool {
    let has_text = |path: PathBuf| fs::symlink_metadata(path).is_ok_and(|file| file.len() > 0);
    let has_written = |dir: &InstanceDir| has_text(dir.output()) || has_text(dir.older_output());
    has_written(dir)
        || has_written(&dir.stderr())
        || fs::read_dir(dir.work()).is_ok_and(|mut entries| entries.next().is_some())
}

/// When what is known of an ended instance was changed last, as its files say: the later of its exit file and its
/// record. By this one run is told from the next in the same place; how old it is, it does not say.
fn changed_at(dir: &Path) -> SystemTime {
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

    use super::{InstanceDir, KeepOutput, KeptRunsDir, Looks, Surplus, Why};

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

    /// The count of the node at which the tests look first, and a minute of it.
    const NOW: u64 = 1 << 40;
    const MINUTE: u64 = 60_000;

    fn whole(surplus: &Surplus) -> Vec<&Path> {
        surplus.whole.iter().map(|(dir, _)| &**dir).collect()
    }

    #[test]
    fn the_newest_come_first_and_output_before_working_directories() {
        let root = tempfile::tempdir().unwrap();
        let [old, big, new] = [("old", 1, 59), ("big", 100, 2), ("new", 1, 1)]
            .map(|(name, work, minutes)| ended(root.path(), name, (2, work), minutes));
        let all = || vec![old.clone(), big.clone(), new.clone()];
        let mut looks = Looks::default();
        let surplus = looks.look(all(), rule(1, 1 << 30), NOW);
        assert_eq!((surplus.whole.len(), surplus.work.len()), (0, 0));
        assert!(surplus.kept >= (106 * BLOCK) as u64);
        let surplus = looks.look(all(), rule(1, 30 * BLOCK), NOW);
        assert_eq!(
            (surplus.whole.len(), &surplus.work),
            (0, &vec![big.clone()])
        );
        assert!(surplus.kept <= (30 * BLOCK) as u64);
        let surplus = looks.look(all(), rule(1, BLOCK), NOW);
        assert_eq!(whole(&surplus), [&*new, &*big, &*old]);
        assert_eq!(surplus.whole[0].1, Why::Bytes(BLOCK as u64));
    }

    #[test]
    fn output_is_as_old_as_the_nodes_count_says_and_what_the_clock_on_the_wall_says_does_not_matter()
     {
        let root = tempfile::tempdir().unwrap();
        let day = 24 * 60;
        // As if the clock had been 30 days behind when they ended, or were 30 days ahead now; and the other way round.
        let dir = ended(root.path(), "a", (1, 0), 30 * day);
        let future = fs::File::open(InstanceDir(dir.clone()).record()).unwrap();
        let all = || vec![dir.clone()];
        let week = rule(7 * 24, 1 << 30);
        assert_eq!(Looks::default().look(all(), week, NOW).whole, []);
        // Of a launcher that was started again, and knows no more than the files say.
        let almost = NOW + 7 * day * MINUTE - 1;
        assert_eq!(Looks::default().look(all(), week, almost).whole, []);
        let at = SystemTime::now() + Duration::from_secs(30 * 24 * 3600);
        future.set_modified(at).unwrap();
        assert_eq!(Looks::default().look(all(), week, almost).whole, []);
        let surplus = Looks::default().look(all(), week, almost + 1);
        assert_eq!(surplus.whole, [(dir.clone(), Why::Age(7 * 24 * 3_600_000))]);
    }

    #[test]
    fn how_many_there_are_does_not_matter_and_each_counts_for_some_bytes() {
        let root = tempfile::tempdir().unwrap();
        let all: Vec<PathBuf> = (0..600)
            .map(|at| ended(root.path(), &format!("{at:03}"), (0, 0), at))
            .collect();
        let surplus = Looks::default().look(all.clone(), rule(1000, 1 << 30), NOW);
        assert_eq!((surplus.whole, surplus.work), (vec![], vec![]));
        let least = usize::try_from(600 * super::OWN_BYTES).unwrap();
        let surplus = Looks::default().look(all, rule(1000, least - 1), NOW);
        assert_eq!(whole(&surplus).last(), Some(&&*root.path().join("599")));
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
            assert_eq!(kept.take(id, &dir).unwrap().is_ok(), is_kept);
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
