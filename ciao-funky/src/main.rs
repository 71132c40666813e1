//! `ciao-funky`: takes the commands and uploads of Funky's programs and runs them as tasks in a ciao-scheduler's
//! cluster.
//!
//! It is an ordinary client of the scheduler: it speaks SSNTP with a controller's certificate and uses the same client
//! library as `ciaoctl`. It is no launcher and places nothing itself. One task of Funky becomes one instance of the
//! scheduler.
//!
//! ```text
//!   front.sock ──▶ front ──▶ command ──┐                  ┌──▶ store     tasks and numbers (redb)
//!   POST /upload ──▶ upload ───────────┼──▶ coordinator ──┼──▶ binaries  copies of the tasks' files
//!   scheduler ◀──▶ session ────────────┤  (decides alone) └──▶ output    the lines that Funky's primary prints
//!   scheduler ◀── shipping ────────────┘                                 programs, over a connection of their own
//! ```
//!
//! [`coordinator`] alone changes tasks. The other parts run as tokio tasks of their own and speak with it over
//! channels. `ciao-funky ps` is a second, short-lived process which asks the running one at its socket.

mod binaries;
mod command;
mod coordinator;
mod flags;
mod front;
mod list;
mod nodes;
mod output;
mod ps;
mod requests;
mod shipping;
mod socket;
mod store;
mod task;
mod upload;

use std::process::ExitCode;

use anyhow::{Context as _, bail};
use ciao_adapter::{exit_code, raise_open_files, session};
use ciao_scheduler::ctl::commands::client_config;
use ciao_scheduler::flags::double_dashes;
use ciao_scheduler::logging::{self, Destination};
use ciao_scheduler::net::address::listen_address;
use ciao_scheduler::net::tls::KeyFiles;
use ciao_scheduler::shutdown::{self, OnHangup};
use clap::Parser as _;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tracing::warn;

use crate::binaries::{Binaries, Limits};
use crate::command::words;
use crate::coordinator::Coordinator;
use crate::flags::{Cli, Command, CommandLine, ServeFlags};
use crate::front::Allowed;
use crate::output::Output;
use crate::requests::TaskRequests;
use crate::socket::Socket;
use crate::store::Store;
use crate::task::{Shape, group_of};
use crate::upload::{NullOrigin, Uploaders};

/// Length of each of the two channels to the coordinator, in messages: orders of clients, and what the session reports.
/// A sender that finds its channel full waits, and with it the connection that it serves.
const BACKLOG: usize = 1024;

/// Mode of the socket's file without `-allow-uid`: the file system keeps all users but the owner and root out.
const PRIVATE_SOCKET: u32 = 0o600;

/// Mode of the socket's file with `-allow-uid`: any user may connect. [`front`] asks the kernel for the peer's user and
/// refuses those who are not allowed.
const SHARED_SOCKET: u32 = 0o666;

fn main() -> ExitCode {
    let cli = Cli::parse_from(double_dashes(std::env::args_os(), &['h', 'V'])).line;
    let done = match cli.command {
        Some(Command::Ps) => ps::run(&cli.serve.socket, cli.global.json),
        None => cli.in_context().map_err(Into::into).and_then(serve),
    };
    exit_code("ciao-funky", done)
}

/// Runs the adapter until SIGINT or SIGTERM.
///
/// The order matters: everything that can refuse to start (certificates, flags, the store, the socket, the upload
/// address) is tried before the first client is answered. A line that begins with `Listening commands` and one with
/// `Listening uploads` appear once both accept connections.
///
/// # Errors
/// A part cannot be opened, or one of those that run has ended by itself.
#[tokio::main]
async fn serve(cli: CommandLine) -> anyhow::Result<()> {
    let logs = logging::init(&cli.log, "ciao-funky", Destination::Stderr)?;
    raise_open_files();
    let stop = shutdown::requested(OnHangup::Reopen(logs.reopen(), logs.levels()))
        .context("cannot listen for signals")?;
    let client = client_config(&cli.global);
    KeyFiles::new(cli.global.strict_files).check(&client.cert, |said| {
        warn!(event = "key_file_open_to_others", "{said}")
    })?;
    let mut settings = settings(&cli)?;

    let directory = std::path::absolute(&cli.serve.state_dir)?;
    let (store, kept) = Store::open(&directory)?;
    settings.shape.group = cli.serve.one_task_per_node.then(|| group_of(kept.family));
    let limits = Limits {
        file: cli.serve.max_binary,
        all: cli.serve.max_binaries,
        left_free: binaries::LEFT_FREE,
    };
    // Files of tasks that have not ended are in use. `Binaries::open` removes all other files, also those whose copying
    // a crash interrupted.
    let living = kept.tasks.iter().filter(|task| task.outcome.is_none());
    let used = living.flat_map(|task| &task.files);
    let binaries = directory.join(binaries::DIRECTORY);
    let binaries =
        Binaries::open(&binaries, limits, used).with_context(|| binaries.display().to_string())?;

    let allowed = Allowed::these(&cli.serve.allow_uid);
    let mode = match &*cli.serve.allow_uid {
        [] => PRIVATE_SOCKET,
        _ => SHARED_SOCKET,
    };
    let socket = Socket::bind(&cli.serve.socket, mode)?;
    let uploads = listen(&cli.serve).await?;

    let output = Output::open()?;
    let socket_path = cli.serve.socket.display();
    output.line(format_args!("Listening commands at {socket_path}"));
    if let Some(uploads) = &uploads {
        let address = uploads.local_addr()?;
        output.line(format_args!("Listening uploads at {address}"));
    }

    let (news, shipped) = shipping::channel();
    let requests = TaskRequests::new(
        kept.family.prefix(),
        settings.shape.clone(),
        binaries.clone(),
        news.clone(),
    );
    let (orders, ordered) = mpsc::channel(BACKLOG);
    let (hear, heard) = mpsc::channel(BACKLOG);
    let shape = settings.shape.clone();
    let (pushes, pushed) = mpsc::unbounded_channel();
    let files = (binaries.clone(), pushes);
    let (coordinator, copied) = Coordinator::new(settings, (store, kept), files, output);
    let front = tokio::spawn(front::serve(socket, allowed.clone(), orders.clone()));
    let tenant = shape.tenant.clone();
    let mut parts = JoinSet::new();
    parts.spawn(shipping::run(client.clone(), tenant, pushed, news));
    parts.spawn(session::run(client, requests, hear));
    if let Some(uploads) = uploads {
        let null = NullOrigin::of(cli.serve.allow_null_origin);
        let settings = (shape, null, uploaders(&cli.serve, allowed));
        parts.spawn(upload::serve(uploads, binaries, settings, orders));
    }
    let stopped = tokio::select! {
        stopped = coordinator.run(ordered, heard, (copied, shipped), stop) => stopped,
        // They go on for as long as the coordinator is there.
        Some(ended) = parts.join_next() => ended
            .map_err(anyhow::Error::from)
            .and_then(|()| bail!("it has ended by itself"))
            .context("a part of this program has failed"),
    };
    // It ends once the coordinator is gone, and takes the socket's file with it.
    front.await.context("the socket's part failed")?;
    stopped
}

/// Checks the flags that clap cannot check and makes the coordinator's settings from them. The group of
/// `-one-task-per-node` is not among them: it depends on what is kept.
///
/// # Errors
/// `-monitor` has an unclosed quotation mark, or no `{}` in which to put the task's file.
fn settings(cli: &CommandLine) -> anyhow::Result<coordinator::Settings> {
    let monitor = words(&cli.serve.monitor).context("-monitor")?;
    if !monitor.is_empty() && !monitor.iter().any(|word| word.contains("{}")) {
        bail!("-monitor: nothing stands for the task's file: write {{}} where it is to be");
    }
    Ok(coordinator::Settings {
        shape: Shape {
            mem_mb: cli.serve.mem,
            vcpus: cli.serve.cpus,
            group: None,
            tenant: cli.serve.tenant.clone(),
            monitor,
            one_argument: cli.serve.one_argument,
        },
        return_time: cli.serve.return_time,
    })
}

/// The port of Funky's own upload server.
const DEFAULT_UPLOAD_PORT: u16 = 8080;

/// Whose uploads are taken.
fn uploaders(serve: &ServeFlags, allowed: Allowed) -> Uploaders {
    match serve.upload_any_user {
        true => Uploaders::Any,
        false => Uploaders::These(allowed),
    }
}

/// Opens the upload server's listener; `None` with `-upload off`. It warns where the address is not a loopback address
/// and every client's uploads are taken: they are plain HTTP without authentication, and what is uploaded is run.
async fn listen(flags: &ServeFlags) -> anyhow::Result<Option<TcpListener>> {
    let address = &*flags.upload;
    if address == "off" {
        return Ok(None);
    }
    let at = listen_address(address, DEFAULT_UPLOAD_PORT)
        .map_err(anyhow::Error::msg)
        .with_context(|| format!("'{address}' is no address to take uploads at (-upload)"))?;
    let listener = TcpListener::bind(at)
        .await
        .with_context(|| format!("cannot take uploads at {address} (-upload)"))?;
    if flags.upload_any_user && !listener.local_addr()?.ip().is_loopback() {
        warn!(
            event = "uploads_reachable",
            "uploads at {address} can be reached from other machines, and every client that reaches it may run programs"
        );
    }
    Ok(Some(listener))
}
