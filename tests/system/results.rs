//! What ended instances have left: fetched with `ciaoctl collect`, deleted with `ciaoctl instance forget --data`, and with
//! standard error apart where that was asked for.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::world::Cluster;

const SMALL: &str = "--mem 16 --cpus 1";

/// Runs a script to its end; the instance's UUID.
async fn ended(cluster: &Cluster, options: &str, script: &str) -> String {
    let id = cluster.run(&format!("{SMALL} {options}"), script).await;
    cluster.until_gone(&id).await;
    id
}

/// What `ciaoctl collect` says that it did, which must be this exit code.
async fn collect(cluster: &Cluster, code: i32, line: &str) -> Value {
    let ran = cluster.ctl(&format!("collect --json {line}")).await;
    assert_eq!(ran.code, Some(code), "{ran:?}");
    serde_json::from_str(&ran.out).unwrap()
}

/// The counts that it gives.
fn counts(said: &Value) -> [u64; 3] {
    [
        said["collected"].as_u64().unwrap(),
        said["present"].as_u64().unwrap(),
        said["failed"].as_array().unwrap().len() as u64,
    ]
}

fn text(path: impl AsRef<Path>) -> String {
    let path = path.as_ref();
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Every file below a directory.
fn files_below(root: &Path) -> Vec<PathBuf> {
    let mut all = Vec::new();
    let mut todo = vec![root.to_owned()];
    while let Some(path) = todo.pop() {
        if path.is_dir() {
            todo.extend(fs::read_dir(path).unwrap().map(|it| it.unwrap().path()));
        } else {
            all.push(path);
        }
    }
    all.sort();
    all
}

#[tokio::test]
async fn standard_error_is_kept_apart_on_request_and_read_apart() {
    let cluster = Cluster::new(&["node-a"]).await;
    let script = "echo out 1; echo err 1 >&2; echo out 2; exit 3";
    let apart = ended(&cluster, "--split-output --name apart", script).await;
    let together = ended(&cluster, "--name together", script).await;
    for (line, out) in [
        ("logs --stdout apart", "out 1\nout 2\n"),
        ("logs --stderr apart", "err 1\n"),
        ("logs apart", "out 1\nout 2\n"),
        ("logs --tail 1 --stdout apart", "out 2\n"),
        ("logs together", "out 1\nerr 1\nout 2\n"),
    ] {
        let ran = cluster.ctl(line).await;
        assert_eq!((ran.code, &*ran.out), (Some(0), out), "{line}: {ran:?}");
        assert_eq!(
            ran.err.contains("--stderr"),
            line == "logs apart",
            "{ran:?}"
        );
    }
    let ran = cluster.ctl("logs --stderr together").await;
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(ran.err.contains("--split-output"), "{ran:?}");
    // All bytes count.
    let ends = cluster.ctl("history -o json").await;
    let ends: Value = serde_json::from_str(&ends.out).unwrap();
    let bytes: Vec<_> = ends["ends"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| &it["output_bytes"])
        .collect();
    assert_eq!(bytes, [18, 18]);

    let directory = cluster.site.path("results");
    let said = collect(&cluster, 0, &format!("-d {}", directory.display())).await;
    assert_eq!(counts(&said), [2, 0, 0], "{said}");
    let apart = directory.join(format!("apart.{apart}"));
    assert_eq!(text(apart.join("stdout")), "out 1\nout 2\n");
    assert_eq!(text(apart.join("stderr")), "err 1\n");
    let together = directory.join(format!("together.{together}"));
    assert_eq!(text(together.join("output")), "out 1\nerr 1\nout 2\n");
    let end: Value = serde_json::from_str(&text(together.join("end.json"))).unwrap();
    assert_eq!(
        (&end["exit_code"], &end["outcome"]),
        (&3.into(), &"failed".into())
    );
}

/// A job that writes more than a chunk, and files of several kinds.
const JOB: &str = "yes $CIAO_INSTANCE_UUID | head -c 200000; mkdir -p a/b; echo deep > a/b/deep; : > empty; \
                   head -c 100000 /dev/zero > zeros; ln -s /etc/passwd link; mkfifo pipe; echo \"a name\" > 'with blank'";

#[tokio::test]
async fn results_of_many_are_collected_whole_and_none_of_them_twice() {
    let cluster = Cluster::new(&["node-a", "node-b"]).await;
    let mut ids = Vec::new();
    for number in 0..5 {
        ids.push(
            cluster
                .run(&format!("{SMALL} --name job-{number}"), JOB)
                .await,
        );
    }
    for id in &ids {
        cluster.until_gone(id).await;
    }
    let directory = cluster.site.path("results");
    let line = format!("--name job-* --files -d {}", directory.display());
    let said = collect(&cluster, 0, &line).await;
    assert_eq!(counts(&said), [5, 0, 0], "{said}");
    let incomplete = said["incomplete"].as_array().unwrap();
    assert_eq!(
        incomplete.len(),
        5,
        "links and pipes are left out, which is said: {said}"
    );
    for (number, id) in ids.iter().enumerate() {
        let of_it = directory.join(format!("job-{number}.{id}"));
        let line = format!("{id}\n");
        let expected: String = line.repeat(200_000 / line.len() + 1)[..200_000].to_owned();
        assert!(text(of_it.join("output")) == expected);
        let files = of_it.join("files");
        assert_eq!(text(files.join("a/b/deep")), "deep\n");
        assert_eq!(text(files.join("empty")), "");
        assert_eq!(text(files.join("with blank")), "a name\n");
        assert_eq!(fs::read(files.join("zeros")).unwrap(), vec![0; 100_000]);
        assert_eq!(files_below(&files).len(), 4, "{:?}", files_below(&files));
        let end: Value = serde_json::from_str(&text(of_it.join("end.json"))).unwrap();
        let left_out: Vec<_> = end["collected"]["left_out"]
            .as_array()
            .unwrap()
            .iter()
            .collect();
        assert_eq!(left_out, ["link", "pipe"]);
    }
    let said = collect(&cluster, 0, &line).await;
    assert_eq!(
        (counts(&said), &said["bytes"]),
        ([0, 5, 0], &0.into()),
        "{said}"
    );

    what_was_cut_off_is_collected_again(&cluster, &directory, &ids[3]).await;

    // By name, and what is known of no instance.
    let other = cluster.site.path("others");
    let said = collect(
        &cluster,
        0,
        &format!("job-1 {} -d {}", ids[2], other.display()),
    )
    .await;
    assert_eq!(counts(&said), [2, 0, 0], "{said}");
    let ran = cluster
        .ctl(&format!("collect nothing-such -d {}", other.display()))
        .await;
    assert!(
        ran.code == Some(2) && ran.err.contains("'nothing-such'"),
        "{ran:?}"
    );
}

/// Cuts off what was collected of the third job, and collects again.
async fn what_was_cut_off_is_collected_again(cluster: &Cluster, directory: &Path, id: &str) {
    let line = format!("--name job-* --files -d {}", directory.display());
    // What was cut off: the note that is written last is not there, one file is short, another is half way.
    let cut = directory.join(format!("job-3.{id}"));
    fs::remove_file(cut.join("end.json")).unwrap();
    fs::write(cut.join("output.part"), "half").unwrap();
    fs::write(cut.join("output"), "short").unwrap();
    fs::write(cut.join("files/zeros"), "short").unwrap();
    fs::write(cut.join("file.part"), "half").unwrap();
    let said = collect(cluster, 0, &line).await;
    assert_eq!(counts(&said), [1, 4, 0], "{said}");
    assert_eq!(said["bytes"], 300_000, "its output and one file: {said}");
    assert_eq!(text(cut.join("output")).len(), 200_000);
    assert_eq!(fs::read(cut.join("files/zeros")).unwrap(), vec![0; 100_000]);
    assert!(
        files_below(directory)
            .iter()
            .all(|it| it.extension().is_none_or(|it| it != "part"))
    );
}

#[tokio::test]
async fn what_cannot_be_collected_is_named_and_the_rest_is() {
    let mut cluster = Cluster::new(&["node-a"]).await;
    let kept = ended(&cluster, "--name kept", "echo kept").await;
    let gone = ended(&cluster, "--name gone", "echo gone; echo x > file").await;
    let forgotten = cluster.ctl("instance forget --data --yes gone").await;
    assert!(
        forgotten.code == Some(0) && forgotten.out.contains(&gone),
        "{forgotten:?}"
    );
    let directory = cluster.site.path("results");
    let line = format!("--files -d {}", directory.display());
    let said = collect(&cluster, 1, &line).await;
    assert_eq!(counts(&said), [1, 0, 1], "{said}");
    assert_eq!(said["failed"][0]["instance_uuid"], *gone);
    let detail = said["failed"][0]["detail"].as_str().unwrap();
    assert!(detail.contains("forget --data"), "{detail}");
    assert_eq!(
        text(directory.join(format!("kept.{kept}")).join("output")),
        "kept\n"
    );
    assert!(
        !directory
            .join(format!("gone.{gone}"))
            .join("output")
            .exists()
    );

    cluster.lose("node-a").await;
    let away = cluster
        .ctl(&format!("collect -d {} gone", directory.display()))
        .await;
    assert!(
        away.code == Some(1) && away.err.contains("not connected"),
        "{away:?}"
    );
}

#[tokio::test]
async fn only_what_is_over_is_deleted_and_its_node_says_so_afterwards() {
    let mut cluster = Cluster::new(&["node-a"]).await;
    let runs = cluster
        .run(
            &format!("{SMALL} --wait=running --name runs"),
            "echo alive; exec sleep 1000",
        )
        .await;
    let over = ended(&cluster, "--name over", "echo over; echo result > file").await;
    let removed = cluster
        .run(
            &format!("{SMALL} --wait=running --name removed"),
            "echo removed; exec sleep 1000",
        )
        .await;
    let ran = cluster.ctl("delete --wait removed").await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let refused = cluster.ctl("instance forget --data runs").await;
    assert!(
        refused.code == Some(2) && refused.err.contains("--yes"),
        "{refused:?}"
    );
    let refused = cluster.ctl("instance forget --data --yes runs").await;
    assert!(
        refused.code == Some(1) && refused.err.contains(&format!("{runs} not deleted")),
        "{refused:?}"
    );
    for (name, id) in [("over", &over), ("removed", &removed)] {
        let ran = cluster
            .ctl(&format!("instance forget --data --yes {name}"))
            .await;
        assert_eq!(ran.code, Some(0), "{ran:?}");
        assert!(
            ran.out.contains(&**id) && ran.out.contains("1 run"),
            "{ran:?}"
        );
        let logs = cluster.ctl(&format!("logs {id}")).await;
        assert!(
            logs.code == Some(1) && logs.err.contains("that was requested"),
            "{logs:?}"
        );
        let again = cluster
            .ctl(&format!("instance forget --data --yes {id}"))
            .await;
        assert!(
            again.code == Some(0) && again.out.contains("had left nothing"),
            "{again:?}"
        );
    }
    let state = cluster.site.path("node-a");
    let left = files_below(&state);
    let is_result = |path: &&PathBuf| {
        path.ends_with("work/file")
            || fs::read(path).is_ok_and(|it| it == b"over\n" || it == b"removed\n")
    };
    let in_trash = |path: &&PathBuf| path.strip_prefix(&state).unwrap().starts_with("trash");
    let left = left.iter().filter(|path| !in_trash(path));
    assert_eq!(left.into_iter().find(is_result), None);
    // What runs was not touched.
    let logs = cluster.ctl("logs runs").await;
    assert_eq!((logs.code, &*logs.out), (Some(0), "alive\n"), "{logs:?}");

    let late = ended(&cluster, "--name late", "echo late").await;
    cluster.lose("node-a").await;
    let away = cluster.ctl("instance forget --data --yes late").await;
    assert!(
        away.code == Some(1) && away.err.contains("not connected"),
        "{away:?}"
    );
    cluster.launch("node-a", &[]);
    cluster.ready(&["node-a"]).await;
    let logs = cluster.ctl(&format!("logs {late}")).await;
    assert_eq!((logs.code, &*logs.out), (Some(0), "late\n"), "{logs:?}");
}
