//! Disks of etcd that are really full: a member whose disk takes no write ends by itself, and does not start again before
//! there is room.

use ciao_etcd::{Op, Txn};

use crate::disk::Disk;
use crate::etcd::{Etcd, Own, host, is_missing};
use crate::look::Look;
use crate::site::Site;
use crate::world::{Pair, Settings, lines};

/// Room of a disk, in KiB: a member of etcd takes two files of 64 MB when it starts.
const KIB: u32 = 140_000;

const RUN: &str = "run --quiet --mem 900 --cpus 1 --queue 10m -- /bin/sh -c";

/// So many members of etcd, of which the first has a small disk.
async fn on_small_disk(members: usize) -> (Pair, Disk) {
    let site = Site::new();
    let disk = Disk::new(&site.path("disk"), KIB).await;
    let mut own = vec![Own::default(); members];
    own[0].disk = Some(disk.path.clone());
    let etcd = Etcd::start_each(host(), "http", &own, &[]);
    let pair = Pair::start_at(site, etcd, Settings::default()).await;
    (pair, disk)
}

/// Fills the disk, and has etcd write until its first member has ended for that.
async fn fill(pair: &mut Pair, disk: &Disk) {
    disk.fill();
    let client = pair.etcd.client();
    let mut look = Look::new();
    while !pair.etcd.has_ended(0) {
        let put = Op::Put {
            key: b"/other/program".into(),
            value: vec![7; 100_000],
            lease: 0,
        };
        let put = Txn {
            then: vec![put],
            ..Txn::default()
        };
        // Its answer is of no account.
        let _ = client.txn(put).await;
        look.again(|| "a member with a full disk goes on".to_owned())
            .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_whose_disk_is_full_costs_no_session_and_is_named() {
    if is_missing() {
        return;
    }
    let (mut pair, disk) = on_small_disk(3).await;
    pair.etcd.have_lead(0).await;
    let (file, script) = pair.script("runs");
    pair.done(RUN, &[&script]).await;
    let began = lines(&file).await;
    fill(&mut pair, &disk).await;
    let waiting = pair.done(RUN, &["true"]).await;
    pair.until_listed("queue", &waiting[..8]).await;
    let mut look = Look::new();
    loop {
        let status = pair.ctl("status", &[]).await;
        let status = String::from_utf8_lossy(&status.stdout).into_owned();
        if status.contains("1 of 3 members of etcd do not answer") {
            break;
        }
        look.again(|| status).await;
    }
    pair.check().await;
    disk.free();
    pair.etcd.restart(0);
    let mut look = Look::new();
    loop {
        let status = pair.ha("status", &[]).await;
        if status.matches(": version 3.").count() == 3 {
            break;
        }
        look.again(|| status).await;
    }
    pair.check().await;
    assert_eq!(lines(&file).await, began);
    let log = pair.schedulers[0].log();
    assert!(!log.iter().any(|it| it.contains("steps down")));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_etcd_whose_only_disk_is_full_comes_back_with_all_that_was_acknowledged() {
    if is_missing() {
        return;
    }
    let (mut pair, disk) = on_small_disk(1).await;
    let (file, script) = pair.script("runs");
    let running = pair.done(RUN, &[&script]).await;
    let began = lines(&file).await;
    let (_, script) = pair.script("waits");
    pair.done(RUN, &[&script]).await;
    fill(&mut pair, &disk).await;
    pair.schedulers[0].logged("cluster_paused").await;
    let said = pair.ha_refused("status", &[]).await;
    assert!(said.contains("etcd"), "{said}");
    pair.schedulers[0]
        .logged("steps down: etcd has not answered for 8s")
        .await;
    for scheduler in &pair.schedulers {
        scheduler.logged("cluster_etcd_trouble").await;
    }
    // It is no better for being started again.
    pair.etcd.restart(0);
    let mut look = Look::new();
    while !pair.etcd.has_ended(0) {
        look.again(|| "it starts with a full disk".to_owned()).await;
    }
    disk.free();
    pair.etcd.restart(0);
    pair.until_node().await;
    pair.check().await;
    assert_eq!(lines(&file).await, began);
    pair.done("delete", &[&running]).await;
    assert_eq!(lines(&pair.site.path("waits")).await.len(), 1);
    pair.check().await;
}
