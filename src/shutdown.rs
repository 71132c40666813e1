//! When to stop: SIGTERM or SIGINT.

use std::io;

use tokio::signal::unix::{SignalKind, signal};

/// Listens for SIGTERM and SIGINT from now on; the future ends with the first.
///
/// # Errors
/// The handlers cannot be installed.
pub fn requested() -> io::Result<impl Future<Output = ()> + Send> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    })
}
