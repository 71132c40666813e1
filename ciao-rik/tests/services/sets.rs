//! Sets: calls without an `instance_id`.

use crate::peers::{Controller, Mood, channel};
use crate::rpc::common::{ResourceStatus as Is, WorkloadRequestKind as Kind};
use crate::rpc::controller::controller_client::ControllerClient;
use crate::world::World;

fn web(replicas: u32, image: &str) -> String {
    format!(
        r#"{{"kind": "Pod", "name": "web", "replicas": {replicas}, "spec": {{"containers": [{{"name": "c", "image": "{image}"}}]}}}}"#
    )
}

/// A controller that knows sets.
async fn controller(world: &World) -> Controller {
    let mut client = ControllerClient::new(channel(world.controllers_at()).await);
    let mut request = tonic::Request::new(());
    request
        .metadata_mut()
        .insert("ciao-sets", "yes".parse().unwrap());
    let updates = client
        .get_status_updates(request)
        .await
        .unwrap()
        .into_inner();
    Controller::of(client, updates)
}

/// How many run, as the controller has heard.
fn running(controller: &Controller) -> usize {
    controller
        .latest()
        .values()
        .filter(|it| **it == Is::Running)
        .count()
}

#[tokio::test]
async fn a_set_is_created_scaled_and_destroyed() {
    let world = World::new().await;
    let one = world.worker("one", 4096).await;
    let two = world.worker("two", 4096).await;
    let plain = world.controller().await;
    let knowing = controller(&world).await;
    for replicas in [3, 5, 2] {
        knowing.creates_of("", &web(replicas, "i:1")).await.unwrap();
        world
            .until("so many run", async || {
                running(&knowing) == replicas as usize
            })
            .await;
    }
    assert!(
        !one.created().is_empty() && !two.created().is_empty(),
        "they had better be apart"
    );
    knowing.destroys("").await.unwrap();
    world
        .until("none is left", async || {
            knowing.latest().values().all(|it| *it == Is::Terminated)
        })
        .await;
    world
        .until("nor listed", async || world.instances().await.is_empty())
        .await;
    assert!(
        plain.latest().is_empty(),
        "it named none of them: {:?}",
        plain.latest()
    );
}

#[tokio::test]
async fn a_changed_definition_is_rolled_out_with_a_bound_on_how_many_are_down() {
    let world = World::with(&["-max-down", "1"]).await;
    let worker = world.worker("one", 8192).await;
    let knowing = controller(&world).await;
    knowing.creates_of("", &web(4, "i:1")).await.unwrap();
    world
        .until("four run", async || running(&knowing) == 4)
        .await;
    let before = knowing.heard.borrow().len();
    knowing.creates_of("", &web(4, "i:2")).await.unwrap();
    world
        .until("four new ones run", async || {
            worker.created().len() == 8 && running(&knowing) == 4
        })
        .await;
    // Step by step: never fewer than three ran.
    let heard = knowing.heard.borrow().clone();
    let mut latest = std::collections::BTreeMap::new();
    for (at, (id, status, _)) in heard.iter().enumerate() {
        latest.insert(id, status);
        let running = latest.values().filter(|it| ***it == Is::Running).count();
        assert!(at < before || running >= 3, "{heard:#?}");
    }
    let jobs = worker.jobs.borrow().clone();
    let new = jobs
        .iter()
        .filter(|it| it.action() == Kind::Create && it.definition.contains("i:2"));
    assert_eq!(new.count(), 4);
}

#[tokio::test]
async fn a_definition_that_does_not_run_stops_the_roll_out() {
    let world = World::new().await;
    let worker = world.worker("one", 8192).await;
    let knowing = controller(&world).await;
    knowing.creates_of("", &web(3, "i:1")).await.unwrap();
    world
        .until("three run", async || running(&knowing) == 3)
        .await;
    worker.becomes(Mood::Fails);
    knowing.creates_of("", &web(3, "bad")).await.unwrap();
    world
        .until("one has failed", async || {
            knowing.latest().values().any(|it| *it == Is::Failed)
        })
        .await;
    assert_eq!(running(&knowing), 2, "the others run on");
    worker.becomes(Mood::Works);
    knowing.creates_of("", &web(3, "i:3")).await.unwrap();
    world
        .until("three run again", async || {
            let jobs = worker.jobs.borrow();
            let new = jobs
                .iter()
                .filter(|it| it.definition.contains("i:3"))
                .count();
            new == 3 && running(&knowing) == 3
        })
        .await;
}
