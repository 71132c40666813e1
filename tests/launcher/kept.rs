//! What instances leave when they end, whatever ended them: output and working directory, within limits.

use std::fs;
use std::path::PathBuf;

use proto_frames::Kind;
use proto_frames::payload::{Evacuate, Payload, Ready};

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
