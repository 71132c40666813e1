//! Each defect of the original that the specification lists, as its users would meet it, and what Funky can do.

use crate::world::World;

#[tokio::test]
async fn thirty_tasks_at_once_all_run() {
    let world = World::new(&["node-a", "node-b"]).await;
    let log = world.path("log").display().to_string();
    let task = world.script("task", &format!("echo ran $1 >>{log}"));
    let tell = |n: u32| {
        let command = format!("New: {task} priority: {} args: {n}", n % 2);
        let world = &world;
        async move { world.tell(&command).await }
    };
    futures_util::future::join_all((1..=30).map(tell)).await;
    world
        .until("thirty tasks", || world.log().len() == 30)
        .await;
    for id in 1..=30 {
        world
            .wrote(&format!("Task with id {id} terminated successfully"))
            .await;
        world.task_is(id, "succeeded").await;
    }
    let mut ran = world.log();
    ran.sort_by_key(|line| line.rsplit_once(' ').unwrap().1.parse::<u32>().unwrap());
    let all: Vec<String> = (1..=30).map(|n| format!("ran {n}")).collect();
    assert_eq!(ran, all);
}

#[tokio::test]
async fn a_paused_low_task_does_not_go_on_before_a_waiting_high_one() {
    let world = World::new(&["node-a"]).await;
    let file = |name: &str| world.path(name).display().to_string();
    let task = |name: &str| world.lasting(name);
    let low_1 = world.new_task(&task("low-1"), 1, &file("end-low")).await;
    world.task_is(low_1, "running").await;
    world.logged(&["begin low-1"]).await;
    let low_2 = world.new_task(&task("low-2"), 1, &file("end-low")).await;
    let high_1 = world
        .new_task(&task("high-1"), 0, &file("end-high-1"))
        .await;
    let high_2 = world
        .new_task(&task("high-2"), 0, &file("end-high-2"))
        .await;
    world.task_is(high_1, "running").await;
    world.logged(&["begin low-1", "begin high-1"]).await;
    world.task_is(low_1, "paused").await;
    world.task_is(high_2, "queued").await;
    // Low 1 may end as soon as it goes on, which it must not.
    world.let_end("end-low");
    world.let_end("end-high-1");
    world.task_is(high_2, "running").await;
    world.let_end("end-high-2");
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
async fn that_no_low_task_makes_way_is_told() {
    let mut world = World::bare(&[]).await;
    world.kill_scheduler().await;
    std::fs::write(world.path("configuration.yaml"), "configure: {}\n").unwrap();
    world.start_scheduler().await;
    world.start_funky().await;
    world.launch("node-a", &[]);
    world.nodes(1).await;
    let end = world.path("end").display().to_string();
    let low = world.new_task(&world.lasting("low"), 1, &end).await;
    world.task_is(low, "running").await;
    let high = world.new_task(&world.lasting("high"), 0, &end).await;
    let notice = format!("task {high} of priority 0 waits while task {low} of priority 1 runs");
    world.ps_says(&notice).await;
    let list = world.list().await;
    let told = list["notices"][0].as_str().unwrap();
    assert!(told.contains("preemption: true"), "{told}");
    world.let_end("end");
    world.task_is(high, "succeeded").await;
}

#[tokio::test]
async fn a_path_that_does_not_exist_fails_alone() {
    let world = World::new(&["node-a"]).await;
    let missing = world.path("missing").display().to_string();
    let answer = world.ask(format!("New: {missing} priority: 0")).await;
    let said = format!("error: task 1 failed: cannot read {missing}: No such file or directory");
    assert!(answer.starts_with(&said), "{answer}");
    world.wrote("Task with id 1 failed").await;
    let broken = world.path("broken");
    std::fs::write(&broken, "\u{1}\u{2} no program").unwrap();
    let broken = world.new_task(&broken.display().to_string(), 0, "").await;
    world.task_is(broken, "failed").await;
    world.wrote("Task with id 2 failed").await;
    let failing = world
        .new_task(&world.script("failing", "exit 3"), 1, "")
        .await;
    let failed = world.task_is(failing, "failed").await;
    assert_eq!(failed["detail"], "exit status 3");
    let good = world.new_task(&world.script("good", "exit 0"), 1, "").await;
    world.task_is(good, "succeeded").await;
    world.nodes(1).await;
    assert!(
        !world.output().iter().any(|it| it.contains("went down")),
        "{:#?}",
        world.output()
    );
}

#[tokio::test]
async fn a_task_moves_to_the_node_that_is_named() {
    let world = World::new(&["node-a", "node-b"]).await;
    let end = world.path("end").display().to_string();
    let task = world.new_task(&world.lasting("task"), 0, &end).await;
    let from = world.task_is(task, "running").await["node"]
        .as_u64()
        .unwrap();
    let to = 3 - from;
    let answer = world.ask(format!("Task: {task} Node: {from}")).await;
    assert_eq!(
        answer,
        format!("error: task {task} is on node {from} already")
    );
    let answer = world.ask(format!("Task: {task} Node: {to}")).await;
    assert_eq!(answer, format!("task {task} moves to node {to}"));
    world.wrote(&format!("task {task} node {to}")).await;
    assert_eq!(world.task_is(task, "running").await["node"], to);
    // Its own node, which the original commanded in its place, is free again.
    let other = world.new_task(&world.lasting("other"), 0, &end).await;
    assert_eq!(world.task_is(other, "running").await["node"], from);
    world.let_end("end");
    world.task_is(task, "succeeded").await;
    world.task_is(other, "succeeded").await;
    for (command, error) in [
        (
            format!("Task: {task} Node: {from}"),
            format!("error: task {task} has ended: succeeded"),
        ),
        (
            "Task: 99 Node: 1".to_owned(),
            "error: there is no task 99".to_owned(),
        ),
        (
            format!("Task: {task} Node: 9"),
            "error: there is no node 9".to_owned(),
        ),
    ] {
        assert_eq!(world.ask(command).await, error);
    }
}

#[tokio::test]
async fn migrating_a_queued_task_and_one_onto_a_busy_node_loses_nothing() {
    let world = World::new(&["node-a", "node-b"]).await;
    let end = world.path("end").display().to_string();
    let low = world.new_task(&world.lasting("low"), 1, &end).await;
    let high = world.new_task(&world.lasting("high"), 0, &end).await;
    let low_node = world.task_is(low, "running").await["node"]
        .as_u64()
        .unwrap();
    world.task_is(high, "running").await;
    let queued = world.new_task(&world.lasting("queued"), 1, &end).await;
    world.task_is(queued, "queued").await;
    // The original crashes here, and there loses the task that runs on the node.
    let of_queued = world.ask(format!("Task: {queued} Node: {low_node}")).await;
    let onto_busy = world.ask(format!("Task: {high} Node: {low_node}")).await;
    for answer in [&of_queued, &onto_busy] {
        let is_answer = answer.starts_with("error: ") || answer.contains(" moves to node ");
        assert!(is_answer, "{answer}");
    }
    assert!(
        onto_busy.starts_with("error: ")
            || world.wrote("Migration of task").await.contains("failed")
    );
    world.let_end("end");
    for task in [low, high, queued] {
        world.task_is(task, "succeeded").await;
    }
    let mut log = world.log();
    log.sort();
    assert_eq!(
        log.iter().filter(|it| it.starts_with("end")).count(),
        3,
        "{log:?}"
    );
}

#[tokio::test]
async fn the_task_of_a_lost_node_runs_again_elsewhere() {
    let mut world = World::new(&["node-a"]).await;
    let end = world.path("end").display().to_string();
    let task = world.new_task(&world.lasting("task"), 1, &end).await;
    world.task_is(task, "running").await;
    world.logged(&["begin task"]).await;
    world.launch("node-b", &[]);
    world.nodes(2).await;
    world.lose_node("node-a").await;
    world.wrote("Node with id 1 went down").await;
    world.wrote(&format!("task {task} node 2")).await;
    world.logged(&["begin task", "begin task"]).await;
    world.let_end("end");
    world.task_is(task, "succeeded").await;
}

#[tokio::test]
async fn arguments_and_the_successor_s_frequencies_reach_the_program() {
    let world = World::new(&["node-a"]).await;
    let log = world.path("log").display().to_string();
    let script = format!(
        "for it in \"$@\"; do echo \"<$it>\" >>{log}; done; echo $FUNKY_FREQUENCIES $FUNKY_TASK >>{log}"
    );
    let task = world.script("task", &script);
    let command = format!(
        "New: {task},{task} num_bitstreams: 2 frequencies: 100,250 priority: 0 args: -x 'a b' c"
    );
    assert_eq!(world.ask(command).await, "task 1 queued");
    world.task_is(1, "succeeded").await;
    assert_eq!(world.log(), ["<-x>", "<a b>", "<c>", "100,250 1"]);
}
