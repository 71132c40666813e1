//! The program `ciao-cert` from its command line.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command as Plain;

use assert_cmd::Command;
use ciao_scheduler::net::tls::{client_config, load_anchors, load_identity, server_config};
use proto_frames::{Role, Uuid};

/// Every file of a full set, with the roles its certificate grants.
const FULL_SET: [(&str, Role); 9] = [
    ("CAcert-localhost.pem", Role::SCHEDULER),
    ("cert-Scheduler-localhost.pem", Role::SCHEDULER),
    (
        "cert-Controller-localhost.pem",
        Role(Role::CONTROLLER.0 | Role::OPERATOR.0),
    ),
    ("cert-CNAgent-localhost.pem", Role::AGENT),
    ("cert-NetworkingAgent-localhost.pem", Role::NETAGENT),
    (
        "cert-CNAgent-NetworkingAgent-localhost.pem",
        Role(Role::AGENT.0 | Role::NETAGENT.0),
    ),
    ("cert-CNCIAgent-localhost.pem", Role::CNCIAGENT),
    ("cert-Server-localhost.pem", Role::SERVER),
    ("cert-Viewer-localhost.pem", Role::VIEWER),
];

/// Runs `ciao-cert` with these arguments in `dir`; its exit code, and what it printed on stdout and on stderr.
pub(crate) fn ciao_cert(dir: &Path, args: &[&str]) -> (i32, String, String) {
    let output = Command::cargo_bin("ciao-cert")
        .unwrap()
        .current_dir(dir)
        .args(args)
        .output()
        .unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (
        output.status.code().unwrap(),
        text(output.stdout),
        text(output.stderr),
    )
}

pub(crate) fn succeed(dir: &Path, args: &[&str]) -> String {
    let (code, stdout, stderr) = ciao_cert(dir, args);
    assert_eq!(code, 0, "{args:?}: {stderr}");
    stdout
}

/// Every file in `dir` with its contents.
fn contents(dir: &Path) -> BTreeMap<String, String> {
    let files = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap());
    files
        .map(|file| {
            (
                file.file_name().into_string().unwrap(),
                fs::read_to_string(file.path()).unwrap(),
            )
        })
        .collect()
}

#[test]
fn one_command_makes_everything_a_cluster_needs() {
    let dir = tempfile::tempdir().unwrap();
    succeed(dir.path(), &["-all", "-directory", "new/certs", "-verify"]);
    let dir = dir.path().join("new/certs");
    let mut names: Vec<_> = FULL_SET
        .iter()
        .map(|(name, _)| (*name).to_owned())
        .collect();
    names.sort();
    assert!(contents(&dir).into_keys().eq(names));

    let anchors = load_anchors(&dir.join("CAcert-localhost.pem")).unwrap();
    assert_eq!(anchors.server_names(), ["127.0.0.1", "::1", "localhost"]);
    for (name, roles) in FULL_SET {
        let path = dir.join(name);
        let mode = fs::metadata(&path).unwrap().permissions().mode() & 0o777;
        if name.starts_with("CAcert") {
            assert!(
                !fs::read_to_string(&path).unwrap().contains("PRIVATE KEY"),
                "{name}"
            );
            continue;
        }
        assert_eq!(mode, 0o600, "{name}");
        let identity = load_identity(&path).unwrap();
        assert_eq!(identity.peer().roles, roles, "{name}");
        server_config(&identity, &anchors).unwrap();
        client_config(&identity, &anchors).unwrap();
    }
}

#[test]
fn nothing_is_overwritten_unless_it_is_forced() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("cert-CNAgent-localhost.pem"), "precious").unwrap();
    let before = contents(dir.path());
    let (code, _, stderr) = ciao_cert(dir.path(), &["-all"]);
    assert_eq!(code, 4);
    assert!(
        stderr.contains("cert-CNAgent-localhost.pem exists already"),
        "{stderr}"
    );
    assert_eq!(
        contents(dir.path()),
        before,
        "not even the other files are written"
    );

    succeed(dir.path(), &["-all", "-force"]);
    assert_eq!(contents(dir.path()).len(), FULL_SET.len());
    assert!(load_identity(&dir.path().join("cert-CNAgent-localhost.pem")).is_ok());
}

#[test]
fn an_anchor_signs_leaves_with_the_originals_flags() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    let anchor = [
        "-anchor",
        "-role",
        "scheduler",
        "-email=x@example.test",
        "-organization=Example Inc",
    ];
    let place = [
        "-ip",
        "192.0.2.1",
        "--host=sched.example,alias.example",
        "-elliptic-key",
    ];
    succeed(dir.path(), &[&anchor[..], &place[..]].concat());
    let signer = "cert-Scheduler-sched.example.pem";
    let leaf = [
        "-role",
        "agent,netagent",
        "-anchor-cert",
        signer,
        "-host",
        "node7.example",
        "-verify",
    ];
    let said = succeed(dir.path(), &leaf);
    assert!(said.contains("verified"), "{said}");

    let anchors = load_anchors(&path("CAcert-sched.example.pem")).unwrap();
    assert_eq!(
        anchors.server_names(),
        ["192.0.2.1", "sched.example", "alias.example"]
    );
    let identity = load_identity(&path("cert-CNAgent-NetworkingAgent-node7.example.pem")).unwrap();
    assert_eq!(identity.peer().roles, Role::AGENT | Role::NETAGENT);
    assert_eq!(
        identity.peer().subject,
        "O=Example Inc",
        "the anchor's organisation"
    );
    client_config(&identity, &anchors).unwrap();
}

#[test]
fn key_kind_and_uuid_are_chosen_by_flags() {
    let dir = tempfile::tempdir().unwrap();
    let uuid = Uuid::from_u128(0x1234);
    succeed(dir.path(), &["-anchor", "-host", "localhost", "-rsa"]);
    let signer = "cert-Scheduler-localhost.pem";
    let text = uuid.to_string();
    for (key, header) in [
        ("rsa", "RSA PRIVATE KEY"),
        ("p256", "EC PRIVATE KEY"),
        ("p521", "EC PRIVATE KEY"),
    ] {
        let host = format!("{key}.example");
        let args = [
            "-anchor-cert",
            signer,
            "-role=agent",
            "-host",
            &host,
            "-key-type",
            key,
            "-uuid",
            &text,
        ];
        succeed(dir.path(), &args);
        let path = dir.path().join(format!("cert-CNAgent-{host}.pem"));
        assert!(fs::read_to_string(&path).unwrap().contains(header), "{key}");
        assert_eq!(load_identity(&path).unwrap().peer().bound_uuid, Some(uuid));
        let shown = succeed(dir.path(), &["-dump", path.to_str().unwrap()]);
        assert!(
            shown.contains(&format!("Bound to UUID:  {uuid}")),
            "{shown}"
        );
        assert!(
            shown.contains(&format!("Private key:    {header}")),
            "{shown}"
        );
    }
}

#[test]
fn a_nodes_certificate_is_bound_and_keeps_its_uuid_when_it_is_made_again() {
    let dir = tempfile::tempdir().unwrap();
    succeed(dir.path(), &["-anchor", "-host", "localhost"]);
    let make = |args: &[&str]| {
        let all = [&["-anchor-cert", SIGNER, "-verify"], args].concat();
        succeed(dir.path(), &all)
    };
    let uuid_of = |name: &str| {
        let identity = load_identity(&dir.path().join(name)).unwrap();
        assert!(identity.peer().roles.contains(Role::AGENT), "{name}");
        identity.peer().bound_uuid.expect("it is bound")
    };
    let said = make(&["-node", "node7.example"]);
    let file = "cert-CNAgent-node7.example.pem";
    let first = uuid_of(file);
    assert!(
        said.contains(&format!("of a CNAgent, bound to the UUID {first}\n")),
        "{said}"
    );
    make(&["-node", "node8.example"]);
    assert_ne!(uuid_of("cert-CNAgent-node8.example.pem"), first);

    let before = fs::read(dir.path().join(file)).unwrap();
    make(&["-node=node7.example", "-force"]);
    assert_ne!(fs::read(dir.path().join(file)).unwrap(), before);
    assert_eq!(uuid_of(file), first, "the same node");

    let given = Uuid::from_u128(0x99);
    let uuid = given.to_string();
    make(&["-node", "node7.example", "-force", "-uuid", &uuid]);
    assert_eq!(uuid_of(file), given);
    make(&["-node", "192.0.2.9", "-role", "agent,netagent"]);
    uuid_of("cert-CNAgent-NetworkingAgent-192.0.2.9.pem");
}

#[test]
fn an_anchor_is_renewed_in_its_own_file_or_in_another_directory() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    succeed(
        dir.path(),
        &["-anchor", "-host", "localhost", "-directory", "pki"],
    );
    fs::rename(path("pki").join(SIGNER), path("pki/anchor.pem")).unwrap();
    std::os::unix::fs::symlink("pki/anchor.pem", path("link.pem")).unwrap();
    let before = contents(&path("pki"));
    let said = succeed(dir.path(), &["-renew", "link.pem"]);
    assert!(said.contains("pki/anchor.pem"), "{said}");
    let after = contents(&path("pki"));
    assert_eq!(before.len(), after.len(), "{:?}", after.keys());
    for (name, renewed) in &after {
        assert_ne!(renewed, &before[name], "{name}");
    }
    assert!(path("link.pem").is_symlink());
    assert!(!path(SIGNER).exists() && !path("CAcert-localhost.pem").exists());
    // Elsewhere nothing is overwritten unless it is forced.
    let renew = ["-renew", "pki/anchor.pem", "-directory", "new"];
    succeed(dir.path(), &renew);
    assert_eq!(contents(&path("pki")), after);
    assert_eq!(ciao_cert(dir.path(), &renew).0, 4);
}

#[test]
fn an_anchor_whose_key_others_can_read_is_warned_of_and_refused_where_files_are_strict() {
    let dir = tempfile::tempdir().unwrap();
    succeed(dir.path(), &["-anchor", "-host", "localhost"]);
    let signer = dir.path().join(SIGNER);
    fs::set_permissions(&signer, fs::Permissions::from_mode(0o640)).unwrap();
    let make = ["-anchor-cert", SIGNER, "-node", "a"];
    let (code, _, stderr) = ciao_cert(dir.path(), &[&make[..], &["-strict-files"]].concat());
    assert_eq!(code, 1);
    assert!(
        stderr.contains("others can read the private key"),
        "{stderr}"
    );
    assert!(!dir.path().join("cert-CNAgent-a.pem").exists());
    let (code, _, stderr) = ciao_cert(dir.path(), &make);
    assert_eq!(code, 0);
    assert!(
        stderr.contains("warning: cert-Scheduler-localhost.pem"),
        "{stderr}"
    );
}

#[test]
fn certificates_that_are_there_are_checked_each_with_its_verdict() {
    let dir = tempfile::tempdir().unwrap();
    succeed(dir.path(), &["-all", "-directory", "ours"]);
    succeed(dir.path(), &["-all", "-directory", "theirs"]);
    fs::write(dir.path().join("empty.pem"), "").unwrap();
    let check = [
        "-verify",
        "-anchor-cert",
        "ours/CAcert-localhost.pem",
        "ours/cert-CNAgent-localhost.pem",
    ];
    let said = succeed(dir.path(), &check);
    assert_eq!(
        said,
        "ours/cert-CNAgent-localhost.pem: verified (CNAgent)\n"
    );

    let others = [
        &check[..],
        &["theirs/cert-CNAgent-localhost.pem", "empty.pem"],
    ]
    .concat();
    let (code, said, stderr) = ciao_cert(dir.path(), &others);
    assert_eq!(code, 3, "{stderr}");
    let verdicts: Vec<_> = said.lines().collect();
    assert_eq!(
        verdicts[0],
        "ours/cert-CNAgent-localhost.pem: verified (CNAgent)"
    );
    assert!(verdicts[1].starts_with(
        "theirs/cert-CNAgent-localhost.pem: NOT verified: it is signed by another key"
    ));
    assert!(verdicts[2].starts_with("empty.pem: NOT verified: it is empty"));
    assert!(stderr.contains("2 of 3"), "{stderr}");
}

/// Command lines that cannot be done: the exit code, and words of the complaint. Run beside an anchor (`SIGNER`, `CA`)
/// and a leaf (`LEAF`).
const IMPOSSIBLE: [(&[&str], i32, &str); 18] = [
    (&[], 2, "missing -anchor"),
    (&["-anchor"], 2, "missing -host"),
    (&["-anchor-cert", SIGNER, "-host", "x"], 2, "missing -role"),
    (&["-node", "x"], 2, "--anchor-cert <FILE>"),
    (&["-anchor-cert", SIGNER, "-node", ""], 2, "missing -host"),
    (
        &["-anchor-cert", SIGNER, "-node", "x", "-role", "controller"],
        2,
        "-node is for launchers",
    ),
    (
        &["-anchor-cert", SIGNER, "-node", "../x"],
        1,
        "host name \"../x\" cannot be put",
    ),
    (
        &["-anchor", "-host", "x", "-role", "launcher"],
        2,
        "no role \"launcher\"",
    ),
    (
        &["-anchor", "-anchor-cert", SIGNER, "-host", "x"],
        2,
        "cannot be used with",
    ),
    (&["-verify", LEAF], 2, "missing -anchor-cert"),
    (&["-verify", "-all", LEAF], 2, "do not go together"),
    (
        &["-anchor", "-host", "x", "-ip", "192.0.2"],
        1,
        "\"192.0.2\" is no IP address",
    ),
    (
        &["-anchor", "-host", "a b"],
        1,
        "host name \"a b\" cannot be put",
    ),
    (
        &["-anchor", "-host", "../x"],
        1,
        "host name \"../x\" cannot be put",
    ),
    (
        &["-anchor-cert", "none.pem", "-role", "agent", "-host", "x"],
        1,
        "cannot read none.pem",
    ),
    (
        &["-anchor-cert", CA, "-role", "agent", "-host", "x"],
        1,
        "the anchor cannot be used: no private key",
    ),
    (
        &["-anchor-cert", LEAF, "-role", "agent", "-host", "x"],
        1,
        "not a CA certificate",
    ),
    (&["-dump", "none.pem"], 1, "cannot read none.pem"),
];
const CA: &str = "CAcert-localhost.pem";
const SIGNER: &str = "cert-Scheduler-localhost.pem";
const LEAF: &str = "cert-CNAgent-localhost.pem";

#[test]
fn what_cannot_be_done_is_said_with_an_exit_code() {
    let dir = tempfile::tempdir().unwrap();
    succeed(dir.path(), &["-anchor", "-host", "localhost"]);
    succeed(
        dir.path(),
        &[
            "-anchor-cert",
            SIGNER,
            "-role",
            "agent",
            "-host",
            "localhost",
        ],
    );
    let before = contents(dir.path());
    for (args, expected, words) in IMPOSSIBLE {
        let (code, _, stderr) = ciao_cert(dir.path(), args);
        assert_eq!(code, expected, "{args:?}: {stderr}");
        assert!(stderr.contains(words), "{args:?}: {stderr}");
        assert_eq!(
            contents(dir.path()),
            before,
            "{args:?} left something behind"
        );
    }
}

#[test]
fn openssl_accepts_the_chain_where_it_is_installed() {
    if Plain::new("openssl").arg("version").output().is_err() {
        eprintln!("openssl is not installed: nothing checked");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    succeed(dir.path(), &["-all"]);
    for (name, _) in FULL_SET {
        let verified = Plain::new("openssl")
            .current_dir(dir.path())
            .args([
                "verify",
                "-x509_strict",
                "-CAfile",
                "CAcert-localhost.pem",
                name,
            ])
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&verified.stdout).into_owned()
            + &String::from_utf8_lossy(&verified.stderr);
        assert!(said.contains(": OK"), "{name}: {said}");
    }
}

#[test]
fn a_closed_standard_output_costs_no_certificate() {
    let dir = tempfile::tempdir().unwrap();
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let output = Plain::new(assert_cmd::cargo::cargo_bin("ciao-cert"))
        .current_dir(dir.path())
        .arg("-all")
        .stdout(writer)
        .output()
        .unwrap();
    let err = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(0), "{err}");
    for (name, _) in FULL_SET {
        assert!(dir.path().join(name).exists(), "{name}: {err}");
    }
}
