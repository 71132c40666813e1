//! From the dial to CONNECTED, or not.

use std::time::Duration;

use bytes::Bytes;
use ciao_scheduler::net::address::Endpoint;
use ciao_scheduler::net::link::{ConnectError, Timeouts, connect, connect_first};
use proto_frames::{Connected, Encoding, Frame, Kind, Message, Role, Uuid};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;

use crate::certs::TestCa;
use crate::server::{Accepted, DEADLINE, SERVER, Server, hello, within};

const BOTH: [Encoding; 2] = [Encoding::Native, Encoding::Gob];

fn error_frame(kind: Kind) -> Message {
    Message::Frame(Frame::new(kind, Uuid::nil(), Bytes::new()))
}

#[tokio::test]
async fn the_answer_carries_the_scheduler_and_its_configuration() {
    let server = Server::new().await;
    for encoding in BOTH {
        let (link, _accepted) = server.established(encoding, Timeouts::default()).await;
        assert_eq!(link.connected.source, SERVER);
        assert_eq!(link.connected.payload, "configure:");
    }
}

#[tokio::test]
async fn an_abort_is_for_good_and_a_failure_is_not() {
    let server = Server::new().await;
    for encoding in BOTH {
        let (error, behind) = server
            .refused(encoding, error_frame(Kind::CONNECTION_ABORTED))
            .await;
        assert!(
            matches!(error, ConnectError::Aborted { .. }) && !error.may_retry(),
            "{error:?}"
        );
        assert_eq!(behind, None);
        let (error, behind) = server
            .refused(encoding, error_frame(Kind::CONNECTION_FAILURE))
            .await;
        assert!(
            matches!(error, ConnectError::Refused { .. }) && error.may_retry(),
            "{error:?}"
        );
        assert_eq!(behind, None);
    }
}

#[tokio::test]
async fn a_server_in_another_role_is_told_so() {
    let server = Server::new().await;
    for encoding in BOTH {
        let mut answer = Connected::new(SERVER, hello(encoding).uuid, Bytes::new());
        answer.role = Role::AGENT;
        let (error, behind) = server.refused(encoding, Message::Connected(answer)).await;
        assert!(
            matches!(
                error,
                ConnectError::WrongRole {
                    role: Role::AGENT,
                    ..
                }
            ),
            "{error:?}"
        );
        assert!(!error.may_retry());
        let Some(Message::Frame(frame)) = behind else {
            panic!("the server was not told")
        };
        assert_eq!(frame.kind, Kind::CONNECTION_FAILURE);
    }
}

#[tokio::test]
async fn an_answer_for_another_client_is_refused() {
    let server = Server::new().await;
    let answer = Connected::new(SERVER, Uuid::from_u128(1), Bytes::new());
    let (error, _) = server
        .refused(Encoding::Native, Message::Connected(answer))
        .await;
    assert!(
        matches!(error, ConnectError::WrongDestination { .. }),
        "{error:?}"
    );
}

#[tokio::test]
async fn an_answer_that_is_no_message_is_refused() {
    let server = Server::new().await;
    let serve = async |mut accepted: Accepted| {
        accepted.connect_of_client().await;
        accepted.stream.write_all(&[0; 64]).await.unwrap();
        accepted.stream.flush().await.unwrap();
        accepted.receive().await
    };
    let met = server.meet(Encoding::Native, Timeouts::default(), serve);
    let (link, _) = met.await;
    let error = link.unwrap_err();
    assert!(
        matches!(
            error,
            ConnectError::BadAnswer { .. } | ConnectError::Refused { .. }
        ),
        "{error:?}"
    );
}

/// What an original server does with a native CONNECT: it answers in gob, or says nothing and closes.
#[tokio::test]
async fn a_native_client_at_an_original_scheduler_is_told_of_the_other_encoding() {
    let server = Server::new().await;
    let mut gob = bytes::BytesMut::new();
    let refusal = Frame::new(Kind::CONNECTION_FAILURE, Uuid::nil(), Bytes::new());
    proto_frames::Encoder::new(Encoding::Gob).encode_frame(&refusal, &mut gob);
    for answer in [&gob[..], &[]] {
        let serve = async |mut accepted: Accepted| {
            accepted.connect_of_client().await;
            accepted.stream.write_all(answer).await.unwrap();
            accepted.stream.shutdown().await.unwrap();
        };
        let met = server.meet(Encoding::Native, Timeouts::default(), serve);
        let (link, ()) = met.await;
        let error = link.unwrap_err();
        assert!(error.may_retry());
        let said = error.to_string();
        assert!(said.contains("-encoding gob"), "{said}");
    }
}

#[tokio::test]
async fn a_closed_connection_instead_of_an_answer_may_be_tried_again() {
    let server = Server::new().await;
    let serve = async |mut accepted: Accepted| {
        accepted.connect_of_client().await;
        accepted.stream.shutdown().await.unwrap();
    };
    let met = server.meet(Encoding::Gob, Timeouts::default(), serve);
    let (link, ()) = met.await;
    let error = link.unwrap_err();
    assert!(
        matches!(error, ConnectError::NoAnswer { .. }) && error.may_retry(),
        "{error:?}"
    );
    assert!(!error.to_string().contains("encoding"), "{error}");
}

#[tokio::test]
async fn a_client_of_another_authority_learns_that_its_certificate_is_refused() {
    let server = Server::new().await;
    let stranger = TestCa::new();
    // The stranger knows the server's authority, but its own certificate comes from elsewhere.
    let own = stranger.identity(&ciao_scheduler::cert::Spec::localhost(Role::AGENT));
    assert!(
        ciao_scheduler::net::tls::client_config(&own, &server.ca.anchors()).is_err(),
        "it is caught at load"
    );
    let mut tls = (*server.tls()).clone();
    tls.client_auth_cert_resolver = stranger
        .client(Role::AGENT)
        .client_auth_cert_resolver
        .clone();
    let (endpoint, timeouts, hello) = (
        server.endpoint(),
        Timeouts::default(),
        hello(Encoding::Native),
    );
    let tls = std::sync::Arc::new(tls);
    let (dial, serve) = (
        connect(&endpoint, &tls, &hello, &timeouts),
        server.accept_in_vain(),
    );
    let (link, served) = within(async { tokio::join!(dial, serve) }).await;
    assert!(served.is_err());
    let error = link.unwrap_err();
    assert!(
        error
            .to_string()
            .contains("the peer refuses our certificate"),
        "{error}"
    );
    assert!(error.may_retry());
}

#[tokio::test]
async fn a_silent_server_costs_the_handshake_timeout_and_no_more() {
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = Endpoint {
        port: silent.local_addr().unwrap().port(),
        ..Endpoint::new("127.0.0.1")
    };
    let timeouts = Timeouts {
        handshake: Duration::from_millis(50),
        ..Timeouts::default()
    };
    let tls = TestCa::new().client(Role::AGENT);
    let error = within(connect(
        &endpoint,
        &tls,
        &hello(Encoding::Native),
        &timeouts,
    ))
    .await
    .unwrap_err();
    assert!(
        matches!(error, ConnectError::TimedOut { .. }) && error.may_retry(),
        "{error:?}"
    );
}

/// The endpoints that failed before this server, which is one of them, answered.
async fn failed_before(
    server: &Server,
    endpoints: &[Endpoint],
    timeouts: &Timeouts,
) -> Vec<Endpoint> {
    let (tls, hello) = (server.tls(), hello(Encoding::Native));
    let mut failed = Vec::new();
    let serve = async {
        let mut accepted = server.accept().await;
        accepted.welcome().await;
        accepted
    };
    let dial = connect_first(endpoints, &tls, &hello, timeouts, |endpoint, _| {
        failed.push(endpoint.clone())
    });
    let (dialed, _accepted) = within(async { tokio::join!(dial, serve) }).await;
    let (found, link) = dialed.unwrap();
    assert_eq!((found, link.connected.source), (&server.endpoint(), SERVER));
    failed
}

#[tokio::test]
async fn endpoints_are_tried_in_order_until_one_answers() {
    let server = Server::new().await;
    let closed = {
        let gone = TcpListener::bind("127.0.0.1:0").await.unwrap();
        Endpoint {
            port: gone.local_addr().unwrap().port(),
            ..Endpoint::new("127.0.0.1")
        }
    };
    let unknown = Endpoint::new("does-not-exist.invalid");
    let endpoints = [closed.clone(), unknown.clone(), server.endpoint()];
    let timeouts = Timeouts::default();
    assert_eq!(
        failed_before(&server, &endpoints, &timeouts).await,
        [closed, unknown]
    );
}

#[tokio::test]
async fn a_refusal_for_good_ends_the_round() {
    let server = Server::new().await;
    let endpoints = [server.endpoint(), server.endpoint()];
    let (tls, timeouts, hello) = (server.tls(), Timeouts::default(), hello(Encoding::Native));
    let serve = async {
        let mut accepted = server.accept().await;
        accepted.connect_of_client().await;
        accepted.send(error_frame(Kind::CONNECTION_ABORTED)).await;
        accepted.receive().await
    };
    let mut failures = 0;
    let dial = connect_first(&endpoints, &tls, &hello, &timeouts, |_, _| failures += 1);
    let (link, _) = within(async { tokio::join!(dial, serve) }).await;
    assert!(matches!(link, Err(ConnectError::Aborted { .. })));
    assert_eq!(failures, 1);
}

#[tokio::test]
async fn another_name_may_be_expected_of_the_certificate() {
    let server = Server::new().await;
    let endpoint = server
        .endpoint()
        .with_server_name(Some("elsewhere.example".to_owned()));
    let (tls, timeouts, hello) = (server.tls(), Timeouts::default(), hello(Encoding::Native));
    let (dial, serve) = (
        connect(&endpoint, &tls, &hello, &timeouts),
        server.accept_in_vain(),
    );
    let (link, _) = within(async { tokio::join!(dial, serve) }).await;
    let error = link.unwrap_err();
    assert!(error.to_string().contains("elsewhere.example"), "{error}");
    let nonsense = server
        .endpoint()
        .with_server_name(Some("no name".to_owned()));
    let error = within(connect(&nonsense, &tls, &hello, &timeouts))
        .await
        .unwrap_err();
    assert!(
        matches!(error, ConnectError::BadServerName(_)) && !error.may_retry(),
        "{error:?}"
    );
}

#[tokio::test]
async fn an_http_server_is_named_as_one() {
    let server = Server::new().await;
    let (tls, timeouts) = (server.tls(), Timeouts::default());
    for encoding in BOTH {
        let (endpoint, hello) = (server.endpoint(), hello(encoding));
        let serve = async {
            let mut accepted = server.accept().await;
            let answer = b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n";
            accepted.stream.write_all(answer).await.unwrap();
            accepted
        };
        let dial = connect(&endpoint, &tls, &hello, &timeouts);
        let (link, _accepted) = within(async { tokio::join!(dial, serve) }).await;
        let error = link.unwrap_err();
        assert!(error.is_elsewhere());
        let words = "this looks like an HTTP server; the SSNTP port is 8888 by default";
        assert!(error.to_string().ends_with(words), "{error}");
    }
}

/// Where nothing answers: a listener that accepts, in the kernel, and never says a word, as a stopped scheduler.
async fn silent() -> (TcpListener, Endpoint) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = Endpoint {
        port: listener.local_addr().unwrap().port(),
        ..Endpoint::new("127.0.0.1")
    };
    (listener, endpoint)
}

#[tokio::test]
async fn a_server_that_accepts_and_says_nothing_does_not_keep_the_next_from_being_tried() {
    let (_listener, silent) = silent().await;
    let server = Server::new().await;
    let endpoints = [silent.clone(), server.endpoint()];
    // The full time for a handshake is longer than this test may take.
    let timeouts = Timeouts {
        handshake: DEADLINE * 2,
        ..Timeouts::default()
    };
    assert_eq!(
        failed_before(&server, &endpoints, &timeouts).await,
        [silent]
    );
}

/// A scheduler to which thousands come back at once may take long for each: it must be reached all the same.
#[tokio::test]
async fn a_server_that_was_given_up_for_another_is_tried_again_with_more_time() {
    let server = Server::new().await;
    let (listener, closed) = silent().await;
    drop(listener);
    let endpoints = [server.endpoint(), closed.clone()];
    let (tls, hello) = (server.tls(), hello(Encoding::Native));
    let timeouts = Timeouts {
        handshake: Duration::from_secs(4),
        ..Timeouts::default()
    };
    let mut failed = Vec::new();
    let serve = async {
        let _unanswered = server.listener.accept().await.unwrap();
        let mut accepted = server.accept().await;
        accepted.welcome().await;
        accepted
    };
    let dial = connect_first(&endpoints, &tls, &hello, &timeouts, |endpoint, _| {
        failed.push(endpoint.clone())
    });
    let (dialed, _accepted) = within(async { tokio::join!(dial, serve) }).await;
    let (found, link) = dialed.unwrap();
    assert_eq!(link.connected.source, SERVER);
    // It failed, and was found at a second try: it is no other one for that.
    assert_eq!(found, &server.endpoint());
    assert_eq!(failed, [server.endpoint(), closed]);
}

#[tokio::test]
async fn a_round_over_servers_that_say_nothing_has_an_end() {
    let ((_first, one), (_second, other)) = (silent().await, silent().await);
    let timeouts = Timeouts {
        handshake: Duration::from_millis(80),
        ..Timeouts::default()
    };
    let tls = TestCa::new().client(Role::AGENT);
    let (endpoints, hello) = ([one, other], hello(Encoding::Native));
    let dial = connect_first(&endpoints, &tls, &hello, &timeouts, |_, _| {});
    let error = within(dial).await.unwrap_err();
    assert!(matches!(error, ConnectError::TimedOut { .. }), "{error:?}");
}
