//! A test that is killed leaves nothing behind: no process, also none of a workload, and no directory.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::Command;

use crate::site::within;
use crate::world::{Cluster, until};

/// What the test that is killed says before its directory.
const DIRECTORY: &str = "its directory is ";

#[tokio::test]
#[ignore = "it waits for ever, to be killed by the test below"]
async fn a_cluster_to_be_killed() {
    let cluster = Cluster::new(&["node-a"]).await;
    let options = "--mem 16 --cpus 1 --wait=running";
    cluster.run(options, "sleep 1000 & sleep 1000").await;
    println!("\n{DIRECTORY}{}", cluster.site.path("").display());
    std::future::pending().await
}

#[tokio::test]
async fn a_test_that_is_killed_leaves_nothing_behind() {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "killed::a_cluster_to_be_killed"]);
    command.args(["--ignored", "--nocapture"]);
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .kill_on_drop(true);
    let mut test = command.spawn().unwrap();
    let mut lines = BufReader::new(test.stdout.take().unwrap()).lines();
    let said = async {
        loop {
            let line = lines.next_line().await.unwrap();
            let line = line.expect("it waits for ever");
            if let Some(directory) = line.strip_prefix(DIRECTORY) {
                return PathBuf::from(directory);
            }
        }
    };
    let directory = within(said).await;
    // Scheduler, launcher, supervisor, workload and its two children, guard.
    let there = naming(&directory);
    assert!(there.len() >= 7, "{there:?}");
    within(test.kill()).await.unwrap();
    until("its processes", || naming(&directory).is_empty()).await;
    until("its directory", || !directory.exists()).await;
}

/// The processes that name a directory on their command line or in their environment.
fn naming(directory: &Path) -> Vec<String> {
    let directory = directory.as_os_str().as_encoded_bytes();
    let directory = directory.strip_suffix(b"/").unwrap_or(directory);
    let names = |file: PathBuf| {
        let text = std::fs::read(file).unwrap_or_default();
        text.windows(directory.len()).any(|it| it == directory)
    };
    let all = std::fs::read_dir("/proc").unwrap();
    all.filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|it| it.parse::<u32>().is_ok())
        .filter(|it| {
            let process = Path::new("/proc").join(it);
            names(process.join("cmdline")) || names(process.join("environ"))
        })
        .collect()
}
