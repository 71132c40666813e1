//! Rows of instances: those on nodes, as the ledgers have them, and managed ones that are on no node.
//!
//! A managed instance is one row, at the place that its state names. Any other entry of it in a ledger is a claim, such
//! as its room on the node that it moves to, and is not shown. Pages first show instances on no node, by identifier,
//! then node by node the entries of each ledger, last to first.

use std::time::Instant;

use sched_model::{InstanceView, PhaseName, PlacementState, Query, RetryPolicy, UNKNOWN};

use super::page::{InstanceCursor, InstanceRow, InstanceRows, Page, QueueCursor, start_of};
use super::waiting::Detail;
use crate::Scheduler;
use crate::api::cause::Cause;
use crate::api::explained::Explained;
use crate::api::ids::{InstanceId, NodeKey};
use crate::cluster::ledger::{ClaimState, Entry};
use crate::cluster::node::{Node, Pool, Presence};
use crate::instance::{Awaits, Instance, Placing, State, SuspendedBy};
use crate::journal::LostPlain;
use crate::queue::Rank;
use crate::sight::Sight;

/// Where those that wait for others stand in the queue: behind all pools.
const DEPENDENTS: usize = Pool::ALL.len();

/// The word for an instance that waits for others to end.
const AFTER: &str = "after";

impl Scheduler {
    /// The row of one instance: where it is now, else of its latest run that is over, as long as that is remembered.
    /// For the HTTP API's path of one instance.
    #[must_use]
    pub fn explained_instance(
        &mut self,
        now: Instant,
        instance: &InstanceId,
    ) -> Option<InstanceRow> {
        let mut row = self.instance(now, instance)?;
        let Explained { payload, cause } = &mut row;
        self.explain_row(now, Detail::Reasons, payload, cause);
        Some(row)
    }

    /// The same, with why it began to wait in place of why it waits now.
    #[must_use]
    pub fn instance(&self, now: Instant, instance: &InstanceId) -> Option<InstanceRow> {
        let row = self.sight().instance_row(now, instance);
        row.or_else(|| self.sight().last_run_row(instance))
    }
}

impl Sight<'_> {
    /// Instances that match a pattern: exactly the one whose identifier it is, else those whose identifier begins with
    /// it, which are called so, or whose node has that host name.
    pub(super) fn query_instances(&self, now: Instant, query: &Query, result: &mut Page) {
        let pattern = query.matching.as_deref().unwrap_or_default();
        if !pattern.is_empty()
            && let Some(row) = self.instance_row(now, &InstanceId::new(pattern))
        {
            InstanceRows::of(result, query).add(row);
            return;
        }
        let Some(from) = start_of(query, result) else {
            return;
        };
        let mut rows = InstanceRows::of(result, query);
        let next = self.instance_page(now, from, pattern, &mut rows);
        result.next = next.map(|cursor| cursor.to_string());
    }

    /// The queue in its order: first instances that wait for compute nodes, then those that wait for network nodes, and then
    /// those that wait for others to end. The
    /// cursor is the pool and the rank of the last one looked at, so that a page goes on correctly while others come
    /// and go.
    pub(super) fn query_queue(&self, now: Instant, query: &Query, result: &mut Page) {
        let pattern = query.matching.as_deref().unwrap_or_default();
        let Some(from) = start_of::<QueueCursor>(query, result) else {
            return;
        };
        let mut rows = InstanceRows::of(result, query);
        for pool in Pool::ALL.into_iter().skip(from.pool) {
            let at = pool as usize;
            let is_first = at == from.pool;
            let after = from.after.filter(|_| is_first);
            let rank = after.map(|(priority, order)| Rank::new(priority, order));
            let mut last = after;
            for waiter in self.queue.iter_after(pool, rank) {
                if rows.allowance.is_used_up() {
                    let cursor = QueueCursor {
                        pool: at,
                        after: last,
                    };
                    result.next = Some(cursor.to_string());
                    return;
                }
                rows.allowance.look();
                last = Some((waiter.priority(), waiter.order()));
                let is_wanted = waiter.instance().starts_with(pattern)
                    || self.is_called(waiter.instance(), pattern);
                if is_wanted && let Some(row) = self.instance_row(now, waiter.instance()) {
                    rows.add(row);
                }
            }
        }
        let last = from.after.filter(|_| from.pool == DEPENDENTS);
        let last = last.map(|(_, order)| order);
        let next = self.query_dependents(now, pattern, last, &mut rows);
        result.next = next.map(|cursor| cursor.to_string());
    }

    /// The part of the queue that waits for others, in order of arrival.
    fn query_dependents(
        &self,
        now: Instant,
        pattern: &str,
        mut last: Option<u64>,
        rows: &mut InstanceRows<'_>,
    ) -> Option<QueueCursor> {
        while let Some((order, instance)) = self.queue.next_dependent(last) {
            if rows.allowance.is_used_up() {
                return Some(QueueCursor {
                    pool: DEPENDENTS,
                    after: last.map(|last| (0, last)),
                });
            }
            rows.allowance.look();
            last = Some(order);
            let is_wanted = instance.starts_with(pattern) || self.is_called(instance, pattern);
            if is_wanted && let Some(row) = self.instance_row(now, instance) {
                rows.add(row);
            }
        }
        None
    }

    /// Adds the rows of instances that match, from a cursor on. Returns the cursor of the next page if there is more.
    /// An instance that moves between two pages may be shown twice or not at all.
    pub(crate) fn instance_page(
        &self,
        now: Instant,
        from: InstanceCursor,
        pattern: &str,
        rows: &mut InstanceRows<'_>,
    ) -> Option<InstanceCursor> {
        let (first, mut left) = match from {
            InstanceCursor::Node(first, left) => (first, left),
            InstanceCursor::Lost(after) => match self.lost_page(now, after, pattern, rows) {
                None => (0, None),
                end => return end,
            },
            InstanceCursor::Nowhere(after) => {
                let mut last = after;
                while let Some((instance, managed)) = self.instances.next_nowhere(last.as_ref()) {
                    if rows.allowance.is_used_up() {
                        return Some(InstanceCursor::Nowhere(last));
                    }
                    rows.allowance.look();
                    if instance.starts_with(pattern) || self.is_called(instance, pattern) {
                        let row = self.row_nowhere(now, instance, managed);
                        rows.add(row);
                    }
                    last = Some(instance.clone());
                }
                match self.lost_page(now, None, pattern, rows) {
                    None => (0, None),
                    end => return end,
                }
            }
        };
        for (key, node) in self.cluster.nodes_from(first) {
            let at = key.0 as usize;
            if rows.allowance.is_used_up() {
                return Some(InstanceCursor::Node(at, left));
            }
            rows.allowance.look();
            let by_host = !pattern.is_empty() && node.hostname() == pattern;
            // Those left to show are of the node that the page before ended with, if that is still there.
            let left = left.take().filter(|_| at == first);
            let entries = left.unwrap_or(usize::MAX);
            for (before, instance, entry) in node.ledger().entries_before(entries) {
                if rows.allowance.is_used_up() {
                    return Some(InstanceCursor::Node(at, Some(before + 1)));
                }
                rows.allowance.look();
                let is_wanted =
                    by_host || instance.starts_with(pattern) || self.is_called(instance, pattern);
                if is_wanted && self.is_its_place(key, instance, entry) {
                    let row = self.row_on(now, node, instance, entry);
                    rows.add(row);
                }
            }
        }
        None
    }

    /// The same of plain instances of lost nodes alone. Returns where the next page begins, if it is among these.
    fn lost_page(
        &self,
        now: Instant,
        after: Option<InstanceId>,
        pattern: &str,
        rows: &mut InstanceRows<'_>,
    ) -> Option<InstanceCursor> {
        let mut last = after;
        while let Some(instance) = self.journal.next_lost_plain(last.as_ref()) {
            if rows.allowance.is_used_up() {
                return Some(InstanceCursor::Lost(last));
            }
            rows.allowance.look();
            if let Some(row) = self.row_lost(now, instance) {
                let by_host = !pattern.is_empty() && row.hostname == pattern;
                if by_host || instance.starts_with(pattern) || self.is_called(instance, pattern) {
                    rows.add(row);
                }
            }
            last = Some(instance.clone());
        }
        None
    }

    /// The row of a plain instance whose node is lost and was given up; `None` if it is none, or is elsewhere by now.
    fn row_lost(&self, now: Instant, instance: &InstanceId) -> Option<InstanceRow> {
        let LostPlain { node, claim, .. } = self.lost_plain(instance)?;
        let until = self.journal.lost_plain(instance)?.until();
        let left = until.saturating_duration_since(now).as_millis();
        let asked = |amount: i64| if claim.is_unknown { UNKNOWN } else { amount };
        let mut row = InstanceView {
            instance_uuid: instance.to_string(),
            node_uuid: node.to_string(),
            hostname: self.cluster.name_of(node).to_owned(),
            state: PlacementState::Lost,
            mem_mb: asked(claim.mem_mib),
            vcpus: asked(claim.vcpus),
            disk_mb: asked(claim.disk_mib),
            group: claim.group.as_deref().unwrap_or_default().to_owned(),
            deadline_ms: i64::try_from(left).ok(),
            ..InstanceView::default()
        };
        let named = claim.resources.iter();
        row.resources = named.map(|(name, it)| (name.to_string(), *it)).collect();
        if claim.since_ms > 0 {
            let age = now.saturating_duration_since(self.clock.instant_of(claim.since_ms));
            row.age_s = i64::try_from(age.as_secs()).unwrap_or(i64::MAX);
        }
        Some(self.with_about(instance, InstanceRow::new(row, Cause::MayRunOnLostNode)))
    }

    /// Whether an instance has this name. Names are reported by launchers and need not be unique.
    pub(super) fn is_called(&self, instance: &InstanceId, name: &str) -> bool {
        let about = self.instances.about(instance);
        !name.is_empty() && about.is_some_and(|about| about.name == name)
    }

    /// Adds what launchers report about an instance: its name, its program, and since when it runs if that is longer
    /// than its entry is old.
    pub(super) fn with_about(&self, instance: &InstanceId, mut row: InstanceRow) -> InstanceRow {
        if let Some(about) = self.instances.about(instance) {
            row.name = about.name.to_string();
            row.program = about.program.to_string();
            if let Some(since) = about.since.filter(|_| row.ended_at_ms.is_none()) {
                let age = self.now.saturating_duration_since(since).as_secs();
                row.age_s = row.age_s.max(i64::try_from(age).unwrap_or(i64::MAX));
            }
        }
        row
    }

    /// The row of one instance that is there: at the node that its state names, else where it is placed.
    fn instance_row(&self, now: Instant, instance: &InstanceId) -> Option<InstanceRow> {
        let managed = self.instances.get(instance);
        let place = match managed {
            Some(managed) => managed.node(),
            None => self.cluster.placement(instance),
        };
        match (place, managed) {
            (Some(key), _) => {
                let node = self.cluster.node(key);
                let entry = node.ledger().get(instance)?;
                Some(self.row_on(now, node, instance, entry))
            }
            (None, Some(managed)) => Some(self.row_nowhere(now, instance, managed)),
            (None, None) => self.row_lost(now, instance),
        }
    }

    /// Whether an entry is where its instance is, rather than a claim for where it is to go.
    fn is_its_place(&self, key: NodeKey, instance: &InstanceId, entry: &Entry) -> bool {
        match self.instances.get(instance).map(Instance::node) {
            None => true,
            Some(None) => false,
            // An instance that two nodes list is shown twice: that should not happen, and people have to see it.
            Some(Some(place)) => place == key || entry.claim_state() != ClaimState::Claimed,
        }
    }

    /// The row of an instance with an entry on a node. The figures are those of the entry: asked, and used as the
    /// latest STATS says. On a lost node without another deadline, the deadline is that of the in-doubt time.
    fn row_on(
        &self,
        now: Instant,
        node: &Node,
        instance: &InstanceId,
        entry: &Entry,
    ) -> InstanceRow {
        let state = match (node.presence(), entry.claim_state()) {
            (Presence::Lost(_), ClaimState::Running) => PlacementState::Lost,
            (Presence::Lost(_), _) | (_, ClaimState::InDoubt(_)) => PlacementState::InDoubt,
            (_, ClaimState::Claimed | ClaimState::Placed(_)) => PlacementState::Placed,
            (_, ClaimState::Running) => PlacementState::Running,
        };
        let row = InstanceView {
            instance_uuid: instance.to_string(),
            node_uuid: node.uuid().to_string(),
            hostname: node.hostname().to_owned(),
            state,
            reported: entry.reported().map(|state| state.name().to_owned()),
            mem_mb: entry.asked().mem_mib,
            vcpus: entry.asked().vcpus,
            disk_mb: entry.asked().disk_mib,
            mem_used_mb: entry.used_mem_mib(),
            disk_used_mb: entry.used_disk_mib(),
            age_s: now.saturating_duration_since(entry.since()).as_secs() as i64,
            group: entry.group().map_or_else(String::new, ToString::to_string),
            resources: self
                .cluster
                .columns()
                .named(entry.custom(), |_, asked| asked),
            progress: entry.progress().cloned().map(Box::new),
            ..InstanceView::default()
        };
        let row = match self.instances.get(instance) {
            Some(managed) => self.with_life(now, instance, managed, row),
            None => row.into(),
        };
        let mut row = self.with_about(instance, row);
        // Whatever it was doing: nobody knows that any more.
        if row.state == PlacementState::Lost && !row.life.is_empty() {
            row.life = PhaseName::Lost.as_str().to_owned();
        }
        if let Presence::Lost(since) = node.presence()
            && row.deadline_ms.is_none()
        {
            let left = (since + self.config.in_doubt_time).saturating_duration_since(now);
            row.deadline_ms = i64::try_from(left.as_millis()).ok();
        }
        row
    }

    /// The row of a managed instance that waits or whose node is lost. Its figures are those of its START.
    fn row_nowhere(&self, now: Instant, instance: &InstanceId, managed: &Instance) -> InstanceRow {
        let (state, node) = match *managed.state() {
            State::Lost { node, .. } => (PlacementState::Lost, Some(node)),
            _ => (PlacementState::Waiting, None),
        };
        let mut row = InstanceView {
            instance_uuid: instance.to_string(),
            node_uuid: node.map(|uuid| uuid.to_string()).unwrap_or_default(),
            hostname: node.map_or_else(String::new, |uuid| self.cluster.name_of(uuid).to_owned()),
            state,
            ..InstanceView::default()
        };
        if let Some(request) = managed.request() {
            row.mem_mb = request.asked.mem_mib;
            row.vcpus = request.asked.vcpus;
            row.disk_mb = request.asked.disk_mib;
            let scheduling = request.scheduling.as_deref();
            let group = scheduling.and_then(|asked| asked.group.as_ref());
            row.group = group.map(|group| group.id.clone()).unwrap_or_default();
            row.resources = scheduling
                .map(|asked| asked.resources.clone())
                .unwrap_or_default();
            row.program = request.image.as_deref().unwrap_or_default().to_owned();
        }
        let row = self.with_life(now, instance, managed, row);
        self.with_about(instance, row)
    }

    /// Adds what is known of managed instances alone: priority, state, place in the queue, deadline and target.
    /// The cause of the row is why it waits, if it does.
    fn with_life(
        &self,
        now: Instant,
        instance: &InstanceId,
        managed: &Instance,
        row: InstanceView,
    ) -> InstanceRow {
        let position = self.queue.position(instance);
        let waits_until = managed.waits_until().filter(|_| !managed.has_run());
        let deadline = match *managed.state() {
            State::Waiting { .. } => waits_until,
            _ => managed.state().due(),
        };
        let left = deadline.map(|until| until.saturating_duration_since(now).as_millis());
        let target = match *managed.state() {
            State::Migrating { to, .. } => self.cluster.uuid(to).to_string(),
            _ => String::new(),
        };
        let row = InstanceView {
            age_s: now.saturating_duration_since(managed.arrived()).as_secs() as i64,
            priority: Some(i64::from(managed.priority())),
            array_uuid: managed
                .element()
                .map(|it| it.array.to_string())
                .unwrap_or_default(),
            array_index: managed.element().map(|it| i64::from(it.index)),
            attempts: Some(attempts(managed)),
            retries: managed.retries(),
            retries_max: managed.retry().map(RetryPolicy::most),
            life: managed.state().life_state().as_str().to_owned(),
            position: position.map(|position| position as u64),
            deadline_ms: left.map(|left| i64::try_from(left).unwrap_or(i64::MAX)),
            target_node_uuid: target,
            ..row
        };
        match self.comes_after(instance) {
            Some(cause) => {
                let blocked_by = AFTER.to_owned();
                InstanceRow::new(InstanceView { blocked_by, ..row }, cause)
            }
            None => InstanceRow::new(row, self.waits_for(managed)),
        }
    }

    /// Why it waits; plain where it does not. Corrects a cause that is out of date: the preemptor that it was suspended
    /// for has gone.
    fn waits_for(&self, managed: &Instance) -> Cause {
        // The preemptor may have ended while this instance stays suspended.
        match managed.state() {
            State::Suspended {
                by: SuspendedBy::Preemptor(other),
                ..
            } if !self.instances.contains(other) && self.cluster.placement(other).is_none() => {
                Cause::PreemptorGone
            }
            _ => waits_for(managed),
        }
    }
}

/// On how many nodes it has been tried since it last ran: the failed tries, plus the one that is under way or
/// succeeded. That on a lost node counts: it was sent there.
fn attempts(managed: &Instance) -> u32 {
    let is_tried = match managed.state() {
        State::Seeking { .. } | State::Waiting { .. } => false,
        State::Placing(Placing { pending_on, .. }) => pending_on.is_given(),
        _ => true,
    };
    let failed = u32::try_from(managed.tried().len()).unwrap_or(u32::MAX);
    failed.saturating_add(u32::from(is_tried))
}

/// Why it waits; plain where it does not.
fn waits_for(managed: &Instance) -> Cause {
    let last = || managed.history().last().map(|event| event.cause.clone());
    match managed.state() {
        State::Waiting { .. }
        | State::Lost { .. }
        | State::Suspended {
            by: SuspendedBy::Preemptor(_),
            ..
        } => last().unwrap_or_default(),
        State::Placing(Placing {
            pending_on: Awaits::Victims(victims, _),
            ..
        }) => Cause::VictimsToLeave(victims.len()),
        _ => Cause::Plain,
    }
}
