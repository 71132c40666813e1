//! The two command lines of Funky's documentation, with `socat` and a shell. Where `socat` is missing the test says so and
//! passes, unless `CIAO_REQUIRE_SOCAT=1`.

use tokio::process::Command;
use tokio::time::timeout;

use crate::process::DEADLINE;
use crate::world::World;

/// Runs a line of the documentation with this socket in the place of `/tmp/front.sock`.
async fn run(world: &World, command: &str) {
    let line = format!(
        "echo -n \"{command}\" | socat -u - unix-connect:{}",
        world.socket().display()
    );
    let ended = Command::new("bash").args(["-c", &line]).status();
    let status = timeout(DEADLINE, ended).await.unwrap().unwrap();
    assert!(status.success(), "{line}: {status}");
}

/// Whether `socat` is there.
async fn is_there() -> bool {
    let required = std::env::var_os("CIAO_REQUIRE_SOCAT").is_some_and(|value| value == "1");
    let found = Command::new("socat").arg("-V").output().await;
    assert!(found.is_ok() || !required, "socat: {found:?}");
    found.is_ok()
}

#[tokio::test]
async fn the_commands_of_funkys_documentation_work_with_socat() {
    if !is_there().await {
        return eprintln!("no socat here: not tried");
    }
    let world = World::new(&["node-a", "node-b"]).await;
    let end = world.path("end").display().to_string();
    let program = world.lasting("task");
    run(&world, &format!("New: {program} priority: 1 args: {end}")).await;
    world.wrote("task 1 node ").await;
    let from = world.task_is(1, "running").await["node"].as_u64().unwrap();
    world.logged(&["begin task"]).await;
    let nodes = world.nodes(2).await;
    let (to, _) = nodes.iter().find(|(number, _)| *number != from).unwrap();
    run(&world, &format!("Task: 1 Node: {to}")).await;
    world.wrote(&format!("task 1 node {to}")).await;
    world.let_end("end");
    world.wrote("Task with id 1 terminated successfully").await;
}
