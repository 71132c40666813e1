//! Handing over: a leader gives its turn to one that stands by, as operators ask.
//!
//! Before it ends its sessions it writes who is meant to lead next, under a lease of its own ([`wait`]). Until that key is
//! gone none but those campaign, the old leader least of all, which stands by again within a moment: with the key of the
//! leader gone, the one that is meant creates it, and deletes this one by the same transaction.

use std::sync::Arc;
use std::time::Duration;

use ciao_etcd::election::Term;
use ciao_etcd::{Client, Compare, Error, Op, Txn};
use tokio::sync::Notify;

use super::keys::Keys;
use super::{EtcdRuntime, view};
use crate::server::{HandOver, STORE_DEADLINE};

/// What the value begins with where one is meant, whose address follows.
const TO: &str = "to ";

/// What the value begins with where all are meant but one, whose address follows.
const NOT: &str = "not ";

/// For how long no other than those who are meant to may lead: for what is queued to leave (`--drain-deadline`) and for the
/// store to be closed, and two TTLs, for the lease to end by itself where etcd does not take its end, and for the campaign of
/// one that is slow.
fn wait(drain_deadline: Duration, ttl: Duration) -> Duration {
    drain_deadline + STORE_DEADLINE + 2 * ttl
}

/// Whether the scheduler at this address is meant by the value of the key.
pub(super) fn is_meant(value: &[u8], address: &str) -> bool {
    let value = String::from_utf8_lossy(value);
    match (value.strip_prefix(TO), value.strip_prefix(NOT)) {
        (Some(to), _) => to == address,
        (_, Some(not)) => not != address,
        // Of a later version: its lease ends.
        _ => false,
    }
}

/// How a leader hands over.
#[derive(Debug)]
pub struct LeaderHandOver {
    pub(super) client: Client,
    pub(super) runtime: Arc<EtcdRuntime>,
    pub(super) keys: Keys,
    pub(super) address: String,
    pub(super) ttl: Duration,
    /// How long its sessions may take to end.
    pub(super) drain_deadline: Duration,
    /// Under which it leads.
    pub(super) term: Term,
    pub(super) begun: Notify,
}

impl LeaderHandOver {
    /// Waits until this scheduler is to end its sessions, and then its turn.
    pub async fn begun(&self) {
        self.begun.notified().await;
    }

    async fn write(&self, to: &str) -> Result<String, String> {
        let standby = view::standby(&self.client, &self.keys, Some(&self.address)).await;
        let standby = standby.map_err(|why| format!("etcd does not list who stands by: {why}"))?;
        let listed = standby.join(", ");
        let (value, to) = match (&standby[..], to) {
            ([], _) => return Err("no other scheduler stands by".to_owned()),
            ([only], "") => (format!("{NOT}{}", self.address), only.clone()),
            (_, "") => (format!("{NOT}{}", self.address), String::new()),
            (_, to) if to == self.address => return Err(format!("{to} leads already")),
            (all, to) if all.iter().any(|it| it == to) => (format!("{TO}{to}"), to.to_owned()),
            _ => return Err(format!("none stands by at {to}, but at {listed}")),
        };
        match self.reserve(value).await {
            Ok(true) => Ok(to),
            Ok(false) => Err("another scheduler leads by now".to_owned()),
            Err(why) => Err(format!("etcd does not take who leads next: {why}")),
        }
    }

    /// Writes who is meant, if this scheduler still leads.
    async fn reserve(&self, value: String) -> Result<bool, Error> {
        let lease = self
            .client
            .grant(wait(self.drain_deadline, self.ttl))
            .await?;
        let put = Op::Put {
            key: self.keys.next(),
            value: value.into_bytes(),
            lease,
        };
        let reserve = Txn {
            compare: vec![Compare::Created(
                self.keys.leader(),
                self.term.create_revision,
            )],
            then: vec![put],
            otherwise: Vec::new(),
        };
        let reserved = self.client.txn(reserve).await.map(|it| it.succeeded);
        if !matches!(reserved, Ok(true)) {
            // It may have been written all the same, and would keep others from leading.
            let _ = self.client.revoke(lease).await;
        }
        reserved
    }
}

impl HandOver for LeaderHandOver {
    fn address(&self) -> &str {
        &self.address
    }

    fn prepare(&self, to: &str) -> Result<String, String> {
        self.runtime.block_on(self.write(to))
    }

    fn begin(&self) {
        self.begun.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::is_meant;

    #[test]
    fn one_is_meant_or_all_but_one() {
        assert!(is_meant(b"to a:1", "a:1"));
        assert!(!is_meant(b"to a:1", "a:11"));
        assert!(is_meant(b"not a:1", "b:1"));
        assert!(!is_meant(b"not a:1", "a:1"));
        assert!(!is_meant(b"a:1", "a:1"));
    }
}
