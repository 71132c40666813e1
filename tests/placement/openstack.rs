//! OpenStack's own client, with its plug-in for Placement.

use std::ffi::OsString;

use proto_frames::Kind;
use proto_frames::payload::Payload;
use serde_json::Value;
use tokio::process::Command;

use crate::client::{NODE, TOKEN, World};
use crate::site::output;
use crate::words::{instance, start_of};

/// The client's program: that of the variable `CIAO_OPENSTACK`, else the one in `PATH`.
fn program() -> OsString {
    std::env::var_os("CIAO_OPENSTACK").unwrap_or_else(|| "openstack".into())
}

/// Whether the client and its plug-in are there.
async fn is_installed() -> bool {
    let asked = Command::new(program())
        .args(["resource", "provider", "list", "--help"])
        .output();
    let is_there = asked.await.is_ok_and(|output| output.status.success());
    let is_required = std::env::var_os("CIAO_REQUIRE_OPENSTACK").is_some_and(|value| value == "1");
    assert!(
        is_there || !is_required,
        "openstack with osc-placement is required"
    );
    if !is_there {
        eprintln!("skipped: there is no openstack with osc-placement");
    }
    is_there
}

/// What a command of the client shows, as JSON.
async fn shown(world: &World, words: &[&str]) -> Value {
    shown_at(world, &format!("http://{}", world.address), words).await
}

/// The same of this endpoint.
async fn shown_at(world: &World, endpoint: &str, words: &[&str]) -> Value {
    let mut command = Command::new(program());
    command
        .args(words)
        .args(["-f", "json"])
        .env("OS_AUTH_TYPE", "admin_token")
        .env("OS_ENDPOINT", endpoint)
        .env("OS_CACERT", world.site.path("CAcert.pem"))
        .env("OS_TOKEN", TOKEN)
        .kill_on_drop(true);
    let output = output(command).await;
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{words:?}: {said}");
    serde_json::from_slice(&output.stdout).unwrap()
}

#[tokio::test]
async fn the_openstack_client_lists_providers_inventories_usages_traits_and_candidates() {
    if !is_installed().await {
        return;
    }
    let world = World::new().await;
    let mut node = world.node().await;
    let mut master = world.site.master(&world.daemon).await;
    master.expect_node().await;
    master
        .send(Kind::START, start_of(instance(1), 1024).encode())
        .await;
    let started = node.expect_start().await.to_string();
    let uuid = NODE.to_string();
    let version = ["--os-placement-api-version", "1.39"];
    let ask = async |words: &[&str]| shown(&world, &[&version[..], words].concat()).await;

    let providers = ask(&["resource", "provider", "list"]).await;
    assert_eq!(providers[0]["name"], "first", "{providers}");
    let provider = ask(&["resource", "provider", "show", &uuid]).await;
    assert_eq!(provider["uuid"], uuid, "{provider}");
    let inventories = ask(&["resource", "provider", "inventory", "list", &uuid]).await;
    assert_eq!(inventories.as_array().unwrap().len(), 4, "{inventories}");
    let usages = ask(&["resource", "provider", "usage", "show", &uuid]).await;
    assert!(usages.to_string().contains("1024"), "{usages}");
    let traits = ask(&["resource", "provider", "trait", "list", &uuid]).await;
    assert!(traits.to_string().contains("CUSTOM_ZONE_EU_1"), "{traits}");
    let aggregates = ask(&["resource", "provider", "aggregate", "list", &uuid]).await;
    assert_eq!(aggregates.as_array().unwrap().len(), 1, "{aggregates}");
    let allocation = ask(&["resource", "provider", "allocation", "show", &started]).await;
    assert_eq!(allocation[0]["resource_provider"], uuid, "{allocation}");
    let classes = ask(&["resource", "class", "list"]).await;
    assert!(classes.to_string().contains("CUSTOM_GPU"), "{classes}");
    let asked = [
        "--resource",
        "VCPU=1",
        "--resource",
        "MEMORY_MB=512",
        "--limit",
        "1",
    ];
    let candidates = [&["allocation", "candidate", "list"], &asked[..]].concat();
    let candidates = ask(&candidates).await;
    assert_eq!(candidates[0]["resource provider"], uuid, "{candidates}");
}

#[tokio::test]
async fn the_openstack_client_narrows_lists_and_sums_up_usages_in_old_versions_and_new() {
    const TENANT: &str = "6b9f64e5-6be8-4a12-a0bb-fc24d9ff71e6";
    if !is_installed().await {
        return;
    }
    let world = World::new().await;
    let mut node = world.node().await;
    let mut master = world.site.master(&world.daemon).await;
    master.expect_node().await;
    let mut start = start_of(instance(1), 1024);
    TENANT.clone_into(&mut start.tenant_uuid);
    master.send(Kind::START, start.encode()).await;
    node.expect_start().await;
    let uuid = NODE.to_string();
    // Without a version the client asks in the oldest one.
    let old = async |words: &[&str]| shown(&world, words).await;
    let providers = old(&["resource", "provider", "list"]).await;
    assert_eq!(providers[0]["name"], "first", "{providers}");
    let inventories = old(&["resource", "provider", "inventory", "list", &uuid]).await;
    assert_eq!(inventories.as_array().unwrap().len(), 4, "{inventories}");
    let usages = old(&["resource", "provider", "usage", "show", &uuid]).await;
    assert!(usages.to_string().contains("1024"), "{usages}");

    let version = ["--os-placement-api-version", "1.39"];
    let ask = async |words: &[&str]| shown(&world, &[&version[..], words].concat()).await;
    let aggregates = ask(&["resource", "provider", "aggregate", "list", &uuid]).await;
    let aggregate = aggregates[0]["uuid"].as_str().unwrap().to_owned();
    let nowhere = "00000000-0000-0000-0000-000000000001";
    let list = ["resource", "provider", "list"];
    let candidates = ["allocation", "candidate", "list", "--resource", "VCPU=1"];
    for (narrowed, count) in [
        (["--member-of", &aggregate], 1),
        (["--member-of", nowhere], 0),
        (["--required", "CUSTOM_ZONE_EU_1"], 1),
        (["--required", "COMPUTE_NODE"], 1),
        (["--required", "HW_CPU_X86_VMX"], 0),
        (["--forbidden", "COMPUTE_STATUS_DISABLED"], 1),
    ] {
        for command in [&list[..], &candidates] {
            let rows = ask(&[command, &narrowed].concat()).await;
            let count_of = rows.as_array().map(Vec::len);
            assert_eq!(count_of, Some(count), "{command:?} {narrowed:?}: {rows}");
        }
    }
    // By class before 1.38, by type of consumer since.
    let by_class = ["--os-placement-api-version", "1.37"];
    let show = ["resource", "usage", "show", TENANT];
    for (version, row) in [(by_class, "MEMORY_MB"), (version, "INSTANCE")] {
        let usages = shown(&world, &[&version[..], &show].concat()).await;
        let mut rows = usages.as_array().unwrap().iter();
        let row = rows.find(|it| it["resource_class"] == row);
        let usage = row.map(|it| it["usage"].to_string()).unwrap_or_default();
        assert!(usage.contains("1024"), "{usages}");
    }
}

#[tokio::test]
async fn the_openstack_client_asks_below_the_http_door_with_its_token_alone() {
    if !is_installed().await {
        return;
    }
    let world = World::mounted().await;
    let _node = world.node().await;
    let endpoint = format!("https://localhost:{}/placement", world.address.port());
    let asked = ["--resource", "VCPU=1", "--limit", "1"];
    let version = ["--os-placement-api-version", "1.39"];
    let candidates = ["allocation", "candidate", "list"];
    let words = [&version[..], &candidates, &asked].concat();
    let candidates = shown_at(&world, &endpoint, &words).await;
    let uuid = NODE.to_string();
    assert_eq!(candidates[0]["resource provider"], uuid, "{candidates}");
    let provider = ["resource", "provider", "show", &uuid];
    let provider = shown_at(&world, &endpoint, &provider).await;
    assert_eq!(provider["name"], "first", "{provider}");
}
