//! Tests of the reader of the plain style: what this crate writes is read by it, and other styles are left alone.

use std::collections::BTreeMap;

use super::{read, read_under};
use crate::payload::{
    InstanceStat, InstanceView, Network, Payload as _, QueryResult, Ready, Scheduling, Start, Stats,
};

fn start() -> Start {
    let texts = [
        "a b",
        "",
        "null",
        "true",
        "7",
        "ä",
        "a\nb",
        "\"\\\t\r",
        "\0\u{85}\u{2028}\u{feff}",
    ];
    Start {
        instance_uuid: "5f0c1e2a-0000-4000-8000-000000000001".to_owned(),
        command: texts.map(str::to_owned).to_vec(),
        env: BTreeMap::from(texts.map(|text| (format!("K{}", text.len()), text.to_owned()))),
        scheduling: Some(Scheduling {
            require: vec!["zone = eu-1".parse().unwrap()],
            resources: [("gpu".to_owned(), 1)].into(),
            priority: Some(-3),
            ..Scheduling::default()
        }),
        ..Start::default()
    }
}

#[test]
fn what_this_crate_writes_needs_no_full_parser() {
    let start = start();
    assert_eq!(read_under("start", &start.encode()), Some(start));
    let instance = InstanceView {
        node_uuid: "4cb19522-1e18-439a-883a-f9b2a3a95f5e".to_owned(),
        hostname: "node-1".to_owned(),
        ..InstanceView::default()
    };
    let result = QueryResult {
        instances: vec![instance.clone(), InstanceView::default(), instance],
        ..QueryResult::default()
    };
    assert_eq!(read_under("query_result", &result.encode()), Some(result));
    let ready = Ready {
        networks: vec![Network::default(); 2],
        labels: [("zone".to_owned(), "eu-1".to_owned())].into(),
        ..Ready::default()
    };
    assert_eq!(read(&ready.encode()), Some(ready));
    let stats = Stats {
        instances: vec![InstanceStat::default(); 3],
        ..Stats::default()
    };
    assert_eq!(read(&stats.encode()), Some(stats));
}

#[test]
fn other_styles_are_left_to_the_full_parser() {
    for document in [
        "",
        "---\n",
        "hostname: a\n  b\n",
        "hostname: a # b\n",
        "hostname: a: b\n",
        "hostname: 'a'\n",
        "hostname: \"a\n  b\"\n",
        "hostname: \"a\\e\"\n",
        "hostname: \"a\\ud800\"\n",
        "hostname: \"a\"b\n",
        "hostname: \"a\u{feff}\"\n",
        "hostname: null\n",
        "hostname:\n",
        "hostname: &a b\n",
        "hostname: |\n  a\n",
        "hostname:  a\n",
        "hostname: a\r\n",
        " hostname: a\n",
        "# a\nhostname: a\n",
        "\"hostname\": a\n",
        "? hostname\n: a\n",
        "unknown: a\n",
        "load: 010\n",
        "load: \"1\"\n",
        "load: 1.0\n",
        "load: 1 2\n",
        "networks:\n- - a\n",
        "networks:\n- ip: a\n   mac: b\n",
        "networks:\n  - ip: a\n - ip: b\n",
        "networks: [{}]\n",
        "labels:\n  a: b\n c: d\n",
        "labels:\na: b\n",
    ] {
        assert_eq!(read::<Ready>(document.as_bytes()), None, "{document:?}");
    }
    for document in [
        "",
        "stop:\n",
        "start: null\n",
        "start:\n",
        "start: a\n",
        "start: {}\nstop: {}\n",
    ] {
        let start: Option<Start> = read_under("start", document.as_bytes());
        assert_eq!(start, None, "{document:?}");
    }
}
