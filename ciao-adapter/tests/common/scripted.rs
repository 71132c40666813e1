//! A scheduler of which a test writes the script: it does TLS, CONNECT and the encodings, and leaves every frame to the
//! script.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use bytes::{Bytes, BytesMut};
use ciao_scheduler::ctl::client::ClientConfig;
use ciao_scheduler::net::tls::{LastRead, TrustFiles};
use proto_frames::payload::{Payload as _, Query, QueryResult};
use proto_frames::{
    Connected, Decoder, Encoder, Encoding, Frame, Kind, Limits, Message, Role, Uuid,
};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, ReadHalf, WriteHalf, split};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::certs::TestCa;
use crate::process::DEADLINE;

/// What a test makes of a frame: where answers go, the number of the connection, the frame.
type Script = Box<dyn FnMut(&Answers, usize, &Frame) + Send>;

/// A scheduler that listens, and certificates for its clients.
pub(crate) struct Scripted {
    address: SocketAddr,
    certs: TempDir,
}

/// The way back on the connection that a frame came on.
pub(crate) struct Answers(UnboundedSender<Frame>);

/// What all connections share.
struct Shared {
    /// How many connections there were.
    connections: usize,
    script: Script,
}

impl Answers {
    /// Sends a frame.
    pub(crate) fn send(&self, kind: Kind, payload: impl Into<Bytes>) {
        let _ = self.0.send(Frame::new(kind, Uuid::nil(), payload));
    }

    /// Answers a query with this page.
    pub(crate) fn page(&self, query: &Frame, page: QueryResult) {
        let query = Query::decode(&query.payload).unwrap();
        let page = QueryResult {
            id: query.id,
            what: query.what,
            ..page
        };
        self.send(Kind::QUERY_RESULT, page.encode());
    }
}

impl Scripted {
    /// Listens, and plays this script.
    pub(crate) async fn playing(
        script: impl FnMut(&Answers, usize, &Frame) + Send + 'static,
    ) -> Self {
        let ca = TestCa::new();
        let certs = tempfile::tempdir().unwrap();
        ca.write(certs.path(), &[("controller", Role::CONTROLLER)]);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let acceptor = TlsAcceptor::from(ca.server());
        let shared = Arc::new(Mutex::new(Shared {
            connections: 0,
            script: Box::new(script),
        }));
        tokio::spawn(async move {
            while let Ok((tcp, _)) = listener.accept().await {
                tokio::spawn(serve(acceptor.clone(), tcp, Arc::clone(&shared)));
            }
        });
        Self { address, certs }
    }

    /// How a client connects with it.
    pub(crate) fn client(&self) -> ClientConfig {
        ClientConfig {
            server: format!("localhost:{}", self.address.port()),
            server_name: None,
            cert: self.certs.path().join("controller.pem"),
            trust: TrustFiles::without_crls(self.certs.path().join("CAcert.pem")),
            connect_timeout: DEADLINE,
            answer_timeout: DEADLINE,
            last: LastRead::default(),
        }
    }
}

/// One connection, to its end.
async fn serve(acceptor: TlsAcceptor, tcp: TcpStream, shared: Arc<Mutex<Shared>>) {
    tcp.set_nodelay(true).unwrap();
    let Ok(stream) = acceptor.accept(tcp).await else {
        return;
    };
    let (mut reader, writer) = split(stream);
    let mut decoder = Decoder::server(Limits::default());
    let mut buffer = BytesMut::new();
    let Some(Message::Connect(connect)) = next(&mut decoder, &mut buffer, &mut reader).await else {
        return;
    };
    let (queue, queued) = unbounded_channel();
    let number = {
        let mut shared = shared.lock().unwrap();
        shared.connections += 1;
        shared.connections - 1
    };
    let connected = Connected::new(Uuid::from_u128(1), connect.source, Bytes::new());
    let encoding = decoder.encoding().unwrap();
    tokio::spawn(write(writer, encoding, connected, queued));
    let answers = Answers(queue);
    while let Some(message) = next(&mut decoder, &mut buffer, &mut reader).await {
        let Message::Frame(frame) = message else {
            panic!("out of turn: {message:?}")
        };
        (shared.lock().unwrap().script)(&answers, number, &frame);
    }
}

/// The next message; `None` once the connection has ended.
async fn next(
    decoder: &mut Decoder,
    buffer: &mut BytesMut,
    reader: &mut ReadHalf<TlsStream<TcpStream>>,
) -> Option<Message> {
    loop {
        if let Some(message) = decoder.decode(buffer).expect("what came is no frame") {
            return Some(message);
        }
        match reader.read_buf(buffer).await {
            Ok(0) | Err(_) => return None,
            Ok(_) => {}
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
