//! `ciaoctl load`: where the load goes, by the options that every command has, and what its end means for the caller.
//!
//! The load itself is the library's [`load`]; this file makes its target of the global options, checks that the
//! cluster is empty, and turns the result into output and an exit code. It is not under `ctl`, because it is no
//! session with a scheduler: it opens its own connections, with two kinds of certificates.

use std::io::{self, Write};
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};

use ciao_scheduler::ctl::args::GlobalArgs;
use ciao_scheduler::ctl::client::{Client, ClientConfig, ConnectError};
use ciao_scheduler::ctl::commands::{CommandError, client_config};
use ciao_scheduler::ctl::exit::Exit;
use ciao_scheduler::ctl::output::Output;
use ciao_scheduler::ctl::{check_key, complain};
use ciao_scheduler::load::report::Verdict;
use ciao_scheduler::load::{self, LoadArgs, LoadError, LoadTarget};
use ciao_scheduler::net::address::Endpoint;
use ciao_scheduler::net::directory::{ca_file, cert_file};
use ciao_scheduler::net::link;
use ciao_scheduler::printable::{Lines, Printable};
use proto_frames::payload::{InstanceView, NodeView, PhaseName, PlacementState, QueryKind};
use rustls::pki_types::ServerName;
use tokio::runtime::{Builder, Runtime};

/// Why there is no result.
///
/// Both print one line; they differ in how the exit code is found.
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
///
/// Prints the report even if the run found lost STARTs: the exit code says so.
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

/// Both certificate files are checked first, then the cluster, and only then is anything connected as a launcher.
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
    let report = runtime.block_on(async {
        if !args.force {
            check_vacant(&target, global).await?;
        }
        Ok::<_, GenerateError>(load::run(args, &target).await?)
    });
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

/// Sees that no other client or node is connected: simulated nodes have room for everything and carry nothing out.
///
/// A peer that does not answer in this project's encoding cannot be asked, which is [`LoadError::Unasked`]: only
/// `--force` runs the load then.
async fn check_vacant(target: &LoadTarget, global: &GlobalArgs) -> Result<(), GenerateError> {
    let config = ClientConfig {
        cert: cert_file(&target.certs, "Controller"),
        trust: target.trust.clone(),
        ..client_config(global)
    };
    let mut client = Client::connect(&config)
        .await
        .map_err(|error| match &error {
            ConnectError::Link(
                link::ConnectError::NoAnswer { .. } | link::ConnectError::OtherEncoding { .. },
            ) => LoadError::Unasked {
                reason: error.to_string(),
            }
            .into(),
            _ => GenerateError::Command(error.into()),
        })?;
    // A query that fails is a failure of the command, not a sign that the cluster is empty.
    let failed = |error| GenerateError::Command(CommandError::Client(error));
    let nodes = client.list(QueryKind::Nodes, None).await.map_err(failed)?;
    let instances = client
        .list(QueryKind::Instances, None)
        .await
        .map_err(failed)?;
    occupied(&nodes.nodes, &instances.instances)
}

/// An error where nodes are connected or expected, or instances run or wait. What is lost, as after another load run,
/// takes no room.
///
/// The example is the first that was found. Counts are of what blocks, not of everything listed.
fn occupied(nodes: &[NodeView], instances: &[InstanceView]) -> Result<(), GenerateError> {
    let is_lost = |view: &&InstanceView| {
        matches!(view.state, PlacementState::Lost | PlacementState::InDoubt)
            || PhaseName::from(view.life.as_str()) == PhaseName::Lost
    };
    // A lost node has no connection, and what was on it takes no room of others.
    let mut nodes = nodes.iter().filter(|view| view.status != "LOST").peekable();
    let mut instances = instances.iter().filter(|view| !is_lost(view)).peekable();
    let example = match (nodes.peek(), instances.peek()) {
        (Some(node), _) => format!("node {}", node.hostname),
        (None, Some(instance)) => format!("instance {}", instance.instance_uuid),
        (None, None) => return Ok(()),
    };
    Err(LoadError::Occupied {
        nodes: nodes.count(),
        instances: instances.count(),
        example,
    }
    .into())
}

/// The exit code of a run that has no result.
///
/// Everything that is not named here is about the arguments or the machine.
fn exit_of(error: &LoadError) -> Exit {
    match error {
        LoadError::NotMaster => Exit::Refused,
        LoadError::NotReady { .. } => Exit::Timeout,
        LoadError::Driver { .. } | LoadError::NoLauncher { .. } => Exit::Connection,
        _ => Exit::Usage,
    }
}

/// Where the load goes and which certificates it takes.
///
/// Names are resolved here, once: all connections go to one address, so that the run measures one listener.
/// Certificates are taken from `--certs`, or else from the directory of `--cert`.
fn target(global: &GlobalArgs) -> Result<LoadTarget, CommandError> {
    let usage = |reason: String| CommandError::Usage(reason);
    let endpoint: Endpoint = global
        .server()
        .parse::<Endpoint>()
        .map_err(|e| usage(format!("--server: {e}")))?
        .with_server_name(global.server_name.clone());
    let name = ServerName::try_from(endpoint.expected_name().to_owned()).map_err(|_| {
        usage(format!(
            "{:?} is no name a certificate could have",
            endpoint.expected_name()
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
        trust: global.trust(ca_file(&certs)),
        certs,
    })
}

/// Empty for a file name without a directory, which then means the current one.
fn directory(cert: Option<&Path>) -> Option<PathBuf> {
    cert.and_then(Path::parent).map(Into::into)
}

/// One thread is a current-thread runtime; `--threads` is for a generator that limits the result itself.
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
