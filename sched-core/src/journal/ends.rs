//! Which ends of instances each node was told are dealt with, of those that its launcher numbers.
//!
//! A launcher tells ends in the order of their numbers, each again until it is acknowledged. So one number for each node
//! says which are dealt with. It is remembered while the node is away, and put on disk in the same change as what the end
//! did: an end that is told to a scheduler which has given the instance to that node again since then must not end that.

use std::collections::VecDeque;

use sched_model::Uuid;

use crate::api::record::EndsRecord;
use crate::journal::Journal;
use crate::maps::Map;

/// Nodes whose number is remembered while they are away. Beyond it those are forgotten that are not known otherwise, and
/// an end that such a node tells again is taken for news: it is passed on twice then, if nothing was placed there since.
const MAX_NODES_REMEMBERED: usize = 65_536;

/// Which ends of each node are dealt with.
#[derive(Debug, Default)]
pub(super) struct Ends {
    by_node: Map<Uuid, Acknowledgement>,
    /// How many of them have not reported since the restart from which they are remembered.
    unheard: usize,
    /// What nodes are to be told of their ends and the change that has to be on disk before, one for each node at most.
    acknowledgements: VecDeque<(u64, Uuid, EndsRecord)>,
}

#[derive(Debug, Clone, Copy)]
struct Acknowledgement {
    /// Whose numbers they are.
    incarnation: Uuid,
    /// The latest number that is dealt with, and so all before it.
    seq: u64,
    /// A number up to which the node has said that it has none left to tell: here, or to a scheduler without this state
    /// directory. It says nothing of what is dealt with here.
    told: u64,
    /// Whether the node has not reported since the restart from which this is remembered.
    is_restored: bool,
    acknowledged: Acknowledged,
}

/// Whether the node is told what is dealt with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Acknowledged {
    /// As far as it asked.
    Yes,
    /// It will be, once that is on disk.
    Soon,
    /// It will be, and has asked again since.
    SoonAndAgain,
}

impl Journal {
    /// What is remembered of a node's ends across restarts.
    pub(crate) fn ends_record(&self, node: Uuid) -> Option<EndsRecord> {
        let heard = self.ends.by_node.get(&node);
        heard
            .filter(|heard| heard.seq.max(heard.told) > 0)
            .map(Acknowledgement::record)
    }

    /// Takes up what the process before this one remembered.
    pub(crate) fn restore_ends(&mut self, node: Uuid, record: EndsRecord) {
        let heard = self.ends.begin(node, record.incarnation, record.seq);
        heard.seq = record.seq;
        heard.told = record.told;
        let was_restored = std::mem::replace(&mut heard.is_restored, true);
        self.ends.unheard += usize::from(!was_restored);
    }

    /// A node says whose numbers it gives, the latest, and the last before those that it has left to tell. Whether all
    /// its ends are known here that were told before this run of the scheduler: not where its numbers have gone on
    /// without it.
    pub(crate) fn begin_ends(
        &mut self,
        node: Uuid,
        incarnation: Uuid,
        (latest, told): (u64, u64),
    ) -> bool {
        let before = self.ends.by_node.get(&node).copied();
        let heard = self.ends.begin(node, incarnation, latest);
        let is_first = std::mem::take(&mut heard.is_restored);
        if heard.told > latest {
            heard.told = 0;
        }
        let is_further = told > heard.seq.max(heard.told);
        if is_further {
            heard.told = told;
        }
        self.ends.unheard -= usize::from(is_first);
        if is_further {
            self.note_node(node);
        }
        match before {
            // Checked at its first report after a restart alone: later on it was connected, or numbers from further on
            // because its launcher was restarted.
            Some(before) if is_first => {
                let has_its_count = before.incarnation == incarnation;
                has_its_count && before.seq.max(before.told) <= latest && !is_further
            }
            Some(_) => true,
            None => told == 0,
        }
    }

    /// Whether a node that is remembered from before a restart has not reported since.
    pub(crate) fn lacks_reports(&self) -> bool {
        self.ends.unheard > 0
    }

    /// Notes that an end is dealt with; whether it is news.
    pub(crate) fn note_end(&mut self, node: Uuid, seq: u64) -> bool {
        let heard = self.ends.by_node.get_mut(&node);
        let Some(heard) = heard.filter(|it| it.seq < seq) else {
            return false;
        };
        heard.seq = seq;
        self.note_node(node);
        true
    }

    /// Has a node told which of its ends are dealt with, once all that changed so far is on disk.
    pub(crate) fn acknowledge_ends(&mut self, node: Uuid) {
        if let Some(ends) = self.ends.ask(node) {
            let ticket = self.ticket();
            let acknowledgements = &mut self.ends.acknowledgements;
            acknowledgements.push_back((ticket, node, ends));
        }
    }

    /// What a node can be told by now.
    pub(crate) fn take_acknowledgement(&mut self) -> Option<(Uuid, EndsRecord)> {
        let first = self
            .has_acknowledgement()
            .then(|| self.ends.acknowledgements.pop_front())?;
        first.map(|(_, node, ends)| (node, ends))
    }

    /// A node was told, and is told again if it has asked again.
    pub(crate) fn acknowledged(&mut self, node: Uuid) {
        if self.ends.answered(node) {
            self.acknowledge_ends(node);
        }
    }

    /// Forgets nodes that are not known otherwise, if there are too many.
    pub(crate) fn forget_ends(&mut self, is_known: impl Fn(Uuid) -> bool) {
        if self.ends.by_node.len() <= MAX_NODES_REMEMBERED {
            return;
        }
        let mut forgotten = Vec::new();
        let mut unheard = self.ends.unheard;
        self.ends.by_node.retain(|&uuid, heard| {
            let stays = is_known(uuid) || heard.acknowledged != Acknowledged::Yes;
            if !stays {
                unheard -= usize::from(heard.is_restored);
                forgotten.push(uuid);
            }
            stays
        });
        self.ends.unheard = unheard;
        for uuid in forgotten {
            self.note_node(uuid);
        }
    }

    /// Whether a node can be told of its ends by now.
    pub(super) fn has_acknowledgement(&self) -> bool {
        let first = self.ends.acknowledgements.front();
        first.is_some_and(|&(ticket, ..)| ticket <= self.committed)
    }
}

impl Ends {
    fn begin(&mut self, node: Uuid, incarnation: Uuid, latest: u64) -> &mut Acknowledgement {
        let new = Acknowledgement {
            incarnation,
            seq: 0,
            told: 0,
            is_restored: false,
            acknowledged: Acknowledged::Yes,
        };
        let heard = self.by_node.entry(node).or_insert(new);
        // A launcher that has lost its count begins again, whatever it calls it.
        if heard.incarnation != incarnation || heard.seq > latest {
            *heard = Acknowledgement {
                acknowledged: heard.acknowledged,
                is_restored: heard.is_restored,
                ..new
            };
        }
        heard
    }

    /// A node wants to be told what is dealt with; what to tell it, unless that waits for something told before.
    fn ask(&mut self, node: Uuid) -> Option<EndsRecord> {
        let heard = self.by_node.get_mut(&node)?;
        if heard.acknowledged != Acknowledged::Yes {
            heard.acknowledged = Acknowledged::SoonAndAgain;
            return None;
        }
        heard.acknowledged = Acknowledged::Soon;
        Some(heard.record())
    }

    /// A node is told; whether it has asked again.
    fn answered(&mut self, node: Uuid) -> bool {
        let heard = self.by_node.get_mut(&node);
        let before =
            heard.map(|heard| std::mem::replace(&mut heard.acknowledged, Acknowledged::Yes));
        before == Some(Acknowledged::SoonAndAgain)
    }
}

impl Acknowledgement {
    fn record(&self) -> EndsRecord {
        EndsRecord {
            incarnation: self.incarnation,
            seq: self.seq,
            told: self.told,
        }
    }
}
