//! The choice of a node: the first that fits, not most recently used, narrowed by filters; and where something is to be
//! weighed, the best of the first nodes that fit.
//!
//! The order of the search is that of the table: slots in order of connection, from behind the most recently used one
//! to the end, then from the beginning up to and including it. So plain STARTs go round the nodes.
//!
//! [`Placement::choose`] tries these in order, the cheap ones first:
//!
//! 1. Nothing but room counts, for this policy and this START: `Table::first_fit` alone, without a look at any node.
//! 2. There are filters but nothing is weighed: the first slot in order that has room and that all filters admit.
//! 3. Only the START's own preferences are weighed, and masks express all of them: the first slot that is in all masks.
//!    No other node can be better, so nothing is weighed.
//! 4. Else up to `policy.candidates` nodes that fit are weighed, and one of the `subset_size` best is taken.
//! 5. Nothing was found: a node whose outgoing queue is filling, which the tables do not offer.
//!
//! Neighbours: `filters` and `weighers` (what is asked), `policy` (which ones), `cluster::table` (order and room),
//! `explain` (the same [`Search`], run over every node to count why it fails).

use std::cell::Cell;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Instant;

use crate::api::ids::NodeKey;
use crate::api::resources::Resources;
use crate::cluster::candidate::{Candidate, image_label};
use crate::cluster::labels::{LabelIndex, Mask};
use crate::cluster::node::Pool;
use crate::cluster::query::Query;
use crate::cluster::slot_set::SlotSet;
use crate::cluster::table::{Slot, Table};
use crate::cluster::view::{Asked, GroupNow, NODE_SCOPE, View};
use crate::cluster::{Cluster, facts};
use crate::placement::Placement;
use crate::placement::filters::{Concerned, Narrowing};
use crate::placement::policy::{Policy, allowed, best};
use crate::placement::weighers::{Weighing, Weighted};

impl Placement {
    /// The node for a query among those that are READY, or `None` where none fits. It becomes the most recently used of
    /// its pool, so the next search begins behind it; the caller that does not carry the choice out puts the cursor
    /// back (`Cluster::cursors`).
    ///
    /// Claims nothing: until the caller has claimed the room, the next choice may find the same node. Nodes that the
    /// query avoids, such as those reserved for others, are the caller's business (`workflow::start`).
    pub(crate) fn choose(
        &mut self,
        cluster: &mut Cluster,
        query: &Query,
        now: Instant,
    ) -> Option<NodeKey> {
        let pool = query.pool();
        let slot = self.search(cluster, query, pool, now)?;
        cluster.touch(pool, slot)
    }

    /// The node for a query among those whose latest status is FULL and on which room was released since. Asked only
    /// where [`Placement::choose`] found none: such a node may still refuse. The node found becomes the most recently
    /// used.
    ///
    /// The room that counts is what was released, not what the node offered before. Weighers are not asked: the first
    /// that fits is taken. Costs a look at each full node, in a list that is short as a rule.
    pub(crate) fn choose_full(
        &mut self,
        cluster: &mut Cluster,
        query: &Query,
        now: Instant,
    ) -> Option<NodeKey> {
        if cluster.full_nodes().is_empty() || !cluster.may_try(query.instance()) {
            return None;
        }
        let pool = query.pool();
        count_group(cluster, query);
        let full: Vec<NodeKey> = cluster.full_nodes().iter().copied().collect();
        let (view, labels) = cluster.view_and_labels(pool, now);
        let asked = view.asked(query, labels);
        if !asked.unknown_names().is_empty() {
            return None;
        }
        let search = Search::new(view, &asked, self.policy.concerned(&asked), labels);
        let nodes = view.nodes;
        let slot = search.first_of(full.into_iter().filter_map(|key| {
            let may_try = nodes.node(key).may_be_tried();
            may_try.then(|| (view.candidate(key), nodes.released(key)))
        }))?;
        cluster.touch(pool, slot)
    }

    /// The search of [`Placement::choose`]; changes nothing but the random generator and `looked_at`.
    ///
    /// Cost: a plain START on an empty queue costs a walk down a tree of maxima. Filters cost one look at each node
    /// that the index and the masks let pass, until one is admitted. Weighing costs a look at up to `candidates` nodes
    /// for all masks together, for each mask alone, and for none.
    fn search(
        &mut self,
        cluster: &mut Cluster,
        query: &Query,
        pool: Pool,
        now: Instant,
    ) -> Option<Slot> {
        count_group(cluster, query);
        self.looked_at = 0;
        let (view, labels) = cluster.view_and_labels(pool, now);
        let policy = &self.policy;
        if policy.takes_any_with_room
            && let Some(found) = view.first_with_room(query, labels)
        {
            // A filter that concerns this START would be skipped on this short cut: it must be one that `concerns_all`
            // announces or that `View::first_with_room` rules out.
            debug_assert!(policy.concerned(&view.asked(query, labels)).is_empty());
            return found;
        }
        let asked = view.asked(query, labels);
        // It asks for a custom resource that no node ever reported.
        if !asked.unknown_names().is_empty() {
            return None;
        }
        let search = Search::new(view, &asked, policy.concerned(&asked), labels);
        let weighers = policy.weighing(&asked);
        let found = if weighers.is_empty() {
            search.first()
        } else {
            let preferences = preferences(&asked, view, labels, weighers);
            let decide = policy.weighs_preferences_alone() && search.say_all(&preferences);
            match decide.then(|| search.granting(&preferences)).flatten() {
                Some(slot) => Some(slot),
                // The one mask has all that is preferred, and no node in it fits: the nodes outside are equally good.
                None if decide && preferences.len() == 1 && asked.group().is_none() => {
                    search.first()
                }
                None => search.best(&preferences, weighers, policy, &mut self.chance),
            }
        };
        let found = found.or_else(|| search.filling());
        let for_near: usize = asked.near.iter().map(|near| near.looked_at).sum();
        self.looked_at = search.looked_at.get() + for_near;
        found
    }
}

/// Makes the cluster count the members of a START's group by the values of its scope's label, where the scope is a
/// label. Must be called before `View::asked`, which only reads these counts. Costs a walk over the group's nodes where
/// they are not counted by this label yet; then the counts are kept up to date with each claim (`cluster::groups`).
pub(crate) fn count_group(cluster: &mut Cluster, query: &Query) {
    let scheduling = query.scheduling();
    if let Some(group) = scheduling.and_then(|scheduling| scheduling.group.as_ref())
        && group.scope != NODE_SCOPE
    {
        cluster.count_group_by(&group.id, &group.scope);
    }
}

/// One search through one table: a query, the filters that have to do with it, and where they allow a node. Lives for
/// one choice or one explanation, and borrows the cluster meanwhile.
pub(crate) struct Search<'a> {
    pub(super) view: View<'a>,
    /// What the START asks for, resolved against this cluster: custom resources by number, where members of its group
    /// are.
    pub(super) asked: &'a Asked<'a>,
    /// The filters of the policy that have to do with this START, in the policy's order.
    pub(super) filters: Concerned<'a>,
    /// A slot must be allowed by every one of these. They rule out 64 slots at a time and need not be complete:
    /// `admits` is asked of each slot that they let pass.
    masks: Vec<Mask>,
    /// If there is a list, only these slots are looked at, and the index is not walked. A pin to a node or host gives
    /// one.
    pub(super) list: Option<Vec<Slot>>,
    /// Nodes looked at one by one, by filters or to be weighed. A cell, because searching only reads otherwise.
    looked_at: Cell<usize>,
}

impl<'a> Search<'a> {
    /// A search as these filters narrow it: each may add masks or a list of slots. The caller gives the filters that
    /// concern the START, and no others ([`Policy::concerned`]).
    pub(crate) fn new(
        view: View<'a>,
        asked: &'a Asked<'a>,
        filters: Concerned<'a>,
        labels: &mut LabelIndex,
    ) -> Self {
        let mut narrowing = Narrowing {
            labels,
            view,
            masks: Vec::new(),
            list: None,
        };
        for filter in filters.iter() {
            filter.narrow(asked, &mut narrowing);
        }
        let Narrowing { masks, list, .. } = narrowing;
        Self {
            view,
            asked,
            filters,
            masks,
            list,
            looked_at: Cell::new(0),
        }
    }

    /// The first node that fits, in the order of the search. Where there is no filter, list or custom resource the
    /// index answers alone.
    fn first(&self) -> Option<Slot> {
        if self.list.is_none() && self.filters.is_empty() && self.asked.custom().is_empty() {
            return self.view.table.first_fit(self.asked.room());
        }
        self.granting(&[])
    }

    /// Whether masks express all that the START prefers: then no weigher finds a better node than one that is in all of
    /// them.
    ///
    /// Counts what it prefers and compares that with the number of masks that [`preferences`] made. They differ where an
    /// expression is about a fact that changes (load, say), which no mask expresses. Soft affinity is never expressed:
    /// more members are better, without an upper end. Of anti-affinity there is a mask for "no member", and one for
    /// "fewer than `max`" where `max` is above 1.
    fn say_all(&self, preferences: &[Mask]) -> bool {
        let prefer = self.asked.scheduling().map_or(0, |it| it.prefer.len());
        let near = self.asked.near.iter().filter(|near| !near.asked().hard);
        let group = self.asked.group().filter(|group| !group.is_hard());
        let is_anti = |group: &GroupNow<'_>| !group.is_together();
        let of_group = group.filter(|group| group.members.is_some());
        let masks = of_group.map_or(0, |group| 1 + usize::from(group.max() > 1));
        let volumes = self.asked.volumes.len();
        group.is_none_or(is_anti) && preferences.len() == prefer + near.count() + masks + volumes
    }

    /// The first node in the order of the search that fits and is in all of these masks.
    fn granting(&self, preferences: &[Mask]) -> Option<Slot> {
        let mut found = None;
        self.visit(preferences, |slot| {
            found = Some(slot);
            ControlFlow::Break(())
        });
        found
    }

    /// One of the best of the first nodes that fit: the best, or one of the `subset_size` best drawn at random. Draws
    /// nothing where there are fewer than two to choose from, so that the random generator stays as it is.
    fn best(
        &self,
        preferences: &[Mask],
        weighers: Weighing<'_>,
        policy: &Policy,
        chance: &mut fastrand::Rng,
    ) -> Option<Slot> {
        let slots = self.candidates(policy.candidates, preferences);
        let candidates: Vec<(Slot, Candidate<'_>)> = slots
            .into_iter()
            .filter_map(|slot| Some((slot, self.candidate(slot)?)))
            .collect();
        let best = best(&candidates, weighers, self.asked, policy.subset_size);
        match best.len() {
            0 | 1 => best.first().copied(),
            count => Some(best[chance.usize(..count)]),
        }
    }

    /// The nodes that are weighed, each once. Up to `limit` nodes that fit and are in all masks, then up to `limit` for
    /// each mask alone, then up to `limit` of all. So a preferred node is among them however far back in the order it
    /// is, and the number of nodes looked at is bounded by the START rather than by the cluster.
    ///
    /// Without a limit (`usize::MAX`) all nodes that fit are weighed, and the masks are of no use.
    fn candidates(&self, limit: usize, preferences: &[Mask]) -> Vec<Slot> {
        let mut slots = Vec::new();
        if preferences.is_empty() || limit == usize::MAX {
            self.collect(limit, &[], &mut slots);
            return slots;
        }
        self.collect(limit, preferences, &mut slots);
        if preferences.len() > 1 {
            for preference in preferences {
                self.collect(limit, std::slice::from_ref(preference), &mut slots);
            }
        }
        self.collect(limit, &[], &mut slots);
        // A node may have been found more than once; its first place counts.
        let mut seen = SlotSet::default();
        slots.retain(|&slot| seen.insert(slot));
        slots
    }

    /// Appends the first `limit` slots that fit and are in these masks as well. `limit` must be above 0.
    pub(super) fn collect(&self, limit: usize, also: &[Mask], into: &mut Vec<Slot>) {
        let mut left = limit;
        self.visit(also, |slot| {
            into.push(slot);
            left -= 1;
            if left == 0 {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        });
    }

    /// Shows every node that fits and is in the masks of `also` too, in the order of the search, until `visit` breaks.
    ///
    /// A node fits if it is offered with enough room, all masks allow it and all filters admit it, asked in this order:
    /// from cheap to costly.
    fn visit(&self, also: &[Mask], mut visit: impl FnMut(Slot) -> ControlFlow<()>) {
        let need = self.asked.need();
        let table = self.view.table;
        if let Some(list) = &self.list {
            let fits = |&slot: &Slot| {
                let masks = self.masks.iter().chain(also);
                masks.into_iter().all(|mask| mask.allows(slot))
                    && table.covers(slot, &need)
                    && self.admits(slot)
            };
            let mut list: Vec<Slot> = list.iter().copied().filter(fits).collect();
            table.sort_in_order(&mut list);
            let _ = list.into_iter().try_for_each(visit);
            return;
        }
        let _ = table.fits_in_order(
            &need,
            |block| allowed(&self.masks, block) & allowed(also, block),
            |slot| {
                if self.admits(slot) {
                    visit(slot)
                } else {
                    ControlFlow::Continue(())
                }
            },
        );
    }

    /// Whether every filter admits the node in a slot. Without filters the node is not even looked at.
    fn admits(&self, slot: Slot) -> bool {
        if self.filters.is_empty() {
            return true;
        }
        let Some(node) = self.candidate(slot) else {
            return false;
        };
        self.filters
            .iter()
            .all(|filter| filter.admits(&node, self.asked).is_ok())
    }

    /// The node in a slot, with what the table says that it offers. Counts as one look; `None` for a hole.
    fn candidate(&self, slot: Slot) -> Option<Candidate<'a>> {
        self.looked_at.set(self.looked_at.get() + 1);
        let table: &'a Table = self.view.table;
        let key = table.node(slot)?;
        Some(self.view.candidate_with(key, table.offer(slot)))
    }

    /// The first node whose outgoing queue is filling and that would fit otherwise. The tables do not offer such nodes,
    /// so as to spread work over the others; but where only these fit, the START is sent all the same. The sender is
    /// then slowed down by its own budget of queued bytes, which is better for it than an answer that there is no room.
    fn filling(&self) -> Option<Slot> {
        let filling = self.view.filling.iter().copied();
        self.first_of(filling.filter_map(|key| {
            let takes_work = self.view.nodes.node(key).takes_work();
            let candidate = takes_work.then(|| self.view.candidate(key))?;
            Some((candidate, candidate.free))
        }))
    }

    /// The first, in the order of the search, of nodes that the table does not offer. Each comes with the room that
    /// counts for it, since the index has none for it. Masks are not asked: filters are complete without them.
    fn first_of(&self, nodes: impl Iterator<Item = (Candidate<'a>, Resources)>) -> Option<Slot> {
        let fits = |(node, room): &(Candidate<'a>, Resources)| {
            let mut custom = self.asked.custom().iter();
            let mut filters = self.filters.iter();
            room.covers(self.asked.room())
                && custom.all(|&(column, amount)| {
                    self.view.nodes.free_custom(node.key, column) >= amount
                })
                && filters.all(|filter| filter.admits(node, self.asked).is_ok())
        };
        let nodes = nodes.filter(fits);
        let mut slots: Vec<Slot> = nodes
            .filter_map(|(node, _)| self.view.slot(node.key))
            .collect();
        self.view.table.sort_in_order(&mut slots);
        slots.first().copied()
    }
}

/// What a START prefers, as masks over slots: one for each preference that labels, groups, volumes or names of nodes
/// can express. What no mask expresses (an expression over a changing fact, say) is left to the weighers;
/// [`Search::say_all`] notices that it is missing.
///
/// The image counts as a preference only where the policy has a weigher for it with a positive multiplier.
fn preferences(
    asked: &Asked<'_>,
    view: View<'_>,
    labels: &mut LabelIndex,
    weighers: Weighing<'_>,
) -> Vec<Mask> {
    let mut preferences = Vec::new();
    if let Some(image) = &asked.query.request().image
        && weighers.iter().any(Weighted::wants_image)
    {
        let set = labels.with_key(&image_label(image));
        preferences.push(Mask::inside(Arc::new(set)));
    }
    let prefer = asked
        .scheduling()
        .map_or(&[][..], |scheduling| &scheduling.prefer);
    for expression in prefer {
        if !facts::is_fact(expression.key()) {
            preferences.push(labels.mask(expression));
        } else if let Some(named) = view.named(expression) {
            preferences.push(Mask::inside(Arc::new(named)));
        }
    }
    for near in asked.near.iter().filter(|near| !near.asked().hard) {
        preferences.push(Mask::inside(Arc::new(near.slots(labels))));
    }
    for volume in &asked.volumes {
        let has_it = labels.with_values(facts::VOLUME, std::iter::once(*volume));
        preferences.push(Mask::inside(Arc::new(has_it)));
    }
    if let Some(group) = asked.group().filter(|group| !group.is_hard())
        && let Some(members) = group.members
    {
        let with_members = |least: u32| {
            if group.is_node_scope() {
                return members.slots(view.pool as usize, least);
            }
            Arc::new(labels.with_values(&group.asked().scope, group.values_with(least)))
        };
        if group.is_together() {
            preferences.push(Mask::inside(with_members(1)));
        } else {
            preferences.push(Mask::outside(with_members(1)));
            if group.max() > 1 {
                preferences.push(Mask::outside(with_members(group.max())));
            }
        }
    }
    preferences
}
