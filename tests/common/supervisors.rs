//! Ends instances that outlive their launchers, by their supervisors.

use std::path::Path;

use rustix::process::{Pid, Signal, kill_process};

/// Ends the instances of the launcher with this state directory.
pub(crate) fn end_instances(state: &Path) {
    let instances = std::fs::read_dir(state.join("instances"));
    for instance in instances.into_iter().flatten().flatten() {
        if let Some(supervisor) = supervisor_in(&instance.path()) {
            let _ = kill_process(supervisor, Signal::USR1);
            let _ = kill_process(supervisor, Signal::CONT);
        }
    }
}

/// The supervisor of an instance, by its files.
fn supervisor_in(instance: &Path) -> Option<Pid> {
    let text = std::fs::read(instance.join("process.json")).ok()?;
    let file: serde_json::Value = serde_json::from_slice(&text).ok()?;
    Pid::from_raw(file["By"]["pid"].as_i64()?.try_into().ok()?)
}
