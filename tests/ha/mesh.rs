//! Proxies between members of etcd, which can be shut for each two of them and in each direction by itself.
//!
//! Each member has one, by which the others reach it. Who connects is told by what members write at the head of each
//! connection that carries their messages. What has no such head, as leases that are renewed at another member, is cut off
//! with a member that is cut off from all others.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use tokio::io::AsyncReadExt as _;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};

use crate::etcd::{Etcd, Own, host};
use crate::gate::{Way, Ways, carry};

/// The field by which members say who they are.
const FROM: &str = "X-Server-From: ";

/// Who has connected without such a field.
const UNNAMED: &str = "";

/// Longest head of a connection.
const MAX_HEAD: usize = 16 * 1024;

/// Proxies. Dropping them closes all connections.
pub(crate) struct Mesh {
    shared: Arc<Shared>,
    accepts: Vec<JoinHandle<()>>,
    /// What members call each other.
    ids: Vec<String>,
}

#[derive(Default)]
struct Shared {
    /// Where members take each other.
    peers: OnceLock<Vec<String>>,
    /// By who has connected and to whom.
    ways: Mutex<HashMap<(String, usize), Ways>>,
}

impl Mesh {
    /// Members of etcd with proxies between them. The first has these flags besides.
    pub(crate) async fn start(count: usize, first: &[&str]) -> (Etcd, Self) {
        let mut own = vec![Own::default(); count];
        own[0].flags = first.iter().map(|it| (*it).to_owned()).collect();
        let shared = Arc::new(Shared::default());
        let mut accepts = Vec::new();
        for (member, own) in own.iter_mut().enumerate() {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            own.door = Some(listener.local_addr().unwrap().to_string());
            let accepting = accept(listener, member, Arc::clone(&shared));
            accepts.push(tokio::spawn(accepting));
        }
        let etcd = Etcd::start_each(host(), "http", &own, &[]);
        shared.peers.set(etcd.peers.clone()).unwrap();
        etcd.leader().await;
        let ids = etcd.ids();
        let mesh = Self {
            shared,
            accepts,
            ids,
        };
        (etcd, mesh)
    }

    /// Shuts or opens the way of what one member sends to another.
    pub(crate) fn set(&self, from: usize, to: usize, is_open: bool) {
        self.shared.ways(&self.ids[from], to).0.set(is_open);
        self.shared.ways(&self.ids[to], from).1.set(is_open);
    }

    /// Shuts or opens all ways from and to this member.
    pub(crate) fn set_all(&self, member: usize, is_open: bool) {
        for other in (0..self.ids.len()).filter(|it| *it != member) {
            self.set(member, other, is_open);
            self.set(other, member, is_open);
        }
        let (there, back) = self.shared.ways(UNNAMED, member);
        there.set(is_open);
        back.set(is_open);
    }
}

impl Drop for Mesh {
    fn drop(&mut self) {
        self.accepts.iter().for_each(JoinHandle::abort);
    }
}

impl Shared {
    fn ways(&self, from: &str, to: usize) -> Ways {
        let mut ways = self.ways.lock();
        let ways = ways.entry((from.to_owned(), to));
        ways.or_insert_with(|| (Way::open(), Way::open())).clone()
    }
}

async fn accept(listener: TcpListener, member: usize, shared: Arc<Shared>) {
    // Its end is theirs.
    let mut carried = JoinSet::new();
    while let Ok((mut near, _)) = listener.accept().await {
        let shared = Arc::clone(&shared);
        carried.spawn(async move {
            let head = head(&mut near).await;
            let ways = shared.ways(&sender(&head), member);
            if let Some(peers) = shared.peers.get() {
                carry(near, head, &peers[member], ways).await;
            }
        });
    }
}

/// What a connection begins with, up to the end of its first request's head.
async fn head(near: &mut TcpStream) -> Vec<u8> {
    let mut head = Vec::new();
    let is_over = |head: &[u8]| head.windows(4).any(|it| it == b"\r\n\r\n");
    while head.len() < MAX_HEAD && !is_over(&head) {
        match near.read_buf(&mut head).await {
            Ok(1..) => {}
            _ => break,
        }
    }
    head
}

/// Who has connected, by the head of the connection.
fn sender(head: &[u8]) -> String {
    let head = String::from_utf8_lossy(head);
    let mut fields = head.lines().filter_map(|line| line.strip_prefix(FROM));
    fields.next().unwrap_or(UNNAMED).to_owned()
}
