//! Requests that cannot be done. RIK's own controller ends as a process over any error of `ScheduleInstance`, so that it
//! gets a good answer with a notice, and the truth in its stream; a controller that sends `ciao-sets` gets the error.

use tonic::{Code, Response};

use crate::peers::{Controller, Mood, POD};
use crate::rpc::common::{ResourceStatus as Is, WorkloadRequestKind as Kind};
use crate::world::World;

/// The notice beside a good answer; empty where there is none.
fn notice(answer: &Response<()>) -> String {
    let notice = answer.metadata().get("ciao-notice");
    notice.map_or("", |it| it.to_str().unwrap()).to_owned()
}

/// How often it has heard this.
fn count(controller: &Controller, id: &str, status: Is) -> usize {
    let heard = controller.heard.borrow();
    let such = heard.iter().filter(|it| it.0 == id && it.1 == status);
    such.count()
}

/// What RIK's controller makes of a Function for a call: with a port of its choosing.
fn function(port: u16) -> String {
    format!(
        r#"{{"apiVersion":"v0","kind":"Function","name":"f","spec":{{"containers":[],"function":{{"execution":{{"rootfs":"http://localhost/f"}},"exposure":{{"port":{port},"targetPort":8080,"type":"NodePort"}}}}}},"replicas":null}}"#
    )
}

#[tokio::test]
async fn no_refusal_for_how_things_are_ends_riks_own_controller() {
    let world = World::new().await;
    let worker = world.worker("one", 4096).await;
    let controller = world.controller().await;
    let knowing = Controller::connect_knowing(world.controllers_at()).await;
    controller.creates("a").await.unwrap();
    controller.hears("a", Is::Running).await;
    let other = r#"{"name": "other"}"#;
    let said = notice(&controller.creates_of("a", other).await.unwrap());
    assert!(said.contains("with another definition"), "{said}");
    let refused = knowing.creates_of("a", other).await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition);
    world.rik_wrote("rik_request_not_done").await;
    worker.becomes(Mood::Silent);
    controller.destroys("a").await.unwrap();
    controller.hears("a", Is::Destroying).await;
    let said = notice(&controller.creates("a").await.unwrap());
    assert!(said.contains("is being destroyed"), "{said}");
    worker.becomes(Mood::Fails);
    controller.creates("bad").await.unwrap();
    controller.hears("bad", Is::Failed).await;
    let said = notice(&controller.creates("bad").await.unwrap());
    assert!(said.contains("has failed"), "{said}");
    let is_told = async || count(&controller, "bad", Is::Failed) == 2;
    world.until("it is told once more", is_told).await;
    assert_eq!(count(&controller, "a", Is::Failed), 0);
    assert_eq!(worker.created(), ["a", "bad"]);
}

#[tokio::test]
async fn what_cannot_be_of_riks_own_controller_has_failed_in_its_stream() {
    let mut world = World::new().await;
    let controller = world.controller().await;
    let long = format!(r#"{{"name": "{}"}}"#, "x".repeat(300 << 10));
    for (id, definition, why) in [
        (
            "unknown key/ä",
            r#"{"spec": {"scheduling": {"prioritty": 1}}}"#,
            "prioritty",
        ),
        ("long", &long, "196608"),
        ("long id ".repeat(200).as_str(), POD, "1024"),
    ] {
        let said = notice(&controller.creates_of(id, definition).await.unwrap());
        assert!(said.contains(why), "{said}");
        let said = controller.hears(id, Is::Failed).await;
        assert!(said.contains(why), "{said}");
        controller.destroys(id).await.unwrap();
        controller.hears(id, Is::Terminated).await;
    }
    let wrong = POD.replace("SECRET", "CIAO_START_MEM_MB");
    controller.creates_of("wrong", &wrong).await.unwrap();
    controller.hears("wrong", Is::Failed).await;
    // What cannot be read is refused by RIK's own scheduler as well.
    let refused = controller.creates_of("a", "{").await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument);
    world.kill_rik().await;
    world.start_rik().await;
    let controller = world.controller().await;
    controller.hears("wrong", Is::Failed).await;
    controller.destroys("wrong").await.unwrap();
    controller.hears("wrong", Is::Terminated).await;
    let all = world.instances().await;
    assert!(all.is_empty(), "{all:#?}");
}

#[tokio::test]
async fn the_port_that_riks_controller_draws_for_a_function_makes_no_other_definition() {
    let world = World::new().await;
    let worker = world.worker("one", 4096).await;
    let controller = world.controller().await;
    controller.creates_of("f", &function(45001)).await.unwrap();
    controller.hears("f", Is::Running).await;
    let answer = controller.creates_of("f", &function(45002)).await.unwrap();
    assert_eq!(notice(&answer), "");
    let job = worker.was_told("f", Kind::Create).await;
    assert_eq!(job.definition, function(45001));
    // A client that asks again may list it as `Pending`.
    let is_told = async || count(&controller, "f", Is::Running) == 2;
    world
        .until("it is told once more that it runs", is_told)
        .await;
    let other = function(45001).replace("localhost", "elsewhere");
    let said = notice(&controller.creates_of("f", &other).await.unwrap());
    assert!(said.contains("with another definition"), "{said}");
    assert_eq!(worker.created(), ["f"]);
}

#[tokio::test]
async fn replicas_are_counted_for_sets_alone() {
    let world = World::new().await;
    let worker = world.worker("one", 4096).await;
    let controller = world.controller().await;
    // The most that RIK's type holds.
    let many = POD.replace(r#""replicas":3"#, r#""replicas":65535"#);
    controller.creates_of("a", &many).await.unwrap();
    controller.hears("a", Is::Running).await;
    assert_eq!(worker.created(), ["a"]);
    let refused = controller.creates_of("", &many).await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument);
    assert!(refused.message().contains("10000"), "{refused}");
}

/// Clears the screen, forges a line, turns the direction of writing around, and goes on for long.
fn evil() -> String {
    format!(
        "x\u{1b}[2J\n2030-01-01T00:00:00.000000Z  WARN forged\r\u{9b}31m\u{202e}\u{2028}\u{7f}{}",
        "y".repeat(100_000)
    )
}

#[tokio::test]
async fn what_is_said_of_a_definition_is_short_and_of_characters_that_are_shown() {
    let world = World::new().await;
    let (plain, knowing) = (
        world.controller().await,
        Controller::connect_knowing(world.controllers_at()).await,
    );
    let evil = evil();
    let name = serde_json::to_string(&format!("CIAO_START_{evil}")).unwrap();
    let key = serde_json::to_string(&evil).unwrap();
    for (at, definition) in [
        format!(r#"{{"spec": {{"containers": [{{"env": [{{"name": {name}, "value": "1"}}]}}]}}}}"#),
        format!(
            r#"{{"spec": {{"containers": [{{"env": [{{"name": "CIAO_START_VCPUS", "value": {key}}}]}}]}}}}"#
        ),
        format!(r#"{{"spec": {{"scheduling": {{{key}: 1}}}}}}"#),
        format!(r#"{{"spec": {{"scheduling": {{"priority": {key}}}}}}}"#),
        format!(r#"{{"spec": {{"requirements": {{"mem_mb": {key}}}}}}}"#),
        format!(r#"{{"replicas": {key}}}"#),
    ]
    .iter()
    .enumerate()
    {
        let id = format!("evil-{at}");
        let refused = knowing.creates_of(&id, definition).await.unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument, "{at}: {refused}");
        let said = match plain.creates_of(&id, definition).await {
            // What RIK's own scheduler could not read either.
            Err(refused) => refused.message().to_owned(),
            Ok(answer) => {
                assert!(!notice(&answer).is_empty(), "{at}");
                plain.hears(&id, Is::Failed).await
            }
        };
        for said in [refused.message(), &said] {
            assert!(
                !said.contains(ciao_scheduler::printable::is_unprintable),
                "{at}: {said:?}"
            );
            assert!(said.len() < 4096, "{at}: {} bytes", said.len());
        }
    }
    world.rik_wrote("rik_request_not_done").await;
    for line in world.log() {
        assert!(
            !line.contains(ciao_scheduler::printable::is_unprintable) && line.len() < 8192,
            "{line:?}"
        );
        assert!(!line.starts_with("2030"), "{line:?}");
    }
}
