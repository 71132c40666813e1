//! Workers that come, go, and come back.

use tonic::Code;

use crate::peers::{Controller, Mood, Worker, channel, metrics, metrics_with, register, tell};
use crate::rpc::common::ResourceStatus as Is;
use crate::world::World;

/// Waits until this worker has the instance "a" as its only one, and the controller hears that it runs.
async fn runs_on(world: &World, worker: &Worker, controller: &Controller) {
    let on_the_worker = async || worker.created() == ["a"];
    world.until("it is on the other", on_the_worker).await;
    let is_heard = async || controller.latest()["a"] == Is::Running;
    world.until("and it is heard", is_heard).await;
}

#[tokio::test]
async fn a_name_is_one_workers_at_a_time() {
    let world = World::new().await;
    let worker = world.worker("one", 1024).await;
    let other = channel(world.workers_at()).await;
    let refused = register(&other, "one").await.unwrap_err();
    assert_eq!(refused.code(), Code::AlreadyExists);
    assert_eq!(refused.message(), "Worker with this hostname already exist");
    let refused = register(&other, "").await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition);
    let refused = register(&other, "a b\n").await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument);
    worker.leave();
    // The name is free again at once, and the node is the same.
    world
        .until("it is gone", async || {
            world.log().iter().any(|it| it.contains("worker_gone"))
        })
        .await;
    world.worker("one", 1024).await;
    let nodes = world.ciaoctl(&["nodes"]).await.to_string();
    assert_eq!(nodes.matches("\"one\"").count(), 1, "{nodes}");
}

#[tokio::test]
async fn a_status_may_come_before_its_worker_registers() {
    let world = World::new().await;
    let early = channel(world.workers_at()).await;
    let (told, registered) = tokio::join!(tell(&early, "one", metrics(1024)), async {
        register(&channel(world.workers_at()).await, "one").await
    });
    let _jobs = registered.unwrap();
    world.node_is("one", "READY").await;
    told.unwrap();
    // That of one which does not register is passed over, and its stream is not ended by an error.
    tell(&early, "two", metrics(1024)).await.unwrap();
}

#[tokio::test]
async fn a_worker_that_lists_no_disks_runs_what_needs_none() {
    let world = World::new().await;
    let channel = channel(world.workers_at()).await;
    let _jobs = register(&channel, "one").await.unwrap();
    tell(&channel, "one", metrics_with(4096, "")).await.unwrap();
    world.node_is("one", "READY").await;
    let controller = world.controller().await;
    controller.creates("a").await.unwrap();
    let is_placed = async || {
        let all = world.instances().await;
        all.iter().any(|it| it["hostname"] == "one")
    };
    world.until("it is given to the worker", is_placed).await;
}

#[tokio::test]
async fn controllers_hear_of_workers_with_an_address_that_can_be_parsed() {
    let world = World::new().await;
    let early = world.controller().await;
    let worker = world.worker("one", 1024).await;
    let late = world.controller().await;
    for controller in [&early, &late] {
        let mut workers = controller.workers.clone();
        let seen = workers
            .wait_for(|all| all.contains_key("one"))
            .await
            .unwrap();
        let (status, address) = &seen["one"];
        assert_eq!(*status, Is::Running);
        assert!(address.parse::<std::net::SocketAddr>().is_ok(), "{address}");
    }
    worker.leave();
    for controller in [&early, &late] {
        let mut workers = controller.workers.clone();
        let gone = workers.wait_for(|all| all["one"].0 == Is::Terminated);
        gone.await.unwrap();
    }
}

#[tokio::test]
async fn what_a_lost_worker_ran_goes_on_elsewhere_where_that_is_asked_for() {
    let world = World::with(&["-on-worker-loss", "restart"]).await;
    let one = world.worker("one", 4096).await;
    let controller = world.controller().await;
    controller.creates("a").await.unwrap();
    controller.hears("a", Is::Running).await;
    let two = world.worker("two", 4096).await;
    one.leave();
    runs_on(&world, &two, &controller).await;
    let heard = controller.heard.borrow().clone();
    assert!(
        heard
            .iter()
            .all(|it| it.1 != Is::Failed && it.1 != Is::Terminated),
        "{heard:?}"
    );
}

#[tokio::test]
async fn what_is_destroyed_while_its_worker_goes_does_not_go_on_elsewhere() {
    for is_away in [false, true] {
        let mut world = World::with(&["-on-worker-loss", "restart"]).await;
        let one = world.worker("one", 4096).await;
        let controller = world.controller().await;
        controller.creates("a").await.unwrap();
        controller.hears("a", Is::Running).await;
        let two = world.worker("two", 4096).await;
        one.becomes(Mood::Silent);
        if is_away {
            world.kill_scheduler().await;
        }
        controller.destroys("a").await.unwrap();
        controller.hears("a", Is::Destroying).await;
        one.leave();
        if is_away {
            world.start_scheduler().await;
        }
        controller.hears("a", Is::Terminated).await;
        let none = async || world.instances().await.is_empty();
        world.until("nothing is left of it", none).await;
        assert_eq!(two.created(), Vec::<String>::new(), "{is_away}");
    }
}

#[tokio::test]
async fn a_worker_that_is_drained_is_emptied_onto_another() {
    let world = World::new().await;
    let one = world.worker("one", 4096).await;
    let controller = world.controller().await;
    controller.creates("a").await.unwrap();
    controller.hears("a", Is::Running).await;
    let two = world.worker("two", 4096).await;
    world.ciaoctl(&["drain", "one"]).await;
    runs_on(&world, &two, &controller).await;
    assert!(
        controller
            .heard
            .borrow()
            .iter()
            .all(|it| it.1 != Is::Terminated)
    );
    drop(one);
}
