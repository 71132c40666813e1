//! The scheduler daemon: reads its flags, tries everything that can fail, serves until told to stop.
//!
//! Two modes: the daemon, and `dev`, which runs a cluster in this process. The daemon's log goes to files. Everything
//! that can be wrong with flags, certificates, ports and the state directory fails in `Server::bind`, before a peer is
//! let in.

#[cfg(feature = "etcd")]
mod cluster;
mod cluster_flags;
mod dev_flags;
mod flags;
#[cfg(feature = "etcd")]
mod ha;

use std::process::ExitCode;

use anyhow::Context as _;
use ciao_scheduler::flags::{complain, double_dashes, parse, with_causes};
use ciao_scheduler::launcher::supervise;
use ciao_scheduler::logging::{self, Destination, is_nothing};
use ciao_scheduler::printable::Printable;
use ciao_scheduler::server::{PLACEMENT_PATH, Profile, Server};
use ciao_scheduler::shutdown::{self, Hangups, OnHangup};
use mimalloc::MiMalloc;
use tracing::info;

use cluster_flags::HaFlags;
use flags::{DaemonFlags, LOG_DIR, SchedulerCommand, SchedulerFlags};

/// Exit code: something failed.
///
/// For output that cannot be written, too.
const FAILED: i32 = 1;

/// What is said of `--cluster` by a program that cannot do it.
#[cfg(not(feature = "etcd"))]
const WITHOUT_ETCD: &str = "this program was built without etcd, which several schedulers need: cargo build --release \
                            --locked --features etcd";

/// Frames are read by one thread and written by another: what one allocates, the other frees. glibc takes a lock of the
/// first one's arena for that; this allocator does not. Of version 2, because version 3 gives less memory back.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

/// The exit code is 1 for every failure; a wrong command line ends in `parse`, with 2.
fn main() -> ExitCode {
    let mut words = std::env::args_os();
    if words.nth(1).is_some_and(|word| word == supervise::WORD) {
        // The launchers of `dev` run their workloads through this program.
        return supervise::run(words);
    }
    let arguments = double_dashes(std::env::args_os(), &['h', 'V']);
    let result = match parse(arguments, FAILED) {
        SchedulerFlags {
            command: Some(SchedulerCommand::Dev(flags)),
            ..
        } => dev_flags::run(flags),
        SchedulerFlags {
            command: Some(SchedulerCommand::Ha(flags)),
            ..
        } => run_ha(flags),
        // Accepted for compatibility with ciao's scheduler: there is nothing to install.
        SchedulerFlags { daemon, .. } if daemon.osprepare.0 => Ok(ExitCode::SUCCESS),
        SchedulerFlags { daemon, .. } => run_daemon(&daemon).map(|()| ExitCode::SUCCESS),
    };
    result.unwrap_or_else(|error| {
        complain(
            "ciao-scheduler",
            Printable::new(with_causes(error.as_ref())),
        );
        ExitCode::FAILURE
    })
}

/// Logs first, then the profile's file, the signals, the server. It returns when a signal has asked it to stop and
/// connections are drained, when the server fails, or when the log can no longer be written.
fn run_daemon(flags: &DaemonFlags) -> anyhow::Result<()> {
    let logs = logging::init(&flags.log, "ciao-scheduler", Destination::Files(LOG_DIR))?;
    if flags.cluster.cluster.is_some() {
        #[cfg(feature = "etcd")]
        return cluster::run(flags, logs);
        #[cfg(not(feature = "etcd"))]
        anyhow::bail!("{WITHOUT_ETCD}");
    }
    let mut profile = profile_of(flags);
    let runtime = tokio::runtime::Runtime::new().context("cannot start the runtime")?;
    runtime.block_on(async {
        // Before the server binds, so that a signal during the start is not lost.
        let hangups = Hangups::default();
        let stop = shutdown::requested(OnHangup::Reload(logs.reopen(), hangups.clone()))
            .context("cannot listen for signals")?;
        // Its words name their cause already.
        let server =
            Server::bind(flags.server_config(hangups, &logs)).map_err(anyhow::Error::msg)?;
        for address in server.local_addrs()? {
            info!(
                event = "listening",
                "scheduler {} listens on {address}",
                server.uuid()
            );
        }
        for address in server.http_addrs()? {
            info!(
                event = "listening_http",
                "scheduler {} serves HTTP on {address}",
                server.uuid()
            );
        }
        for address in server.placement_addrs()? {
            info!(
                event = "listening_placement",
                "scheduler {} answers as the Placement API on {address}",
                server.uuid()
            );
        }
        for address in server.mounted_placement_addrs()? {
            info!(
                event = "listening_placement",
                "scheduler {} answers as the Placement API below {PLACEMENT_PATH} at {address}",
                server.uuid()
            );
        }
        // As late as possible: the start is not part of the profile.
        if let Some(profile) = &mut profile
            && let Err(error) = profile.begin()
        {
            tracing::warn!(
                event = "profile_failed",
                "there will be no CPU profile: {error}"
            );
        }
        tokio::select! {
            served = server.run(stop) => served?,
            () = logs.writer_ended() => anyhow::bail!("internal error: the log's writer has ended"),
        }
        info!(event = "stopped", "stopped");
        anyhow::Ok(())
    })?;
    profile.map_or(Ok(()), |profile| {
        profile.finish().context("cannot write the CPU profile")
    })
}

/// Shows and operates several schedulers behind one name.
fn run_ha(flags: HaFlags) -> anyhow::Result<ExitCode> {
    #[cfg(feature = "etcd")]
    return ha::run(flags.command);
    #[cfg(not(feature = "etcd"))]
    {
        let HaFlags { .. } = flags;
        anyhow::bail!("{WITHOUT_ETCD}")
    }
}

/// The profile that is to be taken. A file that cannot be written, or a program without the profiler, is no reason not to
/// serve, as the first is none for the original; an empty name stands for none.
fn profile_of(flags: &DaemonFlags) -> Option<Profile> {
    let path = flags
        .cpuprofile
        .as_deref()
        .filter(|path| !is_nothing(path))?;
    let profile = Profile::create(path);
    let profile = profile.inspect_err(|error| {
        tracing::warn!(
            event = "profile_failed",
            "there will be no CPU profile: {error}"
        );
    });
    profile.ok()
}
