//! `start` and `run`.

use std::path::Path;

use proto_frames::payload::{
    InstanceStopped, Payload, PlacementState, Start, StartFailure, StartFailureReason,
};
use proto_frames::{Frame, Kind};

use crate::scheduler::{Peers, Scheduler, answer, instance, instance_of, node, placed};

const ID: &str = "11111111-2222-4333-8444-555555555555";

fn start_file(directory: &Path, instance: &str) -> String {
    let path = directory.join("a.yaml");
    let text = format!(
        "# kept\nstart:\n  instance_uuid: {instance}\n  vm_type: process\n  command: [true]\n  requirements:\n    \
         mem_mb: 64\n    vcpus: 1\n...\n#cloud-config [ {{\n"
    );
    std::fs::write(&path, text).unwrap();
    path.display().to_string()
}

fn failure(instance: &str) -> StartFailure {
    StartFailure {
        instance_uuid: instance.into(),
        reason: StartFailureReason::FullCloud,
        detail: Some("asks 64 MiB, the freest node has 12".into()),
        ..StartFailure::default()
    }
}

/// Places every START, and reports that it ended with this status.
fn place_and_end(peers: &mut Peers, from: usize, frame: &Frame, exit_code: Option<i64>) {
    if frame.kind == Kind::START {
        let instance_uuid = instance_of(frame);
        peers.send(from, Kind::INSTANCE_PLACED, placed(&instance_uuid));
        peers.send(
            from,
            Kind::INSTANCE_STOPPED,
            InstanceStopped {
                instance_uuid,
                exit_code,
                ..InstanceStopped::default()
            }
            .encode(),
        );
    }
}

#[tokio::test]
async fn a_file_goes_out_byte_for_byte_and_its_node_is_told() {
    let scheduler =
        Scheduler::playing(|peers, from, frame| place_and_end(peers, from, frame, None)).await;
    let file = start_file(scheduler.certs.path(), ID);
    let ran = scheduler.ctl(&["start", &file]).await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert_eq!(ran.out, format!("{ID} placed on node-a (4cb19522)\n"));
    assert_eq!(scheduler.seen(Kind::START), [std::fs::read(&file).unwrap()]);
}

#[tokio::test]
async fn a_start_that_fits_nowhere_fails_with_the_reason() {
    let scheduler = Scheduler::playing(|peers, from, frame| {
        if frame.kind == Kind::START {
            peers.send(
                from,
                Kind::START_FAILURE,
                failure("somebody else's").encode(),
            );
            peers.send(
                from,
                Kind::START_FAILURE,
                failure(&instance_of(frame)).encode(),
            );
        }
    })
    .await;
    let file = start_file(scheduler.certs.path(), ID);
    let ran = scheduler.ctl(&["start", &file]).await;
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert_eq!(
        ran.out,
        format!("{ID} failed: full_cloud: asks 64 MiB, the freest node has 12\n")
    );
}

#[tokio::test]
async fn waiting_for_the_end_gives_the_exit_status() {
    for (status, code) in [(0, 0), (3, 6)] {
        let scheduler = Scheduler::playing(move |peers, from, frame| {
            place_and_end(peers, from, frame, Some(status));
            if frame.kind == Kind::QUERY {
                peers.send(from, Kind::QUERY_RESULT, answer(frame, &[], &[], 10));
            }
        })
        .await;
        let file = start_file(scheduler.certs.path(), ID);
        let ran = scheduler.ctl(&["start", "--wait", &file]).await;
        assert_eq!(ran.code, Some(code), "{ran:?}");
        assert_eq!(
            ran.out.lines().last().unwrap(),
            format!("{ID} ended on node-a (4cb19522): exit status {status}")
        );
        let json = scheduler
            .ctl(&["start", "--wait", "--json", &file])
            .await
            .json();
        assert_eq!(json["instances"][0]["exit_code"], status);
        assert_eq!(json["instances"][0]["outcome"], "ended");
    }
}

#[tokio::test]
async fn an_end_whose_exit_status_nobody_knows_is_no_success() {
    let scheduler = Scheduler::playing(move |peers, from, frame| {
        place_and_end(peers, from, frame, None);
        if frame.kind == Kind::QUERY {
            peers.send(from, Kind::QUERY_RESULT, answer(frame, &[], &[], 10));
        }
    })
    .await;
    let file = start_file(scheduler.certs.path(), ID);
    let ran = scheduler.ctl(&["start", "--wait", &file]).await;
    assert_eq!(ran.code, Some(8), "{ran:?}");
    assert_eq!(
        ran.out.lines().last().unwrap(),
        format!("{ID} ended on node-a (4cb19522): exit status unknown")
    );
}

#[tokio::test]
async fn waiting_until_it_runs_looks_until_its_node_has_reported_it() {
    let mut looks = 0;
    let scheduler = Scheduler::playing(move |peers, from, frame| match frame.kind {
        Kind::START => peers.send(from, Kind::INSTANCE_PLACED, placed(&instance_of(frame))),
        Kind::QUERY => {
            looks += 1;
            let mut view = instance("11", &node("4c", "node-a"));
            view.instance_uuid = ID.into();
            view.state = if looks < 3 {
                PlacementState::Placed
            } else {
                PlacementState::Running
            };
            peers.send(from, Kind::QUERY_RESULT, answer(frame, &[], &[view], 10));
        }
        _ => {}
    })
    .await;
    let file = start_file(scheduler.certs.path(), ID);
    let ran = scheduler.ctl(&["start", "--wait=running", &file]).await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert_eq!(
        ran.out.lines().last().unwrap(),
        format!("{ID} running on node-a (4cb19522)")
    );
    assert_eq!(scheduler.seen(Kind::QUERY).len(), 3);
}

#[tokio::test]
async fn an_instance_that_vanishes_is_not_waited_for_for_ever() {
    let scheduler = Scheduler::playing(|peers, from, frame| match frame.kind {
        Kind::START => peers.send(from, Kind::INSTANCE_PLACED, placed(&instance_of(frame))),
        Kind::QUERY => peers.send(from, Kind::QUERY_RESULT, answer(frame, &[], &[], 10)),
        _ => {}
    })
    .await;
    let file = start_file(scheduler.certs.path(), ID);
    let ran = scheduler.ctl(&["start", "--wait", &file]).await;
    assert_eq!(ran.code, Some(8), "{ran:?}");
    assert!(ran.out.contains("vanished on node-a"), "{ran:?}");
    assert!(ran.out.contains("how it ended is unknown"), "{ran:?}");
}

#[tokio::test]
async fn what_has_no_answer_in_time_says_so() {
    let scheduler = Scheduler::playing(|_, _, _| {}).await;
    let file = start_file(scheduler.certs.path(), ID);
    let ran = scheduler.ctl(&["start", "--timeout", "2s", &file]).await;
    assert_eq!(ran.code, Some(4), "{ran:?}");
    assert_eq!(ran.out, format!("{ID} sent, no answer; gave up waiting\n"));
}

#[tokio::test]
async fn several_instances_have_uuids_of_their_own() {
    let scheduler =
        Scheduler::playing(|peers, from, frame| place_and_end(peers, from, frame, None)).await;
    let file = start_file(scheduler.certs.path(), ID);
    let ran = scheduler
        .ctl(&["start", "--count", "50", "--quiet", &file, &file])
        .await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let sent: Vec<String> = scheduler
        .seen(Kind::START)
        .iter()
        .map(|start| Start::decode(start).unwrap().instance_uuid)
        .collect();
    assert_eq!(
        ran.out.lines().collect::<Vec<_>>(),
        sent,
        "in the order they were sent"
    );
    let mut different = sent.clone();
    different.sort();
    different.dedup();
    assert_eq!(different.len(), 100);
    assert!(!sent.contains(&ID.to_owned()));
}

#[tokio::test]
async fn the_standard_input_will_do_and_gets_a_uuid_where_it_has_none() {
    let scheduler =
        Scheduler::playing(|peers, from, frame| place_and_end(peers, from, frame, None)).await;
    let text = "start:\n  vm_type: process\n  command: [true]\n";
    let ran = scheduler.ctl_with_input(&["start", "-q", "-"], text).await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let expected = text.replace(
        ":\n  vm",
        &format!(":\n  instance_uuid: {}\n  vm", ran.out.trim_end()),
    );
    assert_eq!(scheduler.seen(Kind::START), [expected]);
}

#[tokio::test]
async fn a_file_that_is_no_start_is_refused_before_anything_is_sent() {
    let scheduler = Scheduler::playing(|_, _, _| {}).await;
    let good = start_file(scheduler.certs.path(), ID);
    let ran = scheduler.ctl(&["start", &good, "/nonexistent.yaml"]).await;
    assert_eq!(ran.code, Some(2), "{ran:?}");
    assert!(
        ran.err
            .starts_with("ciaoctl: cannot read /nonexistent.yaml: "),
        "{ran:?}"
    );
    let ran = scheduler
        .ctl_with_input(&["start", "-"], "start: [\n")
        .await;
    assert_eq!(ran.code, Some(2), "{ran:?}");
    assert!(
        ran.err
            .starts_with("ciaoctl: standard input: not a START payload: "),
        "{ran:?}"
    );
    assert!(scheduler.seen(Kind::START).is_empty());
}

#[tokio::test]
async fn run_makes_the_start_of_a_program() {
    let scheduler = Scheduler::playing(|peers, from, frame| match frame.kind {
        Kind::QUERY => {
            let nodes = [node("4c", "node-a"), node("be", "node-b")];
            peers.send(from, Kind::QUERY_RESULT, answer(frame, &nodes, &[], 10));
        }
        _ => place_and_end(peers, from, frame, Some(0)),
    })
    .await;
    let line =
        "run --mem 64 --cpus 2 --disk 1500 --env A=b=c --dir /tmp --node node-b -- sh -c --wait";
    let ran = scheduler.ctl(&line.split(' ').collect::<Vec<_>>()).await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let start = Start::decode(&scheduler.seen(Kind::START)[0]).unwrap();
    assert_eq!(
        (start.requirements.mem_mb, start.requirements.vcpus),
        (64, 2)
    );
    assert_eq!(start.disk_mib(), Some(2048), "whole GiB");
    assert_eq!(start.requirements.node_id, node("be", "").node_uuid);
    assert_eq!(
        (start.vm_type.as_str(), start.working_dir.as_str()),
        ("process", "/tmp")
    );
    assert_eq!(start.command, ["sh", "-c", "--wait"]);
    assert_eq!(start.env["A"], "b=c");
    assert!(ran.out.starts_with(&start.instance_uuid), "{ran:?}");
}

#[tokio::test]
async fn the_examples_can_be_started_as_they_are() {
    let scheduler =
        Scheduler::playing(|peers, from, frame| place_and_end(peers, from, frame, None)).await;
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples");
    let mut files: Vec<String> = std::fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| {
            path.extension()
                .is_some_and(|extension| extension == "yaml")
        })
        .map(|path| path.display().to_string())
        .collect();
    files.sort();
    assert!(files.len() >= 3, "{files:?}");
    let args: Vec<&str> = std::iter::once("start")
        .chain(files.iter().map(String::as_str))
        .collect();
    let ran = scheduler.ctl(&args).await;
    assert_eq!((ran.code, &*ran.err), (Some(0), ""), "{ran:?}");
    for start in scheduler.seen(Kind::START) {
        let start = Start::decode(&start).unwrap();
        assert_eq!(start.vm_type, "process");
        assert!(
            start.requirements.mem_mb > 0 && !start.command.is_empty(),
            "{start:?}"
        );
    }
}

/// A scheduler of a cluster that has room for nothing.
async fn full() -> Scheduler {
    Scheduler::playing(|peers, from, frame| {
        if frame.kind == Kind::START {
            let failure = failure(&instance_of(frame));
            peers.send(from, Kind::START_FAILURE, failure.encode());
        }
    })
    .await
}

#[tokio::test]
async fn quiet_says_on_standard_error_what_failed() {
    let scheduler = full().await;
    let file = start_file(scheduler.certs.path(), ID);
    let ran = scheduler.ctl(&["start", "-q", &file]).await;
    assert_eq!((ran.code, &*ran.out), (Some(1), ""), "it is no instance");
    let said = format!("ciaoctl: {ID} failed: full_cloud: asks 64 MiB, the freest node has 12\n");
    assert_eq!(ran.err, said);
}

#[tokio::test]
async fn starts_that_fail_alike_are_a_line_and_a_count() {
    let scheduler = full().await;
    let file = start_file(scheduler.certs.path(), ID);
    let run = ["start", "--count", "50", &file];
    let ran = scheduler.ctl(&run).await;
    assert_eq!(ran.code, Some(1), "{ran:?}");
    let lines: Vec<&str> = ran.out.lines().collect();
    let [first, more] = lines[..] else {
        panic!("{ran:?}");
    };
    let (id, why) = first.split_once(' ').unwrap();
    assert_eq!(
        why,
        "failed: full_cloud: asks 64 MiB, the freest node has 12"
    );
    assert_eq!(
        more,
        format!("49 more STARTs failed for the same reason as {id}")
    );
    let quiet = scheduler.ctl(&[&run[..], &["-q"]].concat()).await;
    assert_eq!(
        (&*quiet.out, quiet.err.lines().count()),
        ("", 2),
        "{quiet:?}"
    );
    let verbose = scheduler.ctl(&[&run[..], &["-v"]].concat()).await;
    assert_eq!(verbose.out.lines().count(), 50, "{verbose:?}");
}

#[tokio::test]
async fn what_waits_for_the_rest_of_its_batch_says_so() {
    let scheduler = Scheduler::playing(|_, _, _| {}).await;
    let file = scheduler.certs.path().join("batch.yaml");
    let text = format!(
        "start:\n  instance_uuid: {ID}\n  vm_type: process\n  command: [true]\n  scheduling:\n    batch: {{id: b1, \
         count: 3}}\n"
    );
    std::fs::write(&file, text).unwrap();
    let file = file.display().to_string();
    let ran = scheduler.ctl(&["start", "--timeout", "1s", &file]).await;
    assert_eq!(ran.code, Some(4), "{ran:?}");
    assert_eq!(
        ran.out,
        format!(
            "{ID} sent; it waits for the rest of batch 'b1', of whose 3 STARTs this command sends 1: none is placed \
             before all have come; gave up waiting\n"
        )
    );
    let whole = ["start", "--count", "3", "--timeout", "1s", &file];
    let ran = scheduler.ctl(&whole).await;
    assert!(ran.out.contains("sent, no answer"), "{ran:?}");
}

#[tokio::test]
async fn a_command_in_one_word_is_told_to_be_several() {
    let scheduler = Scheduler::playing(|_, _, _| {}).await;
    let ran = scheduler
        .ctl(&["run", "--mem", "16", "--cpus", "1", "--", "sleep 1"])
        .await;
    assert_eq!(ran.code, Some(2), "{ran:?}");
    assert_eq!(
        ran.err,
        "ciaoctl: no program is called \"sleep 1\", and no shell reads it on the node: give each word by itself (-- \
         sleep 1), or a shell (-- sh -c \"sleep 1\")\n"
    );
    assert!(scheduler.seen(Kind::START).is_empty());
}
