//! What test peers say: payloads of launchers and controllers, and verbs that send them.

#![allow(dead_code, reason = "each test program uses a part of it")]
#![allow(clippy::unwrap_used, reason = "a test ends where it fails")]

use bytes::Bytes;
use proto_frames::payload::{
    AttachVolume, CommandRefused, ControllerRole, ControllerStatus, Delete, InstanceStat,
    InstanceState, NodeConnected, NodeDisconnected, NodeView, Payload, Query, QueryKind,
    QueryResult, Ready, Requirements, Start, StartFailure, StartFailureReason, Stats, Topic, Watch,
};
use proto_frames::{Kind, Uuid};

use crate::peer::Peer;

/// More memory than any test asks for, MiB.
pub(crate) const PLENTY: i64 = 1 << 40;

/// The instance with this number.
pub(crate) fn instance(number: u128) -> Uuid {
    Uuid::from_u128(0x1257_a9ce << 64 | number)
}

/// A START for so much memory.
pub(crate) fn start(instance: Uuid, mem_mb: i64) -> Bytes {
    start_of(instance, mem_mb).encode()
}

/// As [`start`], as a value.
pub(crate) fn start_of(instance: Uuid, mem_mb: i64) -> Start {
    Start {
        instance_uuid: instance.to_string(),
        vm_type: "qemu".to_owned(),
        requirements: Requirements {
            mem_mb,
            vcpus: 1,
            ..Requirements::default()
        },
        ..Start::default()
    }
}

/// A START for one MiB whose payload is this long, as one with cloud-init data is.
pub(crate) fn large_start(instance: Uuid, len: usize) -> Bytes {
    let mut payload = start(instance, 1).to_vec();
    payload.extend_from_slice(b"...\n");
    payload.resize(len.max(payload.len()), b'{');
    payload.into()
}

/// A DELETE for a node.
pub(crate) fn delete(instance: Uuid, node: Uuid) -> Bytes {
    Delete {
        instance_uuid: instance.to_string(),
        workload_agent_uuid: node.to_string(),
        stop: false,
        ..Delete::default()
    }
    .encode()
}

/// An AttachVolume for a node.
pub(crate) fn attach_volume(instance: Uuid, node: Uuid) -> Bytes {
    AttachVolume {
        instance_uuid: instance.to_string(),
        volume_uuid: "67d86208-b46c-4465-9018-e14187d4010".to_owned(),
        workload_agent_uuid: node.to_string(),
    }
    .encode()
}

/// The instance that a START is for.
pub(crate) fn started(payload: &[u8]) -> Uuid {
    Start::decode(payload)
        .unwrap()
        .instance_uuid
        .parse()
        .unwrap()
}

/// The instance that a DELETE is for.
pub(crate) fn deleted(payload: &[u8]) -> Uuid {
    Delete::decode(payload)
        .unwrap()
        .instance_uuid
        .parse()
        .unwrap()
}

impl Peer {
    /// Reports as a node with so much memory free, and all of everything else.
    pub(crate) async fn ready(&mut self, mem_mb: i64) {
        let ready = Ready {
            node_uuid: self.uuid.to_string(),
            mem_total_mb: mem_mb,
            mem_available_mb: mem_mb,
            disk_total_mb: PLENTY,
            disk_available_mb: PLENTY,
            cpus_online: 1 << 20,
            hostname: format!("host-{}", self.uuid),
            ..Ready::default()
        };
        self.send(Kind::READY, ready.encode()).await;
    }

    /// Reports these instances as running.
    pub(crate) async fn stats(&mut self, instances: &[Uuid]) {
        let stat = |instance: &Uuid| InstanceStat {
            instance_uuid: instance.to_string(),
            state: InstanceState::Active,
            memory_usage_mb: 1,
            ..InstanceStat::default()
        };
        let stats = Stats {
            node_uuid: self.uuid.to_string(),
            status: "READY".to_owned(),
            instances: instances.iter().map(stat).collect(),
            ..Stats::default()
        };
        self.send(Kind::STATS, stats.encode()).await;
    }

    /// Sends a START.
    pub(crate) async fn start(&mut self, instance: Uuid, mem_mb: i64) {
        self.send(Kind::START, start(instance, mem_mb)).await;
    }

    /// The next frame must be a START; its instance.
    pub(crate) async fn expect_start(&mut self) -> Uuid {
        started(&self.expect(Kind::START).await.payload)
    }

    /// The next frame must be a StartFailure for this reason; its instance, nil if it names none.
    pub(crate) async fn expect_failure(&mut self, reason: StartFailureReason) -> Uuid {
        let frame = self.expect(Kind::START_FAILURE).await;
        let failure = StartFailure::decode(&frame.payload).unwrap();
        assert_eq!(failure.reason, reason, "{failure:?}");
        failure.instance_uuid.parse().unwrap_or_default()
    }

    /// The next frame must be a CommandRefused.
    pub(crate) async fn expect_refused(&mut self) -> CommandRefused {
        CommandRefused::decode(&self.expect(Kind::COMMAND_REFUSED).await.payload).unwrap()
    }

    /// The next frame must be a NodeConnected; its node.
    pub(crate) async fn expect_node(&mut self) -> Uuid {
        let event = self.expect(Kind::NODE_CONNECTED).await;
        let event = NodeConnected::decode(&event.payload).unwrap();
        event.node_uuid.parse().unwrap()
    }

    /// The next frame must be a NodeDisconnected; its node.
    pub(crate) async fn expect_node_gone(&mut self) -> Uuid {
        let event = self.expect(Kind::NODE_DISCONNECTED).await;
        let event = NodeDisconnected::decode(&event.payload).unwrap();
        event.node_uuid.parse().unwrap()
    }

    /// The next frame must say this of its standing.
    pub(crate) async fn expect_role(&mut self, standing: ControllerRole) {
        let status = self.expect(Kind::CONTROLLER_STATUS).await;
        let status = ControllerStatus::decode(&status.payload).unwrap();
        assert_eq!(status.status, standing);
    }

    /// Asks for what the scheduler knows; leaves out what comes before the answer.
    pub(crate) async fn query(&mut self, what: QueryKind) -> QueryResult {
        let query = Query {
            id: 7,
            what,
            ..Query::default()
        };
        self.send(Kind::QUERY, query.encode()).await;
        let answer = self.skip_to(Kind::QUERY_RESULT).await;
        let answer = QueryResult::decode(&answer.payload).unwrap();
        assert_eq!(answer.id, 7);
        answer
    }

    /// What the scheduler knows of a node; `None` if nothing.
    pub(crate) async fn node_view(&mut self, node: Uuid) -> Option<NodeView> {
        let answer = self.query(QueryKind::Nodes).await;
        let node = node.to_string();
        answer.nodes.into_iter().find(|view| view.node_uuid == node)
    }

    /// Says which events it wants.
    pub(crate) async fn watch(&mut self, topics: &[Topic]) {
        let topics = topics.to_vec();
        self.send(Kind::WATCH, Watch { topics }.encode()).await;
    }
}
