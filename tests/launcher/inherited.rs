//! What a launcher was started with and in, and what that is to its workloads: descriptors, protection, its own file, a
//! container of which it is process 1. And a stop that reaches all of an instance.

use std::fs;
use std::process::{Command, Stdio};

use crate::world::{Launcher, World, shell, until};

/// The command that runs this world's launcher behind a shell that does something first, with the program and its
/// arguments as `"$@"`.
fn behind(world: &World, script: &str) -> Command {
    let launcher = world.command(&[]);
    let mut command = Command::new("sh");
    command
        .args(["-c", script, "sh"])
        .arg(launcher.get_program())
        .args(launcher.get_args())
        .stdin(Stdio::null());
    command
}

#[tokio::test]
async fn neither_a_workload_nor_its_supervisor_has_what_the_launcher_was_started_with() {
    let world = World::new().await;
    let lock = world.path("lock");
    let script = format!(
        "exec 9>{}; flock 9; echo 500 > /proc/$$/oom_score_adj; exec \"$@\"",
        lock.display()
    );
    let launcher = Launcher(behind(&world, &script).spawn().unwrap());
    let mut peer = world.accept().await;
    // A shell opens one more to list what is open.
    let script = "cat /proc/self/oom_score_adj; for it in /proc/$PPID/fd/*; do readlink $it; done; \
                  for it in /proc/$$/fd/*; do echo \"fd ${it##*/}\"; done; exec sleep 1000";
    peer.shell("a", script).await;
    peer.listed("a", "active").await;
    until("the workload's descriptors", || {
        world.output("a").contains("fd 60\n")
    })
    .await;
    let output = world.output("a");
    assert!(output.starts_with("0\n"), "{output}");
    for expected in ["fd 0\n", "fd 1\n", "fd 2\n"] {
        assert!(output.contains(expected), "{output}");
    }
    assert!(
        !output.contains("fd 9\n") && !output.contains("/lock\n"),
        "{output}"
    );
    // So the lock is free when the launcher is gone, although the workload runs on.
    drop((launcher, peer));
    let free = || {
        let mut command = Command::new("flock");
        let tried = command.arg("--nonblock").arg(&lock).arg("true").status();
        tried.unwrap().success()
    };
    until("a free lock", free).await;
}

#[tokio::test]
async fn a_launcher_whose_own_file_was_removed_starts_workloads() {
    let world = World::new().await;
    let usual = world.command(&[]);
    let copy = world.path("ciao-launcher");
    fs::copy(usual.get_program(), &copy).unwrap();
    let mut command = Command::new(&copy);
    command.args(usual.get_args()).stdin(Stdio::null());
    // Another test's process may have the file open for writing for a moment.
    let mut started = command.spawn();
    until("a start", || {
        if started.is_err() {
            started = command.spawn();
        }
        started.is_ok()
    })
    .await;
    let _launcher = Launcher(started.unwrap());
    let mut peer = world.accept().await;
    fs::remove_file(&copy).unwrap();
    peer.shell("a", "cat /proc/$PPID/comm; exit 7").await;
    assert_eq!(peer.stopped().await, ("a".to_owned(), Some(7)));
    assert_eq!(world.output("a"), "ciao-supervisor\n");
    // As after an upgrade: another file is there now.
    fs::write(&copy, "no program").unwrap();
    peer.shell("b", "exit 8").await;
    assert_eq!(peer.stopped().await, ("b".to_owned(), Some(8)));
}

#[tokio::test]
async fn a_stop_reaches_every_process_of_an_instance_once() {
    let (world, _launcher, mut peer) = World::connected(&["-stop-grace=10m"]).await;
    let member = "trap 'echo got' TERM; echo ready; while ! [ -e \"$CIAO_INSTANCE_DIR/end\" ]; do sleep 0.05; done";
    // One in a session of its own, as daemons are, one in the group of the first, and the first.
    let mut start = shell(
        "a",
        "setsid sh -c \"$MEMBER\" & sh -c \"$MEMBER\" & eval \"$MEMBER\"; exit 3",
    );
    start.env.insert("MEMBER".to_owned(), member.to_owned());
    peer.start(&start).await;
    peer.listed("a", "active").await;
    let count = |word: &str| {
        let output = world.output("a");
        output.lines().filter(|line| *line == word).count()
    };
    until("three processes", || count("ready") == 3).await;
    peer.delete("a", true).await;
    until("three signals", || count("got") >= 3).await;
    peer.reports(2).await;
    assert_eq!(count("got"), 3, "{}", world.output("a"));
    fs::write(world.state_dir().join("instances/a/end"), "").unwrap();
    assert_eq!(peer.stopped().await, ("a".to_owned(), Some(3)));
}

#[tokio::test]
async fn without_a_cgroup_sixteen_threads_fit_into_small_memory() {
    let (world, _launcher, mut peer) = World::connected(&[]).await;
    peer.start(&shell("a", "ulimit -s; ulimit -d; ulimit -H -s"))
        .await;
    assert_eq!(peer.stopped().await.1, Some(0));
    let output = world.output("a");
    let kib: Vec<&str> = output.lines().collect();
    let (stack, data): (u64, u64) = (kib[0].parse().unwrap(), kib[1].parse().unwrap());
    assert!(stack * 16 <= data / 2, "{output}");
    // It may be raised by a program that needs more.
    assert_ne!(kib[0], kib[2], "{output}");
}

/// The same command as process 1 of a container of its own.
fn as_process_1(inner: &Command) -> Command {
    let mut command = Command::new("unshare");
    command
        .args(["--user", "--map-root-user", "--pid", "--fork"])
        .args(["--mount-proc", "--kill-child"])
        .arg(inner.get_program())
        .args(inner.get_args())
        .stdin(Stdio::null());
    command
}

#[tokio::test]
async fn as_process_1_of_a_container_it_waits_for_orphans_and_ends_when_it_is_told_to() {
    let world = World::new().await;
    // A process whose parent is the later launcher, of which that knows nothing.
    let orphan = world.path("orphan");
    let script = format!("sleep 0.1 & echo $! > {}; exec \"$@\"", orphan.display());
    let inner = behind(&world, &script);
    let mut command = as_process_1(&inner);
    let mut launcher = Launcher(command.spawn().unwrap());
    let mut peer = world.accept().await;
    let script = format!(
        "orphan=$(cat {}); while [ -e /proc/$orphan ]; do sleep 0.05; done; exit 5",
        orphan.display()
    );
    peer.shell("a", &script).await;
    assert_eq!(peer.stopped().await, ("a".to_owned(), Some(5)));
    peer.shell("b", "kill -TERM 1; exec sleep 1000").await;
    assert!(launcher.ended().await.success());
}

#[tokio::test]
async fn a_launcher_in_a_container_that_cannot_start_says_so_as_elsewhere() {
    let world = World::new().await;
    let inner = world.command(&["-cert=/no/such.pem"]);
    let mut command = as_process_1(&inner);
    let output = tokio::task::spawn_blocking(move || command.output());
    let output = output.await.unwrap().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("/no/such.pem"), "{said}");
}
