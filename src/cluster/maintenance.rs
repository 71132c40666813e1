//! Maintains etcd while this scheduler leads: compacts it, and logs its alarms.
//!
//! Each write of the leader makes a revision that etcd keeps until it is compacted; without that its database fills up.
//! Where etcd is shared with other programs, one of them, or etcd itself, does it, and `--etcd-compact off` leaves it to
//! them.

use std::time::Duration;

use ciao_etcd::{Alarm, Client, Op, Txn};
use tokio::sync::watch;
use tokio::time::interval;
use tracing::{info, warn};

use super::Standing;

/// How often it looks how etcd is: soon enough for people, and seldom beside what renews the lease.
const LOOK_EVERY: Duration = Duration::from_secs(10);

/// How often it compacts, and how old is what goes: readers of pages at one revision, and watches that were cut off, have
/// that long.
const COMPACT_EVERY: Duration = Duration::from_secs(300);

/// Runs for as long as the scheduler takes part; does nothing while it does not lead. `leader`: the leader's key.
pub(super) async fn maintain(
    client: Client,
    (is_compacting, leader): (bool, Vec<u8>),
    mut standing: watch::Receiver<Standing>,
) {
    let leads = |it: &Standing| matches!(it, Standing::Leader(_));
    if standing.wait_for(leads).await.is_err() {
        return;
    }
    warn_of_versions(&client).await;
    let mut alarms = Vec::new();
    let mut before = None;
    // The first look at once: a full etcd is logged when the leader begins.
    let mut looks = interval(LOOK_EVERY);
    let mut compactions = interval(COMPACT_EVERY);
    loop {
        tokio::select! {
            _ = looks.tick() => log_alarms(&client, &mut alarms).await,
            _ = compactions.tick() => if is_compacting {
                compact(&client, &leader, &mut before).await;
            },
        }
    }
}

async fn warn_of_versions(client: &Client) {
    for (endpoint, status) in client.statuses().await {
        if let Ok(status) = status
            && status.has_lease_fault()
        {
            warn!(
                event = "cluster_etcd_old",
                "etcd {} at {endpoint} may confirm a lease that has ended after its member was cut off: use 3.4.31, 3.5.13 \
                 or a later one",
                status.version
            );
        }
    }
}

/// Logs what has changed.
async fn log_alarms(client: &Client, known: &mut Vec<Alarm>) {
    let Ok(mut alarms) = client.alarms().await else {
        return;
    };
    alarms.dedup();
    for alarm in alarms.iter().filter(|it| !known.contains(it)) {
        warn!(event = "cluster_etcd_alarm", "etcd has raised {alarm}");
    }
    if alarms.is_empty() && !known.is_empty() {
        info!(event = "cluster_etcd_alarm", "etcd has no alarm any more");
    }
    *known = alarms;
}

/// Has etcd forget what was overwritten before the last look.
async fn compact(client: &Client, leader: &[u8], before: &mut Option<i64>) {
    // Any read says the revision; this one is allowed.
    let read = Txn {
        then: vec![Op::Get(leader.to_vec())],
        ..Txn::default()
    };
    let Ok(now) = client.txn(read).await else {
        return;
    };
    let Some(revision) = before.replace(now.revision) else {
        return;
    };
    if let Err(error) = client.compact(revision).await {
        warn!(
            event = "cluster_etcd_not_compacted",
            "etcd keeps what was overwritten, and grows: it cannot be compacted to revision {revision}: {error}"
        );
    }
}
