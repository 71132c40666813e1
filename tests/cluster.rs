//! A whole cluster of separate processes: the built scheduler, launchers that run real programs, and `ciaoctl`; and
//! what survives when one of them is killed.

#[path = "common/certs.rs"]
mod certs;
#[path = "common/look.rs"]
mod look;
#[path = "common/site.rs"]
mod site;

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Output;

use ciao_scheduler::ctl::client::Client;
use ciao_scheduler::ctl::event::Event;
use proto_frames::Uuid;
use proto_frames::payload::{InstanceView, Payload, QueryKind, Requirements, Start, Topic};
use tokio::process::Child;

use look::Look;
use site::{Daemon, Site, output, within};

/// The scheduler, and launchers by name.
struct Cluster {
    site: Site,
    scheduler: Option<Daemon>,
    address: SocketAddr,
    launchers: Vec<(String, Child)>,
}

impl Cluster {
    async fn start(launchers: &[&str]) -> Self {
        let site = Site::new();
        let state = site.path("state").display().to_string();
        let scheduler = site
            .start(&["--state-dir", &state, "--in-doubt-time", "2s"])
            .await;
        let address = scheduler.address;
        let mut cluster = Self {
            site,
            scheduler: Some(scheduler),
            address,
            launchers: Vec::new(),
        };
        for name in launchers {
            cluster.launch(name);
        }
        cluster.wait_for_nodes(launchers).await;
        cluster
    }

    fn launch(&mut self, name: &str) {
        let mut command = self.site.launcher(self.address, name);
        command.args([
            "--report-interval",
            "200ms",
            "--reconnect-cap",
            "500ms",
            "--stop-grace",
            "1s",
        ]);
        self.launchers.push((
            name.to_owned(),
            command.spawn().expect("the launcher starts"),
        ));
    }

    async fn kill_launcher(&mut self, name: &str) {
        let at = self
            .launchers
            .iter()
            .position(|(other, _)| other == name)
            .expect("it was launched");
        let (_, mut child) = self.launchers.remove(at);
        within(child.kill()).await.expect("it was running");
    }

    /// Ends the scheduler as a crash would and starts it again at the same address.
    async fn crash_scheduler(&mut self) {
        if let Some(scheduler) = self.scheduler.take() {
            scheduler.kill().await;
        }
        let (state, address) = (self.site.path("state"), self.address.to_string());
        let state = state.display().to_string();
        let flags = ["--listen", &address, "--state-dir", &state];
        let flags = [&flags[..], &["--in-doubt-time", "2s"]].concat();
        self.scheduler = Some(self.site.start(&flags).await);
    }

    async fn client(&self) -> Client {
        Client::connect(&self.site.client_config(self.address))
            .await
            .expect("the scheduler lets an operator in")
    }

    async fn ciaoctl(&self, arguments: &[&str]) -> Output {
        let mut command = self.site.ciaoctl(self.address);
        command.args(arguments);
        output(command).await
    }

    /// Runs a program in the cluster and waits for its end.
    async fn run(&self, program: &[&str]) -> Output {
        let run = ["run", "--mem", "16", "--cpus", "1", "--wait", "--"];
        self.ciaoctl(&[&run[..], program].concat()).await
    }

    /// Waits until exactly these nodes take work.
    async fn wait_for_nodes(&self, names: &[&str]) {
        let expected: BTreeSet<String> = names.iter().map(ToString::to_string).collect();
        let mut client = self.client().await;
        let mut look = Look::new();
        let mut found = BTreeSet::new();
        while found != expected {
            look.again(|| format!("{found:?} are ready, not {expected:?}"))
                .await;
            let nodes = client
                .list(QueryKind::Nodes, None)
                .await
                .expect("an answer")
                .nodes;
            let ready = nodes.iter().filter(|node| node.status == "READY");
            found = ready.map(|node| node.hostname.clone()).collect();
        }
    }

    /// Where a program that a test starts leaves a word.
    fn mark(&self, name: &str) -> PathBuf {
        self.site.path(name)
    }
}

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// A START of a shell command, with an instance of its own.
fn shell(script: &str) -> Start {
    Start {
        instance_uuid: Uuid::new_v4().to_string(),
        vm_type: "process".into(),
        command: vec!["/bin/sh".into(), "-c".into(), script.into()],
        requirements: Requirements {
            mem_mb: 16,
            vcpus: 1,
            ..Requirements::default()
        },
        ..Start::default()
    }
}

/// Waits until a file holds the number of a process that runs.
async fn running_process(path: PathBuf) -> i32 {
    let mut look = Look::new();
    loop {
        look.again(|| format!("nothing is in {}", path.display()))
            .await;
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        if let Ok(id) = text.trim().parse() {
            return id;
        }
    }
}

fn is_alive(process: i32) -> bool {
    PathBuf::from(format!("/proc/{process}")).exists()
}

#[tokio::test]
async fn programs_run_on_the_nodes_and_their_ends_are_told() {
    let cluster = Cluster::start(&["node-a", "node-b"]).await;
    let ended = cluster.run(&["/bin/sh", "-c", "exit 7"]).await;
    assert_eq!(ended.status.code(), Some(6), "{}", stdout(&ended));
    assert!(
        stdout(&ended).contains("exit status 7"),
        "{}",
        stdout(&ended)
    );
    let missing = cluster.run(&["/no/such/program"]).await;
    assert_eq!(missing.status.code(), Some(1), "{}", stdout(&missing));
    let nodes = cluster.ciaoctl(&["nodes"]).await;
    assert!(
        stdout(&nodes).contains("node-a") && stdout(&nodes).contains("node-b"),
        "{}",
        stdout(&nodes)
    );
}

#[tokio::test]
async fn an_instance_is_deleted_by_a_prefix_of_its_name() {
    let cluster = Cluster::start(&["node-a"]).await;
    let mark = cluster.mark("process");
    let start = shell(&format!("echo $$ > {} && exec sleep 600", mark.display()));
    let mut client = cluster.client().await;
    client
        .start(&start.instance_uuid, start.encode())
        .await
        .expect("it is placed");
    let process = running_process(mark).await;
    let deleted = cluster
        .ciaoctl(&["delete", "--wait", &start.instance_uuid[..8]])
        .await;
    assert!(
        deleted.status.success(),
        "{}",
        String::from_utf8_lossy(&deleted.stderr)
    );
    assert!(!is_alive(process));
}

#[tokio::test]
async fn running_programs_survive_a_crash_of_the_scheduler_and_new_ones_are_placed_soon() {
    let mut cluster = Cluster::start(&["node-a", "node-b"]).await;
    let mut client = cluster.client().await;
    let mut processes = Vec::new();
    let mut instances = BTreeSet::new();
    for number in 0..4 {
        let mark = cluster.mark(&format!("process-{number}"));
        let start = shell(&format!("echo $$ > {} && exec sleep 600", mark.display()));
        client
            .start(&start.instance_uuid, start.encode())
            .await
            .expect("it is placed");
        instances.insert(start.instance_uuid);
        processes.push(running_process(mark).await);
    }
    cluster.crash_scheduler().await;
    // At once: with a state directory it waits for the nodes that were there before.
    let after = cluster.run(&["/bin/true"]).await;
    assert!(
        after.status.success(),
        "{}{}",
        stdout(&after),
        String::from_utf8_lossy(&after.stderr)
    );
    assert!(processes.iter().all(|&process| is_alive(process)));
    cluster.wait_for_nodes(&["node-a", "node-b"]).await;
    let mut client = cluster.client().await;
    let mut look = Look::new();
    let mut listed = Vec::new();
    let names = |listed: &[InstanceView]| -> BTreeSet<String> {
        listed.iter().map(|it| it.instance_uuid.clone()).collect()
    };
    while !names(&listed).is_superset(&instances) {
        look.again(|| format!("{:?} are known, not {instances:?}", names(&listed)))
            .await;
        listed = client
            .list(QueryKind::Instances, None)
            .await
            .expect("an answer")
            .instances;
    }
    assert!(
        listed.iter().all(|it| it.mem_mb == 16),
        "what was asked is known again: {listed:#?}"
    );
    for instance in &instances {
        assert!(
            cluster
                .ciaoctl(&["delete", "--wait", instance])
                .await
                .status
                .success()
        );
    }
    assert!(!processes.iter().any(|&process| is_alive(process)));
}

#[tokio::test]
async fn every_start_is_accounted_for_when_a_launcher_is_killed() {
    const STARTS: usize = 60;
    let mut cluster = Cluster::start(&["node-a", "node-b", "node-c"]).await;
    let mut client = cluster.client().await;
    client
        .watch(&[Topic::Failures, Topic::Placements])
        .await
        .expect("it is heard");
    let submitter = client.submitter();
    let mut open = BTreeSet::new();
    for number in 0..STARTS {
        if number == STARTS / 2 {
            cluster.kill_launcher("node-b").await;
        }
        let start = shell("exec sleep 600");
        open.insert(start.instance_uuid.clone());
        submitter
            .submit(start.encode())
            .await
            .expect("the connection stands");
    }
    // Until the time in doubt is over, and everything that living nodes have is listed.
    let mut look = Look::new();
    while !open.is_empty() {
        tokio::select! {
            event = client.next_event() => {
                if let Event::StartFailure(failure) = event.expect("the connection stands") {
                    assert!(open.remove(&failure.instance_uuid), "{failure:?} comes twice");
                }
            }
            () = look.again(|| format!("no word of {open:?}")) => {
                let mut other = cluster.client().await;
                let listed = other.list(QueryKind::Instances, None).await.expect("an answer").instances;
                for running in listed.iter().filter(|it| it.state.as_str() == "running" && it.hostname != "node-b") {
                    open.remove(&running.instance_uuid);
                }
            }
        }
    }
    let mut everything = cluster.client().await;
    for instance in everything
        .list(QueryKind::Instances, None)
        .await
        .expect("an answer")
        .instances
    {
        let _ = cluster
            .ciaoctl(&["delete", "--wait", &instance.instance_uuid])
            .await;
    }
    // What the killed launcher left running is found again by the next, and can be ended.
    cluster.launch("node-b");
    cluster
        .wait_for_nodes(&["node-a", "node-b", "node-c"])
        .await;
    let evacuated = cluster
        .ciaoctl(&["evacuate", "--yes", "--wait", "node-b"])
        .await;
    assert!(
        evacuated.status.success(),
        "{}",
        String::from_utf8_lossy(&evacuated.stderr)
    );
}
