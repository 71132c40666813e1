//! The configuration is changed while the cluster runs: `ciaoctl configure`, its versions over a restart, and what a check
//! says of instances that run.

use std::os::unix::fs::PermissionsExt as _;

use proto_frames::Role;
use proto_frames::{Encoding, Kind};
use serde_json::Value;

use crate::world::{Cluster, Look, Ran};

const FIRST: &str = "configure:\n  scheduler:\n    policy: {preset: spread}\n";

/// Node a is in a zone; the comment is to stay.
const SECOND: &str = "\
# who asks for eu-1 gets node-a
configure:
  scheduler:
    policy: {preset: spread}
    aggregates:
    - {name: west, zone: eu-1, nodes: [node-a]}
";

/// Both nodes are reserved for a tenant of which there are no STARTs.
const RESERVED: &str = "\
configure:
  scheduler:
    aggregates:
    - {name: all, nodes: [node-a, node-b], tenants: [blue]}
";

/// Writes a file of the site; its path.
fn write(cluster: &Cluster, name: &str, text: &str) -> String {
    let path = cluster.site.path(name);
    std::fs::write(&path, text).unwrap();
    path.display().to_string()
}

fn json(ran: &Ran) -> Value {
    assert_eq!(ran.code, Some(0), "{ran:?}");
    serde_json::from_str(&ran.out).unwrap()
}

async fn put(cluster: &Cluster, text: &str, more: &[&str]) -> Ran {
    let file = write(cluster, "new.yaml", text);
    let mut arguments = vec![&*file];
    arguments.extend(more);
    cluster.ctl_with("configure", &arguments).await
}

#[tokio::test]
async fn a_configuration_that_was_set_counts_at_once_and_after_a_restart_over_the_file() {
    let mut cluster = Cluster::of_scheduler(FIRST, &[], true).await;
    cluster.launch("node-a", &[]);
    cluster.launch("node-b", &[]);
    cluster.ready(&["node-a", "node-b"]).await;
    let require = ["--require", "zone = eu-1"];
    let ran = cluster.ctl_with("explain --mem 16", &require).await;
    assert_eq!(ran.code, Some(1), "{ran:?}");

    let ran = put(&cluster, SECOND, &["--note", "a zone for the west"]).await;
    assert_eq!(
        (ran.code, &*ran.out),
        (Some(0), "version 2 is in force\n"),
        "{ran:?}"
    );
    let ran = cluster.ctl_with("explain --mem 16", &require).await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(ran.out.contains("node-a"), "{ran:?}");
    let ran = cluster.ctl("configure --show").await;
    assert_eq!(ran.out, SECOND, "byte for byte");

    cluster.crash_scheduler().await;
    let warning = cluster.scheduler().logged("WARN").await;
    for part in [
        "configuration.yaml",
        "version 2",
        "ciaoctl configure --diff",
    ] {
        assert!(warning.contains(part), "{warning}");
    }
    cluster.ready(&["node-a", "node-b"]).await;
    let ran = cluster.ctl("configure --show").await;
    assert_eq!(ran.out, SECOND);
    let ran = cluster.ctl_with("explain --mem 16", &require).await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let native = cluster
        .site
        .connect(cluster.scheduler(), Role::AGENT, Encoding::Native)
        .await;
    assert_eq!(native.connected.payload, SECOND);

    let versions = json(&cluster.ctl("configure --versions --json").await);
    let versions = versions["versions"].as_array().unwrap();
    assert_eq!(versions.len(), 2);
    assert_eq!(versions[0]["source"], "command");
    assert_eq!(versions[0]["note"], "a zone for the west");
    assert!(
        versions[0]["by"].as_str().unwrap().contains("ciao"),
        "{versions:?}"
    );
    assert!(versions[0]["at_ms"].as_u64().unwrap() > 1_600_000_000_000);
    assert_eq!(versions[1]["source"], "file");
    let ran = cluster.ctl("configure --diff").await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(ran.out.contains("\n-    - {name: west,"), "{ran:?}");
}

#[tokio::test]
async fn a_file_that_has_changed_counts_after_a_restart_unless_it_has_a_mistake() {
    let mut cluster = Cluster::of_scheduler(FIRST, &[], true).await;
    write(&cluster, "configuration.yaml", SECOND);
    cluster.crash_scheduler().await;
    assert_eq!(cluster.ctl("configure --show").await.out, SECOND);

    write(&cluster, "configuration.yaml", "configure: [\n");
    cluster.crash_scheduler().await;
    let warning = cluster.scheduler().logged("cannot use").await;
    assert!(warning.contains("version 2"), "{warning}");
    assert_eq!(cluster.ctl("configure --show").await.out, SECOND);
    let versions = json(&cluster.ctl("configure --versions --json").await);
    let sources = versions["versions"].as_array().unwrap().iter();
    let sources: Vec<_> = sources.map(|it| it["source"].as_str().unwrap()).collect();
    assert_eq!(sources, ["file", "file"]);
}

#[tokio::test]
async fn whoever_comes_second_with_a_version_changes_nothing_and_a_rollback_is_a_version() {
    let cluster = Cluster::of_scheduler(FIRST, &[], true).await;
    let ran = put(&cluster, SECOND, &["--if-version", "1"]).await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let ran = put(&cluster, RESERVED, &["--if-version", "1"]).await;
    assert_eq!(ran.code, Some(1), "{ran:?}");
    for part in ["version 2 of ", "not version 1", "conflict"] {
        assert!(ran.err.contains(part), "{ran:?}");
    }
    let ran = cluster.ctl("configure --show").await;
    assert_eq!(ran.out, SECOND);
    let ran = cluster.ctl("configure --rollback 1").await;
    assert_eq!(
        (ran.code, &*ran.out),
        (Some(0), "version 3 is in force\n"),
        "{ran:?}"
    );
    assert_eq!(cluster.ctl("configure --show").await.out, FIRST);
    assert_eq!(cluster.ctl("configure --show 2").await.out, SECOND);
    let ran = cluster.ctl("configure --versions").await;
    assert!(ran.out.starts_with("*     3 "), "{ran:?}");
    assert!(ran.out.contains("rollback to version 1"), "{ran:?}");
    let ran = cluster.ctl("configure --rollback 9").await;
    assert_eq!(ran.code, Some(5), "{ran:?}");
    assert!(ran.err.contains("no version 9"), "{ran:?}");
}

#[tokio::test]
async fn a_mistake_changes_nothing_and_names_the_key_and_the_line() {
    let cluster = Cluster::of_scheduler(FIRST, &[], true).await;
    for (text, part) in [
        (
            "configure:\n  scheduler:\n    policy: {prest: pack}\n",
            "configure.scheduler.policy.prest, line 3 column 14",
        ),
        ("configure: [", "not valid YAML"),
        (
            "configure:\n  launcher: {mem_limit: maybe}\n",
            "configure.launcher.mem_limit, line 2",
        ),
    ] {
        for check in [&["--check"][..], &[]] {
            let ran = put(&cluster, text, check).await;
            assert_eq!(ran.code, Some(2), "{ran:?}");
            assert!(ran.err.contains(part), "{ran:?}");
        }
    }
    assert_eq!(cluster.ctl("configure --show").await.out, FIRST);
}

#[tokio::test]
async fn a_check_names_the_instances_that_would_not_be_placed_where_they_are() {
    let cluster = Cluster::new(&["node-a", "node-b"]).await;
    let options = "--mem 16 --cpus 1 --wait=running --name";
    let on_a = cluster
        .run(&format!("{options} one --node node-a"), "exec sleep 1000")
        .await;
    let on_b = cluster
        .run(&format!("{options} two --node node-b"), "exec sleep 1000")
        .await;
    let ran = put(&cluster, SECOND, &["--check"]).await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(
        ran.out
            .contains("of 2 instances, each would be placed where it is"),
        "{ran:?}"
    );

    let reserved = RESERVED.replace("node-a, ", "");
    let ran = put(&cluster, &reserved, &["--check"]).await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(ran.out.contains("1 of 2 instances would not"), "{ran:?}");
    let short = &on_b[..8];
    let line = format!("  two ({short}) on node-b: the node is one reserved for other tenants\n");
    assert!(ran.out.contains(&line), "{ran:?}");
    let checked = json(&put(&cluster, RESERVED, &["--check", "--json"]).await);
    assert_eq!(checked["affected_count"], 2);
    assert_eq!(checked["checked"], 2);
    // Less than runs there is offered.
    let small = "configure:\n  scheduler:\n    capacity:\n    - {select: [\"node.hostname = node-a\"], reserved_mem_mb: 100000}\n";
    let checked = json(&put(&cluster, small, &["--check", "--json"]).await);
    assert_eq!(checked["affected_count"], 1, "{checked}");
    assert_eq!(checked["affected"][0]["instance_uuid"], *on_a);
    let reason = checked["affected"][0]["reason"].as_str().unwrap();
    assert!(
        reason.starts_with("short of memory (asks 16 MiB"),
        "{reason}"
    );
    // Nothing of it was done.
    assert_eq!(
        json(&cluster.ctl("configure --show --json").await)["current"],
        1
    );
    let ran = cluster.ctl("explain --mem 16").await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
}

#[tokio::test]
async fn an_editor_s_work_is_put_into_force_and_a_mistake_in_it_is_kept() {
    let cluster = Cluster::of_scheduler(FIRST, &[], true).await;
    let editor = cluster.site.path("editor");
    let script = |sed: &str| {
        let text = format!("#!/bin/sh\nexec sed -i '{sed}' \"$1\"\n");
        std::fs::write(&editor, text).unwrap();
        let mode = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(&editor, mode).unwrap();
    };
    let edit = async || {
        let mut command = cluster.command(&["configure", "--edit"]);
        command
            .env("VISUAL", &editor)
            .env("TMPDIR", cluster.site.path(""));
        crate::site::output(command).await
    };
    script("s/spread/pack/");
    let done = edit().await;
    assert_eq!(done.status.code(), Some(0), "{done:?}");
    assert_eq!(
        cluster.ctl("configure --show").await.out,
        FIRST.replace("spread", "pack")
    );
    script("s/nothing/at all/");
    let done = edit().await;
    let said = String::from_utf8(done.stderr).unwrap();
    assert!(said.contains("nothing was changed"), "{said}");
    script("s/pack/tight/");
    let done = edit().await;
    assert_eq!(done.status.code(), Some(2), "{done:?}");
    let said = String::from_utf8(done.stderr).unwrap();
    assert!(
        said.contains("first-fit, spread or pack, found `tight`"),
        "{said}"
    );
    let kept = said.split("what you wrote is in ").nth(1).unwrap();
    let kept = kept.split(": ").next().unwrap();
    assert!(
        std::fs::read_to_string(kept).unwrap().contains("tight"),
        "{said}"
    );
    assert_eq!(
        json(&cluster.ctl("configure --show --json").await)["current"],
        2
    );
}

#[tokio::test]
async fn what_a_controller_configures_is_a_version_that_outlives_the_scheduler() {
    let mut cluster = Cluster::of_scheduler(SECOND, &[], true).await;
    cluster.launch("node-a", &[]);
    cluster.ready(&["node-a"]).await;
    let original = "configure:\n  launcher: {mem_limit: false}\n";
    let mut controller = cluster
        .site
        .connect(cluster.scheduler(), Role::CONTROLLER, Encoding::Gob)
        .await;
    controller.send(Kind::CONFIGURE, original).await;
    let mut look = Look::new();
    let versions = loop {
        let versions = json(&cluster.ctl("configure --versions --json").await);
        if versions["current"] == 2 {
            break versions;
        }
        look.again(|| versions.to_string()).await;
    };
    assert_eq!(versions["versions"][0]["source"], "controller");
    cluster.crash_scheduler().await;
    cluster.ready(&["node-a"]).await;
    let ran = cluster.ctl("configure --show").await;
    assert!(ran.out.contains("mem_limit: false"), "{ran:?}");
    // The rules that its sender knows nothing of are still in force.
    let require = ["--require", "zone = eu-1"];
    let ran = cluster.ctl_with("explain --mem 16", &require).await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let peer = cluster
        .site
        .connect(cluster.scheduler(), Role::AGENT, Encoding::Gob)
        .await;
    let sent = String::from_utf8(peer.connected.payload.to_vec()).unwrap();
    assert!(sent.contains("mem_limit: false"), "{sent}");
}

#[tokio::test]
async fn without_a_state_directory_versions_end_with_the_scheduler_and_that_is_said() {
    let mut cluster = Cluster::of_scheduler(FIRST, &[], false).await;
    let ran = put(&cluster, SECOND, &[]).await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(
        ran.out.contains("it is lost when the scheduler ends"),
        "{ran:?}"
    );
    cluster.crash_scheduler().await;
    assert_eq!(cluster.ctl("configure --show").await.out, FIRST);
}

#[tokio::test]
async fn what_is_kept_and_cannot_be_read_ends_the_start_instead_of_becoming_none() {
    let mut cluster = Cluster::of_scheduler(FIRST, &[], true).await;
    let ran = put(&cluster, RESERVED, &[]).await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    cluster.kill_scheduler().await;
    let kept = cluster.site.path("state").join("configuration");
    let text = std::fs::read_to_string(&kept).unwrap();
    std::fs::write(&kept, &text[..text.len() / 2]).unwrap();
    let state = cluster.site.path("state").display().to_string();
    let command = cluster.site.command(&["--state-dir", &state]);
    let done = crate::site::output(command).await;
    let said = String::from_utf8(done.stderr).unwrap();
    assert!(!done.status.success());
    for part in ["state/configuration", "move the file away"] {
        assert!(said.contains(part), "{said}");
    }
}

#[tokio::test]
async fn files_that_are_read_again_are_versions_unless_a_newer_one_was_set_by_command() {
    let node_file = "nodes:\n- {node: node-a, labels: {rack: r1}}\n";
    let site_flags = ["--node-file", "{site}/nodes.yaml"];
    let mut cluster = Cluster::with_files(FIRST, &[("nodes.yaml", node_file)], &site_flags).await;
    cluster.launch("node-a", &[]);
    cluster.ready(&["node-a"]).await;
    let explain = async |require: &str| {
        let ran = cluster
            .ctl_with("explain --mem 16", &["--require", require])
            .await;
        ran.code
    };
    assert_eq!(explain("rack = r1").await, Some(0));
    write(&cluster, "configuration.yaml", SECOND);
    write(&cluster, "nodes.yaml", &node_file.replace("r1", "r2"));
    let ran = cluster.ctl("configure --diff").await;
    for part in [
        "+    - {name: west,",
        "nodes.yaml, in force\n",
        "\n-- {node: node-a, labels: {rack: r1}}\n+- {node: node-a, labels: {rack: r2}}\n",
    ] {
        assert!(ran.out.contains(part), "{part}: {ran:?}");
    }
    let differing = json(&cluster.ctl("configure --diff --json").await);
    assert_eq!(differing["node_file"]["differs"], true);
    assert_eq!(differing["node_file"]["affected_count"], 0);
    cluster.scheduler().hang_up();
    cluster.scheduler().logged("event=files_reloaded").await;
    assert_eq!(cluster.ctl("configure --show").await.out, SECOND);
    assert_eq!(explain("zone = eu-1").await, Some(0));
    assert_eq!(explain("rack = r2").await, Some(0));
    assert_eq!(explain("rack = r1").await, Some(1));
    let versions = json(&cluster.ctl("configure --versions --json").await);
    assert_eq!(versions["current"], 2);
    assert_eq!(versions["versions"][0]["source"], "file");
    let ran = cluster.ctl("configure --diff").await;
    assert!(
        ran.out.ends_with("nodes.yaml is what is in force\n"),
        "{ran:?}"
    );

    // What is wrong in one file leaves all as it is.
    write(&cluster, "nodes.yaml", &node_file.replace("r1", "r3"));
    write(
        &cluster,
        "configuration.yaml",
        "configure:\n  scheduler: {policy: {prest: pack}}\n",
    );
    cluster.scheduler().hang_up();
    let refused = cluster.scheduler().logged("event=reload_refused").await;
    assert!(
        refused.contains("configure.scheduler.policy.prest, line 2"),
        "{refused}"
    );
    assert_eq!(explain("rack = r2").await, Some(0));

    let ran = put(&cluster, FIRST, &[]).await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    write(
        &cluster,
        "configuration.yaml",
        &format!("{SECOND}# later\n"),
    );
    cluster.scheduler().hang_up();
    let refused = cluster.scheduler().logged("version 3 was set since").await;
    assert!(refused.contains("--diff"), "{refused}");
    assert_eq!(cluster.ctl("configure --show").await.out, FIRST);
    assert_eq!(
        explain("rack = r2").await,
        Some(0),
        "nothing else was taken either"
    );
}

/// That entries are listed in the words that `set` takes, and for programs.
async fn are_listed(cluster: &Cluster) {
    let ran = cluster.ctl("aggregate list").await;
    let listed = "west  zone=eu-1  nodes=[\"node-a\"]  labels={\"ssd\":\"true\"}\n";
    assert_eq!((ran.code, &*ran.out), (Some(0), listed), "{ran:?}");
    let tenants = json(&cluster.ctl("tenant list --json").await);
    assert_eq!(tenants["tenants"][0]["priority"], 70);
}

#[tokio::test]
async fn single_entries_are_changed_by_command_and_kept() {
    let mut cluster = Cluster::of_scheduler(FIRST, &[], true).await;
    cluster.launch("node-a", &[]);
    cluster.launch("node-b", &[]);
    cluster.ready(&["node-a", "node-b"]).await;
    let done = async |line: &str, more: &[&str]| {
        let ran = cluster.ctl_with(line, more).await;
        assert_eq!(ran.code, Some(0), "{ran:?}");
    };
    let commented = format!("{FIRST}# of the site\n");
    put(&cluster, &commented, &[]).await;
    let ran = cluster
        .ctl_with("aggregate set west", &["zone=eu-1", "nodes=[node-a]"])
        .await;
    assert!(ran.err.contains("configure --show 2"), "{ran:?}");
    assert!(
        !ran.err.contains("the original's launchers"),
        "they were sent nothing before either: {ran:?}"
    );
    let ran = cluster.ctl("configure --show 2").await;
    assert_eq!(ran.out, commented);
    done("aggregate set west", &["labels={ssd: \"true\"}"]).await;
    done("node label node-b rack=r7", &[]).await;
    done("node resource node-b gpu=2", &[]).await;
    done("tenant set blue queue=10m priority=70", &[]).await;
    are_listed(&cluster).await;
    let explain = async |cluster: &Cluster, arguments: &[&str]| {
        cluster.ctl_with("explain --mem 16", arguments).await.code
    };
    for require in ["zone = eu-1", "ssd = true", "rack = r7"] {
        assert_eq!(
            explain(&cluster, &["--require", require]).await,
            Some(0),
            "{require}"
        );
    }
    assert_eq!(explain(&cluster, &["--resource", "gpu=2"]).await, Some(0));
    assert_eq!(explain(&cluster, &["--resource", "gpu=3"]).await, Some(1));
    let shown = cluster.ctl("configure --show").await.out;
    assert!(
        shown.contains("preset: spread") && shown.contains("priority: 70"),
        "{shown}"
    );
    let ran = cluster.ctl_with("aggregate set west", &["zne=eu-2"]).await;
    assert_eq!(ran.code, Some(2), "{ran:?}");
    assert!(ran.err.contains("aggregates[0].zne"), "{ran:?}");

    cluster.crash_scheduler().await;
    cluster.ready(&["node-a", "node-b"]).await;
    assert_eq!(
        explain(&cluster, &["--require", "rack = r7"]).await,
        Some(0)
    );
    let ran = cluster.ctl("aggregate delete west").await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert_eq!(
        explain(&cluster, &["--require", "zone = eu-1"]).await,
        Some(1)
    );
    let ran = cluster.ctl("aggregate delete west").await;
    assert_eq!(ran.code, Some(5), "{ran:?}");
    let ran = cluster.ctl("configure --versions").await;
    assert!(ran.out.contains("aggregate west deleted"), "{ran:?}");
    let ran = cluster.ctl_with("node label node-b", &["rack="]).await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert_eq!(
        explain(&cluster, &["--require", "rack = r7"]).await,
        Some(1)
    );
}

#[tokio::test]
async fn a_file_that_has_changed_under_a_newer_version_is_taken_by_force_alone() {
    let mut cluster = Cluster::of_scheduler(FIRST, &[], true).await;
    let ran = put(&cluster, SECOND, &[]).await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let third = format!("{RESERVED}# from the file\n");
    write(&cluster, "configuration.yaml", &third);
    cluster.scheduler().hang_up();
    let refused = cluster.scheduler().logged("event=reload_refused").await;
    assert!(refused.contains("version 2 was set since"), "{refused}");
    assert_eq!(cluster.ctl("configure --show").await.out, SECOND);
    let ran = cluster.ctl("status").await;
    assert_eq!(ran.code, Some(9), "{ran:?}");
    assert!(ran.out.contains("version 2 was set since"), "{ran:?}");

    let ran = cluster.ctl("reload").await;
    assert_eq!(ran.code, Some(1), "{ran:?}");
    for part in ["configuration.yaml", "version 2 was set since", "--force"] {
        assert!(ran.err.contains(part), "{ran:?}");
    }
    let ran = cluster.ctl("reload --force").await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert_eq!(cluster.ctl("configure --show").await.out, third);
    let versions = json(&cluster.ctl("configure --versions --json").await);
    assert_eq!(versions["current"], 3);
    assert_eq!(versions["versions"][0]["source"], "file");
    let ran = cluster.ctl("status").await;
    assert!(!ran.out.contains("was set since"), "{ran:?}");
    // What was in force before is still there to go back to.
    assert_eq!(cluster.ctl("configure --show 2").await.out, SECOND);

    // Force is about versions, and lets no mistake in.
    write(&cluster, "configuration.yaml", "configure: [\n");
    let ran = cluster.ctl("reload --force").await;
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(ran.err.contains("not valid YAML"), "{ran:?}");
    write(&cluster, "configuration.yaml", &third);
    cluster.crash_scheduler().await;
    assert_eq!(cluster.ctl("configure --show").await.out, third);
}
