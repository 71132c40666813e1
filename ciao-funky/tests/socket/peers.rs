//! Who may give commands at the socket and upload: by the mode of its file, and by the user that the kernel names. Only root can be
//! other users; without it the test says so and passes, unless `CIAO_REQUIRE_ROOT=1`.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;

use rustix::process::geteuid;
use tokio::process::Command;
use tokio::time::timeout;

use crate::process::DEADLINE;
use crate::uploads::{form, head, status};
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

/// Posts a program as a user, with a client that waits for the answer.
async fn upload(world: &World, uid: u32) -> String {
    let to = world.uploads().await;
    let body = form(&[
        ("Priority", None, b"0"),
        ("myFile", Some("p"), b"#!/bin/sh\n"),
    ]);
    let request = world.path("request");
    std::fs::write(
        &request,
        [head(to, "", body.len()).as_bytes(), &body].concat(),
    )
    .unwrap();
    std::fs::set_permissions(&request, Permissions::from_mode(0o644)).unwrap();
    let mut command = Command::new("bash");
    let script = format!(
        "exec 3<>/dev/tcp/{}/{} && cat $0 >&3 && cat <&3",
        to.ip(),
        to.port()
    );
    command
        .args(["-c", &script])
        .arg(request)
        .kill_on_drop(true);
    let done = timeout(DEADLINE, command.uid(uid).gid(uid).output()).await;
    String::from_utf8(done.unwrap().unwrap().stdout).unwrap()
}

#[tokio::test]
async fn uploads_are_off_unless_asked_for() {
    let mut world = World::bare(&[]).await;
    world.start_funky_by_default().await;
    // Both lines are written before the first command is answered.
    world.ask("Ps:").await;
    let output = world.output();
    assert!(
        !output.iter().any(|line| line.contains("Listening uploads")),
        "{output:?}"
    );
}

#[tokio::test]
async fn only_users_who_may_give_commands_upload() {
    if !geteuid().is_root() {
        let required = std::env::var_os("CIAO_REQUIRE_ROOT").is_some_and(|value| value == "1");
        assert!(!required, "not root");
        return eprintln!("not root: not tried");
    }
    let (own, _) = world(&["-allow-uid", &ALLOWED.to_string()]).await;
    let answer = upload(&own, OTHER).await;
    assert_eq!(status(&answer), "403", "{answer}");
    let said = format!("uploads of user {OTHER} are not taken");
    assert!(answer.contains(&said), "{answer}");
    assert!(answer.contains("-upload-any-user"), "{answer}");
    assert_eq!(own.binaries(), 0);
    for uid in [ALLOWED, 0] {
        let answer = upload(&own, uid).await;
        assert_eq!(status(&answer), "200", "{answer}");
    }
    let (any, _) = world(&["-upload-any-user"]).await;
    let answer = upload(&any, OTHER).await;
    assert_eq!(status(&answer), "200", "{answer}");
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
