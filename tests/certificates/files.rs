//! What is said of certificate files that cannot be used: which file, what is wrong, before anything is started.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use ciao_scheduler::cert::{Anchor, CertifiedPem, Spec};
use ciao_scheduler::net::tls::{
    TlsError, client_config, load_anchors, load_identity, server_config,
};
use proto_frames::Role;

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// A directory with files of one authority.
struct Files {
    dir: tempfile::TempDir,
    anchor: Anchor,
}

impl Files {
    fn new() -> Self {
        Self::with(&Spec::localhost(Role::SCHEDULER))
    }

    fn with(spec: &Spec) -> Self {
        Self {
            dir: tempfile::tempdir().unwrap(),
            anchor: Anchor::new(spec).unwrap(),
        }
    }

    fn file(&self, name: &str, contents: impl AsRef<[u8]>) -> PathBuf {
        let path = self.dir.path().join(name);
        fs::write(&path, contents).unwrap();
        path
    }

    fn agent(&self) -> CertifiedPem {
        self.anchor.sign(&Spec::localhost(Role::AGENT)).unwrap()
    }

    fn ca(&self) -> PathBuf {
        self.file("CAcert.pem", self.anchor.ca_pem())
    }
}

/// The message, which names the file first.
fn complaint(error: &TlsError, path: &Path) -> String {
    let text = error.to_string();
    assert!(
        text.contains(&path.display().to_string()),
        "{text} does not name {}",
        path.display()
    );
    text
}

#[test]
fn a_file_that_is_not_there_or_is_something_else_is_named() {
    let files = Files::new();
    let missing = files.dir.path().join("none.pem");
    assert!(complaint(&load_identity(&missing).unwrap_err(), &missing).contains("No such file"));
    assert!(complaint(&load_anchors(&missing).unwrap_err(), &missing).contains("No such file"));
    let text = files.file("text.pem", "hello");
    assert!(complaint(&load_identity(&text).unwrap_err(), &text).contains("no certificate in it"));
    assert!(complaint(&load_anchors(&text).unwrap_err(), &text).contains("no certificate in it"));
    let alone = files.file("alone.pem", files.agent().certificate_pem());
    assert!(
        complaint(&load_identity(&alone).unwrap_err(), &alone).contains("no private key in it")
    );
}

#[test]
fn a_key_of_another_certificate_is_found_out() {
    let files = Files::new();
    let (one, other) = (files.agent(), files.agent());
    let foreign_key = &other.pem()[other.certificate_pem().len()..];
    let path = files.file(
        "mixed.pem",
        format!("{}{foreign_key}", one.certificate_pem()),
    );
    let error = load_identity(&path).unwrap_err();
    assert!(matches!(error, TlsError::KeyMismatch { .. }), "{error:?}");
    complaint(&error, &path);
}

#[test]
fn key_and_certificate_may_stand_in_either_order() {
    let files = Files::new();
    let agent = files.agent();
    let (certificate, key) = agent.pem().split_at(agent.certificate_pem().len());
    let path = files.file("turned.pem", format!("{key}{certificate}"));
    assert_eq!(load_identity(&path).unwrap().peer().roles, Role::AGENT);
}

#[test]
fn out_of_date_certificates_are_refused_with_the_date() {
    let now = SystemTime::now();
    let past = Spec {
        not_before: now - 10 * DAY,
        lifetime: 9 * DAY,
        ..Spec::localhost(Role::SCHEDULER)
    };
    let files = Files::with(&past);
    for error in [
        load_anchors(&files.ca()).unwrap_err(),
        load_identity(&files.file("cert.pem", files.anchor.certified().pem())).unwrap_err(),
    ] {
        let TlsError::Expired { not_after, .. } = &error else {
            panic!("{error:?}")
        };
        assert!(
            error.to_string().contains(&format!("expired {not_after}")),
            "{error}"
        );
    }
    let future = Spec {
        not_before: now + DAY,
        ..Spec::localhost(Role::SCHEDULER)
    };
    let files = Files::with(&future);
    assert!(matches!(
        load_anchors(&files.ca()),
        Err(TlsError::NotYetValid { .. })
    ));
    let own = files.file("cert.pem", files.anchor.certified().pem());
    assert!(matches!(
        load_identity(&own),
        Err(TlsError::NotYetValid { .. })
    ));
}

#[test]
fn a_leaf_is_no_ca_and_an_outdated_ca_beside_a_good_one_does_no_harm() {
    let files = Files::new();
    let leaf = files.file("leaf.pem", files.agent().certificate_pem());
    let error = load_anchors(&leaf).unwrap_err();
    assert!(complaint(&error, &leaf).contains("not a CA certificate"));

    let past = Spec {
        not_before: SystemTime::now() - 10 * DAY,
        lifetime: DAY,
        ..Spec::localhost(Role::SCHEDULER)
    };
    let old = Anchor::new(&past).unwrap();
    let both = files.file(
        "both.pem",
        format!("{}{}", old.ca_pem(), files.anchor.ca_pem()),
    );
    let identity = load_identity(&files.file("agent.pem", files.agent().pem())).unwrap();
    client_config(&identity, &load_anchors(&both).unwrap()).unwrap();
}

#[test]
fn a_certificate_that_its_ca_did_not_sign_is_refused_on_both_sides() {
    let (ours, theirs) = (Files::new(), Files::new());
    let anchors = load_anchors(&ours.ca()).unwrap();
    let own = theirs.file("cert.pem", theirs.agent().pem());
    let identity = load_identity(&own).unwrap();
    for error in [
        server_config(&identity, &anchors).unwrap_err(),
        client_config(&identity, &anchors).unwrap_err(),
    ] {
        let text = complaint(&error, &own);
        assert!(
            text.contains("CAcert.pem") && text.contains("signed by another key"),
            "{text}"
        );
    }
}

#[test]
fn a_leaf_ends_with_its_anchor() {
    let short = Spec {
        lifetime: DAY,
        ..Spec::localhost(Role::SCHEDULER)
    };
    let files = Files::with(&short);
    let late = SystemTime::now() + 2 * DAY;
    let leaf = Spec {
        not_before: late,
        ..Spec::localhost(Role::AGENT)
    };
    assert!(
        files
            .anchor
            .sign(&leaf)
            .unwrap_err()
            .to_string()
            .contains("not valid at the time")
    );
    let shown = |pem: &str| ciao_scheduler::cert::describe::describe("x", pem.as_bytes()).unwrap();
    let end = |text: String| {
        let line = text
            .lines()
            .find(|line| line.starts_with("Validity"))
            .unwrap()
            .to_owned();
        line.rsplit(' ').next().unwrap().to_owned()
    };
    assert_eq!(
        end(shown(files.agent().pem())),
        end(shown(files.anchor.ca_pem()))
    );
}
