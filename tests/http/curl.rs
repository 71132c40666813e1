//! `curl` as a foreign program: with certificates of `ciao-cert` and nothing switched off.
//!
//! Where it is missing the tests say so and pass, unless `CIAO_REQUIRE_CURL=1`.

use std::process::Command;

use ciao_scheduler::cert::{Shape, Spec};
use proto_frames::Role;

use crate::certs::{TestCa, write_private};
use crate::client::http_address;
use crate::images::digest;
use crate::site::{Daemon, Site, output};

fn has_curl() -> bool {
    let found = Command::new("curl").arg("--version").output().is_ok();
    let is_required = std::env::var_os("CIAO_REQUIRE_CURL").is_some_and(|value| value == "1");
    assert!(found || !is_required, "curl is required");
    if !found {
        eprintln!("skipped: curl is not installed");
    }
    found
}

/// What curl prints of the status and whether it is content.
async fn curl(site: &Site, daemon: &Daemon, arguments: &[&str]) -> (bool, String) {
    curl_to("/v1/status", site, daemon, arguments).await
}

/// The same of any path.
async fn curl_to(path: &str, site: &Site, daemon: &Daemon, arguments: &[&str]) -> (bool, String) {
    let port = http_address(daemon).await.port();
    let mut command = tokio::process::Command::new("curl");
    command
        .args([
            "--silent",
            "--show-error",
            "--fail-with-body",
            "--noproxy",
            "*",
        ])
        .arg("--cacert")
        .arg(site.path("CAcert.pem"))
        .args(arguments)
        .arg(format!("https://localhost:{port}{path}"));
    let output = output(command).await;
    let text = [output.stdout, output.stderr].concat();
    (
        output.status.success(),
        String::from_utf8_lossy(&text).into_owned(),
    )
}

#[tokio::test]
async fn curl_reads_with_a_viewers_certificate_and_is_refused_without_one() {
    if !has_curl() {
        return;
    }
    let (site, daemon) = Site::with_http(&[]).await;
    let viewer = site.ca.anchor.sign(&Spec::localhost(Role::VIEWER)).unwrap();
    let path = site.path("viewer.pem");
    write_private(&path, viewer.pem());
    let path = path.to_str().unwrap();
    for version in ["--http1.1", "--http2"] {
        let (fine, said) = curl(&site, &daemon, &["--cert", path, version]).await;
        assert!(fine && said.contains("\"version\""), "{version}: {said}");
    }
    let (fine, said) = curl(&site, &daemon, &[]).await;
    assert!(!fine, "{said}");
}

#[tokio::test]
async fn curl_sees_why_its_request_with_a_body_is_refused_over_either_protocol() {
    /// As often as a reset that is seen in a tenth of them would hardly be missed.
    const TIMES: usize = 25;
    if !has_curl() {
        return;
    }
    let (site, daemon) = Site::with_http(&[]).await;
    let viewer = site.ca.anchor.sign(&Spec::localhost(Role::VIEWER)).unwrap();
    let path = site.path("viewer.pem");
    write_private(&path, viewer.pem());
    let body = site.path("body");
    std::fs::write(&body, "x".repeat(200 * 1024)).unwrap();
    let data = format!("@{}", body.display());
    let path = path.to_str().unwrap();
    for version in ["--http1.1", "--http2"] {
        for (to, reason) in [
            ("/v1/instances", "not_permitted"),
            ("/v1/explain?unknown=1", "invalid_parameter"),
            ("/v1/none", "no_such_path"),
            ("/v1/nodes", "method_not_allowed"),
        ] {
            for _ in 0..TIMES {
                let arguments = ["--cert", path, version, "--data-binary", &data];
                let (_, said) = curl_to(to, &site, &daemon, &arguments).await;
                assert!(said.contains(reason), "{version} {to}: {said}");
            }
        }
    }
}

#[tokio::test]
async fn curl_asks_the_placement_api_with_a_token_alone_over_either_protocol() {
    if !has_curl() {
        return;
    }
    let site = Site::new();
    let tokens = site.path("tokens");
    write_private(&tokens, "a-token-of-a-test\n");
    let tokens = tokens.display().to_string();
    let flags = ["--http", "127.0.0.1:0", "--placement-tokens", &tokens];
    let daemon = site.start(&flags).await;
    let path = "/placement/resource_providers";
    for version in ["--http1.1", "--http2"] {
        let asked = ["--header", "X-Auth-Token: a-token-of-a-test", version];
        let (fine, said) = curl_to(path, &site, &daemon, &asked).await;
        assert!(fine && said.contains("\"resource_providers\":[]"), "{said}");
        let (fine, said) = curl_to(path, &site, &daemon, &[version]).await;
        assert!(!fine && said.contains("\"status\":401"), "{said}");
        let (fine, said) = curl_to("/v1/nodes", &site, &daemon, &asked).await;
        assert!(!fine && said.contains("not_permitted"), "{said}");
    }
}

#[tokio::test]
async fn curl_uploads_an_image_over_either_protocol_and_one_that_is_there_is_not_sent() {
    if !has_curl() {
        return;
    }
    let site = Site::new();
    let blobs = site.path("blobs").display().to_string();
    let daemon = site
        .start(&["--http", "127.0.0.1:0", "--blob-dir", &blobs])
        .await;
    let controller = site.ca.anchor.sign(&Spec::localhost(Role::CONTROLLER));
    let cert = site.path("http-controller.pem");
    write_private(&cert, controller.unwrap().pem());
    for version in ["--http1.1", "--http2"] {
        let image = version.repeat(100_000);
        let file = site.path("image");
        std::fs::write(&file, &image).unwrap();
        let path = format!("/v1/images/{}", digest(image.as_bytes()));
        for expected in ["201", "200"] {
            let arguments = [
                "--cert",
                cert.to_str().unwrap(),
                version,
                "--write-out",
                " %{http_code}",
                "--upload-file",
                file.to_str().unwrap(),
            ];
            let (fine, said) = curl_to(&path, &site, &daemon, &arguments).await;
            assert!(fine && said.ends_with(expected), "{version}: {said}");
            let bytes = format!("\"bytes\":{}", image.len());
            assert!(said.contains(&bytes), "{version}: {said}");
        }
    }
}

#[tokio::test]
async fn a_certificate_that_curl_refuses_is_said_at_start_with_the_command_that_mends_it() {
    if !has_curl() {
        return;
    }
    let old = Spec {
        shape: Shape::Original,
        ..Spec::localhost(Role::SCHEDULER)
    };
    let site = Site::with(TestCa::with(&old));
    let daemon = site.start(&["--http", "127.0.0.1:0"]).await;
    let line = daemon.logged("browsers will refuse").await;
    assert!(line.contains("ciao-cert -renew"), "{line}");
    let controller = site.path("controller.pem");
    let (fine, said) = curl(&site, &daemon, &["--cert", controller.to_str().unwrap()]).await;
    assert!(!fine, "{said}");
    // The very command.
    let renew = Command::new(env!("CARGO_BIN_EXE_ciao-cert"))
        .arg("-renew")
        .arg(site.path("scheduler.pem"))
        .arg("-directory")
        .arg(site.path("new"))
        .output()
        .unwrap();
    assert!(renew.status.success(), "{renew:?}");
    drop(daemon);
    for (from, to) in [
        ("new/cert-Scheduler-localhost.pem", "scheduler.pem"),
        ("new/CAcert-localhost.pem", "CAcert.pem"),
    ] {
        std::fs::rename(site.path(from), site.path(to)).unwrap();
    }
    let daemon = site.start(&["--http", "127.0.0.1:0"]).await;
    // With the certificate that the old anchor has signed.
    let (fine, said) = curl(&site, &daemon, &["--cert", controller.to_str().unwrap()]).await;
    assert!(fine, "{said}");
    assert!(
        !daemon
            .log()
            .iter()
            .any(|line| line.contains("browsers will refuse"))
    );
}
