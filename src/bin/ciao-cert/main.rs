//! Makes, checks and shows the certificates of SSNTP peers; see `ciao-cert -help`.
//!
//! ```text
//! -dump FILE                          check::dump
//! -verify -anchor-cert CA FILE…       Cli::verify_all
//! -revoke, -renew-crl                 Cli::keep_list
//! anything else                       Cli::make
//! ```
//!
//! Flags may have one dash, as Go's have: they are rewritten before clap sees them. So are the words `revoke` and `crl` in
//! front of them.

mod check;
mod crl;
mod error;
mod flags;
mod make;

use std::ffi::OsString;
use std::process::ExitCode;

use ciao_scheduler::flags::{complain, double_dashes, parse};

use error::{CliError, FAILED};
use flags::Cli;

/// Exit code: the command line makes no sense as a whole.
const USAGE: u8 = 2;

/// The command line is complete before anything is read or written.
fn main() -> ExitCode {
    let words = double_dashes(as_flags(std::env::args_os()), &['h', 'V']);
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

/// The words `revoke` and `crl` in the first place as the flags that they stand for.
fn as_flags(words: impl Iterator<Item = OsString>) -> impl Iterator<Item = OsString> {
    words.enumerate().map(|(at, word)| match word.to_str() {
        Some("revoke") if at == 1 => "-revoke".into(),
        Some("crl") if at == 1 => "-renew-crl".into(),
        _ => word,
    })
}

/// Exactly one of these happens; clap and [`Cli::missing`] have refused combinations.
fn run(cli: &Cli) -> Result<(), CliError> {
    if let Some(path) = &cli.dump {
        return check::dump(path);
    }
    match &cli.anchor_cert {
        Some(anchor) if cli.revoke || cli.renew_crl => cli.keep_list(anchor),
        Some(ca) if !cli.certificates.is_empty() => cli.verify_all(ca),
        _ => cli.make(),
    }
}
