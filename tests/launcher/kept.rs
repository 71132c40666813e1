//! What instances leave when they end, whatever ended them: output and working directory, within limits.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use proto_frames::payload::{
    Evacuate, KeptRuns, OutputChunk, OutputFailure, Payload, ReadOutput, Ready,
};
use proto_frames::{Connected, Kind, Message, Uuid};

use crate::world::{Peer, World, until};

/// Has an instance write so much that is not text for people into its output, and its name into its working directory.
fn script(bytes: usize) -> String {
    format!("head -c {bytes} /dev/zero; echo $CIAO_INSTANCE_UUID > file; echo $$; exec sleep 1000")
}

/// Begins an instance and waits until it has written all.
async fn begin(world: &World, peer: &mut Peer, id: &str, bytes: usize) {
    peer.shell(id, &script(bytes)).await;
    until("its output", || {
        let output = world.output(id);
        output.len() > bytes && output.ends_with('\n')
    })
    .await;
    peer.listed(id, "active").await;
}

fn kept(world: &World, name: &str) -> PathBuf {
    world.state_dir().join("kept").join(name)
}

fn has_all(world: &World, name: &str, id: &str) -> bool {
    let file = fs::read_to_string(kept(world, name).join("work/file"));
    kept(world, name).join("output.log").exists() && file.is_ok_and(|text| text.trim() == id)
}

#[tokio::test]
async fn what_is_stopped_deleted_or_evacuated_leaves_its_output_and_working_directory() {
    let (world, _launcher, mut peer) = World::connected(&[]).await;
    for (id, stop) in [("moved", true), ("deleted", false)] {
        begin(&world, &mut peer, id, 10).await;
        peer.delete(id, stop).await;
        peer.answer().await;
        assert!(has_all(&world, &format!("{id}.1"), id));
    }
    // It comes back, as after it was preempted.
    begin(&world, &mut peer, "moved", 10).await;
    begin(&world, &mut peer, "evacuated", 10).await;
    let evacuate = Evacuate {
        workload_agent_uuid: peer.connect.source.to_string(),
        ..Evacuate::default()
    };
    peer.send(Kind::EVACUATE, evacuate.encode()).await;
    for _ in 0..2 {
        peer.stopped().await;
    }
    for (name, id) in [
        ("moved.1", "moved"),
        ("moved.2", "moved"),
        ("evacuated.1", "evacuated"),
    ] {
        assert!(has_all(&world, name, id), "{name}");
    }
}

#[tokio::test]
async fn what_began_again_keeps_what_it_left_and_what_was_deleted_after_its_end_does_not() {
    let (world, _launcher, mut peer) = World::connected(&[]).await;
    peer.shell("a", "echo first; exit 3").await;
    peer.stopped().await;
    peer.shell("a", "echo second; exit 4").await;
    peer.stopped().await;
    assert_eq!(world.output("a"), "second\n");
    let first = fs::read_to_string(kept(&world, "a.1").join("output.log"));
    assert_eq!(first.unwrap(), "first\n");
    peer.delete("a", false).await;
    peer.deleted().await;
    assert_eq!(world.output("a"), "");
    assert!(!kept(&world, "a.2").exists());
}

#[tokio::test]
async fn what_is_kept_has_a_limit_and_counts_as_used_disk() {
    const MB: usize = 1_000_000;
    // A number alone is in MiB: 95 are 99.6 times 10^6 bytes.
    let flags = ["-keep-output-bytes=3000000", "-disk=95"];
    let (world, _launcher, mut peer) = World::connected(&flags).await;
    for id in ["first", "second"] {
        begin(&world, &mut peer, id, 2 * MB).await;
        peer.delete(id, true).await;
        peer.stopped().await;
    }
    until("the oldest's end", || !kept(&world, "first.1").exists()).await;
    assert!(has_all(&world, "second.1", "second"));
    loop {
        let ready = peer.next(&[Kind::READY]).await;
        let ready = Ready::decode(&ready.payload).unwrap();
        if (95..=97).contains(&ready.disk_available_mb) {
            break;
        }
    }
}

#[tokio::test]
async fn nothing_is_kept_where_that_is_asked_for() {
    let (world, _launcher, mut peer) = World::connected(&["-keep-output-for=0s"]).await;
    begin(&world, &mut peer, "a", 10).await;
    peer.delete("a", true).await;
    peer.stopped().await;
    assert!(!kept(&world, "a.1").exists());
    peer.shell("b", "echo text").await;
    peer.stopped().await;
    let output = world.state_dir().join("instances/b/output.log");
    until("its output's end", || !output.exists()).await;
    peer.delete("b", false).await;
    assert_eq!(peer.deleted().await, ("b".to_owned(), Some(0)));
}

/// Reads what an instance has written, as far as one answer goes.
async fn read(peer: &mut Peer, id: &str, follow: bool) -> OutputChunk {
    let request = ReadOutput {
        instance_uuid: id.to_owned(),
        follow,
        ..ReadOutput::default()
    };
    peer.send(Kind::READ_OUTPUT, request.encode()).await;
    let frame = peer.next(&[Kind::OUTPUT]).await;
    OutputChunk::decode(&frame.payload).unwrap()
}

/// Writes what an instance that ended by itself leaves, with these times of its files.
fn ended_before(world: &World, id: &str, at: SystemTime) {
    let dir = world.state_dir().join("instances").join(id);
    fs::create_dir_all(&dir).unwrap();
    let record = format!(
        "{{\"instance\":\"{id}\",\"demand\":{{\"mem_mb\":64,\"vcpus\":1,\"disk_mb\":0}},\"restart\":false,\
         \"stage\":{{\"Exited\":0}},\"unheard\":false}}"
    );
    let over = format!("{{\"instance\":\"{id}\",\"seq\":1,\"code\":0,\"at_ms\":1}}");
    for (name, text) in [
        ("record.json", &*record),
        ("over.json", &over),
        ("exit.json", "{\"Exited\":0}"),
        ("output.log", id),
    ] {
        fs::write(dir.join(name), text).unwrap();
        let file = File::options().append(true).open(dir.join(name)).unwrap();
        file.set_modified(at).unwrap();
    }
}

#[tokio::test]
async fn hundreds_that_ended_keep_their_output_whatever_the_clock_on_the_wall_says() {
    const COUNT: usize = 600;
    let world = World::new().await;
    // A node that has its UUID.
    let mut launcher = world.launch(&[]);
    world.accept().await;
    launcher.signal(rustix::process::Signal::TERM);
    launcher.ended().await;
    // As if the clock were 30 days ahead now.
    let month = Duration::from_secs(30 * 24 * 3600);
    let ids: Vec<String> = (0..COUNT).map(|number| format!("ended-{number}")).collect();
    for id in &ids {
        ended_before(&world, id, SystemTime::now() - month);
    }
    let _launcher = world.launch(&[]);
    let mut peer = world.knock().await;
    let connected = Connected::new(Uuid::from_u128(1), peer.connect.source, Bytes::new());
    peer.send_message(Message::Connected(connected.recording_ends()))
        .await;
    let mut outputs = BTreeMap::new();
    while outputs.len() < COUNT {
        let told = peer.next(&[Kind::KEPT_RUNS]).await;
        let told = KeptRuns::decode(&told.payload).unwrap();
        assert!(
            told.runs.len() <= 256,
            "as many as a scheduler takes at a time"
        );
        let place = told
            .runs
            .into_iter()
            .map(|it| (it.instance_uuid, it.output));
        outputs.extend(place);
    }
    assert!(outputs.values().all(|place| !place.is_empty()));
    // One more ends, so that a further look is due, and reports come.
    peer.shell("one-more", "true").await;
    peer.stopped().await;
    peer.reports(5).await;
    for id in &ids {
        assert_eq!(world.output(id), *id);
    }
    let chunk = read(&mut peer, &ids[0], false).await;
    assert_eq!(
        (&chunk.data[..], chunk.part.ended),
        (ids[0].as_bytes(), true)
    );
}

#[tokio::test]
async fn who_reads_output_that_was_deleted_hears_when_and_why_also_after_a_restart() {
    let flags = ["-keep-output-for=1ms"];
    let (world, mut launcher, mut peer) = World::connected(&flags).await;
    peer.shell("a", "echo text").await;
    peer.stopped().await;
    let output = world.state_dir().join("instances/a/output.log");
    until("its output's end", || !output.exists()).await;
    for _ in 0..2 {
        for follow in [false, true] {
            let part = read(&mut peer, "a", follow).await.part;
            assert_eq!(part.failure, OutputFailure::NotKept, "{part:?}");
            for word in ["was deleted on 2", "kept for 1ms", "--keep-output-for"] {
                assert!(part.detail.contains(word), "{}", part.detail);
            }
        }
        launcher.signal(rustix::process::Signal::KILL);
        launcher.ended().await;
        launcher = world.launch(&flags);
        peer = world.accept().await;
    }
}
