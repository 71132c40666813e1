//! From a parsed command line to an exit code: a runtime, standard output, and the one place where errors are printed.

use std::io::{self, Write};
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};

use clap::CommandFactory;
use rustls::pki_types::ServerName;
use tokio::runtime::{Builder, Runtime};

use crate::ctl::args::{Cli, Command, GlobalArgs};
use crate::ctl::client;
use crate::ctl::commands::{self, CommandError};
use crate::ctl::exit::Exit;
use crate::ctl::load::peer::cert_file;
use crate::ctl::load::{self, LoadArgs, LoadTarget};
use crate::ctl::output::Output;
use crate::net::address::Endpoint;
use crate::net::tls::KeyFiles;

/// Runs a command to its end. Errors go to standard error, one line (a listing of candidates takes more).
#[must_use]
pub fn run(cli: Cli) -> Exit {
    let mut out = io::BufWriter::new(io::stdout().lock());
    let result = match cli.command {
        Command::Completions { shell } => completions(shell, &mut out),
        Command::Load(args) => load(&args, &cli.global, Output::new(&mut out, &mut io::stderr())),
        Command::Session(command) => prepare(&cli.global).and_then(|runtime| {
            let mut err = io::stderr();
            let output = Output::new(&mut out, &mut err);
            let exit = runtime.block_on(commands::run(command, &cli.global, output));
            runtime.shutdown_background();
            exit
        }),
    };
    let result = result.and_then(|exit| out.flush().map(|()| exit).map_err(CommandError::from));
    result.unwrap_or_else(|error| {
        let exit = error.exit();
        if exit != Exit::Done {
            // With standard error gone, the exit code is all that is left to say.
            let _ = write!(io::stderr(), "ciaoctl: {}", error.lines());
        }
        exit
    })
}

/// What a session needs before it begins.
fn prepare(global: &GlobalArgs) -> Result<Runtime, CommandError> {
    check_key(&commands::client_config(global).cert, global)?;
    runtime(1)
}

/// Looks at who can read a file with a private key.
fn check_key(file: &Path, global: &GlobalArgs) -> Result<(), CommandError> {
    let warn = |said| {
        // With standard error gone, nobody reads warnings.
        let _ = writeln!(io::stderr(), "ciaoctl: warning: {said}");
    };
    let checked = KeyFiles::new(global.strict_files).check(file, warn);
    checked.map_err(|error| client::ConnectError::from(error).into())
}

fn completions(shell: clap_complete::Shell, out: &mut dyn Write) -> Result<Exit, CommandError> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "ciaoctl", &mut script);
    out.write_all(&script)?;
    Ok(Exit::Done)
}

fn load(args: &LoadArgs, global: &GlobalArgs, mut out: Output<'_>) -> Result<Exit, CommandError> {
    let target = load_target(global)?;
    for role in ["Controller", "CNAgent"] {
        check_key(&cert_file(&target.certs, role), global)?;
    }
    let runtime = runtime(args.threads.get())?;
    let report = runtime.block_on(load::run(args, &target));
    runtime.shutdown_background();
    let report = report?;
    if global.json {
        out.document(&report.json())?;
    } else {
        out.lines(&report.lines())?;
    }
    Ok(report.exit())
}

/// Where the load goes and which certificates it takes.
fn load_target(global: &GlobalArgs) -> Result<LoadTarget, CommandError> {
    let usage = |reason: String| CommandError::Usage(reason);
    let endpoint: Endpoint = global
        .server
        .parse()
        .map_err(|e| usage(format!("--server: {e}")))?;
    let name = ServerName::try_from(endpoint.expected_name().to_owned()).map_err(|_| {
        usage(format!(
            "--server: {:?} is no name a certificate could have",
            endpoint.host
        ))
    })?;
    let mut addresses = (endpoint.host.as_str(), endpoint.port)
        .to_socket_addrs()
        .map_err(|e| usage(format!("--server: {endpoint}: {e}")))?
        .collect::<Vec<SocketAddr>>();
    // A scheduler listens on IPv4 in any case.
    addresses.sort_by_key(SocketAddr::is_ipv6);
    let address = *addresses
        .first()
        .ok_or_else(|| usage(format!("--server: {endpoint} has no address")))?;
    let certs = global.certs.clone().or_else(|| directory(global.cert.as_deref())).ok_or_else(|| {
        usage("load needs --certs DIR with the CA's, a controller's and a launcher's certificate (ciao-cert -all)".into())
    })?;
    Ok(LoadTarget {
        address,
        name,
        certs,
    })
}

fn directory(cert: Option<&Path>) -> Option<PathBuf> {
    cert.and_then(Path::parent).map(Into::into)
}

fn runtime(threads: usize) -> Result<Runtime, CommandError> {
    let mut builder = if threads == 1 {
        Builder::new_current_thread()
    } else {
        Builder::new_multi_thread()
    };
    if threads > 1 {
        builder.worker_threads(threads);
    }
    Ok(builder.enable_all().build()?)
}
