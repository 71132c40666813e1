//! cgroups in simulated directories; the kernel's own part is tried by the launcher's tests where there is one to be had.

use std::fs::{self, create_dir, read_to_string, write};
use std::path::Path;

use proto_frames::Uuid;

use super::super::limits::Limits;
use super::{Cgroup, Tree, place};

const LIMITS: Limits = Limits {
    mem_mb: 48,
    vcpus: 2,
};

/// A directory with a cgroup's files, which takes every word as it is written.
fn simulated(path: &Path) {
    for (name, text) in [
        ("cgroup.controllers", "memory cpu"),
        ("cgroup.subtree_control", ""),
        ("cgroup.procs", ""),
        ("cgroup.events", "populated 1\nfrozen 0\n"),
        ("cgroup.freeze", "0"),
        ("memory.max", "max"),
        ("memory.stat", "anon 20971520\nfile 999999999\n"),
        ("cpu.max", "max 100000"),
    ] {
        write(path.join(name), text).unwrap();
    }
}

fn group(path: &Path, memory: bool, cpu: bool) -> Cgroup {
    simulated(path);
    let path = path.to_owned();
    Cgroup {
        path,
        memory,
        cpu,
        cpuset: false,
    }
}

#[test]
fn a_tree_is_a_directory_of_cgroup_2_and_says_which_controllers_it_has() {
    let dir = tempfile::tempdir().unwrap();
    let error = Tree::at(dir.path()).unwrap_err();
    assert!(error.to_string().contains("no cgroup"), "{error}");
    simulated(dir.path());
    write(dir.path().join("cgroup.subtree_control"), "io memory").unwrap();
    let tree = Tree::at(dir.path()).unwrap();
    assert!(tree.memory && !tree.cpu);
    let asked = read_to_string(dir.path().join("cgroup.subtree_control")).unwrap();
    assert_eq!(asked, "+cpu", "what is not there is asked for");
    let node = Uuid::from_u128(7);
    let group = tree.group(node, "a");
    assert_eq!(
        group.path.file_name().unwrap().to_str(),
        Some(format!("ciao-{node}-a").as_str())
    );
    assert!(Tree::at(&dir.path().join("none")).is_err());
}

#[test]
fn limits_are_written_where_the_group_has_the_controller_and_memory_in_use_is_not_taken() {
    let dir = tempfile::tempdir().unwrap();
    let text = |name: &str| read_to_string(dir.path().join(name)).unwrap();
    group(dir.path(), false, false).limit(LIMITS).unwrap();
    assert_eq!(
        (text("memory.max"), text("cpu.max")),
        ("max".to_owned(), "max 100000".to_owned())
    );
    let group = group(dir.path(), true, true);
    group.limit(LIMITS).unwrap();
    assert_eq!(
        (text("memory.max"), text("cpu.max")),
        ("67108864".to_owned(), "200000 100000".to_owned())
    );
    let less = Limits {
        mem_mb: 3,
        vcpus: 1,
    };
    let error = group.limit(less).unwrap_err();
    assert!(error.to_string().contains("20 MiB"), "{error}");
    assert_eq!(
        (text("memory.max"), text("cpu.max")),
        ("67108864".to_owned(), "200000 100000".to_owned())
    );
}

#[tokio::test]
async fn freezing_is_over_when_the_kernel_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let group = group(dir.path(), false, false);
    let freeze = || read_to_string(dir.path().join("cgroup.freeze")).unwrap();
    assert!(group.has_freezer());
    tokio::select! {
        biased;
        _ = group.freeze() => panic!("nothing is frozen"),
        () = tokio::task::yield_now() => {}
    }
    assert_eq!(freeze(), "1");
    write(dir.path().join("cgroup.events"), "populated 1\nfrozen 1\n").unwrap();
    group.freeze().await.unwrap();
    group.thaw().unwrap();
    assert_eq!(freeze(), "0");
}

#[test]
fn a_group_is_removed_with_those_below_it() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("group");
    let group = Cgroup {
        path: path.clone(),
        memory: false,
        cpu: false,
        cpuset: false,
    };
    assert!(group.try_remove(), "there is none");
    fs::create_dir_all(path.join("below/further")).unwrap();
    create_dir(path.join("beside")).unwrap();
    assert!(group.try_remove());
    assert!(!path.exists());
}

#[test]
fn the_own_group_is_found_under_the_mount_of_cgroup_2() {
    let mounts = "22 1 0:20 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n\
        30 22 0:26 / /sys/fs/cgroup/memory rw,nosuid shared:9 - cgroup cgroup rw,memory\n\
        31 22 0:27 / /sys/fs/cgroup/unified rw,nosuid shared:10 - cgroup2 cgroup2 rw\n";
    let group = "4:memory:/x\n0::/system.slice/ciao-launcher.service\n";
    assert_eq!(
        place(group, mounts).unwrap().to_str(),
        Some("/sys/fs/cgroup/unified/system.slice/ciao-launcher.service")
    );
    let part = "31 22 0:27 /system.slice /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";
    assert_eq!(
        place(group, part).unwrap().to_str(),
        Some("/sys/fs/cgroup/ciao-launcher.service")
    );
    assert_eq!(place("4:memory:/x\n", mounts), None);
}

#[test]
fn kills_for_memory_are_read_of_the_group_and_of_none_where_it_does_not_say() {
    let root = tempfile::tempdir().unwrap();
    let group = Cgroup {
        path: root.path().to_owned(),
        memory: true,
        cpu: true,
        cpuset: false,
    };
    assert_eq!(group.memory_kills(), None);
    // As a kernel has it: `oom` counts how often the limit was reached, `oom_kill` the processes.
    let events = "low 0\nhigh 0\nmax 214\noom 3\noom_kill 2\noom_group_kill 1\n";
    write(root.path().join("memory.events"), events).unwrap();
    assert_eq!(group.memory_kills(), Some(2));
    write(
        root.path().join("memory.events"),
        "low 0\noom 0\noom_kill 0\n",
    )
    .unwrap();
    assert_eq!(group.memory_kills(), Some(0));
}
