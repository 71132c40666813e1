//! What can be wrong with files that are read again, one test for each kind: the log names file, line where there is
//! one, and reason; a new handshake shows what it showed before, and who is there stays.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::time::{Duration, SystemTime};

use ciao_scheduler::cert::{Anchor, Spec};
use proto_frames::{Encoding, Role};

use super::{REFUSED, is_heard, renewed, replace, shown_serial};
use crate::site::Site;

/// Runs a daemon with these flags, has `spoil` make a mistake in its files, and asks for a reload: what is logged
/// contains all of `expected`, and nothing else changes.
async fn refused(flags: &[&str], spoil: impl FnOnce(&Site), expected: &[&str]) {
    refused_at(Site::new(), flags, spoil, expected).await;
}

/// The same at a site with more files.
async fn refused_at(site: Site, flags: &[&str], spoil: impl FnOnce(&Site), expected: &[&str]) {
    let daemon = site.start(flags).await;
    let dialer = site.dialer(&daemon, Role::AGENT, Encoding::Native);
    let mut node = site.node(&daemon).await;
    let before = shown_serial(&dialer).await;
    spoil(&site);
    daemon.hang_up();
    let line = daemon.logged(REFUSED).await;
    for text in expected {
        assert!(line.contains(text), "'{text}' is not in {line}");
    }
    assert!(line.contains("all stays as it was"), "{line}");
    assert_eq!(shown_serial(&dialer).await, before);
    is_heard(&mut node).await;
}

/// A scheduler's certificate whose validity lies so far from now.
fn out_of_time(site: &Site, begins: SystemTime) -> String {
    let spec = Spec {
        not_before: begins,
        lifetime: Duration::from_secs(3600),
        ..Spec::localhost(Role::SCHEDULER)
    };
    site.ca.anchor.sign(&spec).unwrap().pem().to_owned()
}

#[tokio::test]
async fn a_certificate_that_is_gone() {
    let spoil = |site: &Site| std::fs::remove_file(site.path("scheduler.pem")).unwrap();
    refused(&[], spoil, &["cannot read ", "scheduler.pem: No such file"]).await;
}

#[tokio::test]
async fn a_certificate_without_its_key() {
    let spoil = |site: &Site| {
        let next = renewed(&site.ca.anchor);
        replace(&site.path("scheduler.pem"), next.certificate_pem());
    };
    refused(&[], spoil, &["scheduler.pem: no private key in it"]).await;
}

#[tokio::test]
async fn a_certificate_that_is_cut_off() {
    let spoil = |site: &Site| {
        let next = renewed(&site.ca.anchor);
        let half = &next.pem()[..next.pem().len() / 3];
        replace(&site.path("scheduler.pem"), half);
    };
    refused(&[], spoil, &["scheduler.pem: damaged PEM: line 1: "]).await;
}

#[tokio::test]
async fn the_key_of_another_certificate() {
    let spoil = |site: &Site| {
        let (one, other) = (renewed(&site.ca.anchor), renewed(&site.ca.anchor));
        let key = other.pem().strip_prefix(other.certificate_pem()).unwrap();
        let mixed = format!("{}{key}", one.certificate_pem());
        replace(&site.path("scheduler.pem"), &mixed);
    };
    let expected = "scheduler.pem: the private key does not belong to the certificate";
    refused(&[], spoil, &[expected]).await;
}

#[tokio::test]
async fn a_certificate_that_has_expired() {
    let spoil = |site: &Site| {
        let long_ago = SystemTime::now() - Duration::from_secs(7200);
        replace(&site.path("scheduler.pem"), &out_of_time(site, long_ago));
    };
    refused(&[], spoil, &["scheduler.pem: the certificate expired "]).await;
}

#[tokio::test]
async fn a_certificate_that_is_not_valid_yet() {
    let spoil = |site: &Site| {
        let later = SystemTime::now() + Duration::from_secs(7200);
        replace(&site.path("scheduler.pem"), &out_of_time(site, later));
    };
    let expected = ["scheduler.pem: the certificate is valid from ", " only"];
    refused(&[], spoil, &expected).await;
}

#[tokio::test]
async fn a_certificate_without_the_schedulers_role() {
    let spoil = |site: &Site| {
        let next = site.ca.anchor.sign(&Spec::localhost(Role::AGENT)).unwrap();
        replace(&site.path("scheduler.pem"), next.pem());
    };
    refused(&[], spoil, &["scheduler.pem grants AGENT, not SCHEDULER"]).await;
}

#[tokio::test]
async fn a_certificate_of_another_ca() {
    let spoil = |site: &Site| {
        let other = Anchor::new(&Spec::localhost(Role::SCHEDULER)).unwrap();
        replace(&site.path("scheduler.pem"), renewed(&other).pem());
    };
    let expected = ["scheduler.pem does not fit the CA in ", "CAcert.pem"];
    refused(&[], spoil, &expected).await;
}

#[tokio::test]
async fn anchors_that_the_certificate_does_not_chain_to() {
    let spoil = |site: &Site| {
        let other = Anchor::new(&Spec::localhost(Role::SCHEDULER)).unwrap();
        replace(&site.path("CAcert.pem"), other.ca_pem());
    };
    let expected = ["scheduler.pem does not fit the CA in ", "CAcert.pem"];
    refused(&[], spoil, &expected).await;
}

#[tokio::test]
async fn an_anchor_that_is_no_ca() {
    let spoil = |site: &Site| {
        let leaf = renewed(&site.ca.anchor);
        let both = format!("{}{}", site.ca.anchor.ca_pem(), leaf.certificate_pem());
        replace(&site.path("CAcert.pem"), &both);
    };
    refused(&[], spoil, &["CAcert.pem: not a CA certificate"]).await;
}

#[tokio::test]
async fn an_empty_file_of_anchors() {
    let spoil = |site: &Site| replace(&site.path("CAcert.pem"), "");
    refused(&[], spoil, &["CAcert.pem: it is empty"]).await;
}

#[tokio::test]
async fn a_key_that_others_can_read_where_files_are_strict() {
    let spoil = |site: &Site| {
        let path = site.path("scheduler.pem");
        replace(&path, renewed(&site.ca.anchor).pem());
        std::fs::set_permissions(path, Permissions::from_mode(0o644)).unwrap();
    };
    let expected = ["scheduler.pem: others can read the private key in it"];
    refused(&["--strict-files"], spoil, &expected).await;
}

#[tokio::test]
async fn a_mistake_in_the_certificate_for_http_leaves_that_for_ssntp_too() {
    let site = Site::new();
    let http = site.path("http.pem");
    replace(&http, renewed(&site.ca.anchor).pem());
    let http = http.display().to_string();
    let spoil = |site: &Site| {
        replace(&site.path("scheduler.pem"), renewed(&site.ca.anchor).pem());
        replace(&site.path("http.pem"), "no PEM at all\n");
    };
    let flags = ["--http", "127.0.0.1:0", "--http-cert", &http];
    refused_at(site, &flags, spoil, &["http.pem: "]).await;
}

#[tokio::test]
async fn a_mistake_in_the_tokens_leaves_the_certificate_too() {
    let site = Site::new();
    let tokens = site.path("tokens");
    replace(&tokens, "a-token\n");
    let tokens = tokens.display().to_string();
    let spoil = |site: &Site| {
        replace(&site.path("scheduler.pem"), renewed(&site.ca.anchor).pem());
        replace(&site.path("tokens"), "a-token\ntwo words\n");
    };
    let flags = ["--placement", "127.0.0.1:0", "--placement-tokens", &tokens];
    let expected = ["cannot use the tokens in ", "tokens: line 2: "];
    refused_at(site, &flags, spoil, &expected).await;
}
