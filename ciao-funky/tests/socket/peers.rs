//! Who may give commands at the socket: by the mode of its file, and by the user that the kernel names. Only root can be
//! other users; without it the test says so and passes, unless `CIAO_REQUIRE_ROOT=1`.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;

use rustix::process::geteuid;
use tokio::process::Command;

use crate::world::World;

/// A user that `-allow-uid` names, and one that it does not.
const ALLOWED: u32 = 54_321;
const OTHER: u32 = 54_322;

/// What `ciao-funky ps` says for a user: its output, or its error.
async fn ps(world: &World, uid: u32) -> Result<String, String> {
    let mut command = Command::new(world.path("ciao-funky-of-all"));
    command.args(["ps", "-socket"]).arg(world.socket());
    let done = command.uid(uid).gid(uid).output().await.unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    match done.status.success() {
        true => Ok(text(done.stdout)),
        false => Err(text(done.stderr)),
    }
}

/// An adapter whose directory and program all users reach, and the mode of its socket.
async fn world(flags: &[&str]) -> (World, u32) {
    let mut world = World::bare(flags).await;
    std::fs::set_permissions(world.path("."), Permissions::from_mode(0o755)).unwrap();
    let program = world.path("ciao-funky-of-all");
    std::fs::copy(env!("CARGO_BIN_EXE_ciao-funky"), &program).unwrap();
    std::fs::set_permissions(&program, Permissions::from_mode(0o755)).unwrap();
    world.start_funky().await;
    let mode = std::fs::metadata(world.socket()).unwrap().permissions();
    (world, mode.mode() & 0o777)
}

#[tokio::test]
async fn only_users_who_may_give_commands_are_heard() {
    if !geteuid().is_root() {
        let required = std::env::var_os("CIAO_REQUIRE_ROOT").is_some_and(|value| value == "1");
        assert!(!required, "not root");
        return eprintln!("not root: not tried");
    }
    let (own, mode) = world(&[]).await;
    assert_eq!(mode, 0o600);
    let why = ps(&own, OTHER).await.unwrap_err();
    assert!(why.contains("Permission denied"), "{why}");
    assert!(ps(&own, 0).await.is_ok());

    let (shared, mode) = world(&["-allow-uid", &ALLOWED.to_string()]).await;
    assert_eq!(mode, 0o666);
    let why = ps(&shared, OTHER).await.unwrap_err();
    let refused = format!("user {OTHER} may not give commands here");
    assert!(why.contains(&refused), "{why}");
    for uid in [ALLOWED, 0] {
        let table = ps(&shared, uid).await.unwrap();
        assert!(table.contains("TASK  STATE"), "{table}");
    }
}
