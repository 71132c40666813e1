//! What survives: the adapter's end, the scheduler's, and being cut off.

use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixListener;

use crate::world::World;

#[tokio::test]
async fn tasks_and_numbers_survive_a_crash_of_the_adapter() {
    let mut world = World::new(&["node-a", "node-b"]).await;
    let end = world.path("end").display().to_string();
    let nodes = world.nodes(2).await;
    let running = world.new_task(&world.lasting("running"), 1, &end).await;
    let other = world.new_task(&world.lasting("other"), 1, &end).await;
    let before = world.task_is(running, "running").await;
    world.task_is(other, "running").await;
    let queued = world.new_task(&world.lasting("queued"), 1, &end).await;
    world.task_is(queued, "queued").await;
    world.kill_funky().await;
    // It is over while the adapter is not there to hear it.
    world.let_end("end");
    world.until("the ends", || world.log().len() == 6).await;
    world.start_funky().await;
    assert_eq!(world.nodes(2).await, nodes);
    for task in [running, other, queued] {
        world.task_is(task, "succeeded").await;
    }
    assert_eq!(world.task(running).await["instance"], before["instance"]);
    let mut log = world.log();
    log.sort();
    let all = [
        "begin other",
        "begin queued",
        "begin running",
        "end other",
        "end queued",
        "end running",
    ];
    assert_eq!(log, all, "each ran once");
    assert_eq!(
        world.new_task(&world.lasting("next"), 1, &end).await,
        queued + 1
    );
}

#[tokio::test]
async fn what_has_ended_and_is_forgotten_by_all_is_not_run_again() {
    let mut world = World::new(&["node-a"]).await;
    let end = world.path("end").display().to_string();
    let task = world.new_task(&world.lasting("task"), 0, &end).await;
    world.task_is(task, "running").await;
    world.kill_funky().await;
    world.let_end("end");
    world.logged(&["begin task", "end task"]).await;
    // Neither the scheduler nor a node remembers the end.
    world.lose_node("node-a").await;
    world.kill_scheduler().await;
    std::fs::remove_dir_all(world.path("state")).unwrap();
    world.start_scheduler().await;
    world.launch("node-b", &[]);
    world.start_funky().await;
    let failed = world.task_is(task, "failed").await;
    let detail = failed["detail"].as_str().unwrap();
    assert!(
        detail.contains("whether it ran, and how it ended, is not known"),
        "{detail}"
    );
    world.logged(&["begin task", "end task"]).await;
}

#[tokio::test]
async fn it_can_be_started_again_as_soon_as_it_has_stopped() {
    let mut world = World::new(&["node-a"]).await;
    for _ in 0..3 {
        world.stop_funky().await;
        assert!(!world.socket().exists(), "it takes its socket with it");
        world.start_funky().await;
        world.nodes(1).await;
    }
    world.kill_funky().await;
    assert!(world.socket().exists(), "a crash leaves it behind");
    world.start_funky().await;
    world.nodes(1).await;
    let task = world.new_task(&world.script("task", "exit 0"), 0, "").await;
    world.task_is(task, "succeeded").await;
}

#[tokio::test]
async fn what_is_accepted_while_the_scheduler_is_away_runs_when_it_is_back() {
    let mut world = World::new(&["node-a"]).await;
    let end = world.path("end").display().to_string();
    let running = world.new_task(&world.lasting("running"), 0, &end).await;
    world.task_is(running, "running").await;
    world.kill_scheduler().await;
    let migration = loop {
        let answer = world.ask(format!("Task: {running} Node: 1")).await;
        if !answer.contains("is on node 1 already") {
            break answer;
        }
        // It has not noticed yet.
        tokio::task::yield_now().await;
    };
    assert!(
        migration.starts_with("error: the scheduler is not reachable: "),
        "{migration}"
    );
    let program = world.lasting("later");
    let answer = world
        .ask(format!("New: {program} priority: 1 args: {end}"))
        .await;
    assert!(
        answer.starts_with("task 2 queued (the scheduler is not reachable"),
        "{answer}"
    );
    // What is run is what was there when it was accepted.
    std::fs::remove_file(program).unwrap();
    world.kill_funky().await;
    world.start_funky().await;
    assert_eq!(world.task(2).await["state"], "queued");
    world.start_scheduler().await;
    world.let_end("end");
    world.task_is(running, "succeeded").await;
    world.task_is(2, "succeeded").await;
    assert_eq!(
        world.log(),
        ["begin running", "end running", "begin later", "end later"]
    );
}

#[tokio::test]
async fn a_socket_that_somebody_listens_at_is_never_taken() {
    let mut world = World::bare(&[]).await;
    let refused = async |world: &World| {
        let state = world.path("other").display().to_string();
        let output = world
            .funky(&[("-state-dir", &state)])
            .output()
            .await
            .unwrap();
        assert!(!output.status.success());
        String::from_utf8(output.stderr).unwrap()
    };
    let foreign = UnixListener::bind(world.socket()).unwrap();
    let said = refused(&world).await;
    assert!(said.contains("another program listens there"), "{said}");
    assert!(world.socket().exists());
    drop(foreign);
    std::fs::remove_file(world.socket()).unwrap();
    std::fs::write(world.socket(), "mine").unwrap();
    let said = refused(&world).await;
    assert!(said.contains("is no socket: it stays"), "{said}");
    assert_eq!(std::fs::read(world.socket()).unwrap(), b"mine");
    std::fs::remove_file(world.socket()).unwrap();

    world.start_funky().await;
    let mode = std::fs::metadata(world.socket())
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);
    let said = refused(&world).await;
    assert!(said.contains("another program listens there"), "{said}");
    let same_state = world
        .funky(&[("-socket", &world.path("x.sock").display().to_string())])
        .output()
        .await;
    let said = String::from_utf8(same_state.unwrap().stderr).unwrap();
    assert!(said.contains("another ciao-funky uses it"), "{said}");
    assert_eq!(
        world.ask("Task: 1 Node: 1").await,
        "error: there is no task 1"
    );
}

#[tokio::test]
async fn ps_prints_what_there_is() {
    let mut world = World::new(&["node-a"]).await;
    let task = world.new_task(&world.script("task", "exit 0"), 0, "").await;
    world.task_is(task, "succeeded").await;
    let socket = world.socket().display().to_string();
    let ps = async |more: &[&str]| {
        let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_ciao-funky"));
        command.args(["ps", "-socket", &socket]).args(more);
        command.output().await.unwrap()
    };
    let table = String::from_utf8(ps(&[]).await.stdout).unwrap();
    assert!(table.starts_with("TASK  STATE"), "{table}");
    assert!(table.contains("node-a"), "{table}");
    let json = ps(&["-json"]).await.stdout;
    let json: serde_json::Value = serde_json::from_slice(&json).unwrap();
    assert_eq!(json["nodes"][0]["node"], 1);
    let scheduler = serde_json::json!({"reachable": true, "detail": ""});
    assert_eq!(json["scheduler"], scheduler);
    assert_eq!(json["notices"], serde_json::json!([]));
    world.kill_scheduler().await;
    world.ps_says("the scheduler is not reachable: ").await;
    let json = ps(&["-json"]).await.stdout;
    let json: serde_json::Value = serde_json::from_slice(&json).unwrap();
    assert_eq!(json["scheduler"]["reachable"], false);
    assert_ne!(json["scheduler"]["detail"], "");
    assert_eq!(json["tasks"][0]["state"], "succeeded");
    let unused = world.socket();
    world.stop_funky().await;
    let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_ciao-funky"));
    let refused = command
        .arg("ps")
        .arg("-socket")
        .arg(unused)
        .output()
        .await
        .unwrap();
    assert!(!refused.status.success());
    let said = String::from_utf8(refused.stderr).unwrap();
    assert!(said.contains("no ciao-funky listens there"), "{said}");
}
