//! UUIDs that belong to one certificate, over restarts, and who has to have one.

use proto_frames::{Encoding, Kind, Role, Uuid};

use crate::admission::bound;
use crate::site::Site;

#[tokio::test]
async fn a_bound_uuid_stays_its_certificates_after_a_restart() {
    let site = Site::new();
    let state = site.path("state").display().to_string();
    let uuid = Uuid::new_v4();
    let mut daemon = site.start(&["--state-dir", &state]).await;
    bound(&site, &daemon, uuid).connect().await.close().await;
    daemon.terminate();
    assert!(daemon.ended().await.success());

    let daemon = site.start(&["--state-dir", &state]).await;
    for role in [Role::AGENT, Role::CONTROLLER] {
        let thief = site.dialer(&daemon, role, Encoding::Gob).with_uuid(uuid);
        assert_eq!(thief.refusal().await, Kind::CONNECTION_ABORTED, "{role}");
    }
    bound(&site, &daemon, uuid).connect().await;
}

#[tokio::test]
async fn required_binding_is_required_of_nodes_alone() {
    let site = Site::new();
    let daemon = site.start(&["--require-uuid-binding"]).await;
    let both = Role::AGENT | Role::NETAGENT;
    for role in [Role::AGENT, Role::NETAGENT, both] {
        for encoding in [Encoding::Gob, Encoding::Native] {
            let unbound = site.dialer(&daemon, role, encoding);
            assert_eq!(unbound.refusal().await, Kind::CONNECTION_ABORTED, "{role}");
        }
    }
    site.master(&daemon).await.nothing_else().await;
    site.operator(&daemon).await.nothing_else().await;
    bound(&site, &daemon, Uuid::new_v4()).connect().await;
}
