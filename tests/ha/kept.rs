//! What a new leader has of the time of the one before.

use crate::etcd::is_missing;
use crate::world::{Pair, lines};

/// An array whose values take more than etcd takes in one request, 1.5 MiB.
#[tokio::test(flavor = "multi_thread")]
async fn a_record_that_is_longer_than_a_request_of_etcd_is_there_after_the_leader() {
    if is_missing() {
        return;
    }
    let mut pair = Pair::start().await;
    let value = |number: usize| format!("{number}-{}", "x".repeat(100));
    let values: Vec<String> = (0..20_000).map(value).collect();
    let each = pair.site.path("values");
    std::fs::write(&each, values.join("\n") + "\n").unwrap();
    let (file, script) = pair.script("element");
    let script = format!("echo {{value}} >> {}; {script}", file.display());
    let flags = "run --array 0-19999 --name long --mem 900 --cpus 1 --each";
    let flags = format!("{flags} {} -- /bin/sh -c", each.display());
    pair.done(&flags, &[&script]).await;
    assert_eq!(lines(&file).await[0], values[0]);
    pair.fail_over().await;
    pair.until_listed("arrays", "long").await;
    pair.until_listed("nodes", "READY").await;
    assert_eq!(lines(&file).await.len(), 2, "one element was ever run");
    pair.check().await;
    let etcd = pair.etcd.client();
    assert!(etcd.list(b"/ciao/ha/long/").await.unwrap().keys.len() > 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_history_goes_on_under_the_next_leader() {
    if is_missing() {
        return;
    }
    let mut pair = Pair::start().await;
    let run = "run --quiet --wait --mem 16 --cpus 1";
    pair.done(&format!("{run} --name before --"), &["/bin/true"])
        .await;
    pair.until_listed("history", "before").await;
    pair.fail_over().await;
    pair.until_listed("nodes", "READY").await;
    pair.done(&format!("{run} --name after --"), &["/bin/true"])
        .await;
    pair.until_listed("history", "after").await;
    let history = pair.done("history", &[]).await;
    assert!(history.contains("before"), "{history}");
    pair.check().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_configuration_that_was_set_stays_in_force() {
    if is_missing() {
        return;
    }
    let mut pair = Pair::start().await;
    let file = pair.site.path("policy.yaml");
    let text = "configure:\n  scheduler:\n    storage_uri: /etc/ciao\n  launcher:\n    disk_limit: false\n";
    std::fs::write(&file, text).unwrap();
    pair.done("configure", &[file.to_str().unwrap()]).await;
    let before = pair.done("configure --show", &[]).await;
    pair.fail_over().await;
    assert_eq!(pair.done("configure --show", &[]).await, before);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_scheduler_that_ran_alone_takes_what_it_has_along() {
    if is_missing() {
        return;
    }
    let mut pair = Pair::alone().await;
    let (file, script) = pair.script("runs");
    let run = "run --quiet --mem 900 --cpus 1 --queue 10m -- /bin/sh -c";
    let running = pair.done(run, &[&script]).await;
    let began = lines(&file).await;
    let waiting = pair.done(run, &["true"]).await;
    let uuid = pair.schedulers[0].logged("scheduler ").await;
    let uuid = uuid.split("scheduler ").nth(1).unwrap()[..36].to_owned();
    pair.become_one_of_several().await;
    assert!(pair.schedulers[0].logged(" serves").await.contains(&uuid));
    pair.until_listed("queue", &waiting[..8]).await;
    pair.until_listed("nodes", "READY").await;
    pair.until_listed("instances", &running[..8]).await;
    assert_eq!(lines(&file).await, began);
    pair.done("delete", &[&running]).await;
    pair.until_listed("history", &waiting[..8]).await;
    pair.check().await;
}
