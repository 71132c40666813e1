//! Changes that are too large for one transaction of etcd, of schedulers that are gone at any moment of them: the next
//! leader finds all of a change or nothing.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ciao_etcd::Client;
use ciao_scheduler::cluster::{Cluster, ClusterConfig, Standing, release};
use ciao_scheduler::server::{Entries, TakeOver};
use tokio::task::{JoinSet, spawn_blocking};

use crate::etcd::{Etcd, config, is_missing};
use crate::gate::Gate;
use crate::look::{Look, until};

/// Into how many moments of a change its scheduler's end falls.
const MOMENTS: u64 = 12;

/// A scheduler's part in the cluster of this name, as the leader, and what it finds.
async fn lead(endpoint: &str, name: &str) -> (Arc<Cluster>, TakeOver) {
    let etcd = config(&[endpoint.to_owned()]);
    let cluster = Cluster::join(ClusterConfig {
        name: name.to_owned(),
        etcd,
        ttl: Duration::from_secs(3),
        is_compacting: false,
        address: name.to_owned(),
    });
    let cluster = Arc::new(cluster.unwrap());
    let Standing::Leader(term) = crate::site::within(cluster.turn()).await else {
        panic!("it does not lead");
    };
    let reader = Arc::clone(&cluster);
    let found = spawn_blocking(move || reader.take_over(term))
        .await
        .unwrap();
    (cluster, found.unwrap())
}

/// So many records with this value, of which every fourth is deleted if there is none.
fn change(count: usize, value: Option<&str>) -> Entries {
    let entry = |number: usize| {
        let value = value.or((!number.is_multiple_of(4)).then_some("new"));
        let value = value.map(|it| format!("{it}-{number}").into_bytes());
        (format!("i{number:05}").into_bytes(), value)
    };
    (0..count).map(entry).collect()
}

fn records(entries: Entries) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let there = |(key, value): (_, Option<Vec<u8>>)| value.map(|it| (key, it));
    entries.into_iter().filter_map(there).collect()
}

/// What became of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Came {
    All,
    Nothing,
}

/// Writes a change of so many records, through a proxy that ends after `bytes` of it; what the next leader finds.
async fn cut_off(etcd: Arc<Etcd>, count: usize, bytes: Option<u64>) -> (Came, u64) {
    let name = format!("staged-{}", bytes.unwrap_or(0));
    let gate = Gate::to(etcd.endpoints[0].strip_prefix("http://").unwrap()).await;
    let (cluster, found) = lead(&gate.address.to_string(), &name).await;
    let store = found.store;
    let old = Arc::clone(&store);
    let written = spawn_blocking(move || old.write(change(count, Some("old"))));
    written.await.unwrap().unwrap();
    let before = gate.there.bytes();
    if let Some(bytes) = bytes {
        gate.there.shut_after(bytes);
    }
    let written = spawn_blocking(move || store.write(change(count, None)));
    let is_acknowledged = match bytes {
        None => written.await.unwrap().is_ok(),
        Some(_) => {
            until("the proxy ends", || {
                gate.there.is_over() || written.is_finished()
            })
            .await;
            // The process is gone: what is on its way to etcd is not, and its key is as after the TTL.
            cluster.resign();
            written.await.unwrap().is_ok()
        }
    };
    let sent = gate.there.bytes() - before;
    drop(gate);
    released(&etcd.client(), &name).await;
    let (_next, found) = lead(&etcd.endpoints[0], &name).await;
    let found: BTreeMap<_, _> = found.records.into_iter().collect();
    let came = if found == records(change(count, None)) {
        Came::All
    } else {
        assert_eq!(found, records(change(count, Some("old"))), "a part of it");
        Came::Nothing
    };
    assert!(!is_acknowledged || came == Came::All, "it was acknowledged");
    drop(cluster);
    (came, sent)
}

/// Ends the turn of a scheduler that is gone.
async fn released(client: &Client, name: &str) {
    let mut look = Look::new();
    while let Err(error) = release(client, name, name).await {
        look.again(|| error.to_string()).await;
    }
}

async fn at_every_moment(count: usize) {
    if is_missing() {
        return;
    }
    let etcd = Arc::new(Etcd::start(1, &[]));
    let (came, bytes) = cut_off(Arc::clone(&etcd), count, None).await;
    assert_eq!(came, Came::All);
    let moments = (0..MOMENTS).map(|it| 1 + bytes * it / MOMENTS);
    let mut cuts = JoinSet::new();
    for moment in moments {
        cuts.spawn(cut_off(Arc::clone(&etcd), count, Some(moment)));
    }
    let mut all = Vec::new();
    while let Some(came) = cuts.join_next().await {
        all.push(came.unwrap().0);
    }
    // The commit is in the middle of it.
    assert!(
        all.contains(&Came::All) && all.contains(&Came::Nothing),
        "{all:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_of_128_records_is_there_or_not_wherever_its_scheduler_ends() {
    at_every_moment(128).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_of_4096_records_is_there_or_not_wherever_its_scheduler_ends() {
    at_every_moment(4096).await;
}
