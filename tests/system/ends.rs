//! Ends of instances that the scheduler could not be told when they came: it hears of them all the same, once.

use proto_frames::Kind;
use proto_frames::payload::{InstanceStopped, Payload, Topic};
use rustix::process::Signal;

use crate::program::Program;
use crate::world::{Cluster, until};

/// The code that the program of these tests ends with.
const CODE: i64 = 7;

/// Beats of a program (20 ms each) in which a launcher has reported several times.
const SEVERAL_REPORTS: usize = 50;

/// Whether a scheduler keeps anything across its own restart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Memory {
    Store,
    None,
}

/// What becomes of the launcher while the scheduler is away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Launcher {
    Stays,
    Restarts,
}

/// What the launcher has on disk of an instance.
fn record(cluster: &Cluster, id: &str) -> String {
    let path = format!("node-a/instances/{id}/record.json");
    std::fs::read_to_string(cluster.site.path(&path)).unwrap_or_default()
}

/// A program ends while its scheduler stands still, so that its launcher's word of it waits in queues and sockets; then
/// the scheduler is killed, and another takes its place.
async fn is_heard_of(memory: Memory, launcher: Launcher) {
    let mut cluster = match memory {
        Memory::Store => Cluster::new(&["node-a"]).await,
        Memory::None => Cluster::without_store(&["node-a"]).await,
    };
    let clock = Program::new(&cluster, "clock");
    cluster
        .run("--mem 16 --cpus 1 --wait=running", &clock.script)
        .await;
    let end = cluster.site.path("end");
    let script = format!(
        "until [ -e {} ]; do sleep 0.02; done; exit {CODE}",
        end.display()
    );
    let id = cluster
        .run("--mem 16 --cpus 1 --wait=running", &script)
        .await;

    cluster.scheduler().signal(Signal::STOP);
    std::fs::write(&end, "").unwrap();
    until("the launcher's record of the end", || {
        record(&cluster, &id).contains("Exited")
    })
    .await;
    let before = clock.beaten();
    until("several reports", || {
        clock.beaten() >= before + SEVERAL_REPORTS
    })
    .await;
    match launcher {
        Launcher::Stays => cluster.signal_launcher("node-a", Signal::STOP),
        Launcher::Restarts => cluster.kill_launcher("node-a").await,
    }
    cluster.crash_scheduler().await;
    let mut operator = cluster.site.operator(cluster.scheduler()).await;
    operator.watch(&[Topic::Instances]).await;
    match launcher {
        Launcher::Stays => cluster.signal_launcher("node-a", Signal::CONT),
        Launcher::Restarts => cluster.launch("node-a", &[]),
    }
    let stopped = operator.skip_to(Kind::INSTANCE_STOPPED).await;
    let stopped = InstanceStopped::decode(&stopped.payload).unwrap();
    assert_eq!(
        (&*stopped.instance_uuid, stopped.exit_code),
        (&*id, Some(CODE))
    );
    until("the launcher to hear that it is recorded", || {
        record(&cluster, &id).contains("\"unheard\":false")
    })
    .await;
    clock.beats().await;
}

/// A program ends while the scheduler is away; who waits for it with `run --wait`, and who asks later, is told how.
#[tokio::test]
async fn an_exit_status_survives_a_restart_of_the_scheduler_for_who_waits_and_who_asks_later() {
    let mut cluster = Cluster::new(&["node-a"]).await;
    let (begun, end) = (cluster.site.path("begun"), cluster.site.path("end"));
    let script = format!(
        "echo $CIAO_INSTANCE_UUID >{begun}; until [ -e {end} ]; do sleep 0.02; done; exit {CODE}",
        begun = begun.display(),
        end = end.display(),
    );
    let mut arguments: Vec<&str> = "run --wait --mem 16 --cpus 1 -- /bin/sh -c"
        .split(' ')
        .collect();
    arguments.push(&script);
    let mut waiting = cluster.command(&arguments);
    waiting.stdout(std::process::Stdio::null());
    let mut waiting = waiting.spawn().unwrap();
    let id = || std::fs::read_to_string(&begun).unwrap_or_default();
    until("the program", || id().ends_with('\n')).await;
    let id = id().trim().to_owned();
    cluster.until(&id, "running").await;
    cluster.kill_scheduler().await;
    std::fs::write(&end, "").unwrap();
    until("the launcher's record of the end", || {
        record(&cluster, &id).contains("Exited")
    })
    .await;
    cluster.start_scheduler().await;
    let status = crate::site::within(waiting.wait()).await.unwrap();
    assert_eq!(status.code(), Some(6));

    cluster.crash_scheduler().await;
    let ran = cluster.ctl(&format!("wait {id}")).await;
    assert_eq!(ran.code, Some(6), "{ran:?}");
    assert!(ran.out.contains("exit status 7"), "{ran:?}");
    let ran = cluster.ctl(&format!("history {id}")).await;
    assert!(ran.out.contains("exited, status 7"), "{ran:?}");
    let ran = cluster.ctl("instances --all").await;
    assert!(ran.out.contains("exit status 7"), "{ran:?}");
}

#[tokio::test]
async fn an_end_in_a_queue_is_heard_of_by_the_next_scheduler() {
    is_heard_of(Memory::Store, Launcher::Stays).await;
}

#[tokio::test]
async fn an_end_in_a_queue_is_heard_of_by_the_next_scheduler_without_a_store() {
    is_heard_of(Memory::None, Launcher::Stays).await;
}

#[tokio::test]
async fn an_end_in_the_queue_of_a_launcher_that_died_too_is_heard_of() {
    is_heard_of(Memory::Store, Launcher::Restarts).await;
}
