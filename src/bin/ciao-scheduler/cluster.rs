//! The boot sequence of one of several schedulers: a standby that refuses everybody, then the leader, then a new process.

use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context as _;
use ciao_scheduler::cluster::{Cluster, Standing, Term};
use ciao_scheduler::logging::Logs;
use ciao_scheduler::server::{HandOver, Server, ServerConfig, Standby};
use ciao_scheduler::shutdown::{self, Hangups, OnHangup};
use tokio::sync::Notify;
use tracing::info;

use crate::flags::DaemonFlags;

/// How a turn has ended.
enum Ended {
    /// It was requested.
    Stopped,
    /// Another leads, or may, or is to.
    SteppedDown,
}

/// Takes part in the cluster until it is told to stop. A scheduler that has stepped down becomes a new process with the
/// same arguments, which is a standby: nothing of its term is left then, neither a connection nor what it has decided.
pub(crate) fn run(flags: &DaemonFlags, logs: Logs) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Runtime::new().context("cannot start the runtime")?;
    match runtime.block_on(take_part(flags, &logs))? {
        Ended::Stopped => {
            info!(event = "stopped", "stopped");
            Ok(())
        }
        Ended::SteppedDown => {
            // Waits for what is logged and not written yet: why it steps down.
            drop(logs);
            // Not the runtime's end, which waits for threads that may wait for etcd.
            let error = again();
            Err(error).context("cannot begin again as a standby")
        }
    }
}

/// Becomes a new process of the program; returns only where that fails. Descriptors are closed by it.
fn again() -> std::io::Error {
    let path = std::env::current_exe();
    // The file may have been replaced meanwhile.
    let program = path.ok().filter(|it| it.exists());
    let program = program.unwrap_or_else(|| Path::new("/proc/self/exe").to_owned());
    Command::new(program)
        .args(std::env::args_os().skip(1))
        .exec()
}

async fn take_part(flags: &DaemonFlags, logs: &Logs) -> anyhow::Result<Ended> {
    let hangups = Hangups::default();
    let stop = shutdown::requested(OnHangup::Reload(logs.reopen(), hangups.clone()))
        .context("cannot listen for signals")?;
    tokio::pin!(stop);
    let config = flags.server_config(hangups, logs);
    let standby = Standby::bind(&config).map_err(anyhow::Error::msg)?;
    let here = standby.local_addrs()?;
    for address in &here {
        info!(event = "listening", "a standby listens on {address}");
    }
    for address in standby.http_addrs()? {
        info!(
            event = "listening_http",
            "a standby answers HTTP on {address}"
        );
    }
    let here = *here.first().context("it listens nowhere")?;
    let cluster = flags
        .cluster
        .config(here)?
        .context("--cluster is missing")?;
    let cluster = Arc::new(Cluster::join(cluster).map_err(anyhow::Error::msg)?);
    let standing = tokio::select! {
        standing = cluster.turn() => standing,
        () = &mut stop => {
            cluster.resign();
            cluster.over().await;
            return Ok(Ended::Stopped);
        }
        () = standby.refuse_all(cluster.leader()) => anyhow::bail!("internal error: the standby has ended"),
    };
    match standing {
        Standing::Leader(term) => lead(config, standby, &cluster, (term, stop)).await,
        _ => Ok(Ended::SteppedDown),
    }
}

/// Serves under this term until it is told to stop, hands over, or steps down.
async fn lead(
    mut config: ServerConfig,
    standby: Standby,
    cluster: &Arc<Cluster>,
    (term, stop): (Term, impl Future<Output = ()>),
) -> anyhow::Result<Ended> {
    let reader = Arc::clone(cluster);
    let drain_deadline = config.limits.drain_deadline;
    let read = move || {
        Ok::<_, String>((
            reader.take_over(term)?,
            reader.hand_over(term, drain_deadline)?,
        ))
    };
    let (found, hand_over) = match tokio::task::spawn_blocking(read).await? {
        Ok(found) => found,
        Err(why) => {
            tracing::warn!(event = "cluster_not_taken_over", "cannot take over: {why}");
            cluster.resign();
            cluster.over().await;
            return Ok(Ended::SteppedDown);
        }
    };
    // The store is etcd: what waits for it is refused no sooner than this scheduler steps down.
    config.scheduler.disk_patience = cluster.patience();
    config.limits.fence = Some(cluster.fence());
    config.limits.schedulers = Some(cluster.schedulers());
    config.limits.hand_over = Some(Arc::clone(&hand_over) as Arc<dyn HandOver>);
    config.limits.term = Some(proto_frames::Term {
        generation: term.generation,
        revision: u64::try_from(term.create_revision).unwrap_or(0),
    });
    // It reads and writes the shared store, which waits for etcd.
    let server = tokio::task::block_in_place(|| Server::take_over(config, standby, found));
    let server = server.map_err(anyhow::Error::msg)?;
    info!(
        event = "cluster_serves",
        "scheduler {} serves",
        server.uuid()
    );
    let (leaves, is_stopped) = (Notify::new(), AtomicBool::new(false));
    // Both until the end: a signal that comes while it hands over, or steps down, ends the process.
    let stopping = async {
        stop.await;
        is_stopped.store(true, Ordering::SeqCst);
        leaves.notify_one();
        std::future::pending::<()>().await
    };
    let handing_over = async {
        hand_over.begun().await;
        leaves.notify_one();
        std::future::pending::<()>().await
    };
    let serving = async {
        server.run(leaves.notified()).await?;
        cluster.resign();
        cluster.over().await;
        Ok::<_, anyhow::Error>(())
    };
    tokio::select! {
        served = serving => served?,
        _ = cluster.over() => {}
        () = stopping => {}
        () = handing_over => {}
    }
    Ok(match is_stopped.load(Ordering::SeqCst) {
        true => Ended::Stopped,
        false => Ended::SteppedDown,
    })
}
