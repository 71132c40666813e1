//! Output of workloads that is being read: who asked which node's launcher for a chunk of it. An answer counts only
//! from the node that was asked, and once. What is done with requests and answers is in `workflow::reads`.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use sched_model::ReadOutput;

use crate::api::ids::{NodeKey, SessionId};
use crate::maps::{Map, change_or_drop};

/// Chunks that one peer may wait for at a time; further ones are refused meanwhile. A reader waits for one.
pub(crate) const MAX_READS_BY_PEER: usize = 16;

/// The same of all peers together: each answer may take 64 KiB in a queue, so 64 MiB in all.
pub(crate) const MAX_READS: usize = 1024;

/// The same of the sessions that have one certificate, as [`MAX_READS_BY_PEER`] is of one: a quarter.
pub(crate) const MAX_READS_BY_CERTIFICATE: usize = MAX_READS / 4;

/// And of these on one node, whose launcher answers 16 at once: three quarters, so that who follows much of one node
/// leaves others some.
pub(crate) const MAX_READS_BY_CERTIFICATE_OF_NODE: usize = 12;

/// How long a launcher has for an answer: well above the time that it waits for more output at most, and in its queue.
pub(crate) const READ_TIMEOUT: Duration = Duration::from_secs(30);

/// The chunks that peers wait for.
#[derive(Debug, Default)]
pub(crate) struct Reads {
    /// By the scheduler's own number. Numbers grow and all have the same time limit, so this is also the order of
    /// deadlines.
    open: BTreeMap<u64, Read>,
    /// How many of `open` each peer has; those with none are not listed.
    by_peer: Map<SessionId, usize>,
    /// The number given out last. Launchers repeat it in their answers; peers never see it.
    last: u64,
}

/// A chunk that a peer waits for.
#[derive(Debug)]
pub(crate) struct Read {
    /// Who asked.
    pub(crate) asker: SessionId,
    /// The certificate that it has.
    certificate: Option<[u8; 32]>,
    /// The node whose launcher was asked.
    pub(crate) node: NodeKey,
    /// What it was asked.
    pub(crate) request: ReadOutput,
    /// When it is late.
    pub(crate) until: Instant,
}

impl Reads {
    /// Notes that a peer waits for a chunk from a node. Returns the number under which the launcher is to be asked.
    ///
    /// # Errors
    /// The number of chunks that are waited for, by this peer, with its certificate, or by all together, if that is the
    /// most allowed.
    pub(crate) fn begin(
        &mut self,
        now: Instant,
        (asker, certificate): (SessionId, Option<[u8; 32]>),
        node: NodeKey,
        request: ReadOutput,
    ) -> Result<u64, usize> {
        let own = self.by_peer.get(&asker).copied().unwrap_or_default();
        if own >= MAX_READS_BY_PEER {
            return Err(own);
        }
        if certificate.is_some() {
            // A look at each, at most `MAX_READS`: nothing has to be kept in step.
            let has_it = |read: &&Read| read.certificate == certificate;
            let of_certificate = self.open.values().filter(has_it).count();
            let of_node = self.open.values().filter(has_it);
            let of_node = of_node.filter(|read| read.node == node).count();
            if of_certificate >= MAX_READS_BY_CERTIFICATE {
                return Err(of_certificate);
            }
            if of_node >= MAX_READS_BY_CERTIFICATE_OF_NODE {
                return Err(of_node);
            }
        }
        if self.open.len() >= MAX_READS {
            return Err(self.open.len());
        }
        self.last += 1;
        *self.by_peer.entry(asker).or_default() += 1;
        let until = now + READ_TIMEOUT;
        let read = Read {
            asker,
            certificate,
            node,
            request,
            until,
        };
        self.open.insert(self.last, read);
        Ok(self.last)
    }

    /// What a node was asked under this number, which it has answered; `None` if another node was asked, or it was
    /// answered before.
    pub(crate) fn answered(&mut self, number: u64, node: NodeKey) -> Option<Read> {
        self.open.get(&number).filter(|read| read.node == node)?;
        self.take(number)
    }

    /// The first that is late by now.
    pub(crate) fn late(&mut self, now: Instant) -> Option<Read> {
        let (&number, _) = self.open.iter().next().filter(|(_, it)| it.until <= now)?;
        self.take(number)
    }

    /// All that a node was asked: it will not answer.
    pub(crate) fn of_node(&mut self, node: NodeKey) -> Vec<Read> {
        let is_its = |(number, read): (&u64, &Read)| (read.node == node).then_some(*number);
        let numbers: Vec<u64> = self.open.iter().filter_map(is_its).collect();
        let reads = numbers.into_iter().filter_map(|number| self.take(number));
        reads.collect()
    }

    /// A peer's session has ended: answers for it are dropped when they come.
    pub(super) fn forget(&mut self, asker: SessionId) {
        if self.by_peer.swap_remove(&asker).is_some() {
            self.open.retain(|_, read| read.asker != asker);
        }
    }

    /// When the first is late.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.open.values().next().map(|read| read.until)
    }

    /// Chunks waited for.
    pub(crate) fn len(&self) -> usize {
        self.open.len()
    }

    fn take(&mut self, number: u64) -> Option<Read> {
        let read = self.open.remove(&number)?;
        change_or_drop(&mut self.by_peer, &read.asker, |own| {
            *own -= 1;
            *own > 0
        });
        Some(read)
    }
}
