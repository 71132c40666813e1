//! Log levels that change while the daemon runs: by its file and a reload, with all other files or not at all.

use proto_frames::{Encoding, Kind, Role};

use super::{REFUSED, TAKEN, renewed, replace, shown_serial};
use crate::site::{Site, output};
use crate::words::instance;

/// What is logged of a command at a higher level than the usual one.
const TOLD: &str = "DEBUG ciao_scheduler::server::session: COMMAND START of instance";

#[tokio::test]
async fn log_levels_change_with_a_reload_and_a_mistake_in_their_file_leaves_all_as_it_was() {
    let site = Site::new();
    let levels = site.path("levels");
    std::fs::write(&levels, "# quiet\nv=0\n").unwrap();
    let flag = levels.display().to_string();
    // The file counts over the flags.
    let daemon = site.start(&["--log-levels", &flag, "-v", "2"]).await;
    let dialer = site.dialer(&daemon, Role::AGENT, Encoding::Native);
    let mut controller = site.master(&daemon).await;
    controller.start(instance(1), 1).await;
    controller.skip_to(Kind::START_FAILURE).await;
    let is_told = |log: &[String]| log.iter().any(|line| line.contains(TOLD));
    assert!(!is_told(&daemon.log()), "{:#?}", daemon.log());

    std::fs::write(&levels, "v=0\nserver=1\nnet=2\n").unwrap();
    daemon.hang_up();
    daemon.logged_times(TAKEN, 1).await;
    controller.start(instance(2), 1).await;
    daemon.logged(TOLD).await;
    let status = async || {
        let mut command = site.ciaoctl(daemon.address);
        command.arg("status");
        String::from_utf8(output(command).await.stdout).unwrap()
    };
    let shown = status().await;
    assert!(
        shown.contains("log levels    v=0, server=1, net=2\n"),
        "{shown}"
    );

    // A certificate that is right is not taken with levels that are not.
    let before = shown_serial(&dialer).await;
    replace(&site.path("scheduler.pem"), renewed(&site.ca.anchor).pem());
    std::fs::write(&levels, "v=0\nserver\n").unwrap();
    daemon.hang_up();
    let refused = daemon.logged(REFUSED).await;
    let said = format!("cannot use the log levels in {flag}: line 2: expected v=N or MODULE=N");
    assert!(refused.contains(&said), "{refused}");
    assert_eq!(shown_serial(&dialer).await, before);
    assert!(status().await.contains("server=1"));

    std::fs::write(&levels, "v=0\n").unwrap();
    daemon.hang_up();
    daemon.logged_times(TAKEN, 2).await;
    assert_ne!(shown_serial(&dialer).await, before);
    assert!(status().await.contains("log levels    v=0\n"));
}

#[tokio::test]
async fn a_file_of_levels_with_a_mistake_ends_the_start() {
    let site = Site::new();
    let levels = site.path("levels");
    std::fs::write(&levels, "v=1\nv=2\n").unwrap();
    let flag = levels.display().to_string();
    let said = crate::boot::refused(site.command(&["--log-levels", &flag])).await;
    assert!(
        said.contains(&format!("{flag}: line 2: v stands twice")),
        "{said}"
    );
}
