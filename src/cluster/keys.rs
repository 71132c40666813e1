//! What is where in etcd, below `/ciao/NAME/`:
//!
//! ```text
//! leader          the leader's address, under its lease
//! member/ADDRESS  the version of a scheduler that takes part, under its lease
//! next            who may lead next, while a leader hands over, under a lease of its own
//! generation      raised by an operator after etcd was restored, decimal; absent = 0
//! uuid/0000       the UUID that peers know the scheduler by
//! ticket          term and number of the latest write: each compares its revision, so that none is carried out twice
//! r/KEY           a record, as in the store of a state directory
//! long/KEY/0000…  a record that is too long for one key, in parts
//! nodes/0000…     the list of nodes, in parts
//! configuration/0000…
//!                 the versions of the cluster configuration, in parts
//! stage/0000…     parts of a write that is too large for one transaction
//! commit          how many parts there are: from then on they are carried out, whatever happens
//! ```

use crate::server::{INSTANCE_RECORDS, SharedDocument};

/// Where the schedulers are that take part.
pub(super) const MEMBERS: &str = "member/";

/// Where records are.
pub(super) const RECORDS: &str = "r/";

/// Where the parts of long records are.
pub(super) const LONG: &str = "long/";

/// Where the parts of a staged write are.
pub(super) const STAGE: &str = "stage";

/// The keys of one cluster.
#[derive(Debug, Clone)]
pub struct Keys {
    prefix: String,
}

impl Keys {
    /// Of the cluster with this name.
    #[must_use]
    pub fn new(name: &str) -> Self {
        let prefix = format!("/ciao/{name}/");
        Self { prefix }
    }

    /// A key by what stands behind the prefix.
    #[must_use]
    pub fn key(&self, name: &str) -> Vec<u8> {
        format!("{}{name}", self.prefix).into_bytes()
    }

    /// The leader's key.
    #[must_use]
    pub fn leader(&self) -> Vec<u8> {
        self.key("leader")
    }

    pub(super) fn member(&self, address: &str) -> Vec<u8> {
        self.key(&format!("{MEMBERS}{address}"))
    }

    /// What an operator has raised.
    #[must_use]
    pub fn generation(&self) -> Vec<u8> {
        self.key("generation")
    }

    /// Who may lead next, while a leader hands over.
    #[must_use]
    pub fn next(&self) -> Vec<u8> {
        self.key("next")
    }

    /// What each write writes.
    #[must_use]
    pub fn ticket(&self) -> Vec<u8> {
        self.key("ticket")
    }

    pub(super) fn commit(&self) -> Vec<u8> {
        self.key("commit")
    }

    /// A key by the bytes that stand behind the prefix.
    pub(super) fn below(&self, key: &[u8]) -> Vec<u8> {
        [self.prefix.as_bytes(), key].concat()
    }
}

/// Where a listing of records is divided into parts that are read at the same time: by their kind, and those of instances, of
/// which 100,000 may wait, by the first digit of their UUIDs. Elements of one array begin with the same digit as a rule, and
/// most of them are no instances.
pub(super) fn cuts(prefix: &[u8]) -> Vec<Vec<u8>> {
    if !prefix.ends_with(b"/r/") {
        return Vec::new();
    }
    let kinds = (b'a'..=b'z').map(|kind| vec![kind]);
    let cuts = kinds.flat_map(|kind| {
        let digits = match kind[..] == [INSTANCE_RECORDS] {
            true => &b"123456789abcdef"[..],
            false => &[],
        };
        let within = digits.iter().map(|&digit| vec![INSTANCE_RECORDS, digit]);
        [kind].into_iter().chain(within).collect::<Vec<_>>()
    });
    cuts.map(|cut| [prefix, &cut].concat()).collect()
}

/// Where the parts of a document are.
pub(super) const fn document(which: SharedDocument) -> &'static str {
    match which {
        SharedDocument::Nodes => "nodes",
        SharedDocument::Configuration => "configuration",
        SharedDocument::Uuid => "uuid",
    }
}

/// A part of a value that stands in several keys. In the order of their numbers, up to 9,999.
pub(super) fn part(name: &[u8], number: usize) -> Vec<u8> {
    [name, format!("/{number:04}").as_bytes()].concat()
}

/// Inverse of [`part`].
pub(super) fn numbered(key: &[u8]) -> Option<(&[u8], usize)> {
    let (name, number) = key.split_last_chunk::<5>()?;
    let number = str::from_utf8(number).ok()?.strip_prefix('/')?;
    Some((name, number.parse().ok()?))
}

/// The value and the number of a key that is a part of a value in several keys; `None` for others.
pub(super) fn part_of(key: &[u8]) -> Option<(&[u8], usize)> {
    let of = [
        LONG,
        document(SharedDocument::Nodes),
        document(SharedDocument::Configuration),
        document(SharedDocument::Uuid),
    ];
    let is_part = of.iter().any(|it| key.starts_with(it.as_bytes()));
    numbered(key).filter(|_| is_part)
}
