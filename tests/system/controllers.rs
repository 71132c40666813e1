//! Several controllers: what the next one knows when the master dies, and what becomes of what that had commanded.

use std::collections::{BTreeMap, BTreeSet};

use proto_frames::payload::{
    ControllerRole, InstanceView, Payload, Requirements, Snapshot, Start, StartFailure,
};
use proto_frames::{Encoding, Kind, Role, Uuid};

use crate::world::{Cluster, Look};

/// STARTs under way when the master dies: more than the nodes have room for.
const STARTS: u128 = 12;

/// A START of a program that writes its name down and stays.
fn start(cluster: &Cluster, id: Uuid) -> Start {
    let mark = cluster.site.path("begun");
    let script = format!("echo {id} >>{}; exec sleep 600", mark.display());
    Start {
        instance_uuid: id.to_string(),
        vm_type: "process".into(),
        command: vec!["/bin/sh".into(), "-c".into(), script],
        requirements: Requirements {
            mem_mb: 16,
            vcpus: 1,
            ..Requirements::default()
        },
        ..Start::default()
    }
}

/// How often each instance's program has begun.
fn begun(cluster: &Cluster) -> BTreeMap<String, usize> {
    let text = std::fs::read_to_string(cluster.site.path("begun")).unwrap_or_default();
    let mut begun = BTreeMap::new();
    for line in text.lines() {
        *begun.entry(line.to_owned()).or_default() += 1;
    }
    begun
}

#[tokio::test]
async fn the_backup_takes_over_with_a_picture_of_all_and_nothing_is_done_twice() {
    let cluster = Cluster::new(&["node-a", "node-b"]).await;
    let daemon = cluster.scheduler();
    let early = cluster
        .run(
            "--mem 16 --cpus 1 --priority 30 --wait=running",
            "exec sleep 600",
        )
        .await;
    cluster.until(&early, "running").await;
    let controller = async || {
        let dialer = cluster
            .site
            .dialer(daemon, Role::CONTROLLER, Encoding::Native);
        dialer.connect().await
    };
    let mut master = controller().await;
    master.skip_to(Kind::CONTROLLER_STATUS).await;
    let mut backup = controller().await;
    backup.expect_role(ControllerRole::Backup).await;
    let ids: Vec<Uuid> = (0..STARTS).map(|_| Uuid::new_v4()).collect();
    let starts = ids
        .iter()
        .map(|&id| (Kind::START, start(&cluster, id).encode()));
    master.pour(starts).await;
    drop(master);

    loop {
        let frame = backup.skip_to(Kind::CONTROLLER_STATUS).await;
        if String::from_utf8_lossy(&frame.payload).contains("master") {
            break;
        }
    }
    let mut known: Vec<InstanceView> = Vec::new();
    loop {
        let page = backup.expect(Kind::SNAPSHOT).await;
        let page = Snapshot::decode(&page.payload).unwrap();
        known.extend(page.instances);
        if page.last {
            break;
        }
    }
    assert!(known.iter().any(|it| it.instance_uuid == early));
    let mut failed = BTreeSet::new();
    let told = backup.settle().await;
    for frame in told.iter().filter(|it| it.kind == Kind::START_FAILURE) {
        let failure = StartFailure::decode(&frame.payload).unwrap();
        assert!(failed.insert(failure.instance_uuid), "told once");
    }
    // What the scheduler read before the end was carried out or has failed, and the rest never came.
    let placed: BTreeSet<String> = known.iter().map(|it| it.instance_uuid.clone()).collect();
    let mut look = Look::new();
    loop {
        let begun = begun(&cluster);
        let expected = ids.iter().map(Uuid::to_string);
        let expected: BTreeSet<_> = expected.filter(|it| placed.contains(it)).collect();
        if begun.keys().cloned().collect::<BTreeSet<_>>() == expected {
            assert!(begun.values().all(|&times| times == 1), "{begun:?}");
            break;
        }
        look.again(|| format!("{begun:?} began, not {expected:?}"))
            .await;
    }
    assert!(placed.is_disjoint(&failed), "{failed:?} of {placed:?}");

    // It commands now, and a START that was carried out is not carried out again.
    if let Some(id) = ids.iter().find(|id| placed.contains(&id.to_string())) {
        backup
            .send(Kind::START, start(&cluster, *id).encode())
            .await;
        let frame = backup.skip_to(Kind::START_FAILURE).await;
        let failure = StartFailure::decode(&frame.payload).unwrap();
        assert_eq!(failure.instance_uuid, id.to_string());
        assert_eq!(begun(&cluster)[&id.to_string()], 1);
    }
}
