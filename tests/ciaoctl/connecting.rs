//! Getting a session, or saying why there is none; and what needs none.

use std::process::Stdio;

use proto_frames::{Kind, Role};
use tokio::net::TcpListener;

use crate::scheduler::{DEADLINE, Ran, Scheduler, answer, ciaoctl, node};

async fn ran(command: &mut tokio::process::Command) -> Ran {
    let output = tokio::time::timeout(DEADLINE, command.output()).await;
    Ran::from(output.expect("ciaoctl does not end").unwrap())
}

#[tokio::test]
async fn it_comes_as_an_operator() {
    let scheduler = Scheduler::playing(|peers, from, frame| {
        let status = if peers.role(from) == Role::OPERATOR {
            "OPERATOR"
        } else {
            "not an operator"
        };
        let mut node = node("4c", "node-a");
        node.status = status.into();
        peers.send(from, Kind::QUERY_RESULT, answer(frame, &[node], &[], 100));
    })
    .await;
    let ran = scheduler.ctl(&["nodes", "--no-headers"]).await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(ran.out.contains("  OPERATOR  "), "{ran:?}");
}

#[tokio::test]
async fn where_nobody_listens_the_address_is_named() {
    let scheduler = Scheduler::playing(|_, _, _| {}).await;
    let free = TcpListener::bind("127.0.0.1:0")
        .await
        .unwrap()
        .local_addr()
        .unwrap();
    let ran = scheduler
        .ctl(&["nodes", "--server", &free.to_string()])
        .await;
    assert_eq!(ran.code, Some(3), "{ran:?}");
    assert!(
        ran.err.starts_with("ciaoctl: ") && ran.err.contains(&free.to_string()),
        "{ran:?}"
    );
    assert_eq!(ran.err.lines().count(), 1, "{ran:?}");
}

#[tokio::test]
async fn a_server_that_says_nothing_is_given_up() {
    let scheduler = Scheduler::playing(|_, _, _| {}).await;
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = silent.local_addr().unwrap().to_string();
    let ran = scheduler
        .ctl(&["nodes", "--server", &address, "--timeout", "200ms"])
        .await;
    assert_eq!(ran.code, Some(3), "{ran:?}");
    assert!(ran.err.contains("within 200ms"), "{ran:?}");
}

#[tokio::test]
async fn a_missing_certificate_is_named() {
    let ran = ran(&mut ciaoctl(&["nodes", "--cert", "/nonexistent/x.pem"])).await;
    assert_eq!(ran.code, Some(3), "{ran:?}");
    assert!(ran.err.contains("/nonexistent/x.pem"), "{ran:?}");
}

#[tokio::test]
async fn an_address_that_is_none_is_a_mistake_of_the_command_line() {
    let ran = ran(&mut ciaoctl(&["nodes", "--server", "a:b:c"])).await;
    assert_eq!(ran.code, Some(2), "{ran:?}");
}

#[tokio::test]
async fn a_scheduler_that_never_answers_is_a_timeout() {
    let scheduler = Scheduler::playing(|_, _, _| {}).await;
    let ran = scheduler.ctl(&["nodes", "--timeout", "2s"]).await;
    assert_eq!(ran.code, Some(4), "{ran:?}");
    assert_eq!(ran.err, "ciaoctl: no answer to QUERY within 2s\n");
}

#[tokio::test]
async fn a_lost_connection_is_told_from_a_timeout() {
    let scheduler = Scheduler::playing(|peers, from, _| peers.close(from)).await;
    let ran = scheduler.ctl(&["nodes"]).await;
    assert_eq!(ran.code, Some(3), "{ran:?}");
    assert!(ran.err.starts_with("ciaoctl: connection lost: "), "{ran:?}");
}

#[tokio::test]
async fn a_reader_that_stops_reading_is_no_failure() {
    let scheduler = Scheduler::playing(|peers, from, frame| {
        let nodes: Vec<_> = (0..900).map(|i| node(&format!("{i:08}"), "node")).collect();
        peers.send(from, Kind::QUERY_RESULT, answer(frame, &nodes, &[], 1000));
    })
    .await;
    let mut child = scheduler
        .command(&["nodes", "--full"])
        .stdin(Stdio::null())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let ran = Ran::from(
        tokio::time::timeout(DEADLINE, child.wait_with_output())
            .await
            .unwrap()
            .unwrap(),
    );
    assert_eq!((ran.code, ran.err.as_str()), (Some(0), ""), "{ran:?}");
}

#[tokio::test]
async fn help_tells_the_exit_codes() {
    let ran = ran(&mut ciaoctl(&["--help"])).await;
    assert_eq!(ran.code, Some(0));
    for line in [
        "Exit codes:",
        "  0  everything asked for was done",
        "  4  an answer, or what is waited for",
    ] {
        assert!(ran.out.contains(line), "{line} is not in\n{}", ran.out);
    }
}

#[tokio::test]
async fn every_shell_gets_its_completions() {
    for (shell, mark) in [
        ("bash", "complete -F"),
        ("zsh", "#compdef ciaoctl"),
        ("fish", "complete -c ciaoctl"),
    ] {
        let ran = ran(&mut ciaoctl(&["completions", shell])).await;
        assert_eq!(ran.code, Some(0));
        assert!(ran.out.contains(mark), "{shell}");
    }
}
