//! `ciaoctl`, the operator's client: reads the command line, runs the command, ends with its exit code.

use std::process::ExitCode;

use ciao_scheduler::ctl;
use clap::Parser;

fn main() -> ExitCode {
    ctl::run(ctl::args::Cli::parse()).into()
}
