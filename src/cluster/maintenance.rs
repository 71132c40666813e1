//! Maintains etcd while this scheduler leads: compacts it, logs its alarms, and shows how it is and who takes part.
//!
//! Each write of the leader makes a revision that etcd keeps until it is compacted; without that its database fills up.
//! Where etcd is shared with other programs, one of them, or etcd itself, does it, and `--etcd-compact off` leaves it to
//! them.

use std::time::Duration;

use ciao_etcd::election::Term;
use ciao_etcd::{Alarm, Client, MemberStatus, Op, Txn};
use sched_model::SchedulersView;
use tokio::sync::watch;
use tokio::time::interval;
use tracing::{info, warn};

use super::keys::Keys;
use super::{Standing, view};

/// How often it looks how etcd is: soon enough for people, and seldom beside what renews the lease.
const LOOK_EVERY: Duration = Duration::from_secs(10);

/// How often it looks who takes part: people look at that after a scheduler was started, or has handed over.
const MEMBERS_EVERY: Duration = Duration::from_secs(2);

/// How often it compacts, and how old is what goes: readers of pages at one revision, and watches that were cut off, have
/// that long.
const COMPACT_EVERY: Duration = Duration::from_secs(300);

/// What it works with.
#[derive(Debug, Clone)]
pub(super) struct Maintenance {
    pub(super) client: Client,
    pub(super) keys: Keys,
    /// The cluster's name.
    pub(super) cluster: String,
    /// Where this scheduler can be reached.
    pub(super) address: String,
    pub(super) is_compacting: bool,
    /// Where what it finds is shown.
    pub(super) show: watch::Sender<Option<SchedulersView>>,
}

impl Maintenance {
    /// Runs for as long as the scheduler takes part; does nothing while it does not lead.
    pub(super) async fn run(self, mut standing: watch::Receiver<Standing>) {
        let leads = |it: &Standing| matches!(it, Standing::Leader(_));
        let term = match standing.wait_for(leads).await.as_deref() {
            Ok(Standing::Leader(term)) => *term,
            _ => return,
        };
        warn_of_versions(&self.client).await;
        let mut alarms = Vec::new();
        let mut before = None;
        // The first look at once: a full etcd is logged when the leader begins.
        let mut looks = interval(LOOK_EVERY);
        let mut members = interval(MEMBERS_EVERY);
        let mut compactions = interval(COMPACT_EVERY);
        loop {
            tokio::select! {
                _ = looks.tick() => {
                    log_alarms(&self.client, &mut alarms).await;
                    self.look(term, &alarms).await;
                }
                _ = members.tick() => self.look_who_stands_by().await,
                _ = compactions.tick() => if self.is_compacting {
                    compact(&self.client, &self.keys.leader(), &mut before).await;
                },
            }
        }
    }

    /// Shows who takes part, once it was shown how etcd is.
    async fn look_who_stands_by(&self) {
        let standby = view::standby(&self.client, &self.keys, Some(&self.address)).await;
        let Ok(standby) = standby else {
            return;
        };
        self.show.send_if_modified(|shown| match shown {
            Some(shown) if shown.standby != standby => {
                shown.standby = standby;
                true
            }
            _ => false,
        });
    }

    /// Shows who takes part and how etcd is. While etcd does not answer, what was read last stays.
    async fn look(&self, term: Term, alarms: &[Alarm]) {
        let standby = view::standby(&self.client, &self.keys, Some(&self.address)).await;
        let Ok(standby) = standby else {
            return;
        };
        let statuses = self.client.statuses().await;
        let answering: Vec<_> = statuses
            .iter()
            .filter_map(|(_, it)| it.as_ref().ok())
            .collect();
        let largest = answering.iter().max_by_key(|it| it.db_bytes);
        let bytes = |of: fn(&MemberStatus) -> u64| {
            let count = largest.map_or(0, |it| of(it));
            i64::try_from(count).unwrap_or(i64::MAX)
        };
        self.show.send_replace(Some(SchedulersView {
            cluster: self.cluster.clone(),
            leader: self.address.clone(),
            term: term.to_string(),
            standby,
            etcd_members: statuses.len() as i64,
            etcd_answering: answering.len() as i64,
            etcd_bytes: bytes(|it| it.db_bytes),
            etcd_bytes_in_use: bytes(|it| it.db_bytes_in_use),
            etcd_quota: bytes(|it| it.db_quota),
            etcd_alarms: alarms.iter().map(ToString::to_string).collect(),
        }));
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
