//! The first process of a container, if the launcher is to be that. Processes whose parents have ended become its
//! children, whoever started them, and stay in the process table until it waits for them; and signals that it does not
//! handle do not reach it. The launcher waits for those that it knows alone. So process 1 is a small one that runs the
//! launcher as its child, passes signals on to it, waits for all others, and ends as the launcher does.

use std::ffi::OsString;
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions, WaitStatus, getpid, kill_process, wait};
use tokio::signal::unix::{SignalKind, signal};

use super::supervise::PROGRAM;

/// The exit code of a program that a signal has ended is this and its number, as shells have it.
const SIGNALLED: u8 = 128;

/// Whether this process is the first of its system, which is to be told before anything is begun.
#[must_use]
pub fn is_first() -> bool {
    getpid() == Pid::INIT
}

/// Runs this program again with these arguments, and waits for it and for all orphans until it ends; its exit code.
pub fn run(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    match look_after(args) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            let _ = writeln!(
                io::stderr(),
                "ciao-launcher: cannot run the launcher as a child of process 1: {error}"
            );
            ExitCode::FAILURE
        }
    }
}

/// # Errors
/// The program cannot be started, or not be waited for.
fn look_after(args: impl IntoIterator<Item = OsString>) -> io::Result<u8> {
    let mut args = args.into_iter();
    let name = args.next().unwrap_or_else(|| PROGRAM.into());
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        // Before there is a child, so that neither a signal nor its end is missed.
        let mut signals = Signals::listen()?;
        let child = Command::new(PROGRAM).arg0(name).args(args).spawn()?;
        let child = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        let child = child.ok_or_else(|| io::Error::other("no process id"))?;
        loop {
            if let Some(status) = reap(child)? {
                return Ok(code_of(status));
            }
            if let Some(passed_on) = signals.next().await {
                // It may have ended; that shows in the next round.
                let _ = kill_process(child, passed_on);
            }
        }
    })
}

/// Waits for all that have ended; how this one did, if it is among them.
fn reap(child: Pid) -> io::Result<Option<WaitStatus>> {
    loop {
        match wait(WaitOptions::NOHANG) {
            Ok(Some((pid, status))) if pid == child => return Ok(Some(status)),
            Ok(Some(_)) | Err(Errno::INTR) => {}
            Ok(None) => return Ok(None),
            Err(error) => return Err(error.into()),
        }
    }
}

/// As shells say how a program ended.
fn code_of(status: WaitStatus) -> u8 {
    let exited = status
        .exit_status()
        .and_then(|code| u8::try_from(code).ok());
    let signalled = || {
        let signal = status.terminating_signal()?;
        Some(SIGNALLED.saturating_add(u8::try_from(signal).ok()?))
    };
    exited.or_else(signalled).unwrap_or(1)
}

/// What is passed on, and SIGCHLD.
struct Signals {
    child: tokio::signal::unix::Signal,
    terminate: tokio::signal::unix::Signal,
    interrupt: tokio::signal::unix::Signal,
    hangup: tokio::signal::unix::Signal,
    quit: tokio::signal::unix::Signal,
}

impl Signals {
    fn listen() -> io::Result<Self> {
        Ok(Self {
            child: signal(SignalKind::child())?,
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: signal(SignalKind::hangup())?,
            quit: signal(SignalKind::quit())?,
        })
    }

    /// The next to pass on; `None` = a child has ended.
    async fn next(&mut self) -> Option<Signal> {
        tokio::select! {
            _ = self.child.recv() => None,
            _ = self.terminate.recv() => Some(Signal::TERM),
            _ = self.interrupt.recv() => Some(Signal::INT),
            _ = self.hangup.recv() => Some(Signal::HUP),
            _ = self.quit.recv() => Some(Signal::QUIT),
        }
    }
}
