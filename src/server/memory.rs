//! Gives memory back to the system after many peers have left.
//!
//! glibc keeps what was freed below the top of its heaps; after 10 000 launchers have left that is most of what they
//! used. `malloc_trim` gives it back. It has no safe form in any maintained crate, and an allocator of our own choice
//! does not help by itself, so this file holds the project's one unsafe call.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{MissedTickBehavior, interval};
use tracing::debug;

use super::hub::Hub;

/// Time between two looks at whether anything was freed. Trimming walks all heaps, which takes milliseconds.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Looks without anything newly freed before memory is given back: while peers leave by the thousand there is better
/// to do.
const QUIET_LOOKS: u32 = 1;

/// Trims the heaps once after each time of leaving; ends never.
pub(super) async fn give_back(hub: Arc<Hub>) {
    let mut look = interval(LOOK_EVERY);
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (mut trimmed, mut seen, mut quiet) = (hub.frees(), hub.frees(), 0);
    loop {
        look.tick().await;
        let frees = hub.frees();
        quiet = if frees == seen { quiet + 1 } else { 0 };
        seen = frees;
        if frees != trimmed && quiet >= QUIET_LOOKS {
            trimmed = frees;
            // Not on a worker: it may take a while on a large heap.
            let released = tokio::task::spawn_blocking(trim).await;
            debug!("memory given back: {released:?}");
        }
    }
}

#[cfg(target_env = "gnu")]
#[expect(
    unsafe_code,
    reason = "malloc_trim has no safe form; see the top of this file"
)]
fn trim() -> bool {
    // SAFETY: takes no pointers and may be called at any time from any thread (malloc_trim(3): MT-Safe).
    unsafe { libc::malloc_trim(0) == 1 }
}

/// Other C libraries give memory back by themselves, or have no way to be asked.
#[cfg(not(target_env = "gnu"))]
fn trim() -> bool {
    false
}
