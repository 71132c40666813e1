//! Pages of the reference have everything that there is of their kind.

use ciao_scheduler::server::fuzz_support;
use proto_frames::Kind;
use proto_frames::payload::Scheduling;
use sched_core::Capabilities;

use crate::text;

#[test]
fn every_key_of_scheduling_is_in_the_reference() {
    let page = text("docs/reference/start-files.md");
    let (_, section) = page.split_once("\n## scheduling\n").unwrap();
    for key in Scheduling::KEYS {
        let is_row = |line: &str| {
            let cell = line
                .strip_prefix("| ")
                .and_then(|row| row.split(" |").next());
            cell.is_some_and(|cell| cell.split(", ").any(|it| it == format!("`{key}`")))
        };
        assert!(section.lines().any(is_row), "no row of {key}");
    }
}

#[test]
fn every_added_frame_is_in_the_reference() {
    let page = text("docs/reference/wire-additions.md");
    let mut added = 0;
    for (kind, _) in Kind::NAMED.iter().filter(|(kind, _)| kind.is_added()) {
        let name = kind.to_string();
        let (ty, name) = name.split_once(' ').unwrap();
        let row = format!("| {ty} | {:#04x} | {name} |", kind.operand);
        assert!(page.contains(&row), "no row {row}");
        added += 1;
    }
    let rows = page.lines().filter(|line| line.contains(" | 0x")).count();
    assert_eq!(rows, added, "rows and frames");
}

#[test]
fn every_capability_in_the_reference_is_one() {
    let page = text("docs/reference/capabilities.md");
    let rows: Vec<&str> = page
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split('`').next())
        .collect();
    let known = Capabilities::from_names(rows.iter().copied());
    assert_eq!(known.names().count(), rows.len(), "{rows:?}");
    let all = [
        Capabilities::SUSPEND,
        Capabilities::MIGRATE,
        Capabilities::UPDATE,
        Capabilities::LEASE,
        Capabilities::ENDS,
        Capabilities::CAPACITY,
        Capabilities::OUTPUT,
        Capabilities::OVERRIDES,
    ];
    assert!(all.into_iter().all(|one| known.contains(one)));
}

#[test]
fn every_filter_and_weigher_is_in_the_reference() {
    let page = text("docs/reference/configuration.md");
    for (kind, heading) in [("filter", "### Filters"), ("weigher", "### Weighers")] {
        let (_, section) = page.split_once(heading).unwrap();
        let section = section.split("\n##").next().unwrap();
        let configuration =
            format!("configure:\n  scheduler:\n    policy:\n      {kind}s: [no-such-part]\n");
        let mistake = fuzz_support::rules(configuration.as_bytes()).unwrap_err();
        let problem = mistake.to_string();
        let (_, names) = problem.split_once("there are ").unwrap();
        let names: Vec<&str> = names.split(", ").collect();
        assert!(names.len() > 5, "{problem}");
        for name in names {
            assert!(section.contains(&format!("`{name}`")), "no {kind} {name}");
        }
    }
}

#[test]
fn every_kind_of_log_line_is_in_the_reference() {
    let page = text("docs/reference/log-events.md");
    let source = text("src/server/notices/limiter.rs");
    let texts = |function: &str| -> Vec<&str> {
        let (_, body) = source.split_once(function).unwrap();
        let (body, _) = body.split_once("\n    }\n").unwrap();
        body.split('"').skip(1).step_by(2).collect()
    };
    let (kinds, events) = (texts("fn words(self)"), texts("fn as_str(self)"));
    assert!(kinds.len() > 20, "{kinds:?}");
    for (kind, event) in kinds.iter().zip(&events) {
        let row = format!("| {kind} | `{event}` |");
        assert!(page.contains(&row), "no row that begins with {row}");
    }
    let (page, _) = page.split_once("\n## All others").unwrap();
    let rows = page.lines().filter(|line| line.starts_with("| ")).count();
    assert_eq!(rows - 2, kinds.len(), "rows and kinds");
}
