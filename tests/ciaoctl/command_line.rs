//! What is said of command lines that cannot be read, and other words for some commands.

use proto_frames::Kind;

use crate::scheduler::{Ran, Scheduler, answer, ciaoctl, instance, node};

/// Runs `ciaoctl` with these words, an environment and no scheduler.
async fn said(line: &str) -> Ran {
    let args: Vec<&str> = line.split(' ').collect();
    let mut command = ciaoctl(&args);
    command.env("CIAO_SERVER", "localhost:1");
    command.env("CIAO_CERTS", "/nonexistent");
    Ran::from(command.output().await.unwrap())
}

#[tokio::test]
async fn a_command_line_that_cannot_be_read_says_what_to_write() {
    for (line, tips) in [
        (
            "run --mem 1 --cpus 1 --wait runing -- true",
            &["tip: write --wait=running; a value of --wait goes behind '='"][..],
        ),
        (
            "run --mem 1 --cpus 1 --wait sleep 5",
            &["tip: put -- before the program: ciaoctl run [OPTIONS] -- sleep ..."],
        ),
        (
            "run --mem 1 --cpus 1 sleep 5",
            &["tip: put -- before the program: ciaoctl run [OPTIONS] -- sleep ..."],
        ),
        (
            "run --mem 1 --cpus 1 --queue soon -- true",
            &["'--queue <DURATION>': write it like 500ms, 5s or 10m\n"],
        ),
        (
            "run --mem 1 --cpus 1 --queue 5 -- true",
            &["5sec or 5ms; write it like"],
        ),
        (
            "run --mem 1 --cpus 1 --queue 60d -- true",
            &["'--queue <DURATION>': must be at most 30days\n"],
        ),
        (
            "describe web-1",
            &[
                "tip: say what it is: ciaoctl describe instance web-1, or ciaoctl describe node web-1",
            ],
        ),
        (
            "instance web-1",
            &["tip: to see it: ciaoctl describe instance web-1; to see all: ciaoctl instances"],
        ),
        (
            "node node-1",
            &["tip: to see it: ciaoctl describe node node-1; to see all: ciaoctl nodes"],
        ),
        ("node forgt", &["'forget'"]),
        (
            "get nodes",
            &[
                "tip: lists are commands of their own: ciaoctl nodes, ciaoctl instances, ciaoctl queue",
            ],
        ),
        (
            "start --wait running /nonexistent",
            &[
                "cannot read running: ",
                "; write --wait=running if that was meant\n",
            ],
        ),
        ("node", &["[subcommands: label, resource, forget, help]"]),
        ("nodse", &["tip:", "'nodes'"]),
    ] {
        let ran = said(line).await;
        assert_eq!(ran.code, Some(2), "{line}: {ran:?}");
        for tip in tips {
            assert!(ran.err.contains(tip), "{line}: {}", ran.err);
        }
        assert_eq!(
            ran.err.matches("tip: ").count().max(1),
            1,
            "{line}: {}",
            ran.err
        );
    }
}

#[tokio::test]
async fn usage_names_no_option_as_needed_that_is_not() {
    for (line, usage) in [
        ("start", "ciaoctl start <FILE>..."),
        ("explain --json", "ciaoctl explain <FILE>..."),
        ("delete --server a:1", "ciaoctl delete <INSTANCE>..."),
        ("describe node", "ciaoctl describe node <NODE>"),
        (
            "run -- true",
            "ciaoctl run --mem <SIZE> --cpus <N> -- <PROGRAM>...",
        ),
    ] {
        let ran = said(line).await;
        assert_eq!(ran.code, Some(2), "{line}: {ran:?}");
        let expected = format!("\nUsage: {usage}\n");
        assert!(ran.err.contains(&expected), "{line}: {}", ran.err);
    }
}

#[tokio::test]
async fn instances_are_listed_by_the_names_that_other_tools_have_for_it() {
    let scheduler = Scheduler::playing(|peers, from, frame| {
        let instances = [instance("11", &node("4c", "node-a"))];
        peers.send(from, Kind::QUERY_RESULT, answer(frame, &[], &instances, 10));
    })
    .await;
    let listed = scheduler.ctl(&["instances"]).await;
    assert_eq!(listed.code, Some(0), "{listed:?}");
    for name in ["ps", "ls", "list"] {
        let ran = scheduler.ctl(&[name]).await;
        assert_eq!((ran.code, &ran.out), (Some(0), &listed.out), "{name}");
    }
}
