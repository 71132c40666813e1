//! The metrics by name: each with its meaning, its labels and where its numbers come from.
//!
//! [`Gathered`] is what one scrape read; as a `Collector` it writes itself into the text, group by group. To add a
//! metric: a field of `Gathered`, which `metrics.rs` fills, a line in one of the groups here, and a row of
//! `docs/reference/http.md`.
//!
//! Names are given without their suffixes: the encoder adds `_total` to counters, and `_bucket`, `_sum` and `_count` to
//! histograms.

use std::borrow::Cow;
use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _, MetricEncoder};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Unit;
use proto_frames::Role;
use sched_model::SchedulersView;

use super::process::Process;
use crate::server::measured::Measured;
use sched_core::{
    Counters, Glance, NodeCount, QueueTotals, ResourceTotal, TIME_BOUNDS_MS, Times, Totals,
};

/// Everything that one scrape tells.
#[derive(Debug)]
pub(super) struct Gathered {
    /// Sums over all nodes.
    pub(super) totals: Totals,
    /// Sums over those that wait for room.
    pub(super) queue: QueueTotals,
    /// What the core has counted since the scheduler began.
    pub(super) counters: Counters,
    /// Numbers that the core has at hand, such as the length of the queue.
    pub(super) glance: Glance,
    /// Whether what has to survive a restart is written; false also where there is no state directory.
    pub(super) is_durable: bool,
    /// Bytes queued for peers, by role.
    pub(super) queued_bytes: [(&'static str, u64); 4],
    /// Peers that take nothing of what is queued for them.
    pub(super) stalled: u64,
    /// How long the core's lock was held.
    pub(super) holds: Measured,
    /// How long STARTs took from the core's taking them in until they were queued for a node.
    pub(super) placements: Measured,
    /// How long transactions of the state directory took; empty where there is none.
    pub(super) commits: Measured,
    /// Of the ends on record: how many, their bytes, deleted as too old and as too many, lost while they waited for the
    /// disk. `None` without a state directory.
    pub(super) history: Option<[u64; 5]>,
    /// Connections by how far they came.
    pub(super) handshakes: [(&'static str, u64); 4],
    /// File name and end of each certificate in use, seconds of Unix time.
    pub(super) certificates: Vec<(String, i64)>,
    /// Certificates that end within a month or have ended, own ones and those of connected peers.
    pub(super) endings: [(&'static str, f64); 4],
    /// UUID and end of the certificates of connected peers that end within a month, seconds of Unix time.
    pub(super) peer_certificates: Vec<(String, i64)>,
    /// How many more there are that are not among them.
    pub(super) unlisted_certificates: usize,
    /// Reloads that were taken, and such that changed nothing because of a mistake.
    pub(super) reloads: (u64, u64),
    /// When files were read and taken last, seconds of Unix time.
    pub(super) reloaded_at_s: u64,
    pub(super) process: Process,
    pub(super) is_leaving: bool,
    /// The schedulers behind its name; `None` where it is alone, or has not looked yet.
    pub(super) schedulers: Option<SchedulersView>,
}

/// The roles of nodes, by the label that they have. A node that is both is in `both` alone, so that the sum counts it
/// once.
const NODE_ROLES: [(&str, Role); 3] = [
    ("compute", Role::AGENT),
    ("network", Role::NETAGENT),
    ("both", Role(Role::AGENT.0 | Role::NETAGENT.0)),
];

/// The statuses of nodes. All series are there from the start, with 0, so that an alert on one does not wait for its
/// first node.
const STATUSES: [&str; 8] = [
    "CONNECTED",
    "CORDONED",
    "READY",
    "FULL",
    "OFFLINE",
    "MAINTENANCE",
    "LOST",
    "EXPECTED",
];

/// Name and help of what says who leads; a standby has it as well.
pub(super) const LEADER: (&str, &str) = ("ciao_is_leader", "Whether this scheduler decides");

/// Writes metrics one after the other. A metric's name and help are passed as one pair throughout.
pub(super) struct Writer<'a>(pub(super) DescriptorEncoder<'a>);

/// Fails where the encoder does.
pub(super) type Written = Result<(), fmt::Error>;

impl Writer<'_> {
    /// Writes name, help and type; the returned encoder takes the samples.
    fn metric(
        &mut self,
        (name, help): (&'static str, &'static str),
        kind: MetricType,
    ) -> Result<MetricEncoder<'_>, fmt::Error> {
        self.0.encode_descriptor(name, help, None, kind)
    }

    /// A counter without labels.
    fn counter(&mut self, named: (&'static str, &'static str), value: u64) -> Written {
        let counter = ConstCounter::new(value);
        counter.encode(self.metric(named, MetricType::Counter)?)
    }

    /// A counter of seconds. The encoder adds the unit to the name by itself, so it is taken off first.
    fn seconds_total(&mut self, (name, help): (&'static str, &'static str), value: f64) -> Written {
        let counter = ConstCounter::new(value);
        let unit = Unit::Seconds;
        // `process_cpu_seconds` becomes `process_cpu`, to which the encoder adds `_seconds_total`.
        let name = name.trim_end_matches("_seconds");
        let encoder = self
            .0
            .encode_descriptor(name, help, Some(&unit), MetricType::Counter)?;
        counter.encode(encoder)
    }

    /// A gauge without labels.
    pub(super) fn gauge(&mut self, named: (&'static str, &'static str), value: f64) -> Written {
        let gauge = ConstGauge::new(value);
        gauge.encode(self.metric(named, MetricType::Gauge)?)
    }

    /// A counter for each value of one label.
    fn counters<'v>(
        &mut self,
        named: (&'static str, &'static str),
        label: &'static str,
        values: impl IntoIterator<Item = (&'v str, u64)>,
    ) -> Written {
        let mut encoder = self.metric(named, MetricType::Counter)?;
        for (word, value) in values {
            let labels = [(label, word)];
            ConstCounter::new(value).encode(encoder.encode_family(&labels)?)?;
        }
        Ok(())
    }

    /// A gauge for each value of one label.
    pub(super) fn gauges<'v>(
        &mut self,
        named: (&'static str, &'static str),
        label: &'static str,
        values: impl IntoIterator<Item = (&'v str, f64)>,
    ) -> Written {
        let mut encoder = self.metric(named, MetricType::Gauge)?;
        for (word, value) in values {
            let labels = [(label, word)];
            ConstGauge::new(value).encode(encoder.encode_family(&labels)?)?;
        }
        Ok(())
    }

    /// A histogram. Counts are by bucket; the encoder sums them up as OpenMetrics wants them, and writes `f64::MAX` as
    /// `+Inf`.
    fn histogram(&mut self, named: (&'static str, &'static str), of: &Measured) -> Written {
        let mut encoder = self.metric(named, MetricType::Histogram)?;
        // The last count is that of what is above all bounds.
        let bounds = of.bounds_s.iter().copied().chain([f64::MAX]);
        let buckets: Vec<(f64, u64)> = bounds.zip(of.counts.iter().copied()).collect();
        let count = of.counts.iter().sum();
        type NoLabels = [(&'static str, &'static str); 0];
        encoder.encode_histogram::<NoLabels>(of.sum_s, count, &buckets, None)
    }
}

/// Times that the core counts, as those that the server measures: milliseconds and microseconds become seconds.
fn measured(times: &Times) -> Measured {
    Measured {
        bounds_s: TIME_BOUNDS_MS.iter().map(|ms| *ms as f64 / 1e3).collect(),
        counts: times.counts.to_vec(),
        sum_s: times.sum_us as f64 / 1e6,
    }
}

/// The sums of each resource, by the value of its label. No two have the same, or Prometheus would refuse the scrape:
/// before a custom resource that is called like one of the others stands `custom:`, with a sign that no name has.
fn by_label(totals: &Totals) -> Vec<(Cow<'_, str>, ResourceTotal)> {
    // Memory and disk in MiB, as the values of the label say; what is used of disk is in 10⁶ bytes, as launchers report
    // it.
    let plain = [
        ("memory_mib", totals.mem),
        ("vcpus", totals.vcpus),
        ("disk_mib", totals.disk),
    ];
    let none = [("other", ResourceTotal::default())];
    // The core sums custom resources that no configuration names under this name.
    let has_other = totals.custom.contains_key("other");
    let none = none.into_iter().filter(|_| !has_other);
    let custom = totals.custom.iter().map(|(name, it)| {
        let is_taken = plain.iter().any(|(plain, _)| plain == name);
        let label = match is_taken {
            true => Cow::Owned(format!("custom:{name}")),
            false => Cow::Borrowed(name.as_str()),
        };
        (label, *it)
    });
    let plain = plain.into_iter().chain(none);
    let plain = plain.map(|(label, it)| (Cow::Borrowed(label), it));
    plain.chain(custom).collect()
}

/// Called once for each scrape, by the registry.
impl Collector for Gathered {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> Written {
        let mut out = Writer(encoder);
        self.starts(&mut out)?;
        self.queue(&mut out)?;
        self.nodes(&mut out)?;
        self.resources(&mut out)?;
        self.server(&mut out)?;
        self.process(&mut out)
    }
}

impl Gathered {
    /// STARTs: how many came, where they went, how long that took, why they failed.
    fn starts(&self, out: &mut Writer<'_>) -> Written {
        let counters = &self.counters;
        out.counter(
            ("ciao_starts", "STARTs that came in and were not refused"),
            counters.starts,
        )?;
        let placements = (
            "ciao_placements",
            "STARTs given to a node, repeated ones included",
        );
        out.counter(placements, counters.placed)?;
        // By this scheduler or forwarded from a launcher, by the reasons of StartFailure.
        let failures = (
            "ciao_start_failures",
            "Failures of STARTs that their senders were told of",
        );
        out.counters(failures, "reason", counters.failures.counts())?;
        let duration = (
            "ciao_placement_duration_seconds",
            "From when a START was handed to the scheduler's core until it was queued for its node; without the time that it \
             waited for room",
        );
        out.histogram(duration, &self.placements)?;
        let confirm = (
            "ciao_start_confirm_seconds",
            "From the choice of a node until it lists the instance",
        );
        out.histogram(confirm, &measured(&counters.confirmed))?;
        // Two of the numbers above in one metric, so that the share of failed tries is one division.
        let attempts = (
            "ciao_attempts",
            "How tries to start an instance on a node ended",
        );
        let ends = [
            ("confirmed", counters.confirmed.count()),
            ("refused", counters.node_refusals.total()),
        ];
        out.counters(attempts, "result", ends)?;
        let preemptions = (
            "ciao_preemptions",
            "Instances that lost their room to one of higher priority",
        );
        let how = [
            ("suspend", counters.preempted_by_suspend),
            ("stop", counters.preempted_by_stop),
        ];
        out.counters(preemptions, "how", how)
    }

    /// The queue: how long it is, and what would help those in it.
    fn queue(&self, out: &mut Writer<'_>) -> Written {
        out.gauge(
            ("ciao_queue_length", "Instances that wait for room"),
            self.glance.queued as f64,
        )?;
        // 0 where none waits.
        let oldest = (
            "ciao_queue_oldest_seconds",
            "How long the instance has waited that came first of those that wait",
        );
        out.gauge(oldest, self.queue.oldest.as_secs_f64())?;
        // Each instance is counted under one reason, the same that its row has.
        let blocked = (
            "ciao_queue_blocked",
            "Instances that wait, by what the nodes lack that could run them: an amount, a custom resource, or for other \
             reasons of placement",
        );
        let values = self
            .queue
            .blocked()
            .map(|(word, count)| (word, count as f64));
        out.gauges(blocked, "reason", values)
    }

    /// Nodes by role and status, and what happened to them.
    fn nodes(&self, out: &mut Writer<'_>) -> Written {
        let named = ("ciao_nodes", "Nodes by role and status");
        let mut encoder = out.metric(named, MetricType::Gauge)?;
        // All pairs, in the order role, status. Totals have only pairs that occur.
        for (label, role) in NODE_ROLES {
            for status in STATUSES {
                let count = self.totals.nodes.get(&NodeCount { role, status });
                let labels = [("role", label), ("status", status)];
                let gauge = ConstGauge::new(count.copied().unwrap_or_default());
                gauge.encode(encoder.encode_family(&labels)?)?;
            }
        }
        // Counts each loss, also of a node that was back soon. `ciao_nodes{status="LOST"}` is how many are lost now.
        let losses = ("ciao_node_losses", "Nodes whose connection ended");
        out.counter(losses, self.counters.node_losses)?;
        let pressures = (
            "ciao_node_pressures",
            "Times that a node came to be short of memory",
        );
        out.counter(pressures, self.counters.pressures)?;
        let moves = (
            "ciao_pressure_moves",
            "Instances moved away from nodes that were short of memory",
        );
        out.counter(moves, self.counters.relieved)?;
        // Whether they run is not known until their nodes are back.
        let in_doubt = (
            "ciao_in_doubt",
            "Instances that were written to nodes which were lost before they confirmed them",
        );
        out.gauge(in_doubt, self.totals.in_doubt as f64)?;
        let refusals = ("ciao_node_refusals", "STARTs that nodes did not start");
        out.counters(refusals, "reason", self.counters.node_refusals.counts())?;
        let drain = (
            "ciao_drain_oldest_seconds",
            "How long the node has been cordoned that is being drained for longest",
        );
        // Of the wall clock, as the core has the beginning of a drain; a clock that was set back counts as no time.
        let now_ms = crate::server::restore::unix_ms();
        let since = self.glance.oldest_drain_ms;
        let oldest_ms = since.map_or(0, |since| now_ms.saturating_sub(since));
        out.gauge(drain, oldest_ms as f64 / 1e3)
    }

    /// What nodes have, by resource. Series of custom resources are those that the configuration names; all others are
    /// summed as `other`, so that a node cannot make series by reporting names. `other` is there with 0 where none is
    /// reported.
    fn resources(&self, out: &mut Writer<'_>) -> Written {
        let all = by_label(&self.totals);
        let mut put = |named, of: fn(&ResourceTotal) -> i64| {
            let values = all.iter().map(|(name, it)| (&**name, of(it) as f64));
            out.gauges(named, "resource", values)
        };
        put(
            (
                "ciao_capacity",
                "What connected nodes could offer if nothing ran on them",
            ),
            |it| it.capacity,
        )?;
        put(("ciao_claimed", "What instances on them asked for"), |it| {
            it.claimed
        })?;
        put(
            (
                "ciao_used",
                "What is in use by their own reports; of vcpus the load",
            ),
            |it| it.used,
        )?;
        put(
            ("ciao_largest_free", "The most that is free on one node"),
            |it| it.largest_free,
        )
    }

    /// The daemon: its lock, its peers, its store, its files.
    fn server(&self, out: &mut Writer<'_>) -> Written {
        let holds = (
            "ciao_lock_hold_seconds",
            "How long the core's lock was held, each time",
        );
        out.histogram(holds, &self.holds)?;
        // By role of the peer: controller, operator, launcher, other. Sessions of the HTTP door have no queue.
        let queued = ("ciao_peer_queue_bytes", "Bytes queued for peers");
        let bytes = self.queued_bytes.map(|(role, bytes)| (role, bytes as f64));
        out.gauges(queued, "role", bytes)?;
        out.gauge(
            (
                "ciao_peers_stalled",
                "Peers that take nothing of what is queued for them",
            ),
            self.stalled as f64,
        )?;
        let counters = &self.counters;
        // `not_permitted`: not for this role, or against what the sender is. `foreign`: a launcher reported on an
        // instance that is placed on another node.
        let refused = [
            ("not_permitted", counters.refused),
            ("malformed", counters.malformed),
            ("unknown", counters.unknown),
            ("foreign", counters.foreign),
        ];
        out.counters(
            (
                "ciao_frames_refused",
                "Frames, or what they said, that were not taken",
            ),
            "why",
            refused,
        )?;
        // All listeners with TLS together, by whether they were established, closed by the peer, turned away or
        // refused.
        let handshakes = ("ciao_handshakes", "Connections by how far they came");
        out.counters(handshakes, "result", self.handshakes)?;
        let commits = (
            "ciao_store_commit_seconds",
            "How long transactions of the state directory took",
        );
        out.histogram(commits, &self.commits)?;
        if let Some([records, bytes, too_old, too_many, lost]) = self.history {
            let kept = ("ciao_history_records", "Ends of instances on record");
            out.gauge(kept, records as f64)?;
            let kept = (
                "ciao_history_bytes",
                "Bytes of the ends of instances on record",
            );
            out.gauge(kept, bytes as f64)?;
            let trimmed = (
                "ciao_history_trimmed",
                "Ends deleted from the record, or never put there, since the start, by the limit that they were beyond",
            );
            let by_limit = [("time", too_old), ("bytes", too_many), ("waiting", lost)];
            out.counters(trimmed, "limit", by_limit)?;
        }
        // 0 also without a state directory.
        let durable = (
            "ciao_store_durable",
            "Whether what has to survive a restart is written",
        );
        out.gauge(durable, f64::from(u8::from(self.is_durable)))?;
        self.files(out)
    }

    /// Certificates in use, and files that were read again.
    fn files(&self, out: &mut Writer<'_>) -> Written {
        let expiry = (
            "ciao_certificate_expiry_timestamp_seconds",
            "When certificates in use end, Unix time",
        );
        let files = self
            .certificates
            .iter()
            .map(|(file, at)| (file.as_str(), *at as f64));
        out.gauges(expiry, "file", files)?;
        let endings = (
            "ciao_certificates_ending",
            "Certificates in use that end soon or have ended, those of connected peers included",
        );
        out.gauges(endings, "ends", self.endings)?;
        let of_peers = (
            "ciao_peer_certificate_expiry_timestamp_seconds",
            "When certificates of connected peers end that do within 30 days or have, Unix time",
        );
        let peers = self.peer_certificates.iter();
        let peers = peers.map(|(uuid, at)| (uuid.as_str(), *at as f64));
        out.gauges(of_peers, "uuid", peers)?;
        let unlisted = (
            "ciao_peer_certificates_unlisted",
            "Certificates of connected peers that end within 30 days or have, later than those with a series of their own",
        );
        out.gauge(unlisted, self.unlisted_certificates as f64)?;
        let reloads = ("ciao_reloads", "Times that files were read again");
        let (taken, refused) = self.reloads;
        out.counters(reloads, "outcome", [("taken", taken), ("refused", refused)])?;
        let reloaded = (
            "ciao_last_reload_success_timestamp_seconds",
            "When files were read and taken last, at the start or later, Unix time",
        );
        out.gauge(reloaded, self.reloaded_at_s as f64)?;
        // Where there is one scheduler, this is 1 until it leaves.
        out.gauge(LEADER, f64::from(u8::from(!self.is_leaving)))?;
        if let Some(schedulers) = &self.schedulers {
            super::schedulers::write(out, schedulers)?;
        }
        // The value says nothing; the label is what it is for.
        let build = ("ciao_build_info", "The version of the scheduler");
        out.gauges(build, "version", [(env!("CARGO_PKG_VERSION"), 1.0)])
    }

    /// The process. Names are those that Prometheus' own client libraries use.
    fn process(&self, out: &mut Writer<'_>) -> Written {
        let process = &self.process;
        // The name has the unit as its end, which `seconds_total` takes off and the encoder puts back, before `_total`.
        let cpu = (
            "process_cpu_seconds",
            "Processor time of the process, user and system",
        );
        out.seconds_total(cpu, process.cpu_s)?;
        let resident = (
            "process_resident_memory_bytes",
            "Resident memory of the process",
        );
        out.gauge(resident, process.resident as f64)?;
        let whole = (
            "process_virtual_memory_bytes",
            "Virtual memory of the process",
        );
        out.gauge(whole, process.virtual_memory as f64)?;
        out.gauge(
            ("process_open_fds", "Open files of the process"),
            process.files as f64,
        )?;
        out.gauge(
            ("process_max_fds", "Open files that the process may have"),
            process.max_files as f64,
        )?;
        out.gauge(
            ("process_threads", "Threads of the process"),
            process.threads as f64,
        )
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_custom_resource_with_the_name_of_another_has_a_label_of_its_own() {
        let total = |capacity| ResourceTotal {
            capacity,
            ..ResourceTotal::default()
        };
        let names = ["disk_mib", "gpu", "memory_mib", "other", "vcpus"];
        let totals = Totals {
            mem: total(1),
            custom: names.map(|name| (name.to_owned(), total(2))).into(),
            ..Totals::default()
        };
        let all = by_label(&totals);
        let labels: BTreeSet<&str> = all.iter().map(|(label, _)| &**label).collect();
        assert_eq!(labels.len(), all.len(), "{labels:?}");
        let capacity = |label: &str| {
            let found = all.iter().find(|(it, _)| it == label);
            found.map(|(_, it)| it.capacity)
        };
        assert_eq!(capacity("memory_mib"), Some(1));
        assert_eq!(capacity("custom:memory_mib"), Some(2));
        for name in ["gpu", "other"] {
            assert_eq!(capacity(name), Some(2), "{name}");
        }
    }
}
