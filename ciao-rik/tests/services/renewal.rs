//! Certificates that are renewed while the adapter runs: its next connections to the scheduler are made with them.

use ciao_scheduler::cert::Anchor;
use proto_frames::Role;

use crate::certs::renew;
use crate::world::World;

#[tokio::test]
async fn controllers_and_nodes_dial_with_renewed_certificates() {
    let mut world = World::new().await;
    let _worker = world.worker("one", 4096).await;
    let pids = world.pids();
    let pem = std::fs::read_to_string(world.path("scheduler.pem")).unwrap();
    let anchor = Anchor::load(&pem).unwrap();
    let of_controller = renew(
        &anchor,
        &world.path("controller.pem"),
        Role::CONTROLLER,
        100,
    );
    let of_node = renew(&anchor, &world.path("agent.pem"), Role::AGENT, 200);
    // Whatever ends its connections.
    world.kill_scheduler().await;
    world.start_scheduler().await;
    let ends_then = |row: &serde_json::Value, ends_s: i64| {
        let ends = row["certificate_ends_at_s"].as_i64();
        ends.is_some_and(|it| (it - ends_s).abs() <= 1)
    };
    world
        .until("the node has its new certificate", async || {
            let listed = world.ciaoctl(&["nodes"]).await;
            let rows = listed["nodes"].as_array().cloned().unwrap_or_default();
            rows.iter()
                .any(|row| row["status"] == "READY" && ends_then(row, of_node))
        })
        .await;
    world
        .until("the controller has its new certificate", async || {
            let listed = world.ciaoctl(&["controllers"]).await;
            let rows = listed["controllers"].as_array().cloned();
            let rows = rows.unwrap_or_default();
            let of_it = rows.iter().filter(|row| ends_then(row, of_controller));
            // ciaoctl itself is one with the same file.
            of_it.count() >= 2
        })
        .await;
    assert_eq!(world.pids()[1], pids[1], "it is the same process");
}
