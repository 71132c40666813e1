//! What an instance costs the scheduler and the adapter together, from `ScheduleInstance` to RUNNING at the controller, in
//! processor time: the built programs, workers that tell each status in a stream of its own, and a controller with many
//! calls at a time.
//!
//! `cargo bench --locked --package ciao-rik --bench instances [-- COUNT …]`, 500 and 20 000 instances by default.

#![allow(
    clippy::unwrap_used,
    dead_code,
    reason = "a bench ends where it fails; the tests use the rest of their modules"
)]

#[path = "../../tests/common/certs.rs"]
mod certs;
#[path = "../tests/services/peers.rs"]
mod peers;
#[path = "../../ciao-adapter/tests/common/process.rs"]
mod process;
#[path = "../src/rpc.rs"]
mod rpc;
#[path = "../tests/services/world.rs"]
mod world;

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::Semaphore;

use crate::peers::{POD, WORKLOAD, channel};
use crate::rpc::common::ResourceStatus;
use crate::rpc::common::worker_status::Status as Subject;
use crate::rpc::controller::WorkloadScheduling;
use crate::rpc::controller::controller_client::ControllerClient;
use crate::world::World;

/// Workers of a run.
const WORKERS: usize = 40;

/// Memory that each says it has: enough for all.
const MEM_MIB: u64 = 1 << 22;

/// Calls of the controller at a time.
const CALLS: usize = 64;

#[tokio::main]
async fn main() {
    let given: Vec<usize> = std::env::args().filter_map(|it| it.parse().ok()).collect();
    let counts = match &*given {
        [] => &[500, 20_000],
        given => given,
    };
    for &count in counts {
        run(count).await;
    }
}

async fn run(count: usize) {
    let world = World::with(&["-default-mem", "0", "-report-interval", "6s"]).await;
    let mut workers = Vec::new();
    for at in 0..WORKERS {
        workers.push(world.worker(&format!("worker-{at}"), MEM_MIB).await);
    }
    let mut client = ControllerClient::new(channel(world.controllers_at()).await);
    let mut updates = client.get_status_updates(()).await.unwrap().into_inner();
    let (before, since) = (processor_time(&world), Instant::now());
    let calls = Arc::new(Semaphore::new(CALLS));
    let asks = tokio::spawn(async move {
        for at in 0..count {
            let permit = Arc::clone(&calls).acquire_owned().await.unwrap();
            let mut client = client.clone();
            tokio::spawn(async move {
                let scheduling = WorkloadScheduling {
                    workload_id: WORKLOAD.to_owned(),
                    definition: POD.to_owned(),
                    action: 0,
                    instance_id: format!("cheerful-laborer-{at}"),
                };
                client.schedule_instance(scheduling).await.unwrap();
                drop(permit);
            });
        }
    });
    let mut running = HashSet::new();
    while running.len() < count {
        let update = updates.message().await.unwrap().unwrap();
        if let Some(Subject::Instance(it)) = update.status
            && it.status() == ResourceStatus::Running
        {
            running.insert(it.instance_id);
        }
    }
    asks.await.unwrap();
    let (after, elapsed) = (processor_time(&world), since.elapsed());
    let count = u32::try_from(count).unwrap();
    let [scheduler, adapter] = [0, 1].map(|at| (after[at] - before[at]) / count);
    println!(
        "{count:>6} instances: {:.1?} of processor time each, {scheduler:.1?} of the scheduler and {adapter:.1?} of the adapter; {elapsed:.1?} in all",
        scheduler + adapter
    );
}

/// Processor time that the scheduler and the adapter have taken, in the kernel and outside.
fn processor_time(world: &World) -> [Duration; 2] {
    world.pids().map(|pid| {
        let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
        let on_cpu = tasks.map(|task| {
            let path = task.unwrap().path().join("schedstat");
            let text = std::fs::read_to_string(path).unwrap();
            text.split(' ').next().unwrap().parse::<u64>().unwrap()
        });
        Duration::from_nanos(on_cpu.sum())
    })
}
