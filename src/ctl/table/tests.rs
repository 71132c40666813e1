//! Tests of how lists look.

use proto_frames::payload::{ControllerRole, InstanceView, PlacementState};

use super::*;

/// A table as it is printed.
fn table<R: Row>(rows: &[R], style: Style) -> String {
    super::table(rows, style).to_string()
}

fn node(uuid: &str, hostname: &str) -> NodeView {
    NodeView {
        node_uuid: uuid.into(),
        hostname: hostname.into(),
        roles: "AGENT".into(),
        status: "READY".into(),
        mem_total_mb: 163_840,
        mem_available_mb: 150_000,
        mem_free_mb: 141_312,
        disk_total_mb: 500_000,
        disk_free_mb: 256_000,
        cpus_online: 8,
        vcpus_free: 120,
        load: 1,
        instances: 3,
        unconfirmed: 1,
        connected_s: 185,
        ..NodeView::default()
    }
}

fn instance(uuid: &str) -> InstanceView {
    InstanceView {
        instance_uuid: uuid.into(),
        node_uuid: "4cb19522-aaaa".into(),
        hostname: "node-a".into(),
        state: PlacementState::Running,
        reported: Some("active".into()),
        mem_mb: 8192,
        vcpus: 2,
        mem_used_mb: 1024,
        age_s: 7_800,
        ..InstanceView::default()
    }
}

const STYLE: Style = Style {
    headers: true,
    full_ids: false,
    width: None,
};

#[test]
fn a_list_leaves_columns_out_rather_than_wrap_its_lines() {
    let nodes = [node("4cb19522-aaaa", "node-a"), node("beef0000-bbbb", "b")];
    let narrow = |width| Style {
        width: Some(width),
        ..STYLE
    };
    let expected = "\
NODE      HOST    STATUS        MEMORY FREE  VCPUS FREE  INSTANCES
4cb19522  node-a  READY   138 GiB / 160 GiB         120  3 (1 new)
beef0000  b       READY   138 GiB / 160 GiB         120  3 (1 new)
";
    assert_eq!(table(&nodes, narrow(80)), expected);
    let waiting = InstanceView {
        life: "waiting".into(),
        waits_for: "none of 2 compute nodes fits: 2 short of memory".into(),
        ..instance("11112222-3333")
    };
    for width in [60, 80, 100, 120, 200] {
        let text = table(std::slice::from_ref(&waiting), narrow(width));
        let longest = text.lines().map(|line| line.chars().count()).max();
        assert!(longest.unwrap() <= width, "{width}:\n{text}");
        assert!(text.contains("none of 2 compute"), "{width}:\n{text}");
        let is_whole = text.contains("short of memory");
        assert_eq!(is_whole, width == 200, "{width}:\n{text}");
    }
    // Columns without a number are never left out.
    let text = table(&nodes, narrow(5));
    assert!(text.starts_with("NODE      HOST    STATUS\n"), "{text}");
}

#[test]
fn nodes_are_a_table_with_human_units() {
    let expected = "\
NODE      HOST    STATUS  ROLES        MEMORY FREE          DISK FREE  VCPUS FREE  LOAD  INSTANCES  CONNECTED
4cb19522  node-a  READY   AGENT  138 GiB / 160 GiB  238 GiB / 466 GiB         120     1  3 (1 new)      3m 5s
beef0000  b       READY   AGENT  138 GiB / 160 GiB  238 GiB / 466 GiB         120     1  3 (1 new)      3m 5s
";
    assert_eq!(
        table(
            &[node("4cb19522-aaaa", "node-a"), node("beef0000-bbbb", "b")],
            STYLE
        ),
        expected
    );
}

#[test]
fn what_is_not_known_is_a_dash_in_a_table_and_null_in_json() {
    let text = table(&[instance("11112222-3333")], STYLE);
    assert_eq!(
        text.lines().nth(1).unwrap(),
        "11112222  -     -        running  active    node-a  4cb19522  1.0 GiB / 8.0 GiB      - / -      2         -         -  2h 10m"
    );
    let json = document(&[instance("11112222-3333")]);
    assert_eq!(json["instances"][0]["disk_mb"], Value::Null);
    assert_eq!(json["instances"][0]["mem_mb"], 8192);
    assert_eq!(json["instances"][0]["state"], "running");
}

#[test]
fn identifiers_are_as_long_as_it_takes_to_tell_them_apart() {
    let rows = [instance("11112222-3333"), instance("11112222-4444")];
    let bare = Style {
        headers: false,
        ..STYLE
    };
    assert!(
        table(&rows, bare).starts_with("11112222-3  "),
        "{}",
        table(&rows, bare)
    );
    assert!(
        table(
            &rows,
            Style {
                full_ids: true,
                ..bare
            }
        )
        .starts_with("11112222-3333  ")
    );
    let (listed, left_out) = ids(&rows);
    assert_eq!(listed.to_string(), "11112222-3333\n11112222-4444\n");
    assert_eq!(left_out, 0);
}

#[test]
fn nothing_is_a_header_alone_or_nothing_or_an_empty_list() {
    let none: [ControllerView; 0] = [];
    assert_eq!(table(&none, STYLE), "CONTROLLER  ROLE  CONNECTED\n");
    assert_eq!(
        table(
            &none,
            Style {
                headers: false,
                ..STYLE
            }
        ),
        ""
    );
    assert_eq!(document(&none).to_string(), r#"{"controllers":[]}"#);
}

#[test]
fn a_host_name_cannot_send_commands_to_the_terminal() {
    let text = table(&[node("4cb19522-aaaa", "a\u{1b}[2J\nb")], STYLE);
    assert_eq!(text.lines().count(), 2);
    assert!(text.contains(r"a\u{1b}[2J\nb"), "{text}");
}

#[test]
fn wide_rows_show_labels_resources_and_groups() {
    let node = NodeView {
        labels: [
            ("tenant".to_owned(), vec!["a".to_owned(), "b".to_owned()]),
            ("zone".to_owned(), vec!["eu-1".to_owned()]),
        ]
        .into(),
        resources_total: [("gpu".to_owned(), 4)].into(),
        resources_free: [("gpu".to_owned(), 1)].into(),
        failures: "1.50".into(),
        reported_s: Some(4),
        ..node("4cb19522-aaaa", "node-a")
    };
    let text = table(&[Wide(node.clone())], STYLE);
    let end = "  3m 5s    4s ago      1.50  gpu 1 / 4       -      -      tenant=a, tenant=b, zone=eu-1\n";
    assert!(text.ends_with(end), "{text}");
    let json = node.json();
    assert_eq!(json["labels"]["tenant"][1], "b");
    assert_eq!(json["failures"], 1.5);
    let member = InstanceView {
        group: "web".into(),
        resources: [("gpu".to_owned(), 2)].into(),
        ..instance("11112222-3333")
    };
    let text = table(&[Wide(member), Wide(instance("2"))], STYLE);
    assert!(text.contains("  2h 10m       web    gpu 2\n"), "{text}");
    assert!(text.ends_with("  2h 10m       -      -\n"), "{text}");
}

#[test]
fn a_cordoned_node_and_its_drain_are_shown() {
    let node = NodeView {
        cordoned: true,
        drain: "1 of 4 moved".into(),
        capabilities: vec!["suspend".into()],
        lease_ms: Some(30_000),
        ..node("4cb19522-aaaa", "node-a")
    };
    let text = table(&[Wide(node.clone())], STYLE);
    assert!(text.contains("  READY, cordoned  AGENT"), "{text}");
    assert!(text.contains("  1 of 4 moved  "), "{text}");
    let json = node.json();
    assert_eq!(json["cordoned"], true);
    assert_eq!(json["capabilities"][0], "suspend");
    assert_eq!(json["lease_ms"], 30_000);
}

#[test]
fn where_an_instance_is_in_its_life_and_why_it_waits_is_shown() {
    let waiting = InstanceView {
        node_uuid: String::new(),
        hostname: String::new(),
        reported: None,
        priority: Some(50),
        attempts: Some(2),
        life: "waiting".into(),
        waits_for: "2 nodes short of memory".into(),
        position: Some(1),
        deadline_ms: Some(29_500),
        ..instance("11112222-3333")
    };
    let text = table(std::slice::from_ref(&waiting), STYLE);
    assert!(
        text.starts_with("INSTANCE  NAME  PROGRAM  STATE    REPORTED  HOST  NODE"),
        "{text}"
    );
    assert!(
        text.contains("11112222  -     -        waiting  -         -     -   "),
        "{text}"
    );
    assert!(
        text.ends_with("      2        50         2  2h 10m  2 nodes short of memory\n"),
        "{text}"
    );
    let json = waiting.json();
    assert_eq!(
        (&json["life"], &json["state"]),
        (&"waiting".into(), &"running".into())
    );
    assert_eq!(json["position"], 1);
    let moving = InstanceView {
        life: "migrating".into(),
        target_node_uuid: "beef0000-bbbb".into(),
        ..instance("11112222-3333")
    };
    let text = table(std::slice::from_ref(&moving), STYLE);
    assert!(text.ends_with("  to beef0000\n"), "{text}");

    let expected = "\
POSITION  INSTANCE  NAME  PRIORITY   MEMORY  DISK  VCPUS  ATTEMPTS  TIME LEFT     AGE  WHY
       1  11112222  web         50  8.0 GiB     -      2         2        30s  2h 10m  2 nodes short of memory
";
    let waiting = InstanceView {
        name: "web".into(),
        ..waiting
    };
    assert_eq!(table(&[Queued(waiting)], STYLE), expected);
    assert_eq!(document(&[Queued(moving)])["queue"][0]["life"], "migrating");
}

#[test]
fn controllers_show_their_role() {
    let controller = ControllerView {
        uuid: "c".into(),
        standing: ControllerRole::Master,
        connected_s: 1,
        certificate_ends_at_s: Some(7),
    };
    assert_eq!(
        document(&[controller]).to_string(),
        r#"{"controllers":[{"certificate_ends_at_s":7,"connected_s":1,"standing":"master","uuid":"c"}]}"#
    );
}
