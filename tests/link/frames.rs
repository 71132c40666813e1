//! Frames both ways.

use std::pin::pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll, Waker};

use ciao_scheduler::net::link::{MAX_INBOUND_BYTES, MAX_OUTBOUND_BYTES, Timeouts};
use proto_frames::{Encoding, Message};

use crate::server::{Server, number, numbered, within};

#[tokio::test]
async fn frames_arrive_in_order_in_both_directions_and_encodings() {
    const COUNT: u32 = 3_000;
    let server = Server::new().await;
    for encoding in [Encoding::Native, Encoding::Gob] {
        let (mut link, mut accepted) = server.established(encoding, Timeouts::default()).await;
        let client = async {
            for i in 0..COUNT {
                link.sender
                    .send(numbered(i, i as usize % 900))
                    .await
                    .unwrap();
            }
            link.sender.flush().await.unwrap();
            for i in 0..COUNT {
                assert_eq!(number(&link.receiver.recv().await.unwrap()), i);
            }
        };
        let script = async {
            for i in 0..COUNT {
                let frame = accepted.frame().await;
                // The native encoding does not carry the origin of a frame without a trace.
                assert_eq!(frame.payload, numbered(i, i as usize % 900).payload);
                accepted.send(Message::Frame(frame)).await;
            }
        };
        within(async { tokio::join!(client, script) }).await;
    }
}

#[tokio::test]
async fn a_frame_larger_than_the_queue_passes() {
    let server = Server::new().await;
    let (link, mut accepted) = server
        .established(Encoding::Native, Timeouts::default())
        .await;
    let client = async {
        link.sender.send(numbered(1, 10)).await.unwrap();
        link.sender
            .send(numbered(2, MAX_OUTBOUND_BYTES))
            .await
            .unwrap();
        link.sender.send(numbered(3, 10)).await.unwrap();
        link.sender.flush().await.unwrap();
    };
    let script = async {
        for i in 1..=3 {
            assert_eq!(number(&accepted.frame().await), i);
        }
    };
    within(async { tokio::join!(client, script) }).await;
}

#[tokio::test]
async fn a_sender_waits_while_the_scheduler_does_not_read_and_nothing_is_lost() {
    const LEN: usize = 64 * 1024;
    // More than the queue and both sockets' buffers hold.
    const COUNT: u32 = 1_000;
    let server = Server::new().await;
    let (link, mut accepted) = server
        .established(Encoding::Native, Timeouts::default())
        .await;
    let sent = AtomicU32::new(0);
    let client = async {
        for i in 0..COUNT {
            link.sender.send(numbered(i, LEN)).await.unwrap();
            sent.fetch_add(1, Ordering::Relaxed);
        }
        link.sender.flush().await.unwrap();
    };
    let script = async {
        // Reads nothing until the queue is full: then, and only then, a send stays pending.
        loop {
            let probe = link.sender.send(numbered(u32::MAX, LEN));
            // Outside the runtime's own rationing, which leaves futures pending too.
            if poll_once(pin!(tokio::task::unconstrained(probe))).is_none() {
                break;
            }
            tokio::task::yield_now().await;
        }
        assert!(
            sent.load(Ordering::Relaxed) < COUNT,
            "the queue has no bound"
        );
        let mut expected = 0;
        while expected < COUNT {
            let got = number(&accepted.frame().await);
            if got != u32::MAX {
                assert_eq!(got, expected);
                expected += 1;
            }
        }
    };
    within(async { tokio::join!(client, script) }).await;
}

#[tokio::test]
async fn a_receiver_that_takes_nothing_slows_the_scheduler_and_loses_nothing() {
    const LEN: usize = 64 * 1024;
    const COUNT: u32 = 4 * (MAX_INBOUND_BYTES / LEN) as u32;
    let server = Server::new().await;
    let (mut link, mut accepted) = server
        .established(Encoding::Native, Timeouts::default())
        .await;
    // Taking begins only when the server can write no more or has written all: whichever, nothing may be missing.
    let script = tokio::spawn(async move {
        for i in 0..COUNT {
            accepted.send(Message::Frame(numbered(i, LEN))).await;
        }
        accepted
    });
    let mut frames = Vec::new();
    within(async {
        while frames.len() < COUNT as usize {
            frames.push(link.receiver.recv().await.unwrap());
        }
    })
    .await;
    assert!(frames.iter().map(number).eq(0..COUNT));
    assert_eq!(link.receiver.try_recv(), Ok(None));
    drop(script.await.unwrap());
}

#[tokio::test]
async fn without_a_receiver_frames_are_thrown_away_and_sending_goes_on() {
    let server = Server::new().await;
    let (link, mut accepted) = server
        .established(Encoding::Native, Timeouts::default())
        .await;
    drop(link.receiver);
    let script = async {
        for i in 0..200 {
            accepted.send(Message::Frame(numbered(i, 64 * 1024))).await;
        }
        assert_eq!(number(&accepted.frame().await), 7);
    };
    let client = async {
        link.sender.send(numbered(7, 10)).await.unwrap();
        link.sender.flush().await.unwrap();
    };
    within(async { tokio::join!(client, script) }).await;
}

fn poll_once<F: Future>(future: std::pin::Pin<&mut F>) -> Option<F::Output> {
    match future.poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => Some(output),
        Poll::Pending => None,
    }
}
