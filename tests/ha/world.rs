//! Two schedulers, an etcd, and a launcher that knows both.

use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::{Output, Stdio};

use ciao_scheduler::ctl::client::Client;
use ciao_scheduler::net::tls::NATIVE_PROTOCOL;
use parking_lot::Mutex;
use proto_frames::Role;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::process::{Child, Command};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::book::Book;
use crate::client::Http;
use crate::clock::Clock;
use crate::etcd::Etcd;
use crate::gate::Gate;
use crate::look::Look;
use crate::site::{Daemon, Site, output};
use crate::supervisors::end_instances;

/// How long etcd keeps the key of a leader that it does not hear of.
const TTL: &str = "3s";

pub(crate) struct Pair {
    pub(crate) site: Site,
    pub(crate) etcd: Etcd,
    pub(crate) schedulers: Vec<Daemon>,
    /// Between the first scheduler and each member of etcd, where it is asked for.
    pub(crate) gates: Vec<Gate>,
    /// Between the launcher and the first scheduler, likewise.
    pub(crate) door: Option<Gate>,
    pub(crate) settings: Settings,
    /// How many were started.
    started: usize,
    /// Of the nodes, in the order of their names.
    pub(crate) launchers: Vec<Child>,
    /// What clients were told.
    book: Mutex<Book>,
}

/// What is not as usual.
#[derive(Default)]
pub(crate) struct Settings {
    /// `None`: [`TTL`].
    pub(crate) ttl: Option<&'static str>,
    /// Flags with which etcd is reached.
    pub(crate) access: Vec<String>,
    /// Whether there are proxies around the first scheduler.
    pub(crate) is_gated: bool,
    /// How many members of etcd the first scheduler knows; `None`: all.
    pub(crate) knows: Option<usize>,
    /// Nodes besides the usual one.
    pub(crate) more_nodes: usize,
    /// Flags of launchers.
    pub(crate) launching: &'static [&'static str],
    /// Whether each process has a clock of its own, which can be set.
    pub(crate) has_clocks: bool,
}

/// The names of nodes.
pub(crate) const NODES: [&str; 2] = ["node-a", "node-b"];

impl Drop for Pair {
    /// Leaves no workload behind: they outlive their launchers.
    fn drop(&mut self) {
        for launcher in &mut self.launchers {
            let _ = launcher.start_kill();
        }
        for node in NODES {
            end_instances(&self.site.path(node));
        }
    }
}

impl Pair {
    /// The first leads, and has a node.
    pub(crate) async fn start() -> Self {
        Self::start_on(Etcd::start(1, &[]), Settings::default()).await
    }

    /// The same, on this etcd.
    pub(crate) async fn start_on(etcd: Etcd, settings: Settings) -> Self {
        Self::start_at(Site::new(), etcd, settings).await
    }

    /// The same, with files in this directory.
    pub(crate) async fn start_at(site: Site, etcd: Etcd, settings: Settings) -> Self {
        let mut pair = Self::of(site, etcd, settings);
        if pair.settings.is_gated {
            for endpoint in &pair.etcd.endpoints {
                let (_, address) = endpoint.split_once("://").unwrap();
                pair.gates.push(Gate::to(address).await);
            }
        }
        pair.add().await;
        pair.schedulers[0].logged(" serves").await;
        if pair.settings.is_gated {
            pair.door = Some(Gate::to(&pair.address(0).to_string()).await);
        }
        pair.add().await;
        pair.launch();
        pair.until_node().await;
        pair
    }

    fn of(site: Site, etcd: Etcd, settings: Settings) -> Self {
        Self {
            site,
            etcd,
            schedulers: Vec::new(),
            gates: Vec::new(),
            door: None,
            settings,
            started: 0,
            launchers: Vec::new(),
            book: Mutex::default(),
        }
    }

    /// The first has a node, and no etcd.
    pub(crate) async fn alone() -> Self {
        let mut pair = Self::of(Site::new(), Etcd::start(1, &[]), Settings::default());
        pair.start_scheduler(&[], free_address()).await;
        pair.launch();
        pair.until_node().await;
        pair
    }

    /// Starts the scheduler that ran alone once more, at the same address, as the first of the cluster.
    pub(crate) async fn become_one_of_several(&mut self) {
        let address = self.address(0);
        let mut alone = self.schedulers.remove(0);
        alone.terminate();
        assert!(alone.ended().await.success());
        self.started -= 1;
        self.add_at(address).await;
    }

    /// Starts one more scheduler, at this address.
    pub(crate) async fn add_at(&mut self, address: SocketAddr) {
        let mut flags = self.cluster_flags();
        flags.extend(["--cluster-address".to_owned(), address.to_string()]);
        self.start_scheduler(&flags, address).await;
    }

    /// Starts one more scheduler.
    pub(crate) async fn add(&mut self) {
        self.add_at(free_address()).await;
    }

    /// What makes the next scheduler one of the cluster. The first goes by the proxies, where there are some.
    fn cluster_flags(&self) -> Vec<String> {
        let gates = self.gates.iter().map(|it| it.address.to_string());
        let known = self.settings.knows.unwrap_or(self.gates.len());
        let endpoints: Vec<String> = match self.started {
            0 if !self.gates.is_empty() => gates.take(known).collect(),
            _ => self.etcd.endpoints.clone(),
        };
        let ttl = self.settings.ttl.unwrap_or(TTL);
        let flags = [
            "--cluster",
            "ha",
            "--etcd",
            &endpoints.join(","),
            "--etcd-ttl",
            ttl,
        ];
        let flags = flags.map(str::to_owned).into_iter();
        flags.chain(self.settings.access.iter().cloned()).collect()
    }

    /// Starts a scheduler with these flags, and a directory of its own.
    async fn start_scheduler(&mut self, flags: &[String], address: SocketAddr) {
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
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        let flags = [&flags[..], &usual[..], &own[..]].concat();
        let listen = ["--listen", &address.to_string()];
        let flags = [&flags[..], &listen[..]].concat();
        let mut command = self.site.command(&flags);
        if self.settings.has_clocks {
            let clock = self.clock(&format!("scheduler-{}", self.started));
            clock.of(&mut command);
        }
        let mut scheduler = Daemon::start(command).await;
        // Where it is also after it has begun again.
        scheduler.address = address;
        self.schedulers.push(scheduler);
    }

    fn launch(&mut self) {
        for node in NODES.iter().take(1 + self.settings.more_nodes) {
            let launcher = self.launcher(node).spawn().unwrap();
            self.launchers.push(launcher);
        }
    }

    /// The launcher of this node, which knows all schedulers.
    pub(crate) fn launcher(&self, node: &str) -> Command {
        let mut servers: Vec<String> = self
            .schedulers
            .iter()
            .map(|it| it.address.to_string())
            .collect();
        if let Some(door) = &self.door {
            servers[0] = door.address.to_string();
        }
        let mut command = self.site.launcher(self.address(0), node);
        command.args(["--server", &servers.join(",")]);
        let mut options = std::fs::File::options();
        let options = options.create(true).append(true);
        let log = options.open(self.site.path("launcher.log")).unwrap();
        command.arg("--logtostderr").stderr(log);
        command.args(["--mem", "1000", "--cpus", "4", "--report-interval", "100ms"]);
        command.args(["--reconnect-cap", "200ms", "--stop-grace", "2s"]);
        command.args(self.settings.launching);
        if self.settings.has_clocks {
            self.clock(node).of(&mut command);
        }
        command
    }

    /// When the lease of this node ends, as its supervisors read it: ms since the machine was started.
    pub(crate) fn lease(&self, node: &str) -> u64 {
        let file = self.site.path(node).join("lease.json");
        let file: serde_json::Value =
            serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
        file["until_ms"].as_u64().unwrap()
    }

    /// The clock of a process, by its name: `scheduler-1`, or that of the node.
    pub(crate) fn clock(&self, name: &str) -> Clock {
        Clock::at(self.site.path(&format!("clock-{name}")))
    }

    pub(crate) fn address(&self, scheduler: usize) -> SocketAddr {
        self.schedulers[scheduler].address
    }

    /// Both addresses, as clients are given them.
    fn servers(&self) -> String {
        let addresses = self.schedulers.iter().map(|it| it.address.to_string());
        addresses.collect::<Vec<_>>().join(",")
    }

    /// `ciaoctl` of an operator, who knows both schedulers.
    pub(crate) fn ciaoctl(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ciaoctl"));
        command.args(["--server", &self.servers(), "--timeout", "60s"]);
        command.arg("--cert").arg(self.site.path("controller.pem"));
        command.arg("--cacert").arg(self.site.path("CAcert.pem"));
        command.stdin(Stdio::null()).kill_on_drop(true);
        command
    }

    /// Runs `ciaoctl`, at the one that leads.
    pub(crate) async fn ctl(&self, line: &str, more: &[&str]) -> Output {
        let mut command = self.ciaoctl();
        command.args(line.split_ascii_whitespace()).args(more);
        output(command).await
    }

    /// Runs `ciaoctl`, which must do it; what it prints.
    pub(crate) async fn done(&self, line: &str, more: &[&str]) -> String {
        let ran = self.ctl(line, more).await;
        assert!(ran.status.success(), "{line}: {ran:?}");
        let said = String::from_utf8(ran.stdout).unwrap().trim().to_owned();
        self.book.lock().note(line, more, &said);
        said
    }

    /// Holds what clients were told, and what nodes run, against each other: what was acknowledged is there, and nothing
    /// runs or ran twice. Waits for what may come late, as a node that is not back yet.
    pub(crate) async fn check(&self) {
        let book = self.book.lock().clone();
        book.is_listed(self).await;
        book.ran_once();
        book.runs_once(self).await;
    }

    /// Runs `ciao-scheduler ha`.
    async fn run_ha(&self, line: &str, more: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ciao-scheduler"));
        command.args(["ha", line, "--cluster", "ha"]);
        command.args(["--etcd", &self.etcd.endpoints.join(",")]);
        command
            .args(&self.settings.access)
            .args(more)
            .stdin(Stdio::null())
            .kill_on_drop(true);
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
        self.book.lock().files.insert(path.clone());
        let script = format!("echo $$ >> {}; exec sleep 600", path.display());
        (path, script)
    }

    /// Ends every scheduler in order, and forgets it.
    pub(crate) async fn stop_schedulers(&mut self) {
        for mut scheduler in std::mem::take(&mut self.schedulers) {
            scheduler.terminate();
            assert!(scheduler.ended().await.success());
        }
    }

    /// Waits until the launcher's log has this.
    pub(crate) async fn until_launcher_says(&self, text: &str) -> String {
        let mut look = Look::new();
        loop {
            let log = std::fs::read_to_string(self.site.path("launcher.log")).unwrap();
            if let Some(line) = log.lines().find(|line| line.contains(text)) {
                return line.to_owned();
            }
            look.again(|| format!("no '{text}' in {log}")).await;
        }
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

    /// Waits until each node takes work.
    pub(crate) async fn until_node(&self) {
        let mut look = Look::new();
        loop {
            let listed = self.done("nodes", &[]).await;
            if listed.matches("READY").count() == self.launchers.len() {
                return;
            }
            look.again(|| listed).await;
        }
    }

    /// A client of what a scheduler answers over HTTP.
    pub(crate) async fn http(&self, scheduler: usize) -> Http {
        let line = self.schedulers[scheduler].logged("answers HTTP on ").await;
        Http {
            address: line.rsplit_once(' ').unwrap().1.parse().unwrap(),
            tls: self.site.ca.client(Role::CONTROLLER),
        }
    }

    /// TLS with a scheduler, as a client that names these protocols.
    pub(crate) async fn tls(
        &self,
        scheduler: usize,
        protocols: &[&[u8]],
    ) -> std::io::Result<TlsStream<TcpStream>> {
        let connector = TlsConnector::from(self.site.ca.client(Role::CONTROLLER));
        let tcp = TcpStream::connect(self.address(scheduler)).await.unwrap();
        let name = ServerName::try_from("localhost").unwrap();
        let protocols = protocols.iter().map(|it| it.to_vec()).collect();
        connector.with_alpn(protocols).connect(name, tcp).await
    }

    /// The certificate that a scheduler shows.
    pub(crate) async fn shown(&self, scheduler: usize) -> Vec<u8> {
        let stream = self.tls(scheduler, &[NATIVE_PROTOCOL]).await.unwrap();
        let (_, tls) = stream.get_ref();
        tls.peer_certificates().unwrap()[0].to_vec()
    }

    /// A session of an operator with this scheduler.
    pub(crate) async fn client(&self, scheduler: usize) -> Client {
        let config = self.site.client_config(self.address(scheduler));
        Client::connect(&config).await.unwrap()
    }
}

/// An address with a port that the system gives to nothing by itself.
pub(crate) fn free_address() -> SocketAddr {
    loop {
        let address = SocketAddr::from(([127, 0, 0, 1], fastrand::u16(10_000..32_000)));
        if TcpListener::bind(address).is_ok() {
            return address;
        }
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
