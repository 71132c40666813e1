//! Dry runs: where a START, or several of its kind, would go now, without placing anything.
//!
//! Nothing is computed by other rules: nodes are chosen and claimed as ever, and then every claim is undone in reverse
//! order, and the search's cursors and random generator are put back.

use std::sync::Arc;

use indexmap::IndexMap;
use sched_model::{DecidedPlacement, PlacementDecision, StartFailureReason};

use crate::Scheduler;
use crate::api::action::Message;
use crate::api::cause::Cause;
use crate::api::declined::Refusal;
use crate::api::explained::Explained;
use crate::api::ids::{InstanceId, NodeKey};
use crate::api::start::{PlacedStart, StartRequest};
use crate::cluster::query::Query;
use crate::effects::admission::name_taken;
use crate::placement::explain::Explanation;
use crate::query::known::Known;

/// After this much work a dry run of many instances ends, with what it has found: some 20 ms, in which the core does
/// nothing else. Counted are choices, nodes looked at one by one, and nodes with members of the group.
const MAX_WORK: usize = 1_000_000;

impl Scheduler {
    /// Answers a START with `dry_run: true` by a PlacementDecision, and changes nothing. Where it cannot be placed, the
    /// reason is that of the failure that the START would have had. A single START of an instance that exists is
    /// answered as the START would be.
    pub(crate) fn decide(&mut self, start: &PlacedStart) {
        let request = &start.request;
        let count = request.scheduling.as_ref().map_or(1, |it| it.instances());
        let mut reason = self.cluster.no_room(request);
        let mut alternates = Vec::new();
        let (placements, fits, why) = match self.sight().known_of(request) {
            // Of several, this one only says what kind they are.
            _ if count != 1 => self.try_out(request, count, &mut alternates),
            Known::Nowhere => self.try_out(request, count, &mut alternates),
            // It would go to the node that has it, as any START of an instance that lives.
            Known::On(holder) => (IndexMap::from([(holder, 1)]), 1, None),
            Known::NameTaken(other) => {
                reason = StartFailureReason::InvalidData;
                let why = Explanation::of(name_taken(request, other).into());
                (IndexMap::new(), 0, Some(why))
            }
            known => {
                reason = StartFailureReason::InstanceExists;
                (IndexMap::new(), 0, Some(why_not_placed(known)))
            }
        };
        let decided = |(key, count)| {
            let node = self.cluster.node(key);
            DecidedPlacement {
                node_uuid: node.uuid().to_string(),
                hostname: node.hostname().to_owned(),
                count,
            }
        };
        let mut decision = PlacementDecision {
            instance_uuid: request.instance.to_string(),
            count,
            fits,
            placements: placements.into_iter().map(decided).collect(),
            alternates: alternates
                .into_iter()
                .map(|key| decided((key, 1)))
                .collect(),
            ..PlacementDecision::default()
        };
        let mut cause = Cause::Plain;
        if let Some(why) = why {
            decision.reason = reason;
            cause = match fits {
                0 => why.cause,
                fits => Cause::OfSeveral(fits, count, Box::new(why.cause)),
            };
            decision.reasons = why.reasons;
            decision.never = why.never;
        }
        let decision = Box::new(Explained::new(decision, cause));
        self.send(start.sender, Message::PlacementDecision(decision));
    }

    /// Claims nodes for `count` instances one by one, and undoes that. Returns the nodes in order of choice with the
    /// number of instances on each, how many fit, and why not all do. `alternates` gets further nodes on which one more
    /// would fit, if the request asks for them.
    fn try_out(
        &mut self,
        request: &Arc<StartRequest>,
        count: u32,
        alternates: &mut Vec<NodeKey>,
    ) -> (IndexMap<NodeKey, u32>, u32, Option<Explanation>) {
        let (cursors, chance) = (self.cluster.cursors(), self.placement.chance());
        let mut tried: Vec<(NodeKey, InstanceId)> = Vec::new();
        let mut why = None;
        let mut work = 0;
        for number in 0..count {
            if work > MAX_WORK {
                why = Some(Explanation::of(Refusal::OnlyTried(number).into()));
                break;
            }
            work += 1 + self.cluster.nodes_of_group(request);
            let dry_run = Query::of(request).for_dry_run(number);
            let found = self.choose(&dry_run);
            work += self.placement.looked_at();
            let Some(key) = found else {
                why = Some(
                    self.placement
                        .explain(&mut self.cluster, &dry_run, self.now),
                );
                break;
            };
            self.reserve(self.now, key, crate::SessionId(0), &dry_run);
            tried.push((key, dry_run.instance().clone()));
        }
        let mut placements = IndexMap::new();
        for (key, _) in &tried {
            *placements.entry(*key).or_insert(0) += 1;
        }
        if !tried.is_empty() {
            let mut wanted = request
                .scheduling
                .as_ref()
                .and_then(|it| it.alternates)
                .unwrap_or(0);
            let uuid = |key: &NodeKey| self.cluster.uuid(*key);
            let mut dry_run = Query::of(request)
                .for_dry_run(count)
                .avoiding(placements.keys().map(uuid));
            while wanted > 0 && work <= MAX_WORK {
                work += 1 + self.cluster.nodes_of_group(request);
                let found = self.choose(&dry_run);
                work += self.placement.looked_at();
                let Some(key) = found else { break };
                dry_run = dry_run.avoiding([self.cluster.uuid(key)]);
                alternates.push(key);
                wanted -= 1;
            }
        }
        for (key, instance) in tried.iter().rev() {
            self.cluster.undo_claim(*key, instance);
        }
        self.cluster.set_cursors(cursors);
        self.placement.set_chance(chance);
        let fits = u32::try_from(tried.len()).unwrap_or(count);
        (placements, fits, why)
    }
}

/// Why a START of an instance that exists would not be placed.
fn why_not_placed(known: Known) -> Explanation {
    let why = match known {
        Known::Waits => Refusal::Waits,
        Known::Taken(why) => why,
        _ => Refusal::ExpectedBack,
    };
    Explanation::of(why.into())
}
