//! What each call does, at one member.

use std::time::Duration;

use ciao_etcd::{Compare, Error, Event, Op, Txn};
use tokio::time::timeout;

use crate::world::{Etcd, GENEROUS, is_missing, until_ok};

fn put(key: &str, value: &[u8], lease: i64) -> Op {
    Op::Put {
        key: key.into(),
        value: value.into(),
        lease,
    }
}

fn write(op: Op) -> Txn {
    Txn {
        then: vec![op],
        ..Txn::default()
    }
}

#[tokio::test]
async fn a_transaction_is_carried_out_if_what_it_compares_is_so() {
    if is_missing() {
        return;
    }
    let etcd = Etcd::start(1, &[]);
    let client = etcd.client();
    let absent = async || client.get(b"/leader").await;
    assert_eq!(until_ok(absent).await.0, None);
    let create = Txn {
        compare: vec![Compare::Created(b"/leader".into(), 0)],
        then: vec![put("/leader", b"one", 0), Op::Get(b"/other".into())],
        otherwise: vec![Op::Get(b"/leader".into())],
    };
    let won = client.txn(create.clone()).await.unwrap();
    assert_eq!((won.succeeded, won.found), (true, vec![None]));
    let lost = client.txn(create).await.unwrap();
    assert!(!lost.succeeded);
    let found = lost.found[0].clone().unwrap();
    assert_eq!(
        (found.create_revision, &found.value[..]),
        (won.revision, &b"one"[..])
    );
    let fenced = |revision| Txn {
        compare: vec![
            Compare::Created(b"/leader".into(), won.revision),
            Compare::Modified(b"/ticket".into(), revision),
        ],
        then: vec![put("/ticket", b"1", 0)],
        ..Txn::default()
    };
    assert!(client.txn(fenced(0)).await.unwrap().succeeded);
    assert!(!client.txn(fenced(0)).await.unwrap().succeeded);
    let of_value = Txn {
        compare: vec![Compare::Value(b"/ticket".into(), b"1".into())],
        then: vec![Op::DeletePrefix(b"/".into())],
        ..Txn::default()
    };
    assert!(client.txn(of_value).await.unwrap().succeeded);
    assert_eq!(client.list(b"/").await.unwrap().keys, []);
}

#[tokio::test]
async fn all_keys_are_read_at_one_revision_however_many_and_long_they_are() {
    if is_missing() {
        return;
    }
    let etcd = Etcd::start(1, &[]);
    let client = etcd.client();
    until_ok(async || client.get(b"/").await).await;
    // 20 MB, in values from nothing to 200 kB: more than tonic takes at once.
    for number in 0..1000_usize {
        let value = vec![
            b'x';
            if number % 100 < 10 {
                200_000
            } else {
                number % 50
            }
        ];
        let key = format!("/c/n/{number:04}");
        client.txn(write(put(&key, &value, 0))).await.unwrap();
    }
    client.txn(write(put("/c/o", b"beyond", 0))).await.unwrap();
    let listing = client.list(b"/c/n/").await.unwrap();
    let lens: Vec<usize> = listing.keys.iter().map(|it| it.value.len()).collect();
    let expected = |number: usize| {
        if number % 100 < 10 {
            200_000
        } else {
            number % 50
        }
    };
    assert_eq!(lens, (0..1000).map(expected).collect::<Vec<_>>());
    assert!(listing.keys.is_sorted_by(|a, b| a.key < b.key));
    // In parts it is the same, wherever they begin: also where nothing is, and before and behind all keys.
    for cuts in [
        &["/c/n/0000"][..],
        &["/c/n/05", "/c/n/0500", "/c/n/0999x"],
        &["/c/n/", "/c/n/1", "/c/n/2", "/c/n/3", "/c/n/4", "/c/n/5"],
        &[
            "/c/n/00", "/c/n/01", "/c/n/02", "/c/n/03", "/c/n/04", "/c/n/05", "/c/n/06",
        ],
    ] {
        let cuts: Vec<Vec<u8>> = cuts.iter().map(|cut| cut.as_bytes().to_vec()).collect();
        assert_eq!(
            client.list_in_parts(b"/c/n/", &cuts).await.unwrap(),
            listing
        );
    }
}

#[tokio::test]
async fn a_key_ends_with_its_lease_and_the_watch_says_so() {
    if is_missing() {
        return;
    }
    let etcd = Etcd::start(1, &[]);
    let client = etcd.client();
    let grant = async || client.grant(Duration::from_secs(2)).await;
    let lease = until_ok(grant).await;
    let (_, revision) = client.get(b"/leader").await.unwrap();
    let mut watch = client.watch(b"/leader", revision + 1).await.unwrap();
    client
        .txn(write(put("/leader", b"one", lease)))
        .await
        .unwrap();
    client.keep_alive(lease).await.unwrap();
    let events = timeout(GENEROUS, watch.next()).await.unwrap().unwrap();
    let [Event::Put(key)] = &events[..] else {
        panic!("{events:?}");
    };
    assert_eq!((key.lease, key.create_revision), (lease, revision + 1));
    // Kept alive no more.
    let events = timeout(GENEROUS, watch.next()).await.unwrap().unwrap();
    assert!(
        matches!(&events[..], [Event::Deleted { key, .. }] if key == b"/leader"),
        "{events:?}"
    );
    assert_eq!(client.keep_alive(lease).await, Err(Error::NoSuchLease));
    let late = client.txn(write(put("/leader", b"one", lease))).await;
    assert_eq!(late, Err(Error::NoSuchLease));
    let other = client.grant(Duration::from_secs(60)).await.unwrap();
    client
        .txn(write(put("/leader", b"two", other)))
        .await
        .unwrap();
    client.revoke(other).await.unwrap();
    assert_eq!(client.get(b"/leader").await.unwrap().0, None);
    assert_eq!(client.revoke(other).await, Err(Error::NoSuchLease));
}
