//! What is left of an instance whose supervisor was killed: found, killed, and waited for. Only when nothing is left
//! has the instance ended; until then the launcher lists it, and its room is not given to another.
//!
//! A living supervisor knows all processes of its instance: each descends from it, and it is their reaper. When it is
//! killed they are the children of the next subreaper, and have to be found by what they cannot have shed:
//!
//! | found by | so not found are processes that |
//! |---|---|
//! | cgroup, where the instance has one | moved to another, which takes the right to write there |
//! | session that the supervisor began | called `setsid` |
//! | `CIAO_INSTANCE_DIR` in the environment | were started with another environment (`env -i`) |
//! | the mark, a descriptor that the program inherits | closed all descriptors |
//! | being the launcher's children, which it adopts | had a supervisor that an earlier launcher started |
//! | descending from one that is found | – |
//!
//! A launcher that adopts finds every process of the supervisors that it started itself. It does not adopt where other
//! processes may become its children too: as process 1 of a container, or with children from before it was this
//! program.
//!
//! In those cases, and after a restart of the launcher, a process escapes if it has no cgroup, is in a session of its
//! own, has another environment, and has closed what it inherited, all together. The mark is also locked as long as any
//! process has it open, so that it tells of processes that the launcher may not look into.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::{IntoRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::process::{Child, Command};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustix::fs::{FlockOperation, flock};
use rustix::io::{Errno, FdFlags, fcntl_dupfd_cloexec, fcntl_setfd};
use rustix::process::{Pid, Signal, WaitOptions, getpid, set_child_subreaper, waitpid};
use tracing::{error, info, warn};

use super::cgroup::Cgroup;
use super::files::{InstanceDir, Launch, Supervision, careful, read_json};
use super::procfs::{ProcStat, ProcessId, roots_of};

/// The variable that tells a workload where its instance's files are, and the launcher which processes belong to it: no
/// two instances on a machine share it.
pub(crate) const DIR_VARIABLE: &str = "CIAO_INSTANCE_DIR";

/// Least number of the descriptor of the mark: beyond those that shells and their scripts use by number, and below 64,
/// from where on the kernel needs a larger table for each process.
const MARK_DESCRIPTOR: i32 = 60;

/// What a path to a mark has in it; behind it may be that it is deleted.
const MARK_IN_PATH: &[u8] = b"/mark";

/// Most descriptors of one process that are looked at for the mark. It is among the first that a program has; servers
/// open hundreds of thousands more.
const MAX_DESCRIPTORS: usize = 4096;

/// Looks in a row that find nothing, before nothing is left: a child that was born during the first is seen by the
/// second.
const QUIET_LOOKS: u32 = 2;

/// First pause between two looks; it doubles. What is killed ends within milliseconds, unless the kernel holds it.
const FIRST_PAUSE: Duration = Duration::from_millis(5);
/// Upper bound of that pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// Time between two words in the log on one instance of which something is left.
const WORD_INTERVAL: Duration = Duration::from_secs(60);

/// Supervisors that this process started and has not waited for. Children are a matter of the whole process, however
/// many launchers are in it.
static SUPERVISORS: Mutex<BTreeSet<i32>> = Mutex::new(BTreeSet::new());

/// Whether what supervisors leave behind becomes this process's children, and nothing else does.
static ADOPTS: OnceLock<bool> = OnceLock::new();

/// Has what supervisors leave behind become this process's children, before it starts the first. Not where others may
/// become its children too: as process 1, or where it had some before it was this program.
pub(crate) fn adopt() {
    ADOPTS.get_or_init(|| {
        let me = getpid();
        let has_children = || ProcStat::all().values().any(|it| it.ppid == me.as_raw_pid());
        if me == Pid::INIT || has_children() {
            info!(event = "orphans_not_adopted", "what killed supervisors leave behind is not adopted, but found by its marks");
            return false;
        }
        match set_child_subreaper(Some(me)) {
            Ok(()) => true,
            Err(error) => {
                warn!(event = "orphans_not_adopted", %error, "cannot adopt what killed supervisors leave behind; it is found by its marks");
                false
            }
        }
    });
}

/// Starts a supervisor, and notes it as one before any look can take it for an orphan.
///
/// # Errors
/// The system's.
pub(crate) fn spawn_supervisor(command: &mut Command) -> io::Result<Child> {
    // No process sees it before it is known for what it is.
    let mut supervisors = SUPERVISORS.lock();
    let child = command.spawn()?;
    supervisors.extend(i32::try_from(child.id()));
    Ok(child)
}

/// Waits for a supervisor that has ended, or is about to.
pub(crate) fn reap_supervisor(child: &mut Child) {
    let _ = child.wait();
    if let Ok(pid) = i32::try_from(child.id()) {
        SUPERVISORS.lock().remove(&pid);
    }
}

/// Has this process, and all that it starts, carry the instance's mark: an open, locked file. Where the file system has
/// no locks the mark is not locked. Returns the number of its descriptor.
///
/// # Errors
/// The file cannot be made.
pub(crate) fn put_mark(dir: &InstanceDir) -> io::Result<i32> {
    let file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .open(dir.mark())?;
    let _ = flock(&file, FlockOperation::NonBlockingLockExclusive);
    // The limit of open files may be lower than usual.
    let mark: OwnedFd = fcntl_dupfd_cloexec(&file, MARK_DESCRIPTOR).unwrap_or(file.into());
    fcntl_setfd(&mark, FdFlags::empty())?;
    // Never closed here: open as long as there is a process that has it.
    Ok(mark.into_raw_fd())
}

/// Kills what is left of the instance in `dir`, whose supervisor is gone; returns when nothing is.
pub(crate) async fn end(dir: InstanceDir) {
    let mut pause = FIRST_PAUSE;
    let mut quiet = 0;
    let mut said: Option<Instant> = None;
    let began = Instant::now();
    loop {
        let place = dir.clone();
        // Looks at every process of the machine.
        let left = tokio::task::spawn_blocking(move || kill(&place)).await;
        let left = left.unwrap_or_else(|error| {
            error!(event = "orphans_not_searched", %error, "processes cannot be looked for");
            Left {
                known: 0,
                unknown: true,
            }
        });
        quiet = if left.is_none() { quiet + 1 } else { 0 };
        if quiet == QUIET_LOOKS {
            break;
        }
        if !left.is_none() && said.is_none_or(|said| said.elapsed() > WORD_INTERVAL) {
            let is_first = said.replace(Instant::now()).is_none();
            let (dir, processes) = (dir.0.display(), left.known);
            if is_first {
                warn!(event = "orphans_killed", %dir, processes, "killing processes whose supervisor is gone");
            } else {
                warn!(event = "orphans_not_killed", %dir, processes, unknown = left.unknown, "processes of an instance cannot be killed; it is listed until they are gone");
            }
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
    if said.is_some() {
        info!(event = "orphans_gone", dir = %dir.0.display(), took = ?began.elapsed(), "nothing is left of the instance");
    }
    remove_group(dir).await;
}

/// Removes the instance's cgroup, if it has one; there is nothing in it.
pub(crate) async fn remove_group(dir: InstanceDir) {
    if let Some(group) = group_of(&dir) {
        group.remove().await;
    }
}

/// For each of these instances, whose supervisors are gone, whether nothing is left of it. All are looked for in the
/// same walks over `/proc`.
pub(crate) fn without_any(dirs: &[InstanceDir]) -> Vec<bool> {
    let clues: Vec<Clues> = dirs.iter().map(Clues::of).collect();
    let mut quiet = vec![true; dirs.len()];
    for _ in 0..QUIET_LOOKS {
        let found = find(&clues);
        for ((quiet, clues), found) in quiet.iter_mut().zip(&clues).zip(&found) {
            *quiet &= found.iter().all(ProcStat::has_ended) && !clues.tell_of_more();
        }
    }
    quiet
}

/// What is left of an instance.
#[derive(Debug, Clone, Copy)]
struct Left {
    /// Processes that were found.
    known: usize,
    /// Whether the cgroup or the lock on the mark says that there are others, which were not found.
    unknown: bool,
}

impl Left {
    /// Whether nothing is left.
    fn is_none(self) -> bool {
        self.known == 0 && !self.unknown
    }
}

/// One look: kills what it finds.
fn kill(dir: &InstanceDir) -> Left {
    let clues = Clues::of(dir);
    if let Some(group) = clues.group.as_ref().filter(|group| group.is_populated()) {
        group.kill();
    }
    let mut known = 0;
    for process in find(std::slice::from_ref(&clues)).into_iter().flatten() {
        if process.has_ended() {
            reap(&process);
            continue;
        }
        known += 1;
        if let Err(error) = process.signal(Signal::KILL) {
            warn!(event = "orphans_not_killed", dir = %dir.0.display(), pid = process.pid, %error, "cannot kill a process");
        }
    }
    let unknown = known == 0 && clues.tell_of_more();
    Left { known, unknown }
}

/// Waits for a process that has ended, if it is ours to wait for.
fn reap(process: &ProcStat) {
    if process.ppid == getpid().as_raw_pid()
        && let Some(pid) = Pid::from_raw(process.pid)
    {
        let _ = waitpid(Some(pid), WaitOptions::NOHANG);
    }
}

/// By what the processes of one instance are recognized.
#[derive(Debug)]
struct Clues {
    /// Its entry in an environment.
    variable: Vec<u8>,
    /// Who supervised it, if that is known.
    supervisor: Option<ProcessId>,
    /// Device and inode of its mark, if it has one.
    mark: Option<(u64, u64)>,
    dir: InstanceDir,
    group: Option<Cgroup>,
}

impl Clues {
    /// Reads the clues from the instance's files, which outlive its supervisor.
    fn of(dir: &InstanceDir) -> Self {
        let supervisor = match read_json(&dir.supervision()) {
            Ok(Some(Supervision::By(process))) => Some(process),
            _ => None,
        };
        let mark = fs::symlink_metadata(dir.mark());
        Self {
            variable: format!("{DIR_VARIABLE}={}", dir.0.display()).into_bytes(),
            supervisor,
            mark: mark.ok().map(|it| (it.dev(), it.ino())),
            dir: dir.clone(),
            group: group_of(dir),
        }
    }

    /// Whether there are processes although none are found.
    fn tell_of_more(&self) -> bool {
        let is_populated = self.group.as_ref().is_some_and(Cgroup::is_populated);
        is_populated || is_locked(&self.dir.mark())
    }
}

/// The instance's cgroup, by its launch file.
fn group_of(dir: &InstanceDir) -> Option<Cgroup> {
    read_json::<Launch>(&dir.launch()).ok()??.group
}

/// Whether somebody holds a lock on the file.
fn is_locked(path: &Path) -> bool {
    let file = OpenOptions::new()
        .write(true)
        .custom_flags(careful())
        .open(path);
    let try_lock = |file: File| flock(file, FlockOperation::NonBlockingLockExclusive);
    file.is_ok_and(|file| try_lock(file) == Err(Errno::WOULDBLOCK))
}

/// The processes of each of these instances, whose supervisors are gone; those that have ended and were not waited for
/// included.
fn find(clues: &[Clues]) -> Vec<Vec<ProcStat>> {
    let me = getpid().as_raw_pid();
    let mut processes = ProcStat::all();
    let my_session = processes.get(&me).map(|it| it.session);
    // After the look at all processes: one that is in there and began as a supervisor is known as such by now.
    let supervisors = SUPERVISORS.lock().clone();
    processes.retain(|pid, _| *pid != me && !supervisors.contains(pid));
    let sessions = sessions(clues, &processes);
    let variables = by(clues, |clues| Some(clues.variable.as_slice()));
    let marks = by(clues, |clues| clues.mark);
    // Of which instance, where more than one supervisor was killed: that is not known, but that it is of one of them
    // is.
    let adopts = ADOPTS.get() == Some(&true);
    let is_adopted = |it: &ProcStat| adopts && it.ppid == me && Some(it.session) != my_session;
    let mut owners: BTreeMap<i32, Vec<usize>> = BTreeMap::new();
    for (&pid, process) in &processes {
        let owner = sessions
            .get(&process.session)
            .filter(|(_, since)| *since <= process.start_ticks)
            .map(|(owner, _)| *owner)
            .or_else(|| of_environment(pid, &variables))
            .or_else(|| of_descriptors(pid, &marks));
        match owner {
            Some(owner) => drop(owners.insert(pid, vec![owner])),
            None if is_adopted(process) => drop(owners.insert(pid, (0..clues.len()).collect())),
            None => {}
        }
    }
    let mut found = vec![Vec::new(); clues.len()];
    for (pid, root) in roots_of(&processes, |pid| owners.contains_key(&pid)) {
        for &owner in &owners[&root] {
            found[owner].push(processes[&pid]);
        }
    }
    found
}

fn by<'a, T: Ord>(clues: &'a [Clues], key: impl Fn(&'a Clues) -> Option<T>) -> BTreeMap<T, usize> {
    let entry = |(at, clues): (usize, &'a Clues)| Some((key(clues)?, at));
    clues.iter().enumerate().filter_map(entry).collect()
}

/// The sessions that the supervisors began, of which instance each is, and when it began, in clock ticks after boot. A
/// process id is not given to another process while a session has it; where another process has the supervisor's by
/// now, nothing is left of its session.
fn sessions(clues: &[Clues], processes: &BTreeMap<i32, ProcStat>) -> BTreeMap<i32, (usize, u64)> {
    let boot = super::procfs::boot_id();
    let session = |(at, clues): (usize, &Clues)| {
        let supervisor = clues.supervisor.as_ref()?;
        let is_other = processes
            .get(&supervisor.pid)
            .is_some_and(|it| it.start_ticks != supervisor.start_ticks);
        let is_known = !is_other && boot.as_ref() == Some(&supervisor.boot);
        is_known.then_some((supervisor.pid, (at, supervisor.start_ticks)))
    };
    clues.iter().enumerate().filter_map(session).collect()
}

/// Whose variable stands in the environment that a process was started with. One that may not be read says nothing.
fn of_environment(pid: i32, variables: &BTreeMap<&[u8], usize>) -> Option<usize> {
    let environment = fs::read(format!("/proc/{pid}/environ")).ok()?;
    let mut variables_there = environment.split(|byte| *byte == 0);
    variables_there.find_map(|variable| variables.get(variable).copied())
}

/// Whose mark a process has open. Descriptors that may not be looked at say nothing.
fn of_descriptors(pid: i32, marks: &BTreeMap<(u64, u64), usize>) -> Option<usize> {
    if marks.is_empty() {
        return None;
    }
    let descriptors = fs::read_dir(format!("/proc/{pid}/fd")).ok()?;
    let mut descriptors = descriptors.flatten().take(MAX_DESCRIPTORS);
    descriptors.find_map(|descriptor| {
        // By name first: a file on a server that does not answer is not asked.
        let link = fs::read_link(descriptor.path()).ok()?;
        let name = link.as_os_str().as_bytes();
        let may_be = name
            .windows(MARK_IN_PATH.len())
            .any(|part| part == MARK_IN_PATH);
        let file = may_be.then(|| fs::metadata(descriptor.path()).ok())??;
        marks.get(&(file.dev(), file.ino())).copied()
    })
}
