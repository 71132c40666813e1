//! What operators see and do of several schedulers.

use ciao_scheduler::cert::Spec;
use proto_frames::Role;

use crate::etcd::is_missing;
use crate::look::Look;
use crate::world::Pair;

#[tokio::test(flavor = "multi_thread")]
async fn status_names_who_leads_and_who_stands_by() {
    if is_missing() {
        return;
    }
    let mut pair = Pair::start().await;
    let (first, second) = (pair.address(0).to_string(), pair.address(1).to_string());
    let status = pair.ha("status", &[]).await;
    assert!(
        status.contains(&format!("cluster ha: {first} leads")),
        "{status}"
    );
    assert!(status.contains(&format!("standby {second}\n")), "{status}");
    assert!(
        status.contains(&format!("etcd {}: version 3.", pair.etcd.endpoints[0])),
        "{status}"
    );
    pair.fail_over().await;
    let status = pair.ha("status", &["--json"]).await;
    let status: serde_json::Value = serde_json::from_str(&status).unwrap();
    assert_eq!(status["leader"], second);
    assert_eq!(status["standby"], serde_json::json!([]));
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_see_who_leads_and_who_stands_by() {
    if is_missing() {
        return;
    }
    let mut pair = Pair::start().await;
    let (first, second) = (pair.address(0).to_string(), pair.address(1).to_string());
    let mut look = Look::new();
    let schedulers = loop {
        // Its exit code says whether all is well.
        let status = pair.ctl("status --json", &[]).await;
        let status: serde_json::Value = serde_json::from_slice(&status.stdout).unwrap();
        let schedulers = status["scheduler"]["schedulers"].clone();
        if schedulers["standby"] == serde_json::json!([second]) {
            break schedulers;
        }
        look.again(|| status.to_string()).await;
    };
    assert_eq!(schedulers["leader"], first);
    assert_eq!(schedulers["etcd"]["answering"], 1);
    let text = pair.ctl("status", &[]).await;
    let text = String::from_utf8_lossy(&text.stdout).into_owned();
    assert!(
        text.contains(&format!("{first} leads ha in term 0.")),
        "{text}"
    );
    let leader = pair.http(0).await.get("/metrics").await.body;
    for line in [
        "ciao_is_leader 1.0",
        "ciao_standby_schedulers 1.0",
        "ciao_etcd_members{answers=\"yes\"} 1.0",
        "ciao_etcd_alarms 0.0",
        "ciao_leader_term{part=\"generation\"} 0.0",
    ] {
        assert!(leader.contains(&format!("{line}\n")), "{line} in {leader}");
    }
    let standby = pair.http(1).await.get("/metrics").await.body;
    assert!(standby.contains("ciao_is_leader 0.0\n"), "{standby}");
    pair.fail_over().await;
    let mut look = Look::new();
    loop {
        let status = pair.ctl("status --json", &[]).await;
        let status = String::from_utf8(status.stdout).unwrap();
        if status.contains("\"no_standby\"") {
            return;
        }
        look.again(|| status).await;
    }
}

/// A standby is to be let in, and to let in, when its turn comes.
#[tokio::test(flavor = "multi_thread")]
async fn a_standby_reads_its_certificates_again() {
    if is_missing() {
        return;
    }
    let pair = Pair::start().await;
    let old = pair.shown(1).await;
    let file = pair.site.path("scheduler.pem");
    let whole = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, "no certificate").unwrap();
    pair.schedulers[1].hang_up();
    pair.schedulers[1].logged("event=reload_refused").await;
    assert_eq!(pair.shown(1).await, old);
    let spec = Spec::localhost(Role::SCHEDULER);
    let next = pair.site.ca.anchor.sign(&spec).unwrap();
    assert_ne!(next.pem(), whole);
    std::fs::write(&file, next.pem()).unwrap();
    pair.schedulers[1].hang_up();
    pair.schedulers[1].logged("event=files_reloaded").await;
    assert_ne!(pair.shown(1).await, old);
    // The leader was told nothing.
    assert_eq!(pair.shown(0).await, old);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_turn_of_a_dead_leader_is_ended_by_hand_and_that_of_a_living_one_is_not() {
    if is_missing() {
        return;
    }
    let mut pair = Pair::start().await;
    let (first, second) = (pair.address(0).to_string(), pair.address(1).to_string());
    let released = pair
        .ha("release", &["--force", "--cluster-address", &second])
        .await;
    assert_eq!(
        released,
        format!("nothing to do: {first} leads, not {second}\n")
    );
    let refused = pair
        .ha_refused("release", &["--cluster-address", &first])
        .await;
    assert!(refused.contains("something still answers"), "{refused}");
    pair.schedulers.remove(0).kill().await;
    let released = pair.ha("release", &["--cluster-address", &first]).await;
    // Its TTL may have been over by then.
    let by_now = [
        format!("{first} leads no more\n"),
        "nothing to do: no scheduler leads\n".to_owned(),
        format!("nothing to do: {second} leads, not {first}\n"),
    ];
    assert!(by_now.contains(&released), "{released}");
    pair.schedulers[0].logged(" serves").await;
}

/// As after etcd was wiped: launchers would take the revisions of the new one for those of an earlier leader.
#[tokio::test(flavor = "multi_thread")]
async fn after_a_new_generation_terms_are_later_than_any_before() {
    if is_missing() {
        return;
    }
    let pair = Pair::start().await;
    let known = pair.site.path("node-a").join("leader-term.json");
    assert!(
        std::fs::read_to_string(&known)
            .unwrap()
            .contains("\"generation\":0,")
    );
    let said = pair.ha("new-generation", &[]).await;
    let generation = said.split([' ', ':']).nth(1).unwrap();
    pair.schedulers[0]
        .logged("steps down: a new generation has begun")
        .await;
    let mut look = Look::new();
    while !std::fs::read_to_string(&known)
        .unwrap()
        .contains(generation)
    {
        look.again(|| format!("the launcher knows none of generation {generation}"))
            .await;
    }
    pair.until_listed("nodes", "READY").await;
}
