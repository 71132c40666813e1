//! Records in etcd, written under the leader's term.
//!
//! Every transaction compares the leader's key, so that none of an earlier term is carried out, however late it comes;
//! and the revision of the ticket, which each of them writes: one whose answer was lost is never carried out behind a
//! later one. What is too large for one transaction is staged: its parts, a commit key, and then the parts are carried
//! out; the next leader finishes what was committed. A value that is too large for one key stands in several, below
//! `long/`, and so does the list of nodes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ciao_etcd::election::Term;
use ciao_etcd::{Client, Compare, Error, Op, Txn, TxnAnswer};
use parking_lot::Mutex;
use proto_frames::Uuid;
use tokio::sync::{mpsc, watch};

use super::driver::Event;
use super::keys::{self, Keys};
use super::{EtcdRuntime, Standing};
use crate::server::{Entries, Found, SharedDocument, SharedStore, TakeOver};

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

/// Records in etcd.
#[derive(Debug)]
pub(super) struct EtcdStore {
    client: Client,
    runtime: Arc<EtcdRuntime>,
    keys: Keys,
    term: Term,
    driver: DriverLink,
    state: Mutex<State>,
}

/// What the store has of the election.
#[derive(Debug)]
pub(super) struct DriverLink {
    /// Where it tells that etcd knows another leader.
    pub(super) events: mpsc::UnboundedSender<Event>,
    /// Whether this scheduler still leads.
    pub(super) standing: watch::Receiver<Standing>,
    /// How long a write that etcd does not answer is tried again: as long as this scheduler may lead without etcd.
    pub(super) patience: Duration,
}

#[derive(Debug, Default)]
struct State {
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
}

impl EtcdStore {
    /// Reads all that is there, after what was staged is carried out.
    pub(super) fn take_over(
        (client, runtime): (Client, Arc<EtcdRuntime>),
        keys: Keys,
        term: Term,
        driver: DriverLink,
    ) -> Result<TakeOver, String> {
        let store = Self {
            client,
            runtime,
            keys,
            term,
            driver,
            state: Mutex::default(),
        };
        let mut state = store.state.lock();
        let (ticket, _) = store.get(&store.keys.ticket())?;
        state.ticket = ticket.map_or(0, |it| it.mod_revision);
        // From here on no write of an earlier term is carried out.
        store.fenced(&mut state, &Vec::new(), Vec::new())?;
        if let Some(parts) = store.committed()? {
            state.staged = Some(parts);
            store.finish_staged(&mut state)?;
        }
        let uuid = store.document(&mut state, SharedDocument::Uuid)?;
        let uuid = Uuid::try_parse_ascii(&uuid).ok();
        let mut records = store.below(keys::RECORDS)?;
        for (key, (value, parts)) in joined(store.below(keys::LONG)?) {
            state
                .long
                .insert([keys::LONG.as_bytes(), &key].concat(), parts);
            records.push((key, value));
        }
        // In the order in which a store of one scheduler has them.
        records.sort_unstable();
        let nodes = store.document(&mut state, SharedDocument::Nodes)?;
        let configuration = store.document(&mut state, SharedDocument::Configuration)?;
        drop(state);
        Ok(TakeOver {
            uuid,
            records,
            nodes,
            configuration,
            store: Arc::new(store),
        })
    }

    fn get(&self, key: &[u8]) -> Result<(Option<ciao_etcd::KeyValue>, i64), String> {
        let get = self.runtime.block_on(self.client.get(key));
        get.map_err(|error| error.to_string())
    }

    /// All keys below this one, without it, and their values.
    fn below(&self, name: &str) -> Result<Found, String> {
        let prefix = self.keys.key(name);
        let listing = self.runtime.block_on(self.client.list(&prefix));
        let listing = listing.map_err(|error| error.to_string())?;
        let cut = |it: ciao_etcd::KeyValue| (it.key[prefix.len()..].to_vec(), it.value);
        Ok(listing.keys.into_iter().map(cut).collect())
    }

    /// A document, and in how many keys it stands.
    fn document(&self, state: &mut State, which: SharedDocument) -> Result<Vec<u8>, String> {
        let name = keys::document(which);
        let found = joined(self.below(name)?).remove(&[][..]);
        let (bytes, parts) = found.unwrap_or_default();
        state.long.insert(name.into(), parts);
        Ok(bytes)
    }

    /// The parts of a write that was committed and may not be carried out.
    fn committed(&self) -> Result<Option<Vec<Entries>>, String> {
        let (commit, _) = self.get(&self.keys.commit())?;
        let Some(commit) = commit else {
            return Ok(None);
        };
        let count = String::from_utf8_lossy(&commit.value).parse().unwrap_or(0);
        let staged = self.below(keys::STAGE)?;
        let staged = staged.iter().take(count);
        let parts: Option<Vec<Entries>> = staged.map(|(_, part)| decode(part)).collect();
        match parts {
            Some(parts) if parts.len() == count => Ok(Some(parts)),
            _ => Err("a write that was staged in etcd cannot be read".to_owned()),
        }
    }

    /// One transaction: these entries, and these operations besides.
    fn fenced(&self, state: &mut State, entries: &Entries, besides: Vec<Op>) -> Result<(), String> {
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
            let answer = self.answered(&txn).map_err(|error| error.to_string())?;
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
                    // A driver that has ended knows.
                    let _ = self.driver.events.send(Event::Refused);
                }
            }
        }
        Err("etcd carries out writes that were given up".to_owned())
    }

    /// Has etcd carry it out, again and again where it does not answer: its ticket lets that happen once. So a change of
    /// etcd's leader, or a restart of its members, delays a write and refuses none.
    fn answered(&self, txn: &Txn) -> Result<TxnAnswer, Error> {
        let begun = Instant::now();
        loop {
            let answer = self.runtime.block_on(self.client.txn(txn.clone()));
            // Also where the driver is gone.
            let leads = self.driver.standing.has_changed().is_ok()
                && matches!(*self.driver.standing.borrow(), Standing::Leader(_));
            match answer {
                Err(Error::Unanswered(_)) if leads && begun.elapsed() < self.driver.patience => {
                    std::thread::sleep(AGAIN);
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
    fn stage(&self, state: &mut State, parts: Vec<Entries>) -> Result<(), String> {
        self.fenced(state, &Vec::new(), self.no_stage())?;
        for (number, part) in parts.iter().enumerate() {
            let put = Op::Put {
                key: self.keys.below(&keys::part(keys::STAGE.as_bytes(), number)),
                value: encode(part),
                lease: 0,
            };
            self.fenced(state, &Vec::new(), vec![put])?;
        }
        state.staged = Some(parts);
        self.finish_staged(state)
    }

    /// Commits what is staged, and carries it out. Also where that has failed before, at any step.
    fn finish_staged(&self, state: &mut State) -> Result<(), String> {
        let Some(parts) = state.staged.take() else {
            return Ok(());
        };
        let done = self.carry_out(state, &parts);
        match &done {
            Ok(()) => parts.iter().for_each(|it| state.wrote(it)),
            Err(_) => state.staged = Some(parts),
        }
        done
    }

    fn carry_out(&self, state: &mut State, parts: &[Entries]) -> Result<(), String> {
        let commit = Op::Put {
            key: self.keys.commit(),
            value: parts.len().to_string().into_bytes(),
            lease: 0,
        };
        self.fenced(state, &Vec::new(), vec![commit])?;
        for part in parts {
            self.fenced(state, part, Vec::new())?;
        }
        self.fenced(state, &Vec::new(), self.no_stage())
    }

    /// What takes a staged write away.
    fn no_stage(&self) -> Vec<Op> {
        let parts = self.keys.key(keys::STAGE);
        vec![Op::Delete(self.keys.commit()), Op::DeletePrefix(parts)]
    }
}

impl State {
    /// The keys that have a value which may be too long for one: what they get, and those that held more of an earlier
    /// one and go. Below `name`, a folder.
    ///
    /// Counts are never less than what is there, whatever became of an earlier write: they fall with [`State::wrote`].
    fn long_value(&mut self, name: &[u8], value: Option<&[u8]>) -> Entries {
        let parts: Vec<&[u8]> = value.map_or_else(Vec::new, |it| it.chunks(VALUE_PART).collect());
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
            Some(value) if value.len() > VALUE_PART => (None, Some(value)),
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

impl EtcdStore {
    /// Writes the keys that `of` makes, all of them or none, behind what was staged before: which keys there are changes
    /// with that.
    fn write_keys(&self, of: impl FnOnce(&mut State) -> Entries) -> Result<(), String> {
        let mut state = self.state.lock();
        self.finish_staged(&mut state)?;
        let parts = parts(of(&mut state));
        if parts.len() > 1 {
            return self.stage(&mut state, parts);
        }
        let all = parts.into_iter().next().unwrap_or_default();
        self.fenced(&mut state, &all, Vec::new())?;
        state.wrote(&all);
        Ok(())
    }
}

impl SharedStore for EtcdStore {
    fn write(&self, entries: Entries) -> Result<(), String> {
        self.write_keys(|state| {
            let keys = entries.into_iter().flat_map(|it| state.record(it));
            keys.collect()
        })
    }

    fn write_document(&self, which: SharedDocument, bytes: &[u8]) -> Result<(), String> {
        self.write_keys(|state| state.long_value(keys::document(which).as_bytes(), Some(bytes)))
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
fn parts(entries: Entries) -> Vec<Entries> {
    let mut parts: Vec<Entries> = Vec::new();
    let mut bytes = 0;
    for entry in entries {
        let len = entry.0.len() + entry.1.as_ref().map_or(0, Vec::len);
        match parts.last_mut() {
            Some(part) if part.len() < MAX_OPS && bytes + len <= MAX_BYTES => {
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::{
        Entries, MAX_BYTES, MAX_OPS, State, VALUE_PART, decode, encode, joined, keys, parts,
    };

    #[test]
    fn a_part_is_read_as_it_was_written() {
        let part: Entries = vec![
            (b"ia".to_vec(), Some(b"value".to_vec())),
            (b"ib".to_vec(), None),
            (b"ic".to_vec(), Some(Vec::new())),
        ];
        let bytes = encode(&part);
        assert_eq!(decode(&bytes), Some(part));
        assert_eq!(decode(&bytes[..bytes.len() - 1]), None);
    }

    #[test]
    fn a_write_is_cut_into_what_one_transaction_takes() {
        let entry = |number: usize, len| (vec![b'i', number as u8], Some(vec![0; len]));
        let many: Entries = (0..250).map(|number| entry(number, 10)).collect();
        let lens: Vec<usize> = parts(many).iter().map(Vec::len).collect();
        assert_eq!(lens, [MAX_OPS, MAX_OPS, 50]);
        let long: Entries = (0..3).map(|number| entry(number, 400_000)).collect();
        let lens: Vec<usize> = parts(long).iter().map(Vec::len).collect();
        assert_eq!(lens, [2, 1]);
    }

    /// What a new leader would read.
    fn read(etcd: &BTreeMap<Vec<u8>, Vec<u8>>) -> BTreeMap<Vec<u8>, Vec<u8>> {
        let below = |name: &str| {
            let name = name.as_bytes();
            let of = etcd.iter().filter(|(key, _)| key.starts_with(name));
            let cut = of.map(|(key, value)| (key[name.len()..].to_vec(), value.clone()));
            cut.collect::<Vec<_>>()
        };
        let mut records: BTreeMap<_, _> = below(keys::RECORDS).into_iter().collect();
        for (key, (value, _)) in joined(below(keys::LONG)) {
            assert_eq!(records.insert(key, value), None, "a record stands twice");
        }
        records
    }

    /// Writes of records of all lengths, of which some are not carried out: what is there then is what was written.
    #[test]
    fn a_record_of_any_length_replaces_any_other() {
        let mut random = fastrand::Rng::with_seed(7);
        let lens = [0, 1, VALUE_PART, VALUE_PART + 1, 3 * VALUE_PART, MAX_BYTES];
        let mut state = State::default();
        let (mut etcd, mut expected) = (BTreeMap::new(), BTreeMap::new());
        for round in 0..300_u32 {
            let key = {
                let byte = b"ia/"[random.usize(..3)];
                vec![byte; random.usize(1..3)]
            };
            let byte = round.to_le_bytes()[0];
            let len = lens[random.usize(..lens.len())];
            let value = random.bool().then(|| vec![byte; len]);
            let entries = state.record((key.clone(), value.clone()));
            let one_each = entries.iter().map(|(key, _)| key);
            let one_each: std::collections::BTreeSet<_> = one_each.collect();
            assert_eq!(one_each.len(), entries.len(), "etcd refuses a key twice");
            if random.u8(..4) == 0 {
                continue;
            }
            for (key, value) in &entries {
                let key = key.clone();
                match value {
                    Some(value) => etcd.insert(key, value.clone()),
                    None => etcd.remove(&key),
                };
            }
            // An answer that was lost.
            if random.u8(..4) > 0 {
                state.wrote(&entries);
            }
            match value {
                Some(value) => expected.insert(key, value),
                None => expected.remove(&key),
            };
            assert_eq!(read(&etcd), expected, "round {round}");
        }
        assert!(expected.values().any(|it| it.len() > VALUE_PART));
    }
}
