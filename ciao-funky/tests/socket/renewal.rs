//! Certificates that are renewed while the adapter runs: its next connection to the scheduler is made with them.

use std::path::Path;
use std::time::{Duration, SystemTime};

use ciao_scheduler::cert::{Anchor, Spec};
use proto_frames::Role;

use serde_json::Value;
use tokio::time::{Instant, interval};

use crate::certs::write_private;
use crate::process::{DEADLINE, LOOK_EVERY};
use crate::world::World;

/// Writes another certificate, which ends in so many days; when that is, seconds of Unix time.
fn renew(anchor: &Anchor, path: &Path, role: Role, days: u64) -> i64 {
    let lifetime = Duration::from_secs(days * 86_400);
    let not_before = SystemTime::now() - Duration::from_secs(3600);
    let spec = Spec {
        not_before,
        lifetime,
        ..Spec::localhost(role)
    };
    let next = anchor.sign(&spec).unwrap();
    write_private(&path.with_extension("next"), next.pem());
    std::fs::rename(path.with_extension("next"), path).unwrap();
    let ends = not_before + lifetime;
    let ends = ends.duration_since(SystemTime::UNIX_EPOCH).unwrap();
    i64::try_from(ends.as_secs()).unwrap()
}

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
