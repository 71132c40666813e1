//! Two schedulers, an etcd, and a launcher that knows both.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Output, Stdio};

use ciao_scheduler::ctl::client::Client;
use tokio::process::{Child, Command};

use crate::etcd::Etcd;
use crate::look::Look;
use crate::site::{Daemon, Site, output};
use crate::supervisors::end_instances;

/// How long etcd keeps the key of a leader that it does not hear of.
const TTL: &str = "3s";

pub(crate) struct Pair {
    pub(crate) site: Site,
    pub(crate) etcd: Etcd,
    pub(crate) schedulers: Vec<Daemon>,
    /// How many were started.
    started: usize,
    launcher: Option<Child>,
}

impl Drop for Pair {
    /// Leaves no workload behind: they outlive their launchers.
    fn drop(&mut self) {
        if let Some(launcher) = &mut self.launcher {
            let _ = launcher.start_kill();
        }
        end_instances(&self.site.path("node-a"));
    }
}

impl Pair {
    /// The first leads, and has a node.
    pub(crate) async fn start() -> Self {
        let site = Site::new();
        let etcd = Etcd::start(1, &[]);
        let mut pair = Self {
            site,
            etcd,
            schedulers: Vec::new(),
            started: 0,
            launcher: None,
        };
        pair.add().await;
        pair.schedulers[0].logged(" serves").await;
        pair.add().await;
        pair.launch(&pair.servers());
        pair.until_node().await;
        pair
    }

    /// The first has a node, and no etcd.
    pub(crate) async fn alone() -> Self {
        let mut pair = Self {
            site: Site::new(),
            etcd: Etcd::start(1, &[]),
            schedulers: Vec::new(),
            started: 0,
            launcher: None,
        };
        pair.start_scheduler(&[]).await;
        pair.launch(&pair.servers());
        pair.until_node().await;
        pair
    }

    /// Starts the scheduler that ran alone once more, at the same address, as the first of the cluster.
    pub(crate) async fn become_one_of_several(&mut self) {
        let address = self.address(0).to_string();
        let mut alone = self.schedulers.remove(0);
        alone.terminate();
        assert!(alone.ended().await.success());
        self.started -= 1;
        let endpoints = self.etcd.endpoints.join(",");
        let cluster = ["--cluster", "ha", "--etcd", &endpoints, "--etcd-ttl", TTL];
        let here = ["--listen", &address];
        self.start_scheduler(&[&cluster[..], &here[..]].concat())
            .await;
    }

    /// Starts one more scheduler.
    pub(crate) async fn add(&mut self) {
        let endpoints = self.etcd.endpoints.join(",");
        let flags = ["--cluster", "ha", "--etcd", &endpoints, "--etcd-ttl", TTL];
        self.start_scheduler(&flags).await;
    }

    /// Starts a scheduler with these flags, and a directory of its own.
    async fn start_scheduler(&mut self, flags: &[&str]) {
        let usual = [
            "--in-doubt-time",
            "1s",
            "--settle-time",
            "5s",
            "--http",
            "127.0.0.1:0",
        ];
        self.started += 1;
        let history = self.site.path(&format!("history-{}", self.started));
        let own = ["--state-dir", history.to_str().unwrap()];
        let flags = [flags, &usual[..], &own[..]].concat();
        self.schedulers.push(self.site.start(&flags).await);
    }

    fn launch(&mut self, servers: &str) {
        let mut command = self.site.launcher(self.address(0), "node-a");
        command.args(["--server", servers]);
        command.args(["--mem", "1000", "--cpus", "4", "--report-interval", "100ms"]);
        command.args(["--reconnect-cap", "200ms", "--stop-grace", "2s"]);
        self.launcher = Some(command.spawn().unwrap());
    }

    pub(crate) fn address(&self, scheduler: usize) -> SocketAddr {
        self.schedulers[scheduler].address
    }

    /// Both addresses, as clients are given them.
    fn servers(&self) -> String {
        let addresses = self.schedulers.iter().map(|it| it.address.to_string());
        addresses.collect::<Vec<_>>().join(",")
    }

    /// Runs `ciaoctl`, at whichever leads.
    pub(crate) async fn ctl(&self, line: &str, more: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ciaoctl"));
        command.args(["--server", &self.servers(), "--timeout", "60s"]);
        command.arg("--cert").arg(self.site.path("controller.pem"));
        command.arg("--cacert").arg(self.site.path("CAcert.pem"));
        command.stdin(Stdio::null()).kill_on_drop(true);
        command.args(line.split_ascii_whitespace()).args(more);
        output(command).await
    }

    /// Runs `ciaoctl`, which must do it; what it prints.
    pub(crate) async fn done(&self, line: &str, more: &[&str]) -> String {
        let ran = self.ctl(line, more).await;
        assert!(ran.status.success(), "{line}: {ran:?}");
        String::from_utf8(ran.stdout).unwrap().trim().to_owned()
    }

    /// Runs `ciao-scheduler ha`.
    async fn run_ha(&self, line: &str, more: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ciao-scheduler"));
        command.args(["ha", line, "--cluster", "ha"]);
        command.args(["--etcd", &self.etcd.endpoints.join(",")]);
        command.args(more).stdin(Stdio::null()).kill_on_drop(true);
        output(command).await
    }

    /// The same, which must do it; what it prints.
    pub(crate) async fn ha(&self, line: &str, more: &[&str]) -> String {
        let ran = self.run_ha(line, more).await;
        assert!(ran.status.success(), "{line}: {ran:?}");
        String::from_utf8(ran.stdout).unwrap()
    }

    /// The same, which must not do it; what it says.
    pub(crate) async fn ha_refused(&self, line: &str, more: &[&str]) -> String {
        let ran = self.run_ha(line, more).await;
        assert!(!ran.status.success(), "{line}: {ran:?}");
        String::from_utf8(ran.stderr).unwrap()
    }

    /// Kills the first scheduler, which leads, and waits until the other does.
    pub(crate) async fn fail_over(&mut self) {
        self.schedulers.remove(0).kill().await;
        self.schedulers[0].logged(" serves").await;
    }

    /// A shell script that writes its process number at the end of a file, and stays.
    pub(crate) fn script(&self, file: &str) -> (PathBuf, String) {
        let path = self.site.path(file);
        let script = format!("echo $$ >> {}; exec sleep 600", path.display());
        (path, script)
    }

    /// Waits until a listing has this.
    pub(crate) async fn until_listed(&self, line: &str, text: &str) {
        let mut look = Look::new();
        loop {
            let listed = self.done(line, &[]).await;
            if listed.contains(text) {
                return;
            }
            look.again(|| format!("no {text} in {listed}")).await;
        }
    }

    async fn until_node(&self) {
        self.until_listed("nodes", "READY").await;
    }

    /// A session of an operator with this scheduler.
    pub(crate) async fn client(&self, scheduler: usize) -> Client {
        let config = self.site.client_config(self.address(scheduler));
        Client::connect(&config).await.unwrap()
    }
}

/// Waits until a file is there; its lines.
pub(crate) async fn lines(path: &std::path::Path) -> Vec<String> {
    let mut look = Look::new();
    loop {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        if text.ends_with('\n') {
            return text.lines().map(str::to_owned).collect();
        }
        look.again(|| format!("{} is not there", path.display()))
            .await;
    }
}
