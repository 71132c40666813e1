//! Traced STARTs: the launcher is the last on their way. It adds itself to the path, notes when the instance runs, and
//! the agent reports both (TraceReport) with the next STATS. As with the original's launchers, only STARTs that succeed
//! are reported.

use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

use proto_frames::limits::MAX_TRACE_NODES;
use proto_frames::payload::{TracedFrame, TracedNode};
use proto_frames::{Frame, Kind, Role, Timestamp, Trace, TraceNode, Uuid};

use super::agent::MAX_TRACES;

/// Go's zero time, which says that an instant is not set.
const NOT_SET: &str = "0001-01-01T00:00:00Z";

/// The roles' names in a TraceReport, which are the original's; several are joined with `-`.
const ROLES: [(Role, &str); 6] = [
    (Role::SERVER, "Server"),
    (Role::CONTROLLER, "Controller"),
    (Role::AGENT, "CNAgent"),
    (Role::SCHEDULER, "Scheduler"),
    (Role::NETAGENT, "NetworkingAgent"),
    (Role::CNCIAGENT, "CNCIAgent"),
];

/// Traced STARTs whose instances do not run yet, by instance.
#[derive(Debug, Default)]
pub(crate) struct Traces {
    open: BTreeMap<String, Trace>,
}

impl Traces {
    /// A START has come for `instance`, to this node. Whatever was known of an earlier one is forgotten; more than
    /// [`MAX_TRACES`] are not reported.
    pub(crate) fn received(&mut self, frame: &Frame, instance: &str, node: Uuid, role: Role) {
        self.open.remove(instance);
        let Some(mut trace) = frame.trace.as_deref().cloned() else {
            return;
        };
        let Some(path) = &mut trace.path else {
            return;
        };
        if self.open.len() >= MAX_TRACES {
            return;
        }
        if path.len() < MAX_TRACE_NODES {
            path.push(TraceNode {
                rx: now(),
                ..TraceNode::new(node, role)
            });
        }
        self.open.insert(instance.to_owned(), trace);
    }

    /// The instance runs: what to report of its START.
    pub(crate) fn started(&mut self, instance: &str) -> Option<TracedFrame> {
        let trace = self.open.remove(instance)?;
        Some(TracedFrame {
            label: String::from_utf8_lossy(&trace.label).into_owned(),
            ty: Kind::START.ty.to_string(),
            operand: Kind::START.name().unwrap_or_default().to_owned(),
            start_timestamp: text(trace.start),
            end_timestamp: text(now()),
            nodes: trace.path.iter().flatten().map(traced_node).collect(),
        })
    }

    /// The instance does not run, or not any more.
    pub(crate) fn ended(&mut self, instance: &str) {
        self.open.remove(instance);
    }
}

/// One stop of the path as TraceReport has it. An instant that is not set is an empty text.
fn traced_node(node: &TraceNode) -> TracedNode {
    let set = |at: Timestamp| match at.is_unset() {
        true => String::new(),
        false => text(at),
    };
    TracedNode {
        ssntp_node_uuid: node.uuid.to_string(),
        ssntp_role: role_name(node.role),
        tx_timestamp: set(node.tx),
        rx_timestamp: set(node.rx),
    }
}

fn role_name(role: Role) -> String {
    let names = ROLES.iter().filter(|(one, _)| role.contains(*one));
    let names: Vec<&str> = names.map(|(_, name)| *name).collect();
    names.join("-")
}

/// The wall clock, for it is compared with other machines' times.
fn now() -> Timestamp {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH);
    let ns = since_epoch.unwrap_or_default().as_nanos();
    Timestamp::from_unix_ns(i64::try_from(ns).unwrap_or(i64::MAX))
}

/// An instant in the form of RFC 3339, in UTC, with as many digits of a second as it has.
fn text(at: Timestamp) -> String {
    let Ok(ns) = u64::try_from(at.unix_ns()) else {
        return NOT_SET.to_owned();
    };
    if ns == 0 {
        return NOT_SET.to_owned();
    }
    let at = UNIX_EPOCH + std::time::Duration::from_nanos(ns);
    let text = humantime::format_rfc3339_nanos(at).to_string();
    let digits = text.trim_end_matches('Z').trim_end_matches('0');
    format!("{}Z", digits.trim_end_matches('.'))
}

#[cfg(test)]
mod tests {
    use proto_frames::{Frame, Kind, Role, Timestamp, Trace, TraceNode, Uuid};

    use super::{MAX_TRACES, NOT_SET, Traces, role_name, text};

    fn traced(nodes: usize) -> Frame {
        let node = TraceNode {
            tx: Timestamp::from_unix_ns(1_500_000_000),
            ..TraceNode::new(Uuid::from_u128(1), Role::CONTROLLER)
        };
        let mut frame = Frame::new(Kind::START, Uuid::from_u128(1), "");
        frame.trace = Some(Box::new(Trace {
            label: "a label".into(),
            path: Some(vec![node; nodes]),
            ..Trace::default()
        }));
        frame
    }

    #[test]
    fn instants_are_written_as_the_original_writes_them() {
        for (ns, expected) in [
            (0, NOT_SET),
            (-1, NOT_SET),
            (1_500_000_000, "1970-01-01T00:00:01.5Z"),
            (1_480_000_000_000_000_000, "2016-11-24T15:06:40Z"),
            (1_480_000_000_000_000_007, "2016-11-24T15:06:40.000000007Z"),
        ] {
            assert_eq!(text(Timestamp::from_unix_ns(ns)), expected);
        }
        assert_eq!(role_name(Role::AGENT), "CNAgent");
        let both = Role(Role::AGENT.0 | Role::NETAGENT.0);
        assert_eq!(role_name(both), "CNAgent-NetworkingAgent");
    }

    #[test]
    fn a_traced_start_is_reported_once_with_its_way_as_soon_as_its_instance_runs() {
        let (node, mut traces) = (Uuid::from_u128(7), Traces::default());
        traces.received(&traced(1), "a", node, Role::AGENT);
        let report = traces.started("a").unwrap();
        assert_eq!(
            (&*report.label, &*report.ty, &*report.operand),
            ("a label", "COMMAND", "START")
        );
        assert_eq!(report.start_timestamp, NOT_SET);
        assert_ne!(report.end_timestamp, NOT_SET);
        let [first, last] = &report.nodes[..] else {
            panic!("{report:?}")
        };
        assert_eq!(
            (
                &*first.ssntp_role,
                &*first.tx_timestamp,
                &*first.rx_timestamp
            ),
            ("Controller", "1970-01-01T00:00:01.5Z", "")
        );
        assert_eq!(last.ssntp_node_uuid, node.to_string());
        assert!(!last.rx_timestamp.is_empty() && last.tx_timestamp.is_empty());
        assert!(traces.started("a").is_none());
    }

    #[test]
    fn what_is_not_traced_or_does_not_run_is_not_reported_and_traces_are_limited() {
        let (node, mut traces) = (Uuid::from_u128(7), Traces::default());
        traces.received(&traced(1), "a", node, Role::AGENT);
        let plain = Frame::new(Kind::START, Uuid::from_u128(1), "");
        traces.received(&plain, "a", node, Role::AGENT);
        assert!(traces.started("a").is_none(), "of an earlier START");
        traces.received(&traced(255), "b", node, Role::AGENT);
        traces.ended("b");
        assert!(traces.started("b").is_none());
        for number in 0..=MAX_TRACES {
            traces.received(&traced(255), &number.to_string(), node, Role::AGENT);
        }
        assert!(traces.started(&MAX_TRACES.to_string()).is_none());
        assert_eq!(traces.started("0").unwrap().nodes.len(), 255);
    }
}
