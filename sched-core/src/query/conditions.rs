//! What is not well, as one list: the answer to `ciaoctl status`, the first line of the page, and `/readyz?verbose`.
//!
//! Only what somebody may want to act on: a full node does what it is for, and an instance that waits for room does so
//! because somebody said that it may. A cordon is on the list although an operator wanted it: one that is forgotten
//! costs a node. Each function below looks at one subject.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use sched_model::{SetMember, StoreState, Uuid};

use crate::Scheduler;
use crate::api::cause::Cause;
use crate::api::condition::{CertificateHolder, Condition, EndingCertificate, Unwell};
use crate::api::explained::NamedInstance;
use crate::api::ids::InstanceId;
use crate::api::input::Backlog;
use crate::api::unread::NamedNode;
use crate::cluster::node::{Node, NodeStatus, Presence};
use crate::instance::State;
use crate::sight::Sight;

/// Conditions of one kind that are named; the rest is counted: a cluster in which everything is lost must still fit on a
/// screen.
const MAX_NAMED: usize = 5;

/// How long before its end a certificate is a condition, in seconds: a month, time enough to make another.
const CERTIFICATE_SOON_S: i64 = 30 * 86_400;

/// A disk is full with less than this of it available, in per cent: what rounding and reserves leave of a full one.
const DISK_FULL_PERCENT: i128 = 1;

/// Instances on no node, and runs that are over, that one list looks at: some milliseconds.
const MAX_LOOKED_AT: usize = 20_000;

/// For how long a set whose instances have ended by themselves is a condition: whoever looks in the morning still sees
/// it.
const CRASHED_FOR: Duration = Duration::from_secs(86_400);

/// The conditions that were found, in the order in which they are shown.
#[derive(Debug, Default)]
struct List {
    conditions: Vec<Condition>,
    /// How many there are of each kind, in the order of their first.
    counts: Vec<(&'static str, usize)>,
}

impl List {
    /// Adds one, or counts it where enough of its kind are named.
    fn add(&mut self, what: Unwell, for_s: Option<u64>) {
        if self.count(what.kind(), 1) <= MAX_NAMED {
            self.conditions.push(Condition { what, for_s });
        }
    }

    /// Counts so many more of a kind that are not named; how many of it there are now.
    fn count(&mut self, kind: &'static str, more: usize) -> usize {
        if let Some((_, count)) = self.counts.iter_mut().find(|(other, _)| *other == kind) {
            *count += more;
            return *count;
        }
        if more > 0 {
            self.counts.push((kind, more));
        }
        more
    }

    /// All of them, by kind in the order of the first of each, and how many of each were left out.
    fn finish(self) -> Vec<Condition> {
        let mut all = self.conditions;
        let mut sorted = Vec::with_capacity(all.len());
        for (kind, count) in self.counts {
            let (of_kind, others): (Vec<_>, Vec<_>) =
                all.into_iter().partition(|it| it.what.kind() == kind);
            all = others;
            let more = count.saturating_sub(of_kind.len());
            sorted.extend(of_kind);
            if more > 0 {
                let what = Unwell::More(kind, more);
                sorted.push(Condition { what, for_s: None });
            }
        }
        sorted
    }
}

impl Scheduler {
    /// What is not well at this moment; empty if all is. O(nodes and sessions), and a bounded number of instances.
    #[must_use]
    pub fn conditions(&self, now: Instant) -> Vec<Condition> {
        self.sight().conditions(now)
    }
}

/// Each certificate that ends within a month, or has: the scheduler's own and those of peers that are connected, in no
/// particular order. O(sessions), without names, so that it can be asked often.
#[must_use]
pub fn ending_certificates(scheduler: &Scheduler, now: Instant) -> Vec<EndingCertificate> {
    scheduler.sight().ending_certificates(now)
}

/// The same few certificates with whose they are, as conditions; `None` for those of peers that are gone by now.
#[must_use]
pub fn named_certificates(
    scheduler: &Scheduler,
    ending: &[EndingCertificate],
) -> Vec<Option<Unwell>> {
    let sight = scheduler.sight();
    let named = ending.iter().map(|it| named_certificate(&sight, it));
    named.collect()
}

impl Sight<'_> {
    /// The same.
    pub(super) fn conditions(&self, now: Instant) -> Vec<Condition> {
        let mut list = List::default();
        let store = self.journal.view(now, self.pending.for_disk().0);
        if store.state == StoreState::Refused {
            list.add(Unwell::Store, store.since_s);
        }
        if self.recovery.is_open() {
            let up = now.saturating_duration_since(self.clock.started());
            list.add(Unwell::Recovering, Some(up.as_secs()));
        }
        self.node_conditions(now, &mut list);
        self.instance_conditions(now, &mut list);
        self.set_conditions(now, &mut list);
        self.certificate_conditions(now, &mut list);
        if let Some((since, why)) = &self.config.about.reload_refused {
            let for_s = now.saturating_duration_since(*since).as_secs();
            list.add(Unwell::ReloadRefused(why.clone()), Some(for_s));
        }
        list.finish()
    }

    /// Nodes that are there and do not take work, or will not for long; and those that are lost.
    fn node_conditions(&self, now: Instant, list: &mut List) {
        let all = || self.cluster.nodes_from(0).map(|(_, node)| node);
        let takes_work = |node: &&Node| {
            let may = matches!(node.status(), NodeStatus::Ready | NodeStatus::Full);
            node.session().is_some() && may && !node.is_cordoned() && node.fault().is_none()
        };
        if !all().any(|node| takes_work(&node)) {
            let connected = all().filter(|node| node.session().is_some()).count();
            list.add(Unwell::NoNode(connected), None);
        }
        for (_, node) in self.cluster.nodes_from(0) {
            if let Some(two) = node.two_machines(now) {
                let what = Unwell::TwoMachines(named(node), two.here, two.other);
                list.add(what, Some(two.for_time.as_secs()));
            }
            match node.presence() {
                Presence::Lost(since) => {
                    let instances = (node.ledger().len() + self.lost_with(node.uuid())) as u64;
                    let lost = Unwell::Lost(named(node), instances);
                    list.add(lost, Some(now.saturating_duration_since(since).as_secs()));
                    self.lost_plain_conditions(now, node, since, list);
                }
                Presence::Connected(_) => {
                    self.connected_node_conditions(now, node, list);
                }
            }
        }
        let now_ms = self.clock.unix_ms(now);
        let absent = self.cluster.absent_from(Uuid::nil());
        for node in absent {
            // One that is expected back is part of the recovery.
            let Some(since_ms) = node.lost_since_ms else {
                continue;
            };
            let name = NamedNode {
                uuid: node.uuid,
                hostname: node.hostname.clone(),
            };
            let for_s = now_ms.saturating_sub(since_ms) / 1000;
            // As listed: what was started elsewhere since is not on it any more.
            let instances = self.lost_with(node.uuid) as u64;
            list.add(Unwell::Lost(name, instances), Some(for_s));
        }
    }

    /// Instances on a lost node that are not managed: whether they run is not known until it is back or given up.
    fn lost_plain_conditions(&self, now: Instant, node: &Node, since: Instant, list: &mut List) {
        let left = (since + self.config.in_doubt_time).saturating_duration_since(now);
        let left_ms = u64::try_from(left.as_millis()).ok();
        let entries = node.ledger().entries_from(0).take(MAX_NAMED);
        let mut named = 0;
        for (instance, _) in entries {
            let host = node.hostname().into();
            list.add(
                Unwell::InstanceLost(self.named_instance(instance), host, left_ms),
                None,
            );
            named += 1;
        }
        list.count("instance_lost", node.ledger().len() - named);
    }

    /// An instance and what it is called.
    fn named_instance(&self, instance: &InstanceId) -> NamedInstance {
        let about = self.instances.about(instance);
        NamedInstance {
            instance: instance.clone(),
            name: about.map_or_else(Box::default, |about| about.name.into()),
        }
    }

    /// What is not well with a node that is connected.
    fn connected_node_conditions(&self, now: Instant, node: &Node, list: &mut List) {
        let silent = now.saturating_duration_since(node.reported().at());
        if silent > node.reported().silent_after() {
            list.add(Unwell::Silent(named(node)), Some(silent.as_secs()));
        }
        if node.backlog() == Backlog::Stalled {
            list.add(Unwell::Stalled(named(node)), None);
        }
        if let Some(fault) = node.fault() {
            list.add(Unwell::Fault(named(node), fault.clone()), None);
        }
        if let Some(report) = node.report() {
            let (total, left) = (report.disk_total_mb, report.disk_available_mb);
            let is_full = i128::from(left) * 100 < i128::from(total) * DISK_FULL_PERCENT;
            if total > 0 && left >= 0 && is_full {
                list.add(Unwell::DiskFull(named(node), left, total), None);
            }
        }
        for (instance, progress) in node.ledger().crash_loops() {
            let named = self.named_instance(instance);
            let (restarts, code) = (progress.restarts, progress.last_exit_code);
            let what = Unwell::CrashLoop(named, node.hostname().into(), restarts, code);
            list.add(what, None);
        }
        if node.is_short_of_memory() {
            list.add(Unwell::ShortOfMemory(named(node)), None);
        }
        if let NodeStatus::Offline | NodeStatus::Maintenance = node.status() {
            let status = node.status().name();
            list.add(Unwell::OutOfService(named(node), status), None);
        }
        if let Some(cordon) = self.cluster.cordon_of(node.uuid()) {
            let since_ms = cordon.since_ms();
            let for_s =
                (since_ms > 0).then(|| self.clock.unix_ms(now).saturating_sub(since_ms) / 1000);
            let what = match self.drain_summary(node.uuid()) {
                Some(drain) => Unwell::Drained(named(node), drain),
                None => Unwell::Cordoned(named(node)),
            };
            list.add(what, for_s);
        }
    }

    /// Instances that are lost with their node, and those that wait after nodes could not start them.
    fn instance_conditions(&self, now: Instant, list: &mut List) {
        let mut last: Option<InstanceId> = None;
        for _ in 0..MAX_LOOKED_AT {
            let Some((instance, managed)) = self.instances.next_nowhere(last.as_ref()) else {
                return;
            };
            match *managed.state() {
                State::Lost { node, .. } => {
                    let left = managed.state().due();
                    let left = left.map(|due| due.saturating_duration_since(now).as_millis());
                    let left = left.and_then(|left| u64::try_from(left).ok());
                    let what = Unwell::InstanceLost(
                        self.named_instance(instance),
                        self.cluster.name_of(node).into(),
                        left,
                    );
                    list.add(what, None);
                }
                State::Waiting { .. } if !managed.tried().is_empty() => {
                    let tried = managed.tried().len();
                    let age = now.saturating_duration_since(managed.arrived());
                    let what = Unwell::InstanceFails(self.named_instance(instance), tried);
                    list.add(what, Some(age.as_secs()));
                }
                _ => {}
            }
            last = Some(instance.clone());
        }
    }

    /// Sets of which instances have ended by themselves, with a failure, and were not started again: `ciaoctl set` has
    /// no record of a set but its instances, so that one whose instances are all gone is not known any more.
    fn set_conditions(&self, now: Instant, list: &mut List) {
        /// What is known of one member of a set, by its number.
        type Members = BTreeMap<u32, (Instant, Option<i64>)>;
        let mut sets: BTreeMap<&str, Members> = BTreeMap::new();
        let before = self
            .instances
            .last_run()
            .saturating_sub(MAX_LOOKED_AT as u64);
        for (_, run) in self.instances.runs_after(before) {
            let is_recent = now.saturating_duration_since(run.at()) < CRASHED_FOR;
            let Some(member) = SetMember::of(run.name()).filter(|_| is_recent) else {
                continue;
            };
            let by_itself = matches!(run.cause(), Some(Cause::Ended | Cause::KeptByNode) | None);
            let failed = run.exit_code().filter(|code| *code != 0 && by_itself);
            // The latest run of a number counts: a later one was another try.
            let members = sets.entry(member.set).or_default();
            members.insert(member.number, (run.at(), failed));
        }
        if sets.is_empty() {
            return;
        }
        for (name, mut members) in sets {
            members.retain(|_, (_, failed)| failed.is_some());
            if members.is_empty() {
                continue;
            }
            let mut living = 0;
            for instance in self.instances.named_like_set(name) {
                let is_there =
                    self.instances.contains(instance) || self.cluster.placement(instance).is_some();
                let about = self.instances.about(instance).filter(|_| is_there);
                if let Some(member) = about.and_then(|about| SetMember::of(about.name)) {
                    living += 1;
                    members.remove(&member.number);
                }
            }
            let latest = members.values().max_by_key(|(at, _)| *at);
            if let Some((at, Some(exit_code))) = latest {
                let what = Unwell::Set {
                    name: name.into(),
                    ended: members.len(),
                    living,
                    exit_code: *exit_code,
                };
                let for_s = now.saturating_duration_since(*at).as_secs();
                list.add(what, Some(for_s));
            }
        }
    }

    /// Certificates that have ended, then those that end soon: the scheduler's own first, which all depend on, and then
    /// those that end first.
    fn certificate_conditions(&self, now: Instant, list: &mut List) {
        let mut ending = self.ending_certificates(now);
        let count = ending.len();
        // A whole cluster's may end on one day: no more is sorted than is named.
        let rank = |it: &EndingCertificate| {
            let is_own = matches!(it.holder, CertificateHolder::Own(_));
            (it.left_s >= 0, !is_own, *it)
        };
        if count > MAX_NAMED {
            ending.select_nth_unstable_by_key(MAX_NAMED, rank);
            ending.truncate(MAX_NAMED);
        }
        ending.sort_unstable_by_key(rank);
        let mut named = 0;
        for what in ending.iter().filter_map(|it| named_certificate(self, it)) {
            list.add(what, None);
            named += 1;
        }
        list.count("certificate", count - named);
    }

    /// Certificates that end within [`CERTIFICATE_SOON_S`], or have.
    fn ending_certificates(&self, now: Instant) -> Vec<EndingCertificate> {
        let now_s = i64::try_from(self.clock.unix_ms(now) / 1000).unwrap_or(i64::MAX);
        let ending = |(holder, ends_at_s): (CertificateHolder, i64)| {
            let left_s = ends_at_s.saturating_sub(now_s);
            let ending = EndingCertificate {
                ends_at_s,
                left_s,
                holder,
            };
            (left_s < CERTIFICATE_SOON_S).then_some(ending)
        };
        let own = self.config.about.certificates.iter().enumerate();
        let own = own.map(|(at, (_, ends_at_s))| (CertificateHolder::Own(at), *ends_at_s));
        let of_peers = self.peers.sessions().filter_map(|(id, session)| {
            let ends_at_s = session.certificate_ends_s()?;
            Some((CertificateHolder::Peer(id), ends_at_s))
        });
        own.chain(of_peers).filter_map(ending).collect()
    }
}

/// A certificate with whose it is; `None` where that is gone.
fn named_certificate(sight: &Sight<'_>, ending: &EndingCertificate) -> Option<Unwell> {
    let left_s = ending.left_s;
    match ending.holder {
        CertificateHolder::Own(at) => {
            let (file, _) = sight.config.about.certificates.get(at)?;
            Some(Unwell::OwnCertificate(file.as_str().into(), left_s))
        }
        CertificateHolder::Peer(id) => {
            let session = sight.peers.get(id)?;
            let node = session.node().map(|key| sight.cluster.node(key));
            Some(Unwell::PeerCertificate {
                uuid: session.uuid(),
                role: session.role(),
                hostname: node.map_or("", |node| node.hostname()).into(),
                left_s,
            })
        }
    }
}

/// A node as people call it.
fn named(node: &Node) -> NamedNode {
    NamedNode {
        uuid: node.uuid(),
        hostname: node.hostname().into(),
    }
}
