//! Files that are private: the state directory, and private keys.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use proto_frames::{Encoding, Role};

use crate::boot::refused;
use crate::site::Site;
use crate::words::PLENTY;

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

#[tokio::test]
async fn the_state_directory_and_all_in_it_are_their_owners_alone() {
    let site = Site::new();
    let state = site.path("deep/state");
    let flag = state.display().to_string();
    let daemon = site.start(&["--state-dir", &flag]).await;
    let mut node = site.connect(&daemon, Role::AGENT, Encoding::Gob).await;
    node.ready(PLENTY).await;
    node.nothing_else().await;
    daemon.logged("1 node remembered").await;
    assert_eq!(mode(&state), 0o700);
    assert_ne!(
        mode(&site.path("deep")),
        0o700,
        "what is above it is not its own"
    );
    let files: Vec<_> = fs::read_dir(&state)
        .unwrap()
        .map(|it| it.unwrap().path())
        .collect();
    assert!(files.len() >= 3, "{files:?}");
    for file in files {
        assert_eq!(mode(&file), 0o600, "{}", file.display());
    }
}

#[tokio::test]
async fn a_state_directory_that_others_could_read_is_closed_to_them_and_that_is_said() {
    let site = Site::new();
    let state = site.path("state");
    let flag = state.display().to_string();
    let mut daemon = site.start(&["--state-dir", &flag]).await;
    daemon.terminate();
    assert!(daemon.ended().await.success());
    fs::write(state.join("store.redb.damaged-1"), "old").unwrap();
    let files = ["uuid", "store.redb", "store.redb.damaged-1"].map(|name| state.join(name));
    files.iter().for_each(|file| set_mode(file, 0o644));
    set_mode(&state, 0o755);

    let daemon = site.start(&["--state-dir", &flag]).await;
    daemon
        .logged(&format!(
            "{flag}: was open to others (mode 0755): closed to them (0700)"
        ))
        .await;
    assert_eq!(mode(&state), 0o700);
    for file in files {
        assert_eq!(mode(&file), 0o600, "{}", file.display());
    }
}

#[tokio::test]
async fn a_directory_that_holds_other_things_is_not_closed() {
    let site = Site::new();
    let state = site.path("shared");
    fs::create_dir(&state).unwrap();
    fs::write(state.join("letter"), "of somebody else").unwrap();
    set_mode(&state, 0o755);
    set_mode(&state.join("letter"), 0o644);
    let daemon = site
        .start(&["--state-dir", &state.display().to_string()])
        .await;
    daemon
        .logged("is open to others (mode 0755) and holds 'letter'")
        .await;
    assert_eq!(mode(&state), 0o755);
    assert_eq!(mode(&state.join("letter")), 0o644);
    assert_eq!(mode(&state.join("store.redb")), 0o600);
}

#[tokio::test]
async fn a_key_that_others_can_read_is_refused_where_files_are_strict() {
    let site = Site::new();
    let key = site.path("scheduler.pem");
    for open in [0o644, 0o640, 0o660] {
        set_mode(&key, open);
        let said = refused(site.command(&["-strict-files"])).await;
        let path = key.display();
        assert_eq!(
            said,
            format!(
                "{path}: others can read the private key in it (mode {open:04o}), which --strict-files does not allow; \
                 chmod 600 {path}"
            )
        );
    }
    set_mode(&key, 0o600);
    site.start(&["-strict-files"]).await;
}
