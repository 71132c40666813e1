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

/// Where a launcher with a new state directory begins to number: the upper half of a number counts its starts. With this
/// as the latest number it has had no end at all.
const FIRST_OF_A_LAUNCHER: u64 = 1 << 32;

/// Which ends of each node are dealt with.
#[derive(Debug, Default)]
pub(super) struct Ends {
    by_node: Map<Uuid, Acknowledgement>,
    /// How many of them are waited for ([`Acknowledgement::is_awaited`]).
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
    /// Whether it is no longer a known node: nothing waits for its report, but if it returns its numbers say whether
    /// they have gone on.
    is_gone: bool,
    /// Ends on it before this moment may be missing here, in unix milliseconds; 0 if none are.
    since_ms: u64,
    acknowledged: Acknowledged,
}

/// Until when ends of a node may have been told to another scheduler, by its report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Missing {
    /// None were.
    None,
    /// Until this scheduler's start: nothing was known of the node.
    UntilStart,
    /// Until now: what was known of it has gone on.
    UntilNow,
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
        self.ends.by_node.get(&node).map(Acknowledgement::record)
    }

    /// Takes up what the process before this one remembered.
    pub(crate) fn restore_ends(&mut self, node: Uuid, record: EndsRecord) {
        let heard = self.ends.begin(node, record.incarnation, record.seq);
        let was_awaited = heard.is_awaited();
        heard.seq = record.seq;
        heard.told = record.told;
        heard.is_gone = record.is_gone;
        heard.since_ms = record.since_ms;
        heard.is_restored = true;
        let is_awaited = heard.is_awaited();
        self.ends.note_awaited(was_awaited, is_awaited);
    }

    /// A node says whose numbers it gives, the latest, and the last before those that it has left to tell. Returns
    /// whether ends of it are missing here that were told before: where its numbers have gone on without this scheduler.
    pub(crate) fn begin_ends(
        &mut self,
        node: Uuid,
        incarnation: Uuid,
        (latest, told): (u64, u64),
    ) -> Missing {
        let before = self.ends.by_node.get(&node).copied();
        let heard = self.ends.begin(node, incarnation, latest);
        heard.is_restored = false;
        heard.is_gone = false;
        if heard.told > latest {
            heard.told = 0;
        }
        let is_further = told > heard.seq.max(heard.told);
        if is_further {
            heard.told = told;
        }
        let record = heard.record();
        let was_awaited = before.is_some_and(|before| before.is_awaited());
        self.ends.note_awaited(was_awaited, false);
        if before.map(|before| before.record()) != Some(record) {
            self.note_node(node);
        }
        match before {
            // Checked at its first report after a restart alone: later on it was connected, or numbers from further on
            // because its launcher was restarted.
            Some(before) if !before.is_restored => Missing::None,
            Some(before) if before.incarnation == incarnation => {
                match before.seq.max(before.told) <= latest && !is_further {
                    true => Missing::None,
                    false => Missing::UntilNow,
                }
            }
            Some(before) if !before.is_gone => Missing::UntilNow,
            // As good as a new node: if its numbers are at their first, it has told none to any scheduler.
            _ if matches!(told, 0 | FIRST_OF_A_LAUNCHER) => Missing::None,
            _ => Missing::UntilStart,
        }
    }

    /// Remembers over restarts that ends on a node before this moment may be missing.
    pub(crate) fn note_missing_ends(&mut self, node: Uuid, until_ms: u64) {
        if let Some(heard) = self.ends.by_node.get_mut(&node)
            && heard.since_ms < until_ms
        {
            heard.since_ms = until_ms;
            self.note_node(node);
        }
    }

    /// A node is no longer known, so that its report is not waited for. Whether it was: what ended on it may never have
    /// been told here.
    pub(crate) fn node_is_gone(&mut self, node: Uuid) -> bool {
        let heard = self.ends.by_node.get_mut(&node);
        let Some(heard) = heard.filter(|heard| !heard.is_gone) else {
            return false;
        };
        let was_awaited = heard.is_awaited();
        heard.is_gone = true;
        self.ends.note_awaited(was_awaited, false);
        self.note_node(node);
        was_awaited
    }

    /// The nodes whose reports are waited for.
    pub(crate) fn nodes_awaited(&self) -> Vec<Uuid> {
        let awaited = self.ends.by_node.iter().filter(|(_, it)| it.is_awaited());
        awaited.map(|(&uuid, _)| uuid).collect()
    }

    /// The moment, in unix milliseconds, before which ends may be missing by what was remembered of all nodes; 0 if none
    /// are.
    pub(crate) fn ends_missing_until_ms(&self) -> u64 {
        let until = self.ends.by_node.values().map(|heard| heard.since_ms);
        until.max().unwrap_or(0)
    }

    /// Whether a known node that is remembered from before a restart has not reported since.
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

    /// Whether the end with this number was dealt with.
    pub(crate) fn has_dealt_with(&self, node: Uuid, seq: u64) -> bool {
        let heard = self.ends.by_node.get(&node);
        heard.is_some_and(|heard| seq <= heard.seq)
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

    /// Forgets nodes that are not known otherwise, if there are too many. That ends on them may be missing is remembered
    /// with `node` from then on.
    pub(crate) fn forget_ends(&mut self, node: Uuid, is_known: impl Fn(Uuid) -> bool) {
        if self.ends.by_node.len() <= MAX_NODES_REMEMBERED {
            return;
        }
        let mut forgotten = Vec::new();
        let (mut awaited, mut until_ms) = (self.ends.unheard, 0);
        self.ends.by_node.retain(|&uuid, heard| {
            let stays = uuid == node || is_known(uuid) || heard.acknowledged != Acknowledged::Yes;
            if !stays {
                awaited -= usize::from(heard.is_awaited());
                until_ms = until_ms.max(heard.since_ms);
                forgotten.push(uuid);
            }
            stays
        });
        self.ends.unheard = awaited;
        self.note_missing_ends(node, until_ms);
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
            is_gone: false,
            since_ms: 0,
            acknowledged: Acknowledged::Yes,
        };
        let heard = self.by_node.entry(node).or_insert(new);
        // A launcher that has lost its count begins again, whatever it calls it.
        if heard.incarnation != incarnation || heard.seq > latest {
            *heard = Acknowledgement {
                acknowledged: heard.acknowledged,
                is_restored: heard.is_restored,
                is_gone: heard.is_gone,
                since_ms: heard.since_ms,
                ..new
            };
        }
        heard
    }

    /// Counts a node that is waited for now, or is not any more.
    fn note_awaited(&mut self, was_awaited: bool, is_awaited: bool) {
        self.unheard = self.unheard + usize::from(is_awaited) - usize::from(was_awaited);
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
    /// Whether the node is known and has not reported since the restart from which this is remembered.
    fn is_awaited(&self) -> bool {
        self.is_restored && !self.is_gone
    }

    fn record(&self) -> EndsRecord {
        EndsRecord {
            incarnation: self.incarnation,
            seq: self.seq,
            told: self.told,
            is_gone: self.is_gone,
            since_ms: self.since_ms,
        }
    }
}
