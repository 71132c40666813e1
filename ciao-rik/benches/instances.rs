//! What an instance costs the scheduler and the adapter together, from `ScheduleInstance` to RUNNING at the controller, in
//! processor time: the built programs, workers that tell each status in a stream of its own, and a controller with many
//! calls at a time.
//!
//! `cargo bench --locked --package ciao-rik --bench instances [-- COUNT …]`, 500 and 20 000 instances by default. With
//! RIK_SCHEDULER=PATH, a `scheduler` of RIK's own built elsewhere, the same workers and controller use that one as well.

#![expect(
    clippy::unwrap_used,
    dead_code,
    reason = "a bench ends where it fails; the tests use the rest of their modules"
)]

#[path = "../../tests/common/certs.rs"]
mod certs;
#[path = "../../tests/common/guarded.rs"]
mod guarded;
#[path = "../tests/services/peers.rs"]
mod peers;
#[path = "../../ciao-adapter/tests/common/process.rs"]
mod process;
#[path = "../src/rpc.rs"]
mod rpc;
#[path = "../tests/services/world.rs"]
mod world;

use std::collections::HashSet;
use std::ffi::OsStr;
use std::net::{SocketAddr, TcpListener};
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::net::TcpStream;
use tokio::process::{Child, Command};
use tokio::sync::Semaphore;

use crate::peers::{POD, WORKLOAD, Worker, channel};
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
    let original = std::env::var_os("RIK_SCHEDULER");
    for &count in counts {
        let world = World::with(&["-default-mem", "0", "-report-interval", "6s"]).await;
        let at = [world.workers_at(), world.controllers_at()];
        let workers = connect_workers(at[0]).await;
        for worker in &workers {
            world.node_is(&worker.name, "READY").await;
        }
        let ([scheduler, adapter], elapsed) = run(count, at[1], world.pids()).await;
        println!(
            "{count:>6} instances: {:.1?} of processor time each, {scheduler:.1?} of the scheduler and {adapter:.1?} of the adapter; {elapsed:.1?} in all",
            scheduler + adapter
        );
        drop((workers, world));
        if let Some(program) = &original {
            let (process, at) = start_original(program).await;
            let _workers = connect_workers(at[0]).await;
            let ([each], elapsed) = run(count, at[1], [process.id().unwrap()]).await;
            println!(
                "{count:>6} instances: {each:.1?} of processor time each of RIK's own scheduler; {elapsed:.1?} in all"
            );
        }
    }
}

/// RIK's own scheduler, and where it listens for workers and for controllers.
async fn start_original(program: &OsStr) -> (Child, [SocketAddr; 2]) {
    let at = [(); 2].map(|()| {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        listener.local_addr().unwrap()
    });
    let process = Command::new(program)
        .arg(format!("--workersip={}", at[0]))
        .arg(format!("--ctrlip={}", at[1]))
        .stdout(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    for at in at {
        while TcpStream::connect(at).await.is_err() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
    (process, at)
}

async fn connect_workers(address: SocketAddr) -> Vec<Worker> {
    let mut workers = Vec::new();
    for at in 0..WORKERS {
        workers.push(Worker::connect(address, &format!("worker-{at}"), MEM_MIB).await);
    }
    workers
}

/// Processor time that these processes took for each instance, and how long all of it lasted.
async fn run<const N: usize>(
    count: usize,
    controllers_at: SocketAddr,
    pids: [u32; N],
) -> ([Duration; N], Duration) {
    let mut client = ControllerClient::new(channel(controllers_at).await);
    let mut updates = client.get_status_updates(()).await.unwrap().into_inner();
    let (before, since) = (processor_time(pids), Instant::now());
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
    let (after, elapsed) = (processor_time(pids), since.elapsed());
    let count = u32::try_from(count).unwrap();
    let each = std::array::from_fn(|at| (after[at] - before[at]) / count);
    (each, elapsed)
}

/// Processor time that these processes have taken, in the kernel and outside.
fn processor_time<const N: usize>(pids: [u32; N]) -> [Duration; N] {
    pids.map(|pid| {
        let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
        let on_cpu = tasks.map(|task| {
            let path = task.unwrap().path().join("schedstat");
            let text = std::fs::read_to_string(path).unwrap();
            text.split(' ').next().unwrap().parse::<u64>().unwrap()
        });
        Duration::from_nanos(on_cpu.sum())
    })
}
