//! Revocation lists of a running daemon: who is let in, whose session ends after a reload, and what a list that cannot be
//! used changes, which is nothing.

use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime};

use ciao_scheduler::cert::crl::Reason;
use ciao_scheduler::cert::{Anchor, CertifiedPem, RevocationList, Spec};
use ciao_scheduler::net::tls::client_config;
use proto_frames::{Connect, Encoding, Message, Role, Uuid};

use crate::boot::refused;
use crate::certs::{identity, write_private};
use crate::peer::{Dialer, Peer};
use crate::reload::load::open;
use crate::reload::{REFUSED, TAKEN, is_heard, replace, serial};
use crate::site::{Daemon, Site, output, within};

/// What is logged of a session that is ended.
const CUT_OFF: &str = "event=peer_cut_off";

/// An anchor's list, which grows.
struct Authority<'a> {
    anchor: &'a Anchor,
    list: RevocationList,
    path: PathBuf,
}

impl<'a> Authority<'a> {
    fn new(site: &'a Site) -> Self {
        let authority = Self {
            anchor: &site.ca.anchor,
            list: RevocationList::default(),
            path: site.path("list.pem"),
        };
        let list = authority.signed(Duration::from_secs(3600));
        write_private(&authority.path, &list);
        authority
    }

    fn signed(&self, lifetime: Duration) -> String {
        self.list
            .sign(self.anchor, SystemTime::now(), lifetime)
            .unwrap()
    }

    /// Writes the next list, with this certificate too. As `ciao-cert` does, it is made of the one before.
    fn revoke(&mut self, certificate: &CertifiedPem) {
        let before = std::fs::read(&self.path).unwrap();
        self.list = RevocationList::read(&before, self.anchor).unwrap();
        let serial = serial(certificate.der());
        assert!(
            self.list
                .revoke(&serial, SystemTime::now(), Reason::KeyCompromise)
        );
        replace(&self.path, &self.signed(Duration::from_secs(3600)));
    }

    fn flag(&self) -> String {
        self.path.display().to_string()
    }
}

/// A certificate, and who connects with it.
fn certified(
    site: &Site,
    daemon: &Daemon,
    role: Role,
    encoding: Encoding,
) -> (CertifiedPem, Dialer) {
    let dialer = site.dialer(daemon, role, encoding);
    let granted = match role {
        Role::OPERATOR => Role::CONTROLLER,
        role => role,
    };
    let own = site.ca.anchor.sign(&Spec::localhost(granted)).unwrap();
    let tls = client_config(&identity(own.pem()), &site.ca.anchors()).unwrap();
    (own, Dialer { tls, ..dialer })
}

/// The connection ends before CONNECTED: in TLS 1.3 a client learns only then that it is refused.
async fn is_refused(dialer: &Dialer) {
    let Ok(mut wire) = within(dialer.tls()).await else {
        return;
    };
    let connect = Message::Connect(Connect::new(dialer.role, dialer.uuid));
    let _ = within(wire.try_send(&connect)).await;
    assert_eq!(wire.next().await, None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_a_thousand_sessions_those_of_revoked_certificates_end_after_a_reload() {
    let site = Site::new();
    let mut authority = Authority::new(&site);
    let daemon = site.start(&["--crl", &authority.flag()]).await;
    let dialers = [Encoding::Native, Encoding::Gob]
        .map(|encoding| site.dialer(&daemon, Role::AGENT, encoding));
    let mut peers = open(dialers).await;
    let (node, native) = certified(&site, &daemon, Role::AGENT, Encoding::Native);
    let (other, original) = certified(&site, &daemon, Role::NETAGENT, Encoding::Gob);
    let (command, operator) = certified(&site, &daemon, Role::OPERATOR, Encoding::Native);
    let mut revoked: Vec<Peer> = Vec::new();
    for dialer in [&native, &original, &operator] {
        revoked.push(dialer.connect().await);
    }
    // Two with one certificate are both revoked.
    revoked.push(native.clone().with_uuid(Uuid::new_v4()).connect().await);
    for peer in &mut revoked {
        is_heard(peer).await;
    }
    for certificate in [&node, &other, &command] {
        authority.revoke(certificate);
    }
    let asked = Instant::now();
    daemon.hang_up();
    for peer in &mut revoked {
        // Nothing that an original does not know: the connection just ends.
        peer.expect_end().await;
    }
    // For people: how long it takes is the machine's matter.
    eprintln!(
        "sessions of revoked certificates have ended {:?} after SIGHUP",
        asked.elapsed()
    );
    daemon.logged(TAKEN).await;
    let lines = daemon.logged_times(CUT_OFF, revoked.len()).await;
    for line in &lines {
        assert!(
            line.contains("is revoked 20") && line.contains("(keyCompromise), by "),
            "{line}"
        );
    }
    for dialer in [&native, &original, &operator] {
        is_refused(dialer).await;
    }
    let line = daemon.logged("event=peer_refused").await;
    assert!(
        line.contains("the peer's certificate is refused: it is revoked"),
        "{line}"
    );
    for peer in &mut peers {
        is_heard(peer).await;
    }
    assert_eq!(
        daemon
            .log()
            .iter()
            .filter(|line| line.contains(CUT_OFF))
            .count(),
        revoked.len()
    );
}

#[tokio::test]
async fn a_list_that_cannot_be_used_leaves_the_old_one_in_force() {
    let site = Site::new();
    let mut authority = Authority::new(&site);
    let daemon = site.start(&["--crl", &authority.flag()]).await;
    let (bad, dialer) = certified(&site, &daemon, Role::AGENT, Encoding::Native);
    let (_, good) = certified(&site, &daemon, Role::AGENT, Encoding::Native);
    let first = std::fs::read_to_string(&authority.path).unwrap();
    authority.revoke(&bad);
    daemon.hang_up();
    daemon.logged(TAKEN).await;
    let mut peer = good.connect().await;
    let other = Anchor::new(&Spec::localhost(Role::SCHEDULER)).unwrap();
    let theirs = RevocationList::default().sign(&other, SystemTime::now(), Duration::from_secs(60));
    let wrong = [
        (first, "is older than the one in use (number 01 after 02)"),
        (String::new(), "it is empty"),
        (
            theirs.unwrap(),
            "its signature is not by the key of any CA called O=ciao",
        ),
        (
            site.ca.anchor.ca_pem().to_owned(),
            "line 1: a certificate; expected a BEGIN X509 CRL",
        ),
        // Its end is written in whole seconds, and so is this moment.
        (
            authority.signed(Duration::from_nanos(1)),
            "is out of date since",
        ),
    ];
    for (number, (contents, expected)) in wrong.into_iter().enumerate() {
        replace(&authority.path, &contents);
        daemon.hang_up();
        let lines = daemon.logged_times(REFUSED, number + 1).await;
        let line = &lines[number];
        assert!(
            line.contains("list.pem") && line.contains(expected),
            "{line}"
        );
        is_refused(&dialer).await;
        is_heard(&mut peer).await;
    }
}

#[tokio::test]
async fn a_daemon_does_not_start_with_a_list_that_cannot_be_used() {
    let site = Site::new();
    let authority = Authority::new(&site);
    let list = authority.flag();
    std::fs::write(&authority.path, "no list\n").unwrap();
    let said = refused(site.command(&["--crl", &list])).await;
    assert!(
        said.starts_with(&format!("{list}: no revocation list in it")),
        "{said}"
    );
    std::fs::remove_file(&authority.path).unwrap();
    let said = refused(site.command(&["--crl", &list])).await;
    assert!(said.contains(&format!("cannot read {list}: ")), "{said}");
    std::fs::create_dir(&authority.path).unwrap();
    let said = refused(site.command(&["--crl", &list])).await;
    assert!(
        said.starts_with(&format!("{list}: no revocation list in this directory")),
        "{said}"
    );
}

#[tokio::test]
async fn when_a_list_goes_out_of_date_new_connections_are_refused_or_let_in_as_it_was_said() {
    /// Long enough to start and connect once on a busy machine.
    const LIFETIME: Duration = Duration::from_secs(10);
    for (action, is_refused) in [("refuse", true), ("warn", false)] {
        let site = Site::new();
        let authority = Authority::new(&site);
        replace(&authority.path, &authority.signed(LIFETIME));
        let flags = ["--crl", &authority.flag(), "--crl-expired", action];
        let daemon = site.start(&flags).await;
        let mut there = site.node(&daemon).await;
        let dialer = site.dialer(&daemon, Role::AGENT, Encoding::Native);
        let said = daemon.logged("event=crl_expired");
        tokio::pin!(said);
        // Each handshake holds its peer against the list; the first one that finds it out of date says so.
        let line = loop {
            tokio::select! {
                biased;
                line = &mut said => break line,
                wire = dialer.tls() => drop(wire),
            }
        };
        assert!(
            line.contains("list.pem: the revocation list of O=ciao is out of date"),
            "{line}"
        );
        if is_refused {
            self::is_refused(&dialer).await;
        } else {
            assert!(line.contains("--crl-expired warn"), "{line}");
            let mut peer = dialer.with_uuid(Uuid::new_v4()).connect().await;
            is_heard(&mut peer).await;
        }
        // Those that are there stay.
        is_heard(&mut there).await;
    }
}

#[tokio::test]
async fn clients_refuse_a_scheduler_that_is_revoked() {
    let site = Site::new();
    let mut authority = Authority::new(&site);
    let own = site
        .ca
        .anchor
        .sign(&Spec::localhost(Role::SCHEDULER))
        .unwrap();
    write_private(&site.path("scheduler.pem"), own.pem());
    let daemon = site.start(&[]).await;
    let list = authority.flag();
    let mut command = site.ciaoctl(daemon.address);
    command.args(["--crl", &list, "nodes"]);
    let before = output(command).await;
    assert!(before.status.success(), "{before:?}");
    authority.revoke(&own);
    for (name, command) in [
        ("ciaoctl", site.ciaoctl(daemon.address)),
        ("ciao-launcher", site.launcher(daemon.address, "node")),
    ] {
        let mut command = command;
        command.args(["--crl", &list]);
        match name {
            "ciaoctl" => {
                command.arg("nodes");
                let after = output(command).await;
                let said = String::from_utf8_lossy(&after.stderr).into_owned();
                assert!(
                    !after.status.success() && said.contains("it is revoked"),
                    "{said}"
                );
            }
            _ => {
                command
                    .stderr(std::process::Stdio::piped())
                    .args(["-logtostderr"]);
                let mut launcher = command.spawn().unwrap();
                let stderr = launcher.stderr.take().unwrap();
                let mut lines =
                    tokio::io::AsyncBufReadExt::lines(tokio::io::BufReader::new(stderr));
                loop {
                    let line = within(lines.next_line()).await.unwrap();
                    let line = line.expect("it says why it does not connect");
                    if line.contains("it is revoked") {
                        break;
                    }
                }
                within(launcher.kill()).await.unwrap();
            }
        }
    }
}
