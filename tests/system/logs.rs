//! `ciaoctl logs`: what workloads wrote, read from their nodes through the scheduler.

use std::process::Stdio;

use tokio::io::{AsyncReadExt, BufReader};
use tokio::process::{Child, ChildStdout};

use crate::site::{output, within};
use crate::world::{Cluster, Look, until};

const RUNNING: &str = "--mem 16 --cpus 1 --wait=running";

/// A reader that follows, and what it has printed.
struct Following {
    child: Child,
    out: BufReader<ChildStdout>,
    text: String,
}

impl Following {
    fn begin(cluster: &Cluster, arguments: &[&str]) -> Self {
        let mut command = cluster.command(&[&["logs", "-f"], arguments].concat());
        let command = command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        Self {
            child,
            out,
            text: String::new(),
        }
    }

    /// Reads until so much was printed.
    async fn until(&mut self, text: &str) {
        let mut buffer = [0; 4096];
        while !self.text.contains(text) {
            let len = within(self.out.read(&mut buffer)).await.unwrap();
            assert!(len > 0, "it ended with {:?}", self.text);
            self.text += &String::from_utf8_lossy(&buffer[..len]);
        }
    }

    /// Reads to the end: the exit code, and what it said on standard error.
    async fn end(mut self) -> (Option<i32>, String, String) {
        let mut rest = Vec::new();
        within(self.out.read_to_end(&mut rest)).await.unwrap();
        self.text += &String::from_utf8_lossy(&rest);
        let ended = within(self.child.wait_with_output()).await.unwrap();
        let said = String::from_utf8(ended.stderr).unwrap();
        (ended.status.code(), self.text, said)
    }
}

#[tokio::test]
async fn output_of_a_running_instance_is_printed_as_far_as_it_is() {
    let cluster = Cluster::new(&["node-a"]).await;
    let script = "printf 'one\\ntwo\\nthree \\033[31m\\n'; exec sleep 1000";
    let id = cluster.run(RUNNING, script).await;
    let all = "one\ntwo\nthree \u{1b}[31m\n";
    let mut look = Look::new();
    loop {
        let ran = cluster.ctl(&format!("logs {id}")).await;
        assert_eq!(ran.code, Some(0), "{ran:?}");
        if ran.out == all {
            break;
        }
        look.again(|| format!("{ran:?}")).await;
    }
    let ran = cluster.ctl(&format!("logs --tail 2 {}", &id[..8])).await;
    assert_eq!(ran.out, "two\nthree \u{1b}[31m\n");
    let ran = cluster.ctl(&format!("logs -n 0 {id}")).await;
    assert_eq!((ran.code, &*ran.out), (Some(0), ""));
    let ran = cluster.ctl(&format!("logs --tail 1 {id} --json")).await;
    let chunk: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(
        (&chunk["offset"], &chunk["bytes"], &chunk["ended"]),
        (&8.into(), &12.into(), &false.into())
    );
}

#[tokio::test]
async fn a_reader_that_follows_gets_all_until_the_end() {
    let cluster = Cluster::new(&["node-a"]).await;
    let go_on = cluster.site.path("go-on");
    let script = format!(
        "echo begun; while [ ! -e {} ]; do sleep 0.05; done; echo more; exit 3",
        go_on.display()
    );
    let id = cluster.run(RUNNING, &script).await;
    let mut reader = Following::begin(&cluster, &[&id]);
    reader.until("begun\n").await;
    std::fs::write(go_on, "").unwrap();
    let (code, text, said) = reader.end().await;
    assert_eq!((code, &*text), (Some(0), "begun\nmore\n"), "{said}");

    // Of one that has ended.
    let ran = cluster.ctl(&format!("logs {id}")).await;
    assert_eq!((ran.code, &*ran.out), (Some(0), "begun\nmore\n"));
    let ran = cluster.ctl("logs no-such").await;
    assert_eq!(ran.code, Some(5), "{ran:?}");
}

#[tokio::test]
async fn output_of_a_deleted_instance_is_read_as_long_as_it_is_kept() {
    let cluster = Cluster::new(&["node-a", "node-b"]).await;
    let id = cluster.run(RUNNING, "echo begun; exec sleep 1000").await;
    let mut reader = Following::begin(&cluster, &[&id]);
    reader.until("begun\n").await;
    let ran = cluster.ctl(&format!("delete --wait {id}")).await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    // Also by who read it before it was deleted.
    let (code, text, said) = reader.end().await;
    assert_eq!((code, &*text), (Some(0), "begun\n"), "{said}");
    let (code, text, said) = Following::begin(&cluster, &[&id]).end().await;
    assert_eq!((code, &*text), (Some(0), "begun\n"), "{said}");
}

#[tokio::test]
async fn output_that_is_kept_no_more_says_for_how_long_it_would_be() {
    let mut cluster = Cluster::new(&[]).await;
    cluster.launch("node-a", &["--keep-output-for", "0s"]);
    cluster.ready(&["node-a"]).await;
    let id = cluster.run(RUNNING, "echo words; exec sleep 1000").await;
    let ran = cluster.ctl(&format!("delete --wait {id}")).await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    // It is deleted beside what the launcher obeys.
    let mut look = Look::new();
    let ran = loop {
        let mut command = cluster.command(&["logs", &id]);
        command.stdout(Stdio::piped());
        let ran = output(command).await;
        if ran.status.code() != Some(0) {
            break ran;
        }
        look.again(|| format!("{ran:?}")).await;
    };
    let said = String::from_utf8(ran.stderr).unwrap();
    assert_eq!(ran.status.code(), Some(1), "{said}");
    assert!(said.contains("keeps no output"), "{said}");
    assert!(said.contains("--keep-output-for"), "{said}");
}

#[tokio::test]
async fn a_launcher_that_is_killed_ends_a_reader_with_a_word() {
    let mut cluster = Cluster::new(&["node-a"]).await;
    let id = cluster.run(RUNNING, "echo begun; exec sleep 1000").await;
    let mut reader = Following::begin(&cluster, &[&id]);
    reader.until("begun\n").await;
    cluster.kill_launcher("node-a").await;
    let (code, _, said) = reader.end().await;
    assert_eq!(code, Some(1), "{said}");
    assert!(
        said.contains("node_lost") && said.contains("node-a"),
        "{said}"
    );
}

/// The most memory that a process ever had, in bytes.
fn peak(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status
        .lines()
        .find(|line| line.starts_with("VmHWM"))
        .unwrap();
    let kib: u64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    kib * 1024
}

#[tokio::test]
async fn a_workload_that_writes_without_end_holds_up_no_start_and_takes_no_memory() {
    /// More than what buffers and chunks of one reader take, and much less than what is written.
    const MUCH: u64 = 48 << 20;
    let cluster = Cluster::new(&["node-a"]).await;
    // Some 100 MB a second, if the machine can.
    let script = "while :; do head -c 10000000 /dev/zero; sleep 0.1; done";
    let id = cluster.run(RUNNING, script).await;
    let file = cluster
        .site
        .path(&format!("node-a/instances/{id}/output.log"));
    until("much is written", || {
        std::fs::metadata(&file).is_ok_and(|file| file.len() > MUCH)
    })
    .await;
    let pids = [cluster.scheduler().id(), cluster.launcher_pid("node-a")];
    let before = pids.map(peak);
    let mut reader = Following::begin(&cluster, &[&id]);
    let mut read = 0;
    let mut buffer = vec![0; 1 << 16];
    for _ in 0..20 {
        let ran = cluster
            .ctl("run --mem 16 --cpus 1 --quiet --wait -- /bin/true")
            .await;
        assert_eq!(ran.code, Some(0), "{ran:?}");
        // It is read on all the while, more slowly than it is written.
        read += within(reader.out.read(&mut buffer)).await.unwrap();
    }
    while read < 4 << 20 {
        read += within(reader.out.read(&mut buffer)).await.unwrap();
    }
    let after = pids.map(peak);
    for (before, after) in before.into_iter().zip(after) {
        assert!(after < before + MUCH, "{before} {after}");
    }
    reader.child.start_kill().unwrap();
    let ran = cluster.ctl(&format!("delete --wait {id}")).await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
}
