//! What a scheduler wants of etcd, and the calls of the election in it.
//!
//! [`EtcdCalls`] is carried out by a client, and in the simulation of several schedulers by a model of etcd: which
//! transactions there are, and what an answer means, is said here and in `records` for both.

use std::time::Duration;

use ciao_etcd::election::{Answer, Call, LeaderKey, Term};
use ciao_etcd::{Client, Compare, Error, KeyValue, Op, Txn, TxnAnswer};

use super::hand_over;
use super::keys::{self, Keys};

/// Calls of etcd. Errors are those of [`Client`]'s methods of the same names.
pub trait EtcdCalls {
    /// Grants a lease: its number.
    fn grant(&self, ttl: Duration) -> impl Future<Output = Result<i64, Error>>;
    /// Has a lease begin its time again.
    fn keep_alive(&self, lease: i64) -> impl Future<Output = Result<(), Error>>;
    /// Ends a lease, and its keys.
    fn revoke(&self, lease: i64) -> impl Future<Output = Result<(), Error>>;
    /// Carries a transaction out, once.
    fn txn(&self, txn: Txn) -> impl Future<Output = Result<TxnAnswer, Error>>;
    /// What a key has.
    fn get(&self, key: Vec<u8>) -> impl Future<Output = Result<Option<KeyValue>, Error>>;
    /// All keys that begin with this, in their order, as they were at one moment.
    fn list(&self, prefix: Vec<u8>) -> impl Future<Output = Result<Vec<KeyValue>, Error>>;
}

impl EtcdCalls for Client {
    async fn grant(&self, ttl: Duration) -> Result<i64, Error> {
        Self::grant(self, ttl).await
    }

    async fn keep_alive(&self, lease: i64) -> Result<(), Error> {
        Self::keep_alive(self, lease).await
    }

    async fn revoke(&self, lease: i64) -> Result<(), Error> {
        Self::revoke(self, lease).await
    }

    async fn txn(&self, txn: Txn) -> Result<TxnAnswer, Error> {
        Self::txn(self, txn).await
    }

    async fn get(&self, key: Vec<u8>) -> Result<Option<KeyValue>, Error> {
        Self::get(self, &key).await.map(|(found, _)| found)
    }

    async fn list(&self, prefix: Vec<u8>) -> Result<Vec<KeyValue>, Error> {
        let cuts = keys::cuts(&prefix);
        let listing = self.list_in_parts(&prefix, &cuts).await?;
        Ok(listing.keys)
    }
}

/// One scheduler as the election's calls name it.
#[derive(Debug, Clone)]
pub struct Candidate {
    /// The keys of its cluster.
    pub keys: Keys,
    /// Where it can be reached.
    pub address: String,
    /// How long etcd keeps its key without hearing of it.
    pub ttl: Duration,
}

impl Candidate {
    /// Carries a call of the election out; what it says, and why it failed if it did.
    pub async fn carry_out(self, etcd: impl EtcdCalls, call: Call) -> (Answer, Option<Error>) {
        match self.call(etcd, call).await {
            Ok(answer) => (answer, None),
            Err(Error::NoSuchLease) => (Answer::NoSuchLease, None),
            Err(error) => (Answer::Unknown, Some(error)),
        }
    }

    async fn call(self, etcd: impl EtcdCalls, call: Call) -> Result<Answer, Error> {
        let Self { keys, address, ttl } = self;
        let get = vec![Op::Get(keys.leader()), Op::Get(keys.generation())];
        match call {
            Call::Grant => {
                let lease = etcd.grant(ttl).await?;
                be_listed(&etcd, keys.member(&address), lease).await;
                Ok(Answer::Granted(lease))
            }
            Call::KeepAlive(lease) => etcd.keep_alive(lease).await.map(|()| Answer::Alive),
            Call::Revoke(lease) => etcd.revoke(lease).await.map(|()| Answer::Alive),
            Call::Read => {
                let read = Txn {
                    then: get,
                    ..Txn::default()
                };
                etcd.txn(read).await.map(|it| key_of(&it))
            }
            Call::Campaign(lease) => campaign(&etcd, (&keys, &address), lease).await,
        }
    }
}

/// Creates the leader's key, if it is absent. While a leader hands over, the one alone that is meant to lead next does: the key
/// that says so goes with its success, and with its lease where none has come.
async fn campaign(
    etcd: &impl EtcdCalls,
    (keys, address): (&Keys, &str),
    lease: i64,
) -> Result<Answer, Error> {
    let won = |it: &TxnAnswer| {
        Answer::Won(Term {
            generation: generation(it.found.first()),
            create_revision: it.revision,
        })
    };
    let put = || Op::Put {
        key: keys.leader(),
        value: address.as_bytes().to_vec(),
        lease,
    };
    let read = vec![
        Op::Get(keys.leader()),
        Op::Get(keys.generation()),
        Op::Get(keys.next()),
    ];
    let first = Txn {
        compare: vec![
            Compare::Created(keys.leader(), 0),
            Compare::Created(keys.next(), 0),
        ],
        then: vec![put(), Op::Get(keys.generation())],
        otherwise: read.clone(),
    };
    let tried = etcd.txn(first).await?;
    if tried.succeeded {
        return Ok(won(&tried));
    }
    let leader = tried.found.first().and_then(Option::as_ref);
    let next = tried.found.get(2).and_then(Option::as_ref);
    let (None, Some(next)) = (leader, next) else {
        return Ok(key_of(&tried));
    };
    if !hand_over::is_meant(&next.value, address) {
        // Not that there is none: it would try again at once.
        return Ok(Answer::Unknown);
    }
    let second = Txn {
        compare: vec![
            Compare::Created(keys.leader(), 0),
            Compare::Created(keys.next(), next.create_revision),
        ],
        then: vec![put(), Op::Get(keys.generation()), Op::Delete(keys.next())],
        otherwise: read,
    };
    let tried = etcd.txn(second).await?;
    match tried.succeeded {
        true => Ok(won(&tried)),
        false => Ok(key_of(&tried)),
    }
}

/// Has a scheduler be found among those that take part. One that cannot write it takes part all the same.
async fn be_listed(etcd: &impl EtcdCalls, key: Vec<u8>, lease: i64) {
    let put = Op::Put {
        key,
        value: crate::VERSION.as_bytes().to_vec(),
        lease,
    };
    let put = Txn {
        then: vec![put],
        ..Txn::default()
    };
    let _ = etcd.txn(put).await;
}

/// The leader's key, as the election knows it.
#[must_use]
pub fn leader_key(found: &KeyValue) -> LeaderKey {
    LeaderKey {
        create_revision: found.create_revision,
        lease: found.lease,
        value: found.value.clone(),
    }
}

/// The leader's key and the generation, as they were read.
fn key_of(answer: &TxnAnswer) -> Answer {
    let key = answer.found.first().and_then(Option::as_ref);
    Answer::Key(key.map(leader_key), generation(answer.found.get(1)))
}

fn generation(found: Option<&Option<KeyValue>>) -> u64 {
    let found = found.and_then(Option::as_ref);
    found
        .and_then(|it| String::from_utf8_lossy(&it.value).trim().parse().ok())
        .unwrap_or(0)
}
