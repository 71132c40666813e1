//! Several schedulers with `ciao-scheduler dev`.

use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines};
use tokio::process::{ChildStdout, Command};

use crate::etcd::is_missing;
use crate::site::{output, within};

/// Reads lines up to one that has this; that one.
async fn line(lines: &mut Lines<BufReader<ChildStdout>>, text: &str) -> String {
    let found = async {
        loop {
            let line = lines.next_line().await.unwrap();
            let line = line.unwrap_or_else(|| panic!("it ends without '{text}'"));
            if line.contains(text) {
                return line;
            }
        }
    };
    within(found).await
}

#[tokio::test(flavor = "multi_thread")]
async fn dev_has_several_schedulers_of_which_one_may_be_killed() {
    if is_missing() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let kept = directory.path().join("dev");
    let mut command = Command::new(env!("CARGO_BIN_EXE_ciao-scheduler"));
    command.args(["dev", "--schedulers", "2", "--nodes", "1", "--port", "0"]);
    command.arg("--directory").arg(&kept);
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .kill_on_drop(true);
    let mut dev = command.spawn().unwrap();
    let mut lines = BufReader::new(dev.stdout.take().unwrap()).lines();
    let first = line(&mut lines, "scheduler 1 on ").await;
    let second = line(&mut lines, "scheduler 2 on ").await;
    let servers = line(&mut lines, "export CIAO_SERVER=").await;
    let (_, servers) = servers.split_once('=').unwrap();
    line(&mut lines, "Ctrl-C ends").await;
    let ctl = |words: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ciaoctl"));
        command.args(["--server", servers, "--timeout", "60s", "--certs"]);
        command.arg(kept.join("certs")).args(words);
        command.stdin(Stdio::null()).kill_on_drop(true);
        output(command)
    };
    let status = ctl(&["status", "--json"]).await;
    let status: serde_json::Value = serde_json::from_slice(&status.stdout).unwrap();
    let leader = status["scheduler"]["schedulers"]["leader"]
        .as_str()
        .unwrap();
    let leads = [first, second]
        .into_iter()
        .find(|it| it.contains(leader))
        .unwrap();
    let process = leads.rsplit_once(' ').unwrap().1.parse().unwrap();
    kill_process(Pid::from_raw(process).unwrap(), Signal::KILL).unwrap();
    line(&mut lines, "has ended (signal: 9").await;
    let ran = ctl(&[
        "run", "--wait", "--mem", "16", "--cpus", "1", "--queue", "1m", "--", "true",
    ])
    .await;
    assert!(ran.status.success(), "{ran:?}");
    // It begins again.
    line(&mut lines, &format!(" on {leader}: process ")).await;
    let pid = Pid::from_raw(i32::try_from(dev.id().unwrap()).unwrap()).unwrap();
    kill_process(pid, Signal::TERM).unwrap();
    assert!(within(dev.wait()).await.unwrap().success());
}
