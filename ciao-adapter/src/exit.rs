//! How an adapter's program ends.

use std::process::ExitCode;

use ciao_scheduler::flags::complain;
use ciao_scheduler::printable::Printable;

/// The exit code of this program. What it failed with goes to the standard error, after the program's name.
#[must_use]
pub fn exit_code(program: &str, done: anyhow::Result<()>) -> ExitCode {
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            complain(program, Printable::new(format_args!("{error:#}")));
            ExitCode::FAILURE
        }
    }
}
