//! Fast readers for the payloads that come in masses: START, READY, STATS.
//!
//! A peek reads the block style that peers really send, in one pass and without building what no one asks for. On
//! anything else (quotes with escapes, flow style over several lines, anchors, odd indentation, repeated keys …) it
//! leaves the document to the full parser. It never reads what the full parser would read otherwise: it checks each value against the same
//! description of the message that the full parser is made from, and property tests hold the two equal.

mod figures;
mod ready;
mod scheduling;
mod start;
mod stats;
mod walk;
mod without;
pub(super) mod word;

pub use figures::Figures;
pub use ready::{ReadyPeek, ready};
pub use start::{StartPeek, start};
pub use stats::{InstancePeek, StatsPeek, plain_stats, stats};
pub use without::{plain_stats_without, stats_without};

#[cfg(test)]
mod tests {
    use super::{ready, start, stats};
    use crate::payload::{
        Group, GroupPolicy, InstanceStat, Near, Network, OnNodeLoss, Payload, Ready, Requested,
        Requirements, Scheduling, Span, Start, Stats, Storage,
    };

    #[test]
    fn a_start_as_original_controllers_send_it_needs_no_full_parser() {
        let payload = include_bytes!("../../tests/golden/start-three-documents.yaml");
        assert_eq!(start::quick(payload).unwrap().disk_mib, 20 * 1024);
        let padded = b"start:\n  instance_uuid: a\n  requirements:\n    mem_mb: 1\n#xxxx\n";
        assert_eq!(start::quick(padded).unwrap().mem_mb, 1);
    }

    #[test]
    fn what_this_crate_writes_needs_no_full_parser() {
        let text = || "fe2970fa-7b36-460b-8b79-9eb4745e62f2".to_owned();
        let start = Start {
            instance_uuid: text(),
            storage: vec![
                Storage {
                    local: true,
                    size: 1,
                    ..Storage::default()
                };
                2
            ],
            requirements: Requirements {
                hostname: text(),
                network_node: true,
                ..Requirements::default()
            },
            command: vec!["sleep".to_owned(), "60".to_owned()],
            env: [("A".to_owned(), text())].into(),
            ..Start::default()
        };
        assert_eq!(start::quick(&start.encode()).unwrap().disk_mib, 2048);
        let ready = Ready {
            node_uuid: text(),
            networks: vec![Network {
                ip: "10.0.0.1".to_owned(),
                mac: "02:00:15:03:6f:49".to_owned(),
            }],
            labels: [("zone".to_owned(), "eu-1".to_owned())].into(),
            resources: [("gpu".to_owned(), 4)].into(),
            capabilities: vec!["suspend".to_owned()],
            starts_seen: Some(3),
            lease: Some(Span::from_ms(30_000)),
            lease_seq: Some(0),
            ..Ready::default()
        };
        let written = ready.encode();
        let figures = ready::quick(&written).unwrap().figures;
        assert_eq!(figures.starts_seen, Some(3));
        assert_eq!(figures.lease, Some(Span::from_ms(30_000)));
        assert_eq!(figures.lease_seq, Some(0));
        let requested = Requested {
            mem_mb: 5,
            resources: [("gpu".to_owned(), 1)].into(),
            ..Requested::default()
        };
        let instance = InstanceStat {
            instance_uuid: text(),
            volumes: vec![text()],
            requested: Some(requested.clone()),
            suspended: true,
            ..InstanceStat::default()
        };
        let stats = Stats {
            node_uuid: text(),
            instances: vec![instance; 3],
            lease: Some(Span::from_ms(1500)),
            lease_seq: Some(7),
            ..Stats::default()
        };
        let stats = stats.encode();
        let peek = stats::plain_stats(&stats).unwrap();
        assert_eq!(peek.instances.len(), 3);
        assert_eq!(peek.instances[2].requested, Some(requested));
        assert!(peek.instances[2].suspended);
        assert_eq!(peek.figures.lease_seq, Some(7));
    }

    #[test]
    fn scheduling_needs_no_full_parser_in_block_style_nor_on_single_lines() {
        let scheduling = Scheduling {
            require: ["zone = eu-1", "cpu.model in (zen4, zen5)", "cores >= 32"]
                .map(|text| text.parse().unwrap())
                .into(),
            group: Some(Group {
                id: "web".to_owned(),
                policy: GroupPolicy::AntiAffinity,
                ..Group::default()
            }),
            resources: [("gpu".to_owned(), 1)].into(),
            queue: Some(Span::from_ms(30_000)),
            near: vec![Near {
                label: "volume-7".to_owned(),
                ..Near::default()
            }],
            relocate: Some(true),
            on_node_loss: OnNodeLoss::Restart,
            ..Scheduling::default()
        };
        let start = Start {
            instance_uuid: "a".to_owned(),
            scheduling: Some(scheduling.clone()),
            ..Start::default()
        };
        let written = start.encode();
        let peek = start::quick(&written).unwrap();
        assert_eq!(peek.scheduling.as_deref(), Some(&scheduling));
        let flow = b"start:
  instance_uuid: a
  scheduling:
    queue: 30s
    require: [\"zone = eu-1\", \"cpu.model in (zen4, zen5)\", \"cores >= 32\"]
    resources: {gpu: 1}
    group: {id: web, policy: anti-affinity, scope: node}
    near: [{label: volume-7, hard: false}]
    relocate: yes
    on_node_loss: \"restart\"
";
        let peek = start::quick(flow).unwrap();
        assert_eq!(peek.scheduling.as_deref(), Some(&scheduling));
    }

    #[test]
    fn unusual_style_is_left_to_the_full_parser() {
        for payload in [
            "load: {a: b}\n",
            "labels: {a: b: c}\n",
            "labels: {a: b\n  }\n",
            "capabilities: [ a]\n",
            "load: 'a'\n",
            "hostname: \"a\\n\"\n",
            "hostname: a b: c\n",
            "hostname: a - b\n",
            "hostname: &a b\n",
            "hostname: |\n  a\n",
            "hostname: a\n  b\n",
            "hostname: a # b\n",
            "hostname: null\n",
            "hostname:\n",
            "hostname: a\nhostname: b\n",
            "hostname:  a\n",
            "hostname: a \n",
            "hostname: a\r\n",
            "\thostname: a\n",
            " hostname: a\n",
            "? hostname\n: a\n",
            "\"hostname\": a\n",
            "networks:\n - ip: a\n- ip: b\n",
            "load: x\n",
            "labels:\n- a\n",
            "",
        ] {
            assert_eq!(ready::quick(payload.as_bytes()), None, "{payload:?}");
        }
    }
}
