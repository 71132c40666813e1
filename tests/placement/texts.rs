//! Texts of a request, where the Placement API repeats them: on one line, of characters that are shown, and short. Names of
//! nodes, instances and tenants have no others: they are refused where they come in.

use ciao_scheduler::printable::is_unprintable;

use crate::client::{TOKEN, World};

/// Clears the screen, forges a line of the log, colours the rest, turns the direction of writing around.
const EVIL: &str = "x\u{1b}[2J\n2030-01-01T00:00:00.000000Z  WARN forged\r\u{9b}31m\u{202e}\u{2028}\u{7f}\u{e0041}z";

/// Most bytes of a detail: a few names of Placement's length, what is not shown escaped, and the sentence around them.
const SHORT: usize = 2048;

/// Bytes of what is asked for. What stands behind it in a detail has to stay all the same.
const LONG: usize = 3000;

/// Percent-encoded, as part of a path or a query.
fn encoded(text: &str) -> String {
    text.bytes().fold(String::new(), |all, byte| match byte {
        b'a'..=b'z' | b'0'..=b'9' => all + &char::from(byte).to_string(),
        other => all + &format!("%{other:02X}"),
    })
}

/// Nothing in it is an order to a terminal.
fn is_shown(text: &str, what: &str) {
    let found = text.find(is_unprintable);
    assert_eq!(found, None, "{what}: {text:?}");
}

/// Requests that repeat what stands in them, and what stands behind it in the answer; `{}` is an evil and long text.
const REPEATED: &[(&str, &str)] = &[
    ("/{}", ""),
    ("/resource_providers/{}", "found"),
    ("/resource_providers/{}/inventories", "found"),
    ("/resource_providers/{}/inventories/VCPU", "found"),
    (
        "/resource_providers/6be56328-92e2-4ecd-b426-8fe529c04e0c/inventories/{}",
        "found for resource provider 6be56328",
    ),
    ("/resource_providers/{}/usages", "found"),
    ("/resource_providers/{}/aggregates", "found"),
    ("/resource_providers/{}/traits", "found"),
    ("/resource_providers/{}/allocations", "found"),
    ("/resource_providers?{}=1", "expected: "),
    ("/resource_providers?uuid={}", "is not a UUID"),
    ("/resource_providers?in_tree={}", "is not a UUID"),
    ("/resource_providers?required={}", ""),
    ("/resource_providers?required=in:{}", ""),
    ("/resource_providers?resources={}", ""),
    ("/resource_providers?resources={}:1", ""),
    ("/resource_providers?resources=VCPU:{}", ""),
    ("/resource_providers?member_of={}", ""),
    ("/resource_classes/{}", "."),
    ("/traits/{}", "."),
    ("/traits?name={}", ""),
    ("/traits?associated={}", "is neither true nor false"),
    ("/usages?project_id={}", "bytes"),
    ("/usages?project_id=a&consumer_type={}", ""),
    ("/usages?{}=a", "expected: "),
    (
        "/allocation_candidates?resources=VCPU:1&limit={}",
        "is not a whole number above 0",
    ),
    (
        "/allocation_candidates?resources=VCPU:1&group_policy={}",
        "is not one of ['none', 'isolate']",
    ),
    (
        "/allocation_candidates?resources_a=VCPU:1&same_subtree={}",
        "not found in [\"_a\"]",
    ),
    (
        "/allocation_candidates?resources=VCPU:1&root_required={}",
        "",
    ),
];

#[tokio::test]
async fn a_refusal_repeats_what_was_asked_for_short_and_escaped() {
    let world = World::new().await;
    let _node = world.node().await;
    let names = [
        encoded(&format!("{EVIL}{}", "y".repeat(LONG))),
        // Nothing that has to be escaped, and as long.
        "N".repeat(LONG),
    ];
    for (path, behind) in REPEATED {
        for name in &names {
            let answer = world.send("GET", &path.replace("{}", name), "1.39").await;
            is_shown(&answer.body, path);
            let (status, detail) = answer.fault();
            assert!((400..500).contains(&status), "{path}: {answer:?}");
            is_shown(&detail, path);
            assert!(detail.len() < SHORT, "{path}: {detail}");
            assert!(detail.contains(behind), "{path}: {detail}");
        }
    }
    for header in [
        format!("openstack-api-version: placement {}", "9".repeat(LONG)),
        format!("openstack-api-version: placement 1.{}", "9".repeat(LONG)),
    ] {
        let request = format!(
            "GET /traits HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\nx-auth-token: {TOKEN}\r\n{header}\r\n\r\n"
        );
        let (_, detail) = world.raw(&request).await.fault();
        assert!(detail.len() < SHORT, "{header}: {detail}");
    }
    let (status, detail) = world.send(&"M".repeat(LONG), "/traits", "").await.fault();
    assert!(status >= 400 && detail.len() < SHORT, "{detail}");
    for line in world.daemon.log() {
        is_shown(&line, "the log");
        assert!(line.len() < 2 * SHORT, "{line}");
    }
}
