//! Which node a launcher is: its certificate, its state directory and its flags must agree on that.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::process::Output;

use ciao_scheduler::cert::Spec;
use proto_frames::{Role, Uuid};
use rustix::process::Signal;

use crate::world::{World, runs};

/// Gives the launcher of this world a certificate that is bound to a UUID.
fn bind(world: &World, uuid: Uuid) {
    let spec = Spec {
        uuid: Some(uuid),
        ..Spec::localhost(Role::AGENT)
    };
    let certified = world.ca().anchor.sign(&spec).unwrap();
    fs::write(world.path("agent.pem"), certified.pem()).unwrap();
}

/// Runs a launcher that does not start; what it says.
fn refused(world: &World, args: &[&str]) -> String {
    let Output { status, stderr, .. } = world.command(args).output().unwrap();
    let said = String::from_utf8(stderr).unwrap();
    assert_eq!(status.code(), Some(1), "{said}");
    said.lines().last().unwrap().to_owned()
}

#[tokio::test]
async fn a_bound_certificate_says_which_node_it_is() {
    let world = World::new().await;
    let uuid = Uuid::new_v4();
    bind(&world, uuid);
    for _ in 0..2 {
        let mut launcher = world.launch(&[]);
        assert_eq!(world.accept().await.connect.source, uuid);
        launcher.signal(Signal::TERM);
        launcher.ended().await;
    }
    let other = Uuid::new_v4();
    let said = refused(&world, &[&format!("-uuid={other}")]);
    assert!(
        said.contains(&format!("--uuid {other} is not the UUID that"))
            && said.contains(&uuid.to_string()),
        "{said}"
    );
    let simulated = ["-simulate=mem=1,cpus=1,disk=1", "-count=2"];
    let said = refused(&world, &simulated);
    assert!(said.contains("it is for one node, not for 2"), "{said}");
}

#[tokio::test]
async fn a_state_directory_of_another_node_is_refused_until_it_is_said_to_be_this_ones() {
    let (world, mut launcher, mut peer) = World::connected(&[]).await;
    let former = peer.connect.source;
    peer.shell("a", "echo $$; exec sleep 1000").await;
    let pid = world.pids("a", 1).await[0];
    peer.listed("a", "active").await;
    launcher.signal(Signal::TERM);
    launcher.ended().await;

    let uuid = Uuid::new_v4();
    bind(&world, uuid);
    let said = refused(&world, &[]);
    assert!(
        said.contains(&format!(
            "is bound to the UUID {uuid}, and the state directory"
        )) && said.contains(&format!(
            "is that of node {former}; make a certificate for this node"
        )) && said.contains(&format!("ciao-cert -node NAME -uuid {former}")),
        "{said}"
    );
    // What runs there is the former node's: it might be started elsewhere for that one.
    let insist = format!("-uuid={uuid}");
    let said = refused(&world, &[&insist]);
    assert!(said.contains("whose instance a may still run"), "{said}");
    assert!(runs(pid));

    bind(&world, former);
    let mut launcher = world.launch(&[]);
    let mut peer = world.accept().await;
    assert_eq!(peer.connect.source, former);
    peer.delete("a", false).await;
    peer.deleted().await;
    launcher.signal(Signal::TERM);
    launcher.ended().await;
    bind(&world, uuid);
    let _launcher = world.launch(&[&insist]);
    assert_eq!(world.accept().await.connect.source, uuid);
}

#[tokio::test]
async fn more_than_the_machine_has_is_refused() {
    let world = World::new().await;
    for (flag, amount) in [("--mem", "999999999999"), ("--disk", "1024TiB")] {
        let said = refused(&world, &[flag, amount]);
        assert!(said.contains(flag) && said.contains(" MiB; give"), "{said}");
    }
}

#[tokio::test]
async fn its_state_directory_is_its_owners_alone_and_its_key_may_have_to_be() {
    let world = World::new().await;
    let state = world.state_dir();
    fs::create_dir_all(&state).unwrap();
    fs::set_permissions(&state, Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(world.path("agent.pem"), Permissions::from_mode(0o644)).unwrap();
    let said = refused(&world, &["-strict-files"]);
    assert!(
        said.contains("agent.pem: others can read the private key in it (mode 0644)"),
        "{said}"
    );
    fs::set_permissions(world.path("agent.pem"), Permissions::from_mode(0o600)).unwrap();
    let _launcher = world.launch(&["-strict-files"]);
    world.accept().await;
    let mode = fs::metadata(&state).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode, 0o700);
}

#[tokio::test]
async fn a_program_that_is_no_supervisor_of_this_build_is_refused() {
    let world = World::new().await;
    let absent = world.path("absent");
    let said = refused(&world, &[&format!("-supervisor={}", absent.display())]);
    assert!(said.contains("cannot run the supervisor"), "{said}");
    assert!(said.contains("No such file"), "{said}");
    let said = refused(&world, &["-supervisor=/bin/cat"]);
    assert!(said.contains("/bin/cat is of another build"), "{said}");
    assert!(said.contains("install both from one package"), "{said}");
}
