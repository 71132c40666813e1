//! What is where in etcd, below `/ciao/NAME/`:
//!
//! ```text
//! leader          the leader's address, under its lease
//! generation      raised by an operator after etcd was restored, decimal; absent = 0
//! uuid            the UUID that peers know the scheduler by
//! ticket          term and number of the latest write: each compares its revision, so that none is carried out twice
//! r/KEY           a record, as in the store of a state directory
//! nodes/0000…     the list of nodes, in parts
//! stage/0000…     parts of a write that is too large for one transaction
//! stage-commit    how many parts there are: from then on they are carried out, whatever happens
//! ```

/// The keys of one cluster.
#[derive(Debug, Clone)]
pub(super) struct Keys {
    prefix: String,
}

impl Keys {
    pub(super) fn new(name: &str) -> Self {
        let prefix = format!("/ciao/{name}/");
        Self { prefix }
    }

    /// A key by what stands behind the prefix.
    pub(super) fn key(&self, name: &str) -> Vec<u8> {
        format!("{}{name}", self.prefix).into_bytes()
    }

    pub(super) fn leader(&self) -> Vec<u8> {
        self.key("leader")
    }

    pub(super) fn generation(&self) -> Vec<u8> {
        self.key("generation")
    }

    pub(super) fn ticket(&self) -> Vec<u8> {
        self.key("ticket")
    }

    pub(super) fn commit(&self) -> Vec<u8> {
        self.key("stage-commit")
    }

    /// A part of the list of nodes, or of a staged write. In the order of their numbers, up to 9,999.
    pub(super) fn part(&self, of: &str, number: usize) -> Vec<u8> {
        self.key(&format!("{of}/{number:04}"))
    }

    pub(super) fn record(&self, key: &[u8]) -> Vec<u8> {
        let mut whole = self.key("r/");
        whole.extend_from_slice(key);
        whole
    }
}
