//! Tests of what explanations say.

use proto_frames::payload::StartFailureReason;

use super::*;

fn memory(never: bool) -> Reason {
    Reason {
        reason: ReasonKind::Memory,
        nodes: 12,
        asked: Some(4096),
        best: Some(100),
        capacity: Some(if never { 2048 } else { 8192 }),
        node_uuid: "4cb19522-1e18".into(),
        hostname: "host-1".into(),
        never,
        ..Reason::default()
    }
}

fn labels() -> Reason {
    Reason {
        reason: ReasonKind::Labels,
        what: "zone = eu-1".into(),
        nodes: 40,
        never: true,
        ..Reason::default()
    }
}

fn pinned() -> Reason {
    Reason {
        reason: ReasonKind::Pinned,
        nodes: 51,
        never: true,
        ..Reason::default()
    }
}

fn refused(never: bool, reasons: Vec<Reason>) -> Explanation {
    Explanation {
        name: "a.yaml".into(),
        node: None,
        nearest: None,
        of: Of::Start,
        decision: PlacementDecision {
            count: 1,
            reason: StartFailureReason::FullCloud,
            detail: "in words".into(),
            reasons,
            never,
            ..PlacementDecision::default()
        },
    }
}

fn placed(fits: u32, count: u32) -> PlacementDecision {
    let on = |host: &str, count| DecidedPlacement {
        node_uuid: format!("4cb19522-{host}"),
        hostname: host.into(),
        count,
    };
    PlacementDecision {
        count,
        fits,
        placements: match fits {
            1 => vec![on("a", 1)],
            _ => vec![on("a", fits - 1), on("b", 1)],
        },
        ..PlacementDecision::default()
    }
}

#[test]
fn what_fits_is_one_line_with_its_node() {
    let explanation = Explanation {
        decision: placed(1, 1),
        ..refused(false, Vec::new())
    };
    assert_eq!(
        explanation.text(None).to_string(),
        "a.yaml: would go to a (4cb19522)\n"
    );
    assert_eq!(explanation.exit(), Exit::Done);
    assert_eq!(explanation.json()["reason"], Value::Null);
}

#[test]
fn what_does_not_fit_says_for_how_many_nodes_why_whether_ever_and_what_helps() {
    let explanation = refused(false, vec![labels(), memory(false)]);
    let expected = "\
a.yaml: does not fit now (full_cloud):
NODES  REASON                    ASKED  MOST FREE   LARGEST  NEAREST            OUTLOOK
   40  without 'zone = eu-1'         -          -         -  -                  never
   12  short of memory        4096 MiB    100 MiB  8192 MiB  host-1 (4cb19522)  not now
What helps:
- `ciaoctl nodes --wide` lists the labels that nodes have
- wait until instances have ended, or ask for at most 100 MiB of memory
";
    assert_eq!(explanation.text(None).to_string(), expected);
    assert_eq!(explanation.exit(), Exit::Refused);
    let nearest = Explanation {
        nearest: Some("nearest is a".into()),
        ..explanation
    };
    let text = nearest.text(None).to_string();
    assert_eq!(text, format!("{expected}- nearest is a\n"));
    let never = refused(true, vec![memory(true)]).text(None).to_string();
    assert!(never.starts_with("a.yaml: never fits on the nodes there are (full_cloud):\n"));
    assert!(never.ends_with("- ask for at most 2048 MiB of memory, or add a larger node\n"));
}

#[test]
fn several_are_explained_with_count_nodes_and_the_limit() {
    let decision = PlacementDecision {
        reasons: vec![memory(false)],
        ..placed(37, 50)
    };
    let explanation = Explanation {
        decision,
        ..refused(false, Vec::new())
    };
    let text = explanation.text(None).to_string();
    let expected = "\
a.yaml: 37 of 50 would fit:
HOST  NODE      COUNT
a     4cb19522     36
b     4cb19522      1
The next does not fit now:
NODES  REASON";
    assert!(text.starts_with(expected), "{text}");
    assert_eq!(explanation.exit(), Exit::Refused);
    let all = Explanation {
        decision: placed(50, 50),
        ..explanation
    };
    assert!(
        all.text(None)
            .to_string()
            .starts_with("a.yaml: 50 of 50 would fit:\n")
    );
    assert_eq!(all.exit(), Exit::Done);
}

#[test]
fn about_one_node_the_others_do_not_matter() {
    let node = Candidate {
        uuid: "4cb19522-1e18".into(),
        hostname: Some("host-1".into()),
        about: String::new(),
    };
    let about = |reasons| Explanation {
        node: Some(node.clone()),
        ..refused(true, reasons)
    };
    let text = about(vec![pinned(), memory(true)]).text(None).to_string();
    assert!(text.starts_with("a.yaml: never fits on host-1 (4cb19522) (full_cloud):\n"));
    assert!(!text.contains("not the node"), "{text}");
    assert!(text.ends_with("of memory, or ask about another node\n"));
    let text = about(vec![pinned()]).text(None).to_string();
    assert!(
        text.contains("51  not the node or host asked for"),
        "{text}"
    );
}

#[test]
fn a_failure_without_reasons_is_told_in_its_own_words() {
    let failure = StartFailure {
        reason: StartFailureReason::InvalidData,
        detail: Some("start.scheduling.x: \u{1b}no".into()),
        ..StartFailure::default()
    };
    let explanation = Explanation::of_failure("a.yaml".into(), 1, failure);
    assert_eq!(
        explanation.text(None).to_string(),
        "a.yaml: is not placed: invalid_data: start.scheduling.x: \\u{1b}no\n"
    );
    assert_eq!(explanation.exit(), Exit::Refused);
    assert_eq!(explanation.json()["detail"], "start.scheduling.x: \u{1b}no");
}

#[test]
fn a_resource_that_nobody_has_has_no_nearest_node() {
    let fpga = Reason {
        reason: ReasonKind::Resource,
        what: "fpga".into(),
        best: Some(0),
        capacity: Some(0),
        ..memory(true)
    };
    let text = refused(true, vec![fpga]).text(None).to_string();
    assert!(!text.contains("host-1"), "{text}");
    assert!(text.ends_with("- add a node that has fpga\n"), "{text}");
}

#[test]
fn a_cordoned_node_is_said_to_be_one_and_how_it_takes_work_again() {
    let cordoned = Reason {
        reason: ReasonKind::Other("cordoned".to_owned()),
        nodes: 1,
        ..Reason::default()
    };
    let text = refused(false, vec![cordoned]).text(None).to_string();
    assert!(text.contains("cordoned"), "{text}");
    assert!(text.contains("ciaoctl uncordon"), "{text}");
    assert!(!text.contains("does not know"), "{text}");
}

#[test]
fn an_instance_that_waits_is_explained_by_its_own_reasons() {
    let row = InstanceView {
        instance_uuid: "4cb19522-0000-4000-8000-000000000001".into(),
        name: "we\u{1b}b".into(),
        state: PlacementState::Waiting,
        waits_for: "in words".into(),
        reasons: vec![labels(), memory(false)],
        ..InstanceView::default()
    };
    let explanation = Explanation::of_instance(&row);
    assert_eq!(explanation.exit(), Exit::Refused);
    let text = explanation.text(None).to_string();
    assert!(text.contains("waits: in words"), "{text}");
    assert!(text.contains("without 'zone = eu-1'"), "{text}");
    assert!(!text.contains('\u{1b}'), "{text}");
    let placed = InstanceView {
        state: PlacementState::Running,
        hostname: "host-1".into(),
        reasons: Vec::new(),
        ..row
    };
    let placed = Explanation::of_instance(&placed);
    assert_eq!(placed.exit(), Exit::Done);
    assert!(
        placed
            .text(None)
            .to_string()
            .contains("is running on host-1")
    );
}
