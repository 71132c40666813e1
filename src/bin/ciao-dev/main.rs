//! A cluster on this machine, as `ciao-scheduler dev` runs it: a program of its own where the daemon is built without it, as
//! it is packaged.

#[path = "../ciao-scheduler/dev_flags.rs"]
mod dev_flags;

use std::process::ExitCode;

use ciao_scheduler::flags::{complain, double_dashes, parse, with_causes};
use ciao_scheduler::launcher::supervise;
use ciao_scheduler::printable::Printable;
use clap::Parser;
use mimalloc::MiMalloc;

use dev_flags::DevFlags;

/// Exit code: output could not be written.
const FAILED: i32 = 1;

/// As in the daemon.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

/// Runs a whole cluster on this machine: throw-away certificates, the scheduler, three launchers.
#[derive(Debug, Parser)]
#[command(name = "ciao-dev", version = ciao_scheduler::VERSION, args_override_self = true)]
struct Flags {
    /// How to run it
    #[command(flatten)]
    dev: DevFlags,
}

/// The exit code is 1 for every failure; a wrong command line ends in `parse`, with 2.
fn main() -> ExitCode {
    let mut words = std::env::args_os();
    if words.nth(1).is_some_and(|word| word == supervise::WORD) {
        // The launchers run their workloads through this program.
        return supervise::run(words);
    }
    let flags: Flags = parse(double_dashes(std::env::args_os(), &['h', 'V']), FAILED);
    dev_flags::run(flags.dev).unwrap_or_else(|error| {
        complain("ciao-dev", Printable::new(with_causes(error.as_ref())));
        ExitCode::FAILURE
    })
}
