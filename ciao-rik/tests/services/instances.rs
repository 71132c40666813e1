//! Instances from a controller to a worker and back.

use crate::peers::{Controller, Mood, POD, WORKLOAD};
use crate::rpc::common::{ResourceStatus as Is, WorkloadRequestKind as Kind};
use crate::world::World;

#[tokio::test]
async fn instances_run_on_two_workers_and_their_controller_hears_it() {
    let world = World::new().await;
    let one = world.worker("one", 4096).await;
    let two = world.worker("two", 4096).await;
    let controller = world.controller().await;
    let ids: Vec<String> = (0..6).map(|at| format!("cheerful-laborer-{at}")).collect();
    for id in &ids {
        controller.creates(id).await.unwrap();
    }
    for id in &ids {
        controller.hears(id, Is::Running).await;
    }
    let (on_one, on_two) = (one.created(), two.created());
    assert_eq!(
        on_one.len() + on_two.len(),
        6,
        "replicas or not, each call is one instance"
    );
    assert!(
        !on_one.is_empty() && !on_two.is_empty(),
        "{on_one:?} {on_two:?}"
    );
    let job = one.was_told(&on_one[0], Kind::Create).await;
    assert_eq!(job.definition, POD, "with all its keys");

    controller.destroys(&on_one[0]).await.unwrap();
    let job = one.was_told(&on_one[0], Kind::Destroy).await;
    assert_eq!(job.definition, POD, "riklet does no job without one");
    controller.hears(&on_one[0], Is::Destroying).await;
    controller.hears(&on_one[0], Is::Terminated).await;
    let told_two = two.jobs.borrow().clone();
    assert!(
        told_two.iter().all(|it| it.action() == Kind::Create),
        "to the holder alone"
    );
    world
        .until("five are left", async || world.instances().await.len() == 5)
        .await;
    let listed = serde_json::to_string(&world.instances().await).unwrap();
    assert!(
        listed.contains(&on_two[0]) && !listed.contains("hidden-value"),
        "{listed}"
    );
    assert!(controller.end.borrow().is_none());
}

#[tokio::test]
async fn ids_are_any_text_and_a_repeated_create_makes_nothing() {
    let world = World::new().await;
    let worker = world.worker("one", 4096).await;
    let controller = world.controller().await;
    for id in ["my db/ä", "x", "---\n...", &"long ".repeat(40)] {
        controller.creates(id).await.unwrap();
        controller.hears(id, Is::Running).await;
        controller.creates(id).await.unwrap();
        assert_eq!(worker.created().iter().filter(|it| *it == id).count(), 1);
        controller.destroys(id).await.unwrap();
        controller.hears(id, Is::Terminated).await;
    }
    // What is over can be made again.
    controller.creates("x").await.unwrap();
    world
        .until("x runs again", async || worker.created().len() == 5)
        .await;
    world
        .until("it is heard", async || {
            controller.latest()["x"] == Is::Running
        })
        .await;
}

#[tokio::test]
async fn every_destroyed_instance_ends_terminated_wherever_it_was() {
    let world = World::with(&["-stop-grace", "300ms"]).await;
    let controller = world.controller().await;
    // Never placed: there is no worker.
    controller.creates("nowhere").await.unwrap();
    controller.hears("nowhere", Is::Pending).await;
    controller.destroys("nowhere").await.unwrap();
    controller.hears("nowhere", Is::Terminated).await;
    // Never known.
    controller.destroys("unknown").await.unwrap();
    controller.hears("unknown", Is::Terminated).await;
    // Being created, which this worker never ends.
    let worker = world.worker("one", 4096).await;
    worker.becomes(Mood::Creates);
    controller.creates("creating").await.unwrap();
    controller.hears("creating", Is::Creating).await;
    controller.destroys("creating").await.unwrap();
    worker.was_told("creating", Kind::Destroy).await;
    controller.hears("creating", Is::Terminated).await;
    // On a worker that says nothing of it.
    controller.creates("silent").await.unwrap();
    controller.hears("silent", Is::Creating).await;
    worker.becomes(Mood::Silent);
    controller.destroys("silent").await.unwrap();
    controller.hears("silent", Is::Terminated).await;
    worker.becomes(Mood::Works);
    // On a worker that is gone.
    controller.creates("lost").await.unwrap();
    controller.hears("lost", Is::Running).await;
    worker.leave();
    let why = controller.hears("lost", Is::Failed).await;
    assert_eq!(why, "its worker one is gone");
    controller.destroys("lost").await.unwrap();
    controller.hears("lost", Is::Terminated).await;
    world
        .until("nothing is left", async || {
            world.instances().await.is_empty()
        })
        .await;
}

#[tokio::test]
async fn a_late_word_of_what_counted_as_gone_is_not_taken_for_the_next_instance_of_its_id() {
    let world = World::with(&["-stop-grace", "300ms"]).await;
    let controller = world.controller().await;
    let worker = world.worker("one", 4096).await;
    controller.creates("a").await.unwrap();
    controller.hears("a", Is::Running).await;
    worker.becomes(Mood::Silent);
    controller.destroys("a").await.unwrap();
    controller.hears("a", Is::Terminated).await;
    let made = async |count: usize| {
        controller.creates("a").await.unwrap();
        let is_made = async || worker.created().len() == count;
        world.until("it is made", is_made).await;
        worker.created().pop().unwrap()
    };
    let second = made(2).await;
    // Of the first, which took its time.
    worker.says("a", Is::Terminated).await;
    worker.says(&second, Is::Running).await;
    let runs = async || controller.latest()["a"] == Is::Running;
    world.until("the second runs", runs).await;
    controller.destroys("a").await.unwrap();
    worker.was_told(&second, Kind::Destroy).await;
    worker.says(&second, Is::Terminated).await;
    let is_gone = async || controller.latest()["a"] == Is::Terminated;
    world.until("the second is gone", is_gone).await;
    assert_eq!(made(3).await, "a", "nothing of that name is left");
}

#[tokio::test]
async fn an_instance_that_is_destroyed_twice_ends_once() {
    let world = World::new().await;
    let controller = world.controller().await;
    controller.creates("waits").await.unwrap();
    controller.hears("waits", Is::Pending).await;
    for id in ["waits", "unknown"] {
        controller.destroys(id).await.unwrap();
        controller.hears(id, Is::Terminated).await;
        // RIK's own controller asks as often as it is told to, and ends where it hears an end for the second time.
        controller.destroys(id).await.unwrap();
        controller.destroys(id).await.unwrap();
    }
    controller.creates("last").await.unwrap();
    controller.hears("last", Is::Pending).await;
    let heard = controller.heard.borrow().clone();
    let ends = |id: &str| {
        let ends = heard
            .iter()
            .filter(|it| it.0 == id && it.1 == Is::Terminated);
        ends.count()
    };
    assert_eq!((ends("waits"), ends("unknown")), (1, 1), "{heard:#?}");
    // One that comes back may list it still.
    controller.leave();
    let controller = world.controller().await;
    controller.destroys("waits").await.unwrap();
    controller.hears("waits", Is::Terminated).await;
}

#[tokio::test]
async fn what_fails_or_ends_by_itself_is_told() {
    let world = World::new().await;
    let worker = world.worker("one", 4096).await;
    let controller = world.controller().await;
    controller.creates("job").await.unwrap();
    controller.hears("job", Is::Running).await;
    worker.says("job", Is::Terminated).await;
    controller.hears("job", Is::Terminated).await;
    controller.creates("crash").await.unwrap();
    controller.hears("crash", Is::Running).await;
    worker.says("crash", Is::Failed).await;
    let why = controller.hears("crash", Is::Failed).await;
    assert!(why.starts_with("it failed on one"), "{why}");
    worker.becomes(Mood::Fails);
    controller.creates("bad").await.unwrap();
    let why = controller.hears("bad", Is::Failed).await;
    assert!(why.starts_with("launch_failure"), "{why}");
    // It stays listed until it is to go.
    controller.destroys("bad").await.unwrap();
    controller.hears("bad", Is::Terminated).await;
}

#[tokio::test]
async fn what_does_not_fit_waits_and_says_why() {
    let world = World::with(&["-default-mem", "1000"]).await;
    let first = world.worker("small", 1500).await;
    let controller = world.controller().await;
    controller.creates("a").await.unwrap();
    controller.hears("a", Is::Running).await;
    controller.creates("b").await.unwrap();
    controller.hears("b", Is::Pending).await;
    let small = r#"{"spec": {"requirements": {"mem_mb": 10}}}"#;
    controller.creates_of("c", small).await.unwrap();
    controller.hears("c", Is::Running).await;
    let second = world.worker("other", 4096).await;
    controller.hears("b", Is::Running).await;
    assert_eq!(
        (first.created(), second.created()),
        (vec!["a".to_owned(), "c".to_owned()], vec!["b".to_owned()])
    );
}

#[tokio::test]
async fn a_request_that_makes_no_sense_is_refused_with_what_is_wrong() {
    let world = World::new().await;
    let controller = Controller::connect_knowing(world.controllers_at()).await;
    let refused = async |id: &str, definition: &str| {
        let status = controller.creates_of(id, definition).await.unwrap_err();
        assert_eq!(status.code(), tonic::Code::InvalidArgument, "{status}");
        status.message().to_owned()
    };
    let said = refused("a", "{").await;
    assert!(said.contains("not the JSON of a workload"), "{said}");
    let said = refused("a", r#"{"spec": {"scheduling": {"prioritty": 1}}}"#).await;
    assert!(said.contains("prioritty"), "{said}");
    let said = refused(&"x".repeat(2000), POD).await;
    assert!(said.contains("longer than 1024 bytes"), "{said}");
    assert!(!WORKLOAD.is_empty() && controller.latest().is_empty());
}
