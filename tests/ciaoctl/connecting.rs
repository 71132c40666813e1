//! Getting a session, or saying why there is none; and what needs none.

use std::process::Stdio;

use ciao_scheduler::cert::Spec;
use proto_frames::payload::InstanceView;
use proto_frames::{Kind, Role};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpListener;

use crate::certs::{TestCa, write_private};
use crate::scheduler::{
    DEADLINE, Ran, Scheduler, answer, ciaoctl, instance, instance_of, node, placed,
};

/// Where to look when no scheduler answers.
const ELSEWHERE: &str = "is ciao-scheduler there? (--server, CIAO_SERVER)";

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
    assert!(ran.err.contains(ELSEWHERE), "{ran:?}");
    assert_eq!(ran.err.lines().count(), 1, "{ran:?}");
}

/// It tries for as long as it may, because another of several may be about to lead; then it says why none was found.
#[tokio::test]
async fn of_several_schedulers_that_are_not_there_one_is_named_and_why() {
    let scheduler = Scheduler::playing(|_, _, _| {}).await;
    let mut free = Vec::new();
    for _ in 0..2 {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        free.push(listener.local_addr().unwrap().to_string());
    }
    let ran = scheduler
        .ctl(&["nodes", "--timeout", "1s", "--server", &free.join(",")])
        .await;
    assert_eq!(ran.code, Some(3), "{ran:?}");
    assert!(
        free.iter().any(|it| ran.err.contains(it)) && ran.err.contains("refused"),
        "{ran:?}"
    );
    assert_eq!(ran.err.lines().count(), 1, "{ran:?}");
}

#[tokio::test]
async fn what_listens_and_is_no_scheduler_is_told_from_one() {
    let scheduler = Scheduler::playing(|_, _, _| {}).await;
    for (says, said) in [
        ("", "the connection was closed in the TLS handshake"),
        (
            "HTTP/1.1 400 Bad Request\r\n\r\n",
            "what answers there does not speak TLS",
        ),
    ] {
        let other = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = other.local_addr().unwrap().to_string();
        let answering = tokio::spawn(async move {
            loop {
                let (mut stream, _) = other.accept().await.unwrap();
                // A client that has hung up already hears nothing.
                let _ = tokio::io::AsyncReadExt::read(&mut stream, &mut [0; 1024]).await;
                let _ = stream.write_all(says.as_bytes()).await;
            }
        });
        let ran = scheduler.ctl(&["nodes", "--server", &address]).await;
        answering.abort();
        assert_eq!(ran.code, Some(3), "{ran:?}");
        assert!(
            ran.err.contains(said) && ran.err.contains(ELSEWHERE),
            "{ran:?}"
        );
    }
}

#[tokio::test]
async fn certificates_that_will_not_do_say_why_and_what_would() {
    let scheduler = Scheduler::playing(|_, _, _| {}).await;
    let other = TestCa::new();
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str| dir.path().join(name).display().to_string();
    std::fs::write(file("ca.pem"), other.anchor.ca_pem()).unwrap();
    for (name, role) in [
        ("controller.pem", Role::CONTROLLER),
        ("agent.pem", Role::AGENT),
    ] {
        let leaf = other.anchor.sign(&Spec::localhost(role)).unwrap();
        write_private(dir.path().join(name).as_path(), leaf.pem());
    }
    let (ca, controller, agent) = (file("ca.pem"), file("controller.pem"), file("agent.pem"));
    let own_ca = scheduler.certs.path().join("CAcert-localhost.pem");
    let own_ca = own_ca.display().to_string();
    for (options, said) in [
        (
            ["--cacert", &*ca, "--cert", &controller],
            format!("the scheduler's certificate is from another CA than {ca}\n"),
        ),
        (
            ["--cacert", &ca, "--cert", &agent],
            format!("{agent}: the certificate grants AGENT; ciaoctl needs CONTROLLER, OPERATOR or VIEWER"),
        ),
        (
            ["--cacert", &own_ca, "--cert", &controller],
            format!("{controller} does not fit the CA in {own_ca}: it is "),
        ),
        (
            ["--cert", "/nonexistent/x.pem", "--cacert", &own_ca],
            "/nonexistent/x.pem: No such file or directory (os error 2); give --certs DIR or set CIAO_CERTS".to_owned(),
        ),
        (
            ["--cert", &own_ca, "--cacert", &own_ca],
            format!("{own_ca}: no private key in it"),
        ),
    ] {
        let args = [&["nodes"][..], &options].concat();
        let ran = scheduler.ctl(&args).await;
        assert_eq!(ran.code, Some(3), "{ran:?}");
        assert!(!ran.err.contains("warning"), "{ran:?}");
        assert!(ran.err.contains(&said), "{said}: {ran:?}");
    }
}

#[tokio::test]
async fn the_name_in_the_schedulers_certificate_can_be_another_than_the_one_dialled() {
    let scheduler = Scheduler::playing(|peers, from, frame| {
        peers.send(from, Kind::QUERY_RESULT, answer(frame, &[], &[], 10));
    })
    .await;
    let ran = scheduler
        .ctl(&["nodes", "--server-name", "localhost"])
        .await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let ran = scheduler
        .ctl(&["nodes", "--server-name", "sched.example"])
        .await;
    assert_eq!(ran.code, Some(3), "{ran:?}");
    assert!(
        ran.err.contains("it is not for sched.example, but for ") && ran.err.contains("localhost"),
        "{ran:?}"
    );
    assert!(ran.err.contains("--server-name"), "{ran:?}");
}

#[tokio::test]
async fn mistakes_on_the_command_line_say_what_to_write() {
    for (line, said) in [
        ("run --mem 64 --cpus 1 echo hi", "put -- before the program"),
        ("run --mem 0 --cpus 1 -- true", "must be at least 1"),
        ("run --mem 64 --cpus 0 -- true", "must be at least 1"),
        (
            "run --mem 64GB --cpus 1 -- true",
            "write it like 512, 512MiB or 2GiB",
        ),
        (
            "run --mem much --cpus 1 -- true",
            "write it like 512, 512MiB or 2GiB",
        ),
        ("update i1 --cpus x", "must be a whole number"),
        ("load --rate 0", "must be at least 1"),
        ("run --mem -5 --cpus 1 -- true", "must not be negative"),
        ("nodes --timeout 0s", "must be above 0"),
    ] {
        let words: Vec<&str> = line.split(' ').collect();
        let ran = ran(&mut ciaoctl(&words)).await;
        assert_eq!(ran.code, Some(2), "{line}: {ran:?}");
        assert!(ran.err.contains(said), "{line}: {ran:?}");
    }
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

/// As a leader that hands over: what it has not answered when it closes in order it has not read.
#[tokio::test]
async fn a_start_that_was_not_read_is_sent_again_and_one_that_was_answered_is_not() {
    let mut starts = 0;
    let scheduler = Scheduler::playing(move |peers, from, frame| match frame.kind {
        Kind::START => {
            starts += 1;
            match starts {
                2 => peers.close(from),
                _ => peers.send(from, Kind::INSTANCE_PLACED, placed(&instance_of(frame))),
            }
        }
        // It knows of none.
        Kind::QUERY => peers.send(from, Kind::QUERY_RESULT, answer(frame, &[], &[], 10)),
        _ => {}
    })
    .await;
    let run = "run --count 2 --mem 16 --cpus 1 -- true";
    let args: Vec<&str> = run.split(' ').collect();
    let ran = scheduler.ctl(&args).await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let starts = scheduler.seen(Kind::START);
    assert_eq!(starts.len(), 3);
    assert_eq!(starts[1], starts[2]);
    assert_ne!(starts[0], starts[1]);
}

#[tokio::test]
async fn a_scheduler_that_closes_on_each_start_is_not_asked_for_ever() {
    let scheduler = Scheduler::playing(|peers, from, frame| match frame.kind {
        Kind::START => peers.close(from),
        Kind::QUERY => peers.send(from, Kind::QUERY_RESULT, answer(frame, &[], &[], 10)),
        _ => {}
    })
    .await;
    let run = "run --mem 16 --cpus 1 -- true";
    let args: Vec<&str> = run.split(' ').collect();
    let ran = scheduler.ctl(&args).await;
    assert_eq!(ran.code, Some(3), "{ran:?}");
    assert_eq!(scheduler.seen(Kind::START).len(), 3);
}

/// As a leader that has taken in what it could not answer any more: the next one knows it.
#[tokio::test]
async fn a_start_that_is_known_after_a_scheduler_has_closed_is_not_sent_again() {
    let on = node("4c", "node-a");
    let mut known = Vec::new();
    let scheduler = Scheduler::playing(move |peers, from, frame| match frame.kind {
        Kind::START => {
            known.push(InstanceView {
                instance_uuid: instance_of(frame),
                ..instance("a", &on)
            });
            peers.close(from);
        }
        Kind::QUERY => peers.send(from, Kind::QUERY_RESULT, answer(frame, &[], &known, 10)),
        _ => {}
    })
    .await;
    let run = "run --mem 16 --cpus 1 -- true";
    let args: Vec<&str> = run.split(' ').collect();
    let ran = scheduler.ctl(&args).await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert_eq!(scheduler.seen(Kind::START).len(), 1);
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

#[tokio::test]
async fn variables_that_are_empty_are_not_set() {
    let scheduler = Scheduler::playing(|peers, from, frame| {
        let rows = answer(frame, &[node("4c", "node-a")], &[], 10);
        peers.send(from, Kind::QUERY_RESULT, rows);
    })
    .await;
    let empty = ["CIAO_CERT", "CIAO_CACERT", "CIAO_CONTEXT", "CIAO_HTTP"];
    let mut command = scheduler.command(&["nodes"]);
    command.envs(empty.map(|name| (name, "")));
    let listed = ran(&mut command).await;
    assert_eq!(listed.code, Some(0), "{listed:?}");
    // Those that say where the scheduler is lead to where it is by default.
    let mut command = ciaoctl(&["nodes", "--timeout", "1s"]);
    command.envs(["CIAO_SERVER", "CIAO_CERTS"].map(|name| (name, "")));
    let away = ran(&mut command).await;
    assert!(!away.err.contains("a value is required"), "{away:?}");
    assert!(away.err.contains("/etc/pki/ciao/"), "{away:?}");
}

#[tokio::test]
async fn a_port_alone_is_not_taken_for_an_address() {
    for (server, said) in [
        ("8889", "a number alone is no host"),
        ("127.1:8888", "an IPv4 address has four parts"),
    ] {
        let ran = Ran::from(
            ciaoctl(&["nodes", "--server", server])
                .output()
                .await
                .unwrap(),
        );
        assert_ne!(ran.code, Some(0), "{ran:?}");
        assert!(ran.err.contains(said), "{ran:?}");
    }
}
