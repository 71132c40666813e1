//! Programs that are shipped: pushed to the scheduler, fetched by the nodes that run them, and what becomes of a START
//! whose program cannot be had.

use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use tokio::task::JoinSet;

use crate::world::{Cluster, Look, until};

const RUN: &str = "run --quiet --mem 16 --cpus 1";

/// A program that says what it is given.
const ECHO: &[u8] = b"#!/bin/sh\necho hello \"$@\"\n";

impl Cluster {
    /// A scheduler that keeps images, and these nodes.
    async fn shipping(nodes: &[&str], flags: &[&str]) -> Self {
        let flags = [&["--blob-dir", "{site}/blobs"][..], flags].concat();
        let weigher = "configure:\n  scheduler:\n    policy:\n      weighers:\n      - image\n";
        let mut cluster = Self::of_scheduler(weigher, &flags, true).await;
        for node in nodes {
            cluster.launch(node, &[]);
        }
        cluster.ready(nodes).await;
        cluster
    }

    /// Writes a file and pushes it; its digest.
    async fn push(&self, name: &str, contents: &[u8]) -> String {
        let file = self.site.path(name);
        std::fs::write(&file, contents).unwrap();
        let ran = self.ctl(&format!("push {}", file.display())).await;
        assert_eq!(ran.code, Some(0), "{ran:?}");
        ran.out.trim().to_owned()
    }

    /// Where the scheduler has an image.
    async fn stored(&self, digest: &str) -> PathBuf {
        let ran = self.ctl("images -o json").await;
        assert!(ran.out.contains(digest), "{ran:?}");
        let digits = digest.trim_start_matches("sha256:");
        self.site.path("blobs").join(digits)
    }

    /// Where a node has it.
    fn cached(&self, node: &str, digest: &str) -> PathBuf {
        let digits = digest.trim_start_matches("sha256:");
        self.site.path(node).join("images").join(digits)
    }

    /// Runs an image to its end; what it wrote.
    async fn run_image(&self, digest: &str, arguments: &[&str]) -> String {
        let line = format!("{RUN} --image {digest} --wait --");
        let ran = self.ctl_with(&line, arguments).await;
        assert_eq!(ran.code, Some(0), "{ran:?}");
        self.ctl(&format!("logs {}", ran.out.trim())).await.out
    }
}

/// Bytes that are no program, and no part of them like another.
fn noise(len: usize) -> Vec<u8> {
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    };
    std::iter::repeat_with(next).flatten().take(len).collect()
}

/// A program of that many bytes.
fn long_program(len: usize) -> Vec<u8> {
    [&b"#!/bin/sh\necho done\nexit 0\n"[..], &noise(len)].concat()
}

#[tokio::test]
async fn a_node_that_cannot_fetch_is_given_no_program_that_it_lacks() {
    let mut cluster = Cluster::shipping(&[], &[]).await;
    cluster.launch("gob", &["--encoding", "gob"]);
    cluster.ready(&["gob"]).await;
    let digest = cluster.push("echo", ECHO).await;
    let ran = cluster.ctl(&format!("{RUN} --image {digest}")).await;
    assert_ne!(ran.code, Some(0), "{ran:?}");
    assert!(ran.err.contains("whose launchers fetch none"), "{ran:?}");
    cluster.launch("native", &[]);
    cluster.ready(&["native"]).await;
    assert_eq!(cluster.run_image(&digest, &["a"]).await, "hello a\n");
    assert!(cluster.cached("native", &digest).exists());
}

#[tokio::test]
async fn a_program_that_was_pushed_runs_on_a_node_that_lacks_it_and_is_fetched_once() {
    let cluster = Cluster::shipping(&["node-a"], &[]).await;
    let digest = cluster.push("echo.sh", ECHO).await;
    let again = cluster.push("echo.sh", ECHO).await;
    assert_eq!(digest, again);
    assert_eq!(
        cluster.run_image(&digest, &["a", "b c"]).await,
        "hello a b c\n"
    );
    let cached = cluster.cached("node-a", &digest);
    let mode = std::fs::metadata(&cached).unwrap().permissions().mode();
    assert_eq!(mode & 0o7777, 0o500);
    // It needs the scheduler's copy no more.
    let stored = cluster.stored(&digest).await;
    std::fs::remove_file(&stored).unwrap();
    let script = ["/bin/sh", "-c", "{image} twice; {image} over"];
    assert_eq!(
        cluster.run_image(&digest, &script).await,
        "hello twice\nhello over\n"
    );
    let label = format!("image.sha256_{}", &digest[7..19]);
    cluster
        .until_node("node-a", |node| node.labels.contains_key(&label))
        .await;
    let listed = cluster
        .ctl(&format!("images -o json {}", &digest[..15]))
        .await;
    let listed: serde_json::Value = serde_json::from_str(&listed.out).unwrap();
    assert_eq!(listed["images"][0]["digest"], digest);
    assert_eq!(listed["images"][0]["bytes"], ECHO.len());
    assert_eq!(listed["images"][0]["nodes"], serde_json::json!(["node-a"]));
}

#[tokio::test]
async fn a_node_that_has_the_image_is_preferred() {
    let mut cluster = Cluster::shipping(&["node-a"], &[]).await;
    let digest = cluster.push("echo.sh", ECHO).await;
    cluster.run_image(&digest, &[]).await;
    let label = format!("image.sha256_{}", &digest[7..19]);
    cluster
        .until_node("node-a", |node| node.labels.contains_key(&label))
        .await;
    cluster.launch("node-b", &[]);
    cluster.ready(&["node-b"]).await;
    for _ in 0..4 {
        cluster.run_image(&digest, &[]).await;
    }
    assert!(!cluster.cached("node-b", &digest).exists());
}

#[tokio::test]
async fn an_image_that_is_not_there_or_damaged_fails_its_start_and_not_the_node() {
    let cluster = Cluster::shipping(&["node-a"], &[]).await;
    let nowhere = format!("sha256:{}", "0".repeat(64));
    let line = format!("{RUN} --wait --verbose --image {nowhere}").replace("--quiet ", "");
    let ran = cluster.ctl(&line).await;
    assert_ne!(ran.code, Some(0));
    let said = ran.out.clone() + &ran.err;
    assert!(said.contains("image_failure"), "{ran:?}");
    assert!(said.contains("ciaoctl push"), "{ran:?}");
    let digest = cluster.push("echo.sh", ECHO).await;
    let stored = cluster.stored(&digest).await;
    std::fs::set_permissions(&stored, std::fs::Permissions::from_mode(0o600)).unwrap();
    std::fs::write(&stored, vec![b'x'; ECHO.len()]).unwrap();
    let ran = cluster.ctl(&line.replace(&nowhere, &digest)).await;
    let said = ran.out.clone() + &ran.err;
    assert!(said.contains("image_failure"), "{ran:?}");
    assert!(said.contains("damaged"), "{ran:?}");
    cluster.ready(&["node-a"]).await;
    // Pushed again it is whole again.
    cluster.push("echo.sh", ECHO).await;
    assert_eq!(cluster.run_image(&digest, &[]).await, "hello\n");
}

#[tokio::test]
async fn a_copy_that_was_changed_on_the_node_is_fetched_again() {
    let cluster = Cluster::shipping(&["node-a"], &[]).await;
    let digest = cluster.push("echo.sh", ECHO).await;
    cluster.run_image(&digest, &[]).await;
    let cached = cluster.cached("node-a", &digest);
    std::fs::set_permissions(&cached, std::fs::Permissions::from_mode(0o700)).unwrap();
    std::fs::write(&cached, b"#!/bin/sh\necho changed\n").unwrap();
    assert_eq!(cluster.run_image(&digest, &[]).await, "hello\n");
}

#[tokio::test]
async fn more_than_the_quota_is_refused_with_words_and_what_no_start_names_goes() {
    let flags = ["--blob-quota", "3", "--blob-tenant-quota", "2"];
    let cluster = Cluster::shipping(&["node-a"], &flags).await;
    let file = cluster.site.path("large");
    std::fs::write(&file, noise(5 << 19)).unwrap();
    let ran = cluster.ctl(&format!("push {}", file.display())).await;
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(ran.err.contains("--blob-tenant-quota"), "{ran:?}");
    let first = cluster.push("first", &noise(3 << 19)).await;
    let second = cluster.push("second", &long_program(1 << 20)).await;
    let listed = cluster.ctl("images -q").await.out;
    assert_eq!(listed.trim(), second, "{first} had to go");
}

#[tokio::test]
async fn images_are_deleted_by_a_beginning_of_their_digest_unless_a_start_names_them() {
    let cluster = Cluster::shipping(&["node-a"], &[]).await;
    let digest = cluster.push("echo.sh", ECHO).await;
    let taken = "--mem 900 --cpus 1 --wait=running";
    cluster.run(taken, "exec sleep 1000").await;
    let waiting = format!("run --quiet --mem 500 --cpus 1 --image {digest} --queue 1h");
    let ran = cluster.ctl(&waiting).await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let delete = format!("images delete {}", &digest[7..17]);
    let refused = cluster.ctl(&delete).await;
    assert!(refused.err.contains("in_use"), "{refused:?}");
    let ended = cluster
        .ctl(&format!("delete {} --wait", ran.out.trim()))
        .await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let done = cluster.ctl(&delete).await;
    assert_eq!(done.code, Some(0), "{done:?}");
    assert_eq!(done.out, format!("{digest} deleted\n"));
    assert_eq!(cluster.ctl("images -q").await.out, "");
    let other = cluster.push("other", b"other\n").await;
    let done = cluster.ctl(&format!("images delete --json {other}")).await;
    let done: serde_json::Value = serde_json::from_str(&done.out).unwrap();
    assert_eq!(done["images"][0]["digest"], *other);
    assert_eq!(done["images"][0]["outcome"], "deleted");
    let gone = cluster.ctl(&delete).await;
    assert_eq!(gone.code, Some(5), "{gone:?}");
}

#[tokio::test]
async fn a_fetch_that_was_cut_off_goes_on_where_it_was() {
    let mut cluster = Cluster::shipping(&["node-a"], &["--blob-rate", "1"]).await;
    let digest = cluster.push("long", &long_program(3 << 20)).await;
    let start = format!("{RUN} --image {digest}");
    cluster.ctl(&start).await;
    let part = cluster.cached("node-a", &digest).with_extension("part");
    let len = |part: &PathBuf| std::fs::metadata(part).map_or(0, |file| file.len());
    until("a part is there", || len(&part) > 200_000).await;
    cluster.lose("node-a").await;
    let before = len(&part);
    assert!(before > 0, "it was cut off");
    cluster.launch_logged("node-a", &[]);
    cluster.ready(&["node-a"]).await;
    let ran = cluster.ctl(&format!("{start} --wait=running")).await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let log = std::fs::read_to_string(cluster.site.path("node-a.log")).unwrap();
    assert!(log.contains("image_fetch_resumed"), "{log}");
    // Also where the scheduler is what was cut off.
    std::fs::remove_file(cluster.cached("node-a", &digest)).unwrap();
    cluster.ctl(&start).await;
    until("a part is there", || len(&part) > 100_000).await;
    cluster.crash_scheduler().await;
    let cached = cluster.cached("node-a", &digest);
    until("all is there", || cached.exists()).await;
}

#[tokio::test]
async fn an_instance_that_waits_for_its_image_can_be_deleted() {
    let cluster = Cluster::shipping(&["node-a"], &["--blob-rate", "1"]).await;
    let digest = cluster.push("long", &long_program(20 << 20)).await;
    let ran = cluster.ctl(&format!("{RUN} --image {digest}")).await;
    let id = ran.out.trim();
    let part = cluster.cached("node-a", &digest).with_extension("part");
    until("a part is there", || part.exists()).await;
    let ended = cluster.ctl(&format!("delete {id} --wait")).await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    cluster.until_gone(id).await;
    assert!(!cluster.cached("node-a", &digest).exists());
}

#[tokio::test]
async fn a_scheduler_without_a_store_says_so() {
    let cluster = Cluster::without_store(&["node-a"]).await;
    let file = cluster.site.path("echo.sh");
    std::fs::write(&file, ECHO).unwrap();
    let ran = cluster.ctl(&format!("push {}", file.display())).await;
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(ran.err.contains("--blob-dir"), "{ran:?}");
}

#[tokio::test]
async fn ten_nodes_fetch_a_program_while_other_starts_go_on() {
    let names: Vec<String> = (0..10).map(|number| format!("node-{number}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let cluster = Cluster::shipping(&names, &[]).await;
    let digest = cluster.push("long", &long_program(3 << 20)).await;
    let cluster = std::sync::Arc::new(cluster);
    let mut fetches = JoinSet::new();
    for name in &names {
        let (cluster, line) = (
            cluster.clone(),
            format!("{RUN} --image {digest} --node {name} --wait"),
        );
        fetches.spawn(async move { cluster.ctl(&line).await });
    }
    let mut look = Look::new();
    while !fetches.is_empty() {
        while let Some(ran) = fetches.try_join_next() {
            let ran = ran.unwrap();
            assert_eq!(ran.code, Some(0), "{ran:?}");
        }
        let ran = cluster.ctl(&format!("{RUN} --wait -- /bin/true")).await;
        assert_eq!(ran.code, Some(0), "{ran:?}");
        look.again(|| "not all have fetched it".to_owned()).await;
    }
    for name in names {
        assert!(cluster.cached(name, &digest).exists(), "{name}");
    }
}

/// Says what is in the files that it is given, and in the one that a variable names.
const CAT: &[u8] = b"#!/bin/sh\ncat \"$@\" \"$THIRD\"\n";

/// The options of a program and its further files.
fn several(program: &str, more: &[String]) -> String {
    let more: String = more
        .iter()
        .map(|it| format!(" --more-image {it}"))
        .collect();
    format!("--image {program}{more}")
}

#[tokio::test]
async fn a_program_finds_its_further_files_on_a_node_that_had_none_of_them() {
    let cluster = Cluster::shipping(&["node-a"], &[]).await;
    let program = cluster.push("cat.sh", CAT).await;
    let mut more = Vec::new();
    for name in ["one", "two", "three"] {
        more.push(cluster.push(name, format!("{name}\n").as_bytes()).await);
    }
    let line = format!(
        "{RUN} {} --env THIRD={{image.3}} --wait -- {{image.2}} {{image.1}}",
        several(&program, &more)
    );
    let ran = cluster.ctl(&line).await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let wrote = cluster.ctl(&format!("logs {}", ran.out.trim())).await.out;
    assert_eq!(wrote, "two\none\nthree\n");
    for digest in &more {
        let file = std::fs::metadata(cluster.cached("node-a", digest)).unwrap();
        assert_eq!(file.permissions().mode() & 0o222, 0, "no user may write it");
        // It needs the scheduler's copy no more.
        std::fs::remove_file(cluster.stored(digest).await).unwrap();
    }
    let ran = cluster.ctl(&line).await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
}

#[tokio::test]
async fn a_further_file_that_is_not_there_or_damaged_fails_its_start_by_its_name_and_not_the_node()
{
    let cluster = Cluster::shipping(&["node-a"], &[]).await;
    let program = cluster.push("cat.sh", CAT).await;
    let good = cluster.push("good", b"good\n").await;
    let nowhere = format!("sha256:{}", "0".repeat(64));
    let damaged = cluster.push("damaged", b"whole\n").await;
    let stored = cluster.stored(&damaged).await;
    std::fs::set_permissions(&stored, std::fs::Permissions::from_mode(0o600)).unwrap();
    std::fs::write(&stored, b"eloh\nw").unwrap();
    let run = RUN.replace("--quiet ", "");
    for (bad, words) in [(&nowhere, "ciaoctl push"), (&damaged, "damaged")] {
        let files = several(&program, &[good.clone(), bad.clone()]);
        let ran = cluster
            .ctl(&format!("{run} --wait --verbose {files}"))
            .await;
        assert_ne!(ran.code, Some(0));
        let said = ran.out + &ran.err;
        for part in ["image_failure", "{image.2}", bad, words] {
            assert!(said.contains(part), "{part}: {said}");
        }
        cluster.ready(&["node-a"]).await;
    }
    // Pushed again it is whole again.
    cluster.push("damaged", b"whole\n").await;
    let files = several(&program, &[good, damaged]);
    let line = format!("{RUN} {files} --env THIRD={{image.1}} --wait -- {{image.2}}");
    let ran = cluster.ctl(&line).await;
    let wrote = cluster.ctl(&format!("logs {}", ran.out.trim())).await.out;
    assert_eq!(wrote, "whole\ngood\n");
}

#[tokio::test]
async fn further_files_of_what_runs_stay_on_the_node_over_a_restart_of_its_launcher() {
    let mut cluster = Cluster::shipping(&[], &[]).await;
    let flags = ["--blob-cache-quota", "3"];
    cluster.launch("node-a", &flags);
    cluster.ready(&["node-a"]).await;
    let lasting = cluster
        .push("last.sh", b"#!/bin/sh\nexec sleep 1000\n")
        .await;
    let held = cluster.push("held", &noise(3 << 19)).await;
    let other = cluster.push("other", &long_program(2 << 20)).await;
    let files = several(&lasting, std::slice::from_ref(&held));
    let ran = cluster.ctl(&format!("{RUN} {files} --wait=running")).await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    cluster.lose("node-a").await;
    cluster.launch("node-a", &flags);
    cluster.ready(&["node-a"]).await;
    cluster.until(ran.out.trim(), "running").await;
    let run = RUN.replace("--quiet ", "");
    let line = format!("{run} --image {other} --wait --verbose");
    let refused = cluster.ctl(&line).await;
    let said = refused.out + &refused.err;
    assert!(said.contains("no room"), "{said}");
    assert!(cluster.cached("node-a", &held).exists());
    let delete = format!("delete {} --wait", ran.out.trim());
    assert_eq!(cluster.ctl(&delete).await.code, Some(0));
    assert_eq!(cluster.run_image(&other, &[]).await, "done\n");
    assert!(!cluster.cached("node-a", &held).exists());
}

#[tokio::test]
async fn what_waits_over_a_restart_of_the_scheduler_still_has_its_further_files() {
    let mut cluster = Cluster::shipping(&[], &[]).await;
    let program = cluster.push("cat.sh", CAT).await;
    let more = [
        cluster.push("one", b"one\n").await,
        cluster.push("two", b"two\n").await,
    ];
    let files = several(&program, &more);
    let line = format!("{RUN} {files} --env THIRD={{image.2}} --queue 1h -- {{image.1}}");
    let waiting = cluster.ctl(&line).await;
    assert_eq!(waiting.code, Some(0), "{waiting:?}");
    cluster.crash_scheduler().await;
    let delete = format!("images delete {}", more[1]);
    let refused = cluster.ctl(&delete).await;
    assert!(refused.err.contains("in_use"), "{refused:?}");
    cluster.launch("node-a", &[]);
    let id = waiting.out.trim();
    let ended = cluster.ctl(&format!("wait {id}")).await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let wrote = cluster.ctl(&format!("logs {id}")).await.out;
    assert_eq!(wrote, "one\ntwo\n");
    let done = cluster.ctl(&delete).await;
    assert_eq!(done.code, Some(0), "{done:?}");
}

#[tokio::test]
async fn further_files_are_refused_without_a_program() {
    let cluster = Cluster::shipping(&["node-a"], &[]).await;
    let digest = format!("sha256:{}", "0".repeat(64));
    let ran = cluster
        .ctl(&format!("{RUN} --more-image {digest} -- true"))
        .await;
    assert_eq!(ran.code, Some(2), "{ran:?}");
    assert!(ran.err.contains("--image"), "{ran:?}");
    let many = several(&digest, &vec![digest.clone(); 17]);
    let ran = cluster.ctl(&format!("{RUN} {many}")).await;
    assert_eq!(ran.code, Some(2), "{ran:?}");
    let words = "start.more_images: more than 16 entries";
    assert!(ran.err.contains(words), "{ran:?}");
}
