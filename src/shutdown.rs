//! When to stop: SIGTERM or SIGINT. What SIGHUP does: a daemon opens its log file again, and reloads nothing. SIGUSR1 and
//! SIGUSR2 are ignored, as the original's daemons ignore them: unhandled they would end the program.

use std::io;

use tokio::signal::unix::{SignalKind, signal};
use tracing::info;

use crate::logging::Reopen;

/// What a program does when it gets SIGHUP.
#[derive(Debug, Clone)]
pub enum OnHangup {
    /// Open the log file again, where one is written, and go on: daemons are sent it when that was renamed, and by
    /// operators and tools that expect a reload.
    Reopen(Option<Reopen>),
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
                    OnHangup::Reopen(Some(log)) => {
                        log.ask();
                        // The first line of the file under its name.
                        info!(event = "log_reopened",
                            "SIGHUP: the log file is opened again; no other file is read again while the program runs, \
                             restart it to use changed ones"
                        );
                    }
                    OnHangup::Reopen(None) => info!(event = "sighup_ignored",
                        "SIGHUP is ignored: files are not reloaded while the program runs; restart it to use changed ones"
                    ),
                },
            }
        }
    })
}
