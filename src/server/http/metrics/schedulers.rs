//! Metrics of several schedulers behind one name: what the one that leads knows, and the few of a standby.

use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use sched_model::SchedulersView;

use super::encode::{LEADER, Writer, Written};

/// Writes what the leader has read of etcd last.
pub(super) fn write(out: &mut Writer<'_>, view: &SchedulersView) -> Written {
    // Generations are times in seconds, and revisions are counted: both are exact as floating-point numbers.
    let (generation, revision) = view.term.split_once('.').unwrap_or_default();
    let number = |text: &str| text.parse().unwrap_or_default();
    let parts = [
        ("generation", number(generation)),
        ("revision", number(revision)),
    ];
    let term = ("ciao_leader_term", "Under which term this scheduler leads");
    out.gauges(term, "part", parts)?;
    let standby = ("ciao_standby_schedulers", "Other schedulers that take part");
    out.gauge(standby, view.standby.len() as f64)?;
    let silent = view.etcd_members - view.etcd_answering;
    let members = (
        "ciao_etcd_members",
        "Members of etcd, by whether they answer",
    );
    let by_answer = [("yes", view.etcd_answering as f64), ("no", silent as f64)];
    out.gauges(members, "answers", by_answer)?;
    let bytes = (
        "ciao_etcd_database_bytes",
        "Bytes of the largest database of a member of etcd",
    );
    out.gauge(bytes, view.etcd_bytes as f64)?;
    let in_use = (
        "ciao_etcd_database_in_use_bytes",
        "Bytes of that which are in use",
    );
    out.gauge(in_use, view.etcd_bytes_in_use as f64)?;
    let quota = ("ciao_etcd_database_quota_bytes", "Bytes that it may have");
    out.gauge(quota, view.etcd_quota as f64)?;
    let alarms = ("ciao_etcd_alarms", "Alarms that etcd has raised");
    out.gauge(alarms, view.etcd_alarms.len() as f64)
}

/// A scheduler that does not lead.
#[derive(Debug)]
struct Standby;

impl Collector for Standby {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> Written {
        let mut out = Writer(encoder);
        out.gauge(LEADER, 0.0)?;
        let build = ("ciao_build_info", "The version of the scheduler");
        out.gauges(build, "version", [(env!("CARGO_PKG_VERSION"), 1.0)])
    }
}

/// What a standby answers: that it does not lead.
pub(in crate::server::http) fn of_standby() -> String {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Standby));
    let mut text = String::new();
    // Writing into a string does not fail.
    let _ = encode(&mut text, &registry);
    text
}
