//! Every way a link ends.

use std::time::Duration;

use ciao_scheduler::net::link::{Closing, Timeouts};
use proto_frames::{Encoding, Message};
use tokio::io::AsyncWriteExt;

use crate::server::{Server, number, numbered, within};

#[tokio::test]
async fn what_was_queued_before_the_close_arrives_although_the_scheduler_is_talking() {
    const COUNT: u32 = 200;
    let server = Server::new().await;
    let (link, mut accepted) = server
        .established(Encoding::Native, Timeouts::default())
        .await;
    for i in 0..COUNT {
        link.sender.send(numbered(i, 8 * 1024)).await.unwrap();
    }
    link.sender.close();
    let sender = link.sender.clone();
    drop(link);
    let script = async {
        // Bytes that will not be read: a socket closed over them would be reset, and take the last frames with it.
        accepted.send(Message::Frame(numbered(0, 64 * 1024))).await;
        for i in 0..COUNT {
            assert_eq!(number(&accepted.frame().await), i);
        }
        assert_eq!(accepted.receive().await, None);
        let _ = accepted.stream.shutdown().await;
    };
    let (closed, ()) = within(async { tokio::join!(sender.closed(), script) }).await;
    assert_eq!(closed.why, "closed on this side");
    assert_eq!(closed.how, Closing::Unclear);
    assert!(sender.send(numbered(0, 0)).await.is_err());
}

#[tokio::test]
async fn when_the_scheduler_closes_the_last_frames_are_still_handed_out() {
    let server = Server::new().await;
    let (mut link, mut accepted) = server.established(Encoding::Gob, Timeouts::default()).await;
    for i in 0..10 {
        accepted.send(Message::Frame(numbered(i, 100))).await;
    }
    accepted.stream.shutdown().await.unwrap();
    drop(accepted);
    let closed = within(link.sender.closed()).await;
    assert_eq!(closed.why, "the scheduler closed it");
    assert_eq!(closed.how, Closing::InOrder);
    for i in 0..10 {
        assert_eq!(number(&link.receiver.recv().await.unwrap()), i);
    }
    assert_eq!(within(link.receiver.recv()).await, Err(closed.clone()));
    assert_eq!(link.receiver.try_recv(), Err(closed.clone()));
    assert_eq!(within(link.sender.send(numbered(0, 0))).await, Err(closed));
}

#[tokio::test]
async fn letting_go_of_both_halves_closes_the_connection_after_writing_what_is_queued() {
    let server = Server::new().await;
    let (link, mut accepted) = server
        .established(Encoding::Native, Timeouts::default())
        .await;
    link.sender.send(numbered(5, 10)).await.unwrap();
    drop(link);
    assert_eq!(number(&within(accepted.frame()).await), 5);
    assert_eq!(within(accepted.receive()).await, None);
}

#[tokio::test]
async fn bytes_that_are_no_frame_end_the_link() {
    let server = Server::new().await;
    let (mut link, mut accepted) = server.established(Encoding::Gob, Timeouts::default()).await;
    // A gob message of 2^64 - 1 bytes.
    accepted
        .stream
        .write_all(&[0xf8, 255, 255, 255, 255, 255, 255, 255, 255])
        .await
        .unwrap();
    accepted.stream.flush().await.unwrap();
    let error = within(link.receiver.recv()).await.unwrap_err();
    assert!(error.why.contains("its bytes cannot be read"), "{error}");
    assert!(
        within(link.sender.flush()).await.is_ok(),
        "nothing was queued, so all of it is written"
    );
    assert!(within(link.sender.send(numbered(0, 0))).await.is_err());
}

#[tokio::test]
async fn a_scheduler_that_reads_nothing_for_the_deadline_is_given_up() {
    let server = Server::new().await;
    let timeouts = Timeouts {
        progress: Duration::from_millis(200),
        ..Timeouts::default()
    };
    let (link, _accepted) = server.established(Encoding::Native, timeouts).await;
    let error = within(async {
        loop {
            if let Err(error) = link.sender.send(numbered(0, 64 * 1024)).await {
                return error;
            }
        }
    })
    .await;
    assert!(error.why.contains("has read nothing"), "{error}");
    assert!(within(link.sender.flush()).await.is_err());
}

#[tokio::test]
async fn a_cut_cable_is_an_end_too() {
    let server = Server::new().await;
    let (mut link, accepted) = server
        .established(Encoding::Native, Timeouts::default())
        .await;
    // Dropped without TLS's farewell.
    drop(accepted);
    assert!(within(link.receiver.recv()).await.is_err());
}
