//! Starting: whatever is wrong is said in one clear line before anything is started, with an exit code that is not 0.

use std::net::TcpListener;
use std::time::{Duration, SystemTime};

use ciao_scheduler::cert::{Anchor, Spec};
use proto_frames::{Encoding, Role};
use tokio::process::Command;

use crate::look::until;
use crate::site::{Daemon, Site, output, within};

/// Runs a daemon that cannot start; the one line it says.
pub(crate) async fn refused(command: Command) -> String {
    let output = output(command).await;
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines.len(), 1, "{said}");
    assert!(!said.contains("listens on"));
    lines[0]
        .strip_prefix("ciao-scheduler: ")
        .expect("it says who speaks")
        .to_owned()
}

#[tokio::test]
async fn a_certificate_without_the_schedulers_role_is_refused() {
    let site = Site::new();
    let agent = site.path("agent.pem").display().to_string();
    let said = refused(site.command(&["-cert", &agent])).await;
    let expected = format!("{agent} grants AGENT, not SCHEDULER: ");
    assert!(said.starts_with(&expected), "{said}");
}

#[tokio::test]
async fn peers_that_never_close_their_side_do_not_hold_up_the_end() {
    let site = Site::new();
    // Neither side is waited for until here: the end would come with the drain's deadline, and a warning.
    let mut daemon = site.start(&["--stall-time", "60s"]).await;
    let mut controller = site.connect(&daemon, Role::CONTROLLER, Encoding::Gob).await;
    let mut node = site.connect(&daemon, Role::AGENT, Encoding::Gob).await;
    controller.expect_node().await;
    daemon.terminate();
    assert!(daemon.ended().await.success());
    let log = daemon.log().join("\n");
    assert!(!log.contains("did not take what was queued"), "{log}");
    node.expect_end().await;
    controller.expect_end().await;
}

/// Runs a daemon whose certificate file holds this; the one line it says.
async fn refused_with(site: &Site, certificate: &str) -> String {
    std::fs::write(site.path("scheduler.pem"), certificate).unwrap();
    refused(site.command(&[])).await
}

#[tokio::test]
async fn a_port_in_use_is_named_with_a_way_out() {
    let site = Site::new();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let said = refused(site.command(&["--listen", &address])).await;
    assert!(
        said.starts_with(&format!(
            "cannot listen on {address}: Address already in use"
        )),
        "{said}"
    );
    assert!(
        said.contains("give another port (--listen or --http"),
        "{said}"
    );
}

#[tokio::test]
async fn a_certificate_that_is_not_there_is_named() {
    let site = Site::new();
    std::fs::remove_file(site.path("scheduler.pem")).unwrap();
    let said = refused(site.command(&[])).await;
    let path = site.path("scheduler.pem").display().to_string();
    assert_eq!(
        said,
        format!("cannot read {path}: No such file or directory (os error 2)")
    );
}

#[tokio::test]
async fn a_ca_that_is_not_there_is_named() {
    let site = Site::new();
    std::fs::remove_file(site.path("CAcert.pem")).unwrap();
    let said = refused(site.command(&[])).await;
    assert!(said.contains("CAcert.pem: No such file"), "{said}");
}

#[tokio::test]
async fn a_certificate_without_its_key_is_refused() {
    let site = Site::new();
    let certificate = site.ca.anchor.ca_pem().to_owned();
    let said = refused_with(&site, &certificate).await;
    assert!(
        said.contains("scheduler.pem: no private key in it"),
        "{said}"
    );
}

#[tokio::test]
async fn a_file_that_is_no_certificate_is_refused() {
    let site = Site::new();
    let said = refused_with(&site, "hello\n").await;
    assert!(
        said.contains("scheduler.pem: no certificate in it"),
        "{said}"
    );
}

#[tokio::test]
async fn a_key_that_does_not_match_is_refused() {
    let site = Site::new();
    let other = Anchor::new(&Spec::localhost(Role::SCHEDULER)).unwrap();
    let key = other.certified().pem();
    let key = &key[key.find("-----BEGIN EC PRIVATE KEY").unwrap()..];
    let said = refused_with(&site, &format!("{}{key}", site.ca.anchor.ca_pem())).await;
    assert!(
        said.ends_with("scheduler.pem: the private key does not belong to the certificate"),
        "{said}"
    );
}

#[tokio::test]
async fn an_expired_certificate_is_refused_with_its_date() {
    let site = Site::new();
    let hour = Duration::from_secs(3600);
    let spec = Spec {
        not_before: SystemTime::now() - 2 * hour,
        lifetime: hour,
        ..Spec::localhost(Role::SCHEDULER)
    };
    let expired = site.ca.anchor.sign(&spec).unwrap();
    let said = refused_with(&site, expired.pem()).await;
    assert!(said.contains("the certificate expired 20"), "{said}");
    assert!(said.contains("make a new one with ciao-cert"), "{said}");
}

#[tokio::test]
async fn a_certificate_that_the_ca_did_not_sign_is_refused() {
    let site = Site::new();
    let other = Anchor::new(&Spec::localhost(Role::SCHEDULER)).unwrap();
    let said = refused_with(&site, other.certified().pem()).await;
    assert!(said.contains("does not fit the CA in"), "{said}");
}

#[tokio::test]
async fn a_leaf_given_as_the_ca_is_refused() {
    let site = Site::new();
    let leaf = site.ca.anchor.sign(&Spec::localhost(Role::AGENT)).unwrap();
    std::fs::write(site.path("CAcert.pem"), leaf.certificate_pem()).unwrap();
    let said = refused(site.command(&[])).await;
    assert!(
        said.contains("CAcert.pem: not a CA certificate (CA:TRUE is missing)"),
        "{said}"
    );
}

#[tokio::test]
async fn a_state_directory_that_is_a_file_is_refused() {
    let site = Site::new();
    std::fs::write(site.path("state"), "").unwrap();
    let path = site.path("state").display().to_string();
    let said = refused(site.command(&["--state-dir", &path])).await;
    assert!(
        said.starts_with(&format!("cannot use the state directory {path}: ")),
        "{said}"
    );
}

#[tokio::test]
async fn a_value_that_makes_no_sense_is_refused_by_name() {
    let site = Site::new();
    for (flag, value) in [
        ("--listen", "nowhere:x"),
        ("--cpu-ratio", "0"),
        ("--in-doubt-time", "soon"),
        ("--missed-stats", "0"),
        ("-stderrthreshold", "LOUD"),
        ("--accounting", "guessed"),
    ] {
        let output = output(site.command(&[flag, value])).await;
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{said}");
        let flag = flag.trim_start_matches('-');
        assert!(said.contains(&format!("--{flag} <")), "{said}");
        assert!(said.contains(value), "{said}");
    }
}

#[tokio::test]
async fn a_key_that_others_can_read_is_warned_of() {
    use std::os::unix::fs::PermissionsExt as _;
    let site = Site::new();
    let readable = std::fs::Permissions::from_mode(0o644);
    std::fs::set_permissions(site.path("scheduler.pem"), readable).unwrap();
    let daemon = site.start(&[]).await;
    daemon
        .logged("scheduler.pem: the private key in it can be read by others")
        .await;
}

#[tokio::test]
async fn sighup_is_logged_and_ends_nothing() {
    let (_site, mut daemon) = Site::running().await;
    daemon.hang_up();
    daemon.logged("SIGHUP: all files are read again").await;
    // It still serves, and stops in order when it is asked to.
    drop(
        tokio::net::TcpStream::connect(daemon.address)
            .await
            .unwrap(),
    );
    daemon.terminate();
    assert_eq!(daemon.ended().await.code(), Some(0));
    assert!(daemon.log().iter().any(|line| line.ends_with("stopped")));
}

#[tokio::test]
async fn a_log_that_was_renamed_is_opened_again_on_sighup_and_by_ciaoctl_reload() {
    let site = Site::new();
    let logs = site.path("logs");
    let directory = format!("--log_dir={}", logs.display());
    let mut command = site.command(&["--logtostderr=false", &directory, "--alsologtostderr"]);
    command.stderr(std::process::Stdio::piped());
    let daemon = Daemon::start(command).await;
    let is_log = |path: &std::path::PathBuf| path.extension().is_some_and(|it| it == "log");
    let log = || {
        let entries = std::fs::read_dir(&logs).unwrap();
        entries.map(|entry| entry.unwrap().path()).find(is_log)
    };
    let begun = log().expect("a log is written");
    // A thread writes it, behind what standard error has already.
    until("what is logged at the start is in the file", || {
        let written = std::fs::read_to_string(&begun);
        written.is_ok_and(|text| text.contains("event=listening"))
    })
    .await;
    std::fs::rename(&begun, logs.join("rotated.1")).unwrap();
    daemon.hang_up();
    until("the log is there again", || {
        let written = std::fs::read_to_string(&begun);
        written.is_ok_and(|text| text.contains("event=log_reopened"))
    })
    .await;
    let rotated = std::fs::read_to_string(logs.join("rotated.1")).unwrap();
    assert!(rotated.contains("event=listening"), "{rotated}");
    assert!(!rotated.contains("log_reopened"), "{rotated}");

    std::fs::rename(&begun, logs.join("rotated.2")).unwrap();
    let mut command = site.ciaoctl(daemon.address);
    command.arg("reload");
    assert_eq!(output(command).await.status.code(), Some(0));
    until("the log is there again", || {
        let written = std::fs::read_to_string(&begun);
        written.is_ok_and(|text| text.contains("a reload was asked for: the log file is opened"))
    })
    .await;
}

#[tokio::test]
async fn a_daemon_that_cannot_start_ends_though_nobody_reads_its_standard_error() {
    let (site, daemon) = Site::running().await;
    let (unread, full) = std::io::pipe().unwrap();
    rustix::io::ioctl_fionbio(&full, true).unwrap();
    let mut writer = full.try_clone().unwrap();
    while std::io::Write::write(&mut writer, &[b'x'; 4096]).is_ok() {}
    rustix::io::ioctl_fionbio(&full, false).unwrap();
    // What has it has ended when it cannot listen there.
    let listen = format!("--listen={}", daemon.address);
    let mut command = site.command(&["--v=2", &listen]);
    command.stderr(full);
    let ended = within(command.status()).await.unwrap();
    assert_eq!(ended.code(), Some(1));
    drop(unread);
}
