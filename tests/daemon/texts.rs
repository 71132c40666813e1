//! Peers whose texts are made to be obeyed: by a terminal that shows the log, by what reads it line by line, and by
//! programs that take identifiers from a list.

use proto_frames::Kind;
use proto_frames::payload::{Payload, StartFailure, StartFailureReason};

use crate::site::{Daemon, Site};
use crate::words::{PLENTY, instance, start};

/// A terminal's order to clear the screen, a line end, and a change of direction, as YAML has them.
const EVIL: &str = r"x\e[2J\n2030-01-01T00:00:00.000000Z  INFO forged\x9b\u202e";

/// Every line of the log is one that the daemon wrote, with nothing in it that is not shown.
fn is_clean(daemon: &Daemon) {
    for line in daemon.log() {
        assert!(!line.contains(char::is_control), "{line:?}");
        assert!(!line.contains(['\u{202e}', '\u{2028}']), "{line:?}");
        assert!(!line.starts_with("2030"), "{line:?}");
    }
}

#[tokio::test]
async fn texts_of_peers_forge_no_line_of_the_log() {
    let (_site, daemon, mut master, mut node) = Site::with_node().await;
    for (kind, payload) in [
        // An identifier of its own, and another node's.
        (Kind::STATS, format!("node_uuid: \"{EVIL}\"\n")),
        (
            Kind::STATS,
            format!("node_uuid: \"{EVIL}\"\ninstances: []\n"),
        ),
        (
            Kind::STATS,
            format!("instances:\n- instance_uuid: \"{EVIL}\"\n"),
        ),
        // A key of which the error says the value.
        (Kind::READY, format!("mem_total_mb: \"{EVIL}\"\n")),
        (Kind::READY, format!("\"{EVIL}\": [\n")),
    ] {
        node.send(kind, payload).await;
    }
    let delete = format!("delete:\n  instance_uuid: i\n  workload_agent_uuid: \"{EVIL}\"\n");
    master.send(Kind::DELETE, delete).await;
    let batch = format!(
        "start:\n  instance_uuid: i\n  scheduling:\n    version: 1\n    require: [\"{EVIL}\"]\n"
    );
    master.send(Kind::START, batch).await;
    node.ready(PLENTY).await;
    master.settle().await;
    node.settle().await;
    daemon.logged("unusable STATUS READY").await;
    daemon.logged("unusable COMMAND STATS").await;
    is_clean(&daemon);
}

#[tokio::test]
async fn identifiers_and_host_names_with_control_characters_are_refused_by_their_key() {
    let (_site, daemon, mut master, mut node) = Site::with_node().await;
    // A node whose host name cannot be shown takes nothing, and the log says why.
    node.send(
        Kind::READY,
        format!("mem_total_mb: 100000\nmem_available_mb: 100000\nhostname: \"{EVIL}\"\n"),
    )
    .await;
    daemon
        .logged("hostname: the character U+001B is not taken")
        .await;
    master.send(Kind::START, start(instance(1), 1)).await;
    master.expect_failure(StartFailureReason::FullCloud).await;
    // One with an odd name that can be shown works as ever.
    node.send(
        Kind::READY,
        "mem_total_mb: 100000\nmem_available_mb: 100000\ndisk_total_mb: 100000\ndisk_available_mb: 100000\n\
         load: 0\ncpus_online: 8\nhostname: \"Ann's machine (2)\"\n",
    )
    .await;
    node.settle().await;
    master.send(Kind::START, start(instance(2), 1)).await;
    assert_eq!(node.expect_start().await, instance(2));
    // An instance whose identifier is two in a list is not started.
    let two = "start:\n  instance_uuid: \"11111111-a\\n22222222-b\"\n  vm_type: qemu\n";
    master.send(Kind::START, two).await;
    let failure = master.expect(Kind::START_FAILURE).await;
    let failure = StartFailure::decode(&failure.payload).unwrap();
    assert_eq!(failure.reason, StartFailureReason::InvalidData);
    node.nothing_else().await;
    daemon
        .logged("start.instance_uuid: the character U+000A is not taken")
        .await;
    is_clean(&daemon);
}
