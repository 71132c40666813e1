//! `ciaoctl`, the operator's client: reads the command line, runs the command, ends with its exit code.
//!
//! Everything but the command line is in the library: `ctl::run` for commands with a session, [`ctl::run_context`]
//! and [`ctl::run_web`] for the others, and `generate` for `load`. Errors are printed where the exit code is
//! decided, so that every failure is one line on standard error.

mod generate;

use std::io::{self, Write};
use std::process::ExitCode;

use ciao_scheduler::ctl;
use ciao_scheduler::ctl::args::{ContextCommand, GlobalArgs, SessionCommand, WebArgs};
use ciao_scheduler::ctl::commands::CommandError;
use ciao_scheduler::ctl::exit::Exit;
use ciao_scheduler::ctl::tips::advise;
use ciao_scheduler::flags::parse_advised;
use ciao_scheduler::load::LoadArgs;
use clap::{CommandFactory, Parser, Subcommand};
use clap_complete::Shell;

/// Operator's client of a ciao-scheduler.
///
/// Connects as an operator, beside any running controller and without ever becoming master. To begin with: `ciaoctl
/// status`, `ciaoctl nodes`, `ciaoctl run --mem 64 --cpus 1 -- sleep 60`, `ciaoctl instances`.
#[derive(Debug, Parser)]
#[command(name = "ciaoctl", version = ciao_scheduler::VERSION, after_help = Exit::help(), propagate_version = true)]
struct Cli {
    /// Options of every command.
    #[command(flatten)]
    global: GlobalArgs,
    /// What to do.
    #[command(subcommand)]
    command: Command,
}

/// What `ciaoctl` can do.
#[derive(Debug, Subcommand)]
enum Command {
    /// What needs a session with the scheduler.
    #[command(flatten)]
    Session(Box<SessionCommand>),
    /// Keep where schedulers are, and which certificates to show them, under names
    #[command(subcommand)]
    Context(ContextCommand),
    /// Generate load: simulated launchers, and STARTs as fast as they are taken
    Load(LoadArgs),
    /// Serve the scheduler's page to a browser on this machine, which needs no certificate then
    Web(WebArgs),
    /// Print a completion script for a shell
    Completions {
        /// The shell
        shell: Shell,
    },
}

/// `context` does not read the current context, and `completions` needs no options at all; every other command gets
/// its options merged with the context first. A wrong command line ends in `parse_advised`, with [`Exit::Usage`].
fn main() -> ExitCode {
    let output_failed = Exit::Output.code().into();
    let cli: Cli = parse_advised(std::env::args_os(), output_failed, advise);
    let exit = match cli.command {
        Command::Session(command) => match ctl::in_context(cli.global) {
            Ok(global) => ctl::run(*command, &global),
            Err(exit) => exit,
        },
        Command::Context(command) => ctl::run_context(&command, &cli.global),
        Command::Load(args) => match ctl::in_context(cli.global) {
            Ok(global) => generate::run(&args, &global),
            Err(exit) => exit,
        },
        Command::Web(args) => match ctl::in_context(cli.global) {
            Ok(global) => ctl::run_web(&args, &global),
            Err(exit) => exit,
        },
        Command::Completions { shell } => completions(shell).unwrap_or_else(|error| {
            let error = CommandError::from(error);
            ctl::complain(error.exit(), &error.lines())
        }),
    };
    exit.into()
}

/// The script is made in memory first, so that a pipe that is closed early gives an error instead of a panic in the
/// generator.
fn completions(shell: Shell) -> io::Result<Exit> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "ciaoctl", &mut script);
    let mut out = io::stdout().lock();
    out.write_all(&script)?;
    out.flush()?;
    Ok(Exit::Done)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    #[test]
    fn the_command_line_is_consistent() {
        super::Cli::command().debug_assert();
    }
}
