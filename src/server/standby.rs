//! A scheduler that waits for its turn: it listens where it will serve, and refuses everybody with the leader's address.
//!
//! Native peers that speak frames are told after TLS and CONNECT that another try may help (`ConnectionFailure`). Connections of
//! original ones are closed before TLS, after which they try the next address: told once TLS stands, they never would. What is asked over HTTP is answered with 503, but for `/livez`. Connections of the Placement API
//! without TLS are closed.

use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::sync::{Semaphore, watch};
use tokio::time::{sleep, timeout};
use tracing::{debug, error, info};

use super::accept::{Listener, Speaks, poll_accept};
use super::credentials::{Credentials, Live, Moment};
use super::handshake::{self, Acceptor, HandshakeError};
use super::http;
use super::limits::MAX_ACCEPT_PAUSE;
use super::start::{ServerConfig, StartError, open_all};
use crate::net::tls::NATIVE_PROTOCOL;

/// Connections that are refused at a time; more wait in the kernel. As many as the handshakes that a leader has under
/// way.
const REFUSALS: usize = super::limits::MAX_HANDSHAKES;

/// Longest first message of TLS that is looked at: rustls and Go send less than 2 KiB.
const MAX_FIRST_MESSAGE: usize = 16 * 1024;

/// Pause before a first message of which a part has come is looked at again.
const PEEK_AGAIN: Duration = Duration::from_millis(20);

/// How long a connection may take to be refused.
const REFUSAL_LIMIT: Duration = Duration::from_secs(5);

/// A scheduler that listens and does not lead. What it opened goes to the [`Server`](super::Server) that it becomes.
#[derive(Debug)]
pub struct Standby {
    pub(super) listeners: Vec<Listener>,
    acceptor: Acceptor,
    config: ServerConfig,
}

impl Standby {
    /// Loads certificates and opens the sockets.
    ///
    /// # Errors
    /// [`StartError`]: the first thing that fails.
    pub fn bind(config: &ServerConfig) -> Result<Self, StartError> {
        let credentials = Credentials::load(config, Moment::Start)?;
        Ok(Self {
            listeners: open_all(config)?,
            acceptor: Acceptor {
                credentials: Live::new(credentials),
                limits: Arc::new(config.limits.clone()),
                require_binding: false,
            },
            config: config.clone(),
        })
    }

    /// The addresses at which it refuses peers that speak frames, with real ports.
    ///
    /// # Errors
    /// The system's.
    pub fn local_addrs(&self) -> io::Result<Vec<SocketAddr>> {
        self.addresses(Speaks::Ssntp)
    }

    /// The addresses at which it answers over HTTP, with real ports.
    ///
    /// # Errors
    /// The system's.
    pub fn http_addrs(&self) -> io::Result<Vec<SocketAddr>> {
        self.addresses(Speaks::Http)
    }

    fn addresses(&self, speaks: Speaks) -> io::Result<Vec<SocketAddr>> {
        let listeners = self.listeners.iter().filter(|it| it.speaks == speaks);
        listeners.map(|it| it.socket.local_addr()).collect()
    }

    /// Refuses everybody, for ever, and reads its certificates again at each SIGHUP. `leader`: where the leader is, as far
    /// as that is known.
    pub async fn refuse_all(&self, leader: watch::Receiver<Option<String>>) {
        let hangups = async {
            loop {
                self.config.reload.hangups.next().await;
                self.read_again();
            }
        };
        tokio::select! {
            () = self.refuse_each(leader) => {}
            () = hangups => {}
        }
    }

    /// Reads certificates and anchors again, and takes all of them or none: as a leader does. All else is read when this
    /// scheduler begins to lead.
    fn read_again(&self) {
        let live = &self.acceptor.credentials;
        let read = Credentials::load(&self.config, Moment::Reload).and_then(|read| {
            read.anchors.check_follow(&live.now().anchors)?;
            Ok(read)
        });
        match read {
            Ok(read) => {
                live.take(read);
                info!(
                    event = "files_reloaded",
                    "SIGHUP: the certificates of this standby are read again"
                );
            }
            Err(mistake) => error!(
                event = "reload_refused",
                "SIGHUP: all stays as it was: {mistake}"
            ),
        }
    }

    async fn refuse_each(&self, leader: watch::Receiver<Option<String>>) {
        let places = Arc::new(Semaphore::new(REFUSALS));
        loop {
            let Ok(place) = Arc::clone(&places).acquire_owned().await else {
                return;
            };
            match poll_fn(|cx| poll_accept(&self.listeners, 0, cx)).await {
                Ok((tcp, from, speaks)) => {
                    let why = standby(leader.borrow().as_deref());
                    let acceptor = self.acceptor.clone();
                    tokio::spawn(async move {
                        let refusal = refuse((tcp, speaks), &acceptor, &why);
                        if timeout(REFUSAL_LIMIT, refusal).await.is_err() {
                            debug!("{from}: was not refused within {REFUSAL_LIMIT:?}");
                        }
                        drop(place);
                    });
                }
                Err(error) => {
                    debug!("cannot accept connections: {error}");
                    sleep(MAX_ACCEPT_PAUSE).await;
                }
            }
        }
    }
}

/// What is said to who comes.
fn standby(leader: Option<&str>) -> HandshakeError {
    HandshakeError::Standby(match leader {
        Some(leader) => format!("; the leader is at {leader}"),
        None => "; no scheduler leads now".to_owned(),
    })
}

async fn refuse((tcp, speaks): (TcpStream, Speaks), acceptor: &Acceptor, why: &HandshakeError) {
    match speaks {
        Speaks::Ssntp => {
            if is_native(&tcp).await
                && let Ok(peer) = handshake::greet(tcp, acceptor).await
            {
                peer.refuse(why).await;
            }
        }
        Speaks::Http | Speaks::PlacementTls => {
            let shown = (&*acceptor.credentials, speaks);
            if let Ok(stream) = handshake::greet_tls(tcp, shown, &acceptor.limits).await {
                http::stand_by(stream, why).await;
            }
        }
        Speaks::Placement => {}
    }
}

/// Whether the peer names [`NATIVE_PROTOCOL`] in its first message, which stays to be read.
async fn is_native(tcp: &TcpStream) -> bool {
    let mut first = vec![0; MAX_FIRST_MESSAGE];
    loop {
        let Ok(len @ 1..) = tcp.peek(&mut first).await else {
            return false;
        };
        let mut acceptor = rustls::server::Acceptor::default();
        // What it has read of the slice it keeps: all of it, at the first go or the next.
        let mut rest = &first[..len];
        while !rest.is_empty() && acceptor.read_tls(&mut rest).is_ok_and(|len| len > 0) {}
        match acceptor.accept() {
            Ok(Some(accepted)) => {
                let protocols = accepted.client_hello().alpn();
                return protocols
                    .into_iter()
                    .flatten()
                    .any(|it| it == NATIVE_PROTOCOL);
            }
            Ok(None) if len < MAX_FIRST_MESSAGE => sleep(PEEK_AGAIN).await,
            _ => return false,
        }
    }
}
