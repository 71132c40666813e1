//! What becomes of work when the leader is gone, or only seems to be.

use ciao_scheduler::ctl::client::{Client, ConnectError};

use crate::etcd::is_missing;
use crate::site::Daemon;
use crate::world::{Pair, lines};

/// The UUID by which peers know a scheduler, once it serves.
async fn served_as(scheduler: &Daemon) -> String {
    let line = scheduler.logged(" serves").await;
    let (before, _) = line.rsplit_once(' ').unwrap();
    before.rsplit_once(' ').unwrap().1.to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_waits_and_what_runs_outlives_the_leader() {
    if is_missing() {
        return;
    }
    let mut pair = Pair::start().await;
    let (first, script) = pair.script("first");
    let running = pair
        .done(
            "run --quiet --mem 900 --cpus 1 --queue 10m -- /bin/sh -c",
            &[&script],
        )
        .await;
    let began = lines(&first).await;
    let (second, script) = pair.script("second");
    let waiting = pair
        .done(
            "run --quiet --mem 900 --cpus 1 --queue 10m -- /bin/sh -c",
            &[&script],
        )
        .await;
    let killed = pair.schedulers.remove(0);
    let uuid = served_as(&killed).await;
    killed.kill().await;
    // Peers know it by the same UUID.
    assert_eq!(served_as(&pair.schedulers[0]).await, uuid);
    // Acknowledged before, and known to who leads now.
    pair.until_listed("queue", &waiting[..8]).await;
    pair.until_listed("instances", &running[..8]).await;
    pair.until_listed("nodes", "READY").await;
    assert!(!second.exists(), "there is no room for it yet");
    // The same process as before.
    assert_eq!(lines(&first).await, began);
    assert!(std::path::Path::new(&format!("/proc/{}", began[0])).exists());
    pair.done("delete", &[&running]).await;
    assert_eq!(lines(&second).await.len(), 1);
    assert_eq!(lines(&first).await, began);
    pair.check().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_stood_still_sends_nothing_and_steps_down() {
    if is_missing() {
        return;
    }
    let pair = Pair::start().await;
    let session = pair.client(0).await;
    pair.schedulers[0].freeze();
    // It reads this once it goes on, and has the launcher's connection still.
    let (late, script) = pair.script("late");
    let start = format!(
        "start:\n  instance_uuid: 11111111-2222-4333-8444-555555555555\n  vm_type: process\n  requirements:\n    mem_mb: 16\n    vcpus: 1\n  \
         command: [\"/bin/sh\", \"-c\", \"{script}\"]\n"
    );
    session.submitter().submit(start.into()).await.unwrap();
    pair.schedulers[1].logged(" serves").await;
    let (file, script) = pair.script("file");
    let mut command = pair.site.ciaoctl(pair.address(1));
    command.args([
        "run", "--quiet", "--mem", "16", "--cpus", "1", "--queue", "10m", "--", "/bin/sh", "-c",
        &script,
    ]);
    let ran = crate::site::output(command).await;
    assert!(ran.status.success(), "{ran:?}");
    assert!(!file.exists());
    pair.schedulers[0].thaw();
    pair.schedulers[0].logged("steps down").await;
    // It becomes a standby, and its launcher goes to the other.
    pair.schedulers[0]
        .logged_times("a standby answers HTTP on", 2)
        .await;
    assert_eq!(lines(&file).await.len(), 1);
    assert!(!late.exists(), "a START of the old leader was carried out");
    pair.check().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_standby_names_the_leader_and_takes_over_when_that_leaves() {
    if is_missing() {
        return;
    }
    let mut pair = Pair::start().await;
    let leader = pair.address(0).to_string();
    let config = pair.site.client_config(pair.address(1));
    let refused = Client::connect(&config).await.err();
    let Some(ConnectError::Link(error)) = refused else {
        panic!("{refused:?}");
    };
    let said = error.to_string();
    assert!(
        said.contains(&format!("the leader is at {leader}")),
        "{said}"
    );
    let http = pair.http(1).await;
    assert_eq!(http.get("/livez").await.status, 200);
    let not_ready = http.get("/readyz").await;
    assert_eq!(not_ready.status, 503);
    assert!(not_ready.body.contains(&leader), "{not_ready:?}");
    // An original peer that is refused once TLS stands never tries again.
    assert!(pair.tls(1, &[]).await.is_err());
    assert!(pair.tls(0, &[]).await.is_ok());
    // It leaves in order: its lease is ended, not waited for.
    let mut leaving = pair.schedulers.remove(0);
    leaving.terminate();
    assert!(leaving.ended().await.success());
    pair.schedulers[0].logged(" serves").await;
    pair.until_listed("nodes", "READY").await;
}
