//! Several schedulers behind one name, as operators see them, and what they can do of them.

use ciao_etcd::{Alarm, Client, Compare, Error, Op, Txn};
use serde::Serialize;

use super::keys::{self, Keys};

/// Who leads, who stands by, and how etcd is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ClusterView {
    /// The cluster's name.
    pub cluster: String,
    /// Where the leader is; `None` where none leads.
    pub leader: Option<String>,
    /// Since which revision of etcd it leads.
    pub term: Option<i64>,
    /// Where the others are.
    pub standby: Vec<String>,
    /// Members of etcd, in the order of the flag.
    pub etcd: Vec<EtcdMember>,
    /// Alarms that etcd has raised, in words.
    pub alarms: Vec<String>,
    /// Commands of a shell that mend them, in order; empty where there is nothing to mend, or not by commands.
    pub commands: Vec<String>,
}

/// A member of etcd.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct EtcdMember {
    /// Its address, as given.
    pub endpoint: String,
    /// Why it says nothing of itself; the rest is empty then.
    pub error: Option<String>,
    /// As `3.5.13`.
    pub version: String,
    /// Bytes of its database.
    pub db_bytes: u64,
    /// Bytes of that which are in use.
    pub db_bytes_in_use: u64,
    /// Whether its version may confirm a lease that has ended.
    pub has_lease_fault: bool,
    /// Whether it leads the members of etcd.
    pub is_leader: bool,
}

/// What became of a turn that was to be ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Released {
    /// It is ended.
    Done,
    /// Another scheduler leads, at this address.
    Another(String),
    /// None leads.
    None,
}

/// Reads it. `etcdctl`: how that is called to reach the same members.
///
/// # Errors
/// No member answers, or etcd refuses to be read.
pub async fn view(client: &Client, cluster: &str, etcdctl: &str) -> Result<ClusterView, Error> {
    let keys = Keys::new(cluster);
    let (leader, revision) = client.get(&keys.leader()).await?;
    let term = leader.as_ref().map(|it| it.create_revision);
    let leader = leader.map(|it| text(&it.value));
    let standby = standby(client, &keys, leader.as_deref()).await?;
    let (alarms, commands) = match client.alarms().await {
        Ok(mut alarms) => {
            alarms.dedup();
            let commands = match alarms.contains(&Alarm::NoSpace) {
                true => make_room(etcdctl, revision),
                false => Vec::new(),
            };
            (alarms.iter().map(ToString::to_string).collect(), commands)
        }
        Err(error) => (vec![format!("cannot be read: {error}")], Vec::new()),
    };
    let etcd = client.statuses().await.into_iter();
    let etcd = etcd.map(|(endpoint, status)| match status {
        Ok(status) => EtcdMember {
            endpoint,
            error: None,
            has_lease_fault: status.has_lease_fault(),
            is_leader: status.is_leader,
            db_bytes: status.db_bytes,
            db_bytes_in_use: status.db_bytes_in_use,
            version: status.version,
        },
        Err(error) => EtcdMember {
            endpoint,
            error: Some(error.to_string()),
            version: String::new(),
            db_bytes: 0,
            db_bytes_in_use: 0,
            has_lease_fault: false,
            is_leader: false,
        },
    });
    Ok(ClusterView {
        cluster: cluster.to_owned(),
        leader,
        term,
        standby,
        etcd: etcd.collect(),
        alarms,
        commands,
    })
}

/// Where schedulers are that take part and do not lead.
///
/// # Errors
/// No member answers, or etcd refuses to be read.
pub(super) async fn standby(
    client: &Client,
    keys: &Keys,
    leader: Option<&str>,
) -> Result<Vec<String>, Error> {
    let prefix = keys.key(keys::MEMBERS);
    let members = client.list(&prefix).await?.keys;
    let members = members.iter().map(|it| text(&it.key[prefix.len()..]));
    Ok(members.filter(|it| Some(&**it) != leader).collect())
}

/// What takes back the alarm NOSPACE: forgets what was overwritten before this revision, gives the room back, and then
/// says that there is some.
fn make_room(etcdctl: &str, revision: i64) -> Vec<String> {
    let words = [&*format!("compact {revision}"), "defrag", "alarm disarm"];
    words.map(|it| format!("{etcdctl} {it}")).into()
}

/// Ends the turn of the scheduler at this address, if it leads: another leads at once. Its process must have ended: one that
/// goes on would send for up to two thirds of its TTL.
///
/// # Errors
/// No member answers, or etcd refuses it.
pub async fn release(client: &Client, cluster: &str, address: &str) -> Result<Released, Error> {
    let keys = Keys::new(cluster);
    let (leader, _) = client.get(&keys.leader()).await?;
    let Some(leader) = leader else {
        return Ok(Released::None);
    };
    if leader.value != address.as_bytes() {
        return Ok(Released::Another(text(&leader.value)));
    }
    // The key first, and only this turn's: the lease may be known no more.
    let delete = Txn {
        compare: vec![Compare::Created(keys.leader(), leader.create_revision)],
        then: vec![Op::Delete(keys.leader())],
        otherwise: Vec::new(),
    };
    client.txn(delete).await?;
    match client.revoke(leader.lease).await {
        Ok(()) | Err(Error::NoSuchLease) => Ok(Released::Done),
        Err(error) => Err(error),
    }
}

/// Makes all later terms of the cluster's leaders greater than those that launchers can have known: for an etcd that was
/// wiped or set back, whose revisions are lower than before. The present leader steps down when it reads it, and leads again
/// under the new generation, or another does. Returns the generation: the time in seconds of Unix time, or one more than the last.
///
/// # Errors
/// No member answers, or etcd refuses it, also because it was changed meanwhile.
pub async fn new_generation(client: &Client, cluster: &str, now: u64) -> Result<u64, Error> {
    let keys = Keys::new(cluster);
    let (last, _) = client.get(&keys.generation()).await?;
    let number = last
        .as_ref()
        .and_then(|it| text(&it.value).trim().parse::<u64>().ok());
    let generation = number.map_or(now, |last| now.max(last + 1));
    let raise = Txn {
        compare: vec![Compare::Modified(
            keys.generation(),
            last.map_or(0, |it| it.mod_revision),
        )],
        then: vec![Op::Put {
            key: keys.generation(),
            value: generation.to_string().into_bytes(),
            lease: 0,
        }],
        otherwise: Vec::new(),
    };
    match client.txn(raise).await?.succeeded {
        true => Ok(generation),
        false => Err(Error::Refused("another has just done so".to_owned())),
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
