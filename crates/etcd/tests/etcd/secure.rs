//! TLS with certificates of both sides, and users with passwords.

use std::path::{Path, PathBuf};
use std::time::Duration;

use ciao_etcd::{Client, ConfigError, Error, Op, Tls, Txn, User};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, ExtendedKeyUsagePurpose, IsCa, KeyPair,
};

use crate::world::{Etcd, config, etcdctl, host, is_missing, until_ok};

fn authority() -> CertifiedIssuer<'static, KeyPair> {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

/// A certificate and its key, as PEM.
fn issued(
    authority: &CertifiedIssuer<'static, KeyPair>,
    names: &[&str],
    usage: ExtendedKeyUsagePurpose,
) -> (String, String) {
    let names: Vec<String> = names.iter().map(|it| (*it).to_owned()).collect();
    let mut params = CertificateParams::new(names).unwrap();
    params.extended_key_usages = vec![usage];
    let key = KeyPair::generate().unwrap();
    let certificate = params.signed_by(&key, authority).unwrap();
    (certificate.pem(), key.serialize_pem())
}

fn written(directory: &Path, name: &str, text: &str) -> PathBuf {
    let path = directory.join(name);
    std::fs::write(&path, text).unwrap();
    path
}

/// The member's certificate is for servers alone, as etcd's own tools make it.
#[tokio::test]
async fn a_client_is_let_in_by_its_certificate() {
    if is_missing() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let ca = authority();
    let host = host();
    let names = [&*host.to_string()];
    let (certificate, key) = issued(&ca, &names, ExtendedKeyUsagePurpose::ServerAuth);
    let paths = [("cert", &certificate), ("key", &key), ("ca", &ca.pem())]
        .map(|(name, text)| written(directory.path(), name, text));
    let [cert_file, key_file, ca_file] = paths.each_ref().map(|it| it.to_str().unwrap());
    let flags = [
        "--cert-file",
        cert_file,
        "--key-file",
        key_file,
        "--client-cert-auth",
    ];
    let flags = [&flags[..], &["--trusted-ca-file", ca_file]].concat();
    let etcd = Etcd::start_at(host, "https", 1, &flags);
    let without_ca = Client::new(config(&etcd.endpoints)).map(drop);
    assert!(
        matches!(without_ca, Err(ConfigError::NoCa(_))),
        "{without_ca:?}"
    );
    let client = |ca: &CertifiedIssuer<'static, KeyPair>, identity| {
        let mut config = config(&etcd.endpoints);
        let ca = ca.pem().into_bytes();
        config.tls = Some(Tls { ca, identity });
        Client::new(config).unwrap()
    };
    let (certificate, key) = issued(&ca, &["scheduler"], ExtendedKeyUsagePurpose::ClientAuth);
    let identity = Some((certificate.into_bytes(), key.into_bytes()));
    let let_in = client(&ca, identity.clone());
    until_ok(async || let_in.get(b"/k").await).await;
    let lease = let_in.grant(Duration::from_secs(60)).await.unwrap();
    let_in.keep_alive(lease).await.unwrap();
    let nameless = client(&ca, None).get(b"/k").await;
    assert!(
        matches!(nameless, Err(Error::Unanswered(_))),
        "{nameless:?}"
    );
    let foreign = client(&authority(), identity).get(b"/k").await;
    assert!(matches!(foreign, Err(Error::Unanswered(_))), "{foreign:?}");
}

/// Has etcd ask for passwords, with one user besides root.
fn enable_auth(endpoint: &str) {
    let commands: [&[&str]; 6] = [
        &["user", "add", "root:r"],
        &["user", "add", "ciao:pässword"],
        &["role", "add", "ciao"],
        &[
            "role",
            "grant-permission",
            "ciao",
            "--prefix=true",
            "readwrite",
            "/ciao/",
        ],
        &["user", "grant-role", "ciao", "ciao"],
        &["auth", "enable"],
    ];
    for words in commands {
        etcdctl(&[&["--endpoints", endpoint], words].concat());
    }
}

#[tokio::test]
async fn a_user_with_a_password_reaches_what_is_its_own() {
    if is_missing() {
        return;
    }
    let etcd = Etcd::start(1, &[]);
    let client = etcd.client();
    until_ok(async || client.get(b"/k").await).await;
    enable_auth(&etcd.endpoints[0]);
    let refused = client.get(b"/ciao/k").await;
    assert!(matches!(refused, Err(Error::Refused(_))), "{refused:?}");
    let user = |password: &str| {
        let mut config = config(&etcd.endpoints);
        config.user = Some(User {
            name: "ciao".to_owned(),
            password: password.to_owned(),
        });
        Client::new(config).unwrap()
    };
    let wrong = user("wrong").get(b"/ciao/k").await;
    assert!(matches!(wrong, Err(Error::Refused(_))), "{wrong:?}");
    let ciao = user("pässword");
    let put = |key: &[u8]| Txn {
        then: vec![Op::Put {
            key: key.into(),
            value: b"1".into(),
            lease: 0,
        }],
        ..Txn::default()
    };
    ciao.txn(put(b"/ciao/k")).await.unwrap();
    let foreign = ciao.txn(put(b"/other")).await;
    assert!(matches!(foreign, Err(Error::Refused(_))), "{foreign:?}");
    let lease = ciao.grant(Duration::from_secs(60)).await.unwrap();
    ciao.keep_alive(lease).await.unwrap();
    // etcd forgets its tokens, as when it is restarted.
    let there = ["--endpoints", &etcd.endpoints[0]];
    etcdctl(&[&there[..], &["--user", "root:r", "auth", "disable"]].concat());
    etcdctl(&[&there[..], &["auth", "enable"]].concat());
    assert_eq!(ciao.get(b"/ciao/k").await.unwrap().0.unwrap().value, b"1");
}
