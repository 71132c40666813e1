//! Files of tasks on nodes that do not see the adapter's directory: the scheduler ships them.

use crate::world::World;

#[tokio::test]
async fn a_task_runs_on_a_node_that_does_not_have_its_file() {
    let mut world = World::shipping().await;
    let log = world.path("log").display().to_string();
    let script = world.script("task", &format!("echo \"$0\" \"$@\" >>{log}"));
    let task = world.new_task(&script, 0, "one two").await;
    let pushed = || {
        std::fs::read_dir(world.images())
            .unwrap()
            .any(|it| it.unwrap().file_name().to_string_lossy().ends_with(".json"))
    };
    world.until("the file is pushed", pushed).await;
    // What no node sees is as good as what is not there.
    let copies = world.path("funky").join("binaries");
    std::fs::rename(&copies, world.path("elsewhere")).unwrap();
    world.launch("node-a", &[]);
    world.task_is(task, "succeeded").await;
    let [line] = &world.log()[..] else {
        panic!("{:?}", world.log())
    };
    let (program, arguments) = line.split_once(' ').unwrap();
    assert!(program.contains("/node-a/images/"), "{line}");
    assert_eq!(arguments, "one two");
}

#[tokio::test]
async fn tasks_of_one_file_are_shipped_and_those_of_several_find_them_in_the_adapters_directory() {
    let mut world = World::shipping().await;
    world.launch("node-a", &[]);
    world.nodes(1).await;
    let log = world.path("log").display().to_string();
    let first = world.script("first", &format!("echo \"$FUNKY_BITSTREAMS\" >>{log}"));
    let second = world.script("second", "exit 0");
    let single = format!("New: {first} num_bitstreams: 1 frequencies: 100 priority: 0");
    assert_eq!(world.ask(single).await, "task 1 queued");
    world.task_is(1, "succeeded").await;
    let several =
        format!("New: {first},{second} num_bitstreams: 2 frequencies: 100,200 priority: 0");
    assert_eq!(world.ask(several).await, "task 2 queued");
    world.task_is(2, "succeeded").await;
    let [one, two] = &world.log()[..] else {
        panic!("{:?}", world.log())
    };
    assert!(one.contains("/node-a/images/"), "{one}");
    assert_eq!(two.matches("/funky/binaries/").count(), 2, "{two}");
}
