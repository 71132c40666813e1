//! Who may call, where tokens are asked for; and TLS.

use tonic::transport::{Certificate, Channel, ClientTlsConfig};
use tonic::{Code, Request};

use crate::peers::{Controller, POD, Worker, channel, register};
use crate::rpc::common::{ResourceStatus as Is, WorkerRegistration, WorkloadRequestKind as Kind};
use crate::rpc::controller::controller_client::ControllerClient;
use crate::rpc::worker::worker_client::WorkerClient;
use crate::world::World;

fn with<T>(token: &str, message: T) -> Request<T> {
    let mut request = Request::new(message);
    let value = format!("Bearer {token}").parse().unwrap();
    request.metadata_mut().insert("authorization", value);
    request
}

#[tokio::test]
async fn tokens_are_issued_listed_and_banned() {
    let world = World::with(&["-tokens"]).await;
    let issue = async |name: &str, role: &str| {
        let output = world.token(&["issue", name, "-role", role]).await;
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    };
    let workers = channel(world.workers_at()).await;
    let refused = register(&workers, "one").await.unwrap_err();
    assert_eq!(refused.code(), Code::Unauthenticated);
    assert!(refused.message().contains("ciao-rik token issue"));
    let mut controllers = ControllerClient::new(channel(world.controllers_at()).await);
    let refused = controllers.get_status_updates(()).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unauthenticated);

    let of_worker = issue("w", "worker").await;
    let of_controller = issue("c", "controller").await;
    world.rik_wrote("2 tokens are known").await;
    let refused = controllers
        .get_status_updates(with(&of_worker, ()))
        .await
        .unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied);
    let mut updates = controllers
        .get_status_updates(with(&of_controller, ()))
        .await
        .unwrap()
        .into_inner();
    let registration = WorkerRegistration {
        hostname: "one".to_owned(),
    };
    let mut client = WorkerClient::new(workers);
    let mut jobs = client
        .register(with(&of_worker, registration))
        .await
        .unwrap()
        .into_inner();

    for name in ["w", "c"] {
        assert!(world.token(&["ban", name]).await.status.success());
    }
    let list = String::from_utf8(world.token(&["list"]).await.stdout).unwrap();
    assert_eq!(list, "w  worker  banned\nc  controller  banned\n");
    assert_eq!(
        jobs.message().await.unwrap_err().code(),
        Code::PermissionDenied
    );
    assert_eq!(
        updates.message().await.unwrap_err().code(),
        Code::PermissionDenied
    );
    let refused = controllers
        .get_status_updates(with(&of_controller, ()))
        .await
        .unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied);
    assert!(!world.token(&["ban", "unknown"]).await.status.success());
}

#[tokio::test]
async fn two_controllers_with_tokens_use_the_same_ids_and_see_only_their_own() {
    let world = World::with(&["-tokens"]).await;
    let mut tokens = Vec::new();
    for (name, role) in [
        ("anna", "controller"),
        ("berta", "controller"),
        ("w", "worker"),
    ] {
        let issued = world.token(&["issue", name, "-role", role]).await;
        tokens.push(String::from_utf8(issued.stdout).unwrap().trim().to_owned());
    }
    world.rik_wrote("3 tokens are known").await;
    let worker = Worker::connect_as(world.workers_at(), "one", 4096, &tokens[2]).await;
    world.node_is("one", "READY").await;
    let anna = Controller::connect_as(world.controllers_at(), &tokens[0]).await;
    let berta = Controller::connect_as(world.controllers_at(), &tokens[1]).await;
    let other = POD.replace("i:1", "i:2");
    anna.creates("a").await.unwrap();
    anna.hears("a", Is::Running).await;
    berta.creates_of("a", &other).await.unwrap();
    berta.hears("a", Is::Running).await;
    berta.creates("b").await.unwrap();
    berta.hears("b", Is::Running).await;
    // One worker has both; it tells instances apart by their ids alone.
    let created = worker.created();
    assert_eq!(created.len(), 3);
    assert!(created[0] == "a" && created[1] != "a", "{created:?}");
    anna.destroys("a").await.unwrap();
    anna.hears("a", Is::Terminated).await;
    anna.destroys("b").await.unwrap();
    anna.hears("b", Is::Terminated).await;
    // Neither is berta's, which would be told before the end of this.
    berta.destroys("b").await.unwrap();
    berta.hears("b", Is::Terminated).await;
    assert_eq!(berta.latest()["a"], Is::Running);
    berta.destroys("a").await.unwrap();
    let job = worker.was_told(&created[1], Kind::Destroy).await;
    assert_eq!(job.definition, other);
    berta.hears("a", Is::Terminated).await;
    let statuses = |it: &Controller| it.heard.borrow().iter().filter(|it| it.0 == "a").count();
    assert!(statuses(&anna) <= 5, "{:#?}", anna.heard.borrow());
}

#[tokio::test]
async fn the_services_speak_tls_where_that_is_asked_for() {
    let mut world = World::bare(&[]);
    let file = world.path("services.pem").display().to_string();
    world.flags(&["-tls", &file]);
    world.start_scheduler().await;
    world.start_rik().await;
    let ca = std::fs::read(world.path("CAcert.pem")).unwrap();
    let config = ClientTlsConfig::new()
        .ca_certificate(Certificate::from_pem(ca))
        .domain_name("localhost");
    let endpoint = Channel::from_shared(format!("https://{}", world.controllers_at())).unwrap();
    let channel = endpoint
        .tls_config(config)
        .unwrap()
        .connect()
        .await
        .unwrap();
    ControllerClient::new(channel)
        .get_status_updates(())
        .await
        .unwrap();
    let plain = crate::peers::channel(world.controllers_at()).await;
    assert!(
        ControllerClient::new(plain)
            .get_status_updates(())
            .await
            .is_err()
    );
}
