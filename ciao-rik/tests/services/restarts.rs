//! What survives: the adapter's end, the scheduler's, the controller's, and being cut off.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use crate::peers::channel;
use crate::rpc::common::ResourceStatus as Is;
use crate::rpc::controller::controller_client::ControllerClient;
use crate::world::World;

#[tokio::test]
async fn the_stream_of_updates_outlives_a_restart_of_the_scheduler() {
    let mut world = World::new().await;
    let worker = world.worker("one", 4096).await;
    let controller = world.controller().await;
    controller.creates("before").await.unwrap();
    controller.hears("before", Is::Running).await;
    world.kill_scheduler().await;
    world.rik_wrote("scheduler_disconnected").await;
    let answer = controller.creates("meanwhile").await.unwrap();
    let notice = answer
        .metadata()
        .get("ciao-notice")
        .unwrap()
        .to_str()
        .unwrap();
    assert!(
        notice.starts_with("the scheduler is not reachable"),
        "{notice}"
    );
    // A controller that begins now hears it as well.
    let mut late = ControllerClient::new(channel(world.controllers_at()).await);
    let updates = late.get_status_updates(()).await.unwrap();
    let notice = updates.metadata().get("ciao-notice").unwrap();
    let notice = notice.to_str().unwrap();
    assert!(
        notice.starts_with("the scheduler is not reachable"),
        "{notice}"
    );
    drop(updates);
    let why = controller.hears("meanwhile", Is::Pending).await;
    assert!(why.starts_with("the scheduler is not reachable"), "{why}");
    world.start_scheduler().await;
    controller.hears("meanwhile", Is::Running).await;
    assert_eq!(
        worker.created(),
        ["before", "meanwhile"],
        "what ran runs on"
    );
    world
        .until("both are listed", async || {
            world.instances().await.len() == 2
        })
        .await;
    assert!(controller.end.borrow().is_none());
    controller.destroys("before").await.unwrap();
    controller.hears("before", Is::Terminated).await;
}

#[tokio::test]
async fn what_was_accepted_survives_a_crash_of_the_adapter() {
    let mut world = World::new().await;
    let controller = world.controller().await;
    // There is no worker yet.
    controller.creates("waits").await.unwrap();
    controller.creates("goes").await.unwrap();
    controller.hears("goes", Is::Pending).await;
    world.kill_rik().await;
    world.start_rik().await;
    let controller = world.controller().await;
    controller.hears("waits", Is::Pending).await;
    controller.destroys("goes").await.unwrap();
    controller.hears("goes", Is::Terminated).await;
    let worker = world.worker("one", 4096).await;
    controller.hears("waits", Is::Running).await;
    assert_eq!(worker.created(), ["waits"]);
    // What no report of its node has listed yet would be taken for never begun, and start again.
    world
        .until("its node reports it", async || {
            let all = world.instances().await;
            all.iter().any(|it| it["reported"].is_string())
        })
        .await;
    // A worker ends with its stream, and so what it ran is over.
    world.kill_rik().await;
    worker.leave();
    world.start_rik().await;
    let controller = world.controller().await;
    world.worker("one", 4096).await;
    controller.hears("waits", Is::Failed).await;
    controller.destroys("waits").await.unwrap();
    controller.hears("waits", Is::Terminated).await;
}

#[tokio::test]
async fn a_controller_that_comes_back_hears_everything_and_every_end_once() {
    let mut world = World::new().await;
    let worker = world.worker("one", 4096).await;
    let controller = world.controller().await;
    for id in ["a", "b", "c"] {
        controller.creates(id).await.unwrap();
        controller.hears(id, Is::Running).await;
    }
    controller.leave();
    // Its streams are noticed to be gone by the next look.
    worker.says("a", Is::Terminated).await;
    world
        .until("a is over", async || world.instances().await.len() == 2)
        .await;
    let controller = world.controller().await;
    controller.hears("a", Is::Terminated).await;
    controller.hears("b", Is::Running).await;
    worker.says("b", Is::Terminated).await;
    controller.hears("b", Is::Terminated).await;
    world
        .until("both are forgotten", async || {
            let other = world.controller().await;
            // What is told of an unknown one comes behind all that is known.
            other.destroys("unknown").await.unwrap();
            other.hears("unknown", Is::Terminated).await;
            let latest = other.latest();
            other.leave();
            !latest.contains_key("a") && !latest.contains_key("b")
        })
        .await;
    world.kill_rik().await;
    world.start_rik().await;
    let controller = world.controller().await;
    controller.creates("d").await.unwrap();
    controller.hears("d", Is::Pending).await;
    assert!(
        !controller.latest().contains_key("a"),
        "{:?}",
        controller.latest()
    );
}

#[tokio::test]
async fn a_state_directory_is_one_adapters() {
    let world = World::new().await;
    let output = world.rik().output().await.unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success());
    assert!(said.contains("another ciao-rik uses it"), "{said}");
}

#[tokio::test]
async fn a_state_directory_that_is_open_to_others_is_closed_and_warned_of() {
    let mut world = World::bare(&[]);
    let state = world.path("rik");
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    std::fs::create_dir(&state).unwrap();
    std::fs::set_permissions(&state, Permissions::from_mode(0o755)).unwrap();
    let issued = world.token(&["issue", "w", "-role", "worker"]).await;
    assert!(issued.status.success(), "{issued:?}");
    world.start_scheduler().await;
    world.start_rik().await;
    let line = world.rik_wrote("state_file_open_to_others").await;
    assert!(line.contains("closed to them (0700)"), "{line}");
    assert_eq!(mode(&state), 0o700);
}
