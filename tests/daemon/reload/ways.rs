//! The ways to ask for a reload, and what is told of it: SIGHUP, `ciaoctl reload`, HTTP, a file that changes.

use std::os::unix::fs::symlink;
use std::sync::Arc;

use ciao_scheduler::cert::Spec;
use proto_frames::payload::{Payload as _, ReloadState, Reloaded};
use proto_frames::{Encoding, Kind, Role};
use rustls::pki_types::ServerName;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::{REFUSED, TAKEN, is_heard, renewed, replace, serial, serial_of, shown_serial};
use crate::certs::TestCa;
use crate::peer::Dialer;
use crate::site::{Daemon, Site, output, within};

/// Where the daemon listens, as its log says behind this.
pub(crate) async fn address(daemon: &Daemon, text: &str) -> std::net::SocketAddr {
    let line = daemon.logged(text).await;
    let (_, address) = line.rsplit_once(' ').unwrap();
    address.parse().unwrap()
}

/// What comes of a request over HTTP, and the serial number of the certificate that it was answered with.
pub(crate) async fn http(
    site: &Site,
    at: std::net::SocketAddr,
    request: &str,
) -> (String, Vec<u8>) {
    let tls = TlsConnector::from(site.ca.client(Role::CONTROLLER));
    let tcp = within(TcpStream::connect(at)).await.unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    let mut stream = within(tls.connect(name, tcp)).await.unwrap();
    let text = format!("{request} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
    within(stream.write_all(text.as_bytes())).await.unwrap();
    let mut answer = Vec::new();
    let _ = within(stream.read_to_end(&mut answer)).await;
    let shown = serial(&stream.get_ref().1.peer_certificates().unwrap()[0]);
    (String::from_utf8(answer).unwrap(), shown)
}

#[tokio::test]
async fn ciaoctl_has_files_read_again_and_its_exit_code_says_what_came_of_it() {
    let site = Site::new();
    let daemon = site.start(&[]).await;
    let dialer = site.dialer(&daemon, Role::AGENT, Encoding::Native);
    let next = renewed(&site.ca.anchor);
    replace(&site.path("scheduler.pem"), next.pem());
    let mut command = site.ciaoctl(daemon.address);
    command.arg("reload");
    let done = output(command).await;
    assert_eq!(done.status.code(), Some(0), "{done:?}");
    let said = String::from_utf8(done.stdout).unwrap();
    assert!(said.contains("has read its files again"), "{said}");
    assert_eq!(shown_serial(&dialer).await, serial_of(next.pem()));

    replace(&site.path("scheduler.pem"), &next.pem()[..200]);
    let mut command = site.ciaoctl(daemon.address);
    command.args(["reload", "--json"]);
    let refused = output(command).await;
    assert_eq!(refused.status.code(), Some(1), "{refused:?}");
    let news: serde_json::Value = serde_json::from_slice(&refused.stdout).unwrap();
    assert_eq!(news["state"], "refused");
    let file = site.path("scheduler.pem").display().to_string();
    assert_eq!((&news["file"], &news["line"]), (&file.into(), &1.into()));
    assert!(news["reason"].as_str().unwrap().contains("damaged PEM"));
    assert_eq!(shown_serial(&dialer).await, serial_of(next.pem()));

    let mut command = site.ciaoctl(daemon.address);
    command.arg("reload");
    let refused = output(command).await;
    assert_eq!(refused.status.code(), Some(1), "{refused:?}");
    let said = String::from_utf8(refused.stderr).unwrap();
    assert!(
        said.contains("all stays as it was") && said.contains("line 1"),
        "{said}"
    );
}

#[tokio::test]
async fn status_says_that_files_are_not_in_force_until_they_are() {
    let site = Site::new();
    let daemon = site.start(&[]).await;
    let status = async || {
        let mut command = site.ciaoctl(daemon.address);
        command.args(["status", "--json"]);
        let output = output(command).await;
        let status: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let conditions = status["conditions"].as_array().unwrap().clone();
        conditions
            .into_iter()
            .find(|it| it["kind"] == "reload_refused")
    };
    let good = std::fs::read_to_string(site.path("scheduler.pem")).unwrap();
    replace(&site.path("scheduler.pem"), "");
    daemon.hang_up();
    daemon.logged(REFUSED).await;
    let condition = status().await.expect("it is not well");
    assert_eq!(condition["severity"], "error");
    let what = condition["what"].as_str().unwrap();
    assert!(what.contains("scheduler.pem: it is empty"), "{what}");
    replace(&site.path("scheduler.pem"), &good);
    daemon.hang_up();
    daemon.logged(TAKEN).await;
    assert_eq!(status().await, None);
}

#[tokio::test]
async fn who_watches_is_sent_what_came_of_each_reload() {
    let site = Site::new();
    let daemon = site.start(&[]).await;
    let mut watcher = site.operator(&daemon).await;
    watcher
        .send(Kind::WATCH, "watch:\n  topics: [scheduler]\n")
        .await;
    watcher.nothing_else().await;
    let mut master = site.master(&daemon).await;
    let mut original = site.connect(&daemon, Role::CONTROLLER, Encoding::Gob).await;
    daemon.hang_up();
    for peer in [&mut watcher, &mut master] {
        let event = peer.expect(Kind::RELOADED).await;
        let news = Reloaded::decode(&event.payload).unwrap();
        assert_eq!((news.state, &*news.by), (ReloadState::Taken, "signal"));
    }
    std::fs::remove_file(site.path("CAcert.pem")).unwrap();
    daemon.hang_up();
    let event = watcher.expect(Kind::RELOADED).await;
    let news = Reloaded::decode(&event.payload).unwrap();
    assert_eq!(news.state, ReloadState::Refused);
    assert!(
        news.file.ends_with("CAcert.pem") && !news.reason.is_empty(),
        "{news:?}"
    );
    // The frame is none of the original's.
    original.nothing_else().await;
}

#[tokio::test]
async fn a_launcher_or_viewer_may_not_ask_for_a_reload() {
    let site = Site::new();
    let daemon = site.start(&[]).await;
    for role in [Role::AGENT, Role::VIEWER] {
        let mut peer = site.connect(&daemon, role, Encoding::Native).await;
        peer.send(Kind::RELOAD, "reload:\n  id: 1\n").await;
        peer.expect(Kind::COMMAND_REFUSED).await;
    }
    let log = daemon.log().join("\n");
    assert!(!log.contains(TAKEN), "{log}");
}

#[tokio::test]
async fn http_and_placement_show_the_new_certificate_too_and_http_can_ask_for_it() {
    let site = Site::new();
    let (own, tokens) = (site.path("http.pem"), site.path("tokens"));
    replace(&own, renewed(&site.ca.anchor).pem());
    replace(&tokens, "a-token\n");
    let (own, tokens) = (own.display().to_string(), tokens.display().to_string());
    let flags = [
        "--http",
        "127.0.0.1:0",
        "--http-cert",
        &own,
        "--placement",
        "0.0.0.0:0",
        "--placement-tokens",
        &tokens,
    ];
    let daemon = site.start(&flags).await;
    let at_http = address(&daemon, "serves HTTP on ").await;
    let mut at_placement = address(&daemon, "answers as the Placement API on ").await;
    at_placement.set_ip([127, 0, 0, 1].into());
    let next = renewed(&site.ca.anchor);
    replace(&site.path("http.pem"), next.pem());
    let (answer, before) = http(&site, at_http, "POST /v1/reload").await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert_ne!(before, serial_of(next.pem()));
    for at in [at_http, at_placement] {
        let (_, after) = http(&site, at, "GET /").await;
        assert_eq!(after, serial_of(next.pem()));
    }
    replace(&site.path("http.pem"), next.certificate_pem());
    let (answer, _) = http(&site, at_http, "POST /v1/reload").await;
    assert!(answer.starts_with("HTTP/1.1 422"), "{answer}");
    assert!(
        answer.contains("reload_refused") && answer.contains("http.pem"),
        "{answer}"
    );
    let (metrics, after) = http(&site, at_http, "GET /metrics").await;
    assert_eq!(after, serial_of(next.pem()));
    for line in [
        "ciao_reloads_total{outcome=\"taken\"} 1",
        "ciao_reloads_total{outcome=\"refused\"} 1",
        "ciao_last_reload_success_timestamp_seconds ",
    ] {
        assert!(metrics.contains(line), "{line} in {metrics}");
    }
}

#[tokio::test]
async fn a_change_of_a_file_is_noticed_where_files_are_watched() {
    let site = Site::new();
    // As cert-manager mounts a secret: the file leads through a link to a directory that is replaced as a whole.
    for (version, pem) in [
        ("one", site.ca.anchor.certified().pem().to_owned()),
        ("two", renewed(&site.ca.anchor).pem().to_owned()),
    ] {
        std::fs::create_dir(site.path(version)).unwrap();
        crate::certs::write_private(&site.path(version).join("tls.pem"), &pem);
    }
    symlink("one", site.path("..data")).unwrap();
    std::fs::remove_file(site.path("scheduler.pem")).unwrap();
    symlink("..data/tls.pem", site.path("scheduler.pem")).unwrap();
    let daemon = site.start(&["--watch-files"]).await;
    let dialer = site.dialer(&daemon, Role::AGENT, Encoding::Native);
    let mut node = site.node(&daemon).await;
    symlink("two", site.path("..data_tmp")).unwrap();
    std::fs::rename(site.path("..data_tmp"), site.path("..data")).unwrap();
    daemon.logged_times(TAKEN, 1).await;
    let second = std::fs::read_to_string(site.path("two/tls.pem")).unwrap();
    assert_eq!(shown_serial(&dialer).await, serial_of(&second));
    // As step renews: another file is renamed over it.
    let third = renewed(&site.ca.anchor);
    replace(&site.path("scheduler.pem"), third.pem());
    daemon.logged_times(TAKEN, 2).await;
    assert_eq!(shown_serial(&dialer).await, serial_of(third.pem()));
    is_heard(&mut node).await;
    let log = daemon.log().join("\n");
    assert!(
        log.contains("a file has changed: all files are read again"),
        "{log}"
    );
}

/// A CA is replaced in three steps, each a reload, and no peer is disconnected: both are trusted, the scheduler shows a
/// certificate of the new one, the old one is trusted no longer.
#[tokio::test]
async fn a_ca_is_rolled_over_without_a_session_being_lost() {
    let site = Site::new();
    let daemon = site.start(&[]).await;
    // By one name, as ciao-cert calls all of its anchors.
    let next = TestCa::with(&Spec::localhost(Role::SCHEDULER));
    let mut old_node = site.node(&daemon).await;
    let both = format!("{}{}", site.ca.anchor.ca_pem(), next.anchor.ca_pem());
    replace(&site.path("CAcert.pem"), &both);
    daemon.hang_up();
    daemon.logged_times(TAKEN, 1).await;
    // A peer of each CA that trusts both.
    let path = site.path("CAcert.pem");
    let anchors = ciao_scheduler::net::tls::load_anchors(&path).unwrap();
    let dialer = |ca: &TestCa| {
        let identity = ca.identity(&Spec::localhost(Role::AGENT));
        let tls = ciao_scheduler::net::tls::client_config(&identity, &anchors).unwrap();
        Dialer {
            tls: Arc::clone(&tls),
            uuid: proto_frames::Uuid::new_v4(),
            ..site.dialer(&daemon, Role::AGENT, Encoding::Native)
        }
    };
    let (of_old, of_new) = (dialer(&site.ca), dialer(&next));
    let mut new_node = of_new.connect().await;
    let shown = renewed(&next.anchor);
    replace(&site.path("scheduler.pem"), shown.pem());
    daemon.hang_up();
    daemon.logged_times(TAKEN, 2).await;
    assert_eq!(shown_serial(&of_old).await, serial_of(shown.pem()));
    replace(&site.path("CAcert.pem"), next.anchor.ca_pem());
    daemon.hang_up();
    daemon.logged_times(TAKEN, 3).await;
    is_heard(&mut old_node).await;
    is_heard(&mut new_node).await;
    let later = of_new.clone().with_uuid(proto_frames::Uuid::new_v4());
    is_heard(&mut later.connect().await).await;
    // TLS 1.3 refuses in what is read first.
    let tried = of_old.tls().await;
    if let Ok(mut wire) = tried {
        assert_eq!(wire.next().await, None);
    }
}
