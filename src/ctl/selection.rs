//! Which instances an expression selects, by what lists show of them.
//!
//! `--selector` of `delete` and `stop`, for example `state = running` or `host in (node-a, node-b)`. The parser of
//! options allows only [`KEYS`]; evaluation is here, at the client, over a listing.

use proto_frames::payload::{Expression, InstanceView, PhaseName, PlacementState};
use sched_model::expression::Word;

/// What instances can be selected by.
///
/// The columns of `ciaoctl instances` that identify or group instances, by short names.
pub const KEYS: [&str; 8] = [
    "instance", "node", "host", "state", "group", "priority", "mem_mb", "vcpus",
];

/// Whether an expression over [`KEYS`] holds for an instance. What an instance does not have meets what is negative
/// alone, as with labels of nodes.
///
/// `state` is compared with the word that lists show: the state of the lifecycle where there is one. Numbers are
/// compared as the test does it, from their decimal text. A key that is not in [`KEYS`] has no value.
#[must_use]
pub fn is_met(expression: &Expression, view: &InstanceView) -> bool {
    let text = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    let number = |number: i64| (number >= 0).then(|| number.to_string());
    let value = match expression.key() {
        "instance" => text(&view.instance_uuid),
        "node" => text(&view.node_uuid),
        "host" => text(&view.hostname),
        "state" if view.life.is_empty() => text(view.state.as_str()),
        "state" => text(&view.life),
        "group" => text(&view.group),
        "priority" => view.priority.map(|priority| priority.to_string()),
        "mem_mb" => number(view.mem_mb),
        "vcpus" => number(view.vcpus),
        _ => None,
    };
    let test = expression.test();
    value.is_some_and(|value| test.holds_for(&value)) != test.is_negative()
}

/// The states that lists show: those of the lifecycle, and of placement where an instance has none.
pub fn states() -> impl Iterator<Item = &'static str> {
    let of_placement = PlacementState::KNOWN
        .iter()
        .filter(|state| !PhaseName::KNOWN.contains(*state));
    PhaseName::KNOWN.iter().chain(of_placement).copied()
}

/// The first word that `state` is compared with and that is no state: such a comparison would select none, or all,
/// which is not what was meant.
#[must_use]
pub fn unknown_state(expression: &Expression) -> Option<&str> {
    let words = expression.test().words().iter().map(Word::text);
    let mut words = words.filter(|word| !states().any(|state| state == *word));
    (expression.key() == "state")
        .then(|| words.next())
        .flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_that_is_no_state_is_named() {
        for (text, unknown) in [
            ("state = running", None),
            ("state in (lost, in_doubt, suspended)", None),
            ("state = runing", Some("runing")),
            ("state not in (running, Lost)", Some("Lost")),
            ("host = runing", None),
            ("state exists", None),
        ] {
            let expression: Expression = text.parse().unwrap();
            assert_eq!(unknown_state(&expression), unknown, "{text}");
        }
    }

    #[test]
    fn instances_are_selected_by_what_lists_show() {
        let view = InstanceView {
            instance_uuid: "i1".into(),
            hostname: "node-1".into(),
            state: PlacementState::Running,
            group: "web".into(),
            priority: Some(20),
            mem_mb: 512,
            ..InstanceView::default()
        };
        for (text, expected) in [
            ("host = node-1", true),
            ("host != node-1", false),
            ("host in (node-1, node-2)", true),
            ("state = running", true),
            ("group = web", true),
            ("group exists", true),
            ("priority < 20", false),
            ("priority <= 20", true),
            ("mem_mb >= 512", true),
            ("node exists", false),
            ("node not exists", true),
            ("node = n1", false),
            ("node != n1", true),
        ] {
            let expression: Expression = text.parse().unwrap();
            assert_eq!(is_met(&expression, &view), expected, "{text}");
        }
        let moving = InstanceView {
            life: "migrating".into(),
            ..view
        };
        assert!(is_met(&"state = migrating".parse().unwrap(), &moving));
    }
}
