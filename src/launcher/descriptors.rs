//! The descriptors that a process hands on to the programs it starts: those that it was itself started with, as by a
//! script that holds a lock, unless it sees to them. A workload outlives its launcher, and so would the lock.

use std::fs;

use nix::fcntl::{FcntlArg, FdFlag, fcntl};

/// Standard input, output and error, which are handed on as whoever starts a program says.
const STANDARD: i32 = 2;

/// Has no program that this process starts from now on inherit what is open at this moment, but for the standard three
/// and `kept`. Where `/proc` does not say what is open, nothing is done: there is no launcher without `/proc`.
pub(super) fn keep_to_oneself(kept: Option<i32>) {
    let open = fs::read_dir("/proc/self/fd")
        .into_iter()
        .flatten()
        .flatten();
    let numbers = open.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    // All of them first: what is read from has a descriptor as well.
    let numbers: Vec<i32> = numbers.collect();
    for number in numbers {
        if number > STANDARD && Some(number) != kept {
            // One that was closed meanwhile is handed on to nobody.
            let _ = fcntl(number, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC));
        }
    }
}
