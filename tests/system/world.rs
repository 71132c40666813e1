//! A cluster of separate processes, whose parts a test kills, stops and starts again.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Stdio;

use ciao_scheduler::ctl::client::{Client, Listing};
use proto_frames::payload::{HistoryRow, InstanceView, NodeView, QueryKind};
use rustix::process::{Pid, Signal, kill_process};
use tokio::process::{Child, Command};
use tokio::sync::Mutex;

pub(crate) use crate::look::{Look, until};
use crate::site::{Daemon, Site, output, within};
use crate::supervisors::end_instances;

/// How often launchers report. Much of what is waited for comes with a report.
const REPORT_EVERY: &str = "100ms";

/// What every node here has of memory, MiB, unless a test says otherwise.
pub(crate) const NODE_MEM: &str = "1000";

/// Vcpus of every node here: its launcher hands out so many for its one processor, and the scheduler knows it.
pub(crate) const NODE_VCPUS: &str = "4";

/// The scheduler, launchers by name, and what is needed to start them again.
pub(crate) struct Cluster {
    pub(crate) site: Site,
    scheduler: Option<Daemon>,
    pub(crate) address: SocketAddr,
    launchers: Vec<(String, Child)>,
    /// Whether the scheduler has a state directory.
    has_store: bool,
    /// Further flags of the scheduler, which count over the usual ones.
    flags: Vec<String>,
    /// The session in which it is looked at; a new one is made where that has ended.
    eyes: Mutex<Option<Client>>,
}

/// What crashes.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Crash {
    OfScheduler,
    OfLauncher,
}

/// What a run of `ciaoctl` came to.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Drop for Cluster {
    /// Leaves no workload behind: they outlive their launchers.
    fn drop(&mut self) {
        for (_, launcher) in &mut self.launchers {
            let _ = launcher.start_kill();
        }
        // Also those of launchers that were killed before.
        let directories = std::fs::read_dir(self.site.path("."));
        for directory in directories.into_iter().flatten().flatten() {
            end_instances(&directory.path());
        }
    }
}

impl Cluster {
    /// A scheduler that lets high priorities take the room of low ones, and these nodes.
    pub(crate) async fn new(nodes: &[&str]) -> Self {
        Self::with(nodes, true).await
    }

    /// The same with a scheduler that keeps nothing.
    pub(crate) async fn without_store(nodes: &[&str]) -> Self {
        Self::with(nodes, false).await
    }

    async fn with(nodes: &[&str], has_store: bool) -> Self {
        let policy = "configure:\n  scheduler:\n    policy:\n      preemption: true\n";
        let mut cluster = Self::of_scheduler(policy, &[], has_store).await;
        for node in nodes {
            cluster.launch(node, &[]);
        }
        cluster.ready(nodes).await;
        cluster
    }

    /// A scheduler with this configuration and these flags, in which `{site}` is the test's directory, and no nodes.
    pub(crate) async fn of_scheduler(configuration: &str, flags: &[&str], has_store: bool) -> Self {
        Self::at(Site::new(), configuration, flags, has_store).await
    }

    async fn at(site: Site, configuration: &str, flags: &[&str], has_store: bool) -> Self {
        std::fs::write(site.path("configuration.yaml"), configuration).unwrap();
        let place = site.path("").display().to_string();
        let mut cluster = Self {
            scheduler: None,
            address: ([127, 0, 0, 1], 0).into(),
            site,
            launchers: Vec::new(),
            has_store,
            flags: flags
                .iter()
                .map(|&flag| flag.replace("{site}", &place))
                .collect(),
            eyes: Mutex::new(None),
        };
        cluster.start_scheduler().await;
        cluster
    }

    /// The same with a state directory and these files in the test's directory.
    pub(crate) async fn with_files(
        configuration: &str,
        files: &[(&str, &str)],
        flags: &[&str],
    ) -> Self {
        let site = Site::new();
        for (name, text) in files {
            std::fs::write(site.path(name), text).unwrap();
        }
        Self::at(site, configuration, flags, true).await
    }

    /// Starts the scheduler, at the address where it was if it was there before.
    pub(crate) async fn start_scheduler(&mut self) {
        let state = self.site.path("state").display().to_string();
        let address = self.address.to_string();
        let state = self.has_store.then_some(["--state-dir", &state]);
        let flags = [
            ["--listen", &address],
            ["--cpu-ratio", NODE_VCPUS],
            ["--in-doubt-time", "1s"],
            ["--settle-time", "5s"],
            ["--tls-deadline", "60s"],
        ];
        let mut command = Command::new(env!("CARGO_BIN_EXE_ciao-scheduler"));
        command
            .arg("-cert")
            .arg(self.site.path("scheduler.pem"))
            .arg("-cacert")
            .arg(self.site.path("CAcert.pem"))
            .args(self.site.configuration())
            .arg("-logtostderr")
            .args(flags.as_flattened())
            .args(&self.flags)
            .args(state.as_slice().as_flattened())
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        let scheduler = Daemon::start(command).await;
        self.address = scheduler.address;
        self.scheduler = Some(scheduler);
    }

    /// The scheduler, which runs.
    pub(crate) fn scheduler(&self) -> &Daemon {
        self.scheduler.as_ref().unwrap()
    }

    /// Ends the scheduler as a crash would.
    pub(crate) async fn kill_scheduler(&mut self) {
        self.scheduler.take().unwrap().kill().await;
    }

    /// Ends a part as a crash would, starts it again, and waits until `node-a` takes work.
    pub(crate) async fn recover_from(&mut self, crash: Crash) {
        match crash {
            Crash::OfScheduler => self.crash_scheduler().await,
            Crash::OfLauncher => {
                self.lose("node-a").await;
                self.launch("node-a", &[]);
            }
        }
        self.ready(&["node-a"]).await;
    }

    /// Ends a launcher as a crash would, and waits until the scheduler has lost its node.
    pub(crate) async fn lose(&mut self, name: &str) {
        self.kill_launcher(name).await;
        self.until_node(name, |node| node.status == "LOST").await;
    }

    /// Ends the scheduler as a crash would and starts it again.
    pub(crate) async fn crash_scheduler(&mut self) {
        self.kill_scheduler().await;
        self.start_scheduler().await;
    }

    /// Starts a launcher; of a flag that is given, that counts.
    pub(crate) fn launch(&mut self, name: &str, flags: &[&str]) {
        let command = self.launcher(name, flags);
        self.spawn(name, command);
    }

    /// Starts a launcher whose log is in a file beside its directory.
    pub(crate) fn launch_logged(&mut self, name: &str, flags: &[&str]) {
        let mut command = self.launcher(name, flags);
        let log = std::fs::File::create(self.site.path(&format!("{name}.log"))).unwrap();
        command.stderr(log);
        self.spawn(name, command);
    }

    /// Starts a launcher that also finds the programs in this directory.
    pub(crate) fn launch_beside(&mut self, name: &str, programs: &Path) {
        let mut command = self.launcher(name, &[]);
        let path = std::env::var("PATH").unwrap_or_default();
        command.env("PATH", format!("{}:{path}", programs.display()));
        self.spawn(name, command);
    }

    fn spawn(&mut self, name: &str, mut command: Command) {
        self.launchers
            .push((name.to_owned(), command.spawn().unwrap()));
    }

    /// The command that runs a launcher.
    pub(crate) fn launcher(&self, name: &str, flags: &[&str]) -> Command {
        let usual = [
            ["--mem", NODE_MEM],
            ["--cpus", "1"],
            ["--cpu-ratio", NODE_VCPUS],
            ["--report-interval", REPORT_EVERY],
            ["--reconnect-cap", "200ms"],
            ["--stop-grace", "2s"],
            ["--lease", "2s"],
        ];
        let usual = usual.iter().filter(|flag| !flags.contains(&flag[0]));
        let mut command = self.site.launcher(self.address, name);
        command.args(usual.flatten()).args(flags);
        command
    }

    /// Ends a launcher as a crash would; what it started is left alone.
    pub(crate) async fn kill_launcher(&mut self, name: &str) {
        let at = self.launchers.iter().position(|(other, _)| other == name);
        let (_, mut child) = self.launchers.remove(at.unwrap());
        within(child.kill()).await.unwrap();
    }

    /// The process of a launcher.
    pub(crate) fn launcher_pid(&self, name: &str) -> u32 {
        let mut launchers = self.launchers.iter();
        let (_, child) = launchers.find(|(other, _)| other == name).unwrap();
        child.id().unwrap()
    }

    /// Sends a launcher a signal.
    pub(crate) fn signal_launcher(&self, name: &str, signal: Signal) {
        let pid = i32::try_from(self.launcher_pid(name)).unwrap();
        kill_process(Pid::from_raw(pid).unwrap(), signal).unwrap();
    }

    /// A session of an operator.
    pub(crate) async fn client(&self) -> Client {
        let config = self.site.client_config(self.address);
        Client::connect(&config).await.unwrap()
    }

    /// `ciaoctl` with these arguments, to be run.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = self.site.ciaoctl(self.address);
        command.args(arguments);
        command
    }

    /// Runs `ciaoctl` with these words.
    pub(crate) async fn ctl(&self, line: &str) -> Ran {
        self.ctl_with(line, &[]).await
    }

    /// Runs `ciaoctl` with these words and then these arguments.
    pub(crate) async fn ctl_with(&self, line: &str, more: &[&str]) -> Ran {
        let mut arguments: Vec<&str> = line.split_ascii_whitespace().collect();
        arguments.extend(more);
        let ran = output(self.command(&arguments)).await;
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        Ran {
            code: ran.status.code(),
            out: text(ran.stdout),
            err: text(ran.stderr),
        }
    }

    /// Runs a shell script with these options of `ciaoctl run`, which must do it; the instance's UUID.
    pub(crate) async fn run(&self, options: &str, script: &str) -> String {
        let line = format!("run --quiet {options} -- /bin/sh -c");
        let ran = self.ctl_with(&line, &[script]).await;
        assert_eq!(ran.code, Some(0), "{ran:?}");
        ran.out.trim().to_owned()
    }

    /// What the scheduler answers now.
    async fn list(&self, what: QueryKind, matching: Option<&str>) -> Listing {
        let mut eyes = self.eyes.lock().await;
        if let Some(client) = eyes.as_mut()
            && let Ok(listing) = client.list(what.clone(), matching).await
        {
            return listing;
        }
        let client = eyes.insert(self.client().await);
        client.list(what, matching).await.unwrap()
    }

    /// One instance; `None` if it is not known.
    pub(crate) async fn instance(&self, id: &str) -> Option<InstanceView> {
        let listed = self.list(QueryKind::Instances, Some(id)).await;
        listed.instances.into_iter().next()
    }

    /// Waits until an instance is so, in the words of `ciaoctl instances`; it, as it then is.
    pub(crate) async fn until(&self, id: &str, state: &str) -> InstanceView {
        let mut last = None;
        let mut look = Look::new();
        loop {
            let listed = self.instance(id).await;
            match &listed {
                Some(view) if state_of(view) == state => return listed.unwrap(),
                other => last.clone_from(other),
            }
            let history = self.history(id).await;
            look.again(|| format!("{id} is not {state}: {last:#?} {history:#?}"))
                .await;
        }
    }

    /// Waits until an instance is known no more.
    pub(crate) async fn until_gone(&self, id: &str) {
        let mut look = Look::new();
        while let Some(view) = self.instance(id).await {
            look.again(|| format!("{view:#?} is still there")).await;
        }
    }

    /// The instances that wait, in order.
    pub(crate) async fn queue(&self) -> Vec<String> {
        let listed = self.list(QueryKind::Queue, None).await;
        let ids = listed.instances.into_iter().map(|it| it.instance_uuid);
        ids.collect()
    }

    /// What became of an instance.
    pub(crate) async fn history(&self, id: &str) -> Vec<HistoryRow> {
        let mut client = self.client().await;
        let listed = client.list(QueryKind::History, Some(id)).await;
        // Of an instance that is not known, or not known again yet, there is an error instead.
        listed.map(|it| it.history).unwrap_or_default()
    }

    /// The same in the words alone.
    pub(crate) async fn states(&self, id: &str) -> Vec<String> {
        let rows = self.history(id).await.into_iter();
        rows.map(|row| row.what).collect()
    }

    /// A node by its host name.
    pub(crate) async fn node(&self, name: &str) -> Option<NodeView> {
        let listed = self.list(QueryKind::Nodes, None).await;
        listed.nodes.into_iter().find(|node| node.hostname == name)
    }

    /// Waits until a node is as it should be.
    pub(crate) async fn until_node(&self, name: &str, is_so: impl Fn(&NodeView) -> bool) {
        let mut look = Look::new();
        loop {
            let node = self.node(name).await;
            if node.as_ref().is_some_and(&is_so) {
                return;
            }
            look.again(|| format!("{name} is not as it should be: {node:#?}"))
                .await;
        }
    }

    /// Waits until all these nodes take work.
    pub(crate) async fn ready(&self, nodes: &[&str]) {
        for name in nodes {
            self.until_node(name, |node| node.status == "READY").await;
        }
    }
}

/// Where an instance is in its life, in the word that `ciaoctl instances` has for it.
pub(crate) fn state_of(view: &InstanceView) -> &str {
    match &*view.life {
        "" => view.state.as_str(),
        life => life,
    }
}
