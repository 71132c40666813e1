//! When to stop: SIGTERM or SIGINT. What SIGHUP does: nothing to a daemon, which has nothing to reload.

use std::io;

use tokio::signal::unix::{SignalKind, signal};
use tracing::info;

/// What a program does when it gets SIGHUP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnHangup {
    /// Log it and go on: daemons are sent it by operators and tools that expect a reload.
    Ignore,
    /// Stop: a program in the foreground, whose terminal has been closed.
    Stop,
}

/// Listens for SIGTERM, SIGINT and SIGHUP from now on; the future ends with the first signal that stops the program.
///
/// # Errors
/// The handlers cannot be installed.
pub fn requested(on_hangup: OnHangup) -> io::Result<impl Future<Output = ()> + Send> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut hangup = signal(SignalKind::hangup())?;
    Ok(async move {
        loop {
            tokio::select! {
                _ = terminate.recv() => return,
                _ = interrupt.recv() => return,
                _ = hangup.recv() => match on_hangup {
                    OnHangup::Stop => return,
                    OnHangup::Ignore => info!(event = "sighup_ignored",
                        "SIGHUP is ignored: files are not reloaded while the program runs; restart it to use changed ones"
                    ),
                },
            }
        }
    })
}
