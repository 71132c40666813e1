//! Several members of etcd, of which some die, or all.

use ciao_scheduler::ctl::event::Event;
use proto_frames::payload::QueryKind;
use tokio::task::JoinSet;

use crate::etcd::{Etcd, is_missing};
use crate::killed::submit;
use crate::site::within;
use crate::words::instance;
use crate::world::{Pair, Settings, lines};

/// Members of etcd: one may die.
const MEMBERS: usize = 3;

/// STARTs that are on their way while etcd has no leader.
const STARTS: usize = 6;

/// Said by a leader that etcd does not answer.
const PAUSED: &str = "nothing is sent until it does";

#[tokio::test(flavor = "multi_thread")]
async fn the_loss_of_etcds_leader_and_then_of_all_members_for_a_moment_costs_no_session_and_no_start()
 {
    if is_missing() {
        return;
    }
    let settings = Settings {
        // All members have to be back within this and 5 s, on a busy machine too.
        ttl: Some("5s"),
        is_gated: true,
        ..Settings::default()
    };
    let mut pair = Pair::start_on(Etcd::start(MEMBERS, &[]), settings).await;
    let mut session = pair.client(0).await;
    let connections = pair.door.as_ref().unwrap().connections();
    let killed = pair.etcd.leader().await;
    pair.etcd.kill(killed);
    run_many(&pair, "one").await;
    // A majority of two has a leader again. Now none is left, and then they are back, with what they had on disk.
    let others = (0..MEMBERS).filter(|it| *it != killed);
    others.clone().for_each(|it| pair.etcd.kill(it));
    pair.schedulers[0].logged(PAUSED).await;
    others.for_each(|it| pair.etcd.restart(it));
    run_many(&pair, "two").await;
    pair.schedulers[0].logged("sending again").await;
    session.list(QueryKind::Nodes, None).await.unwrap();
    assert_eq!(pair.door.as_ref().unwrap().connections(), connections);
    let log = pair.schedulers[0].log();
    assert!(!log.iter().any(|it| it.contains("steps down")));
}

/// Has many run at the same time, each of which is acknowledged and runs once.
async fn run_many(pair: &Pair, name: &str) {
    let mut running = JoinSet::new();
    let files: Vec<_> = (0..STARTS)
        .map(|number| pair.site.path(&format!("{name}-{number}")))
        .collect();
    for file in &files {
        let mut command = pair.ciaoctl();
        let run = "run --quiet --mem 16 --cpus 1 --queue 10m -- /bin/sh -c";
        command.args(run.split(' '));
        command.arg(format!("echo ran >> {}", file.display()));
        running.spawn(crate::site::output(command));
    }
    while let Some(ran) = running.join_next().await {
        let ran = ran.unwrap();
        assert!(ran.status.success(), "{ran:?}");
    }
    for file in &files {
        assert_eq!(lines(file).await, ["ran"]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_leader_may_die_together_with_that_of_etcd() {
    if is_missing() {
        return;
    }
    let settings = Settings::default();
    let mut pair = Pair::start_on(Etcd::start(MEMBERS, &[]), settings).await;
    let (file, script) = pair.script("runs");
    let run = "run --quiet --mem 900 --cpus 1 --queue 10m -- /bin/sh -c";
    let running = pair.done(run, &[&script]).await;
    let began = lines(&file).await;
    let waiting = pair.done(run, &["true"]).await;
    let leader = pair.etcd.leader().await;
    pair.etcd.kill(leader);
    pair.fail_over().await;
    pair.until_listed("queue", &waiting[..8]).await;
    pair.until_listed("instances", &running[..8]).await;
    pair.until_listed("nodes", "READY").await;
    assert_eq!(lines(&file).await, began);
    pair.done("delete", &[&running]).await;
    pair.until_listed("history", &waiting[..8]).await;
    // The member that is left and the one that comes back: nothing is to be done by hand.
    pair.etcd.restart(leader);
    pair.etcd.leader().await;
    pair.until_listed("nodes", "READY").await;
    pair.check().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_without_etcd_steps_down_and_one_leads_once_it_is_back() {
    if is_missing() {
        return;
    }
    let settings = Settings::default();
    let mut pair = Pair::start_on(Etcd::start(MEMBERS, &[]), settings).await;
    let (file, script) = pair.script("runs");
    let run = "run --quiet --mem 900 --cpus 1 --queue 10m -- /bin/sh -c";
    let running = pair.done(run, &[&script]).await;
    let began = lines(&file).await;
    let waiting = pair.done(run, &["true"]).await;
    (0..MEMBERS).for_each(|it| pair.etcd.kill(it));
    pair.schedulers[0]
        .logged("steps down: etcd has not answered for 8s")
        .await;
    pair.schedulers[0]
        .logged_times("a standby answers HTTP on", 2)
        .await;
    // Who looks is told what is wrong.
    pair.schedulers[0].logged("cluster_etcd_trouble").await;
    (0..MEMBERS).for_each(|it| pair.etcd.restart(it));
    pair.until_listed("queue", &waiting[..8]).await;
    pair.until_listed("instances", &running[..8]).await;
    pair.until_listed("nodes", "READY").await;
    assert_eq!(lines(&file).await, began);
    pair.check().await;
}

/// What was overwritten is gone, and then all members begin again with what they have on disk.
#[tokio::test(flavor = "multi_thread")]
async fn a_compaction_and_a_restart_of_all_members_cost_nothing() {
    if is_missing() {
        return;
    }
    let settings = Settings {
        ttl: Some("5s"),
        is_gated: true,
        ..Settings::default()
    };
    let mut pair = Pair::start_on(Etcd::start(MEMBERS, &[]), settings).await;
    run_many(&pair, "before").await;
    let (_, script) = pair.script("runs");
    let run = "run --quiet --mem 900 --cpus 1 --queue 10m -- /bin/sh -c";
    pair.done(run, &[&script]).await;
    lines(&pair.site.path("runs")).await;
    pair.done(run, &["true"]).await;
    let client = pair.etcd.client();
    let (_, revision) = client.get(b"/ciao/ha/leader").await.unwrap();
    client.compact(revision).await.unwrap();
    (0..MEMBERS).for_each(|it| pair.etcd.kill(it));
    pair.schedulers[0].logged(PAUSED).await;
    (0..MEMBERS).for_each(|it| pair.etcd.restart(it));
    pair.schedulers[0].logged("sending again").await;
    pair.check().await;
    pair.fail_over().await;
    pair.until_node().await;
    pair.check().await;
}

/// The store is etcd: a START that was taken in waits for it as long as the leader may lead without it.
#[tokio::test(flavor = "multi_thread")]
async fn a_start_waits_for_etcd_as_long_as_its_leader_does() {
    if is_missing() {
        return;
    }
    let settings = Settings {
        // A leader gives up after 14 s.
        ttl: Some("9s"),
        ..Settings::default()
    };
    let mut pair = Pair::start_on(Etcd::start(1, &[]), settings).await;
    let (file, script) = pair.script("runs");
    let run = "run --quiet --mem 900 --cpus 1 --queue 10m -- /bin/sh -c";
    pair.done(run, &[&script]).await;
    lines(&file).await;
    let mut session = pair.client(0).await;
    pair.etcd.kill(0);
    submit(&session.submitter(), 1, 900).await;
    // Six calls in a row were not answered, one each 1.5 s.
    pair.schedulers[0].logged("cannot read who leads").await;
    pair.etcd.restart(0);
    let queued = async {
        loop {
            match session.next_event().await.unwrap() {
                Event::Queued(it) => return it.instance_uuid,
                Event::StartFailure(it) => panic!("{it:?}"),
                _ => {}
            }
        }
    };
    let uuid = within(queued).await;
    assert_eq!(uuid, instance(1).to_string());
    pair.until_listed("queue", &uuid[..8]).await;
    pair.check().await;
}
