//! A peer of the daemon over real TLS: it does what a test says and nothing else, so that order, silence and misconduct
//! are under the test's control.

#![allow(dead_code, reason = "each test program uses a part of it")]
#![allow(clippy::unwrap_used, reason = "a test ends where it fails")]

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use proto_frames::{
    Connect, Connected, Decoder, Encoder, Encoding, Frame, Kind, Limits, Message, Role, Uuid,
};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpSocket, TcpStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::site::{Daemon, Site, within};
use messages::next_message;

#[path = "messages.rs"]
mod messages;

/// A frame type that the protocol does not have: the scheduler answers InvalidFrameType to its sender.
pub(crate) const NO_SUCH_TYPE: Kind = Kind::new(9, 0);

/// What a peer that does not read lets the kernel take in for it, in bytes: little, so that the scheduler notices soon,
/// but more than a segment on loopback, so that what waits can be read fast in the end.
pub(crate) const NARROW: u32 = 256 * 1024;

/// One end of a TLS connection that speaks frames.
pub(crate) struct Wire {
    pub(crate) stream: TlsStream<TcpStream>,
    pub(crate) decoder: Decoder,
    pub(crate) encoder: Encoder,
    pub(crate) buffer: BytesMut,
}

/// A peer whose CONNECT was answered with CONNECTED.
pub(crate) struct Peer {
    pub(crate) uuid: Uuid,
    pub(crate) role: Role,
    pub(crate) connected: Connected,
    pub(crate) wire: Wire,
}

/// A peer that is not connected yet.
#[derive(Clone)]
pub(crate) struct Dialer {
    pub(crate) address: SocketAddr,
    pub(crate) tls: Arc<ClientConfig>,
    pub(crate) uuid: Uuid,
    pub(crate) role: Role,
    pub(crate) encoding: Encoding,
    /// Room for what it has not read, in bytes; the system's default where not said.
    pub(crate) receive_buffer: Option<u32>,
}

impl Site {
    /// A peer in this role, with a certificate for it and a UUID of its own.
    pub(crate) fn dialer(&self, daemon: &Daemon, role: Role, encoding: Encoding) -> Dialer {
        let granted = match role {
            Role::OPERATOR => Role::CONTROLLER,
            role => role,
        };
        Dialer {
            address: daemon.address,
            tls: self.ca.client(granted),
            uuid: Uuid::new_v4(),
            role,
            encoding,
            receive_buffer: None,
        }
    }

    /// Connects such a peer.
    pub(crate) async fn connect(&self, daemon: &Daemon, role: Role, encoding: Encoding) -> Peer {
        self.dialer(daemon, role, encoding).connect().await
    }

    /// A native controller that has been told that it is master.
    pub(crate) async fn master(&self, daemon: &Daemon) -> Peer {
        let mut peer = self
            .connect(daemon, Role::CONTROLLER, Encoding::Native)
            .await;
        let status = peer.expect(Kind::CONTROLLER_STATUS).await;
        assert_eq!(
            status.payload, "controller_status:\n  status: master\n",
            "no other controller is there"
        );
        peer
    }

    /// A native operator.
    pub(crate) async fn operator(&self, daemon: &Daemon) -> Peer {
        self.connect(daemon, Role::OPERATOR, Encoding::Native).await
    }

    /// A native compute node.
    pub(crate) async fn node(&self, daemon: &Daemon) -> Peer {
        self.connect(daemon, Role::AGENT, Encoding::Native).await
    }
}

impl Dialer {
    /// The same with another UUID.
    pub(crate) fn with_uuid(self, uuid: Uuid) -> Self {
        Self { uuid, ..self }
    }

    /// TCP alone.
    pub(crate) async fn tcp(&self) -> TcpStream {
        let socket = TcpSocket::new_v4().unwrap();
        if let Some(size) = self.receive_buffer {
            socket.set_recv_buffer_size(size).unwrap();
        }
        let stream = within(socket.connect(self.address)).await.unwrap();
        stream.set_nodelay(true).unwrap();
        stream
    }

    /// TCP and TLS.
    ///
    /// # Errors
    /// The handshake's, as far as it fails on this side; in TLS 1.3 a refusal shows in the first read only.
    pub(crate) async fn tls(&self) -> io::Result<Wire> {
        let name = ServerName::try_from("localhost").unwrap();
        let stream = TlsConnector::from(Arc::clone(&self.tls))
            .connect(name, self.tcp().await)
            .await?;
        Ok(Wire {
            stream,
            decoder: Decoder::client(self.encoding, Limits::default()),
            encoder: Encoder::new(self.encoding),
            buffer: BytesMut::new(),
        })
    }

    /// TLS, CONNECT, and the answer to it, whatever it is; `None` if the connection just ends.
    pub(crate) async fn ask(&self) -> (Option<Message>, Wire) {
        let mut wire = within(self.tls()).await.unwrap();
        let connect = Connect::new(self.role, self.uuid);
        wire.send(&Message::Connect(connect)).await;
        let answer = wire.next().await;
        (answer, wire)
    }

    /// Connects; CONNECTED must be the answer.
    pub(crate) async fn connect(&self) -> Peer {
        match self.ask().await {
            (Some(Message::Connected(connected)), wire) => {
                assert_eq!(connected.destination, self.uuid);
                Peer {
                    uuid: self.uuid,
                    role: self.role,
                    connected,
                    wire,
                }
            }
            (other, _) => panic!("{} was answered {other:?}", self.role),
        }
    }

    /// Connects; an ERROR frame must be the answer, and the end of the connection.
    pub(crate) async fn refusal(&self) -> Kind {
        match self.ask().await {
            (Some(Message::Frame(frame)), mut wire) => {
                assert_eq!(frame.origin, Uuid::nil());
                assert_eq!(wire.next().await, None, "a refused peer is cut off");
                frame.kind
            }
            (other, _) => panic!("{} was answered {other:?}", self.role),
        }
    }
}

impl Wire {
    /// Writes one message.
    pub(crate) async fn send(&mut self, message: &Message) {
        self.try_send(message).await.unwrap();
    }

    /// Writes one message to a daemon that may have closed the connection.
    ///
    /// # Errors
    /// The connection's.
    pub(crate) async fn try_send(&mut self, message: &Message) -> io::Result<()> {
        let mut bytes = BytesMut::new();
        self.encoder.encode(message, &mut bytes);
        self.write(&bytes).await
    }

    /// Writes bytes as they are.
    ///
    /// # Errors
    /// The connection's.
    pub(crate) async fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        within(async {
            self.stream.write_all(bytes).await?;
            self.stream.flush().await
        })
        .await
    }

    /// The next message; `None` once the connection has ended, however it did.
    pub(crate) async fn next(&mut self) -> Option<Message> {
        let next = next_message(&mut self.stream, &mut self.decoder, &mut self.buffer);
        within(next).await
    }
}

impl Peer {
    /// A frame of this peer's own.
    pub(crate) fn frame(&self, kind: Kind, payload: impl Into<Bytes>) -> Frame {
        Frame::new(kind, self.uuid, payload)
    }

    /// Sends a frame of its own.
    pub(crate) async fn send(&mut self, kind: Kind, payload: impl Into<Bytes>) {
        let frame = self.frame(kind, payload);
        self.wire.send(&Message::Frame(frame)).await;
    }

    /// Sends a frame of its own to a daemon that may have closed the connection.
    ///
    /// # Errors
    /// The connection's.
    pub(crate) async fn try_send(
        &mut self,
        kind: Kind,
        payload: impl Into<Bytes>,
    ) -> io::Result<()> {
        let frame = self.frame(kind, payload);
        self.wire.try_send(&Message::Frame(frame)).await
    }

    /// Sends a frame as it is.
    pub(crate) async fn send_frame(&mut self, frame: Frame) {
        self.wire.send(&Message::Frame(frame)).await;
    }

    /// Sends all these frames of its own as fast as the connection takes them.
    pub(crate) async fn pour(&mut self, frames: impl IntoIterator<Item = (Kind, Bytes)>) {
        let mut bytes = BytesMut::new();
        for (kind, payload) in frames {
            let frame = self.frame(kind, payload);
            self.wire.encoder.encode_frame(&frame, &mut bytes);
            if bytes.len() > 64 * 1024 {
                self.wire.write(&bytes.split()).await.unwrap();
            }
        }
        self.wire.write(&bytes).await.unwrap();
    }

    /// The next frame; `None` once the connection has ended.
    pub(crate) async fn next(&mut self) -> Option<Frame> {
        match self.wire.next().await {
            Some(Message::Frame(frame)) => Some(frame),
            None => None,
            other => panic!("{other:?} instead of a frame"),
        }
    }

    /// The next frame, which must be of this kind.
    pub(crate) async fn expect(&mut self, kind: Kind) -> Frame {
        match self.next().await {
            Some(frame) if frame.kind == kind => frame,
            other => panic!("{}: {other:?} instead of {kind}", self.role),
        }
    }

    /// The next frame of this kind, leaving out all others before it.
    pub(crate) async fn skip_to(&mut self, kind: Kind) -> Frame {
        loop {
            match self.next().await {
                Some(frame) if frame.kind == kind => return frame,
                Some(_) => {}
                None => panic!("{}: the connection ended without {kind}", self.role),
            }
        }
    }

    /// The next thing to happen must be the end of the connection.
    pub(crate) async fn expect_end(&mut self) {
        let next = self.next().await;
        assert!(next.is_none(), "{}: {next:?} instead of the end", self.role);
    }

    /// Waits until the scheduler has handled everything sent so far, and makes sure that it has sent nothing to this
    /// peer meanwhile: the answer to a frame of an unknown type must be the next thing that comes.
    pub(crate) async fn nothing_else(&mut self) {
        self.send(NO_SUCH_TYPE, "").await;
        self.expect(Kind::INVALID_FRAME_TYPE).await;
    }

    /// Waits until the scheduler has handled everything sent so far, and gives what it has sent to this peer meanwhile.
    pub(crate) async fn settle(&mut self) -> Vec<Frame> {
        self.send(NO_SUCH_TYPE, "").await;
        let mut frames = Vec::new();
        loop {
            match self.next().await {
                Some(frame) if frame.kind == Kind::INVALID_FRAME_TYPE => return frames,
                Some(frame) => frames.push(frame),
                None => panic!("{}: the connection ended after {frames:?}", self.role),
            }
        }
    }

    /// Closes the connection properly.
    pub(crate) async fn close(mut self) {
        within(self.wire.stream.shutdown()).await.unwrap();
    }
}
