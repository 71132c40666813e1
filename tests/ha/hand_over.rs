//! A leader hands over to one that stands by, as operators ask.

use std::os::unix::process::ExitStatusExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use serde_json::Value;

use crate::etcd::{Etcd, is_missing};
use crate::world::{Pair, Settings, lines};

/// What `ciaoctl leader` lists: addresses and roles.
async fn listed(pair: &Pair) -> Vec<(String, String)> {
    let document = pair.done("leader -o json", &[]).await;
    let document: Value = serde_json::from_str(&document).unwrap();
    let rows = document["schedulers"].as_array().unwrap();
    let text = |it: &Value| it.as_str().unwrap().to_owned();
    rows.iter()
        .map(|it| (text(&it["address"]), text(&it["role"])))
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_hands_over_and_no_start_is_refused() {
    if is_missing() {
        return;
    }
    let pair = Arc::new(Pair::start().await);
    let (first, second) = (pair.address(0).to_string(), pair.address(1).to_string());
    pair.until_listed("leader", &second).await;
    let (file, script) = pair.script("before");
    let args = ["--", "/bin/sh", "-c", &script];
    pair.done("run --quiet --mem 16 --cpus 1", &args).await;
    let before = lines(&file).await;
    // STARTs one after the other meanwhile.
    let is_over = Arc::new(AtomicBool::new(false));
    let starts = {
        let (pair, is_over) = (Arc::clone(&pair), Arc::clone(&is_over));
        tokio::spawn(async move {
            let mut all = Vec::new();
            while !is_over.load(Ordering::SeqCst) {
                let file = pair.site.path(&format!("start-{}", all.len()));
                let script = format!("echo $$ >> {}", file.display());
                let args = ["--", "/bin/sh", "-c", &script];
                let line = match all.len() % 2 {
                    0 => "run --quiet --mem 1 --cpus 1",
                    _ => "run --quiet --queue 10m --mem 1 --cpus 1",
                };
                pair.done(line, &args).await;
                all.push(file);
            }
            all
        })
    };
    let begun = Instant::now();
    let said = pair.done("leader --transfer", &[]).await;
    assert_eq!(said, format!("{first} hands over to {second}"));
    pair.schedulers[1].logged(" serves").await;
    eprintln!("handed over within {:?}", begun.elapsed());
    pair.schedulers[0]
        .logged_times("a standby answers HTTP on", 2)
        .await;
    is_over.store(true, Ordering::SeqCst);
    for file in starts.await.unwrap() {
        assert_eq!(lines(&file).await.len(), 1, "{}", file.display());
    }
    assert_eq!(lines(&file).await, before);
    pair.until_listed("leader", &first).await;
    let leads = |address: &String| (address.clone(), "leader".to_owned());
    let stands_by = |address: &String| (address.clone(), "standby".to_owned());
    assert_eq!(listed(&pair).await, [leads(&second), stands_by(&first)]);
    // And back, to it by name.
    pair.done("leader --transfer", &[&first]).await;
    pair.schedulers[0].logged_times(" serves", 2).await;
    pair.until_listed("leader", &second).await;
    assert_eq!(listed(&pair).await, [leads(&first), stands_by(&second)]);
    pair.check().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_goes_on_where_none_stands_by_and_leads_again_where_none_takes_its_turn() {
    if is_missing() {
        return;
    }
    // The standby is listed for so long after it was stopped.
    let settings = Settings {
        ttl: Some("6s"),
        ..Settings::default()
    };
    let mut pair = Pair::start_on(Etcd::start(1, &[]), settings).await;
    let (first, second) = (pair.address(0).to_string(), pair.address(1).to_string());
    // It has a lease by then.
    pair.until_listed("leader", &second).await;
    for (to, why) in [
        (
            "nowhere:1",
            format!("none stands by at nowhere:1, but at {second}"),
        ),
        (&*first, format!("{first} leads already")),
    ] {
        let refused = pair.ctl("leader --transfer", &[to]).await;
        assert!(!refused.status.success());
        let said = String::from_utf8(refused.stderr).unwrap();
        assert!(said.contains(&why), "{said}");
    }
    // It is listed for as long as its lease is, and does nothing.
    pair.schedulers[1].freeze();
    pair.done("leader --transfer", &[&second]).await;
    pair.schedulers[0].logged_times(" serves", 2).await;
    pair.schedulers.remove(1).kill().await;
    let refused = pair.ctl("leader --transfer", &[]).await;
    assert!(!refused.status.success());
    let said = String::from_utf8(refused.stderr).unwrap();
    assert!(said.contains("no other scheduler stands by"), "{said}");
    pair.until_listed("nodes", "READY").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_is_stopped_while_it_hands_over_ends() {
    if is_missing() {
        return;
    }
    let mut pair = Pair::start().await;
    let second = pair.address(1).to_string();
    pair.until_listed("leader", &second).await;
    pair.done("leader --transfer", &[]).await;
    // Its sessions end, or it begins again as a standby, which a signal ends before it has its handlers.
    let mut first = pair.schedulers.remove(0);
    first.terminate();
    let status = first.ended().await;
    assert!(status.success() || status.signal() == Some(15), "{status}");
    pair.schedulers[0].logged(" serves").await;
}
