//! How tests begin: a daemon that runs, and the peers that have joined it.

use proto_frames::payload::ControllerRole;
use proto_frames::{Encoding, Role};

use crate::peer::Peer;
use crate::site::{Daemon, Site};
use crate::words::PLENTY;

impl Site {
    /// One whose daemon runs, without further flags.
    pub(crate) async fn running() -> (Self, Daemon) {
        let site = Self::new();
        let daemon = site.start(&[]).await;
        (site, daemon)
    }

    /// The same with a native controller that is master.
    pub(crate) async fn with_master() -> (Self, Daemon, Peer) {
        let (site, daemon) = Self::running().await;
        let master = site.master(&daemon).await;
        (site, daemon, master)
    }

    /// The same with a native node as well, which the master has heard of.
    pub(crate) async fn with_node() -> (Self, Daemon, Peer, Peer) {
        let (site, daemon, mut master) = Self::with_master().await;
        let node = site.node(&daemon).await;
        master.expect_node().await;
        (site, daemon, master, node)
    }

    /// The same with a node that takes work.
    pub(crate) async fn with_ready_node() -> (Self, Daemon, Peer, Peer) {
        let (site, daemon, master, mut node) = Self::with_node().await;
        node.ready(PLENTY).await;
        (site, daemon, master, node)
    }

    /// A controller of one encoding, and a node of another one that takes work.
    pub(crate) async fn pair(&self, daemon: &Daemon, from: Encoding, to: Encoding) -> (Peer, Peer) {
        let controller = self.connect(daemon, Role::CONTROLLER, from).await;
        let mut node = self.connect(daemon, Role::AGENT, to).await;
        node.ready(PLENTY).await;
        node.nothing_else().await;
        (controller, node)
    }

    /// A native controller that has been told that it is backup.
    pub(crate) async fn backup(&self, daemon: &Daemon) -> Peer {
        let mut peer = self
            .connect(daemon, Role::CONTROLLER, Encoding::Native)
            .await;
        peer.expect_role(ControllerRole::Backup).await;
        peer
    }
}
