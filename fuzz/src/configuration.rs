//! Files that an operator writes, and a CONFIGURE brings: whatever is in them, they are read or a mistake is named.

use std::time::Instant;

use bytes::Bytes;
use ciao_scheduler::server::fuzz_support::{node_file, rules, unknown_keys};
use proto_frames::Uuid;
use proto_frames::payload::{Configuration, Payload};
use sched_core::{ClusterConfiguration, Config, NodeRule, Rules, Scheduler};

use crate::choice;

/// First byte: 0 a cluster configuration, 1 the scheduler's section of one, 2 a node file. The rest is the file.
pub fn configuration(data: &[u8]) {
    let Some((which, text)) = choice(data) else {
        return;
    };
    match which % 3 {
        0 => cluster(text),
        1 => {
            let mut file = b"configure:\n  scheduler:\n".to_vec();
            for line in text.split_inclusive(|byte| *byte == b'\n') {
                file.extend_from_slice(b"    ");
                file.extend_from_slice(line);
            }
            cluster(&file);
        }
        _ => nodes(text),
    }
}

fn cluster(file: &[u8]) {
    for key in unknown_keys(file) {
        assert!(key.starts_with("configure.scheduler."), "{key:?}");
    }
    let decoded = Configuration::decode(file);
    if let Ok(configuration) = &decoded {
        let again = Configuration::decode(&configuration.encode());
        assert_eq!(
            again.as_ref(),
            Ok(configuration),
            "after encoding and decoding"
        );
    }
    match rules(file) {
        Ok(Some(rules)) => are_usable(rules, Vec::new()),
        Ok(None) => {}
        Err(mistake) => assert!(!mistake.problem.is_empty()),
    }
}

fn nodes(file: &[u8]) {
    match node_file(file) {
        Ok(nodes) => are_usable(Rules::default(), nodes),
        Err(mistake) => assert!(!mistake.problem.is_empty()),
    }
}

/// What was accepted, the core can be started with.
fn are_usable(rules: Rules, nodes: Vec<NodeRule>) {
    assert!(rules.check().is_ok(), "accepted and refused at once");
    let config = Config {
        nodes,
        ..Config::new(Uuid::nil())
    };
    let cluster = ClusterConfiguration {
        payload: Bytes::new(),
        rules,
        ..ClusterConfiguration::default()
    };
    drop(Scheduler::new(config, cluster, Instant::now()));
}
