//! What processes are doing, as `/proc` says.

#![allow(dead_code, reason = "each test program uses a part of it")]

/// Whether a process runs, or could; one that has ended and was not waited for does not.
pub(crate) fn runs(process: i32) -> bool {
    !matches!(state(process), None | Some('Z' | 'X'))
}

/// Whether a process is stopped.
///
/// One that waits in vfork(2) for its child is so too once its child is: it does nothing more, and the kernel has it
/// come to its own stop only when the child goes on. Debian's `sh` starts its commands by vfork.
pub(crate) fn is_stopped(process: i32) -> bool {
    match state(process) {
        Some('T') => true,
        Some('D') => {
            let children = children(process);
            !children.is_empty() && children.into_iter().all(is_stopped)
        }
        _ => false,
    }
}

/// What a process is doing, in the letters of `/proc`; `None` = it is not there.
fn state(process: i32) -> Option<char> {
    state_and_parent(process).map(|(state, _)| state)
}

fn children(process: i32) -> Vec<i32> {
    let all = std::fs::read_dir("/proc").unwrap();
    all.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(|it| state_and_parent(*it).is_some_and(|(_, parent)| parent == process))
        .collect()
}

fn state_and_parent(process: i32) -> Option<(char, i32)> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    let (_, after_name) = stat.rsplit_once(") ")?;
    let (state, rest) = after_name.split_once(' ')?;
    let (parent, _) = rest.split_once(' ')?;
    Some((state.chars().next()?, parent.parse().ok()?))
}
