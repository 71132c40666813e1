//! What STARTs of unmodified controllers ask for by `policy.defaults`, and nodes under load: STARTs wait, are tried again and
//! are placed anew, and peers of the original are sent no frame and no reason that they do not know.

use proto_frames::payload::{InstanceDeleted, Payload, Ready, StartFailure, StartFailureReason};
use proto_frames::{Encoding, Frame, Kind, Role};

use crate::peer::Peer;
use crate::site::{Daemon, Site};
use crate::words::{PLENTY, instance, start, started};

/// The reasons that the original has.
const ORIGINAL_REASONS: [&str; 10] = [
    "full_cloud",
    "full_cn",
    "no_cn",
    "no_net_cn",
    "invalid_payload",
    "invalid_data",
    "already_running",
    "instance_exists",
    "image_failure",
    "launch_failure",
];

/// A daemon with this policy, and a controller of the original.
async fn under(policy: &str) -> (Site, Daemon, Peer) {
    let site = Site::new();
    let text = format!("configure:\n  scheduler:\n    policy: {policy}\n");
    std::fs::write(site.path("configuration.yaml"), text).unwrap();
    let daemon = site.start(&[]).await;
    let controller = site.connect(&daemon, Role::CONTROLLER, Encoding::Gob).await;
    (site, daemon, controller)
}

/// A node of the original, of which the controller hears.
async fn node(site: &Site, daemon: &Daemon, controller: &mut Peer) -> Peer {
    let node = site.connect(daemon, Role::AGENT, Encoding::Gob).await;
    controller.expect_node().await;
    node
}

/// Reports as a node with four CPUs and this load.
async fn loaded(node: &mut Peer, load: i64) {
    let ready = Ready {
        node_uuid: node.uuid.to_string(),
        mem_total_mb: PLENTY,
        mem_available_mb: PLENTY,
        disk_total_mb: PLENTY,
        disk_available_mb: PLENTY,
        load,
        cpus_online: 4,
        hostname: format!("host-{}", node.uuid),
        ..Ready::default()
    };
    node.send(Kind::READY, ready.encode()).await;
}

/// What the scheduler has sent to a peer of the original, all of which the original has, but for these.
async fn heard(peer: &mut Peer, but: &[Kind]) -> Vec<Frame> {
    let frames = peer.settle().await;
    for frame in &frames {
        assert!(!frame.kind.is_added(), "{frame:?}");
    }
    let frames = frames.into_iter();
    frames.filter(|it| !but.contains(&it.kind)).collect()
}

/// The reason of a failure, which is as the original knows it.
fn reason(frame: &Frame) -> StartFailureReason {
    let text = String::from_utf8(frame.payload.to_vec()).unwrap();
    let keys = text.lines().skip(1).map(|it| it.trim().split(':').next());
    for key in keys.flatten() {
        let known = ["node_uuid", "instance_uuid", "reason", "restart"];
        assert!(known.contains(&key), "{key} in {text}");
    }
    let failure = StartFailure::decode(&frame.payload).unwrap();
    assert!(
        ORIGINAL_REASONS.contains(&failure.reason.as_str()),
        "{failure:?}"
    );
    failure.reason
}

#[tokio::test]
async fn a_start_of_an_original_controller_waits_for_a_node_where_the_policy_says_so() {
    let (site, daemon, mut controller) = under("{}").await;
    controller.start(instance(1), 1).await;
    let failed = controller.expect(Kind::START_FAILURE).await;
    assert_eq!(reason(&failed), StartFailureReason::NoComputeNodes);
    drop((site, daemon));

    let (site, daemon, mut controller) = under("{defaults: {queue: 10m}}").await;
    controller.start(instance(1), 1).await;
    assert_eq!(heard(&mut controller, &[]).await, []);
    let mut node = node(&site, &daemon, &mut controller).await;
    node.ready(PLENTY).await;
    let placed = node.expect(Kind::START).await;
    assert_eq!(placed.payload, start(instance(1), 1), "byte for byte");
    node.stats(&[instance(1)]).await;
    node.nothing_else().await;
    let reports = [Kind::STATS, Kind::READY];
    assert_eq!(heard(&mut controller, &reports).await, []);
    // One that asks for more than is there, and whose time is soon over.
    drop((site, daemon));
    let (site, daemon, mut controller) = under("{defaults: {queue: 1ms}}").await;
    let mut node = self::node(&site, &daemon, &mut controller).await;
    node.ready(10).await;
    node.nothing_else().await;
    controller.start(instance(2), 1000).await;
    let failed = controller.skip_to(Kind::START_FAILURE).await;
    assert_eq!(reason(&failed), StartFailureReason::FullCloud);
}

#[tokio::test]
async fn a_start_of_an_original_controller_is_tried_elsewhere_where_the_policy_says_so() {
    let (site, daemon, mut controller) = under("{defaults: {attempts: 2}}").await;
    let mut nodes = Vec::new();
    for _ in 0..2 {
        let mut node = node(&site, &daemon, &mut controller).await;
        node.ready(PLENTY).await;
        node.nothing_else().await;
        nodes.push(node);
    }
    controller.start(instance(1), 1).await;
    assert_eq!(heard(&mut controller, &[Kind::READY]).await, []);
    let mut tried = Vec::new();
    for _ in 0..2 {
        // Where it went is seen in what came to each.
        let mut at = None;
        for (number, node) in nodes.iter_mut().enumerate() {
            let frames = heard(node, &[]).await;
            let mut starts = frames.iter().filter(|it| it.kind == Kind::START);
            if starts.any(|it| started(&it.payload) == instance(1)) {
                at = Some(number);
            }
        }
        let at = at.expect("it is on a node");
        tried.push(at);
        let node = &mut nodes[at];
        let failure = StartFailure {
            node_uuid: node.uuid.to_string(),
            instance_uuid: instance(1).to_string(),
            reason: StartFailureReason::LaunchFailure,
            ..StartFailure::default()
        };
        assert_eq!(
            heard(&mut controller, &[]).await,
            [],
            "nothing has failed for good"
        );
        let failure = failure.to_original();
        node.send(Kind::START_FAILURE, failure.encode()).await;
        node.nothing_else().await;
    }
    tried.sort_unstable();
    assert_eq!(tried, [0, 1]);
    let failures = heard(&mut controller, &[]).await;
    assert_eq!(failures.len(), 1, "{failures:?}");
    assert_eq!(reason(&failures[0]), StartFailureReason::LaunchFailure);
}

#[tokio::test]
async fn a_node_under_load_takes_no_start_of_an_original_controller_and_says_a_reason_that_it_knows()
 {
    let (site, daemon, mut controller) = under("{load_per_cpu: 1.5}").await;
    let mut node = node(&site, &daemon, &mut controller).await;
    loaded(&mut node, 7).await;
    node.nothing_else().await;
    controller.start(instance(1), 1).await;
    let failed = controller.skip_to(Kind::START_FAILURE).await;
    assert_eq!(reason(&failed), StartFailureReason::FullCloud);
    node.nothing_else().await;
    loaded(&mut node, 6).await;
    node.nothing_else().await;
    controller.start(instance(2), 1).await;
    assert_eq!(node.expect_start().await, instance(2));
}

#[tokio::test]
async fn a_start_of_an_original_controller_waits_until_a_node_is_calm_where_the_policy_says_so() {
    let policy = "{load_per_cpu: 1.5, defaults: {queue: 10m}}";
    let (site, daemon, mut controller) = under(policy).await;
    let mut node = node(&site, &daemon, &mut controller).await;
    for load in [20, 7] {
        loaded(&mut node, load).await;
        node.nothing_else().await;
        if load == 20 {
            controller.start(instance(1), 1).await;
        }
        assert_eq!(heard(&mut controller, &[Kind::READY]).await, []);
        node.nothing_else().await;
    }
    loaded(&mut node, 6).await;
    assert_eq!(node.expect_start().await, instance(1));
    let reports = [Kind::STATS, Kind::READY];
    assert_eq!(heard(&mut controller, &reports).await, []);
    // It can be deleted as any other.
    let delete = crate::words::delete(instance(1), node.uuid);
    controller.send(Kind::DELETE, delete).await;
    node.expect(Kind::DELETE).await;
    let deleted = InstanceDeleted {
        instance_uuid: instance(1).to_string(),
        ..InstanceDeleted::default()
    };
    node.send(Kind::INSTANCE_DELETED, deleted.encode()).await;
    node.nothing_else().await;
    let frames = heard(&mut controller, &[]).await;
    assert_eq!(frames.len(), 1, "{frames:?}");
    assert_eq!(frames[0].kind, Kind::INSTANCE_DELETED);
}
