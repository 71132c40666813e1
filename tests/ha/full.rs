//! An etcd that is full, and takes no writes until an operator has done something about it.

use ciao_etcd::{Alarm, Error, Op, Txn};

use crate::etcd::{Etcd, etcdctl, is_missing};
use crate::world::{Pair, Settings, lines};

/// Far more than the schedulers need, and full soon.
const QUOTA: &str = "4000000";

/// Has etcd keep many values of one key, up to its quota.
async fn fill(etcd: &Etcd) {
    let client = etcd.client();
    for _ in 0..1000 {
        let put = Op::Put {
            key: b"/other/program".into(),
            value: vec![7; 100_000],
            lease: 0,
        };
        let put = Txn {
            then: vec![put],
            ..Txn::default()
        };
        if client.txn(put).await == Err(Error::NoSpace) {
            assert_eq!(client.alarms().await, Ok(vec![Alarm::NoSpace]));
            return;
        }
    }
    panic!("etcd is never full");
}

/// The commands that `ha status` names.
async fn commands(pair: &Pair) -> Vec<Vec<String>> {
    let status = pair.ha("status", &[]).await;
    assert!(status.contains("\nalarm NOSPACE: "), "{status}");
    let commands = status
        .lines()
        .filter_map(|it| it.trim().strip_prefix("etcdctl "));
    let words = |it: &str| it.split(' ').map(str::to_owned).collect();
    commands.map(words).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_etcd_costs_no_session_and_is_mended_by_what_status_names() {
    if is_missing() {
        return;
    }
    let etcd = Etcd::start(1, &["--quota-backend-bytes", QUOTA]);
    let mut pair = Pair::start_on(etcd, Settings::default()).await;
    let (file, script) = pair.script("before");
    let run = "run --quiet --mem 16 --cpus 1 --queue 10m -- /bin/sh -c";
    pair.done(run, &[&script]).await;
    let began = lines(&file).await;
    fill(&pair.etcd).await;
    // Whatever has to be kept is not acknowledged, and the operator is told why.
    let long = "run --quiet --mem 990 --cpus 1 --queue 10m --";
    let refused = pair.ctl(long, &["true"]).await;
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(
        said.contains("not_recorded") && said.contains("NOSPACE"),
        "{said}"
    );
    pair.schedulers[0].logged("store_not_written").await;
    pair.schedulers[0].logged("cluster_etcd_alarm").await;
    let commands = commands(&pair).await;
    assert_eq!(commands.len(), 3, "{commands:?}");
    for words in commands {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        etcdctl(&words);
    }
    let status = pair.ha("status", &[]).await;
    assert!(!status.contains("alarm"), "{status}");
    pair.schedulers[0].logged("store_written_again").await;
    // It led all the time, and another can take over again.
    let log = pair.schedulers[0].log();
    assert!(!log.iter().any(|it| it.contains("steps down")));
    pair.done(long, &["true"]).await;
    pair.fail_over().await;
    pair.until_listed("nodes", "node-a").await;
    assert_eq!(lines(&file).await, began);
    pair.check().await;
}
