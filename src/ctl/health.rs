//! Whether all is well: what `ciaoctl status` makes of what the scheduler lists. Pure.
//!
//! What is not well is the scheduler's list, the same that the page and `/readyz?verbose` show; this program adds only
//! what it alone knows, its own certificates. The glance is a line for each subject. What is only unusual, such as a
//! workload that failed, is in the glance.

use std::collections::BTreeMap;
use std::time::Duration;

use proto_frames::payload::{
    ConditionView, ConfigurationVersion, InstanceView, NodeView, SchedulersView, StatusView,
    StoreState,
};
use serde_json::{Value, json};

use crate::ctl::units::{end_of, span};
use crate::printable::counted;

/// How long before its end a certificate is not well, in seconds: a month, time enough to make another.
pub const CERTIFICATE_SOON_S: i64 = 30 * 86_400;

/// For how long a workload that failed is counted: an hour.
///
/// Older failures say little about how the cluster is.
pub const RECENT: Duration = Duration::from_secs(3600);

/// Reasons for waiting that are shown, those of most instances first.
const MAX_REASONS: usize = 4;

/// What the scheduler lists.
///
/// Several queries, so that the parts can be of slightly different moments.
#[derive(Debug, Default)]
pub struct Seen {
    /// How the scheduler is; `None` from one that does not say.
    pub status: Option<StatusView>,
    /// The nodes.
    pub nodes: Vec<NodeView>,
    /// Instances that are placed, wait or are lost.
    pub instances: Vec<InstanceView>,
    /// What waits, in its order.
    pub queue: Vec<InstanceView>,
    /// Instances that have ended.
    pub ended: Vec<InstanceView>,
    /// The caller's own certificate files, and when each ends, seconds of Unix time.
    pub own_certificates: Vec<(String, i64)>,
    /// The caller's clock, milliseconds of Unix time.
    pub now_ms: i64,
}

/// What is made of that.
///
/// Made by [`health()`].
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Health {
    /// What is not well; none where all is.
    pub problems: Vec<ConditionView>,
    /// The cluster at a glance: what, and how it is.
    ///
    /// Two columns when it is printed.
    pub glance: Vec<(&'static str, String)>,
}

impl Health {
    /// Whether all is well.
    #[must_use]
    pub fn is_well(&self) -> bool {
        self.problems.is_empty()
    }

    /// The same as an object for programs.
    ///
    /// Counts are by word: of `READY`, `LOST` and so on for nodes. `scheduler` is null if the scheduler does not say
    /// how it is.
    #[must_use]
    pub fn json(&self, seen: &Seen) -> Value {
        let status = seen.status.as_ref();
        let certificates = certificates(seen);
        let certificates =
            certificates.map(|(of, file, ends)| json!({"of": of, "file": file, "ends_at_s": ends}));
        json!({
            "well": self.is_well(),
            "problems": self.problems.iter().map(|it| &it.what).collect::<Vec<_>>(),
            "conditions": self.problems.iter().map(condition).collect::<Vec<_>>(),
            "scheduler": status.map(|it| json!({
                "uuid": it.uuid,
                "version": it.version,
                "uptime_s": it.uptime_s,
                "recovering": it.recovering,
                "store": it.store.state.as_str(),
                "configuration": it.configuration.as_ref().map(version_json),
                "log_levels": it.log_levels,
                "schedulers": it.schedulers.as_ref().map(schedulers_json),
            })),
            "nodes": tally(seen.nodes.iter().map(node_status)),
            "instances": tally(seen.instances.iter().map(state)),
            "queue": {
                "length": seen.queue.len(),
                "oldest_s": oldest(&seen.queue),
                "reasons": tally(seen.queue.iter().map(reason)),
            },
            "failed_within_an_hour": failed(seen),
            "certificates": certificates.collect::<Vec<_>>(),
        })
    }
}

/// What is well, and what is not.
///
/// The order is that of the output.
#[must_use]
pub fn health(seen: &Seen) -> Health {
    let mut health = Health::default();
    scheduler(seen, &mut health);
    nodes(seen, &mut health);
    instances(seen, &mut health);
    queue(seen, &mut health);
    ends_of_certificates(seen, &mut health);
    health
}

/// How the scheduler is, and what it lists as not well. One that is older than that list cannot be told to be well.
fn scheduler(seen: &Seen, health: &mut Health) {
    let listed = seen.status.as_ref().filter(|status| status.well.is_some());
    match listed {
        Some(status) => health.problems.extend(status.conditions.iter().cloned()),
        None => health.problems.push(ConditionView {
            kind: "unknown".to_owned(),
            what: "the scheduler does not list what is not well: it is older than this program"
                .to_owned(),
            advice: "`ciaoctl nodes`, `ciaoctl instances` and `ciaoctl queue` list what there is"
                .to_owned(),
            ..ConditionView::default()
        }),
    }
    let Some(status) = &seen.status else {
        let text = "it does not say how it is: it is older than this program".to_owned();
        health.glance.push(("scheduler", text));
        return;
    };
    let text = format!("{}, up {}", status.version, span(status.uptime_s));
    health.glance.push(("scheduler", text));
    if let Some(schedulers) = &status.schedulers {
        health.glance.push(("schedulers", leads(schedulers)));
    }
    let text = match status.store.state {
        StoreState::Written => "written".to_owned(),
        StoreState::Memory => "in memory only: a restart forgets what waits".to_owned(),
        _ => "not written".to_owned(),
    };
    health.glance.push(("store", text));
    if let Some(version) = &status.configuration {
        let age = seen.now_ms - i64::try_from(version.at_ms).unwrap_or(i64::MAX);
        let (number, since) = (version.version, span(age.max(0) / 1000));
        let text = format!(
            "version {number}, {since} ago, {} by {}",
            version.source, version.by
        );
        health.glance.push(("configuration", text));
    }
    if !status.log_levels.is_empty() {
        health
            .glance
            .push(("log levels", status.log_levels.clone()));
    }
}

/// Who leads several schedulers, and who stands by.
fn leads(view: &SchedulersView) -> String {
    let standby = match view.standby.is_empty() {
        true => "none stands by".to_owned(),
        false => format!("{} stand by", view.standby.join(", ")),
    };
    let (leader, term) = (&view.leader, &view.term);
    format!("{leader} leads {} in term {term}; {standby}", view.cluster)
}

/// How many nodes there are, and whether any has room.
fn nodes(seen: &Seen, health: &mut Health) {
    let by_status = tally(seen.nodes.iter().map(node_status));
    let count = seen.nodes.len().to_string();
    health
        .glance
        .push(("nodes", with_parts(&count, &by_status)));
    // A node on which a START could be placed, now or once there is room, as far as the list says.
    let is_in_service = |node: &&NodeView| {
        let takes_work = matches!(node.status.as_str(), "READY" | "FULL");
        takes_work && !node.cordoned && node.fault.is_empty()
    };
    let in_service = seen.nodes.iter().filter(is_in_service);
    let full = in_service.clone().filter(|node| node.status == "FULL");
    match (in_service.count(), full.count()) {
        (0, _) => health
            .glance
            .push(("room", "none: no node takes new work".to_owned())),
        (1, 1) => {
            let text = "none: the only node that takes work is full";
            health.glance.push(("room", text.to_owned()));
        }
        (all, full) if all == full => {
            let text = format!("none: all {all} nodes that take work are full");
            health.glance.push(("room", text));
        }
        _ => {}
    }
}

/// How many instances there are, and how many workloads failed.
fn instances(seen: &Seen, health: &mut Health) {
    let by_state = tally(seen.instances.iter().map(state));
    let count = seen.instances.len().to_string();
    health
        .glance
        .push(("instances", with_parts(&count, &by_state)));
    let failed = failed(seen);
    if failed > 0 {
        let text = format!(
            "{} ended with a failure within the last hour; `ciaoctl instances --all` lists them",
            counted(failed as u64, "workload")
        );
        health.glance.push(("failed", text));
    }
}

/// Workloads that ended with a failure within the last hour.
///
/// Exit statuses above 0; an unknown one does not count.
fn failed(seen: &Seen) -> usize {
    let recent_ms = i64::try_from(RECENT.as_millis()).unwrap_or(i64::MAX);
    let is_recent = |view: &&InstanceView| {
        let at = view.ended_at_ms.unwrap_or_default();
        at > seen.now_ms.saturating_sub(recent_ms)
    };
    // An end by a signal is mostly a stop on purpose.
    let has_failed = |view: &&InstanceView| view.exit_code.is_some_and(|code| code > 0);
    seen.ended
        .iter()
        .filter(is_recent)
        .filter(has_failed)
        .count()
}

/// No problem, however long it is: waiting for room is what a queue is for.
fn queue(seen: &Seen, health: &mut Health) {
    let text = match oldest(&seen.queue) {
        None => "empty".to_owned(),
        Some(oldest) => {
            let reasons = tally(seen.queue.iter().map(reason));
            let mut reasons: Vec<(String, usize)> = reasons.into_iter().collect();
            reasons.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
            reasons.truncate(MAX_REASONS);
            let count = format!(
                "{} waiting, the oldest for {}",
                seen.queue.len(),
                span(oldest)
            );
            with_parts(&count, &reasons.into_iter().collect())
        }
    };
    health.glance.push(("queue", text));
}

/// Seconds; `None` for an empty queue.
fn oldest(queue: &[InstanceView]) -> Option<i64> {
    queue.iter().map(|view| view.age_s).max()
}

/// What an instance waits for, in the scheduler's word; the counts of the metrics are by the same.
fn reason(view: &InstanceView) -> String {
    match &*view.blocked_by {
        "" => "room".to_owned(),
        word => word.to_owned(),
    }
}

/// All certificates: whose, the file, when it ends.
///
/// Those that the scheduler says it uses, and those that this program connects with.
fn certificates(seen: &Seen) -> impl Iterator<Item = (&'static str, &str, i64)> {
    let theirs = seen.status.iter().flat_map(|status| &status.certificates);
    let theirs = theirs.map(|it| ("scheduler", &*it.file, it.ends_at_s));
    let own = seen.own_certificates.iter();
    theirs.chain(own.map(|(file, ends)| ("ciaoctl", &**file, *ends)))
}

/// The glance names the one that ends first. Of the files of this program, each that ends within
/// [`CERTIFICATE_SOON_S`] or has ended is not well; of the scheduler's the scheduler says that.
fn ends_of_certificates(seen: &Seen, health: &mut Health) {
    let now = seen.now_ms.div_euclid(1000);
    let Some((of, file, ends)) = certificates(seen).min_by_key(|(_, _, ends)| *ends) else {
        return;
    };
    let left = |ends: i64| end_of(ends.saturating_sub(now));
    let text = format!("the first {}: {file} of {of}", left(ends));
    health.glance.push(("certificates", text));
    let own = seen.own_certificates.iter();
    for (file, ends) in own.filter(|(_, ends)| *ends < now + CERTIFICATE_SOON_S) {
        health.problems.push(ConditionView {
            kind: "certificate".to_owned(),
            severity: if *ends >= now { "warning" } else { "error" }.to_owned(),
            subject: file.clone(),
            what: format!("the certificate {file} of ciaoctl {}", left(*ends)),
            advice: "ciao-cert makes another".to_owned(),
            ..ConditionView::default()
        });
    }
}

/// A version of the cluster configuration for programs.
pub(in crate::ctl) fn version_json(version: &ConfigurationVersion) -> Value {
    json!({
        "version": version.version, "at_ms": version.at_ms, "source": version.source.as_str(), "by": version.by,
        "note": version.note, "bytes": version.bytes,
    })
}

/// Several schedulers behind one name for programs.
fn schedulers_json(view: &SchedulersView) -> Value {
    json!({
        "cluster": view.cluster, "leader": view.leader, "term": view.term, "standby": view.standby,
        "etcd": {
            "members": view.etcd_members, "answering": view.etcd_answering, "bytes": view.etcd_bytes,
            "bytes_in_use": view.etcd_bytes_in_use, "quota": view.etcd_quota, "alarms": view.etcd_alarms,
        },
    })
}

/// One condition for programs; what is not known is null.
fn condition(it: &ConditionView) -> Value {
    let text = |text: &String| (!text.is_empty()).then(|| text.clone());
    json!({
        "kind": it.kind,
        "severity": text(&it.severity),
        "subject": text(&it.subject),
        "name": text(&it.name),
        "what": it.what,
        "since_s": it.since_s,
        "advice": text(&it.advice),
    })
}

/// The word for how a node is: a cordoned one takes no work, whatever its launcher reports.
fn node_status(node: &NodeView) -> String {
    match node.cordoned && matches!(node.status.as_str(), "READY" | "FULL") {
        true => "CORDONED".to_owned(),
        false => node.status.clone(),
    }
}

/// The word for how far an instance is.
fn state(view: &InstanceView) -> String {
    match &*view.life {
        "" => view.state.as_str().to_owned(),
        life => life.to_owned(),
    }
}

/// How often each word is there, in the order of the words.
fn tally(words: impl Iterator<Item = String>) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for word in words {
        *counts.entry(word).or_default() += 1;
    }
    counts
}

/// `3 nodes: 2 READY, 1 LOST`.
fn with_parts(count: &str, parts: &BTreeMap<String, usize>) -> String {
    let texts: Vec<String> = parts
        .iter()
        .map(|(word, n)| format!("{n} {word}"))
        .collect();
    match texts.is_empty() {
        true => count.to_owned(),
        false => format!("{count}: {}", texts.join(", ")),
    }
}

#[cfg(test)]
mod tests;
