//! Makes, checks and shows the certificates of SSNTP peers; see `ciao-cert -help`.

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

fn run(cli: &Cli) -> Result<(), CliError> {
    if let Some(path) = &cli.dump {
        return check::dump(path);
    }
    match &cli.anchor_cert {
        Some(ca) if !cli.certificates.is_empty() => cli.verify_all(ca),
        _ => cli.make(),
    }
}
