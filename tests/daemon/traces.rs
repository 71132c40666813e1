//! Path traces: the scheduler adds itself to the way of a traced frame, and leaves everything else of it alone.

use proto_frames::{Encoding, Frame, Kind, Role, Timestamp, Trace, TraceNode};

use crate::site::Site;
use crate::words::{instance, start};

fn traced(sender: &crate::peer::Peer, path: Option<Vec<TraceNode>>) -> Frame {
    let trace = Trace {
        label: "from here".into(),
        start: Timestamp::from_unix_ns(1_500_000_000_123_456_789),
        path,
        ..Trace::default()
    };
    Frame {
        trace: Some(Box::new(trace)),
        ..sender.frame(Kind::START, start(instance(1), 1))
    }
}

#[tokio::test]
async fn a_traced_frame_gets_one_node_more_with_both_times_set() {
    for (from, to) in [
        (Encoding::Gob, Encoding::Gob),
        (Encoding::Gob, Encoding::Native),
        (Encoding::Native, Encoding::Gob),
    ] {
        let (site, daemon) = Site::running().await;
        let (mut controller, mut node) = site.pair(&daemon, from, to).await;
        let sent = TraceNode {
            uuid: controller.uuid,
            role: Role::CONTROLLER,
            tx: Timestamp::from_unix_ns(1_500_000_000_123_456_790),
            rx: Timestamp::UNSET,
        };
        let frame = traced(&controller, Some(vec![sent.clone()]));
        controller.send_frame(frame.clone()).await;
        let got = node.expect(Kind::START).await;
        assert_eq!(got.payload, frame.payload);
        assert_eq!(got.origin, controller.uuid);
        let (before, after) = (frame.trace.unwrap(), got.trace.unwrap());
        assert_eq!((after.label, after.end), (before.label, before.end));
        assert_eq!(after.start, before.start);
        let path = after.path.unwrap();
        assert_eq!(path.len(), 2);
        assert_eq!(path[0], sent);
        assert_eq!((path[1].uuid, path[1].role), (daemon.uuid, Role::SCHEDULER));
        assert!(path[1].rx.unix_ns() > 0 && path[1].tx.unix_ns() >= path[1].rx.unix_ns());
    }
}

#[tokio::test]
async fn a_label_without_a_path_stays_without_one() {
    let (site, daemon) = Site::running().await;
    let (mut controller, mut node) = site.pair(&daemon, Encoding::Gob, Encoding::Native).await;
    let frame = traced(&controller, None);
    controller.send_frame(frame.clone()).await;
    assert_eq!(node.expect(Kind::START).await, frame);
}

#[tokio::test]
async fn a_path_that_is_full_is_carried_on_as_it_is() {
    let (site, daemon) = Site::running().await;
    let (mut controller, mut node) = site.pair(&daemon, Encoding::Gob, Encoding::Gob).await;
    let one = TraceNode {
        uuid: controller.uuid,
        role: Role::CONTROLLER,
        tx: Timestamp::from_unix_ns(1),
        rx: Timestamp::from_unix_ns(2),
    };
    let frame = traced(&controller, Some(vec![one; 255]));
    controller.send_frame(frame.clone()).await;
    assert_eq!(node.expect(Kind::START).await, frame);
}
