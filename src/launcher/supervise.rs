//! The supervisor of one instance: a small process between the launcher and the workload, so that a workload and its
//! exit code outlive the launcher (what conmon and containerd's shim are to containers).
//!
//! The launcher runs a program that is made for this, or its own again ([`Program`]), with [`WORD`] as first argument. The supervisor starts a session of its own,
//! takes the instance by creating its process file, starts the workload in a process group of its own
//! (`exec`), says on its standard output how that went, waits, writes the exit file and ends. It is the reaper of
//! everything the workload leaves behind, so that nothing escapes it by daemonizing: an instance has ended when none of
//! its processes is left. When the main process ends by itself, the rest is killed, as in a container.
//!
//! SIGTERM asks it to end the workload (its processes are sent the signal that its START names; everyone may take their
//! time), SIGUSR1 to kill
//! all of it; either way a frozen workload goes on to its end. To freeze, thaw or limit it is asked over a socket
//! (`control`). A workload under the node's lease is killed when that is over (`lease`), whatever has
//! become of the launcher; so is one that has run for as long as its START allows, after it was asked to end (`limit`). It
//! never outlives the workload and has no other duty but keeping the output file within its
//! limit (`output`). Its loop does nothing that takes the longer the more a workload makes of it, but for a look at the
//! processes there are: while it did, no command would be carried out.

use std::ffi::OsString;
use std::fs::DirBuilder;
use std::io::{self, Read, Write};
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::pin::Pin;
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions, WaitStatus};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::timeout;

use super::agent::{Ran, Why};
use super::cgroup::Cgroup;
use super::control::{Answer, Asked, ControlSocket, Request};
use super::files::{
    Ended, InstanceDir, Launch, Obstacle, Reserved, Supervision, create_json, read_json, write_json,
};
use super::lease;
use super::procfs::ProcessId;
use limit::Limit;
use outputs::{Outputs, Pipes};
use processes::{Processes, signal_each};

mod exec;
mod figures;
mod limit;
mod output;
mod outputs;
mod processes;
mod program;

pub use output::MAX_OUTPUT_BYTES;
pub use program::{Program, ProgramError, version};

/// The first argument that makes a program of this package a supervisor (with the instance's directory) or the last
/// step before the workload (with `exec` after that).
pub const WORD: &str = "__supervise-instance";

/// This very program, also where its file has been removed or replaced since it was started: to run it again.
pub const PROGRAM: &str = "/proc/self/exe";

/// The name of a supervisor where processes are listed. Without it, it would be that of [`PROGRAM`].
const NAME: &str = "ciao-supervisor";

/// What follows the directory on the command line of the last step before the workload.
const EXEC: &str = "exec";

/// Asks a supervisor to kill its workload at once; SIGKILL would end the supervisor instead.
pub(crate) const KILL_WORKLOAD: Signal = Signal::USR1;

/// Longest time that stopping every process may take; then all go on and the request fails. The launcher waits longer
/// than that for its answer.
const FREEZE_DEADLINE: Duration = Duration::from_secs(5);

/// Time between two looks at the size of the output file.
const OUTPUT_LOOK_INTERVAL: Duration = Duration::from_secs(5);

/// Runs a supervisor; `args` is what stands behind [`WORD`] on the command line.
pub fn run(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let mut args = args.into_iter();
    let Some(dir) = args.next().map(|dir| InstanceDir(PathBuf::from(dir))) else {
        let _ = writeln!(io::stderr(), "{WORD} is for the launcher's own use");
        return ExitCode::from(2);
    };
    match args.next() {
        Some(step) if step == EXEC => exec::run(&dir),
        _ => supervise(&dir).map_or(ExitCode::FAILURE, |()| ExitCode::SUCCESS),
    }
}

/// Runs a supervisor to its end.
///
/// Its steps are in an order that a crash at any point leaves explicable: signals are handled before its process id is
/// on disk; the process file decides between it and a launcher that has given up the start; the exit file has its room
/// on disk before the workload begins.
///
/// # Errors
/// The supervisor cannot do its work; the launcher finds out from the closed pipe.
fn supervise(dir: &InstanceDir) -> io::Result<()> {
    // For people alone.
    let _ = std::fs::write("/proc/self/comm", NAME);
    // Fails only where this already leads a session, which is just as well.
    let _ = rustix::process::setsid();
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
    std::env::set_current_dir("/")?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        // Before anybody can learn of this process and send it one of these.
        let signals = Signals::listen()?;
        let me = ProcessId::of(rustix::process::getpid().as_raw_pid())
            .ok_or_else(|| io::Error::other("/proc does not show this process"))?;
        match create_json(&dir.supervision(), &Supervision::By(me)) {
            Ok(true) => {}
            Ok(false) => return Ok(()),
            Err(error) => return refuse(&Obstacle::of("cannot write the process file", &error)),
        }
        let (exit, socket, watch) = match prepare(dir).await {
            Ok(prepared) => prepared,
            Err(obstacle) => {
                // It may be impossible to write that as well.
                let written = write_json(&dir.ended(), &Ended::NeverRan(obstacle.clone()));
                return refuse(&obstacle).and(written);
            }
        };
        say("\n");
        let (ended, ran) = watch.until_ended(signals, socket).await?;
        // First, because the exit file is what the launcher waits for. Without it only figures are missing.
        let _ = write_json(&dir.ran(), &ran);
        exit.write_json(&ended).or_else(|error| match error.kind() {
            // The workload, or somebody else, has removed the directory: the exit code is wanted all the same.
            io::ErrorKind::NotFound => {
                DirBuilder::new().mode(0o700).create(&dir.0)?;
                write_json(&dir.ended(), &ended)
            }
            _ => Err(error),
        })
    })
}

/// Reserves what the workload's end needs, opens the socket, and starts the workload: however full the disk is by then,
/// its exit code is kept.
///
/// # Errors
/// Why the workload does not run.
async fn prepare(dir: &InstanceDir) -> Result<(Reserved, ControlSocket, Watch), Obstacle> {
    let exit = Reserved::new(dir.ended())
        .map_err(|error| Obstacle::of("cannot write the exit file", &error))?;
    // Before the launcher can learn that there is somebody to ask.
    let socket =
        ControlSocket::open(dir).map_err(|error| Obstacle::of("cannot make a socket", &error))?;
    let watch = begin(dir).await?;
    Ok((exit, socket, watch))
}

/// Tells the launcher why the workload does not run.
fn refuse(obstacle: &Obstacle) -> io::Result<()> {
    say(&format!("{}\n", serde_json::to_string(obstacle)?));
    Ok(())
}

/// Tells the launcher how the start went: an empty line, or an [`Obstacle`]. It may be gone; then the files tell.
fn say(line: &str) {
    let mut stdout = io::stdout();
    let _ = stdout
        .write_all(line.as_bytes())
        .and_then(|()| stdout.flush());
}

/// Starts the workload, with its limits and under its lease, if it has one that is not over.
async fn begin(dir: &InstanceDir) -> Result<Watch, Obstacle> {
    let launch: Launch = read_json(&dir.launch())
        .and_then(|launch| launch.ok_or_else(|| io::ErrorKind::NotFound.into()))
        .map_err(|error| Obstacle::of("cannot read what to run", &error))?;
    let lease = match launch.lease {
        Some(ref file) if lease::remaining(file).is_zero() => {
            return Err("the node's lease is over".into());
        }
        Some(ref file) => Some(
            lease::Watch::new(file.clone())
                .map_err(|error| Obstacle::of("cannot watch the lease", &error))?,
        ),
        None => None,
    };
    // From here on its time counts.
    let limit =
        Limit::new(&launch).map_err(|error| Obstacle::of("cannot watch its time limit", &error))?;
    let (output, pipes) = Outputs::open(dir, launch.split_output)
        .map_err(|error| Obstacle::of("cannot open the output file", &error))?;
    if let Some(group) = &launch.group
        && let Err(error) = group.create(launch.limits).await
    {
        group.remove().await;
        return Err(Obstacle::of("cannot make its cgroup", &error));
    }
    let processes = Processes::new(launch.group, launch.limits);
    let began = figures::SinceBoot::now();
    match start(dir, pipes) {
        Ok(leader) => Ok(Watch {
            output,
            leader: Some(leader),
            status: None,
            ask: Ask::None,
            by_itself: false,
            processes,
            lease,
            job: None,
            began,
            limit,
            why: None,
        }),
        Err(obstacle) => {
            processes.gone().await;
            Err(obstacle)
        }
    }
}

/// Starts the workload's process and returns once its program runs, or cannot.
///
/// The child is this program with `exec` as last argument. Its standard output is a pipe that closes without a byte
/// when the kernel replaces it by the workload's program; a text in it says why that failed. Its standard error is what
/// the workload is to write to, or its standard error alone: then its standard input is what it is to write its standard
/// output to.
fn start(dir: &InstanceDir, pipes: Pipes) -> Result<Pid, Obstacle> {
    let failed = |error: io::Error| Obstacle::of("cannot start a process", &error);
    let mut child = Command::new(PROGRAM)
        .arg0("ciao-instance")
        .arg(WORD)
        .arg(&dir.0)
        .arg(EXEC)
        .process_group(0)
        .stdin(pipes.stdout.map_or_else(Stdio::null, Stdio::from))
        .stdout(Stdio::piped())
        .stderr(pipes.last)
        .spawn()
        .map_err(failed)?;
    let mut text = String::new();
    if let Some(mut pipe) = child.stdout.take() {
        // Ends when the workload's program replaces the last step, which closes its end.
        pipe.read_to_string(&mut text).map_err(failed)?;
    }
    if text.is_empty() {
        return i32::try_from(child.id())
            .ok()
            .and_then(Pid::from_raw)
            .ok_or_else(|| failed(io::Error::other("no process id")));
    }
    let _ = child.wait();
    Err(serde_json::from_str(&text).unwrap_or_else(|_| text.into()))
}

/// What the supervisor has been asked to do with its workload; it only rises.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ask {
    None,
    /// The signal that its START names was sent. The processes may take their time.
    Terminate,
    /// All are killed, and killed again while some are left. The main process's end counts as this as well.
    Kill,
}

/// The wait for every process of the instance, and what is done meanwhile.
struct Watch {
    /// The main process, until it has been waited for: so long its pid, and its group's id, cannot be another's.
    leader: Option<Pid>,
    /// What it writes.
    output: Outputs,
    /// How the main process ended; `None` until then.
    status: Option<WaitStatus>,
    ask: Ask,
    /// Whether the main process ended before anybody asked for that.
    by_itself: bool,
    processes: Processes,
    /// What the workload may run under only, if anything.
    lease: Option<lease::Watch>,
    /// The request that is being seen to. Beside everything else: it may take time, and an end may not.
    job: Option<Pin<Box<dyn Future<Output = ()>>>>,
    /// When it was started.
    began: figures::SinceBoot,
    /// How it is asked to end, and when it has to.
    limit: Limit,
    /// What ended it, where that was neither itself nor a command.
    why: Option<Why>,
}

impl Watch {
    /// Runs until no process of the instance is left, and returns the exit code of the main one.
    ///
    /// Requests over the socket are served one at a time beside the loop. A signal, an end or the lease's end is never
    /// held up by one.
    async fn until_ended(
        mut self,
        mut signals: Signals,
        socket: ControlSocket,
    ) -> io::Result<(Ended, Ran)> {
        let mut look = tokio::time::interval(OUTPUT_LOOK_INTERVAL);
        while self.reap()? {
            tokio::select! {
                asked = signals.next() => self.asked(asked),
                () = over(self.lease.as_ref()), if self.ask != Ask::Kill => self.asked(Some(Ask::Kill)),
                asked = socket.next(), if self.job.is_none() => {
                    let ending = self.ask != Ask::None;
                    self.job = Some(Box::pin(serve(asked, self.processes.clone(), ending)));
                }
                () = done(&mut self.job) => {
                    self.job = None;
                    self.end_for_memory();
                }
                () = self.limit.over(&self.processes), if self.ask != Ask::Kill && !self.limit.is_in_grace() => {
                    self.end_in_time();
                }
                () = self.limit.grace_over(), if self.ask != Ask::Kill => self.asked(Some(Ask::Kill)),
                _ = look.tick() => self.output.limit(),
            }
        }
        // The cgroup, which is asked, is removed next.
        let mut ran = figures::of_ended(self.processes.group(), self.began);
        ran.counted_ms = u64::try_from(self.limit.counted(&self.processes).as_millis()).ok();
        ran.peak_kib = ran.peak_kib.max(self.processes.held_too_much());
        let kills = self.processes.group().and_then(Cgroup::memory_kills);
        self.processes.gone().await;
        ran.output_bytes = Some(self.output.finish());
        let code = self.status.and_then(exit_code);
        // A workload that went on without what was killed, and did what it was to, has not ended for that.
        let is_short = self.by_itself && code != Some(0) && kills.is_some_and(|kills| kills > 0);
        ran.why = self.why.or(is_short.then_some(Why::Oom));
        let ended = match code.filter(|_| self.by_itself) {
            Some(code) => Ended::ByItself(code),
            None => Ended::Exited(code),
        };
        Ok((ended, ran))
    }

    /// Does what a signal asks for; `None` stands for SIGCHLD, which the caller's next `reap` handles. A request under
    /// way is dropped.
    fn asked(&mut self, asked: Option<Ask>) {
        let Some(asked) = asked else {
            return;
        };
        // A workload is not stopped on its way to its end.
        self.job = None;
        match asked {
            Ask::None => {}
            // It has been asked, and has its grace.
            Ask::Terminate if self.ask != Ask::None && self.limit.is_in_grace() => {}
            Ask::Terminate => {
                if self.ask == Ask::None {
                    self.ask = Ask::Terminate;
                }
                self.signal_all(self.limit.signal);
                // After the signal, so that it is the first thing they see.
                let _ = self.processes.go_on();
            }
            Ask::Kill => {
                self.ask = Ask::Kill;
                self.signal_all(Signal::KILL);
            }
        }
    }

    /// It was found to hold too much memory: then all of it is killed.
    fn end_for_memory(&mut self) {
        if self.processes.held_too_much().is_some() && self.ask == Ask::None {
            self.why = Some(Why::Oom);
            self.asked(Some(Ask::Kill));
        }
    }

    /// Its time may be over: then it is asked to end, as by a command, and killed after its grace. One that was asked
    /// before ends for that, but no later: its launcher, which was to kill it, may be gone.
    fn end_in_time(&mut self) {
        if self.limit.is_over(&self.processes) {
            if self.ask == Ask::None {
                self.why = Some(Why::TimeLimit);
                self.asked(Some(Ask::Terminate));
            }
            self.limit.begin_grace();
        }
    }

    /// Waits for every process that has ended; whether some are left.
    fn reap(&mut self) -> io::Result<bool> {
        let mut any = false;
        let are_left = loop {
            match rustix::process::wait(WaitOptions::NOHANG) {
                Ok(Some((pid, status))) => {
                    any = true;
                    if self.leader == Some(pid) {
                        self.leader = None;
                        self.status = Some(status);
                        if self.ask == Ask::None {
                            self.by_itself = true;
                            self.ask = Ask::Kill;
                        }
                    }
                }
                Ok(None) => break true,
                Err(Errno::CHILD) => break false,
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        };
        if any && are_left && self.ask == Ask::Kill {
            // Again: what they left behind may have forked in between. Once for all of them: each look is at every
            // process of the machine.
            self.signal_all(Signal::KILL);
        }
        Ok(are_left)
    }

    /// Signals the main process's group, and whatever of the instance is outside of it.
    fn signal_all(&self, signal: Signal) {
        if let Some(leader) = self.leader {
            let _ = rustix::process::kill_process_group(leader, signal);
        }
        if signal == Signal::KILL {
            self.processes.kill();
        } else {
            // Once each: many programs take a second SIGTERM for impatience.
            let group = self.leader.map(Pid::as_raw_pid);
            signal_each(signal, |process| Some(process.group) != group);
        }
    }
}

/// When the lease is over; never where there is none.
async fn over(lease: Option<&lease::Watch>) {
    match lease {
        // A lease that cannot be watched any more is over.
        Some(lease) => drop(lease.over().await),
        None => std::future::pending().await,
    }
}

/// When the job is done; never where there is none.
async fn done(job: &mut Option<Pin<Box<dyn Future<Output = ()>>>>) {
    match job {
        Some(job) => job.await,
        None => std::future::pending().await,
    }
}

/// Reads a request from the socket, does it and answers. A workload that is being ended is neither frozen nor limited.
async fn serve(mut asked: Asked, processes: Processes, ending: bool) {
    let Ok(request) = asked.request().await else {
        return;
    };
    let answer: Answer = match request {
        _ if ending => Err("it is being ended".to_owned()),
        Request::Freeze => freeze(&processes).await,
        Request::Thaw => processes.go_on().map_err(|error| error.to_string()),
        Request::EndForMemory { held_kib } => {
            processes.hold_too_much(held_kib);
            Ok(())
        }
        Request::Pin(cpus) => processes
            .pin(&cpus)
            .await
            .map_err(|error| error.to_string()),
        Request::Limit(limits) => processes
            .limit(limits)
            .await
            .map_err(|error| error.to_string()),
    };
    asked.answer(answer).await;
}

/// Stops every process, or none: after a failure or [`FREEZE_DEADLINE`] those that were stopped go on.
async fn freeze(processes: &Processes) -> Answer {
    let stopped = match timeout(FREEZE_DEADLINE, processes.stop()).await {
        Ok(stopped) => stopped.map_err(|error| error.to_string()),
        Err(_) => Err("not every process could be stopped in time".to_owned()),
    };
    if stopped.is_err() {
        let _ = processes.go_on();
    }
    stopped
}

/// The signals a supervisor listens to.
struct Signals {
    terminate: tokio::signal::unix::Signal,
    kill: tokio::signal::unix::Signal,
    child: tokio::signal::unix::Signal,
}

impl Signals {
    fn listen() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            kill: signal(SignalKind::user_defined1())?,
            child: signal(SignalKind::child())?,
        })
    }

    /// What the next signal asks for; `None` = a process ended.
    async fn next(&mut self) -> Option<Ask> {
        tokio::select! {
            _ = self.kill.recv() => Some(Ask::Kill),
            _ = self.terminate.recv() => Some(Ask::Terminate),
            _ = self.child.recv() => None,
        }
    }
}

/// The exit status, or minus the signal.
fn exit_code(status: WaitStatus) -> Option<i32> {
    status
        .exit_status()
        .or_else(|| Some(-status.terminating_signal()?))
}
