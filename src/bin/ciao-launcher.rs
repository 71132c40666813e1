//! The program `ciao-launcher`: runs workloads on this node for a scheduler.

use std::process::ExitCode;

use anyhow::Context as _;
use ciao_scheduler::flags::double_dashes;
use ciao_scheduler::launcher::{self, cli::Cli, supervise};
use ciao_scheduler::logging::{self, Destination};
use clap::Parser as _;
use tokio::signal::unix::{SignalKind, signal};

fn main() -> ExitCode {
    let mut args = std::env::args_os();
    if args.nth(1).is_some_and(|word| word == supervise::WORD) {
        return supervise::run(args);
    }
    match launch(Cli::parse_from(double_dashes(
        std::env::args_os(),
        &['h', 'V'],
    ))) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("ciao-launcher: {error:#}");
            ExitCode::FAILURE
        }
    }
}

#[tokio::main]
async fn launch(cli: Cli) -> anyhow::Result<()> {
    let _logs = logging::init(&cli.log, "ciao-launcher", Destination::Stderr)?;
    let config = cli.config()?;
    let mut terminate = signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot listen for SIGINT")?;
    let shutdown = async {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    };
    launcher::run(config, shutdown).await?;
    Ok(())
}
