//! A scheduler of which a test writes the script: it does TLS, CONNECT and the encodings, and leaves every frame to the
//! script.

use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::process::{Output, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use proto_frames::payload::{
    CommandRefused, InstancePlaced, InstanceView, NodeView, Payload, PlacementState, Query,
    QueryKind, QueryResult, RefusalReason, Start,
};
use proto_frames::{
    Connected, Decoder, Encoder, Encoding, Frame, Kind, Limits, Message, Role, Uuid,
};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt, ReadHalf, WriteHalf, split};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use ciao_scheduler::cert::Spec;

use crate::certs::{TestCa, write_private};

/// The longest any test may take; nothing is expected to take a tenth of it.
pub(crate) const DEADLINE: Duration = Duration::from_secs(60);

/// What a test makes of a frame: the peers, the one that sent it, the frame.
type Script = Box<dyn FnMut(&mut Peers, usize, &Frame) + Send>;

/// A listening scheduler with certificates for its clients.
pub(crate) struct Scheduler {
    pub(crate) address: SocketAddr,
    pub(crate) certs: TempDir,
    seen: Arc<Mutex<Vec<Frame>>>,
}

/// All connections so far.
#[derive(Default)]
pub(crate) struct Peers(Vec<Peer>);

struct Peer {
    role: Role,
    address: IpAddr,
    queue: Option<UnboundedSender<Frame>>,
}

struct Shared {
    peers: Peers,
    script: Script,
    seen: Arc<Mutex<Vec<Frame>>>,
}

impl Peers {
    /// Sends a frame to a peer.
    pub(crate) fn send(&self, to: usize, kind: Kind, payload: impl Into<Bytes>) {
        if let Some(queue) = &self.0[to].queue {
            let _ = queue.send(Frame::new(kind, Uuid::nil(), payload));
        }
    }

    /// Ends a peer's connection once everything sent to it is written.
    pub(crate) fn close(&mut self, peer: usize) {
        self.0[peer].queue = None;
    }

    /// The connected peers that have this role.
    pub(crate) fn with(&self, role: Role) -> Vec<usize> {
        (0..self.0.len())
            .filter(|i| self.0[*i].role == role && self.0[*i].queue.is_some())
            .collect()
    }

    /// The address that a peer connected from.
    pub(crate) fn address(&self, peer: usize) -> IpAddr {
        self.0[peer].address
    }

    /// The role of a peer.
    pub(crate) fn role(&self, peer: usize) -> Role {
        self.0[peer].role
    }
}

impl Scheduler {
    /// Listens, and plays this script.
    pub(crate) async fn playing(
        script: impl FnMut(&mut Peers, usize, &Frame) + Send + 'static,
    ) -> Self {
        let ca = TestCa::new();
        let certs = tempfile::tempdir().unwrap();
        std::fs::write(
            certs.path().join("CAcert-localhost.pem"),
            ca.anchor.ca_pem(),
        )
        .unwrap();
        for (name, role) in [("Controller", Role::CONTROLLER), ("CNAgent", Role::AGENT)] {
            let leaf = ca.anchor.sign(&Spec::localhost(role)).unwrap();
            write_private(
                &certs.path().join(format!("cert-{name}-localhost.pem")),
                leaf.pem(),
            );
        }
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let acceptor = TlsAcceptor::from(ca.server());
        let seen = Arc::default();
        let shared = Shared {
            peers: Peers::default(),
            script: Box::new(script),
            seen: Arc::clone(&seen),
        };
        let shared = Arc::new(Mutex::new(shared));
        tokio::spawn(async move {
            while let Ok((tcp, _)) = listener.accept().await {
                tokio::spawn(serve(acceptor.clone(), tcp, shared.clone()));
            }
        });
        Self {
            address,
            certs,
            seen,
        }
    }

    /// Payloads of all frames of a kind that came in so far.
    pub(crate) fn seen(&self, kind: Kind) -> Vec<Bytes> {
        let seen = self.seen.lock().unwrap();
        seen.iter()
            .filter(|frame| frame.kind == kind)
            .map(|frame| frame.payload.clone())
            .collect()
    }

    /// Runs `ciaoctl` with these arguments against this scheduler.
    pub(crate) async fn ctl(&self, args: &[&str]) -> Ran {
        self.ctl_with_input(args, "").await
    }

    /// As [`Scheduler::ctl`], with this text on its standard input.
    pub(crate) async fn ctl_with_input(&self, args: &[&str], input: &str) -> Ran {
        let mut child = self.command(args).stdin(Stdio::piped()).spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        stdin.write_all(input.as_bytes()).await.unwrap();
        drop(stdin);
        let output = tokio::time::timeout(DEADLINE, child.wait_with_output()).await;
        Ran::from(output.expect("ciaoctl does not end").unwrap())
    }

    /// The program with its environment.
    pub(crate) fn command(&self, args: &[&str]) -> tokio::process::Command {
        let mut command = ciaoctl(args);
        command.env("CIAO_SERVER", format!("localhost:{}", self.address.port()));
        command.env("CIAO_CERTS", self.certs.path());
        command
    }
}

/// The program without a scheduler.
pub(crate) fn ciaoctl(args: &[&str]) -> tokio::process::Command {
    let mut command = tokio::process::Command::new(Path::new(env!("CARGO_BIN_EXE_ciaoctl")));
    command
        .args(args)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    for name in ["CIAO_SERVER", "CIAO_CERT", "CIAO_CACERT", "CIAO_CERTS"] {
        command.env_remove(name);
    }
    command
}

/// How `ciaoctl` ended.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Ran {
    /// Its output as one JSON document.
    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.out).unwrap_or_else(|e| panic!("{e}: {self:?}"))
    }
}

impl From<Output> for Ran {
    fn from(output: Output) -> Self {
        let text = |bytes| String::from_utf8(bytes).unwrap();
        Self {
            code: output.status.code(),
            out: text(output.stdout),
            err: text(output.stderr),
        }
    }
}

async fn serve(acceptor: TlsAcceptor, tcp: TcpStream, shared: Arc<Mutex<Shared>>) {
    tcp.set_nodelay(true).unwrap();
    let address = tcp.peer_addr().unwrap().ip();
    let Ok(stream) = acceptor.accept(tcp).await else {
        return;
    };
    let (mut reader, writer) = split(stream);
    let mut inbound = Inbound {
        decoder: Decoder::server(Limits::default()),
        buffer: BytesMut::new(),
    };
    let Some(Message::Connect(connect)) = inbound.next(&mut reader).await else {
        return;
    };
    let (queue, queued) = unbounded_channel();
    let me = {
        let mut shared = shared.lock().unwrap();
        shared.peers.0.push(Peer {
            role: connect.role,
            address,
            queue: Some(queue),
        });
        shared.peers.0.len() - 1
    };
    let connected = Connected::new(Uuid::from_u128(1), connect.source, Bytes::new());
    tokio::spawn(write(
        writer,
        inbound.decoder.encoding().unwrap(),
        connected,
        queued,
    ));
    while let Some(message) = inbound.next(&mut reader).await {
        let Message::Frame(frame) = message else {
            panic!("out of turn: {message:?}")
        };
        let shared = &mut *shared.lock().unwrap();
        shared.seen.lock().unwrap().push(frame.clone());
        (shared.script)(&mut shared.peers, me, &frame);
    }
    shared.lock().unwrap().peers.close(me);
}

struct Inbound {
    decoder: Decoder,
    buffer: BytesMut,
}

impl Inbound {
    async fn next(&mut self, reader: &mut ReadHalf<TlsStream<TcpStream>>) -> Option<Message> {
        loop {
            if let Some(message) = self
                .decoder
                .decode(&mut self.buffer)
                .expect("what came is no frame")
            {
                return Some(message);
            }
            match reader.read_buf(&mut self.buffer).await {
                Ok(0) | Err(_) => return None,
                Ok(_) => {}
            }
        }
    }
}

/// Writes CONNECTED, then whatever is queued, until the queue is dropped.
async fn write(
    mut writer: WriteHalf<TlsStream<TcpStream>>,
    encoding: Encoding,
    connected: Connected,
    mut queued: UnboundedReceiver<Frame>,
) {
    let mut encoder = Encoder::new(encoding);
    let mut bytes = BytesMut::new();
    encoder.encode(&Message::Connected(connected), &mut bytes);
    loop {
        if writer.write_all(&bytes).await.is_err() || writer.flush().await.is_err() {
            return;
        }
        bytes.clear();
        let Some(frame) = queued.recv().await else {
            break;
        };
        encoder.encode_frame(&frame, &mut bytes);
        while let Ok(frame) = queued.try_recv() {
            encoder.encode_frame(&frame, &mut bytes);
        }
    }
    let _ = writer.shutdown().await;
}

/// A START's instance, for the answer to it.
pub(crate) fn instance_of(start: &Frame) -> String {
    Start::decode(&start.payload).unwrap().instance_uuid
}

/// The event that a START was given to `node-a`.
pub(crate) fn placed(instance_uuid: &str) -> Bytes {
    let node_uuid = "4cb19522-1111-4111-8111-111111111111".into();
    InstancePlaced {
        instance_uuid: instance_uuid.into(),
        node_uuid,
        hostname: "node-a".into(),
    }
    .encode()
}

/// Answers a query out of these nodes and instances, `page` at a time, as a scheduler does: those whose UUID begins so
/// or whose host has that name.
pub(crate) fn answer(
    query: &Frame,
    nodes: &[NodeView],
    instances: &[InstanceView],
    page: usize,
) -> Bytes {
    let query = Query::decode(&query.payload).unwrap();
    let from: usize = query
        .after
        .as_deref()
        .map_or(0, |after| after.parse().unwrap());
    let page = page.min(query.limit.unwrap() as usize);
    let wanted = query.matching.unwrap_or_default();
    let fits = |uuid: &str, host: &str| uuid.starts_with(&wanted) || host == wanted;
    let mut result = QueryResult {
        id: query.id,
        what: query.what.clone(),
        ..QueryResult::default()
    };
    let all = match query.what {
        QueryKind::Nodes => {
            let all = nodes
                .iter()
                .filter(|n| fits(&n.node_uuid, &n.hostname))
                .cloned()
                .collect::<Vec<_>>();
            result.nodes = all.iter().skip(from).take(page).cloned().collect();
            all.len()
        }
        QueryKind::Instances | QueryKind::Ended => {
            let has_ended = query.what == QueryKind::Ended;
            let all = instances
                .iter()
                .filter(|i| (i.state == PlacementState::Ended) == has_ended)
                .filter(|i| fits(&i.instance_uuid, &i.hostname) || i.name == wanted)
                .cloned()
                .collect::<Vec<_>>();
            result.instances = all.iter().skip(from).take(page).cloned().collect();
            all.len()
        }
        QueryKind::Queue => {
            let waiting = instances.iter().filter(|i| i.position.is_some());
            result.instances = waiting.cloned().collect();
            0
        }
        _ => 0,
    };
    result.next = (from + page < all).then(|| (from + page).to_string());
    result.encode()
}

/// A node with a UUID that begins with this.
pub(crate) fn node(begin: &str, hostname: &str) -> NodeView {
    NodeView {
        node_uuid: format!(
            "{begin}{}",
            &"00000000-1111-4111-8111-111111111111"[begin.len()..]
        ),
        hostname: hostname.into(),
        roles: "AGENT".into(),
        status: "READY".into(),
        mem_total_mb: 2048,
        mem_free_mb: 1024,
        ..NodeView::default()
    }
}

/// An instance with a UUID that begins with this, on that node.
pub(crate) fn instance(begin: &str, on: &NodeView) -> InstanceView {
    InstanceView {
        instance_uuid: format!(
            "{begin}{}",
            &"00000000-2222-4222-8222-222222222222"[begin.len()..]
        ),
        node_uuid: on.node_uuid.clone(),
        hostname: on.hostname.clone(),
        mem_mb: 64,
        ..InstanceView::default()
    }
}

/// The refusal of a command.
pub(crate) fn refusal(kind: Kind, reason: RefusalReason, detail: &str) -> Bytes {
    CommandRefused {
        ty: kind.ty.0,
        operand: kind.operand,
        name: kind.to_string(),
        reason,
        detail: detail.into(),
        instance_uuid: None,
    }
    .encode()
}
