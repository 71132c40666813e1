//! Ctrl-C: what goes on all the same is told, and how to undo it.

use proto_frames::payload::{
    DrainProgress, DrainState, InstanceStateEvent, InstanceStopped, Payload, PhaseName,
};
use proto_frames::{Frame, Kind};
use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader};

use crate::scheduler::{
    DEADLINE, Peers, Ran, Scheduler, answer, instance, instance_of, node, placed,
};

/// Runs a command until it prints a line with this text, presses Ctrl-C, and waits for its end.
async fn interrupted(scheduler: &Scheduler, args: &[&str], seen: &str) -> Ran {
    let running = async {
        let mut child = scheduler.command(args).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut out = String::new();
        while !out.contains(seen) {
            let line = lines.next_line().await.unwrap();
            out += &line.unwrap_or_else(|| panic!("it ended with {out}"));
            out.push('\n');
        }
        let pid = Pid::from_raw(i32::try_from(child.id().unwrap()).unwrap()).unwrap();
        kill_process(pid, Signal::INT).unwrap();
        let mut err = String::new();
        let mut stderr = child.stderr.take().unwrap();
        stderr.read_to_string(&mut err).await.unwrap();
        let code = child.wait().await.unwrap().code();
        Ran { code, out, err }
    };
    tokio::time::timeout(DEADLINE, running)
        .await
        .expect("it does not end")
}

/// Two nodes, and an instance on the first.
fn answer_queries(peers: &Peers, from: usize, frame: &Frame) {
    let nodes = [node("4c", "node-a"), node("4d", "node-b")];
    let instances = [instance("aa", &nodes[0])];
    peers.send(
        from,
        Kind::QUERY_RESULT,
        answer(frame, &nodes, &instances, 10),
    );
}

#[tokio::test]
async fn what_was_started_goes_on_and_what_has_ended_is_not_told_of() {
    let mut starts = 0;
    let scheduler = Scheduler::playing(move |peers, from, frame| match frame.kind {
        Kind::QUERY => answer_queries(peers, from, frame),
        Kind::START => {
            let instance_uuid = instance_of(frame);
            starts += 1;
            if starts % 3 == 1 {
                let stopped = InstanceStopped {
                    instance_uuid: instance_uuid.clone(),
                    exit_code: Some(0),
                    ..InstanceStopped::default()
                };
                peers.send(from, Kind::INSTANCE_STOPPED, stopped.encode());
            } else {
                peers.send(from, Kind::INSTANCE_PLACED, placed(&instance_uuid));
            }
        }
        _ => {}
    })
    .await;
    let line = "run --wait --count 3 --mem 64 --cpus 1 -- sleep 9";
    let words: Vec<&str> = line.split(' ').collect();
    // The third is the last to be told of.
    let mut ids: Vec<String> = Vec::new();
    let ran = interrupted(&scheduler, &words, "placed on").await;
    assert_eq!(ran.code, Some(130), "{ran:?}");
    for line in ran.err.lines().skip(1) {
        ids.push(line.trim().to_owned());
    }
    assert!(
        ran.err
            .starts_with("ciaoctl: interrupted: 2 instances go on; `ciaoctl wait` waits for them"),
        "{ran:?}"
    );
    assert_eq!(ids.len(), 2, "{ran:?}");
    let ended = ran
        .out
        .lines()
        .find(|line| line.contains(" ended"))
        .unwrap();
    assert!(!ids.iter().any(|id| ended.starts_with(id)), "{ran:?}");
}

#[tokio::test]
async fn a_drain_says_how_it_is_ended() {
    let scheduler = Scheduler::playing(|peers, from, frame| match frame.kind {
        Kind::QUERY => answer_queries(peers, from, frame),
        Kind::EVACUATE => {
            let progress = DrainProgress {
                node_uuid: node("4c", "").node_uuid,
                state: DrainState::Moving,
                total: 4,
                left: 4,
                ..DrainProgress::default()
            };
            peers.send(from, Kind::DRAIN_PROGRESS, progress.encode());
        }
        _ => {}
    })
    .await;
    let ran = interrupted(&scheduler, &["drain", "4c"], "moving: 0 of 4").await;
    assert_eq!(ran.code, Some(130), "{ran:?}");
    assert_eq!(
        ran.err,
        "ciaoctl: interrupted: the drain of node-a (4c000000) goes on; `ciaoctl drain node-a --abort` ends it, and \
         `ciaoctl uncordon node-a` lets the node have new instances again\n"
    );
}

#[tokio::test]
async fn a_move_says_how_it_is_undone() {
    let scheduler = Scheduler::playing(|peers, from, frame| match frame.kind {
        Kind::QUERY => answer_queries(peers, from, frame),
        Kind::MIGRATE => {
            let moving = InstanceStateEvent {
                instance_uuid: instance("aa", &node("4c", "")).instance_uuid,
                state: PhaseName::Migrating,
                node_uuid: node("4c", "").node_uuid,
                target_node_uuid: node("4d", "").node_uuid,
                ..InstanceStateEvent::default()
            };
            peers.send(from, Kind::INSTANCE_STATE, moving.encode());
        }
        _ => {}
    })
    .await;
    let ran = interrupted(&scheduler, &["migrate", "aa"], "migrating").await;
    assert_eq!(ran.code, Some(130), "{ran:?}");
    let id = instance("aa", &node("4c", "")).instance_uuid;
    let expected = format!(
        "ciaoctl: interrupted: migrate of instance {id} goes on; `ciaoctl history {id}` shows how far it is, `ciaoctl migrate \
         {id} --to node-a` moves it back once it has moved\n"
    );
    assert_eq!(ran.err, expected);
}

#[tokio::test]
async fn where_nothing_goes_on_nothing_is_said() {
    let scheduler = Scheduler::playing(|peers, from, frame| {
        if frame.kind == Kind::WATCH {
            peers.send(from, Kind::INSTANCE_PLACED, placed("i1"));
        }
    })
    .await;
    let ran = interrupted(&scheduler, &["watch"], "i1").await;
    assert_eq!((ran.code, &*ran.err), (Some(130), ""), "{ran:?}");
}
