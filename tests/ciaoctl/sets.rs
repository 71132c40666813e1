//! `set update`: what becomes of a set of which an instance cannot be deleted, and of one that is to be smaller.

use std::sync::{Arc, Mutex};

use proto_frames::payload::{
    Delete, DeleteFailure, DeleteFailureReason, InstanceDeleted, InstanceView, Payload,
    PlacementState, Start,
};
use proto_frames::{Frame, Kind};

use crate::scheduler::{Peers, Scheduler, answer, instance, node, placed};

/// STARTs after which the scheduler ends the session: more than any test here needs.
const MAX_STARTS: usize = 12;

/// The instances of the cluster.
type Instances = Arc<Mutex<Vec<InstanceView>>>;

/// A running member of the set `web` in an old version.
fn old(number: u32) -> InstanceView {
    InstanceView {
        name: format!("web.00000000.{number}"),
        state: PlacementState::Running,
        ..instance(&format!("a{number}"), &node("4c", "node-a"))
    }
}

/// A member whose node is lost.
fn lost(number: u32) -> InstanceView {
    InstanceView {
        state: PlacementState::Lost,
        ..old(number)
    }
}

/// What a node does with the DELETE of an instance on a lost node.
#[derive(Clone, Copy)]
enum Lost {
    /// The scheduler tells that it is gone as far as it knows, and keeps it in the list.
    Deferred,
    /// The scheduler cannot delete it.
    Failed,
    /// The same, because it has just gone.
    Gone,
    /// Nothing is said of it.
    Silent,
}

/// A scheduler whose nodes run every START at once, and delete every instance that is not lost.
async fn cluster(members: Vec<InstanceView>, lost: Lost) -> (Scheduler, Instances) {
    let all = Arc::new(Mutex::new(members));
    let listed = Arc::clone(&all);
    let mut starts = 0;
    let script = move |peers: &mut Peers, from: usize, frame: &Frame| {
        let mut all = listed.lock().unwrap();
        match frame.kind {
            Kind::QUERY => peers.send(from, Kind::QUERY_RESULT, answer(frame, &[], &all, 100)),
            Kind::START => {
                starts += 1;
                if starts > MAX_STARTS {
                    return peers.close(from);
                }
                let start = Start::decode(&frame.payload).unwrap();
                peers.send(from, Kind::INSTANCE_PLACED, placed(&start.instance_uuid));
                all.push(InstanceView {
                    instance_uuid: start.instance_uuid,
                    name: start.scheduling.unwrap().name,
                    ..old(0)
                });
            }
            Kind::DELETE => {
                let delete = Delete::decode(&frame.payload).unwrap();
                let of = |view: &&InstanceView| view.instance_uuid == delete.instance_uuid;
                let state = all.iter().find(of).unwrap().state.clone();
                let deleted = InstanceDeleted {
                    instance_uuid: delete.instance_uuid.clone(),
                    ..InstanceDeleted::default()
                };
                match lost {
                    _ if state == PlacementState::Running => {
                        all.retain(|view| view.instance_uuid != delete.instance_uuid);
                        peers.send(from, Kind::INSTANCE_DELETED, deleted.encode());
                    }
                    Lost::Deferred => peers.send(from, Kind::INSTANCE_DELETED, deleted.encode()),
                    Lost::Failed | Lost::Gone => {
                        if matches!(lost, Lost::Gone) {
                            all.retain(|view| view.instance_uuid != delete.instance_uuid);
                        }
                        let failure = DeleteFailure {
                            node_uuid: delete.workload_agent_uuid,
                            instance_uuid: delete.instance_uuid,
                            reason: DeleteFailureReason::NoInstance,
                        };
                        peers.send(from, Kind::DELETE_FAILURE, failure.encode());
                    }
                    Lost::Silent => {}
                }
            }
            _ => {}
        }
    };
    (Scheduler::playing(script).await, all)
}

fn file(scheduler: &Scheduler) -> String {
    let path = scheduler.certs.path().join("new.yaml");
    let text =
        "start:\n  vm_type: process\n  command: [true]\n  requirements: {mem_mb: 1, vcpus: 1}\n";
    std::fs::write(&path, text).unwrap();
    path.display().to_string()
}

/// The numbers of the set's members, and whether each is of the old version.
fn members(all: &Instances) -> Vec<(String, bool)> {
    let all = all.lock().unwrap();
    let number = |name: &str| name.rsplit_once('.').unwrap().1.to_owned();
    let of = |view: &InstanceView| (number(&view.name), view.name.contains(".00000000."));
    let mut members: Vec<_> = all.iter().map(of).collect();
    members.sort();
    members
}

#[tokio::test]
async fn an_update_ends_when_a_member_cannot_be_deleted_and_replaces_those_that_could() {
    for (lost_one, code) in [(Lost::Deferred, 1), (Lost::Failed, 1), (Lost::Silent, 4)] {
        let (scheduler, all) = cluster(vec![old(0), lost(1), old(2)], lost_one).await;
        let file = file(&scheduler);
        let line = [
            "set",
            "update",
            "web",
            &file,
            "--max-down",
            "2",
            "--timeout",
            "2s",
        ];
        let ran = scheduler.ctl(&line).await;
        assert_eq!(ran.code, Some(code), "{ran:?}");
        assert!(
            ran.err
                .contains("1 instance of set web could not be deleted"),
            "{ran:?}"
        );
        // One was replaced beside the lost one; what runs in the old version goes on.
        assert_eq!(scheduler.seen(Kind::START).len(), 1, "{ran:?}");
        let expected = [("0", false), ("1", true), ("2", true)];
        assert_eq!(
            members(&all),
            expected.map(|(number, is_old)| (number.to_owned(), is_old))
        );
    }
}

#[tokio::test]
async fn an_update_goes_on_where_a_member_has_gone_before_it_could_be_deleted() {
    let (scheduler, all) = cluster(vec![old(0), lost(1), old(2)], Lost::Gone).await;
    let file = file(&scheduler);
    let ran = scheduler.ctl(&["set", "update", "web", &file]).await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert_eq!(scheduler.seen(Kind::START).len(), 3, "{ran:?}");
    assert!(members(&all).iter().all(|(_, is_old)| !is_old));
}

#[tokio::test]
async fn an_update_to_fewer_replicas_deletes_those_with_the_highest_numbers() {
    let (scheduler, all) = cluster(vec![old(0), old(1), old(2)], Lost::Failed).await;
    let file = file(&scheduler);
    let ran = scheduler
        .ctl(&["set", "update", "web", &file, "--replicas", "1"])
        .await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert_eq!(members(&all), [("0".to_owned(), false)]);
    let again = scheduler
        .ctl(&["set", "update", "web", &file, "--replicas", "2"])
        .await;
    assert_eq!(again.code, Some(0), "{again:?}");
    let expected = [("0".to_owned(), false), ("1".to_owned(), false)];
    assert_eq!(members(&all), expected);
}

#[tokio::test]
async fn one_instance_is_not_called_instances() {
    let (scheduler, _) = cluster(vec![old(0)], Lost::Failed).await;
    let file = file(&scheduler);
    let ran = scheduler.ctl(&["set", "create", "web", &file]).await;
    let said = "ciaoctl: set web has 1 instance already: ";
    assert!(ran.err.starts_with(said), "{ran:?}");
    let ran = scheduler
        .ctl(&["set", "scale", "web", "--replicas", "2"])
        .await;
    let said = "ciaoctl: set web has 1 instance: for more ";
    assert!(ran.err.starts_with(said), "{ran:?}");
    let same = &["set", "scale", "web", "--replicas", "1"];
    let ran = scheduler.ctl(same).await;
    assert_eq!((ran.code, &*ran.out), (Some(0), ""));
    assert_eq!(ran.err, "ciaoctl: set web has 1 instance already\n");
    let ran = scheduler.ctl(&[&same[..], &["--json"]].concat()).await;
    assert_eq!(ran.json(), serde_json::json!({"instances": []}));
}
