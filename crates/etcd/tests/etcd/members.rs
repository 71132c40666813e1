//! Several members, one of which does not answer; and how a member is.

use std::time::Duration;

use ciao_etcd::{Alarm, Error, Op, Txn};
use rustix::process::Signal;

use crate::world::{Etcd, is_missing, until_ok};

fn put(value: Vec<u8>) -> Txn {
    Txn {
        then: vec![Op::Put {
            key: b"/k".into(),
            value,
            lease: 0,
        }],
        ..Txn::default()
    }
}

#[tokio::test]
async fn a_member_that_does_not_answer_is_left_for_the_next() {
    if is_missing() {
        return;
    }
    let etcd = Etcd::start(3, &[]);
    let client = etcd.client();
    until_ok(async || client.txn(put(b"1".into())).await).await;
    let first = client.member().to_owned();
    let place = etcd.endpoints.iter().position(|it| *it == first).unwrap();
    // Its connections stay; nothing comes of them.
    etcd.signal(place, Signal::STOP);
    let (key, _) = until_ok(async || client.get(b"/k").await).await;
    assert_eq!(key.unwrap().value, b"1");
    assert_ne!(client.member(), first);
    until_ok(async || client.txn(put(b"2".into())).await).await;
    let lease = until_ok(async || client.grant(Duration::from_secs(30)).await).await;
    until_ok(async || client.keep_alive(lease).await).await;
    etcd.signal(place, Signal::CONT);
}

#[tokio::test]
async fn a_minority_answers_no_read() {
    if is_missing() {
        return;
    }
    let etcd = Etcd::start(3, &[]);
    let client = etcd.client();
    until_ok(async || client.get(b"/k").await).await;
    etcd.signal(1, Signal::KILL);
    etcd.signal(2, Signal::KILL);
    let read = client.get(b"/k").await;
    assert!(matches!(read, Err(Error::Unanswered(_))), "{read:?}");
    let written = client.txn(put(b"3".into())).await;
    assert!(matches!(written, Err(Error::Unanswered(_))), "{written:?}");
}

#[tokio::test]
async fn a_full_etcd_refuses_writes_and_says_why() {
    if is_missing() {
        return;
    }
    let quota = ["--quota-backend-bytes", "300000"];
    let etcd = Etcd::start(1, &quota);
    let client = etcd.client();
    until_ok(async || client.get(b"/k").await).await;
    let (_, status) = client.statuses().await.remove(0);
    let status = status.unwrap();
    assert!(
        status.has_leader && status.version.starts_with("3."),
        "{status:?}"
    );
    let mut written = Ok(());
    for _ in 0..100 {
        written = client.txn(put(vec![7; 100_000])).await.map(drop);
        if written.is_err() {
            break;
        }
    }
    assert_eq!(written, Err(Error::NoSpace));
    assert_eq!(client.alarms().await, Ok(vec![Alarm::NoSpace]));
    assert_eq!(
        client.grant(Duration::from_secs(3)).await,
        Err(Error::NoSpace)
    );
    assert!(client.get(b"/k").await.is_ok());
}
