//! What instances are called, run, and for how long they have been there: shown in lists, kept over restarts.

use crate::world::{Cluster, Crash, Look};

/// Seconds after which an age that began again would be less.
const AGE_S: i64 = 2;

async fn run(cluster: &Cluster, name: &str) -> crate::world::Ran {
    let options = format!("run --mem 16 --cpus 1 --wait=running --name {name} --");
    cluster.ctl_with(&options, &["sleep", "600"]).await
}

/// Waits until an instance has been there for so long, and is called so and runs that.
async fn until_old(cluster: &Cluster, name: &str, age_s: i64) -> i64 {
    let mut look = Look::new();
    loop {
        let view = cluster.instance(name).await;
        if let Some(view) = &view
            && (&*view.name, &*view.program) == (name, "sleep 600")
            && view.age_s >= age_s
        {
            return view.age_s;
        }
        look.again(|| format!("{view:?} is not {name}, or not so old"))
            .await;
    }
}

#[tokio::test]
async fn a_name_is_that_of_one_living_instance_and_serves_where_a_uuid_does() {
    let mut cluster = Cluster::without_store(&["node-a"]).await;
    let first = run(&cluster, "web.1").await;
    assert_eq!(first.code, Some(0), "{first:?}");
    let second = run(&cluster, "web.1").await;
    assert_eq!(second.code, Some(1), "{second:?}");
    assert!(
        second
            .out
            .contains("start.scheduling.name: 'web.1' is the name of instance"),
        "{second:?}"
    );
    let other = run(&cluster, "web.2").await;
    assert_eq!(other.code, Some(0), "{other:?}");
    for wrong in ["-x", "a b", "4cb19522-1e18-439a-883a-f9b2a3a95f5e", "ä"] {
        let named = format!("--name={wrong}");
        let ran = cluster
            .ctl_with("run --mem 16 --cpus 1", &[&named, "--", "true"])
            .await;
        assert_eq!(ran.code, Some(2), "{ran:?}");
    }

    until_old(&cluster, "web.1", AGE_S).await;
    let listed = cluster.ctl("instances").await;
    assert!(
        listed.out.contains("web.1") && listed.out.contains("sleep 600"),
        "{listed:?}"
    );
    for crash in [Crash::OfScheduler, Crash::OfLauncher] {
        cluster.recover_from(crash).await;
        let mut look = Look::new();
        while cluster
            .instance("web.1")
            .await
            .is_none_or(|view| view.age_s < AGE_S)
        {
            look.again(|| format!("its name or its age is not known after {crash:?}"))
                .await;
        }
        let again = run(&cluster, "web.1").await;
        assert_eq!(again.code, Some(1), "{crash:?}: {again:?}");
    }

    let history = cluster.ctl("history web.1").await;
    assert_eq!(history.code, Some(0), "{history:?}");
    let suspended = cluster.ctl("suspend web.2").await;
    assert_eq!(suspended.code, Some(0), "{suspended:?}");
    let deleted = cluster.ctl("delete web.1 web.2 --wait").await;
    assert_eq!(deleted.code, Some(0), "{deleted:?}");
    let free = run(&cluster, "web.1").await;
    assert_eq!(free.code, Some(0), "{free:?}");
}
