//! The command line and the life of the process: Go's flags, logs, heartbeat, profile, signals.

use std::process::Stdio;

use proto_frames::{Encoding, Kind, Role};
use rustix::process::Signal;
use tokio::process::Command;

use crate::peer::{Dialer, NARROW};
use crate::site::{Daemon, Site, output, within};
use crate::words::{PLENTY, instance, large_start};

#[tokio::test]
async fn osprepare_has_nothing_to_do_and_needs_nothing() {
    for flag in ["-osprepare", "--osprepare", "-osprepare=true"] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ciao-scheduler"));
        command.arg(flag).stdin(Stdio::null());
        let output = output(command).await;
        assert!(output.status.success());
        assert!(output.stdout.is_empty() && output.stderr.is_empty());
    }
}

#[tokio::test]
async fn every_flag_of_the_original_is_taken_with_one_dash_and_with_two() {
    let site = Site::new();
    let logs = site.path("logs").display().to_string();
    for dashes in ["-", "--"] {
        let flags = [
            "v=0",
            "vmodule=sched=0",
            "alsologtostderr=false",
            "stderrthreshold=WARNING",
            "heartbeat=false",
            "osprepare=false",
            "log_backtrace_at=file.go:12",
        ];
        let flags: Vec<String> = flags.iter().map(|flag| format!("{dashes}{flag}")).collect();
        let mut flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        let directory = format!("{dashes}log_dir");
        flags.extend([directory.as_str(), &logs]);
        // `-logtostderr` wins over `-log_dir`, as in glog.
        site.start(&flags).await;
    }
}

#[tokio::test]
async fn of_a_flag_given_twice_the_last_counts_as_in_go() {
    let site = Site::new();
    let state = site.path("state").display().to_string();
    let flags = ["-state-dir", "/nowhere/at/all", "-state-dir", &state];
    site.start(&flags).await;
    assert!(site.path("state/uuid").exists());
}

#[tokio::test]
async fn logs_go_to_files_in_log_dir_unless_told_otherwise() {
    let site = Site::new();
    let logs = site.path("logs");
    let flags = ["-logtostderr=false", "-alsologtostderr", "-log_dir"];
    let mut command = site.command(&flags);
    command.arg(&logs);
    let mut daemon = Daemon::start(command).await;
    daemon.terminate();
    assert!(daemon.ended().await.success());
    let files: Vec<_> = std::fs::read_dir(&logs).unwrap().collect();
    assert_eq!(files.len(), 1);
    let text = std::fs::read_to_string(files[0].as_ref().unwrap().path()).unwrap();
    assert!(text.contains("listens on 127.0.0.1:"), "{text}");
    assert!(text.contains("stopped"), "{text}");
}

#[tokio::test]
async fn a_log_directory_that_cannot_be_written_is_said_and_logs_go_to_stderr() {
    let site = Site::new();
    std::fs::write(site.path("logs"), "a file").unwrap();
    let mut command = site.command(&["-logtostderr=false", "-log_dir"]);
    command.arg(site.path("logs"));
    let daemon = Daemon::start(command).await;
    let said = daemon.logged("cannot log to").await;
    assert!(said.contains("logging to standard error"), "{said}");
}

#[tokio::test]
async fn verbosity_1_says_where_each_start_went_and_0_does_not() {
    let site = Site::new();
    for (flags, is_said) in [(&["-v", "1"][..], true), (&[], false)] {
        let mut daemon = site.start(flags).await;
        let mut master = site.master(&daemon).await;
        let mut node = site.node(&daemon).await;
        master.expect_node().await;
        node.ready(PLENTY).await;
        node.nothing_else().await;
        master.start(instance(1), 1).await;
        node.expect_start().await;
        daemon.terminate();
        daemon.ended().await;
        let line = format!("START {} given to node {}", instance(1), node.uuid);
        let found = daemon.log().iter().any(|logged| logged.contains(&line));
        assert_eq!(found, is_said);
    }
}

/// Of each a line is logged: together more than the pipe of the log holds.
const LOGGED_STARTS: u128 = 2000;

/// A daemon whose log is not read any more, and of whose lines more are there than the pipe takes.
async fn with_unread_log(site: &Site, flags: &[&str]) -> Daemon {
    let daemon = site.start(flags).await;
    let mut master = site.master(&daemon).await;
    let mut node = site.node(&daemon).await;
    master.expect_node().await;
    node.ready(PLENTY).await;
    node.nothing_else().await;
    daemon.read_log(false);
    for number in 1..=LOGGED_STARTS {
        master.start(instance(number), 1).await;
        node.expect_start().await;
    }
    daemon
}

#[tokio::test]
async fn a_log_that_is_not_read_stops_nothing_and_loses_nothing() {
    let site = Site::new();
    let mut daemon = with_unread_log(&site, &["-v", "1"]).await;
    daemon.read_log(true);
    daemon
        .logged(&format!("START {} given", instance(LOGGED_STARTS)))
        .await;
    daemon.terminate();
    daemon.ended().await;
    let log = daemon.log();
    let logged = log.iter().filter(|line| line.contains(" given to node "));
    assert_eq!(logged.count() as u128, LOGGED_STARTS);
}

#[tokio::test]
async fn a_log_that_is_not_read_does_not_hold_up_the_end() {
    let site = Site::new();
    let mut daemon = with_unread_log(&site, &["-v", "1", "--heartbeat"]).await;
    daemon.terminate();
    assert!(daemon.ended().await.success());
}

#[tokio::test]
async fn the_heartbeat_prints_a_line_a_second_about_both_sides() {
    let site = Site::new();
    let daemon = site.start(&["-heartbeat"]).await;
    daemon.logged("Compute Nodes").await;
    daemon.logged("** idle / disconnected **").await;
    let mut node = site.node(&daemon).await;
    node.ready(1000).await;
    node.nothing_else().await;
    let (_, seen) = daemon
        .logged(" -no Controller- ")
        .await
        .split_once("\tnode-")
        .map(|(time, node)| (time.to_owned(), node.to_owned()))
        .expect("a tab between the sides");
    let short = &node.uuid.simple().to_string()[..8];
    assert!(
        seen.starts_with(&format!("{short}:READY:1000/1000,")),
        "{seen}"
    );
    let master = site.master(&daemon).await;
    let short = &master.uuid.simple().to_string()[..8];
    daemon
        .logged(&format!("controller-{short}:MASTER\t\t\t\tnode-"))
        .await;
}

#[tokio::test]
async fn a_cpu_profile_is_written_when_the_daemon_stops() {
    let site = Site::new();
    let path = site.path("cpu.pprof");
    let mut command = site.command(&["-cpuprofile"]);
    command.arg(&path);
    let mut daemon = Daemon::start(command).await;
    daemon.logged("CPU profile is taken from now on").await;
    // Something to be seen in it.
    for _ in 0..20 {
        site.node(&daemon).await.nothing_else().await;
    }
    daemon.terminate();
    assert!(daemon.ended().await.success());
    let profile = std::fs::read(&path).unwrap();
    // The first field of a pprof Profile is a message (protobuf field 1, length-delimited).
    assert_eq!(profile.first(), Some(&0x0a), "{} bytes", profile.len());
}

#[tokio::test]
async fn a_profile_that_cannot_be_written_and_empty_flags_do_not_stop_the_start() {
    let site = Site::new();
    let path = site.path("none/cpu.pprof").display().to_string();
    let profile = format!("-cpuprofile={path}");
    for flags in [
        &[&*profile][..],
        &["-cpuprofile="],
        &["-log_dir=", "-cpuprofile", ""],
    ] {
        let mut daemon = site.start(flags).await;
        site.node(&daemon).await;
        if flags[0] == profile {
            let said = format!("there will be no CPU profile: cannot write {path}: ");
            daemon.logged(&said).await;
        }
        daemon.terminate();
        assert!(daemon.ended().await.success(), "{flags:?}");
    }
}

#[tokio::test]
async fn signals_of_users_are_ignored() {
    let site = Site::new();
    let mut daemon = site.start(&[]).await;
    for signal in [Signal::USR1, Signal::USR2] {
        daemon.signal(signal);
    }
    site.node(&daemon).await;
    daemon.terminate();
    assert!(daemon.ended().await.success());
}

#[tokio::test]
async fn the_profiler_does_not_hold_up_listening() {
    let site = Site::new();
    let mut command = site.command(&["-cpuprofile"]);
    command.arg(site.path("cpu.pprof"));
    let daemon = Daemon::start(command).await;
    daemon.logged("CPU profile is taken from now on").await;
    let log = daemon.log();
    let at = |text| log.iter().position(|line| line.contains(text)).unwrap();
    assert!(at("listens on") < at("CPU profile is taken"), "{log:#?}");
}

#[tokio::test]
async fn it_listens_on_every_address_given() {
    let site = Site::new();
    let daemon = site.start(&["--listen", "127.0.0.2:0"]).await;
    let second = daemon.logged("listens on 127.0.0.2:").await;
    let (_, address) = second.split_once("listens on ").unwrap();
    let there = Dialer {
        address: address.parse().unwrap(),
        ..site.dialer(&daemon, Role::AGENT, Encoding::Gob)
    };
    there.connect().await;
    site.node(&daemon).await;
}

#[tokio::test]
async fn it_may_open_as_many_files_as_the_system_lets_it() {
    let (site, daemon) = Site::running().await;
    site.node(&daemon).await;
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", daemon.id())).unwrap();
    let files = limits
        .lines()
        .find(|line| line.starts_with("Max open files"))
        .unwrap();
    let columns: Vec<&str> = files.split_whitespace().collect();
    assert_eq!(columns[3], columns[4], "{files}");
}

#[tokio::test]
async fn when_told_to_stop_it_sends_what_is_queued_and_exits_0() {
    const COUNT: u128 = 100;
    let site = Site::new();
    let mut daemon = site.start(&["--drain-deadline", "1min"]).await;
    let mut master = site.master(&daemon).await;
    let narrow = Dialer {
        receive_buffer: Some(NARROW),
        ..site.dialer(&daemon, Role::AGENT, Encoding::Gob)
    };
    let mut node = narrow.connect().await;
    master.expect_node().await;
    node.ready(PLENTY).await;
    node.nothing_else().await;
    master
        .pour((0..COUNT).map(|n| (Kind::START, large_start(instance(n), 30 * 1024))))
        .await;
    master.nothing_else().await;
    daemon.terminate();
    master.expect_end().await;
    for n in 0..COUNT {
        assert_eq!(node.expect_start().await, instance(n));
    }
    node.expect_end().await;
    assert!(daemon.ended().await.success());
    daemon.logged("stopped").await;
}

#[tokio::test]
async fn when_told_to_stop_it_does_not_wait_for_ever_for_one_that_does_not_read() {
    let site = Site::new();
    let flags = ["--drain-deadline", "3s", "--stall-time", "100ms"];
    let mut daemon = site.start(&flags).await;
    let mut master = site.master(&daemon).await;
    let narrow = Dialer {
        receive_buffer: Some(NARROW),
        ..site.dialer(&daemon, Role::AGENT, Encoding::Gob)
    };
    let mut deaf = narrow.connect().await;
    master.expect_node().await;
    deaf.ready(PLENTY).await;
    deaf.nothing_else().await;
    let mut sent = 0;
    while master.settle().await.is_empty() {
        let next = large_start(instance(sent), 100 * 1024);
        master.send(Kind::START, next).await;
        sent += 1;
    }
    daemon.terminate();
    assert!(daemon.ended().await.success());
    daemon
        .logged("1 of 2 peers did not take what was queued within 3s")
        .await;
}

#[tokio::test]
async fn once_told_to_stop_it_lets_nobody_in() {
    let (site, mut daemon) = Site::running().await;
    let node = site.node(&daemon).await;
    daemon.interrupt();
    assert!(daemon.ended().await.success());
    drop(node);
    let refused = within(tokio::net::TcpStream::connect(daemon.address)).await;
    assert!(refused.is_err());
}
