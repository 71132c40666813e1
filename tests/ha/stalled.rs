//! Members of etcd that do not reach each other, while schedulers reach them: one that led, and does not know yet that
//! another does; all of them for a moment; and ways that are shut in one direction.

use ciao_scheduler::ctl::client::Client;
use proto_frames::payload::QueryKind;

use crate::etcd::{Etcd, is_missing};
use crate::look::Look;
use crate::mesh::Mesh;
use crate::world::{Pair, Settings, lines};

/// Members of etcd.
const MEMBERS: usize = 3;

/// The member that leads the others, and is then cut off from them.
const LEADER: usize = 0;

/// It notices that only after this, in ms: longer than any test takes to see what becomes of schedulers.
const STALLED: [&str; 2] = ["--election-timeout", "40000"];

/// All elections of etcd have to be over within this and 5 s, on a busy machine too.
const LONG: &str = "5s";

/// Has an instance have most of the node.
const RUN: &str = "run --quiet --mem 900 --cpus 1 --queue 10m -- /bin/sh -c";

/// Two schedulers with proxies around the first, and between the members of etcd, of which the first leads.
async fn meshed(first: &[&str], knows: Option<usize>, ttl: &'static str) -> (Pair, Mesh) {
    let (etcd, mesh) = Mesh::start(MEMBERS, first).await;
    let settings = Settings {
        is_gated: true,
        knows,
        ttl: Some(ttl),
        ..Settings::default()
    };
    let pair = Pair::start_on(etcd, settings).await;
    pair.etcd.have_lead(LEADER).await;
    (pair, mesh)
}

/// Waits until a member that is not this one leads, as others say.
async fn another_leads(etcd: &Etcd, but: usize) -> usize {
    let mut look = Look::new();
    loop {
        let statuses = etcd.client().statuses().await;
        let leads =
            |(member, (_, status)): (usize, &(String, Result<ciao_etcd::MemberStatus, _>))| {
                let leads = status.as_ref().is_ok_and(|it| it.is_leader);
                (leads && member != but).then_some(member)
            };
        if let Some(member) = statuses.iter().enumerate().find_map(leads) {
            return member;
        }
        look.again(|| format!("{statuses:?}")).await;
    }
}

/// One instance runs, and one waits for its room.
async fn two(pair: &Pair) -> (String, String) {
    let (file, script) = pair.script("runs");
    let running = pair.done(RUN, &[&script]).await;
    lines(&file).await;
    let (_, script) = pair.script("waits");
    (running, pair.done(RUN, &[&script]).await)
}

/// Ends the one that runs, so that the one that waited does, and nothing else has changed.
async fn go_on(pair: &Pair, (running, waiting): (String, String)) {
    pair.until_node().await;
    pair.check().await;
    pair.done("delete", &[&running]).await;
    assert_eq!(lines(&pair.site.path("waits")).await.len(), 1);
    pair.until_listed("instances", &waiting[..8]).await;
    pair.check().await;
}

/// The session of an operator that was there before is there still, and so are those of launchers.
async fn has_lost_nothing(pair: &Pair, session: &mut Client, connections: u64) {
    session.list(QueryKind::Nodes, None).await.unwrap();
    assert_eq!(pair.door.as_ref().unwrap().connections(), connections);
    let log = pair.schedulers[0].log();
    assert!(!log.iter().any(|it| it.contains("steps down")));
}

/// It confirms leases that have ended: the leader, which knows no other member, has to find out by what it reads.
#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_confirms_leases_and_has_lost_the_others_keeps_no_scheduler_leading() {
    if is_missing() {
        return;
    }
    let (pair, mesh) = meshed(&STALLED, Some(1), "3s").await;
    let two = two(&pair).await;
    mesh.set_all(LEADER, false);
    another_leads(&pair.etcd, LEADER).await;
    pair.schedulers[0].logged("cluster_paused").await;
    pair.schedulers[1].logged(" serves").await;
    let before = pair.door.as_ref().unwrap().back.bytes();
    pair.schedulers[0]
        .logged("steps down: etcd has not answered for 8s")
        .await;
    assert_eq!(pair.door.as_ref().unwrap().back.bytes(), before);
    // Its lease was confirmed all the time.
    let log = pair.schedulers[0].log();
    assert!(
        log.iter().any(|it| it.contains("cannot read who leads")),
        "{log:#?}"
    );
    assert!(
        !log.iter().any(|it| it.contains("cannot keep the lease")),
        "{log:#?}"
    );
    mesh.set_all(LEADER, true);
    go_on(&pair, two).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_goes_from_a_member_that_has_lost_the_others_to_one_that_has_not() {
    if is_missing() {
        return;
    }
    let (pair, mesh) = meshed(&STALLED, None, LONG).await;
    let mut session = pair.client(0).await;
    let two = two(&pair).await;
    let connections = pair.door.as_ref().unwrap().connections();
    mesh.set_all(LEADER, false);
    another_leads(&pair.etcd, LEADER).await;
    // What has to be kept is, by the two that are left.
    let kept = pair
        .done("run --quiet --mem 950 --cpus 1 --queue 10m --", &["true"])
        .await;
    pair.until_listed("queue", &kept[..8]).await;
    pair.check().await;
    has_lost_nothing(&pair, &mut session, connections).await;
    mesh.set_all(LEADER, true);
    go_on(&pair, two).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn members_that_lose_each_other_for_a_moment_cost_no_session() {
    if is_missing() {
        return;
    }
    let (pair, mesh) = meshed(&[], None, LONG).await;
    let mut session = pair.client(0).await;
    let two = two(&pair).await;
    let connections = pair.door.as_ref().unwrap().connections();
    (0..MEMBERS).for_each(|it| mesh.set_all(it, false));
    pair.schedulers[0].logged("cluster_paused").await;
    (0..MEMBERS).for_each(|it| mesh.set_all(it, true));
    pair.schedulers[0].logged("sending again").await;
    has_lost_nothing(&pair, &mut session, connections).await;
    go_on(&pair, two).await;
}

/// The others do not hear the one that leads them, which hears them; and the other way round.
#[tokio::test(flavor = "multi_thread")]
async fn ways_between_members_that_are_shut_in_one_direction_cost_nothing_that_was_acknowledged() {
    if is_missing() {
        return;
    }
    let (pair, mesh) = meshed(&[], None, LONG).await;
    let two = two(&pair).await;
    for is_heard in [false, true] {
        let leader = pair.etcd.leader().await;
        let others = (0..MEMBERS).filter(|it| *it != leader);
        let set = |is_open| {
            for other in others.clone() {
                match is_heard {
                    false => mesh.set(leader, other, is_open),
                    true => mesh.set(other, leader, is_open),
                }
            }
        };
        set(false);
        another_leads(&pair.etcd, leader).await;
        pair.check().await;
        set(true);
        pair.until_node().await;
        pair.check().await;
    }
    go_on(&pair, two).await;
}
