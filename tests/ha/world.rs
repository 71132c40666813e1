//! Two schedulers, an etcd, and a launcher that knows both.

use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::{Output, Stdio};

use ciao_scheduler::ctl::client::Client;
use ciao_scheduler::net::tls::NATIVE_PROTOCOL;
use proto_frames::Role;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::process::{Child, Command};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::client::Http;
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
    launcher: Option<Child>,
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
        Self::start_on(Etcd::start(1, &[]), Settings::default()).await
    }

    /// The same, on this etcd.
    pub(crate) async fn start_on(etcd: Etcd, settings: Settings) -> Self {
        let mut pair = Self::of(etcd, settings);
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

    fn of(etcd: Etcd, settings: Settings) -> Self {
        Self {
            site: Site::new(),
            etcd,
            schedulers: Vec::new(),
            gates: Vec::new(),
            door: None,
            settings,
            started: 0,
            launcher: None,
        }
    }

    /// The first has a node, and no etcd.
    pub(crate) async fn alone() -> Self {
        let mut pair = Self::of(Etcd::start(1, &[]), Settings::default());
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
        let endpoints: Vec<String> = match self.started {
            0 if !self.gates.is_empty() => gates.collect(),
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
        let mut scheduler = self.site.start(&flags).await;
        // Where it is also after it has begun again.
        scheduler.address = address;
        self.schedulers.push(scheduler);
    }

    fn launch(&mut self) {
        let mut servers: Vec<String> = self
            .schedulers
            .iter()
            .map(|it| it.address.to_string())
            .collect();
        if let Some(door) = &self.door {
            servers[0] = door.address.to_string();
        }
        let mut command = self.site.launcher(self.address(0), "node-a");
        command.args(["--server", &servers.join(",")]);
        let log = std::fs::File::create(self.site.path("launcher.log")).unwrap();
        command.arg("--logtostderr").stderr(log);
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
        String::from_utf8(ran.stdout).unwrap().trim().to_owned()
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

    async fn until_node(&self) {
        self.until_listed("nodes", "READY").await;
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
fn free_address() -> SocketAddr {
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
