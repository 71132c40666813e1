//! When to stop: SIGTERM or SIGINT. What SIGHUP does: a daemon opens its log file again and reads its log levels, and the
//! scheduler reads all its files again. SIGUSR1 and SIGUSR2 are ignored, as the original's daemons ignore them: unhandled they would end the
//! program.

use std::io;
use std::sync::Arc;

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Notify;
use tokio::task::spawn_blocking;
use tracing::info;

use crate::logging::{Levels, Reopen};

/// What a program does when it gets SIGHUP.
#[derive(Debug, Clone)]
pub enum OnHangup {
    /// Open the log file again, where one is written, read the log levels again, and go on: daemons are sent it when that was renamed, and by
    /// operators and tools that expect a reload. For daemons that read their certificates whenever they connect.
    Reopen(Option<Reopen>, Option<Levels>),
    /// Open the log file again, and tell who reads files again.
    Reload(Option<Reopen>, Hangups),
    /// Stop: a program in the foreground, whose terminal has been closed.
    Stop,
}

/// The SIGHUPs that a program has got, for who reads files again. Clones are of the same ones.
#[derive(Debug, Clone, Default)]
pub struct Hangups(Arc<Notify>);

impl Hangups {
    /// Waits for the next. Several that come between two waits are one; one that came before counts.
    pub async fn next(&self) {
        self.0.notified().await;
    }

    /// Says that there was one.
    pub fn notify(&self) {
        self.0.notify_one();
    }
}

/// Listens for SIGTERM, SIGINT and SIGHUP from now on; the future ends with the first signal that stops the program.
///
/// # Errors
/// The handlers cannot be installed.
pub fn requested(on_hangup: OnHangup) -> io::Result<impl Future<Output = ()> + Send> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut hangup = signal(SignalKind::hangup())?;
    let mut user = [
        signal(SignalKind::user_defined1())?,
        signal(SignalKind::user_defined2())?,
    ];
    Ok(async move {
        let [user_1, user_2] = &mut user;
        loop {
            tokio::select! {
                // They mean nothing here: each goes on with the next round.
                _ = user_1.recv() => {}
                _ = user_2.recv() => {}
                _ = terminate.recv() => return,
                _ = interrupt.recv() => return,
                _ = hangup.recv() => match &on_hangup {
                    OnHangup::Stop => return,
                    OnHangup::Reopen(log, levels) => {
                        reopen(log.as_ref());
                        if let Some(levels) = levels.clone() {
                            // Its file may be on a disk that is slow to answer. A panic is in the log already.
                            let _ = spawn_blocking(move || levels.read_again()).await;
                        }
                        info!(event = "sighup",
                            "SIGHUP: certificates are read at each connect, and are used from the next one on"
                        );
                    }
                    OnHangup::Reload(log, hangups) => {
                        reopen(log.as_ref());
                        hangups.notify();
                    }
                },
            }
        }
    })
}

/// Has the log file opened again, where one is written.
fn reopen(log: Option<&Reopen>) {
    if let Some(log) = log {
        log.reopen("SIGHUP");
    }
}
