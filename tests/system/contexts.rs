//! `ciaoctl context`: where a scheduler is and which certificates to show it, under a name.

use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;

use serde_json::Value;
use tokio::process::Command;

use crate::site::output;
use crate::world::Cluster;

/// `ciaoctl` with nothing but contexts in this cluster's directory: its exit code, what it printed and what it said.
async fn ctl(cluster: &Cluster, env: &[(&str, &str)], line: &str) -> (Option<i32>, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ciaoctl"));
    command
        .args(line.split_ascii_whitespace())
        .env_clear()
        .env("XDG_CONFIG_HOME", cluster.site.path("config"))
        .envs(env.iter().copied())
        .stdin(Stdio::null())
        .kill_on_drop(true);
    let ran = output(command).await;
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (ran.status.code(), text(ran.stdout), text(ran.stderr))
}

#[tokio::test]
async fn a_context_says_what_flags_and_variables_do_not() {
    let cluster = Cluster::new(&["node-a"]).await;
    let (address, ca) = (cluster.address.to_string(), cluster.site.path("CAcert.pem"));
    let cert = cluster.site.path("controller.pem");
    let set = format!(
        "context set here --server {address} --cert {} --cacert {}",
        cert.display(),
        ca.display()
    );
    let (code, out, said) = ctl(&cluster, &[], &set).await;
    assert_eq!((code, &*out), (Some(0), "here is set\n"), "{said}");
    let file = cluster.site.path("config/ciao/config.toml");
    let mode = std::fs::metadata(&file).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let (code, out, said) = ctl(&cluster, &[], "nodes -o name").await;
    assert_eq!((code, &*out), (Some(0), "node-a\n"), "{said}");

    // Another that is not current, and leads nowhere.
    let (code, ..) = ctl(
        &cluster,
        &[("CIAO_SERVER", "127.0.0.1:1")],
        "context set away",
    )
    .await;
    assert_eq!(code, Some(0));
    let (_, out, _) = ctl(&cluster, &[], "context list --json").await;
    let document: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(document["current"], "here");
    assert_eq!(document["contexts"][0]["server"], "127.0.0.1:1");
    let (code, _, said) = ctl(&cluster, &[], "nodes --context away").await;
    assert_ne!(code, Some(0), "{said}");
    let (_, out, _) = ctl(&cluster, &[("CIAO_CONTEXT", "here")], "nodes -o name").await;
    assert_eq!(out, "node-a\n");
    let (code, ..) = ctl(&cluster, &[], "context use away").await;
    assert_eq!(code, Some(0));
    let (_, out, _) = ctl(&cluster, &[], "context list").await;
    assert!(out.contains("*  away"), "{out}");
    // A variable counts over the context.
    let (cert, ca) = (cert.display().to_string(), ca.display().to_string());
    let env = [
        ("CIAO_SERVER", &*address),
        ("CIAO_CERT", &cert),
        ("CIAO_CACERT", &ca),
    ];
    let (code, out, said) = ctl(&cluster, &env, "nodes -o name").await;
    assert_eq!((code, &*out), (Some(0), "node-a\n"), "{said}");
    let (_, out, _) = ctl(&cluster, &[], "context show here").await;
    assert!(out.contains(&address) && out.contains(&cert), "{out}");
    let (code, ..) = ctl(&cluster, &[], "context delete away").await;
    assert_eq!(code, Some(0));
    for (line, part) in [
        ("nodes --context away", "there are here"),
        ("context use away", "there are here"),
        ("context show", "no context is current"),
        ("context set a/b --server x", "no name of a context"),
    ] {
        let (code, _, said) = ctl(&cluster, &[], line).await;
        assert_eq!(code, Some(2), "{line}: {said}");
        assert!(said.contains(part), "{line}: {said}");
    }
    std::fs::write(&file, "[contexts.here]\nsevrer = 1\n").unwrap();
    let (code, _, said) = ctl(&cluster, &[], "nodes").await;
    assert!(code == Some(2) && said.contains("line 2"), "{said}");
}
