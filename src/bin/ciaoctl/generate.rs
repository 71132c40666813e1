//! `ciaoctl load`: where the load goes, by the options that every command has, and what its end means for the caller.

use std::io::{self, Write};
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};

use ciao_scheduler::ctl::args::GlobalArgs;
use ciao_scheduler::ctl::commands::CommandError;
use ciao_scheduler::ctl::exit::Exit;
use ciao_scheduler::ctl::output::Output;
use ciao_scheduler::ctl::{check_key, complain};
use ciao_scheduler::load::report::Verdict;
use ciao_scheduler::load::{self, LoadArgs, LoadError, LoadTarget};
use ciao_scheduler::net::address::Endpoint;
use ciao_scheduler::net::directory::cert_file;
use ciao_scheduler::printable::{Lines, Printable};
use rustls::pki_types::ServerName;
use tokio::runtime::{Builder, Runtime};

/// Why there is no result.
#[derive(Debug, thiserror::Error)]
enum GenerateError {
    /// As any command may fail.
    #[error(transparent)]
    Command(#[from] CommandError),
    /// The run has no result.
    #[error(transparent)]
    Load(#[from] LoadError),
}

/// Generates load and prints how that went.
pub(crate) fn run(args: &LoadArgs, global: &GlobalArgs) -> Exit {
    let mut out = io::BufWriter::new(io::stdout().lock());
    let result = generate(args, global, Output::new(&mut out, &mut io::stderr()))
        .and_then(|exit| Ok(out.flush().map(|()| exit).map_err(CommandError::from)?));
    result.unwrap_or_else(|error| match error {
        GenerateError::Command(error) => complain(error.exit(), &error.lines()),
        GenerateError::Load(error) => {
            let lines: Lines = [Printable::new(&error)].into_iter().collect();
            complain(exit_of(&error), &lines)
        }
    })
}

fn generate(
    args: &LoadArgs,
    global: &GlobalArgs,
    mut out: Output<'_>,
) -> Result<Exit, GenerateError> {
    let target = target(global)?;
    for role in ["Controller", "CNAgent"] {
        check_key(&cert_file(&target.certs, role), global)?;
    }
    let runtime = runtime(args.threads.get()).map_err(CommandError::from)?;
    let report = runtime.block_on(load::run(args, &target));
    runtime.shutdown_background();
    let report = report?;
    let printed = if global.json {
        out.document(&report.json())
    } else {
        out.lines(&report.lines())
    };
    printed.map_err(CommandError::from)?;
    Ok(match report.verdict() {
        Verdict::Right => Exit::Done,
        Verdict::Wrong => Exit::Refused,
        Verdict::Closed => Exit::Connection,
        Verdict::NotInTime => Exit::Timeout,
    })
}

/// The exit code of a run that has no result.
fn exit_of(error: &LoadError) -> Exit {
    match error {
        LoadError::NotMaster => Exit::Refused,
        LoadError::NotReady { .. } => Exit::Timeout,
        LoadError::Driver { .. } | LoadError::NoLauncher { .. } => Exit::Connection,
        _ => Exit::Usage,
    }
}

/// Where the load goes and which certificates it takes.
fn target(global: &GlobalArgs) -> Result<LoadTarget, CommandError> {
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

fn runtime(threads: usize) -> io::Result<Runtime> {
    let mut builder = if threads == 1 {
        Builder::new_current_thread()
    } else {
        Builder::new_multi_thread()
    };
    if threads > 1 {
        builder.worker_threads(threads);
    }
    builder.enable_all().build()
}
