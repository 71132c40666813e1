//! A proxy between two processes, which can be shut in each direction by itself. What comes while it is shut is held, as
//! the network holds it that loses packets until they are sent again; also that a connection was closed.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

/// Bytes that are taken at a time.
const CHUNK: usize = 16 * 1024;

/// A proxy. Dropping it closes its connections.
pub(crate) struct Gate {
    /// Where it is reached.
    pub(crate) address: SocketAddr,
    /// From who connects.
    pub(crate) there: Arc<Way>,
    /// To who connects.
    pub(crate) back: Arc<Way>,
    connections: Arc<AtomicU64>,
    accepts: JoinHandle<()>,
}

/// There and back.
pub(crate) type Ways = (Arc<Way>, Arc<Way>);

/// One direction.
pub(crate) struct Way {
    is_open: watch::Sender<bool>,
    bytes: AtomicU64,
    /// How many more bytes go through before it shuts for ever.
    left: AtomicI64,
}

impl Gate {
    /// Opens one to this address, `host:port`.
    pub(crate) async fn to(target: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (there, back) = (Way::open(), Way::open());
        let connections = Arc::new(AtomicU64::new(0));
        let accepting = accept(
            listener,
            target.to_owned(),
            (Arc::clone(&there), Arc::clone(&back)),
            Arc::clone(&connections),
        );
        Self {
            address,
            there,
            back,
            connections,
            accepts: tokio::spawn(accepting),
        }
    }

    /// Shuts or opens both directions.
    pub(crate) fn set(&self, is_open: bool) {
        self.there.set(is_open);
        self.back.set(is_open);
    }

    /// How many connections it has taken.
    pub(crate) fn connections(&self) -> u64 {
        self.connections.load(Ordering::SeqCst)
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.accepts.abort();
    }
}

impl Way {
    /// One that is open.
    pub(crate) fn open() -> Arc<Self> {
        Arc::new(Self {
            is_open: watch::Sender::new(true),
            bytes: AtomicU64::new(0),
            left: AtomicI64::new(i64::MAX),
        })
    }

    /// Shuts or opens it.
    pub(crate) fn set(&self, is_open: bool) {
        self.is_open.send_replace(is_open);
    }

    /// How many bytes have come to it, held or not.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::SeqCst)
    }

    /// Shuts it for ever after so many more bytes.
    pub(crate) fn shut_after(&self, bytes: u64) {
        self.left.store(bytes.try_into().unwrap(), Ordering::SeqCst);
    }

    /// Whether it has shut for ever.
    pub(crate) fn is_over(&self) -> bool {
        self.left.load(Ordering::SeqCst) < 0
    }

    async fn opened(&self) {
        // The sender is here.
        let _ = self.is_open.subscribe().wait_for(|it| *it).await;
        if self.is_over() {
            std::future::pending::<()>().await;
        }
    }

    /// Carries all that comes, after these bytes.
    async fn carry(&self, head: Vec<u8>, mut from: OwnedReadHalf, mut to: OwnedWriteHalf) {
        let mut chunk = vec![0; CHUNK];
        if self.pass(&head, &mut to).await.is_err() {
            return;
        }
        while let Ok(len @ 1..) = from.read(&mut chunk).await {
            if self.pass(&chunk[..len], &mut to).await.is_err() {
                return;
            }
        }
        self.opened().await;
        let _ = to.shutdown().await;
    }

    async fn pass(&self, bytes: &[u8], to: &mut OwnedWriteHalf) -> std::io::Result<()> {
        self.bytes.fetch_add(bytes.len() as u64, Ordering::SeqCst);
        self.opened().await;
        let count = i64::try_from(bytes.len()).unwrap();
        let left = self.left.fetch_sub(count, Ordering::SeqCst);
        let passes = usize::try_from(left.clamp(0, count)).unwrap();
        to.write_all(&bytes[..passes]).await
    }
}

/// Carries a connection to this address, of which these bytes were read.
pub(crate) async fn carry(near: TcpStream, head: Vec<u8>, target: &str, (there, back): Ways) {
    let Ok(far) = TcpStream::connect(target).await else {
        return;
    };
    let _ = (near.set_nodelay(true), far.set_nodelay(true));
    let (near_read, near_write) = near.into_split();
    let (far_read, far_write) = far.into_split();
    tokio::join!(
        there.carry(head, near_read, far_write),
        back.carry(Vec::new(), far_read, near_write)
    );
}

async fn accept(listener: TcpListener, target: String, ways: Ways, connections: Arc<AtomicU64>) {
    // Its end is theirs.
    let mut carried = JoinSet::new();
    while let Ok((near, _)) = listener.accept().await {
        connections.fetch_add(1, Ordering::SeqCst);
        let (target, ways) = (target.clone(), ways.clone());
        carried.spawn(async move { carry(near, Vec::new(), &target, ways).await });
    }
}
