//! Certificates that are renewed while the adapter runs: its next connection to the scheduler is made with them.

use ciao_scheduler::cert::Anchor;
use proto_frames::Role;
use serde_json::Value;
use tokio::time::{Instant, interval};

use crate::certs::renew;
use crate::process::{DEADLINE, LOOK_EVERY};
use crate::world::World;

#[tokio::test]
async fn the_adapter_dials_with_a_renewed_certificate_and_its_tasks_go_on() {
    let mut world = World::new(&["node-a"]).await;
    let end = world.path("end").display().to_string();
    let task = world.new_task(&world.lasting("task"), 1, &end).await;
    world.task_is(task, "running").await;
    let pid = world.funky_pid();
    let pem = std::fs::read_to_string(world.path("scheduler.pem")).unwrap();
    let anchor = Anchor::load(&pem).unwrap();
    let path = world.path("controller.pem");
    let ends_s = renew(&anchor, &path, Role::CONTROLLER, 100);
    // Whatever ends its connection.
    world.kill_scheduler().await;
    world.start_scheduler().await;
    let ends_then = |row: &Value| {
        let ends = row["certificate_ends_at_s"].as_i64();
        ends.is_some_and(|it| (it - ends_s).abs() <= 1)
    };
    let deadline = Instant::now() + DEADLINE;
    let mut every = interval(LOOK_EVERY);
    loop {
        every.tick().await;
        let listed = world.controllers().await;
        let rows = listed["controllers"].as_array().cloned();
        // ciaoctl itself is one with the same file.
        if rows
            .unwrap_or_default()
            .iter()
            .filter(|it| ends_then(it))
            .count()
            >= 2
        {
            break;
        }
        assert!(Instant::now() < deadline, "{listed:#}");
    }
    assert_eq!(world.funky_pid(), pid);
    world.let_end("end");
    world.task_is(task, "succeeded").await;
}
