//! What is not answered as asked: without a token, in no version, at no path, or to write.

use std::fs::Permissions;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;

use crate::client::{NODE, TOKEN, World};
use crate::site::{Site, output};

/// A request of these header lines.
fn request(path: &str, headers: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{headers}\r\n")
}

#[tokio::test]
async fn only_the_versions_are_told_without_a_token() {
    let world = World::new().await;
    let versions = world.raw(&request("/", "")).await.ok();
    let version = &versions["versions"][0];
    assert_eq!(version["id"], "v1.0");
    assert_eq!(version["min_version"], "1.0");
    assert_eq!(version["max_version"], "1.39");
    assert_eq!(version["status"], "CURRENT");
    for headers in ["", "x-auth-token: \r\n", "x-auth-token: a-token\r\n"] {
        let answer = world.raw(&request("/resource_providers", headers)).await;
        assert_eq!(answer.fault().0, 401, "{headers}");
    }
    let token = format!("x-auth-token: {TOKEN}\r\n");
    let answer = world.raw(&request("/resource_providers", &token)).await;
    answer.ok();
    assert!(answer.head.contains("openstack-api-version: placement 1.0"));
    assert!(answer.head.contains("vary: openstack-api-version"));
    let log = world.daemon.log().join("\n");
    assert!(!log.contains(TOKEN), "{log}");
}

#[tokio::test]
async fn versions_that_are_not_offered_are_refused_with_those_that_are() {
    let world = World::new().await;
    let answer = world.send("GET", "/resource_providers", "1.40").await;
    assert_eq!(answer.fault().0, 406);
    assert!(
        answer.body.contains(r#""max_version":"1.39""#),
        "{answer:?}"
    );
    assert!(answer.body.contains(r#""min_version":"1.0""#), "{answer:?}");
    for path in ["/resource_providers", "/"] {
        let answer = world.send("GET", path, "new").await;
        assert_eq!(answer.fault().0, 400, "{path}");
    }
    let answer = world.send("GET", "/resource_providers", "latest").await;
    answer.ok();
    assert!(
        answer
            .head
            .contains("openstack-api-version: placement 1.39")
    );
}

#[tokio::test]
async fn what_takes_no_json_is_not_acceptable() {
    let world = World::new().await;
    let token = format!("x-auth-token: {TOKEN}\r\n");
    for (accept, status) in [
        ("text/plain", 406),
        ("text/html, application/xml;q=0.9", 406),
        ("application/json", 200),
        ("text/html, application/*;q=0.1", 200),
        ("text/html,*/*;q=0.8", 200),
    ] {
        let headers = format!("{token}accept: {accept}\r\n");
        let answer = world.raw(&request("/resource_providers", &headers)).await;
        assert_eq!(answer.status, status, "{accept}");
        assert!(!answer.body.contains("max_version"), "{answer:?}");
    }
}

#[tokio::test]
async fn nothing_can_be_written() {
    let world = World::new().await;
    let _node = world.node().await;
    for method in ["PUT", "POST", "DELETE", "PATCH"] {
        let path = format!("/resource_providers/{NODE}/inventories");
        let answer = world.send(method, &path, "1.29").await;
        let (status, detail) = answer.fault();
        assert_eq!(status, 405);
        assert!(detail.contains("can only be read"), "{detail}");
        assert!(answer.head.contains("allow: get"), "{answer:?}");
    }
    world.below("", "1.29").await;
}

/// As in Placement, whose clients tell a service without `/reshaper` (404) from one that does not do it now.
#[tokio::test]
async fn what_placement_has_and_nobody_can_read_is_known() {
    let world = World::new().await;
    for path in ["/allocations", "/reshaper"] {
        for (method, version) in [("GET", "1.0"), ("GET", "1.39"), ("POST", "1.39")] {
            let answer = world.send(method, path, version).await;
            let (status, detail) = answer.fault();
            assert_eq!(status, 405, "{method} {path}");
            assert!(
                detail.contains(&format!("method {method} is not")),
                "{detail}"
            );
            let mut lines = answer.head.lines();
            assert!(lines.any(|line| line.trim_end() == "allow:"), "{answer:?}");
        }
    }
    // What is no path is none for any method.
    for method in ["GET", "PUT", "POST", "DELETE"] {
        assert_eq!(world.send(method, "/nothing", "1.39").await.fault().0, 404);
    }
}

/// A path, a version, and what of it is refused: the status, and a part of the detail.
type Refused<'a> = (&'a str, &'a str, u16, &'a str);

/// What the live table has no part in.
const REFUSED: &[Refused<'_>] = &[
    ("/nothing", "1.39", 404, "could not be found"),
    (
        "/allocation_candidates?resources=VCPU:1",
        "1.9",
        404,
        "could not be found",
    ),
    ("/traits", "1.5", 404, "could not be found"),
    ("/resource_classes/CUSTOM_NONE", "1.39", 404, "CUSTOM_NONE"),
    ("/traits/CUSTOM_NONE", "1.39", 404, "CUSTOM_NONE"),
    ("/traits/HW_NONE", "1.39", 404, "No such trait(s): HW_NONE."),
    (
        "/resource_providers?required=HW_NONE",
        "1.39",
        400,
        "No such trait(s): HW_NONE.",
    ),
    (
        "/allocation_candidates?resources=VCPU:1&required=!COMPUTE_NONE",
        "1.39",
        400,
        "No such trait(s): COMPUTE_NONE.",
    ),
    ("/resource_providers?colour=red", "1.39", 400, "colour"),
    (
        "/resource_providers?required=CUSTOM_ZONE_EU_1",
        "1.17",
        400,
        "required",
    ),
    ("/resource_providers?uuid=first", "1.39", 400, "first"),
    (
        "/allocation_candidates",
        "1.39",
        400,
        "There must be at least one resources",
    ),
    (
        "/allocation_candidates?resources=VCPU",
        "1.39",
        400,
        "Got: VCPU",
    ),
    (
        "/allocation_candidates?resources=VCPU:0",
        "1.39",
        400,
        "Got: VCPU:0",
    ),
    (
        "/allocation_candidates?resources=CUSTOM_NONE:1",
        "1.39",
        400,
        "No such resource class CUSTOM_NONE",
    ),
    (
        "/allocation_candidates?resources=VCPU:1&required=CUSTOM_NONE",
        "1.39",
        400,
        "No such trait(s): CUSTOM_NONE",
    ),
    (
        "/allocation_candidates?resources=VCPU:1&limit=0",
        "1.39",
        400,
        "limit",
    ),
    (
        "/allocation_candidates?resources=VCPU:1&limit=1",
        "1.15",
        400,
        "limit",
    ),
    (
        "/allocation_candidates?resources=VCPU:1&member_of=in:ssd",
        "1.39",
        400,
        "ssd",
    ),
];

#[tokio::test]
async fn what_there_is_not_is_named() {
    let world = World::new().await;
    let _node = world.node().await;
    let unknown = "00000000-0000-0000-0000-000000000001";
    let of_nodes = [
        (format!("/resource_providers/{unknown}"), unknown),
        (
            format!("/resource_providers/{NODE}/aggregates"),
            "could not be found",
        ),
        (
            format!("/resource_providers/{NODE}/inventories/VGPU"),
            "VGPU",
        ),
    ];
    let of_nodes = of_nodes
        .iter()
        .map(|(path, part)| (&**path, "1.0", 404, *part));
    for (path, version, status, part) in of_nodes.chain(REFUSED.iter().copied()) {
        let (found, detail) = world.send("GET", path, version).await.fault();
        assert_eq!(found, status, "{path}: {detail}");
        assert!(detail.contains(part), "{path}: {detail}");
    }
}

/// Runs a daemon that cannot start; what it says.
async fn refused(site: &Site, flags: &[&str]) -> String {
    let output = output({
        let mut command = site.command(flags);
        command.stderr(std::process::Stdio::piped());
        command
    })
    .await;
    assert!(!output.status.success());
    String::from_utf8(output.stderr).unwrap()
}

#[tokio::test]
async fn it_does_not_start_where_it_would_be_open_to_others() {
    let site = Site::new();
    let tokens = site.path("tokens").display().to_string();
    let said = refused(&site, &["-placement", "127.0.0.1:0"]).await;
    assert!(said.contains("--placement-tokens"), "{said}");
    let flags = ["-placement", "127.0.0.1:0", "-placement-tokens", &tokens];
    let said = refused(&site, &flags).await;
    assert!(said.contains("cannot use the tokens in"), "{said}");
    std::fs::write(&tokens, "# nobody\n").unwrap();
    let said = refused(&site, &flags).await;
    assert!(said.contains("there is no token in it"), "{said}");
    std::fs::write(&tokens, TOKEN).unwrap();
    std::fs::set_permissions(&tokens, Permissions::from_mode(0o644)).unwrap();
    let strict = [&flags[..], &["-strict-files"]].concat();
    let said = refused(&site, &strict).await;
    assert!(said.contains("others can read it (mode 0644)"), "{said}");
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let said = refused(
        &site,
        &["-placement", &address, "-placement-tokens", &tokens],
    )
    .await;
    assert!(
        said.contains(&format!("cannot listen on {address}")),
        "{said}"
    );
}

#[tokio::test]
async fn tokens_are_let_in_and_withdrawn_without_a_restart() {
    const NEXT: &str = "the-next-token-of-a-test";
    let world = World::new().await;
    let asked = async |token: &str| {
        let headers = format!("x-auth-token: {token}\r\n");
        world
            .raw(&request("/resource_providers", &headers))
            .await
            .status
    };
    world.site.write_tokens(&format!("{TOKEN}\n{NEXT}\n"));
    world.daemon.logged("tokens of the Placement API: 2").await;
    assert_eq!((asked(TOKEN).await, asked(NEXT).await), (200, 200));
    world.site.write_tokens(&format!("{NEXT}\n"));
    world.daemon.logged("tokens of the Placement API: 1").await;
    assert_eq!((asked(TOKEN).await, asked(NEXT).await), (401, 200));
    // A mistake withdraws nothing, and is said.
    world.site.write_tokens("two words\n");
    let line = world.daemon.logged("stay as they were").await;
    assert!(line.contains("line 1"), "{line}");
    assert_eq!((asked(TOKEN).await, asked(NEXT).await), (401, 200));
    // An operator who takes the last one out means it.
    world.site.write_tokens("# nobody\n");
    world.daemon.logged("tokens of the Placement API: 0").await;
    assert_eq!((asked(TOKEN).await, asked(NEXT).await), (401, 401));
    let log = world.daemon.log().join("\n");
    assert!(!log.contains(NEXT) && !log.contains("two words"), "{log}");
}
