//! A node: what it reported, what is claimed on it, and so what it still offers. And the store of all of them.

use std::time::Instant;

use indexmap::IndexMap;
use proto_frames::{Role, Uuid};

use super::config::{Config, MAX_INSTANCES_PER_NODE};
use super::ids::{NodeKey, SessionId};
use super::input::{Backlog, NodeReport};
use super::ledger::{Ledger, Measured};
use super::resources::{MAX_REPORTED, Resources};
use super::table::Slot;

/// The two tables of nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pool {
    /// Nodes with role AGENT.
    Compute,
    /// Nodes with role NETAGENT.
    Network,
}

impl Pool {
    /// Both.
    pub(super) const ALL: [Self; 2] = [Self::Compute, Self::Network];

    /// The role a node of this table has.
    pub(super) fn role(self) -> Role {
        match self {
            Self::Compute => Role::AGENT,
            Self::Network => Role::NETAGENT,
        }
    }
}

/// What a node last said of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodeStatus {
    /// Connected, and has said nothing yet.
    Connected,
    /// Takes work.
    Ready,
    /// Has no room.
    Full,
    /// Is going away.
    Offline,
    /// Is evacuated.
    Maintenance,
}

impl NodeStatus {
    /// Its name in logs and queries.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Connected => "CONNECTED",
            Self::Ready => "READY",
            Self::Full => "FULL",
            Self::Offline => "OFFLINE",
            Self::Maintenance => "MAINTENANCE",
        }
    }
}

/// Whether a node is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Presence {
    /// Over this connection.
    Connected(SessionId),
    /// Its connection ended at this moment; its claims are kept for the in-doubt time.
    Lost(Instant),
}

/// One node.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) uuid: Uuid,
    pub(super) roles: Role,
    pub(super) presence: Presence,
    pub(super) since: Instant,
    pub(super) status: NodeStatus,
    pub(super) backlog: Backlog,
    pub(super) report: Option<Box<NodeReport>>,
    pub(super) ledger: Ledger,
    /// STARTs given to it on this connection.
    pub(super) starts_sent: u64,
    /// Its slots in the compute and the network table.
    pub(super) slots: [Option<Slot>; 2],
}

impl Node {
    /// A node that has just connected.
    pub(super) fn new(
        uuid: Uuid,
        roles: Role,
        session: SessionId,
        now: Instant,
        measured: Measured,
    ) -> Self {
        Self {
            uuid,
            roles,
            presence: Presence::Connected(session),
            since: now,
            status: NodeStatus::Connected,
            backlog: Backlog::Clear,
            report: None,
            ledger: Ledger::new(measured),
            starts_sent: 0,
            slots: [None; 2],
        }
    }

    /// Starts a new connection of this node: nothing is placed until it reports.
    pub(super) fn attach(&mut self, session: SessionId, now: Instant) {
        self.presence = Presence::Connected(session);
        self.since = now;
        self.status = NodeStatus::Connected;
        self.backlog = Backlog::Clear;
        self.starts_sent = 0;
    }

    /// The connection, if there is one.
    pub(super) fn session(&self) -> Option<SessionId> {
        match self.presence {
            Presence::Connected(session) => Some(session),
            Presence::Lost(_) => None,
        }
    }

    /// The host name it reported; empty before.
    pub(super) fn hostname(&self) -> &str {
        self.report.as_ref().map_or("", |report| &report.hostname)
    }

    /// What is free, whether or not the node takes work now: reported, scaled, less what is held.
    pub(super) fn free(&self, config: &Config) -> Resources {
        let Some(report) = &self.report else {
            return Resources::NEVER;
        };
        let held = self.ledger.held();
        let free = |available: i64, total: i64, ratio: f64, reserved: i64, held: i64| {
            if available < 0 {
                return i64::MIN;
            }
            let overcommit = (total.clamp(0, MAX_REPORTED) as f64 * (ratio - 1.0)) as i64;
            available
                .min(MAX_REPORTED)
                .saturating_add(overcommit)
                .saturating_sub(reserved)
                .saturating_sub(held)
        };
        let vcpus = if report.cpus_online < 0 {
            i64::MIN
        } else {
            ((report.cpus_online.min(MAX_REPORTED) as f64 * config.cpu_ratio) as i64)
                .saturating_sub(held.vcpus)
        };
        Resources {
            mem_mib: free(
                report.mem_available_mib,
                report.mem_total_mib,
                config.mem_ratio,
                config.reserved_mem_mib,
                held.mem_mib,
            ),
            vcpus,
            disk_mib: free(
                report.disk_available_mb,
                report.disk_total_mb,
                config.disk_ratio,
                config.reserved_disk_mib,
                held.disk_mib,
            ),
        }
    }

    /// Whether its connection stands, it takes work, and its table of instances has room.
    pub(super) fn takes_work(&self) -> bool {
        self.session().is_some()
            && self.status == NodeStatus::Ready
            && self.ledger.len() < MAX_INSTANCES_PER_NODE
    }

    /// What the tables offer of it: what is free, if it takes work and its queue is short.
    pub(super) fn offer(&self, config: &Config) -> Resources {
        if self.takes_work() && self.backlog == Backlog::Clear {
            self.free(config)
        } else {
            Resources::NEVER
        }
    }
}

/// All nodes known: connected, or lost with claims in doubt.
#[derive(Debug, Default)]
pub(super) struct NodeStore {
    slots: Vec<Option<Node>>,
    vacant: Vec<NodeKey>,
    by_uuid: IndexMap<Uuid, NodeKey>,
    by_hostname: IndexMap<Box<str>, Vec<NodeKey>>,
}

impl NodeStore {
    /// The node with this key.
    ///
    /// # Panics
    /// If the node was removed: keys are dropped everywhere when a node is.
    pub(super) fn node(&self, key: NodeKey) -> &Node {
        self.slots[key.0 as usize]
            .as_ref()
            .expect("a node's key is dropped with it")
    }

    /// The node with this key, to be changed. Panics as [`NodeStore::node`].
    pub(super) fn node_mut(&mut self, key: NodeKey) -> &mut Node {
        self.slots[key.0 as usize]
            .as_mut()
            .expect("a node's key is dropped with it")
    }

    /// The node with this UUID.
    pub(super) fn by_uuid(&self, uuid: Uuid) -> Option<NodeKey> {
        self.by_uuid.get(&uuid).copied()
    }

    /// The nodes whose latest report has this host name.
    pub(super) fn by_hostname(&self, hostname: &str) -> &[NodeKey] {
        self.by_hostname.get(hostname).map_or(&[], Vec::as_slice)
    }

    /// Every node from a key on, in order of keys.
    pub(super) fn iter_from(&self, start: usize) -> impl Iterator<Item = (NodeKey, &Node)> {
        self.slots
            .iter()
            .enumerate()
            .skip(start)
            .filter_map(|(at, slot)| Some((key(at), slot.as_ref()?)))
    }

    /// Adds a node.
    pub(super) fn insert(&mut self, node: Node) -> NodeKey {
        let key = self.vacant.pop().unwrap_or_else(|| {
            self.slots.push(None);
            key(self.slots.len() - 1)
        });
        self.by_uuid.insert(node.uuid, key);
        self.slots[key.0 as usize] = Some(node);
        key
    }

    /// Takes a node out.
    pub(super) fn remove(&mut self, key: NodeKey) -> Option<Node> {
        let node = self.slots[key.0 as usize].take()?;
        self.by_uuid.swap_remove(&node.uuid);
        self.forget_hostname(key, node.hostname());
        self.vacant.push(key);
        if self.by_uuid.is_empty() {
            *self = Self::default();
        }
        Some(node)
    }

    /// Takes in a node's report.
    pub(super) fn set_report(&mut self, key: NodeKey, report: Box<NodeReport>) {
        let node = self.node_mut(key);
        let old = node.report.replace(report);
        let old_name = old.as_ref().map_or("", |report| &*report.hostname);
        let new_name = node.hostname();
        if old_name == new_name {
            return;
        }
        let new_name: Box<str> = new_name.into();
        self.forget_hostname(key, old_name);
        self.by_hostname.entry(new_name).or_default().push(key);
    }

    fn forget_hostname(&mut self, key: NodeKey, hostname: &str) {
        let Some(keys) = self.by_hostname.get_mut(hostname) else {
            return;
        };
        keys.retain(|&other| other != key);
        if keys.is_empty() {
            self.by_hostname.swap_remove(hostname);
        }
    }
}

fn key(at: usize) -> NodeKey {
    NodeKey(u32::try_from(at).expect("fewer than 2^32 nodes: sessions are bounded by open files"))
}
