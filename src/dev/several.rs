//! Several schedulers of a cluster on one machine, as processes, and an etcd for them: to be killed, and seen to be
//! followed by another.
//!
//! Each begins again when it has ended, as under a supervisor, and is a standby then. All end with this process, also where
//! that is killed.

use std::fs::File;
use std::io::Write as _;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use rustix::process::{Pid, Signal, kill_process};
use tokio::process::{Child, Command};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::DevConfig;
use super::directory::Directory;
use crate::server::{DEFAULT_HTTP_PORT, DEFAULT_PORT};

/// The name of their cluster.
const NAME: &str = "dev";

/// Pause before a scheduler that has ended begins again: long enough to see that another leads, which takes 3 to 4 s.
const AGAIN: Duration = Duration::from_secs(5);

/// How long a scheduler may take to end when it is told to; longer than it takes to drain its connections.
const END: Duration = Duration::from_secs(15);

/// Said where there is no etcd.
const MISSING: &str = "several schedulers need etcd, and no program of that name is in PATH: apt install etcd-server (Debian, \
                       Ubuntu), or see https://etcd.io/docs/latest/install/";

/// Said by a program that cannot do it.
const WITHOUT_ETCD: &str = "this program was built without etcd, which several schedulers need: cargo build --release \
                            --locked --features etcd";

/// Where they are.
#[derive(Debug)]
pub(super) struct Several {
    /// Where each takes connections of peers.
    pub(super) addresses: Vec<SocketAddr>,
    /// Where the first answers over HTTP.
    pub(super) http: SocketAddr,
}

/// What each is started with.
#[derive(Debug, Clone)]
struct Part {
    number: u32,
    address: SocketAddr,
    flags: Vec<String>,
    log: PathBuf,
}

/// Starts etcd and the schedulers, which end when the sender of `stopping` is dropped, in tasks of `tasks`. Nothing is
/// waited for. `files`: the scheduler's certificate and the CA's.
///
/// # Errors
/// There is no etcd, or this program was built without its client; a port that was asked for is taken.
pub(super) fn start(
    config: &DevConfig,
    (cert, ca): (&Path, &Path),
    directory: &Directory,
    stopping: &watch::Receiver<bool>,
    tasks: &mut JoinSet<()>,
) -> anyhow::Result<Several> {
    ensure!(cfg!(feature = "etcd"), WITHOUT_ETCD);
    ensure!(is_installed("etcd"), MISSING);
    std::fs::create_dir_all(directory.logs())?;
    let count = config.schedulers.get();
    // All at once, so that none is given twice.
    let mut held = vec![
        free(config.port, DEFAULT_PORT)?,
        free(None, DEFAULT_HTTP_PORT)?,
    ];
    for _ in 0..2 * count {
        held.push(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?);
    }
    let free: Vec<SocketAddr> = held
        .iter()
        .map(TcpListener::local_addr)
        .collect::<Result<_, _>>()?;
    drop(held);
    let (first, http, free) = (free[0], free[1], &free[2..]);
    let endpoint = start_etcd(directory, [free[0], free[1]], stopping, tasks)?;
    let mut addresses = vec![first];
    addresses.extend(&free[2..=count as usize]);
    let mut doors = vec![http];
    doors.extend(&free[count as usize + 1..]);
    for (number, (address, http)) in (1..).zip(addresses.iter().zip(doors)) {
        let flags = [
            ["--cert", &cert.display().to_string()],
            ["--cacert", &ca.display().to_string()],
            ["--cluster", NAME],
            ["--etcd", &endpoint],
            ["--listen", &address.to_string()],
            ["--http", &http.to_string()],
            [
                "--state-dir",
                &format!("{}-{number}", directory.scheduler().display()),
            ],
            [
                "--blob-dir",
                &format!("{}-{number}", directory.images().display()),
            ],
        ];
        let mut flags: Vec<String> = flags.concat().into_iter().map(str::to_owned).collect();
        flags.push("--logtostderr".to_owned());
        if let Some(uri) = &config.configuration_uri {
            flags.extend(["--configuration-uri".to_owned(), uri.clone()]);
        }
        let part = Part {
            number,
            address: *address,
            flags,
            log: directory.logs().join(format!("scheduler-{number}.log")),
        };
        let child = start_one(&part).with_context(|| format!("cannot start scheduler {number}"))?;
        tasks.spawn(keep(part, child, stopping.clone()));
    }
    Ok(Several { addresses, http })
}

/// Whether a program is in one of the directories of PATH.
fn is_installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|it| it.join(program).exists())
}

/// Listens on loopback, on the port asked for, or the usual one, or any if that is taken.
fn free(asked: Option<u16>, usual: u16) -> anyhow::Result<TcpListener> {
    let bind = |port| TcpListener::bind((Ipv4Addr::LOCALHOST, port));
    let listener = match asked {
        Some(port) => bind(port).with_context(|| format!("cannot listen on port {port}"))?,
        None => bind(usual).or_else(|_| bind(0))?,
    };
    Ok(listener)
}

/// A program that is killed when this process ends, however that ends.
fn bound(program: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = match is_installed("setpriv") {
        true => {
            let mut command = Command::new("setpriv");
            command.args(["--pdeathsig", "KILL"]).arg(program);
            command
        }
        false => Command::new(program),
    };
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .kill_on_drop(true);
    command
}

/// Starts etcd at these addresses, for clients and for members; where clients reach it.
fn start_etcd(
    directory: &Directory,
    [clients, members]: [SocketAddr; 2],
    stopping: &watch::Receiver<bool>,
    tasks: &mut JoinSet<()>,
) -> anyhow::Result<String> {
    let log = File::create(directory.logs().join("etcd.log"))?;
    let [clients, members] = [clients, members].map(|it| format!("http://{it}"));
    let mut command = bound("etcd");
    command
        .args(["--name", NAME])
        .arg("--data-dir")
        .arg(directory.path().join("etcd"));
    command.args([
        "--listen-client-urls",
        &clients,
        "--advertise-client-urls",
        &clients,
    ]);
    command.args([
        "--listen-peer-urls",
        &members,
        "--initial-advertise-peer-urls",
        &members,
    ]);
    command.args(["--initial-cluster", &format!("{NAME}={members}")]);
    let mut child = command.stderr(log).spawn().context("cannot start etcd")?;
    let mut last = stopping.clone();
    tasks.spawn(async move {
        tokio::select! {
            ended = child.wait() => say(&format!("etcd has ended{}: no scheduler leads without it", how(ended))),
            () = dropped(&mut last) => {}
        }
        // Killed when it is dropped; the schedulers need it no more.
    });
    Ok(clients)
}

/// Runs a scheduler, of which this is the first process, until the sender of `last` is dropped, again whenever it has ended.
async fn keep(part: Part, mut child: Child, mut last: watch::Receiver<bool>) {
    let number = part.number;
    loop {
        tokio::select! {
            ended = child.wait() => say(&format!(
                "scheduler {number} has ended{}: another leads in 3 to 4 s, if it led; it begins again in {} s",
                how(ended),
                AGAIN.as_secs()
            )),
            () = dropped(&mut last) => return end(child).await,
        }
        tokio::select! {
            () = sleep(AGAIN) => {}
            () = dropped(&mut last) => return,
        }
        child = match start_one(&part) {
            Ok(child) => child,
            Err(error) => return say(&format!("scheduler {number} cannot be started: {error}")),
        };
    }
}

/// Starts a process of a scheduler, and says which.
fn start_one(part: &Part) -> std::io::Result<Child> {
    let Part {
        number, address, ..
    } = part;
    let log = File::options().create(true).append(true).open(&part.log)?;
    let mut command = bound(std::env::current_exe()?);
    let child = command.args(&part.flags).stderr(log).spawn()?;
    let process = child.id().unwrap_or_default();
    say(&format!(
        "scheduler {number} on {address}: process {process}"
    ));
    Ok(child)
}

/// Waits until the sender is dropped.
async fn dropped(last: &mut watch::Receiver<bool>) {
    while last.changed().await.is_ok() {}
}

/// Ends a scheduler in order, or after a time by force.
async fn end(mut child: Child) {
    let process = child
        .id()
        .and_then(|it| i32::try_from(it).ok())
        .and_then(Pid::from_raw);
    if let Some(process) = process {
        // It may have ended by now.
        let _ = kill_process(process, Signal::TERM);
    }
    let _ = timeout(END, child.wait()).await;
}

/// How a process has ended, behind a sentence that it has.
fn how(ended: std::io::Result<std::process::ExitStatus>) -> String {
    ended.map_or_else(|_| String::new(), |status| format!(" ({status})"))
}

/// For who watches the terminal.
fn say(text: &str) {
    // With standard output gone, there is no reader.
    let _ = writeln!(std::io::stdout(), "{text}");
}
