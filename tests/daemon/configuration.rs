//! The cluster configuration: read at the start, carried by CONNECTED, replaced by CONFIGURE.

use proto_frames::payload::{Configuration, Payload};
use proto_frames::{Encoding, Kind, Role};
use tokio::process::Command;

use crate::boot::refused;
use crate::site::{Site, output, repository};

const FIRST: &str = "\
configure:
  scheduler:
    storage_uri: file:///etc/ciao/configuration.yaml
  controller:
    compute_ca: /etc/ciao/ca.pem
    compute_cert: /etc/ciao/cert.pem
    client_auth_ca_cert_path: /etc/ciao/clients.pem
";

/// What the original fills in of [`FIRST`] before it sends it.
const DEFAULTS: [&str; 7] = [
    "ciao_port: 8889",
    "cnci_vcpus: 4",
    "cnci_mem: 2048",
    "cnci_disk: 2048",
    "cnci_net: 192.168.0.0",
    "disk_limit: true",
    "mem_limit: true",
];

const SECOND: &str = "configure:  # by hand\n  launcher: {mem_limit: false}\n";

#[tokio::test]
async fn native_peers_get_the_file_byte_for_byte_and_original_ones_with_the_originals_defaults() {
    let site = Site::new();
    let file = format!("{FIRST}  unknown: [a, b]\n");
    std::fs::write(site.path("configuration.yaml"), &file).unwrap();
    let daemon = site.start(&[]).await;
    let native = site.connect(&daemon, Role::AGENT, Encoding::Native).await;
    assert_eq!(native.connected.payload, file);
    let original = site.connect(&daemon, Role::AGENT, Encoding::Gob).await;
    let payload = String::from_utf8(original.connected.payload.to_vec()).unwrap();
    for line in DEFAULTS.iter().copied().chain(FIRST.lines()).chain(["- a"]) {
        assert!(payload.contains(line.trim()), "{line} in {payload}");
    }
    let read = |text: &str| Configuration::decode(text.as_bytes()).unwrap();
    assert_eq!(read(&payload), read(FIRST));
    assert!(daemon.log().iter().all(|line| !line.contains("WARN")));
}

#[tokio::test]
async fn a_cluster_on_one_machine_takes_a_configuration_as_well() {
    let site = Site::new();
    let file = site.path("policy.yaml");
    std::fs::write(
        &file,
        "configure: {scheduler: {policy: {weighers: [{name: fastest}]}}}\n",
    )
    .unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_ciao-scheduler"));
    command
        .args(["dev", "--port", "0", "--configuration-uri"])
        .arg(format!("file://{}", file.display()));
    let said = refused(command).await;
    assert!(said.contains("fastest"), "{said}");
}

#[tokio::test]
async fn dev_warns_of_misspelt_keys_of_a_start_and_starts_nothing_without_a_program() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("start.yaml");
    std::fs::write(
        &file,
        "start:\n  vm_type: process\n  comand: [sleep, \"1\"]\n  requirements: {mem_mb: 1}\n",
    )
    .unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_ciao-scheduler"));
    command.args(["dev", "--port", "0", "--start"]).arg(&file);
    let output = output(command).await;
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    for part in [
        "line 3: start.comand: no such key, ignored; did you mean 'command'?",
        "start.command is missing or empty",
    ] {
        assert!(said.contains(part), "{said}");
    }
}

#[tokio::test]
async fn original_peers_get_nothing_where_a_required_key_is_missing_and_the_start_says_so() {
    let site = Site::new();
    std::fs::write(site.path("configuration.yaml"), SECOND).unwrap();
    let daemon = site.start(&[]).await;
    daemon
        .logged("no value for configure.scheduler.storage_uri")
        .await;
    let original = site.connect(&daemon, Role::AGENT, Encoding::Gob).await;
    assert!(original.connected.payload.is_empty());
    let native = site.connect(&daemon, Role::AGENT, Encoding::Native).await;
    assert_eq!(native.connected.payload, SECOND);
    assert!(daemon.log().iter().all(|line| !line.contains("WARN")));
}

#[tokio::test]
async fn without_a_file_connected_carries_nothing_and_the_log_says_so() {
    let (site, daemon) = Site::running().await;
    daemon.logged("default placement").await;
    let node = site.connect(&daemon, Role::AGENT, Encoding::Gob).await;
    assert!(node.connected.payload.is_empty());
}

#[tokio::test]
async fn a_configuration_that_is_missing_or_cannot_be_parsed_stops_the_start() {
    let site = Site::new();
    let uri = format!("file://{}", site.path("none.yaml").display());
    let words = refused(site.command(&["-configuration-uri", &uri])).await;
    assert!(
        words.contains(&format!("configuration {uri}: No such file")),
        "{words}"
    );
    let words = refused(site.command(&["-configuration-uri", "etcd://a/b"])).await;
    assert!(words.contains("scheme 'etcd' is not supported"), "{words}");
    for (text, mistake) in [
        ("configure: [", "not valid YAML"),
        (
            "configure:\n  launcher: {mem_limit: maybe}\n",
            "configure.launcher.mem_limit, line 2 ",
        ),
        (
            "configure:\n  scheduler: {polcy: {}}\n",
            "configure.scheduler.polcy, line 2 ",
        ),
    ] {
        std::fs::write(site.path("configuration.yaml"), text).unwrap();
        let words = refused(site.command(&[])).await;
        assert!(words.contains(mistake), "{text:?}: {words}");
    }
}

#[tokio::test]
async fn configure_changes_what_later_peers_are_told_and_is_not_forwarded() {
    let site = Site::new();
    std::fs::write(site.path("configuration.yaml"), FIRST).unwrap();
    let daemon = site.start(&[]).await;
    let mut controller = site.connect(&daemon, Role::CONTROLLER, Encoding::Gob).await;
    let mut node = site.connect(&daemon, Role::AGENT, Encoding::Gob).await;
    controller.expect_node().await;
    controller.send(Kind::CONFIGURE, SECOND).await;
    controller.nothing_else().await;
    node.nothing_else().await;
    daemon
        .logged("COMMAND CONFIGURE of the cluster configuration by O=ciao (CONTROLLER ")
        .await;
    let later = site
        .connect(&daemon, Role::NETAGENT, Encoding::Native)
        .await;
    assert_eq!(later.connected.payload, SECOND);
    let original = site.connect(&daemon, Role::NETAGENT, Encoding::Gob).await;
    let payload = String::from_utf8(original.connected.payload.to_vec()).unwrap();
    assert!(payload.contains("ciao_port: 8889"), "{payload}");
    assert!(payload.contains("mem_limit: false"), "{payload}");
    daemon
        .logged("no value for configure.scheduler.storage_uri")
        .await;
}

#[tokio::test]
async fn a_configure_that_cannot_be_read_comes_back_and_changes_nothing() {
    let site = Site::new();
    std::fs::write(site.path("configuration.yaml"), FIRST).unwrap();
    let daemon = site.start(&[]).await;
    for (role, encoding) in [
        (Role::CONTROLLER, Encoding::Gob),
        (Role::OPERATOR, Encoding::Native),
    ] {
        let mut sender = site.connect(&daemon, role, encoding).await;
        let malformed = "configure: [\n  launcher";
        sender.send(Kind::CONFIGURE, malformed).await;
        let answer = sender.expect(Kind::INVALID_CONFIGURATION).await;
        assert_eq!(answer.payload, malformed);
        sender.nothing_else().await;
    }
    let later = site.connect(&daemon, Role::AGENT, Encoding::Native).await;
    assert_eq!(later.connected.payload, FIRST);
}

#[tokio::test]
async fn the_smallest_configuration_that_switches_preemption_on_warns_of_nothing() {
    let site = Site::new();
    let text = "configure:\n  scheduler:\n    policy:\n      preemption: true\n";
    let guide = std::fs::read_to_string(repository("docs/how-to/priorities.md")).unwrap();
    assert!(guide.contains(text), "the guide shows another one");
    std::fs::write(site.path("configuration.yaml"), text).unwrap();
    let state_dir = site.path("state").display().to_string();
    let daemon = site.start(&["-state-dir", &state_dir]).await;
    let node = site.connect(&daemon, Role::AGENT, Encoding::Native).await;
    assert_eq!(node.connected.payload, text);
    let log = daemon.log();
    assert!(log.iter().all(|line| !line.contains(" WARN ")), "{log:#?}");
}
