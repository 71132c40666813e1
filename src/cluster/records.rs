//! Records in etcd, written under the leader's term.
//!
//! Every transaction compares the leader's key, so that none of an earlier term is carried out, however late it comes;
//! and the revision of the ticket, which each of them writes: one whose answer was lost is never carried out behind a
//! later one. What is too large for one transaction is staged: its parts, a commit key, and then the parts are carried
//! out; the next leader finishes what was committed. A value that is too large for one key stands in several, below
//! `long/`, and so does the list of nodes.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::time::Duration;

use ciao_etcd::election::Term;
use ciao_etcd::{Compare, Error, KeyValue, Op, Txn, TxnAnswer};
use proto_frames::Uuid;

use super::calls::EtcdCalls;
use super::keys::{self, Keys};
use crate::server::{Entries, Found, SharedDocument};

/// Most operations in one transaction besides the ticket's: etcd takes 128 unless it is set to take more.
const MAX_OPS: usize = 100;

/// Most bytes of keys and values in one: etcd takes requests of 1.5 MiB unless it is set to take more.
const MAX_BYTES: usize = 1_000_000;

/// Bytes of a value above which it stands in several keys. Two of them fit one transaction.
const VALUE_PART: usize = 480_000;

/// How often a write is tried again because an earlier one of this scheduler, which was not answered, came between.
const MAX_BETWEEN: usize = 8;

/// Pause before a write that was not answered is tried again: calls fail at once where a member is not there.
const AGAIN: Duration = Duration::from_millis(100);

/// The length that says that a key is deleted.
const DELETED: u32 = u32::MAX;

/// What the records have of the election, and of time.
pub trait Leading {
    /// Whether this scheduler leads, as far as its election knows.
    fn leads(&self) -> bool;
    /// etcd has said that another leads.
    fn refused(&self);
    /// The time since any moment.
    fn now(&self) -> Duration;
    /// Lets some time pass.
    fn pause(&self, time: Duration) -> impl Future<Output = ()>;
}

/// Records in etcd, for the one that leads. It reads no clock and calls nothing but by these.
#[derive(Debug)]
pub struct Records<E, L> {
    etcd: E,
    leading: L,
    keys: Keys,
    term: Term,
    /// How long a write that etcd does not answer is tried again: as long as this scheduler may lead without etcd.
    patience: Duration,
}

/// How far a leader's writes are. It goes with each of them, one at a time.
#[derive(Debug, Default)]
pub struct Written {
    /// The revision at which the ticket was written last.
    ticket: i64,
    /// Number of the last transaction that was tried.
    number: u64,
    /// A write whose parts are staged, and which may be committed: nothing else is written before it is carried out.
    staged: Option<Vec<Entries>>,
    /// In how many keys a value may stand, by what stands before their numbers: for records that were longer than one
    /// key takes, and for the list of nodes.
    long: BTreeMap<Vec<u8>, usize>,
    /// Whether etcd has said that another leads.
    is_deposed: bool,
    limits: Limits,
}

/// What fits one transaction.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Most operations besides the ticket's: etcd takes 128 unless it is set to take more.
    pub ops: usize,
    /// Most bytes of keys and values: etcd takes requests of 1.5 MiB unless it is set to take more.
    pub bytes: usize,
    /// Bytes of a value above which it stands in several keys. Two of them fit one transaction.
    pub value: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            ops: MAX_OPS,
            bytes: MAX_BYTES,
            value: VALUE_PART,
        }
    }
}

/// What the scheduler before has left.
#[derive(Debug)]
pub struct Left {
    /// By which peers know the cluster's scheduler.
    pub uuid: Option<Uuid>,
    /// All records, in the order in which a store of one scheduler has them.
    pub records: Found,
    /// The list of nodes.
    pub nodes: Vec<u8>,
    /// The versions of the cluster configuration.
    pub configuration: Vec<u8>,
}

impl<E: EtcdCalls, L: Leading> Records<E, L> {
    /// Records of this cluster, under this term.
    pub fn new(etcd: E, leading: L, keys: Keys, term: Term, patience: Duration) -> Self {
        Self {
            etcd,
            leading,
            keys,
            term,
            patience,
        }
    }

    /// Reads all that is there, after what was staged is carried out.
    ///
    /// # Errors
    /// etcd does not answer, refuses, or has another leader: in words.
    pub async fn take_over(&self, state: &mut Written) -> Result<Left, String> {
        let ticket = self.get(self.keys.ticket()).await?;
        state.ticket = ticket.map_or(0, |it| it.mod_revision);
        // From here on no write of an earlier term is carried out.
        self.fenced(state, &Vec::new(), Vec::new()).await?;
        if let Some(parts) = self.committed().await? {
            state.staged = Some(parts);
            self.finish_staged(state).await?;
        }
        let uuid = self.document(state, SharedDocument::Uuid).await?;
        let uuid = Uuid::try_parse_ascii(&uuid).ok();
        let mut records = self.below(keys::RECORDS).await?;
        for (key, (value, parts)) in joined(self.below(keys::LONG).await?) {
            state
                .long
                .insert([keys::LONG.as_bytes(), &key].concat(), parts);
            records.push((key, value));
        }
        records.sort_unstable();
        Ok(Left {
            uuid,
            records,
            nodes: self.document(state, SharedDocument::Nodes).await?,
            configuration: self.document(state, SharedDocument::Configuration).await?,
        })
    }

    /// Writes records, all of them or none. After an error some may be written: the same again, with what came later,
    /// has to be written next.
    ///
    /// # Errors
    /// As [`Self::take_over`].
    pub async fn write(&self, state: &mut Written, entries: Entries) -> Result<(), String> {
        let keys = |state: &mut Written| {
            let keys = entries.into_iter().flat_map(|it| state.record(it));
            keys.collect()
        };
        self.write_keys(state, keys).await
    }

    /// Writes a document.
    ///
    /// # Errors
    /// As [`Self::take_over`].
    pub async fn write_document(
        &self,
        state: &mut Written,
        which: SharedDocument,
        bytes: &[u8],
    ) -> Result<(), String> {
        let name = keys::document(which).as_bytes();
        self.write_keys(state, |state| state.long_value(name, Some(bytes)))
            .await
    }

    /// Writes the keys that `of` makes, all of them or none, behind what was staged before: which keys there are changes
    /// with that.
    async fn write_keys(
        &self,
        state: &mut Written,
        of: impl FnOnce(&mut Written) -> Entries,
    ) -> Result<(), String> {
        self.finish_staged(state).await?;
        let entries = of(state);
        let parts = parts(entries, state.limits);
        if parts.len() > 1 {
            return self.stage(state, parts).await;
        }
        let all = parts.into_iter().next().unwrap_or_default();
        self.fenced(state, &all, Vec::new()).await?;
        state.wrote(&all);
        Ok(())
    }

    async fn get(&self, key: Vec<u8>) -> Result<Option<KeyValue>, String> {
        let got = self.etcd.get(key).await;
        got.map_err(|error| error.to_string())
    }

    /// All keys below this one, without it, and their values.
    async fn below(&self, name: &str) -> Result<Found, String> {
        let prefix = self.keys.key(name);
        let listed = self.etcd.list(prefix.clone()).await;
        let listed = listed.map_err(|error| error.to_string())?;
        let cut = |it: KeyValue| (it.key[prefix.len()..].to_vec(), it.value);
        Ok(listed.into_iter().map(cut).collect())
    }

    /// A document, and in how many keys it stands.
    async fn document(
        &self,
        state: &mut Written,
        which: SharedDocument,
    ) -> Result<Vec<u8>, String> {
        let name = keys::document(which);
        let found = joined(self.below(name).await?).remove(&[][..]);
        let (bytes, parts) = found.unwrap_or_default();
        state.long.insert(name.into(), parts);
        Ok(bytes)
    }

    /// The parts of a write that was committed and may not be carried out.
    async fn committed(&self) -> Result<Option<Vec<Entries>>, String> {
        let commit = self.get(self.keys.commit()).await?;
        let Some(commit) = commit else {
            return Ok(None);
        };
        let count = String::from_utf8_lossy(&commit.value).parse().unwrap_or(0);
        let staged = self.below(keys::STAGE).await?;
        let staged = staged.iter().take(count);
        let parts: Option<Vec<Entries>> = staged.map(|(_, part)| decode(part)).collect();
        match parts {
            Some(parts) if parts.len() == count => Ok(Some(parts)),
            _ => Err("a write that was staged in etcd cannot be read".to_owned()),
        }
    }

    /// One transaction: these entries, and these operations besides.
    async fn fenced(
        &self,
        state: &mut Written,
        entries: &Entries,
        besides: Vec<Op>,
    ) -> Result<(), String> {
        let mut then: Vec<Op> = entries.iter().map(|it| self.operation(it)).collect();
        then.extend(besides);
        for _ in 0..MAX_BETWEEN {
            if state.is_deposed {
                return Err("this scheduler does not lead any more".to_owned());
            }
            state.number += 1;
            let own = format!("{} ", self.term);
            let ticket = format!("{own}{}", state.number).into_bytes();
            let mut all = then.clone();
            all.push(Op::Put {
                key: self.keys.ticket(),
                value: ticket.clone(),
                lease: 0,
            });
            let txn = Txn {
                compare: vec![
                    Compare::Created(self.keys.leader(), self.term.create_revision),
                    Compare::Modified(self.keys.ticket(), state.ticket),
                ],
                then: all,
                otherwise: vec![Op::Get(self.keys.leader()), Op::Get(self.keys.ticket())],
            };
            let answer = self
                .answered(&txn)
                .await
                .map_err(|error| error.to_string())?;
            if answer.succeeded {
                state.ticket = answer.revision;
                return Ok(());
            }
            let mut found = answer.found.into_iter();
            let leader = found.next().flatten();
            let is_own = leader.is_some_and(|it| it.create_revision == self.term.create_revision);
            let between = found.next().flatten();
            let between = between.filter(|it| is_own && it.value.starts_with(own.as_bytes()));
            match between {
                // One before, whose answer was lost; or this one, of which the client's connection made two.
                Some(it) => {
                    state.ticket = it.mod_revision;
                    if it.value == ticket {
                        return Ok(());
                    }
                }
                None => {
                    state.is_deposed = true;
                    self.leading.refused();
                }
            }
        }
        Err("etcd carries out writes that were given up".to_owned())
    }

    /// Has etcd carry it out, again and again where it does not answer: its ticket lets that happen once. So a change of
    /// etcd's leader, or a restart of its members, delays a write and refuses none.
    async fn answered(&self, txn: &Txn) -> Result<TxnAnswer, Error> {
        let begun = self.leading.now();
        loop {
            let answer = self.etcd.txn(txn.clone()).await;
            let tried = self.leading.now().saturating_sub(begun);
            match answer {
                Err(Error::Unanswered(_)) if self.leading.leads() && tried < self.patience => {
                    self.leading.pause(AGAIN).await;
                }
                answer => return answer,
            }
        }
    }

    fn operation(&self, (key, value): &(Vec<u8>, Option<Vec<u8>>)) -> Op {
        let key = self.keys.below(key);
        match value {
            Some(value) => Op::Put {
                key,
                value: value.clone(),
                lease: 0,
            },
            None => Op::Delete(key),
        }
    }

    /// A write that is too large for one transaction.
    async fn stage(&self, state: &mut Written, parts: Vec<Entries>) -> Result<(), String> {
        self.fenced(state, &Vec::new(), self.no_stage()).await?;
        for (number, part) in parts.iter().enumerate() {
            let put = Op::Put {
                key: self.keys.below(&keys::part(keys::STAGE.as_bytes(), number)),
                value: encode(part),
                lease: 0,
            };
            self.fenced(state, &Vec::new(), vec![put]).await?;
        }
        state.staged = Some(parts);
        self.finish_staged(state).await
    }

    /// Commits what is staged, and carries it out. Also where that has failed before, at any step.
    async fn finish_staged(&self, state: &mut Written) -> Result<(), String> {
        let Some(parts) = state.staged.take() else {
            return Ok(());
        };
        let done = self.carry_out(state, &parts).await;
        match &done {
            Ok(()) => parts.iter().for_each(|it| state.wrote(it)),
            Err(_) => state.staged = Some(parts),
        }
        done
    }

    async fn carry_out(&self, state: &mut Written, parts: &[Entries]) -> Result<(), String> {
        let commit = Op::Put {
            key: self.keys.commit(),
            value: parts.len().to_string().into_bytes(),
            lease: 0,
        };
        self.fenced(state, &Vec::new(), vec![commit]).await?;
        for part in parts {
            self.fenced(state, part, Vec::new()).await?;
        }
        self.fenced(state, &Vec::new(), self.no_stage()).await
    }

    /// What takes a staged write away.
    fn no_stage(&self) -> Vec<Op> {
        let parts = self.keys.key(keys::STAGE);
        vec![Op::Delete(self.keys.commit()), Op::DeletePrefix(parts)]
    }
}

impl Written {
    /// Nothing written yet, by transactions of this size.
    #[cfg(feature = "test-support")]
    #[must_use]
    pub fn within(limits: Limits) -> Self {
        Self {
            limits,
            ..Self::default()
        }
    }

    /// The keys that have a value which may be too long for one: what they get, and those that held more of an earlier
    /// one and go. Below `name`, a folder.
    ///
    /// Counts are never less than what is there, whatever became of an earlier write: they fall with [`Written::wrote`].
    fn long_value(&mut self, name: &[u8], value: Option<&[u8]>) -> Entries {
        let parts: Vec<&[u8]> =
            value.map_or_else(Vec::new, |it| it.chunks(self.limits.value).collect());
        let before = self.long.get(name).copied().unwrap_or(0);
        if before.max(parts.len()) > 0 {
            self.long.insert(name.to_vec(), before.max(parts.len()));
        }
        let count = before.max(parts.len());
        let part = |number: usize| {
            let key = keys::part(name, number);
            (key, parts.get(number).map(|it| it.to_vec()))
        };
        (0..count).map(part).collect()
    }

    /// The keys of a record.
    fn record(&mut self, (key, value): (Vec<u8>, Option<Vec<u8>>)) -> Entries {
        let (short, long) = match value {
            Some(value) if value.len() > self.limits.value => (None, Some(value)),
            value => (value, None),
        };
        let mut entries = self.long_value(&[keys::LONG.as_bytes(), &key].concat(), long.as_deref());
        entries.push(([keys::RECORDS.as_bytes(), &key].concat(), short));
        entries
    }

    /// These entries are written: what they have deleted is there no more.
    fn wrote(&mut self, entries: &Entries) {
        for (key, value) in entries {
            let Some((name, number)) = keys::part_of(key) else {
                continue;
            };
            if value.is_none()
                && let Some(count) = self.long.get_mut(name)
            {
                *count = number.min(*count);
                if *count == 0 {
                    self.long.remove(name);
                }
            }
        }
    }
}

/// Values that stand in several keys, by what stands before their numbers, and in how many each does.
fn joined(parts: Found) -> BTreeMap<Vec<u8>, (Vec<u8>, usize)> {
    let mut values: BTreeMap<Vec<u8>, (Vec<u8>, usize)> = BTreeMap::new();
    for (key, bytes) in parts {
        // In the order of their numbers, as etcd lists them.
        if let Some((name, _)) = keys::numbered(&key) {
            let (value, count) = values.entry(name.to_vec()).or_default();
            value.extend(bytes);
            *count += 1;
        }
    }
    values
}

/// Cuts a write into what fits one transaction each. No value is larger than that.
fn parts(entries: Entries, limits: Limits) -> Vec<Entries> {
    let mut parts: Vec<Entries> = Vec::new();
    let mut bytes = 0;
    for entry in entries {
        let len = entry.0.len() + entry.1.as_ref().map_or(0, Vec::len);
        match parts.last_mut() {
            Some(part) if part.len() < limits.ops && bytes + len <= limits.bytes => {
                bytes += len;
                part.push(entry);
            }
            _ => {
                bytes = len;
                parts.push(vec![entry]);
            }
        }
    }
    parts
}

/// A part in bytes: of each entry the length of the key, it, the length of the value or [`DELETED`], and the value.
fn encode(part: &Entries) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (key, value) in part {
        put(&mut bytes, key);
        match value {
            Some(value) => put(&mut bytes, value),
            None => bytes.extend_from_slice(&DELETED.to_be_bytes()),
        }
    }
    bytes
}

fn put(bytes: &mut Vec<u8>, field: &[u8]) {
    let len = u32::try_from(field.len()).expect("records are shorter than 4 GiB");
    bytes.extend_from_slice(&len.to_be_bytes());
    bytes.extend_from_slice(field);
}

/// Inverse of [`encode`]; `None` where the bytes are no part.
fn decode(mut bytes: &[u8]) -> Option<Entries> {
    let mut part = Entries::new();
    while !bytes.is_empty() {
        let key = take(&mut bytes)??;
        part.push((key, take(&mut bytes)?));
    }
    Some(part)
}

/// The next field; `Some(None)` for a value that there is not.
fn take(bytes: &mut &[u8]) -> Option<Option<Vec<u8>>> {
    let (len, rest) = bytes.split_first_chunk()?;
    let len = u32::from_be_bytes(*len);
    if len == DELETED {
        *bytes = rest;
        return Some(None);
    }
    let (field, rest) = rest.split_at_checked(usize::try_from(len).ok()?)?;
    *bytes = rest;
    Some(Some(field.to_vec()))
}
