//! `scheduling.group` with a policy that must hold: affinity, or anti-affinity up to `max` members in one place.
//!
//! ```yaml
//! scheduling:
//!   group: {id: web, policy: anti-affinity, scope: zone, max: 2}
//! ```
//!
//! A place is a node, or, with a `scope`, all nodes that have the same value of the label of that name. Members are
//! counted by entries in ledgers (`cluster::groups`), so a START that was just claimed counts at once. The first member
//! of an affinity group may go anywhere that has the scope's label. Soft policies are a weigher's business.
//!
//! Where the place is a node, members that are in the way may be preempted, and one that was preempted and is suspended
//! counts no more. Where it is a label's value, the members of a place are on several nodes, and a START makes room on
//! one: so it waits until the place is free.

use std::sync::Arc;

use sched_model::ReasonKind;

use super::{Filter, Miss, Narrowing};
use crate::api::no_fit::Lack;
use crate::cluster::candidate::Candidate;
use crate::cluster::labels::Mask;
use crate::cluster::view::{Asked, GroupNow};

/// Rejects nodes where the group's policy would not hold with one more member.
#[derive(Debug)]
pub(super) struct HardGroup;

/// No member is here (affinity), or `max` members are here (anti-affinity).
const PLACE: Miss = Miss(0);
/// The node has no value of the scope's label, so it is in no place of the group.
const NO_SCOPE: Miss = Miss(1);
/// The node has not said yet what runs on it, so it may have members that are not counted.
const UNLISTED: Miss = Miss(2);

impl Filter for HardGroup {
    fn name(&self) -> &'static str {
        "group"
    }

    fn keys(&self) -> &'static [&'static str] {
        &["group"]
    }

    fn concerns(&self, asked: &Asked<'_>) -> bool {
        asked.group().is_some_and(GroupNow::is_hard)
    }

    fn admits(&self, node: &Candidate<'_>, asked: &Asked<'_>) -> Result<(), Miss> {
        let Some(group) = asked.group() else {
            return Ok(());
        };
        if !node.has_listed() {
            return Err(UNLISTED);
        }
        if !group.is_node_scope() && node.label(&group.asked().scope).next().is_none() {
            return Err(NO_SCOPE);
        }
        let fits = if group.is_apart_by_node() {
            group.in_place(node) < group.max()
        } else if group.is_together() {
            group.members_at(node) > 0 || group.members.is_none()
        } else {
            group.members_at(node) < group.max()
        };
        if fits { Ok(()) } else { Err(PLACE) }
    }

    fn members_in_the_way(&self, node: &Candidate<'_>, asked: &Asked<'_>) -> Result<u32, Miss> {
        match (self.admits(node, asked), asked.group()) {
            (Err(PLACE), Some(group)) if group.is_apart_by_node() && group.max() > 0 => {
                Ok(group.in_place(node) - (group.max() - 1))
            }
            (admitted, _) => admitted.map(|()| 0),
        }
    }

    fn narrow(&self, asked: &Asked<'_>, to: &mut Narrowing<'_>) {
        let Some(group) = asked.group() else { return };
        let pool = to.view.pool as usize;
        // The scope is the node: slots with members are kept ready, and no label is read.
        if group.is_node_scope() {
            let Some(members) = group.members else {
                return;
            };
            to.masks.push(if group.is_together() {
                Mask::inside(members.slots(pool, 1))
            } else {
                Mask::outside(members.taken(pool, group.max()))
            });
            return;
        }
        let scope = &group.asked().scope;
        let least = if group.is_together() { 1 } else { group.max() };
        let set = Arc::new(to.labels.with_values(scope, group.values_with(least)));
        if !group.is_together() {
            to.masks.push(Mask::outside(set));
        } else if group.members.is_some() {
            to.masks.push(Mask::inside(set));
        }
    }

    fn reason(&self) -> ReasonKind {
        ReasonKind::Group
    }

    fn lack(&self, miss: Miss, asked: &Asked<'_>) -> Lack {
        let Some(now) = asked.group() else {
            return Lack::Group;
        };
        let group = now.asked().id.as_str().into();
        let scope = now.asked().scope.as_str().into();
        match miss {
            NO_SCOPE => Lack::Scope { scope, group },
            UNLISTED => Lack::Listing(group),
            _ if now.is_together() => Lack::Member { group, scope },
            _ => Lack::Vacancy {
                group,
                max: now.max(),
                scope,
            },
        }
    }

    fn what(&self, _miss: Miss, asked: &Asked<'_>) -> String {
        let group = asked.group();
        group.map_or_else(String::new, |group| group.asked().id.clone())
    }
}
