//! A model of etcd: keys with revisions, leases, transactions. One history, as a quorum has it; what lies between it and
//! its callers is in `cluster`.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use ciao_etcd::election::LeaderKey;
use ciao_etcd::{Compare, Error, KeyValue, Op, Txn, TxnAnswer};
use ciao_scheduler::cluster::{Keys, leader_key};

use super::calls::{Reply, Request};
use crate::facts::Fact;
use crate::network::Server;

/// Most operations in a transaction, and most bytes: etcd's own limits.
const MAX_OPS: usize = 128;
const MAX_BYTES: usize = 1_572_864;

/// What etcd has.
#[derive(Debug)]
pub(crate) struct Etcd {
    names: Keys,
    revision: i64,
    keys: BTreeMap<Vec<u8>, KeyValue>,
    /// When each lease ends, and what it is renewed by.
    leases: BTreeMap<i64, (Instant, Duration)>,
    last_lease: i64,
    /// Who made the leader's key.
    owner: Option<Server>,
    /// Until when it has no quorum.
    pub(crate) lost_until: Option<Instant>,
    /// Until when what is listed is compacted before the last page is read.
    pub(crate) compacts_until: Option<Instant>,
    /// Until when its alarm NOSPACE is raised.
    pub(crate) full_until: Option<Instant>,
    /// When leases are looked at next.
    pub(crate) looked_at: Option<Instant>,
    /// Changes of the leader's key that watchers have not been told of.
    pub(crate) changes: Vec<(Option<LeaderKey>, i64)>,
    /// What checks are to see.
    pub(crate) facts: Vec<Fact>,
}

impl Etcd {
    pub(crate) fn new(names: Keys) -> Self {
        Self {
            names,
            revision: 1,
            keys: BTreeMap::new(),
            leases: BTreeMap::new(),
            last_lease: 0,
            owner: None,
            lost_until: None,
            compacts_until: None,
            full_until: None,
            looked_at: None,
            changes: Vec::new(),
            facts: Vec::new(),
        }
    }

    /// The revision at which the leader's key was made, while it is there.
    pub(crate) fn leader(&self) -> Option<i64> {
        let key = self.keys.get(&self.names.leader());
        key.map(|it| it.create_revision)
    }

    /// When the next lease ends.
    pub(crate) fn next_end(&self) -> Option<Instant> {
        self.leases.values().map(|(at, _)| *at).min()
    }

    /// Ends leases whose time is over, and what hangs on them. One that has no quorum ends none.
    pub(crate) fn end_leases(&mut self, now: Instant) {
        if self.lost_until.is_some_and(|until| until > now) {
            return;
        }
        let over = self.leases.iter().filter(|(_, (at, _))| *at <= now);
        for lease in over.map(|(lease, _)| *lease).collect::<Vec<_>>() {
            self.revoke(lease);
        }
    }

    /// etcd has elected another leader: it counts the time of all leases from the beginning.
    pub(crate) fn extend_leases(&mut self, now: Instant) {
        for (at, ttl) in self.leases.values_mut() {
            *at = (*at).max(now + *ttl);
        }
    }

    /// An operator raises the generation.
    pub(crate) fn raise_generation(&mut self) {
        let name = self.names.generation();
        let now = self.keys.get(&name);
        let now = now.map_or(0, |it| generation(&it.value));
        self.revision += 1;
        let value = (now + 1).to_string().into_bytes();
        self.put(Server::default(), name, value, 0);
    }

    /// The lease of a scheduler that leads no more is ended, if the leader's key is still that one's.
    pub(crate) fn release(&mut self, server: Server) {
        let key = self.keys.get(&self.names.leader());
        if let Some(lease) = key.map(|it| it.lease)
            && self.owner == Some(server)
        {
            self.revoke(lease);
        }
    }

    /// A leader that hands over has written that all may lead next but the scheduler at this place, if it leads still.
    pub(crate) fn reserve(&mut self, now: Instant, server: Server, wait: Duration) {
        if self.owner != Some(server) || self.lost_until.is_some_and(|until| until > now) {
            return;
        }
        self.last_lease += 1;
        self.leases.insert(self.last_lease, (now + wait, wait));
        self.revision += 1;
        let value = format!("not {}", server.place).into_bytes();
        self.put(server, self.names.next(), value, self.last_lease);
    }

    /// Carries a call out, as one moment.
    pub(crate) fn handle(
        &mut self,
        now: Instant,
        by: Server,
        request: Request,
    ) -> Result<Reply, Error> {
        self.end_leases(now);
        let is_full = self.full_until.is_some_and(|until| until > now);
        match request {
            Request::Grant(_) if is_full => Err(Error::NoSpace),
            Request::Grant(ttl) => {
                self.last_lease += 1;
                self.leases.insert(self.last_lease, (now + ttl, ttl));
                Ok(Reply::Lease(self.last_lease))
            }
            Request::KeepAlive(lease) => match self.leases.get_mut(&lease) {
                Some((at, ttl)) => {
                    *at = now + *ttl;
                    Ok(Reply::Done)
                }
                None => Err(Error::NoSuchLease),
            },
            Request::Revoke(lease) => match self.revoke(lease) {
                true => Ok(Reply::Done),
                false => Err(Error::NoSuchLease),
            },
            Request::Get(key) => Ok(Reply::Got(self.keys.get(&key).cloned())),
            Request::List(_) if self.compacts_until.is_some_and(|until| until > now) => {
                Err(Error::Compacted)
            }
            Request::List(prefix) => {
                let found = self.keys.range(prefix.clone()..);
                let found = found.take_while(|(key, _)| key.starts_with(&prefix));
                Ok(Reply::Listed(found.map(|(_, it)| it.clone()).collect()))
            }
            Request::Txn(txn) if is_full && writes(&txn) => Err(Error::NoSpace),
            Request::Txn(txn) => self.txn(by, txn).map(Reply::Txn),
            Request::Pause(_) => unreachable!("etcd is not asked for that"),
        }
    }

    fn revoke(&mut self, lease: i64) -> bool {
        let is_there = self.leases.remove(&lease).is_some();
        let of_it = self.keys.iter().filter(|(_, it)| it.lease == lease);
        let of_it: Vec<Vec<u8>> = of_it.map(|(key, _)| key.clone()).collect();
        if is_there && !of_it.is_empty() {
            self.revision += 1;
            of_it.iter().for_each(|key| self.delete(key));
        }
        is_there
    }

    fn txn(&mut self, by: Server, txn: Txn) -> Result<TxnAnswer, Error> {
        let succeeded = txn.compare.iter().all(|it| self.holds(it));
        let ops = match succeeded {
            true => txn.then,
            false => txn.otherwise,
        };
        check_size(&ops);
        let lacks_lease = |it: &Op| matches!(it, Op::Put { lease, .. } if *lease != 0 && !self.leases.contains_key(lease));
        if ops.iter().any(lacks_lease) {
            return Err(Error::NoSuchLease);
        }
        if ops.iter().any(|it| !matches!(it, Op::Get(_))) {
            self.revision += 1;
        }
        let mut found = Vec::new();
        for op in ops {
            match op {
                Op::Get(key) => found.push(self.keys.get(&key).cloned()),
                Op::Put { key, value, lease } => {
                    self.see_write(by, &key);
                    self.put(by, key, value, lease);
                }
                Op::Delete(key) => {
                    self.see_write(by, &key);
                    self.delete(&key);
                }
                Op::DeletePrefix(prefix) => {
                    let below = self.keys.range(prefix.clone()..);
                    let below = below.take_while(|(key, _)| key.starts_with(&prefix));
                    let below: Vec<Vec<u8>> = below.map(|(key, _)| key.clone()).collect();
                    for key in below {
                        self.see_write(by, &key);
                        self.delete(&key);
                    }
                }
            }
        }
        Ok(TxnAnswer {
            succeeded,
            revision: self.revision,
            found,
        })
    }

    fn holds(&self, compare: &Compare) -> bool {
        let of = |key, revision: fn(&KeyValue) -> i64| self.keys.get(key).map_or(0, revision);
        match compare {
            Compare::Created(key, revision) => of(key, |it| it.create_revision) == *revision,
            Compare::Modified(key, revision) => of(key, |it| it.mod_revision) == *revision,
            Compare::Value(key, value) => self.keys.get(key).is_some_and(|it| it.value == *value),
        }
    }

    /// Only the leader may write what is kept.
    fn see_write(&mut self, by: Server, key: &[u8]) {
        let besides = [
            self.names.leader(),
            self.names.key("member/"),
            self.names.generation(),
        ];
        if besides.iter().any(|it| key.starts_with(it)) {
            return;
        }
        let leads = self.leader().and(self.owner);
        self.facts.push(Fact::Recorded { by, leads });
    }

    fn put(&mut self, by: Server, key: Vec<u8>, value: Vec<u8>, lease: i64) {
        let revision = self.revision;
        let kept = self.keys.entry(key.clone()).or_insert_with(|| KeyValue {
            key,
            create_revision: revision,
            ..KeyValue::default()
        });
        kept.mod_revision = revision;
        kept.value = value;
        kept.lease = lease;
        if kept.key == self.names.leader() {
            self.owner = Some(by);
            self.changes.push((Some(leader_key(kept)), revision));
        }
    }

    fn delete(&mut self, key: &[u8]) {
        let removed = self.keys.remove(key);
        if removed.is_some_and(|it| it.key == self.names.leader()) {
            self.owner = None;
            self.changes.push((None, self.revision));
        }
    }
}

/// What etcd refuses for its size, or because a key stands in it twice, is not sent.
fn check_size(ops: &[Op]) {
    let mut keys = std::collections::BTreeSet::new();
    let mut bytes = 0;
    for op in ops {
        match op {
            Op::Put { key, value, .. } => {
                bytes += key.len() + value.len();
                assert!(keys.insert(key), "a key twice in one transaction");
            }
            Op::Delete(key) => assert!(keys.insert(key), "a key twice in one transaction"),
            Op::Get(_) | Op::DeletePrefix(_) => {}
        }
    }
    assert!(ops.len() <= MAX_OPS && bytes <= MAX_BYTES, "too large");
}

fn generation(value: &[u8]) -> u64 {
    let text = str::from_utf8(value).expect("it is written as text");
    text.parse().expect("it is written as a number")
}

/// Whether it is refused by an etcd that is full.
fn writes(txn: &Txn) -> bool {
    let mut ops = txn.then.iter().chain(&txn.otherwise);
    ops.any(|it| matches!(it, Op::Put { .. }))
}
