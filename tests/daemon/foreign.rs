//! What a launcher says of an instance that another node has reaches no controller: neither one that speaks gob, as the
//! original's do, nor a native one, nor an operator.

use bytes::Bytes;
use proto_frames::payload::{
    AttachVolumeFailure, AttachVolumeFailureReason, DeleteFailure, DeleteFailureReason,
    InstanceDeleted, InstanceStat, InstanceState, InstanceStopped, Payload, StartFailure,
    StartFailureReason, Stats, Topic,
};
use proto_frames::{Encoding, Frame, Kind, Role, Uuid};

use crate::peer::Peer;
use crate::site::{Daemon, Site};
use crate::words::{PLENTY, delete, instance};

/// The cluster: two launchers, a controller of each kind, and an operator that hears everything.
struct Cluster {
    master: Peer,
    original: Peer,
    operator: Peer,
    honest: Peer,
    liar: Peer,
}

impl Cluster {
    async fn new(site: &Site, daemon: &Daemon, launchers: Encoding) -> Self {
        let master = site.master(daemon).await;
        let original = site.connect(daemon, Role::CONTROLLER, Encoding::Gob).await;
        let mut operator = site.operator(daemon).await;
        operator
            .watch(&[Topic::Stats, Topic::Instances, Topic::Failures])
            .await;
        let mut honest = site.connect(daemon, Role::AGENT, launchers).await;
        honest.ready(PLENTY).await;
        honest.nothing_else().await;
        let liar = site.connect(daemon, Role::AGENT, launchers).await;
        let mut cluster = Self {
            master,
            original,
            operator,
            honest,
            liar,
        };
        cluster.master.start(instance(1), 1).await;
        assert_eq!(cluster.honest.expect_start().await, instance(1));
        cluster.honest.stats(&[instance(1)]).await;
        cluster.honest.nothing_else().await;
        cluster.heard().await;
        cluster
    }

    /// What each of those that follow instances was told, after the scheduler has handled what launchers sent so far.
    async fn heard(&mut self) -> [Vec<Frame>; 3] {
        self.honest.settle().await;
        self.liar.settle().await;
        [
            self.master.settle().await,
            self.original.settle().await,
            self.operator.settle().await,
        ]
    }

    async fn nobody_hears(&mut self) {
        for heard in self.heard().await {
            assert!(heard.is_empty(), "{heard:?}");
        }
    }
}

/// Everything that a launcher may say is wrong with an instance, or that it is gone.
fn lies(node: Uuid, instance: Uuid) -> Vec<(Kind, Bytes)> {
    let (node_uuid, instance_uuid) = (node.to_string(), instance.to_string());
    let failed = StartFailure {
        node_uuid: node_uuid.clone(),
        instance_uuid: instance_uuid.clone(),
        reason: StartFailureReason::LaunchFailure,
        ..StartFailure::default()
    };
    let deleted = InstanceDeleted {
        instance_uuid: instance_uuid.clone(),
        ..InstanceDeleted::default()
    };
    let stopped = InstanceStopped {
        instance_uuid: instance_uuid.clone(),
        ..InstanceStopped::default()
    };
    let not_deleted = DeleteFailure {
        node_uuid: node_uuid.clone(),
        instance_uuid: instance_uuid.clone(),
        reason: DeleteFailureReason::NoInstance,
    };
    let not_attached = AttachVolumeFailure {
        node_uuid,
        instance_uuid: instance_uuid.clone(),
        volume_uuid: "v".to_owned(),
        reason: AttachVolumeFailureReason::NoInstance,
    };
    // What readers that are less strict take for the end of an instance as well.
    let torn =
        format!("instance_deleted:\n  instance_uuid: {instance_uuid}\n  exit_code: [none]\n");
    let two =
        format!("instance_deleted:\n  instance_uuid: other\n  instance_uuid: {instance_uuid}\n");
    vec![
        (Kind::START_FAILURE, failed.encode()),
        (Kind::INSTANCE_DELETED, deleted.encode()),
        (Kind::INSTANCE_STOPPED, stopped.encode()),
        (Kind::DELETE_FAILURE, not_deleted.encode()),
        (Kind::ATTACH_VOLUME_FAILURE, not_attached.encode()),
        (Kind::INSTANCE_DELETED, torn.into()),
        (Kind::INSTANCE_DELETED, two.into()),
    ]
}

fn stats(node: Uuid, listed: &[(Uuid, InstanceState)]) -> Stats {
    let stat = |(instance, state): &(Uuid, InstanceState)| InstanceStat {
        instance_uuid: instance.to_string(),
        state: state.clone(),
        ..InstanceStat::default()
    };
    Stats {
        node_uuid: node.to_string(),
        status: "READY".to_owned(),
        hostname: "h".to_owned(),
        instances: listed.iter().map(stat).collect(),
        ..Stats::default()
    }
}

#[tokio::test]
async fn no_controller_hears_a_launcher_end_what_another_has() {
    for launchers in [Encoding::Native, Encoding::Gob] {
        let (site, daemon) = Site::running().await;
        let mut cluster = Cluster::new(&site, &daemon, launchers).await;
        let liar = cluster.liar.uuid;
        for (kind, lie) in lies(liar, instance(1)) {
            for _ in 0..2 {
                cluster.liar.send(kind, lie.clone()).await;
            }
        }
        cluster.nobody_hears().await;
        let line = daemon
            .logged(&format!("dropped EVENT InstanceDeleted from node {liar}"))
            .await;
        assert!(line.contains(&instance(1).to_string()), "{line}");
        let again = |line: &&String| line.contains("dropped EVENT InstanceDeleted from node");
        assert_eq!(daemon.log().iter().filter(again).count(), 1);
        // The node that has it is heard, by everybody.
        cluster
            .master
            .send(Kind::DELETE, delete(instance(1), cluster.honest.uuid))
            .await;
        cluster.honest.expect(Kind::DELETE).await;
        let (kind, end) = lies(cluster.honest.uuid, instance(1)).swap_remove(1);
        cluster.honest.send(kind, end.clone()).await;
        for heard in cluster.heard().await {
            let heard: Vec<_> = heard.into_iter().map(|it| (it.kind, it.payload)).collect();
            assert_eq!(heard, [(kind, end.clone())]);
        }
        // Known nowhere by now, it is anybody's.
        cluster.liar.send(kind, end).await;
        for heard in cluster.heard().await {
            assert_eq!(heard.len(), 1);
        }
    }
}

#[tokio::test]
async fn a_stats_reaches_controllers_without_the_instances_of_other_nodes() {
    for launchers in [Encoding::Native, Encoding::Gob] {
        let (site, daemon) = Site::running().await;
        let mut cluster = Cluster::new(&site, &daemon, launchers).await;
        let liar = cluster.liar.uuid;
        let own = (instance(7), InstanceState::Active);
        let said = stats(
            liar,
            &[
                (instance(1), InstanceState::Exited),
                own.clone(),
                (instance(1), InstanceState::Active),
            ],
        );
        cluster.liar.send(Kind::STATS, said.encode()).await;
        let left = stats(liar, &[own]);
        for heard in cluster.heard().await {
            assert_eq!(heard.len(), 1, "{heard:?}");
            assert_eq!(heard[0].payload, left.encode());
        }
        // One that lists its own alone is carried on as the bytes that came, whatever they look like.
        let odd = format!(
            "{{node_uuid: {liar}, x: 1, instances: [{{instance_uuid: {}}}]}}",
            instance(7)
        );
        cluster.liar.send(Kind::STATS, odd.clone()).await;
        for heard in cluster.heard().await {
            assert_eq!(heard.len(), 1, "{heard:?}");
            assert_eq!(heard[0].payload, odd);
        }
    }
}
