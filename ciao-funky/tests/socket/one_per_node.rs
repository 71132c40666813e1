//! `-one-task-per-node`: each node runs one task at a time, whatever its size, and all else is as it is without it.

use std::collections::BTreeSet;

use crate::world::World;

/// A cluster that runs one task on each node; nodes by their names and CPUs.
async fn cluster(nodes: &[(&str, &str)]) -> World {
    let mut world = World::with(&[], &["-one-task-per-node"]).await;
    world.connected().await;
    for (name, cpus) in nodes {
        world.launch(name, &["--cpus", cpus]);
    }
    world.nodes(nodes.len()).await;
    world
}

/// Starts a task that lasts until the file `end-NAME` is there.
async fn lasting(world: &World, name: &str, priority: u8) -> u32 {
    let end = world.path(&format!("end-{name}")).display().to_string();
    world.new_task(&world.lasting(name), priority, &end).await
}

fn let_end(world: &World, names: &[&str]) {
    names
        .iter()
        .for_each(|name| world.let_end(&format!("end-{name}")));
}

/// Waits until a task runs; the number of its node.
async fn node_of(world: &World, task: u32) -> u64 {
    world.task_is(task, "running").await["node"]
        .as_u64()
        .unwrap()
}

#[tokio::test]
async fn nodes_of_any_size_run_one_task_each() {
    let mut world = cluster(&[("small", "1"), ("middle", "2"), ("large", "8")]).await;
    let mut nodes = BTreeSet::new();
    for name in ["one", "two", "three"] {
        let task = lasting(&world, name, 1).await;
        nodes.insert(node_of(&world, task).await);
    }
    assert_eq!(nodes, BTreeSet::from([1, 2, 3]));
    let four = lasting(&world, "four", 1).await;
    let five = lasting(&world, "five", 1).await;
    assert_eq!(
        world.task_is(four, "queued").await["node"],
        serde_json::Value::Null
    );
    world.launch("larger", &["--cpus", "16"]);
    world.nodes(4).await;
    assert_eq!(node_of(&world, four).await, 4);
    world.task_is(five, "queued").await;
    let_end(&world, &["two"]);
    node_of(&world, five).await;
    let_end(&world, &["one", "three", "four", "five"]);
    for task in 1..=5 {
        world.task_is(task, "succeeded").await;
    }
}

#[tokio::test]
async fn a_task_that_comes_before_any_node_runs_when_there_is_one() {
    let mut world = World::with(&[], &["-one-task-per-node"]).await;
    world.connected().await;
    let one = lasting(&world, "one", 1).await;
    let two = lasting(&world, "two", 1).await;
    world.launch("node-a", &["--cpus", "4"]);
    node_of(&world, one).await;
    world.task_is(two, "queued").await;
    let_end(&world, &["one", "two"]);
    world.task_is(two, "succeeded").await;
    assert_eq!(
        world.log(),
        ["begin one", "end one", "begin two", "end two"]
    );
}

#[tokio::test]
async fn a_low_task_makes_way_for_a_high_one_and_goes_on_after_it() {
    let world = cluster(&[("small", "1"), ("middle", "2"), ("large", "8")]).await;
    let mut low = Vec::new();
    for name in ["one", "two", "three"] {
        let task = lasting(&world, name, 1).await;
        low.push((task, node_of(&world, task).await));
    }
    let high = lasting(&world, "high", 0).await;
    let on = node_of(&world, high).await;
    let &(paused, _) = low.iter().find(|(_, node)| *node == on).unwrap();
    world.task_is(paused, "paused").await;
    let others = low.iter().filter(|(task, _)| *task != paused);
    for (task, node) in others {
        assert_eq!(node_of(&world, *task).await, *node);
    }
    let_end(&world, &["high"]);
    assert_eq!(node_of(&world, paused).await, on, "it goes on where it was");
    let_end(&world, &["one", "two", "three"]);
    for (task, _) in low {
        world.task_is(task, "succeeded").await;
    }
    let begun = world
        .log()
        .iter()
        .filter(|it| it.starts_with("begin"))
        .count();
    assert_eq!(begun, 4, "none begins again: {:?}", world.log());
}

#[tokio::test]
async fn on_a_node_with_room_for_all_they_run_one_after_the_other_high_ones_first() {
    let world = cluster(&[("large", "8")]).await;
    let low_1 = lasting(&world, "low-1", 1).await;
    node_of(&world, low_1).await;
    world.logged(&["begin low-1"]).await;
    let low_2 = lasting(&world, "low-2", 1).await;
    let high_1 = lasting(&world, "high-1", 0).await;
    let high_2 = lasting(&world, "high-2", 0).await;
    node_of(&world, high_1).await;
    world.logged(&["begin low-1", "begin high-1"]).await;
    world.task_is(low_1, "paused").await;
    world.task_is(high_2, "queued").await;
    // Both may end as soon as they go on or begin, which they must not.
    let_end(&world, &["low-1", "low-2", "high-1"]);
    node_of(&world, high_2).await;
    let_end(&world, &["high-2"]);
    world.task_is(low_2, "succeeded").await;
    let order = [
        "begin low-1",
        "begin high-1",
        "end high-1",
        "begin high-2",
        "end high-2",
        "end low-1",
        "begin low-2",
        "end low-2",
    ];
    assert_eq!(world.log(), order);
    world.task_is(low_1, "succeeded").await;
}

#[tokio::test]
async fn a_task_that_is_to_move_to_a_node_with_a_task_stays() {
    let world = cluster(&[("one", "4"), ("other", "4")]).await;
    let low = lasting(&world, "low", 1).await;
    let high = lasting(&world, "high", 0).await;
    let (low_node, high_node) = (node_of(&world, low).await, node_of(&world, high).await);
    let answer = world.ask(format!("Task: {high} Node: {low_node}")).await;
    assert!(
        answer.starts_with("error: ") || world.wrote("Migration of task").await.contains("failed"),
        "{answer}"
    );
    assert_eq!(node_of(&world, low).await, low_node);
    assert_eq!(node_of(&world, high).await, high_node);
    let_end(&world, &["low"]);
    world.task_is(low, "succeeded").await;
    let answer = world.ask(format!("Task: {high} Node: {low_node}")).await;
    assert!(answer.contains(" moves to node "), "{answer}");
    world.wrote(&format!("task {high} node {low_node}")).await;
    let_end(&world, &["high"]);
    world.task_is(high, "succeeded").await;
}

#[tokio::test]
async fn after_a_restart_of_the_adapter_nodes_still_run_one_task_each() {
    let mut world = cluster(&[("node-a", "4")]).await;
    let one = lasting(&world, "one", 1).await;
    node_of(&world, one).await;
    world.kill_funky().await;
    world.start_funky().await;
    world.connected().await;
    let two = lasting(&world, "two", 1).await;
    let high = lasting(&world, "high", 0).await;
    node_of(&world, high).await;
    world.task_is(one, "paused").await;
    world.task_is(two, "queued").await;
    let_end(&world, &["high", "one", "two"]);
    for task in [one, two, high] {
        world.task_is(task, "succeeded").await;
    }
}
