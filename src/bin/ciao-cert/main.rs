//! Makes, checks and shows the certificates of SSNTP peers; see `ciao-cert -help`.
//!
//! ```text
//! -dump FILE                          check::dump
//! -verify -anchor-cert CA FILE…       Cli::verify_all
//! anything else                       Cli::make
//! ```
//!
//! Flags may have one dash, as Go's have: they are rewritten before clap sees them.

mod check;
mod error;
mod flags;
mod make;

use std::process::ExitCode;

use ciao_scheduler::flags::{complain, double_dashes, parse};

use error::{CliError, FAILED};
use flags::Cli;

/// Exit code: the command line makes no sense as a whole.
const USAGE: u8 = 2;

/// The command line is complete before anything is read or written.
fn main() -> ExitCode {
    let words = double_dashes(std::env::args_os(), &['h', 'V']);
    let cli: Cli = parse(words, FAILED.into());
    if let Some(complaint) = cli.missing() {
        complain("ciao-cert", format_args!("{complaint}; see -help"));
        return ExitCode::from(USAGE);
    }
    match run(&cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            complain("ciao-cert", &error);
            ExitCode::from(error.exit_code())
        }
    }
}

/// Exactly one of the three happens; clap and [`Cli::missing`] have refused combinations.
fn run(cli: &Cli) -> Result<(), CliError> {
    if let Some(path) = &cli.dump {
        return check::dump(path);
    }
    match &cli.anchor_cert {
        Some(ca) if !cli.certificates.is_empty() => cli.verify_all(ca),
        _ => cli.make(),
    }
}
