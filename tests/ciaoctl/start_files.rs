//! Mistakes in START files that `ciaoctl` says before anything is sent.

use std::path::Path;

use proto_frames::{Frame, Kind};

use crate::scheduler::{Peers, Ran, Scheduler, answer, instance_of, placed};

/// Places every START, and has nothing to list.
async fn placing() -> Scheduler {
    Scheduler::playing(|peers: &mut Peers, from, frame: &Frame| match frame.kind {
        Kind::START => peers.send(from, Kind::INSTANCE_PLACED, placed(&instance_of(frame))),
        Kind::QUERY => peers.send(from, Kind::QUERY_RESULT, answer(frame, &[], &[], 10)),
        _ => {}
    })
    .await
}

/// Runs `ciaoctl` with these arguments and a file of this text behind them, which is called `FILE` in what it says.
async fn with_file(scheduler: &Scheduler, args: &[&str], text: &str) -> Ran {
    let file = scheduler.certs.path().join("a.yaml");
    std::fs::write(&file, text).unwrap();
    let file = file.display().to_string();
    let ran = scheduler.ctl(&[args, &[&file]].concat()).await;
    Ran {
        err: ran.err.replace(&file, "FILE"),
        ..ran
    }
}

const MISSPELT: &str = "\
start:
  vm_type: process
  command: [true]
  requirments:
    mem_mb: 64
  storage:
  - {local: true, siez: 1}
...
anything: [ {
";

const WARNINGS: &str = "\
ciaoctl: warning: FILE, line 4: start.requirments: no such key, ignored; did you mean 'requirements'?
ciaoctl: warning: FILE, line 7: start.storage[0].siez: no such key, ignored; did you mean 'size'?
";

#[tokio::test]
async fn keys_that_mean_nothing_are_warned_of_and_the_file_is_started() {
    let scheduler = placing().await;
    let ran = with_file(&scheduler, &["start"], MISSPELT).await;
    assert_eq!((ran.code, &*ran.err), (Some(0), WARNINGS), "{ran:?}");
    assert_eq!(scheduler.seen(Kind::START).len(), 1);
    let ran = scheduler
        .ctl_with_input(&["start", "-q", "-"], MISSPELT)
        .await;
    let expected = WARNINGS.replace("FILE", "standard input");
    assert_eq!((ran.code, ran.err), (Some(0), expected));
}

#[tokio::test]
async fn every_command_that_reads_start_files_warns_of_keys_that_mean_nothing() {
    let scheduler = placing().await;
    for args in [
        &["start", "--dry-run", "--timeout", "1s"][..],
        &["explain", "--timeout", "1s"],
        &["set", "create", "web", "--timeout", "1s"],
        &["set", "scale", "web", "--replicas", "2"],
        &["set", "update", "web"],
    ] {
        let ran = with_file(&scheduler, args, MISSPELT).await;
        assert!(ran.err.starts_with(WARNINGS), "{args:?}: {ran:?}");
    }
}

#[tokio::test]
async fn with_strict_keys_that_mean_nothing_refuse_the_file() {
    let scheduler = placing().await;
    for args in [
        &["start", "--strict"][..],
        &["explain", "--strict"],
        &["set", "create", "--strict", "web"],
        &["set", "update", "--strict", "web"],
    ] {
        let ran = with_file(&scheduler, args, MISSPELT).await;
        let expected = "\
ciaoctl: FILE: 2 keys mean nothing there, which --strict takes for a mistake; nothing was started
  line 4: start.requirments: no such key; did you mean 'requirements'?
  line 7: start.storage[0].siez: no such key; did you mean 'size'?
";
        assert_eq!((ran.code, &*ran.err), (Some(2), expected), "{args:?}");
    }
    assert!(scheduler.seen(Kind::START).is_empty());
    let right = "start:\n  vm_type: process\n  command: [true]\n";
    let ran = with_file(&scheduler, &["start", "--strict"], right).await;
    assert_eq!((ran.code, &*ran.err), (Some(0), ""), "{ran:?}");
}

#[tokio::test]
async fn the_mark_of_a_restart_is_not_taken_for_a_wish_to_be_started_again() {
    let scheduler = placing().await;
    let text = "start:\n  vm_type: process\n  command: [true]\n  restart: true\n";
    let meaning = "start.restart is the original's mark that the instance ran before, and no policy: nothing is started \
                   again by it; did you mean 'start.scheduling.restart: {when: on-failure}', or \
                   'start.scheduling.on_node_loss: restart'?\n";
    let ran = with_file(&scheduler, &["start"], text).await;
    let expected = format!("ciaoctl: warning: FILE: {meaning}");
    assert_eq!((ran.code, ran.err), (Some(0), expected));
    assert_eq!(scheduler.seen(Kind::START).len(), 1);
    for args in [
        &["start", "--strict"][..],
        &["set", "create", "--strict", "web"],
    ] {
        let ran = with_file(&scheduler, args, text).await;
        let expected = format!(
            "ciaoctl: FILE: start.restart does not do what it seems to, which --strict takes for a mistake; nothing was \
             started\n  {meaning}"
        );
        assert_eq!((ran.code, ran.err), (Some(2), expected), "{args:?}");
    }
    assert_eq!(scheduler.seen(Kind::START).len(), 1);
    let both = format!("{text}  comand: [x]\n");
    let ran = with_file(&scheduler, &["start", "--strict"], &both).await;
    let summary =
        "FILE: 1 key means nothing there, and start.restart does not do what it seems to, which";
    assert!(ran.err.contains(summary), "{ran:?}");
}

#[tokio::test]
async fn of_many_keys_that_mean_nothing_the_first_are_named() {
    let scheduler = placing().await;
    let keys: String = (0..15).map(|number| format!("  qq{number}: 1\n")).collect();
    let text = format!("start:\n{keys}");
    let ran = with_file(&scheduler, &["start"], &text).await;
    assert_eq!(ran.err.lines().count(), 11, "{ran:?}");
    let last = "ciaoctl: warning: FILE: 5 more keys that do not exist, ignored\n";
    assert!(ran.err.ends_with(last), "{ran:?}");
    let ran = with_file(&scheduler, &["start", "--strict"], &text).await;
    assert!(ran.err.ends_with("\n  and 5 more\n"), "{ran:?}");
}

#[tokio::test]
async fn a_process_without_a_program_is_refused_before_it_is_sent() {
    let scheduler = placing().await;
    let expected = "\
ciaoctl: FILE: start.command is missing or empty: `vm_type: process` needs a program there, such as \
`command: [sleep, \"60\"]`, or an `image`; nothing was started
";
    for command in ["", "  command: []\n", "  command: ['', a]\n"] {
        let text = format!("start:\n  vm_type: process\n{command}");
        for args in [&["start"][..], &["explain"], &["set", "create", "web"]] {
            let ran = with_file(&scheduler, args, &text).await;
            assert_eq!((ran.code, &*ran.err), (Some(2), expected), "{args:?}");
        }
    }
    let ran = with_file(
        &scheduler,
        &["start"],
        "start: {vm_type: process, comand: [a]}\n",
    )
    .await;
    assert!(ran.err.contains("did you mean 'command'?"), "{ran:?}");
    assert!(ran.err.ends_with(expected), "{ran:?}");
    assert!(scheduler.seen(Kind::START).is_empty());
    let image = format!("  image: sha256:{}\n", "0".repeat(64));
    for text in [
        format!("  vm_type: process\n{image}"),
        "  vm_type: qemu\n".to_owned(),
    ] {
        let ran = with_file(&scheduler, &["start"], &format!("start:\n{text}")).await;
        assert_eq!((ran.code, &*ran.err), (Some(0), ""), "{ran:?}");
    }
}

#[tokio::test]
async fn a_file_of_the_original_has_no_key_that_is_unknown() {
    let scheduler = placing().await;
    let golden = "proto-frames/tests/golden/start-three-documents.yaml";
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join(golden);
    let golden = std::fs::read_to_string(golden).unwrap();
    for text in [&*golden, ORIGINAL] {
        let ran = with_file(&scheduler, &["start"], text).await;
        assert_eq!((ran.code, &*ran.err), (Some(0), ""), "{ran:?}");
    }
}

/// Every key that the original's START has.
const ORIGINAL: &str = "\
start:
  tenant_uuid: 67d86208-b46c-4465-9018-fe14087d415f
  instance_uuid: 67d86208-000-4465-9018-fe14087d415f
  docker_image: ubuntu:latest
  fw_type: legacy
  persistence: host
  vm_type: qemu
  networking:
    vnic_mac: 02:00:e6:f5:af:f9
    vnic_uuid: 67d86208-b46c-0000-9018-fe14087d415f
    concentrator_uuid: 67d86208-b46c-4465-0000-fe14087d415f
    concentrator_ip: 192.168.42.21
    subnet: 192.168.8.0/21
    subnet_key: \"8\"
    subnet_uuid: 67d86208-b46c-4465-9018-e14087d415f
    private_ip: 192.168.8.2
    public_ip: false
  storage:
  - id: 67d86208-b46c-4465-9018-fe14087d4150
    boot: true
    boot_index: 1
    ephemeral: true
    local: false
    swap: false
    tag: any
    size: 20
  requirements:
    mem_mb: 4096
    vcpus: 2
    node_id: 67d86208-b46c-4465-9018-fe14087d4151
    hostname: ciao1
    network_node: false
    privileged: false
  restart: false
";

#[tokio::test]
async fn a_program_without_a_type_that_runs_programs_is_warned_of() {
    let scheduler = placing().await;
    let text = "start:\n  command: [true]\n";
    let ran = with_file(&scheduler, &["start"], text).await;
    assert_eq!(
        ran.err,
        "ciaoctl: warning: FILE: start.vm_type is missing, which means 'qemu'; `command` is run by `vm_type: process`\n"
    );
    assert_eq!(scheduler.seen(Kind::START).len(), 1);
}
