//! Peers written in Go (`go/peer`), with Go's own gob and TLS, against the built daemon: what controllers and launchers
//! of the original meet.
//!
//! They need `go`. Where it is missing the tests say so and pass, unless `CIAO_REQUIRE_GO=1`.

#![allow(clippy::unwrap_used, reason = "a test ends where it fails")]

#[path = "common/certs.rs"]
mod certs;
#[path = "common/peer.rs"]
mod peer;
#[path = "common/site.rs"]
mod site;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

use ciao_scheduler::cert::{KeyAlgorithm, Shape, Spec};
use proto_frames::Role;

use certs::TestCa;
use site::{Site, output, repository};

/// What cloud-init data original controllers send along, in bytes.
const CLOUD_INIT: usize = 20 * 1024;

#[tokio::test]
async fn go_peers_with_rsa_certificates_over_tls_1_2() {
    go_peers(KeyAlgorithm::Rsa2048, "1.2").await;
}

#[tokio::test]
async fn go_peers_with_rsa_certificates_over_tls_1_3() {
    go_peers(KeyAlgorithm::Rsa2048, "1.3").await;
}

#[tokio::test]
async fn go_peers_with_ecdsa_certificates_over_tls_1_2() {
    go_peers(KeyAlgorithm::EcdsaP256, "1.2").await;
}

#[tokio::test]
async fn go_peers_with_ecdsa_certificates_over_tls_1_3() {
    go_peers(KeyAlgorithm::EcdsaP256, "1.3").await;
}

#[tokio::test]
async fn go_peers_with_certificates_that_are_for_https_as_well() {
    for tls in ["1.2", "1.3"] {
        go_peers_with(Shape::Identified, KeyAlgorithm::EcdsaP256, tls).await;
    }
}

/// The Go program, all certificates shaped as the original's tool makes them.
async fn go_peers(key: KeyAlgorithm, tls: &str) {
    go_peers_with(Shape::Original, key, tls).await;
}

/// Runs the Go program against a daemon of its own, with certificates of this shape.
async fn go_peers_with(shape: Shape, key: KeyAlgorithm, tls: &str) {
    let Some(program) = &*PROGRAM else {
        let is_required = std::env::var_os("CIAO_REQUIRE_GO").is_some_and(|value| value == "1");
        assert!(!is_required, "go is required");
        eprintln!("skipped: go is not installed");
        return;
    };
    let spec = |roles| Spec {
        key,
        shape,
        ..Spec::localhost(roles)
    };
    let site = Site::with(TestCa::with(&spec(Role::SCHEDULER)));
    for (name, roles) in [
        ("controller", Role::CONTROLLER),
        ("agent", Role::AGENT),
        ("netagent", Role::NETAGENT),
    ] {
        let leaf = site.ca.anchor.sign(&spec(roles)).unwrap();
        std::fs::write(site.path(&format!("{name}.pem")), leaf.pem()).unwrap();
    }
    std::fs::write(site.path("configuration.yaml"), CONFIGURATION).unwrap();
    std::fs::write(site.path("start.yaml"), start()).unwrap();
    let daemon = site.start(&[]).await;

    let mut command = tokio::process::Command::new(program);
    command
        .args(["-address", &daemon.address.to_string(), "-tls", tls])
        .arg("-certs")
        .arg(site.path(""))
        .arg("-start")
        .arg(site.path("start.yaml"));
    let output = output(command).await;
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{key:?}, TLS {tls}: {said}");
}

/// What the original requires, and nothing that has a default.
const CONFIGURATION: &str = "\
configure:
  scheduler: {storage_uri: /etc/ciao/configuration.yaml}
  controller: {compute_ca: /ca.pem, compute_cert: /cert.pem, client_auth_ca_cert_path: /clients.pem}
";

/// A START as original controllers send it: three documents, the second of them large and full of brackets and braces.
fn start() -> String {
    let golden = repository("proto-frames/tests/golden/start-three-documents.yaml");
    let golden = std::fs::read_to_string(golden).unwrap();
    let (before, after) = golden.split_once("runcmd:\n").expect("cloud-init data");
    let mut start = before.to_owned();
    for n in 0.. {
        if start.len() >= before.len() + CLOUD_INIT {
            break;
        }
        start.push_str(&format!("# {n} {{\"a\": [[[[{{{{[]}}}}]]]]}} [{{\n"));
    }
    start + "runcmd:\n" + after
}

/// The built program; `None` where Go is not installed.
static PROGRAM: LazyLock<Option<PathBuf>> = LazyLock::new(|| {
    Command::new("go").arg("version").output().ok()?;
    let target = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let program = target.join("go_peer");
    let status = Command::new("go")
        .args(["build", "-o"])
        .arg(&program)
        .arg(".")
        .current_dir(repository("tests/go/peer"))
        .env("GOCACHE", target.join("go-build"))
        .status()
        .expect("go runs");
    assert!(status.success(), "tests/go/peer does not build");
    Some(program)
});
