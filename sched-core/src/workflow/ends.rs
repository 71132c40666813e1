//! Ends of instances that launchers number: each is dealt with once, however often and in whatever frame it is told, and
//! its launcher is told once that is on record, on disk where there is a state directory.
//!
//! A launcher tells ends in the order of their numbers, each again until it is acknowledged. So one number for each node
//! says which are dealt with. It is remembered while the node is away, and put on disk in the same change as what the end
//! did: an end that is told to a scheduler which has given the instance to that node again since then must not end that.
//! What two schedulers without a state directory cannot know is seen from the STATS: an instance that it lists beside its
//! end has begun again after it.

use std::time::Instant;

use indexmap::IndexSet;
use proto_frames::payload::EndsRecorded;
use proto_frames::{Frame, Uuid};

use crate::Scheduler;
use crate::api::action::Message;
use crate::api::ids::{InstanceId, NodeKey, SessionId};
use crate::api::input::{EndHow, EndReport, EndsReport, Meaning, StatsReport};
use crate::api::record::EndsRecord;
use crate::cluster::ledger::Ended;
use crate::maps::Map;
use crate::peers::session::Session;

/// Nodes whose number is remembered while they are away. Beyond it those are forgotten that are not known otherwise, and
/// an end that such a node tells again is taken for news: it is passed on twice then, if nothing was placed there since.
const MAX_NODES_REMEMBERED: usize = 65_536;

/// Which ends of each node are dealt with.
#[derive(Debug, Default)]
pub(crate) struct Ends {
    by_node: Map<Uuid, Heard>,
}

#[derive(Debug, Clone, Copy)]
struct Heard {
    /// Whose numbers they are.
    incarnation: Uuid,
    /// The latest number that is dealt with, and so all before it.
    seq: u64,
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

impl Ends {
    /// What is remembered of a node across restarts.
    pub(crate) fn record(&self, node: Uuid) -> Option<EndsRecord> {
        let heard = self.by_node.get(&node).filter(|heard| heard.seq > 0)?;
        Some(EndsRecord {
            incarnation: heard.incarnation,
            seq: heard.seq,
        })
    }

    /// Takes up what the process before this one remembered.
    pub(crate) fn restore(&mut self, node: Uuid, record: EndsRecord) {
        let EndsRecord { incarnation, seq } = record;
        self.begin(node, incarnation, seq).seq = seq;
    }

    /// A node says whose numbers it gives, and the latest.
    fn begin(&mut self, node: Uuid, incarnation: Uuid, latest: u64) -> &mut Heard {
        let new = Heard {
            incarnation,
            seq: 0,
            acknowledged: Acknowledged::Yes,
        };
        let heard = self.by_node.entry(node).or_insert(new);
        // A launcher that has lost its count begins anew, whatever it calls it.
        if heard.incarnation != incarnation || heard.seq > latest {
            let acknowledged = heard.acknowledged;
            *heard = Heard {
                acknowledged,
                ..new
            };
        }
        heard
    }

    /// Notes an end; whether it is news.
    fn note(&mut self, node: Uuid, seq: u64) -> bool {
        let Some(heard) = self.by_node.get_mut(&node).filter(|it| it.seq < seq) else {
            return false;
        };
        heard.seq = seq;
        true
    }

    /// A node wants to be told what is dealt with; what to tell it, unless that waits for something told before.
    fn ask(&mut self, node: Uuid) -> Option<EndsRecord> {
        let heard = self.by_node.get_mut(&node)?;
        if heard.acknowledged != Acknowledged::Yes {
            heard.acknowledged = Acknowledged::SoonAndAgain;
            return None;
        }
        heard.acknowledged = Acknowledged::Soon;
        Some(EndsRecord {
            incarnation: heard.incarnation,
            seq: heard.seq,
        })
    }

    /// A node is told; whether it has asked again.
    fn answered(&mut self, node: Uuid) -> bool {
        let heard = self.by_node.get_mut(&node);
        let before =
            heard.map(|heard| std::mem::replace(&mut heard.acknowledged, Acknowledged::Yes));
        before == Some(Acknowledged::SoonAndAgain)
    }
}

impl Scheduler {
    /// What a STATS says of ends, before anything else of it: what is listed may have begun after them.
    pub(crate) fn take_ends(&mut self, now: Instant, id: SessionId, report: &mut StatsReport) {
        let node = self.peers.node_of(id);
        let (Some(key), Some(ends)) = (node, report.ends.take()) else {
            return;
        };
        let EndsReport {
            incarnation,
            seq,
            ended,
        } = *ends;
        let uuid = self.cluster.nodes().node(key).uuid;
        self.ends.begin(uuid, incarnation, seq);
        if report.starts_seen.is_some() {
            self.cluster.note_counting(key);
        }
        self.peers.set_numbers_ends(id, true);
        if ended.is_empty() {
            return;
        }
        self.forget_absent_nodes();
        let listed: IndexSet<&InstanceId> =
            report.instances.iter().map(|it| &it.instance).collect();
        let starts_seen = report.starts_seen.unwrap_or(0);
        for end in ended {
            if !self.ends.note(uuid, end.seq) {
                continue;
            }
            self.journal.note_node(uuid);
            if listed.contains(&end.instance) {
                self.ended_before(key, &end.instance);
            } else if !self.is_of_earlier(key, &end.instance, starts_seen) {
                self.ended_in_stats(now, id, key, end);
            }
        }
        self.acknowledge_ends(uuid);
    }

    /// An end that a launcher tells in a frame of its own, with its number.
    pub(crate) fn numbered(
        &mut self,
        now: Instant,
        id: SessionId,
        frame: Frame,
        seq: u64,
        told: Meaning,
    ) {
        let session = self.peers.get(id).filter(|it| it.numbers_ends());
        if let Some(key) = session.and_then(Session::node) {
            let uuid = self.cluster.nodes().node(key).uuid;
            if !self.ends.note(uuid, seq) {
                return;
            }
            self.journal.note_node(uuid);
        }
        self.frame(now, id, frame, told);
    }

    fn ended_in_stats(&mut self, now: Instant, id: SessionId, key: NodeKey, end: EndReport) {
        let EndReport {
            instance,
            how,
            frame,
            ..
        } = end;
        let is_known = self
            .cluster
            .nodes()
            .node(key)
            .ledger
            .get(&instance)
            .is_some();
        let (frame, told) = match how {
            // Of a START that nobody knows any more its failure was told when its node was given up.
            EndHow::Failed(failed) if is_known => {
                let told = Meaning::StartFailed {
                    node: "".into(),
                    instance: Some(instance),
                    reason: failed.reason,
                    detail: failed.detail,
                };
                (failed.frame, told)
            }
            EndHow::CutOff => (frame, Meaning::InstanceCutOff(instance)),
            EndHow::Gone | EndHow::Failed(_) => (frame, Meaning::InstanceGone(instance)),
        };
        self.frame(now, id, frame, told);
    }

    /// An instance has ended and runs again: one of the STARTs that were given to its node has had its outcome.
    fn ended_before(&mut self, key: NodeKey, instance: &InstanceId) {
        // Whether its room is to be released does not matter: it has it again.
        let _ = self.cluster.ledger_mut(key).end(instance, Ended::Gone);
    }

    /// Whether the only START of an instance on a node is one that its launcher had not come to when it said that the
    /// instance had ended.
    fn is_of_earlier(&self, key: NodeKey, instance: &InstanceId, starts_seen: u64) -> bool {
        let entry = self.cluster.nodes().node(key).ledger.get(instance);
        entry.is_some_and(|entry| entry.is_all_after(starts_seen))
    }

    /// Tells a node which of its ends are dealt with, once all that changed so far is on disk.
    fn acknowledge_ends(&mut self, node: Uuid) {
        if let Some(ends) = self.ends.ask(node) {
            self.journal.acknowledge(node, ends);
        }
    }

    /// Tells nodes what is on disk by now; whether there was anything.
    pub(crate) fn acknowledge_recorded(&mut self) -> bool {
        let mut any = false;
        while let Some((node, ends)) = self.journal.take_acknowledgement() {
            any = true;
            let key = self.cluster.nodes().by_uuid(node);
            let session = key.and_then(|key| self.cluster.nodes().node(key).session());
            // Another connection than the one it was told on serves as well: the number says all.
            if let Some(session) = session
                && self.peers.get(session).is_some_and(Session::numbers_ends)
            {
                let recorded = EndsRecorded {
                    incarnation: ends.incarnation.to_string(),
                    seq: ends.seq,
                };
                self.send(session, Message::EndsRecorded(recorded));
            }
            if self.ends.answered(node) {
                self.acknowledge_ends(node);
            }
        }
        any
    }

    fn forget_absent_nodes(&mut self) {
        if self.ends.by_node.len() <= MAX_NODES_REMEMBERED {
            return;
        }
        let nodes = &self.cluster.nodes();
        let mut forgotten = Vec::new();
        self.ends.by_node.retain(|&uuid, heard| {
            let stays = nodes.by_uuid(uuid).is_some() || heard.acknowledged != Acknowledged::Yes;
            if !stays {
                forgotten.push(uuid);
            }
            stays
        });
        for uuid in forgotten {
            self.journal.note_node(uuid);
        }
    }
}
