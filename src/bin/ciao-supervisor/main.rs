//! The program `ciao-supervisor`: what `ciao-launcher` runs beside each instance, and as the last step before its program.
//!
//! Any program that runs launchers can be that as well, and is where this one is not installed. This one has nothing else in
//! it, so that it is loaded in less than half of the time.

use std::ffi::OsString;
use std::io::{self, Write as _};
use std::process::ExitCode;

use ciao_scheduler::launcher::supervise;

/// What is said to a person who runs it.
const HELP: &str = "\
Runs one instance for ciao-launcher, which starts this program itself, from beside its own or from where
ciao-launcher --supervisor says. It is of no use by hand.

Usage: ciao-supervisor --version | --help
";

/// Exit code: a wrong command line.
const MISUSED: u8 = 2;

fn main() -> ExitCode {
    let mut args = std::env::args_os().skip(1);
    match args.next() {
        Some(word) if word == supervise::WORD => supervise::run(args),
        word => answer(word),
    }
}

/// Answers a person, or a launcher that asks for the version.
fn answer(word: Option<OsString>) -> ExitCode {
    let is = |words: [&str; 2]| {
        word.as_deref()
            .is_some_and(|word| words.iter().any(|it| word == *it))
    };
    let (text, code) = if is(["--version", "-V"]) {
        (supervise::version(), ExitCode::SUCCESS)
    } else if is(["--help", "-h"]) {
        (HELP.to_owned(), ExitCode::SUCCESS)
    } else {
        let _ = io::stderr().write_all(HELP.as_bytes());
        return ExitCode::from(MISUSED);
    };
    match io::stdout().write_all(text.as_bytes()) {
        Ok(()) => code,
        Err(_) => ExitCode::FAILURE,
    }
}
