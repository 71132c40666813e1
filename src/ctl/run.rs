//! From a command to an exit code: a runtime, standard output, and the one place where errors are printed.
//!
//! The library's side of the program `ciaoctl`. It decides where output goes (standard output, buffered), which
//! runtime there is (one thread: a command waits more than it computes), and that every error becomes one line on
//! standard error.

use std::io::{self, IsTerminal as _, Write};
use std::path::Path;
use std::process::Stdio;

use tokio::process::Command;
use tokio::runtime::{Builder, Runtime};

use crate::ctl::args::{ContextCommand, GlobalArgs, SessionCommand, WebArgs};
use crate::ctl::client;
use crate::ctl::commands::{self, CommandError};
use crate::ctl::contexts;
use crate::ctl::daily;
use crate::ctl::exit::Exit;
use crate::ctl::output::{Output, terminal_colours, terminal_width};
use crate::ctl::web::{self, Open};
use crate::net::tls::KeyFiles;
use crate::printable::Lines;

/// Runs a command that needs a session to its end, and prints what it has to say.
///
/// Flushes at the end, so that an output that cannot be written becomes [`Exit::Output`] instead of being lost. The
/// runtime is shut down without waiting for a thread that still reads standard input.
#[must_use]
pub fn run(command: SessionCommand, global: &GlobalArgs) -> Exit {
    let mut out = io::BufWriter::new(io::stdout().lock());
    let result = prepare(global).and_then(|runtime| {
        let mut err = io::stderr();
        let output = Output::new(&mut out, &mut err)
            .with_width(terminal_width())
            .with_colours(terminal_colours());
        let exit = runtime.block_on(commands::run(command, global, output));
        runtime.shutdown_background();
        exit
    });
    let result = result.and_then(|exit| out.flush().map(|()| exit).map_err(CommandError::from));
    result.unwrap_or_else(|error| fail(&error))
}

/// Runs `ciaoctl context`, which needs no session.
///
/// Without a runtime and without certificates.
#[must_use]
pub fn run_context(command: &ContextCommand, global: &GlobalArgs) -> Exit {
    let mut out = io::BufWriter::new(io::stdout().lock());
    let mut err = io::stderr();
    let output = Output::new(&mut out, &mut err).with_width(terminal_width());
    let result = commands::context::context(command, global, output);
    let result = result.and_then(|exit| out.flush().map(|()| exit).map_err(CommandError::from));
    result.unwrap_or_else(|error| fail(&error))
}

/// The options of every command, completed from the context in use. If that cannot be used, the exit code with which
/// the program is to end.
///
/// Printing the error is done here, because the caller has only an exit code to return.
///
/// # Errors
/// The exit code, once it was said why.
pub fn in_context(global: GlobalArgs) -> Result<GlobalArgs, Exit> {
    contexts::apply(global).map_err(|error| fail(&error.into()))
}

/// Serves the scheduler's page to browsers of this machine until Ctrl-C.
///
/// A browser is opened only if standard output is a terminal.
#[must_use]
pub fn run_web(args: &WebArgs, global: &GlobalArgs) -> Exit {
    let mut out = io::stdout();
    let mut err = io::stderr();
    let open: Option<Open> = out.is_terminal().then_some(open_browser);
    let runtime = match runtime() {
        Ok(runtime) => runtime,
        Err(error) => return fail(&error),
    };
    let output = Output::new(&mut out, &mut err);
    let served = runtime.block_on(web::serve(args, global, output, open));
    runtime.shutdown_background();
    served.unwrap_or_else(|error| complain(error.exit(), &error.lines()))
}

/// Opens a browser, where there is one. Where there is none, the address is on the screen.
///
/// Not waited for: it may run as long as the browser does.
fn open_browser(url: &str) {
    let _ = Command::new("xdg-open")
        .arg(url)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
}

/// Says on standard error why a command was not done.
///
/// Text and exit code come from the same error.
fn fail(error: &CommandError) -> Exit {
    complain(error.exit(), &error.lines())
}

/// Says on standard error why the program ends with this exit code, in one line (a listing of candidates takes more).
///
/// An interrupted command may have nothing to say; a closed pipe has nothing to say either, since its code is
/// [`Exit::Done`].
#[must_use]
pub fn complain(exit: Exit, lines: &Lines) -> Exit {
    if exit != Exit::Done && !lines.is_empty() {
        // With standard error gone, the exit code is all that is left to say.
        let _ = write!(io::stderr(), "ciaoctl: {lines}");
    }
    exit
}

/// What a session needs before it begins.
///
/// A key file that is open to others is reported before it is used.
fn prepare(global: &GlobalArgs) -> Result<Runtime, CommandError> {
    check_key(&commands::client_config(global).cert, global)?;
    runtime()
}

/// Checks who can read a file with a private key.
///
/// Without `--strict-files` others who can read it are a warning on standard error, once a day for each file.
///
/// # Errors
/// With `--strict-files`: others can.
pub fn check_key(file: &Path, global: &GlobalArgs) -> Result<(), CommandError> {
    let warn = |said: String| {
        // The directory of the file counts: two names of one file are one.
        let whole = file.canonicalize().unwrap_or_else(|_| file.to_owned());
        if !daily::is_due(&format!("key open to others: {}", whole.display())) {
            return;
        }
        // With standard error gone, warnings have no reader.
        let _ = writeln!(io::stderr(), "ciaoctl: warning: {said}");
    };
    let checked = KeyFiles::new(global.strict_files).check(file, warn);
    checked.map_err(|error| client::ConnectError::from(error).into())
}

fn runtime() -> Result<Runtime, CommandError> {
    Ok(Builder::new_current_thread().enable_all().build()?)
}
