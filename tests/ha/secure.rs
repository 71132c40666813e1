//! An etcd that lets in whom it knows.

use std::path::{Path, PathBuf};

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, ExtendedKeyUsagePurpose, IsCa, KeyPair,
};

use crate::etcd::{Etcd, etcdctl, host, is_missing, until_ok};
use crate::world::{Pair, Settings};

fn authority() -> CertifiedIssuer<'static, KeyPair> {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

/// Writes a certificate for this name and usage, and its key; where.
fn issue(
    directory: &Path,
    authority: &CertifiedIssuer<'static, KeyPair>,
    name: &str,
    usage: ExtendedKeyUsagePurpose,
) -> [String; 2] {
    let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
    params.extended_key_usages = vec![usage];
    let key = KeyPair::generate().unwrap();
    let certificate = params.signed_by(&key, authority).unwrap();
    let texts = [certificate.pem(), key.serialize_pem()];
    let paths = ["pem", "key"].map(|it| directory.join(format!("{name}.{it}")));
    write(&paths, &texts);
    paths.map(|it| it.to_str().unwrap().to_owned())
}

fn write(paths: &[PathBuf; 2], texts: &[String; 2]) {
    for (path, text) in paths.iter().zip(texts) {
        std::fs::write(path, text).unwrap();
    }
}

fn owned(flags: &[&str]) -> Vec<String> {
    flags.iter().map(|it| (*it).to_owned()).collect()
}

/// The member's certificate is for servers alone, as etcd's own tools make it; clients are known by theirs.
#[tokio::test(flavor = "multi_thread")]
async fn schedulers_are_let_in_by_their_certificates() {
    if is_missing() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let (ca, host) = (authority(), host());
    let ca_file = directory.path().join("ca.pem");
    std::fs::write(&ca_file, ca.pem()).unwrap();
    let ca_file = ca_file.to_str().unwrap();
    let of = |name: &str, usage| issue(directory.path(), &ca, name, usage);
    let [cert, key] = of(&host.to_string(), ExtendedKeyUsagePurpose::ServerAuth);
    let flags = [
        "--cert-file",
        &cert,
        "--key-file",
        &key,
        "--client-cert-auth",
    ];
    let flags = [&flags[..], &["--trusted-ca-file", ca_file]].concat();
    let etcd = Etcd::start_at(host, "https", 1, &flags);
    let [cert, key] = of("scheduler", ExtendedKeyUsagePurpose::ClientAuth);
    let access = [
        "--etcd-cacert",
        ca_file,
        "--etcd-cert",
        &cert,
        "--etcd-key",
        &key,
    ];
    let settings = Settings {
        access: owned(&access),
        ..Settings::default()
    };
    let mut pair = Pair::start_on(etcd, settings).await;
    pair.fail_over().await;
    pair.until_listed("nodes", "READY").await;
}

/// Has etcd ask for passwords.
async fn enable_auth(etcd: &Etcd) {
    let client = etcd.client();
    until_ok(async || client.get(b"/k").await).await;
    let grant = [
        "role",
        "grant-permission",
        "ciao",
        "--prefix=true",
        "readwrite",
    ];
    let commands: [&[&str]; 6] = [
        &["user", "add", "root:r"],
        &["user", "add", "ciao:word"],
        &["role", "add", "ciao"],
        &[&grant[..], &["/ciao/ha/"]].concat(),
        &["user", "grant-role", "ciao", "ciao"],
        &["auth", "enable"],
    ];
    for words in commands {
        etcdctl(&[&["--endpoints", &etcd.endpoints[0]], words].concat());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn schedulers_are_let_in_by_a_password_and_say_when_it_is_wrong() {
    if is_missing() {
        return;
    }
    let etcd = Etcd::start(1, &[]);
    enable_auth(&etcd).await;
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = directory.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let (right, wrong) = (file("right", "word\n"), file("wrong", "other\n"));
    let access = ["--etcd-user", "ciao", "--etcd-password-file", &right];
    let settings = Settings {
        access: owned(&access),
        ..Settings::default()
    };
    let mut pair = Pair::start_on(etcd, settings).await;
    pair.fail_over().await;
    pair.until_listed("nodes", "READY").await;
    let status = pair.ha("status", &[]).await;
    assert!(!status.contains("refuses"), "{status}");
    let access = ["--etcd-user", "ciao", "--etcd-password-file", &wrong];
    pair.settings.access = owned(&access);
    pair.add().await;
    let line = pair.schedulers[1]
        .logged("invalid user ID or password")
        .await;
    assert!(line.contains("cluster_etcd_trouble"), "{line}");
}
