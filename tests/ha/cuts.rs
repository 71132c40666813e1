//! A leader that is cut off from etcd, and that launchers still reach.

use proto_frames::payload::QueryKind;

use crate::etcd::{Etcd, is_missing};
use crate::look::{Look, until};
use crate::world::{Pair, Settings, lines};

/// Said by a leader that etcd does not answer.
const PAUSED: &str = "nothing is sent until it does";

/// Said by a leader that has been without etcd for its TTL and 5 s.
const GIVES_UP: &str = "steps down: etcd has not answered for 8s";

/// Two schedulers and three members of etcd, with proxies around the first scheduler, which sends to its launcher.
async fn gated() -> Pair {
    let settings = Settings {
        is_gated: true,
        ..Settings::default()
    };
    let pair = Pair::start_on(Etcd::start(3, &[]), settings).await;
    let before = pair.door.as_ref().unwrap().back.bytes();
    until("the leader sends", || sent(&pair) > before).await;
    pair
}

/// Bytes that the launcher was sent by the first scheduler.
fn sent(pair: &Pair) -> u64 {
    pair.door.as_ref().unwrap().back.bytes()
}

/// A START that reaches the leader when that may send no more; the file that the instance would write.
async fn start_in_vain(pair: &Pair) -> std::path::PathBuf {
    let session = pair.client(0).await;
    pair.gates.iter().for_each(|it| it.there.set(false));
    pair.schedulers[0].logged(PAUSED).await;
    let (late, script) = pair.script("late");
    let start = format!(
        "start:\n  instance_uuid: 11111111-2222-4333-8444-555555555555\n  vm_type: process\n  requirements:\n    mem_mb: 16\n    vcpus: 1\n  \
         command: [\"/bin/sh\", \"-c\", \"{script}\"]\n"
    );
    session.submitter().submit(start.into()).await.unwrap();
    late
}

/// What the launcher and clients see of a leader that is a standby again, and of the one that leads.
async fn another_leads(pair: &Pair, late: &std::path::Path) {
    let listens = "a standby answers HTTP on";
    pair.schedulers[0].logged_times(listens, 2).await;
    pair.gates.iter().for_each(|it| it.set(true));
    pair.until_listed("nodes", "READY").await;
    let (file, script) = pair.script("file");
    let run = "run --quiet --mem 16 --cpus 1 --queue 10m -- /bin/sh -c";
    pair.done(run, &[&script]).await;
    assert_eq!(lines(&file).await.len(), 1);
    assert!(!late.exists(), "a START of the old leader was carried out");
    let standby = pair.address(0);
    let mut look = Look::new();
    loop {
        let status = pair.ha("status", &[]).await;
        if status.contains(&format!("standby {standby}\n")) {
            break;
        }
        look.again(|| status).await;
    }
    pair.check().await;
}

/// Packets are lost, in both directions: connections stay, and nothing comes of them.
#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_is_cut_off_from_etcd_sends_nothing_while_another_leads() {
    if is_missing() {
        return;
    }
    let pair = gated().await;
    let mut session = pair.client(0).await;
    pair.gates.iter().for_each(|it| it.back.set(false));
    let late = start_in_vain(&pair).await;
    pair.schedulers[1].logged(" serves").await;
    let before = sent(&pair);
    let answer = session.list(QueryKind::Nodes, None).await;
    assert!(answer.is_err(), "{answer:?}");
    pair.schedulers[0].logged(GIVES_UP).await;
    assert_eq!(sent(&pair), before);
    another_leads(&pair, &late).await;
}

/// What it sends to etcd arrives, keep-alives too; answers do not.
#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_does_not_hear_etcd_gives_its_place_away() {
    if is_missing() {
        return;
    }
    let pair = gated().await;
    let mut session = pair.client(0).await;
    pair.gates.iter().for_each(|it| it.back.set(false));
    pair.schedulers[0].logged(PAUSED).await;
    // Its key stays in etcd for as long as it renews it: none leads meanwhile.
    let status = pair.ha("status", &[]).await;
    let leads = format!("cluster ha: {} leads", pair.address(0));
    assert!(status.contains(&leads), "{status}");
    let before = sent(&pair);
    let answer = session.list(QueryKind::Nodes, None).await;
    assert!(answer.is_err(), "{answer:?}");
    pair.schedulers[0].logged(GIVES_UP).await;
    assert_eq!(sent(&pair), before);
    pair.schedulers[1].logged(" serves").await;
    another_leads(&pair, &pair.site.path("none")).await;
}

/// What etcd says arrives, and nothing that the leader sends.
#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_etcd_does_not_hear_is_followed_by_another() {
    if is_missing() {
        return;
    }
    let pair = gated().await;
    let late = start_in_vain(&pair).await;
    pair.schedulers[1].logged(" serves").await;
    let before = sent(&pair);
    pair.schedulers[0].logged("steps down").await;
    assert_eq!(sent(&pair), before);
    another_leads(&pair, &late).await;
}
