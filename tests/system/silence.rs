//! A scheduler that is stopped where it stands, as when its machine sleeps: nothing is closed, and its kernel acknowledges
//! all that is sent to it.

use rustix::process::{Signal, kill_process};

use crate::program::Program;
use crate::world::{Cluster, until};

#[tokio::test]
async fn a_stopped_scheduler_is_noticed_by_its_launcher_and_what_runs_is_found_when_it_goes_on() {
    let mut cluster = Cluster::new(&[]).await;
    cluster.launch_logged("node-a", &[]);
    cluster.ready(&["node-a"]).await;
    let program = Program::new(&cluster, "program");
    let id = cluster
        .run("--mem 16 --cpus 1 --wait=running", &program.script)
        .await;
    program.runs(1).await;
    let scheduler = cluster.scheduler().pid();
    kill_process(scheduler, Signal::STOP).unwrap();
    let log = cluster.site.path("node-a.log");
    let says = |text: &str| std::fs::read_to_string(&log).unwrap().contains(text);
    until("the launcher's word", || {
        says("the scheduler has answered none of")
    })
    .await;
    kill_process(scheduler, Signal::CONT).unwrap();
    cluster.ready(&["node-a"]).await;
    cluster.until(&id, "running").await;
    program.runs(1).await;
    program.beats().await;
}
