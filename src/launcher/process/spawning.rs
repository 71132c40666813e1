//! A workload on its way to its supervisor: its images are obtained, then it waits for one of the few places for starts,
//! then the supervisor is started, and the outcome is reported.
//!
//! ```text
//! Spawn ─▶ images? ─ obtain ──▶ permit ─▶ start ─▶ Started
//!              └ failed, abandoned ─▶ StartFailed(Image)  └ refused, silent ─▶ StartFailed(Launch, Storage, Image)
//! ```

use std::convert::Infallible;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use proto_frames::payload::Digest;
use tokio::sync::oneshot;

use super::super::agent::{Input, LaunchFault, Respawn, Workload};
use super::super::files::{InstanceDir, Launch, Obstacle, read_json};
use super::super::images::{self, Images};
use super::super::lease::boottime;
use super::super::limits::Limits;
use super::super::orphans;
use super::super::supervise::Program;
use super::starting::{NotStarted, Rest, start};
use super::{ProcessEvent, Processes, environment};

impl Processes {
    /// Begins a start and returns at once; a task does the rest.
    pub(super) fn spawn(&mut self, mut workload: Workload) {
        let instance = workload.instance.clone();
        let needed = std::mem::take(&mut workload.images);
        let launch = self.launch(workload, &self.state().instance(&instance));
        self.obtain_and_begin(instance, needed, move |_, paths| {
            Ok(with_images(launch, paths))
        });
    }

    /// Begins to start a workload again, with what it was started with but for what has changed since. Its images may have
    /// been evicted meanwhile; their paths are the same again.
    pub(super) fn respawn(&mut self, respawn: Respawn) {
        let (instance, needed) = (respawn.instance.clone(), respawn.images.clone());
        let asked = boottime();
        self.obtain_and_begin(instance, needed, move |dir, _| {
            // The time in which its images were fetched counts.
            let waited = boottime().saturating_sub(asked);
            launch_again(dir, respawn, waited)
        });
    }

    /// Has a task obtain the images that are needed, then start what `launch` makes of their paths and report the outcome.
    ///
    /// An instance of which a record waits to be written is refused as a fault of the storage: after a crash the
    /// launcher could not find it again. Its images are held before anything waits, so that the cache evicts none.
    fn obtain_and_begin(
        &mut self,
        instance: String,
        needed: Vec<Digest>,
        launch: impl FnOnce(&InstanceDir, &[PathBuf]) -> Result<Launch, (LaunchFault, String)>
        + Send
        + 'static,
    ) {
        let (events, starts) = (self.events.clone(), self.starts.clone());
        if self.state.has(&instance) {
            let detail = self.state.fault().unwrap_or_default();
            let failed = start_failed(instance, LaunchFault::Storage, detail);
            tokio::spawn(async move { events.send(failed).await });
            return;
        }
        let dir = self.state().instance(&instance);
        let supervisor = self.supervisor.clone();
        let (wait, abandoned) = oneshot::channel();
        if !needed.is_empty() {
            self.images.hold(&instance, &needed);
            self.waiting.insert(instance.clone(), wait);
        }
        let images = self.images.clone();
        tokio::spawn(async move {
            // The images first: fetching them may take minutes, and no permit is held meanwhile.
            let paths = match &*needed {
                [] => Ok(Vec::new()),
                needed => obtained(&images, needed, abandoned).await,
            };
            let paths = paths.map_err(|detail| (LaunchFault::Image, detail));
            let event = match paths.and_then(|paths| launch(&dir, &paths)) {
                Ok(launch) => {
                    let turn = starts.acquire().await;
                    let started = begin(supervisor, dir, launch, instance).await;
                    drop(turn);
                    started
                }
                Err((fault, detail)) => start_failed(instance, fault, detail),
            };
            // The receiver is gone only when the launcher has ended.
            let _ = events.send(event).await;
        });
    }

    /// What the supervisor reads from the launch file: limits, environment, cgroup, lease.
    fn launch(&self, workload: Workload, dir: &InstanceDir) -> Launch {
        let node = self.state().uuid();
        let instance = &workload.instance;
        Launch {
            group: self.tree.as_ref().map(|tree| tree.group(node, instance)),
            lease: workload.leased.then(|| self.state().lease()),
            limits: Limits {
                mem_mb: workload.mem_mb,
                vcpus: workload.vcpus,
            },
            cpus: workload.cpus.clone(),
            env: environment(&workload, &node.to_string(), dir),
            working_dir: workload.working_dir.map(PathBuf::from),
            stop_signal: Some(workload.stop.signal.as_raw()),
            stop_grace_ms: Some(whole_ms(workload.stop.grace)),
            time_left_ms: workload.time_left.map(whole_ms),
            split_output: workload.split_output,
            command: workload.command,
        }
    }
}

/// The launch with the images' paths in place of the placeholders.
fn with_images(launch: Launch, paths: &[PathBuf]) -> Launch {
    if paths.is_empty() {
        return launch;
    }
    Launch {
        command: images::command(paths, launch.command),
        env: images::environment(paths, launch.env),
        ..launch
    }
}

/// The paths of these images, once all are there.
///
/// # Errors
/// Why one cannot be had, for people; or that the instance was to end meanwhile.
async fn obtained(
    images: &Images,
    needed: &[Digest],
    abandoned: oneshot::Receiver<Infallible>,
) -> Result<Vec<PathBuf>, String> {
    tokio::select! {
        paths = images.obtain_all(needed) => paths,
        _ = abandoned => Err("it was to end before its images were there".to_owned()),
    }
}

/// What an instance was started with, as it is to be started again.
///
/// # Errors
/// The file in its directory is gone, or cannot be read: a workload can remove it.
fn launch_again(
    dir: &InstanceDir,
    respawn: Respawn,
    waited: Duration,
) -> Result<Launch, (LaunchFault, String)> {
    let before: Launch = read_json(&dir.launch())
        .and_then(|launch| launch.ok_or_else(|| io::ErrorKind::NotFound.into()))
        .map_err(|error| {
            let detail = format!("what it was started with cannot be read: {error}");
            (LaunchFault::Launch, detail)
        })?;
    let mut env = before.env;
    env.extend(respawn.env);
    Ok(Launch {
        env,
        limits: Limits {
            mem_mb: respawn.mem_mb,
            vcpus: respawn.vcpus,
        },
        cpus: respawn.cpus,
        time_left_ms: respawn
            .time_left
            .map(|left| whole_ms(left.saturating_sub(waited))),
        ..before
    })
}

fn whole_ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Starts a supervisor and waits for its word. Where it is not known whether something was started, all processes with
/// the instance's mark are killed before the failure is reported: the scheduler may start it elsewhere after that.
async fn begin(
    supervisor: Program,
    dir: InstanceDir,
    launch: Launch,
    instance: String,
) -> ProcessEvent {
    let NotStarted { obstacle, rest } = match start(supervisor, dir.clone(), launch).await {
        Ok((supervisor, child)) => {
            return ProcessEvent::Started {
                instance,
                supervisor,
                child,
            };
        }
        Err(not_started) => not_started,
    };
    // Its room is given back only when nothing of it runs.
    if rest == Rest::Unknown {
        orphans::end(dir).await;
    }
    let Obstacle {
        image,
        storage,
        detail,
    } = obstacle;
    let fault = if image {
        LaunchFault::Image
    } else if storage {
        LaunchFault::Storage
    } else {
        LaunchFault::Launch
    };
    start_failed(instance, fault, detail)
}

fn start_failed(instance: String, fault: LaunchFault, detail: String) -> ProcessEvent {
    ProcessEvent::Other(Input::StartFailed {
        instance,
        fault,
        detail,
    })
}
