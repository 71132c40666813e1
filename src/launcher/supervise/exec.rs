//! The last step before the workload: limits this process, then becomes the workload's program.
//!
//! It is a program run of its own because limits can only be set on the process that shall have them without `unsafe`,
//! and because the supervisor must not be limited itself.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use rustix::process::{Resource, Rlimit, Signal, getppid, set_parent_process_death_signal};

use super::super::affinity;
use super::super::descriptors;
use super::super::files::{InstanceDir, Launch, Obstacle, Supervision, read_json};
use super::super::orphans;

/// Files a workload may have open unless it raises that itself (soft limit): what most systems give, and less than the
/// launcher takes for itself.
const OPEN_FILES: u64 = 1024;

/// Becomes the workload; returns only where that is impossible, after saying so on standard output. The workload writes
/// to what is standard error here; where its streams are kept apart, its standard output is what is standard input here.
pub(super) fn run(dir: &InstanceDir) -> ExitCode {
    // Closed by the kernel when the workload's program takes over, which tells the supervisor that it runs.
    let Ok(report) = io::stdout().as_fd().try_clone_to_owned() else {
        return ExitCode::FAILURE;
    };
    let obstacle = become_workload(dir);
    let text = serde_json::to_string(&obstacle).unwrap_or(obstacle.detail);
    let _ = File::from(report).write_all(text.as_bytes());
    ExitCode::FAILURE
}

/// How often a program is tried again that is open for writing somewhere (ETXTBSY): a process that was just forked has
/// its parent's descriptors until it has become another program.
const BUSY_TRIES: u32 = 50;

/// Pause between two of these.
const BUSY_PAUSE: Duration = Duration::from_millis(20);

/// Replaces this process by the workload's program; returns only why it could not.
fn become_workload(dir: &InstanceDir) -> Obstacle {
    match prepare(dir) {
        Ok(mut command) => {
            let mut error = command.exec();
            for _ in 0..BUSY_TRIES {
                if error.kind() != io::ErrorKind::ExecutableFileBusy {
                    break;
                }
                std::thread::sleep(BUSY_PAUSE);
                error = command.exec();
            }
            let program = command.get_program().display();
            Obstacle {
                image: is_image(&error),
                ..Obstacle::from(format!("cannot run {program}: {error}"))
            }
        }
        Err(obstacle) => obstacle,
    }
}

/// Sets everything of this process that the workload inherits, in this order: working directory, the tie to the
/// supervisor, limits, processors, the mark by which it is found after a crash; and what it is not to inherit. Paths are opened
/// before limits apply.
///
/// # Errors
/// The first step that failed.
fn prepare(dir: &InstanceDir) -> Result<Command, Obstacle> {
    let launch: Launch = read_json(&dir.launch())
        .and_then(|launch| launch.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound)))
        .map_err(|error| format!("cannot read what to run: {error}"))?;
    let (program, args) = launch.command.split_first().ok_or("command is empty")?;
    let stdout = match launch.split_output {
        true => io::stdin().as_fd().try_clone_to_owned(),
        false => io::stderr().as_fd().try_clone_to_owned(),
    };
    let failed = |error| Obstacle::of("cannot take the output over", &error);
    let output = stdout.map_err(failed)?;
    let errors = io::stderr().as_fd().try_clone_to_owned().map_err(failed)?;
    let working_dir = launch.working_dir.clone().unwrap_or_else(|| dir.work());
    enter(&working_dir, dir)?;
    end_with_supervisor(dir)?;
    limit_open_files()?;
    limit(&launch)?;
    pin(&launch);
    forget_oom_score();
    let mark =
        orphans::put_mark(dir).map_err(|error| Obstacle::of("cannot mark the process", &error))?;
    descriptors::keep_to_oneself(Some(mark));

    let mut command = Command::new(program);
    command.args(args).env_clear().envs(&launch.env);
    command.stdin(Stdio::null()).stdout(output).stderr(errors);
    Ok(command)
}

/// Enters the working directory. The instance's own is made; one that the START names has to exist.
fn enter(working_dir: &Path, dir: &InstanceDir) -> Result<(), Obstacle> {
    let failed = |error: io::Error| {
        let what = format!("cannot enter working_dir {}", working_dir.display());
        Obstacle::of(what, &error)
    };
    if working_dir == dir.work() {
        fs::create_dir_all(working_dir).map_err(failed)?;
    }
    std::env::set_current_dir(working_dir).map_err(failed)
}

/// Has the kernel kill this process when its supervisor ends, so that nothing runs on unwatched. The supervisor may
/// have ended before the call; then the parent is another process than the process file says.
fn end_with_supervisor(dir: &InstanceDir) -> Result<(), String> {
    let failed = |error: io::Error| format!("cannot follow the supervisor: {error}");
    set_parent_process_death_signal(Some(Signal::KILL)).map_err(|error| failed(error.into()))?;
    // It may have ended before that.
    let parent = getppid().map(|pid| pid.as_raw_pid());
    match read_json(&dir.supervision()).map_err(failed)? {
        Some(Supervision::By(process)) if Some(process.pid) == parent => Ok(()),
        _ => Err("its supervisor is gone".to_owned()),
    }
}

/// Joins the cgroup, and limits memory by other means where the cgroup does not.
fn limit(launch: &Launch) -> Result<(), String> {
    if let Some(group) = &launch.group {
        let entered = group.enter();
        entered.map_err(|error| format!("cannot enter its cgroup: {error}"))?;
        if group.memory {
            return Ok(());
        }
    }
    let limited = launch.limits.apply_to(None);
    limited
        .and_then(|_| launch.limits.limit_stacks())
        .map_err(|error| format!("cannot limit memory: {error}"))
}

/// Has the workload run on its own processors alone, where it has some. Where that cannot be done it runs all the same, as it
/// would without pinning.
fn pin(launch: &Launch) {
    if launch.cpus.is_empty() {
        return;
    }
    let by_group = launch.group.as_ref();
    if !by_group.is_some_and(|group| group.pin(&launch.cpus)) {
        let _ = affinity::pin_this(&launch.cpus);
    }
}

/// Has the kernel judge the workload as it judges others when memory runs out. A launcher is often protected
/// (`OOMScoreAdjust=` of its unit), and what it runs is not to be. It fails only where that may not be changed at all.
fn forget_oom_score() {
    let _ = fs::write("/proc/self/oom_score_adj", "0");
}

/// Sets the soft limit of open files; the hard one stays.
fn limit_open_files() -> Result<(), String> {
    let maximum = rustix::process::getrlimit(Resource::Nofile).maximum;
    let current = Some(maximum.map_or(OPEN_FILES, |maximum| maximum.min(OPEN_FILES)));
    rustix::process::setrlimit(Resource::Nofile, Rlimit { current, maximum })
        .map_err(|error| format!("cannot limit open files: {error}"))
}

/// Whether an error of `exec` is the program's fault: it is missing, not executable, or of another format.
fn is_image(error: &io::Error) -> bool {
    use rustix::io::Errno;
    let image = [
        Errno::NOENT,
        Errno::ACCESS,
        Errno::NOEXEC,
        Errno::NOTDIR,
        Errno::ISDIR,
        Errno::LOOP,
        Errno::LIBBAD,
    ];
    image
        .iter()
        .any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
}
