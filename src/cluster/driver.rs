//! Drives the election: makes its calls, watches the leader's key, keeps the fence.

use std::sync::Arc;
use std::time::Duration;

use ciao_etcd::election::{Answer, Call, Election, LeaderKey, Output};
use ciao_etcd::{Client, Error};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tracing::{info, warn};

use super::Standing;
use super::calls::{Candidate, leader_key};
use super::maintenance::Maintenance;
use super::trouble::Trouble;
use crate::net::fence::{Fence, boottime};

/// Pause before the key is watched again, where that has failed.
const WATCH_AGAIN: Duration = Duration::from_millis(200);

/// How long a scheduler that has stepped down waits for etcd to end its lease.
const REVOKE_TIME: Duration = Duration::from_secs(1);

/// What happens to the election.
#[derive(Debug)]
pub(super) enum Event {
    /// A call was answered, or failed for this reason.
    Answered(u64, Call, Answer, Option<Error>),
    /// The leader's key has changed, at this revision.
    Changed(Option<LeaderKey>, i64),
    /// A write under the term was refused.
    Refused,
    /// It is to lead no longer.
    Resign,
}

pub(super) struct Driver {
    pub(super) client: Client,
    pub(super) candidate: Candidate,
    /// Begun with it.
    pub(super) maintenance: Maintenance,
    pub(super) fence: Arc<Fence>,
    pub(super) say: watch::Sender<Standing>,
    /// Where the leader can be reached.
    pub(super) tell: watch::Sender<Option<String>>,
    pub(super) events: mpsc::UnboundedSender<Event>,
}

impl Driver {
    /// Runs until the scheduler has stepped down.
    pub(super) async fn run(self, mut incoming: mpsc::UnboundedReceiver<Event>) {
        // They end with it.
        let mut beside = JoinSet::new();
        let watching = watch_leader(
            self.client.clone(),
            self.candidate.keys.leader(),
            self.events.clone(),
        );
        beside.spawn(watching);
        let mut election = Election::new(self.candidate.ttl, boottime());
        let maintaining = self.maintenance.clone().run(self.say.subscribe());
        beside.spawn(maintaining);
        let mut trouble = Trouble::default();
        while !self.settle(&mut election).await {
            let due = election.next_due().unwrap_or_default();
            let event = timeout(due.saturating_sub(boottime()), incoming.recv()).await;
            let now = boottime();
            match event {
                Err(_) => election.tick(now),
                Ok(Some(Event::Answered(number, call, answer, error))) => {
                    trouble.note(call, error.as_ref());
                    election.answered(now, number, answer);
                }
                Ok(Some(Event::Changed(key, revision))) => election.changed(now, key, revision),
                Ok(Some(Event::Refused)) => election.refused(now),
                Ok(Some(Event::Resign) | None) => election.resign(now),
            }
            // A process that was stopped learns it here, whatever comes first.
            election.tick(boottime());
        }
    }

    /// Does what the election puts out; whether it is over.
    async fn settle(&self, election: &mut Election) -> bool {
        // First: what is called from here on may end the lease.
        self.fence.set(election.sends_until().unwrap_or_default());
        let leader = election.leader().map(|it| text(&it.value));
        self.tell.send_if_modified(|known| {
            let is_other = *known != leader;
            known.clone_from(&leader);
            is_other
        });
        let mut last = None;
        while let Some(output) = election.poll_output() {
            match output {
                Output::Call(number, call) => {
                    let candidate = self.candidate.clone();
                    let work = candidate.carry_out(self.client.clone(), call);
                    let events = self.events.clone();
                    last = Some(tokio::spawn(async move {
                        let (answer, error) = work.await;
                        let _ = events.send(Event::Answered(number, call, answer, error));
                    }));
                }
                Output::Leads(term) => {
                    info!(event = "cluster_leads", "this scheduler leads, term {term}");
                    self.say.send_replace(Standing::Leader(term));
                }
                Output::Pauses => warn!(
                    event = "cluster_paused",
                    "etcd has not confirmed in time that this scheduler leads: nothing is sent until it does"
                ),
                Output::GoesOn => {
                    info!(event = "cluster_goes_on", "etcd confirms it: sending again")
                }
                Output::StepsDown(why) => {
                    warn!(
                        event = "cluster_steps_down",
                        "this scheduler steps down: {why}"
                    );
                    // The lease's end, so that another takes over at once.
                    if let Some(revoked) = last.take() {
                        let _ = timeout(REVOKE_TIME, revoked).await;
                    }
                    self.say.send_replace(Standing::Over(why));
                    return true;
                }
            }
        }
        false
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Follows the leader's key, for ever. What is missed between two watches the reads find.
async fn watch_leader(client: Client, key: Vec<u8>, events: mpsc::UnboundedSender<Event>) {
    loop {
        if let Ok(mut watch) = client.watch(&key, 0).await {
            while let Ok(changes) = watch.next().await {
                for change in changes {
                    let event = match change {
                        ciao_etcd::Event::Put(key) => {
                            Event::Changed(Some(leader_key(&key)), key.mod_revision)
                        }
                        ciao_etcd::Event::Deleted { revision, .. } => {
                            Event::Changed(None, revision)
                        }
                    };
                    if events.send(event).is_err() {
                        return;
                    }
                }
            }
        }
        sleep(WATCH_AGAIN).await;
    }
}
