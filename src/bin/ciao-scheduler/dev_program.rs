//! `ciao-scheduler dev` where it is left out, as in what is packaged: the program `ciao-dev`, which is beside this one.

use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use clap::Args;

/// The program.
const PROGRAM: &str = "ciao-dev";

/// What is passed on to it.
#[derive(Debug, Args)]
#[command(disable_help_flag = true)]
pub(crate) struct DevFlags {
    /// Its flags; --help lists them
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    flags: Vec<OsString>,
}

/// Becomes the program; it is the one in the directory of this program, or else in `PATH`.
///
/// # Errors
/// It is not there or cannot be run.
pub(crate) fn run(flags: DevFlags) -> anyhow::Result<ExitCode> {
    let own = std::env::current_exe();
    let beside = own.ok().map(|own| own.with_file_name(PROGRAM));
    let program = beside
        .filter(|path| path.exists())
        .unwrap_or_else(|| PathBuf::from(PROGRAM));
    let error = Command::new(&program).args(flags.flags).exec();
    anyhow::bail!(
        "cannot run {}: {error}; it is packaged with ciao-scheduler, and `cargo run --release -- dev` runs the same from the sources",
        program.display()
    )
}
