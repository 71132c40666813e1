//! The scripted server: accepts, answers as told, and says what it received.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use ciao_scheduler::net::address::Endpoint;
use ciao_scheduler::net::link::{ConnectError, Hello, Link, Timeouts, connect};
use proto_frames::{
    Connect, Connected, Decoder, Encoder, Encoding, Frame, Kind, Limits, Message, Role, Uuid,
};
use rustls::ClientConfig;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::certs::TestCa;
use crate::messages::next_message;

/// Only a hang reaches it.
pub(crate) const DEADLINE: Duration = Duration::from_secs(60);

/// The UUID the server answers with.
pub(crate) const SERVER: Uuid = Uuid::from_u128(0x5e);

/// A listening server with its own authority.
pub(crate) struct Server {
    pub(crate) ca: TestCa,
    pub(crate) listener: TcpListener,
}

/// The server's end of one connection.
pub(crate) struct Accepted {
    pub(crate) stream: TlsStream<TcpStream>,
    decoder: Decoder,
    encoder: Option<Encoder>,
    buffer: BytesMut,
}

impl Server {
    pub(crate) async fn new() -> Self {
        Self {
            ca: TestCa::new(),
            listener: TcpListener::bind("127.0.0.1:0").await.unwrap(),
        }
    }

    pub(crate) fn endpoint(&self) -> Endpoint {
        Endpoint {
            port: self.listener.local_addr().unwrap().port(),
            ..Endpoint::new("127.0.0.1")
        }
    }

    pub(crate) fn tls(&self) -> Arc<ClientConfig> {
        self.ca.client(Role::AGENT)
    }

    /// Accepts one connection through TLS.
    pub(crate) async fn accept(&self) -> Accepted {
        let (socket, _) = self.listener.accept().await.unwrap();
        let stream = TlsAcceptor::from(self.ca.server())
            .accept(socket)
            .await
            .unwrap();
        let decoder = Decoder::server(Limits::default());
        Accepted {
            stream,
            decoder,
            encoder: None,
            buffer: BytesMut::new(),
        }
    }

    /// Connects a client to a server that does this; what the client has of it, and what the server has.
    pub(crate) async fn meet<T>(
        &self,
        encoding: Encoding,
        timeouts: Timeouts,
        serve: impl AsyncFnOnce(Accepted) -> T,
    ) -> (Result<Link, ConnectError>, T) {
        let hello = hello(encoding);
        let (endpoint, tls) = (self.endpoint(), self.tls());
        let serve = async { serve(self.accept().await).await };
        within(async { tokio::join!(connect(&endpoint, &tls, &hello, &timeouts), serve) }).await
    }

    /// Connects a client, plays the server until CONNECTED, and gives both ends.
    pub(crate) async fn established(
        &self,
        encoding: Encoding,
        timeouts: Timeouts,
    ) -> (Link, Accepted) {
        let serve = async |mut accepted: Accepted| {
            accepted.welcome().await;
            accepted
        };
        let (link, accepted) = self.meet(encoding, timeouts, serve).await;
        (link.unwrap(), accepted)
    }

    /// Connects a client to a server that gives this answer to CONNECT; the error, and whatever came behind it.
    pub(crate) async fn refused(
        &self,
        encoding: Encoding,
        answer: Message,
    ) -> (ConnectError, Option<Message>) {
        let serve = async |mut accepted: Accepted| {
            accepted.connect_of_client().await;
            accepted.send(answer).await;
            accepted.receive().await
        };
        let (link, behind) = self.meet(encoding, Timeouts::default(), serve).await;
        (link.unwrap_err(), behind)
    }

    /// Accepts one connection that fails within TLS.
    pub(crate) async fn accept_in_vain(&self) -> std::io::Result<()> {
        let (socket, _) = self.listener.accept().await.unwrap();
        TlsAcceptor::from(self.ca.server())
            .accept(socket)
            .await
            .map(drop)
    }
}

impl Accepted {
    /// The next message; `None` at the end of the stream, however it came.
    pub(crate) async fn receive(&mut self) -> Option<Message> {
        next_message(&mut self.stream, &mut self.decoder, &mut self.buffer).await
    }

    /// The next message, which is a frame.
    pub(crate) async fn frame(&mut self) -> Frame {
        match self.receive().await {
            Some(Message::Frame(frame)) => frame,
            other => panic!("{other:?} instead of a frame"),
        }
    }

    /// The client's CONNECT; nothing may stand behind it.
    pub(crate) async fn connect_of_client(&mut self) -> Connect {
        let Some(Message::Connect(connect)) = self.receive().await else {
            panic!("no CONNECT")
        };
        assert!(self.buffer.is_empty(), "bytes behind CONNECT");
        self.encoder = Some(Encoder::new(self.decoder.encoding().unwrap()));
        connect
    }

    /// Takes CONNECT and answers CONNECTED.
    pub(crate) async fn welcome(&mut self) {
        let connect = self.connect_of_client().await;
        self.send(Message::Connected(Connected::new(
            SERVER,
            connect.source,
            Bytes::from_static(b"configure:"),
        )))
        .await;
    }

    pub(crate) async fn send(&mut self, message: Message) {
        let mut bytes = BytesMut::new();
        self.encoder.as_mut().unwrap().encode(&message, &mut bytes);
        self.stream.write_all(&bytes).await.unwrap();
        self.stream.flush().await.unwrap();
    }
}

pub(crate) fn hello(encoding: Encoding) -> Hello {
    Hello {
        role: Role::AGENT,
        uuid: Uuid::from_u128(0xc1),
        encoding,
    }
}

/// A frame that says which one it is.
pub(crate) fn numbered(number: u32, len: usize) -> Frame {
    let mut payload = vec![b'x'; len.max(4)];
    payload[..4].copy_from_slice(&number.to_be_bytes());
    Frame::new(Kind::START, Uuid::from_u128(0xc1), payload)
}

/// Which one it is.
pub(crate) fn number(frame: &Frame) -> u32 {
    u32::from_be_bytes(frame.payload[..4].try_into().unwrap())
}

/// Fails loudly instead of hanging.
pub(crate) async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(DEADLINE, future)
        .await
        .expect("the test hangs")
}
