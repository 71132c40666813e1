//! A scheduler's process that is killed in the middle of a change that is too large for one transaction of etcd: the
//! next leader finds all of it or nothing, and all that was acknowledged.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use ciao_scheduler::cluster::release;
use ciao_scheduler::ctl::client::{Client, Submitter};
use ciao_scheduler::ctl::event::Event;
use proto_frames::payload::{Payload, QueryKind, Scheduling, Start};

use crate::etcd::{Etcd, is_missing};
use crate::gate::Gate;
use crate::look::{Look, until};
use crate::site::{Daemon, Site};
use crate::words::{instance, start_of};
use crate::world::free_address;

/// Memory that each asks for, in MiB.
const MEM: i64 = 16;

/// Long enough for a change to be held before etcd while the scheduler leads.
const TTL: &str = "60s";

/// What was found of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Came {
    All,
    Nothing,
}

/// Starts a scheduler of this cluster, and waits until it leads.
async fn lead(site: &Site, name: &str, etcd: &str, address: SocketAddr) -> Daemon {
    let state = site.path(&format!("history-{}", address.port()));
    let address = address.to_string();
    let flags = ["--cluster", name, "--etcd", etcd, "--etcd-ttl", TTL];
    let own = ["--listen", &address, "--cluster-address", &address];
    let state = ["--state-dir", state.to_str().unwrap()];
    let mut scheduler = site.start(&[&flags[..], &own, &state].concat()).await;
    scheduler.logged(" serves").await;
    scheduler.address = address.parse().unwrap();
    scheduler
}

/// Sends a START of this instance, for so much memory, in MiB: it waits where there is no room.
pub(crate) async fn submit(to: &Submitter, number: u128, mem_mb: i64) {
    let scheduling = Scheduling {
        queue: Some("10h".parse().unwrap()),
        ..Scheduling::default()
    };
    let start = Start {
        scheduling: Some(scheduling),
        vm_type: "process".to_owned(),
        command: vec!["/bin/true".to_owned()],
        ..start_of(instance(number), mem_mb)
    };
    to.submit(start.encode()).await.unwrap();
}

/// Who waits.
async fn queue(session: &mut Client) -> BTreeSet<String> {
    let listing = session.list(QueryKind::Queue, None).await.unwrap();
    let waiting = listing.instances.into_iter();
    waiting.map(|it| it.instance_uuid).collect()
}

fn uuids(numbers: impl Iterator<Item = usize>) -> BTreeSet<String> {
    numbers.map(|it| instance(it as u128).to_string()).collect()
}

/// Has so many instances wait, all acknowledged by one change, and kills the scheduler after so many bytes of what it sends
/// to etcd then; what the next one finds. Without a number, it is killed after all; then also how many bytes that were.
async fn killed(etcd: &Etcd, count: usize, bytes: Option<u64>) -> (Came, u64) {
    let name = format!("killed-{count}-{}", bytes.unwrap_or(0));
    let site = Site::new();
    let gate = Gate::to(etcd.endpoints[0].strip_prefix("http://").unwrap()).await;
    let old = lead(&site, &name, &gate.address.to_string(), free_address()).await;
    let mut session = Client::connect(&site.client_config(old.address))
        .await
        .unwrap();
    // One change is on its way, for which all that comes behind it waits.
    gate.there.set(false);
    let held = gate.there.bytes();
    submit(&session.submitter(), 0, MEM).await;
    until("the first change is on its way", || {
        gate.there.bytes() > held
    })
    .await;
    for number in 1..=count {
        submit(&session.submitter(), number as u128, MEM).await;
    }
    session.sync().await.unwrap();
    let before = gate.there.bytes();
    if let Some(bytes) = bytes {
        gate.there.shut_after(bytes);
    }
    gate.there.set(true);
    let acknowledging = tokio::spawn(acknowledged(session, count + 1));
    if bytes.is_some() {
        until("the proxy ends", || gate.there.is_over()).await;
    } else {
        until("all is acknowledged", || acknowledging.is_finished()).await;
    }
    let sent = gate.there.bytes() - before;
    let address = old.address.to_string();
    old.kill().await;
    drop(gate);
    let acknowledged = crate::site::within(acknowledging).await.unwrap();
    let mut look = Look::new();
    while let Err(error) = release(&etcd.client(), &name, &address).await {
        look.again(|| error.to_string()).await;
    }
    let next = lead(&site, &name, &etcd.endpoints[0], free_address()).await;
    let mut session = Client::connect(&site.client_config(next.address))
        .await
        .unwrap();
    let found = queue(&mut session).await;
    assert!(found.is_superset(&acknowledged));
    let came = match found == uuids(0..=count) {
        true => Came::All,
        false => {
            // The first may be there, in a change of its own.
            let rest: BTreeSet<String> = found.difference(&uuids(0..1)).cloned().collect();
            assert_eq!(rest, BTreeSet::new(), "a part of it");
            Came::Nothing
        }
    };
    (came, sent)
}

/// Waits until so many are acknowledged as waiting, or the scheduler is gone; which.
async fn acknowledged(mut session: Client, count: usize) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    while found.len() < count {
        match session.next_event().await {
            Ok(Event::Queued(it)) => {
                found.insert(it.instance_uuid);
            }
            Ok(_) => {}
            Err(_) => break,
        }
    }
    found
}

/// Kills it at so many moments of a change of so many records.
async fn at_moments(count: usize, moments: u64) {
    if is_missing() {
        return;
    }
    let etcd = Etcd::start(1, &[]);
    let (came, bytes) = killed(&etcd, count, None).await;
    assert_eq!(came, Came::All);
    let mut all = Vec::new();
    // One at a time: a START that is not recorded is refused after the TTL and 5 s.
    for moment in (0..moments).map(|it| 1 + bytes * it / moments) {
        all.push(killed(&etcd, count, Some(moment)).await.0);
    }
    // The commit is in the middle of it.
    assert!(
        all.contains(&Came::All) && all.contains(&Came::Nothing),
        "{all:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_of_128_records_is_there_or_not_whenever_its_process_is_killed() {
    at_moments(128, 5).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_of_4096_records_is_there_or_not_whenever_its_process_is_killed() {
    at_moments(4096, 3).await;
}
