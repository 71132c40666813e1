//! cgroup v2: where instances can have groups of their own, and what is done with the group of one instance.
//!
//! A group's limits count all processes of an instance together, and its freezer and its kill switch miss none. Where
//! there is no cgroup to be used, limits are set on each process ([`super::limits`]) and processes are stopped by
//! signals (`supervise/processes`). See `cgroups(7)` and the kernel's `admin-guide/cgroup-v2`.
//!
//! ```text
//! <tree>/cgroup.subtree_control         + memory, cpu, and for pinning cpuset, where they can be had
//! <tree>/launcher/                      the launcher itself, where the tree is its own cgroup: no process may be in a
//!                                       group whose controllers are handed on
//! <tree>/ciao-<node>-<instance>/        the workload of one instance, not its supervisor
//! ```

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use proto_frames::Uuid;
use rustix::process::{Pid, PidfdFlags, Signal, geteuid, pidfd_open, pidfd_send_signal};
use serde::{Deserialize, Serialize};
use tracing::{debug, info};

use super::agent::{Cpus, Pinning};
use super::limits::Limits;

/// Time between two looks at whether a group is frozen.
const LOOK_INTERVAL: Duration = Duration::from_millis(2);

/// How often a group that its last processes are just leaving is tried to be removed.
const REMOVE_TRIES: u32 = 50;

/// Marks of a cgroup that its owner gave away, as systemd sets them for `Delegate=`.
const DELEGATED: [&str; 2] = ["user.delegate", "trusted.delegate"];

/// The launcher's own group, in a tree that is the launcher's own.
const LAUNCHER_GROUP: &str = "launcher";

/// Why a cgroup cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("cgroup {}: {what}", path.display())]
pub struct CgroupError {
    /// The cgroup.
    path: PathBuf,
    /// What is wrong with it.
    what: String,
}

/// A cgroup under which each instance has a group of its own. `memory` and `cpu` say whether that controller is handed
/// on to the groups below.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Tree {
    base: PathBuf,
    memory: bool,
    cpu: bool,
    cpuset: bool,
}

/// The group of one instance, as its supervisor is told.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Cgroup {
    path: PathBuf,
    /// Whether the group limits memory; the processes do where it does not.
    pub(crate) memory: bool,
    /// Whether the group limits processor time; nothing does where it does not.
    cpu: bool,
    /// Whether the group says on which processors its processes run; each of them does where it does not.
    #[serde(default)]
    cpuset: bool,
}

/// The tree to use: `chosen`, or the launcher's own cgroup where that was given away to it; with `pinning`, its groups have
/// processors if that can be had. Says in the log what limits
/// instances from now on.
///
/// # Errors
/// The chosen one cannot be used.
pub(crate) fn find(
    chosen: Option<&Path>,
    pinning: Option<Pinning>,
) -> Result<Option<Tree>, CgroupError> {
    let mut tree = match chosen {
        Some(path) => Some(Tree::at(path)?),
        None => own().and_then(|path| match Tree::of_own(&path) {
            Ok(tree) => Some(tree),
            Err(error) => {
                info!(event = "cgroup_unusable", %error, "own cgroup cannot be used");
                None
            }
        }),
    };
    if let (Some(tree), Some(_)) = (&mut tree, pinning) {
        tree.cpuset = hand_on(&tree.base, "cpuset");
    }
    match &tree {
        Some(tree) => {
            let memory = if tree.memory { "cgroup" } else { "rlimit" };
            let cpu = if tree.cpu { "cgroup" } else { "not limited" };
            let path = tree.base.display();
            info!(event = "cgroup_used", cgroup = %path, memory, cpu, freezer = "cgroup", "instances have cgroups of their own");
        }
        None => info!(
            event = "cgroup_unusable",
            memory = "rlimit",
            cpu = "not limited",
            freezer = "SIGSTOP",
            "no delegated cgroup v2; instances are limited by process"
        ),
    }
    Ok(tree)
}

impl Tree {
    /// The tree at this path. Whether groups can be made there is found out by making one.
    ///
    /// # Errors
    /// It is no cgroup of version 2, or no group can be made in it. A controller that cannot be handed on is no error.
    fn at(path: &Path) -> Result<Self, CgroupError> {
        let unusable = |what: String| CgroupError {
            path: path.to_owned(),
            what,
        };
        let failed = |error: io::Error| unusable(error.to_string());
        let base = path.canonicalize().map_err(failed)?;
        if !base.join("cgroup.controllers").is_file() {
            return Err(unusable("is no cgroup of version 2".to_owned()));
        }
        let probe = base.join(format!("ciao-probe-{}", std::process::id()));
        fs::create_dir(&probe)
            .and_then(|()| fs::remove_dir(&probe))
            .map_err(failed)?;
        Ok(Self {
            memory: hand_on(&base, "memory"),
            cpu: hand_on(&base, "cpu"),
            cpuset: false,
            base,
        })
    }

    /// The launcher's own cgroup: it leaves it for one below.
    fn of_own(path: &Path) -> Result<Self, CgroupError> {
        let unusable = |what: String| CgroupError {
            path: path.to_owned(),
            what,
        };
        let failed = |error: io::Error| unusable(error.to_string());
        let me = std::process::id();
        if pids_in(path)
            .into_iter()
            .any(|pid| pid.as_raw_pid().unsigned_abs() != me)
        {
            return Err(unusable("other processes are in it".to_owned()));
        }
        let launcher = path.join(LAUNCHER_GROUP);
        make(&launcher)
            .and_then(|()| fs::write(launcher.join("cgroup.procs"), "0"))
            .map_err(failed)?;
        Self::at(path)
    }

    /// Whether its groups limit memory.
    pub(crate) fn limits_memory(&self) -> bool {
        self.memory
    }

    /// The group for an instance of this node.
    pub(crate) fn group(&self, node: Uuid, instance: &str) -> Cgroup {
        Cgroup {
            path: self.base.join(format!("ciao-{node}-{instance}")),
            memory: self.memory,
            cpu: self.cpu,
            cpuset: self.cpuset,
        }
    }
}

impl Cgroup {
    /// Makes the group. What an earlier run left in it is killed.
    ///
    /// # Errors
    /// The group cannot be made, or limits not be set.
    pub(crate) async fn create(&self, limits: Limits) -> io::Result<()> {
        if self.path.exists() {
            self.remove().await;
        }
        make(&self.path)?;
        // An instance that lost a part of itself is worth little.
        let _ = fs::write(self.path.join("memory.oom.group"), "1");
        self.limit(limits)
    }

    /// Has this process, and what it starts from now on, belong to the group.
    ///
    /// # Errors
    /// The group is not there or may not be joined.
    pub(crate) fn enter(&self) -> io::Result<()> {
        fs::write(self.path.join("cgroup.procs"), "0")
    }

    /// Sets what the group may take, of what it limits.
    ///
    /// # Errors
    /// The system's; and where its memory holds more than it is to have, which would end it.
    pub(crate) fn limit(&self, limits: Limits) -> io::Result<()> {
        if self.memory {
            let bytes = limits.memory_bytes();
            let held = self.held_bytes();
            if held > bytes {
                return Err(io::Error::other(format!(
                    "it holds {} MiB of memory, more than it would have",
                    held >> 20
                )));
            }
            fs::write(self.path.join("memory.max"), bytes.to_string())?;
        }
        if self.cpu {
            fs::write(self.path.join("cpu.max"), limits.cpu_max())?;
        }
        Ok(())
    }

    /// Has all its processes, and those that they start, run on these processors alone; whether it does. Where it does not,
    /// each process has to.
    pub(crate) fn pin(&self, cpus: &Cpus) -> bool {
        self.cpuset && fs::write(self.path.join("cpuset.cpus"), cpus.to_string()).is_ok()
    }

    /// Memory that the kernel cannot take back from the group, in bytes.
    fn held_bytes(&self) -> u64 {
        let stat = fs::read_to_string(self.path.join("memory.stat")).unwrap_or_default();
        value_of(&stat, "anon").unwrap_or(0)
    }

    /// How many of its processes the kernel has killed because the group had reached its limit of memory; `None` where it
    /// does not say.
    pub(crate) fn memory_kills(&self) -> Option<u64> {
        let events = fs::read_to_string(self.path.join("memory.events")).ok()?;
        value_of(&events, "oom_kill")
    }

    /// The most memory that the group has held at a time, in bytes; `None` before Linux 5.19.
    pub(crate) fn peak_bytes(&self) -> Option<u64> {
        let peak = fs::read_to_string(self.path.join("memory.peak")).ok()?;
        peak.trim_end().parse().ok()
    }

    /// Processor time of all processes that are or were in the group.
    pub(crate) fn cpu_time(&self) -> Option<Duration> {
        let stat = fs::read_to_string(self.path.join("cpu.stat")).ok()?;
        value_of(&stat, "usage_usec").map(Duration::from_micros)
    }

    /// Whether the kernel can freeze it; not before Linux 5.2.
    pub(crate) fn has_freezer(&self) -> bool {
        self.path.join("cgroup.freeze").exists()
    }

    /// Freezes every process, and returns when all of them are. May be given up, and thawed, at any time.
    ///
    /// # Errors
    /// The system's.
    pub(crate) async fn freeze(&self) -> io::Result<()> {
        fs::write(self.path.join("cgroup.freeze"), "1")?;
        loop {
            let events = fs::read_to_string(self.path.join("cgroup.events"))?;
            if value_of(&events, "frozen") == Some(1) {
                return Ok(());
            }
            tokio::time::sleep(LOOK_INTERVAL).await;
        }
    }

    /// Lets every process go on.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn thaw(&self) -> io::Result<()> {
        fs::write(self.path.join("cgroup.freeze"), "0")
    }

    /// Kills every process, frozen or not, and those they start meanwhile.
    pub(crate) fn kill(&self) {
        // Not before Linux 5.14. Without, there may be more after each look; their end brings the next one.
        if fs::OpenOptions::new()
            .write(true)
            .open(self.path.join("cgroup.kill"))
            .and_then(|mut file| io::Write::write_all(&mut file, b"1"))
            .is_err()
        {
            let opened = |pid: Pid| Some((pid, pidfd_open(pid, PidfdFlags::empty()).ok()?));
            let opened: Vec<_> = pids_in(&self.path).into_iter().filter_map(opened).collect();
            // Those that are still in it now were when they were opened.
            let still = pids_in(&self.path);
            for (_, pidfd) in opened.iter().filter(|(pid, _)| still.contains(pid)) {
                let _ = pidfd_send_signal(pidfd, Signal::KILL);
            }
        }
    }

    /// Whether processes are in it, or in groups below.
    pub(crate) fn is_populated(&self) -> bool {
        let events = fs::read_to_string(self.path.join("cgroup.events")).unwrap_or_default();
        value_of(&events, "populated") == Some(1)
    }

    /// Kills what is left and removes the group.
    pub(crate) async fn remove(&self) {
        for _ in 0..REMOVE_TRIES {
            if self.try_remove() {
                return;
            }
            tokio::time::sleep(LOOK_INTERVAL).await;
        }
        debug!(cgroup = %self.path.display(), "cgroup cannot be removed");
    }

    /// Kills what is left, and removes the group if nothing is; whether it is removed.
    pub(crate) fn try_remove(&self) -> bool {
        if !self.path.exists() {
            return true;
        }
        self.kill();
        remove_groups(&self.path).is_ok()
    }
}

/// Removes a group and those below it, that its processes made.
fn remove_groups(path: &Path) -> io::Result<()> {
    for entry in fs::read_dir(path)?.flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove_groups(&entry.path())?;
        }
    }
    fs::remove_dir(path)
}

/// Has the groups below have this controller; whether they do.
fn hand_on(base: &Path, controller: &str) -> bool {
    let file = base.join("cgroup.subtree_control");
    let is_handed_on = || {
        let controllers = fs::read_to_string(&file).unwrap_or_default();
        controllers
            .split_ascii_whitespace()
            .any(|name| name == controller)
    };
    if is_handed_on() {
        return true;
    }
    if let Err(error) = fs::write(&file, format!("+{controller}")) {
        debug!(cgroup = %base.display(), controller, %error, "controller is not to be had");
    }
    is_handed_on()
}

/// The launcher's own cgroup, where it was given away to it. The root is never delegated.
fn own() -> Option<PathBuf> {
    let group = fs::read_to_string("/proc/self/cgroup").ok()?;
    let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
    let path = place(&group, &mounts)?;
    let is_root = !path.join("cgroup.events").exists();
    let writable = rustix::fs::access(&path, rustix::fs::Access::WRITE_OK).is_ok();
    let marked = || {
        DELEGATED
            .iter()
            .any(|name| rustix::fs::getxattr(&path, *name, &mut [0_u8; 8]).is_ok())
    };
    // To the superuser everything is writable.
    (!is_root && writable && (!geteuid().is_root() || marked())).then_some(path)
}

/// Where the cgroup that `/proc/self/cgroup` names is, by `/proc/self/mountinfo`.
fn place(group: &str, mounts: &str) -> Option<PathBuf> {
    let group = group.lines().find_map(|line| line.strip_prefix("0::"))?;
    mounts.lines().find_map(|line| {
        let (mount, kind) = line.split_once(" - ")?;
        let mut fields = mount.split_ascii_whitespace().skip(3);
        let (root, point) = (fields.next()?, fields.next()?);
        let below = Path::new(group).strip_prefix(root).ok()?;
        (kind.split_ascii_whitespace().next() == Some("cgroup2"))
            .then(|| Path::new(point).join(below))
    })
}

/// The processes in a group, those of groups below not included.
fn pids_in(path: &Path) -> Vec<Pid> {
    let pids = fs::read_to_string(path.join("cgroup.procs")).unwrap_or_default();
    pids.lines()
        .filter_map(|line| Pid::from_raw(line.parse().ok()?))
        .collect()
}

/// The value in a file of lines `name value`.
fn value_of(text: &str, name: &str) -> Option<u64> {
    let line = |line: &str| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok();
    text.lines().find_map(line)
}

/// Makes a group; one that is there is no error.
fn make(path: &Path) -> io::Result<()> {
    match fs::create_dir(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        made => made,
    }
}

#[cfg(test)]
mod tests;
