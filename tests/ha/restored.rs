//! An etcd that was set back: what it says is of an earlier time.

use ciao_etcd::{Op, Txn};

use crate::etcd::is_missing;
use crate::world::Pair;

#[tokio::test(flavor = "multi_thread")]
async fn a_restored_snapshot_is_noticed_and_a_new_generation_mends_it() {
    if is_missing() {
        return;
    }
    let mut pair = Pair::start().await;
    let run = "run --quiet --mem 900 --cpus 1 --queue 10m -- sleep";
    let kept = pair.done(run, &["600"]).await;
    let snapshot = pair.site.path("snapshot");
    pair.etcd.save(&snapshot);
    // Later terms than those that the snapshot can have known.
    let etcd = pair.etcd.client();
    for _ in 0..100 {
        let put = Op::Put {
            key: b"/other/program".into(),
            value: b"works".into(),
            lease: 0,
        };
        let then = vec![put];
        let put = Txn {
            then,
            ..Txn::default()
        };
        etcd.txn(put).await.unwrap();
    }
    pair.fail_over().await;
    pair.until_listed("nodes", "READY").await;
    let forgotten = pair.done(run, &["600"]).await;
    let address = pair.address(0);
    pair.stop_schedulers().await;
    pair.etcd.restore(&snapshot);
    pair.add_at(address).await;
    pair.schedulers[0].logged(" serves").await;
    let refused = pair.until_launcher_says("its time is over").await;
    assert!(
        refused.contains("ciao-scheduler ha new-generation"),
        "{refused}"
    );
    assert!(!pair.done("nodes", &[]).await.contains("READY"));
    pair.ha("new-generation", &[]).await;
    pair.schedulers[0].logged_times(" serves", 2).await;
    pair.until_listed("nodes", "READY").await;
    pair.until_listed("instances", &kept[..8]).await;
    // Acknowledged after the snapshot: what etcd was set back to has none of it.
    let queue = pair.done("queue", &[]).await;
    assert!(!queue.contains(&forgotten[..8]), "{queue}");
}
