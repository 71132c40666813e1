//! `ciao-rik`: RIK's two gRPC services, for workers and for controllers, in front of a ciao-scheduler.
//!
//! RIK's own scheduler chose a worker for each instance. Here the ciao-scheduler chooses: each worker appears to it as
//! a node, each instance of a controller as an instance with a START.
//!
//! ```text
//! controller ──gRPC──▶ controllers ──Order──▶ ┌─────────────┐ ◀─events── session ◀──SSNTP, as a controller──▶ scheduler
//!            ◀─stream─ updates ◀──────────────│ coordinator │ ──Ask────▶                                         ▲
//!                                             └─────────────┘ ──▶ store (redb)                                   │
//! worker ────gRPC───▶ workers ──Report──▶ node ──News──▲                                                         │
//!        ◀──jobs──────────────────────────── └──── SSNTP, as a launcher, one connection a worker ────────────────┘
//! ```
//!
//! [`coordinator`] alone decides about instances and sets. [`node`] drives the same state machine as `ciao-launcher`,
//! with a worker in place of processes. [`tokens`] says who may call; [`definition`] makes a START of a controller's
//! JSON.

mod controllers;
mod coordinator;
mod definition;
mod flags;
mod instance;
mod listen;
mod node;
mod requests;
mod rpc;
mod store;
mod tokens;
mod unwanted;
mod updates;
mod workers;

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::thread;

use anyhow::Context as _;
use ciao_adapter::{exit_code, raise_open_files, session};
use ciao_scheduler::ctl::client::ClientConfig;
use ciao_scheduler::ctl::commands::client_config;
use ciao_scheduler::flags::double_dashes;
use ciao_scheduler::logging::{self, Destination};
use ciao_scheduler::net::address::Endpoint;
use ciao_scheduler::net::tls::{ClientFiles, ClientTls, KeyFiles};
use ciao_scheduler::shutdown::{self, OnHangup};
use clap::{Parser as _, ValueEnum as _};
use mimalloc::MiMalloc;
use proto_frames::Role;
use proto_frames::payload::{OnNodeLoss, Span};
use tokio::runtime;
use tokio::sync::{mpsc, oneshot};
use tracing::{info, warn};

use crate::controllers::Controllers;
use crate::coordinator::{Coordinator, Order};
use crate::definition::Defaults;
use crate::flags::{Cli, Command, CommandLine, OnWorkerLoss, ServeFlags, TokenCommand};
use crate::listen::{FOR_CONTROLLERS, FOR_WORKERS, Listener};
use crate::node::definitions::Budget;
use crate::requests::InstanceRequests;
use crate::rpc::controller::controller_server::ControllerServer;
use crate::rpc::worker::worker_server::WorkerServer;
use crate::store::Store;
use crate::tokens::Tokens;
use crate::unwanted::Unwanted;
use crate::workers::Workers;

/// Length of each of the three channels to the coordinator, in messages. A sender that finds its channel full waits.
const BACKLOG: usize = 1024;

/// As in the scheduler: messages are made by one thread and dropped by another all the time, which glibc's allocator
/// serves with a lock for each.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn main() -> ExitCode {
    let cli = Cli::parse_from(double_dashes(std::env::args_os(), &['h', 'V'])).line;
    let done = match &cli.command {
        Some(Command::Token(command)) => token(&cli.serve.state_dir, command),
        None => cli.in_context().map_err(Into::into).and_then(serve),
    };
    exit_code("ciao-rik", done)
}

/// Carries out `ciao-rik token …` on the file in the state directory. A running ciao-rik sees the change within a
/// second or two.
///
/// # Errors
/// The file cannot be read or written, or the name is wrong, taken or unknown.
fn token(state: &Path, command: &TokenCommand) -> anyhow::Result<()> {
    let mut out = io::stdout();
    match command {
        TokenCommand::Issue { name, role } => {
            let token = tokens::issue(state, name, *role)?;
            writeln!(out, "{token}").with_context(|| {
                format!("the token is issued and could not be shown: ban {name} and issue another")
            })?;
        }
        TokenCommand::Ban { name } => tokens::ban(state, name)?,
        TokenCommand::List => {
            for token in tokens::list(state)? {
                let role = token.role.to_possible_value();
                let role = role.as_ref().map_or("", |it| it.get_name());
                let banned = if token.banned { "  banned" } else { "" };
                writeln!(out, "{}  {role}{banned}", token.name)?;
            }
        }
    }
    Ok(())
}

/// Runs both services until SIGINT or SIGTERM. All that can refuse to start is tried before the first call is answered.
///
/// # Errors
/// A part cannot be opened, or a service or the coordinator has ended by itself.
#[tokio::main]
async fn serve(cli: CommandLine) -> anyhow::Result<()> {
    let logs = logging::init(&cli.log, "ciao-rik", Destination::Stderr)?;
    raise_open_files();
    let stop = shutdown::requested(OnHangup::Reopen(logs.reopen(), logs.levels()))
        .context("cannot listen for signals")?;
    let client = client_config(&cli.global);
    let unwanted = Unwanted::default();
    let node = node_settings(&cli, &client, unwanted.clone())?;
    let state = std::path::absolute(&cli.serve.state_dir)?;
    let (store, kept) = Store::open(&state)?;

    let (orders, ordered) = mpsc::channel(BACKLOG);
    let tokens = match cli.serve.tokens {
        false => Tokens::none(),
        true => {
            let coordinator = orders.clone();
            Tokens::of(&state, move |banned| {
                let coordinator = coordinator.clone();
                // Without a coordinator this program is about to end.
                tokio::spawn(async move { coordinator.send(Order::Banned(banned)).await });
            })?
        }
    };
    let tls = cli.serve.tls.as_deref();
    let at = cli.serve.worker_listen;
    let for_workers = Listener::bind(at, "-worker-listen", tls, FOR_WORKERS).await?;
    let at = cli.serve.controller_listen;
    let for_controllers = Listener::bind(at, "-controller-listen", tls, FOR_CONTROLLERS).await?;
    info!(
        event = "listening_workers",
        "listens for workers on {}",
        for_workers.address()?
    );
    info!(
        event = "listening_controllers",
        "listens for controllers on {}",
        for_controllers.address()?
    );

    let requests = InstanceRequests {
        family: kept.family.prefix(),
    };
    let coordinator = Coordinator::new(settings(&cli.serve, unwanted), (store, kept));
    let (hear, heard) = mpsc::channel(BACKLOG);
    let (news, reported) = mpsc::channel(BACKLOG);
    tokio::spawn(session::run(client, requests, hear));
    let workers = WorkerServer::new(Workers::new(node, news, tokens.clone()));
    let workers = workers.max_decoding_message_size(FOR_WORKERS.message);
    let controllers = ControllerServer::new(Controllers::new(orders, tokens));
    let controllers = controllers.max_decoding_message_size(FOR_CONTROLLERS.message);
    let coordinator = coordinate(coordinator.run(ordered, heard, reported, stop))?;
    tokio::select! {
        served = for_workers.serve(workers) => served.context("the service for workers ended"),
        served = for_controllers.serve(controllers) => served.context("the service for controllers ended"),
        stopped = coordinator => stopped.context("the coordinator failed")?,
    }
}

/// Runs the coordinator on a thread of its own, for its writes block: elsewhere each would hand the other tasks of its
/// thread to another thread.
///
/// # Errors
/// The system gives no thread.
fn coordinate(
    run: impl Future<Output = anyhow::Result<()>> + Send + 'static,
) -> io::Result<oneshot::Receiver<anyhow::Result<()>>> {
    let (stopped, outcome) = oneshot::channel();
    let runtime = runtime::Builder::new_current_thread()
        .enable_time()
        .build()?;
    thread::Builder::new()
        .name("coordinator".to_owned())
        .spawn(move || {
            // Without a reader the program is about to end.
            let _ = stopped.send(runtime.block_on(run));
        })?;
    Ok(outcome)
}

/// How instances are run, as the flags say. A `-queue` beyond the longest that a START may have is cut to that.
fn settings(flags: &ServeFlags, unwanted: Unwanted) -> coordinator::Settings {
    let queue = u64::try_from(flags.queue.as_millis()).unwrap_or(u64::MAX);
    let longest = proto_frames::payload::scheduling::MAX_QUEUE;
    coordinator::Settings {
        defaults: Defaults {
            mem_mb: flags.default_mem,
            vcpus: flags.default_cpus,
            queue: Span::from_ms(queue).min(longest),
            on_node_loss: match flags.on_worker_loss {
                OnWorkerLoss::Report => OnNodeLoss::Report,
                OnWorkerLoss::Restart => OnNodeLoss::Restart,
            },
            tenant: flags.tenant.clone(),
        },
        return_time: flags.return_time,
        max_down: flags.max_down,
        unwanted,
    }
}

/// How workers become nodes. It reads two certificates: one with which the coordinator is a controller, and one with
/// the role of a launcher for the workers' connections.
///
/// # Errors
/// A key file that others can read with `-strict-files`, a certificate that cannot be read or has not the role, or an
/// address that is none.
fn node_settings(
    cli: &CommandLine,
    client: &ClientConfig,
    unwanted: Unwanted,
) -> anyhow::Result<node::Settings> {
    let cert = worker_cert(cli);
    for file in [&client.cert, &cert] {
        KeyFiles::new(cli.global.strict_files).check(file, |said| {
            warn!(event = "key_file_open_to_others", "{said}")
        })?;
    }
    let files = ClientFiles {
        cert: cert.clone(),
        trust: client.trust.clone(),
    };
    let credentials = files.read()?;
    anyhow::ensure!(
        credentials.roles.contains(Role::AGENT),
        "{}: the certificate is none of a launcher (-worker-cert)",
        cert.display()
    );
    let endpoint: Endpoint = client.server.parse()?;
    Ok(node::Settings {
        endpoint: endpoint.with_server_name(client.server_name.clone()),
        tls: ClientTls::of_files(files, credentials, Role::AGENT),
        lease: cli.serve.lease,
        stop_grace: cli.serve.stop_grace,
        report_interval: cli.serve.report_interval,
        definitions: Budget::default(),
        unwanted,
    })
}

/// The launcher's certificate: `-worker-cert`, or `cert-CNAgent-localhost.pem` in `-certs` or `/etc/pki/ciao`.
fn worker_cert(cli: &CommandLine) -> PathBuf {
    let directory = cli.global.certs.as_deref();
    cli.serve.worker_cert.clone().unwrap_or_else(|| {
        let directory = directory.unwrap_or(Path::new("/etc/pki/ciao"));
        directory.join("cert-CNAgent-localhost.pem")
    })
}
