//! The program `ciao-launcher`: runs workloads on this node for a scheduler.
//!
//! The same program is also the supervisor of a workload where `ciao-supervisor` is not installed: the launcher starts itself
//! then for each, with a first argument that no user would type.

mod features;
mod flags;
mod pinning;
mod servers;

use std::process::ExitCode;

use anyhow::Context as _;
use ciao_scheduler::flags::{complain, double_dashes, parse, with_causes};
use ciao_scheduler::launcher::{self, first, supervise};
use ciao_scheduler::logging::{self, Destination};
use ciao_scheduler::printable::Printable;
use ciao_scheduler::shutdown::{self, OnHangup};

use flags::Cli;

/// Exit code: something failed.
///
/// A wrong command line ends in `parse` with 2.
const FAILED: i32 = 1;

/// The supervisor must stay free of a runtime and of flags: it is told apart before anything else. Then process 1, which
/// runs the launcher as its child.
fn main() -> ExitCode {
    let mut args = std::env::args_os();
    if args.nth(1).is_some_and(|word| word == supervise::WORD) {
        return supervise::run(args);
    }
    if first::is_first() {
        return first::run(std::env::args_os());
    }
    let words = double_dashes(std::env::args_os(), &['h', 'V']);
    match launch(parse(words, FAILED)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            complain("ciao-launcher", Printable::new(with_causes(error.as_ref())));
            ExitCode::FAILURE
        }
    }
}

/// Errors of the configuration and of the launcher end the program; a scheduler that is not there does not.
#[tokio::main]
async fn launch(cli: Cli) -> anyhow::Result<()> {
    // The guard writes what is left of the log when the program ends.
    let logs = logging::init(&cli.log, "ciao-launcher", Destination::Stderr)?;
    let config = cli.config()?;
    let stop = shutdown::requested(OnHangup::Reopen(logs.reopen(), logs.levels()))
        .context("cannot listen for signals")?;
    launcher::run(config, stop).await?;
    Ok(())
}
