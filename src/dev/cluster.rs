//! The parts of a cluster on one machine: certificates, scheduler, launchers.
//!
//! The same code as in production runs here, with other settings: the scheduler binds to loopback, launchers report
//! every second, have a share of the machine and stop their workloads at the end. Parts end in the order page,
//! launchers, scheduler.

use std::fmt::Write as _;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, bail};
use proto_frames::payload::QueryKind;
use proto_frames::{Role, Uuid};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::DevConfig;
use super::context::Written;
use super::directory::Directory;
use super::several::{self, Several};
use crate::cert::files::{Existing, PRIVATE_MODE, PUBLIC_MODE, write};
use crate::cert::{Anchor, Spec};
use crate::ctl::client::{Client, ClientConfig};
use crate::ctl::contexts::NamedContext;
use crate::ctl::web::{Web, WebConfig, own_address};
use crate::launcher::agent::{Features, Workloads};
use crate::launcher::supervise::Program;
use crate::launcher::{self, MachineConfig, Share};
use crate::net::address::Endpoint;
use crate::net::tls::{self, TrustFiles};

use crate::server::{
    self, DEFAULT_HTTP_PORT, DEFAULT_PORT, ImagesConfig, ReloadConfig, Server, ServerConfig,
    ServerLimits, StartError,
};

/// How long the launchers may take to report for the first time.
///
/// It ends the wait of [`Cluster::wait_until_ready`] with an error that names how many are ready.
const READY_DEADLINE: Duration = Duration::from_secs(30);

/// Pause between two looks at whether they have.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// How long connecting and each answer may take on loopback.
///
/// For clients in this process.
const PATIENCE: Duration = Duration::from_secs(10);

/// Time between two reports: shorter than in production, since people are watching.
const REPORT_INTERVAL: Duration = Duration::from_secs(1);

/// A custom resource that every node has, for trying out what is counted.
const FAKE_RESOURCE: &str = "fake-gpu";
const FAKE_AMOUNT: i64 = 2;

/// A cluster that runs.
///
/// Dropping it without [`Cluster::stop`] aborts its tasks.
#[derive(Debug)]
pub(super) struct Cluster {
    /// Where the scheduler takes connections of peers; of several, each.
    addresses: Vec<SocketAddr>,
    /// Where it serves the HTTP API; of several, the first.
    http: SocketAddr,
    certificates: Certificates,
    /// Absolute. It holds the launchers' state directories by their host names.
    directory: PathBuf,
    nodes: u32,
    /// `true` ends the page and the launchers; dropping it ends the scheduler.
    stop: watch::Sender<bool>,
    launchers: JoinSet<Result<(), launcher::LauncherError>>,
    /// One task, or those that keep several schedulers and their etcd.
    scheduler: JoinSet<()>,
    /// The page for browsers.
    web: JoinSet<()>,
    /// The address of the page. It can be used once; another one comes when it has been used.
    pages: watch::Receiver<String>,
    /// Why a part of it has failed, once one has.
    failure: watch::Receiver<Option<String>>,
}

/// The files made for it.
///
/// All signed by an anchor made for this run.
#[derive(Debug, Clone)]
struct Certificates {
    /// The certificate of the anchor alone.
    ca: PathBuf,
    /// The anchor with its key.
    scheduler: PathBuf,
    /// For `ciaoctl` and the page.
    controller: PathBuf,
    /// For `curl` and the like: it reads only.
    viewer: PathBuf,
    directory: PathBuf,
}

impl Cluster {
    /// Brings everything up and waits until every node takes work.
    ///
    /// The scheduler and the page first, then the launchers. An error drops what is up so far.
    ///
    /// # Errors
    /// A port that is taken, a launcher that ends, or nodes that are not ready in time.
    pub(super) async fn start(config: &DevConfig, directory: &Directory) -> anyhow::Result<Self> {
        let certificates = Certificates::make(directory, config.nodes.get())
            .context("cannot make certificates")?;
        let (stop, stopping) = watch::channel(false);
        let mut scheduler = JoinSet::new();
        let (failed, failure) = watch::channel(None);
        // The launchers leave first, so that they can disconnect properly; dropping the sender ends the scheduler.
        let Several { addresses, http } = match config.schedulers.get() {
            1 => {
                let server = bind(config, &certificates, directory)?;
                serve(server, (stopping.clone(), failed.clone()), &mut scheduler)?
            }
            _ => {
                let files = (&*certificates.scheduler, &*certificates.ca);
                several::start(config, files, directory, &stopping, &mut scheduler)?
            }
        };
        let nodes = config.nodes.get();
        let served = web(http, &certificates).await?;
        let pages = served.urls();
        let mut web = JoinSet::new();
        let mut leaving = stopping.clone();
        web.spawn(served.run(async move { drop(leaving.wait_for(|stop| *stop).await) }));
        let mut cluster = Self {
            addresses,
            http,
            certificates,
            directory: directory.path().to_owned(),
            nodes,
            stop,
            launchers: JoinSet::new(),
            scheduler,
            web,
            pages,
            failure,
        };
        for number in 1..=nodes {
            let config = cluster
                .launcher(number, directory)
                .context("cannot start a launcher")?;
            let mut stopping = stopping.clone();
            let failed = failed.clone();
            cluster.launchers.spawn(async move {
                let stop = async { drop(stopping.wait_for(|stop| *stop).await) };
                let ended = launcher::run(config, stop).await;
                if let Err(error) = &ended {
                    failed.send_replace(Some(format!("launcher {number}: {error}")));
                }
                ended
            });
        }
        cluster.wait_until_ready().await?;
        Ok(cluster)
    }

    /// Number 1 is `node-1`. It runs workloads through this same program as their supervisor.
    fn launcher(&self, number: u32, directory: &Directory) -> anyhow::Result<launcher::Config> {
        let name = node_name(number);
        let identity = tls::load_identity(&self.certificates.node(&name))?;
        let anchors = tls::load_anchors(&self.certificates.ca)?;
        let machine = MachineConfig::Real {
            state_dir: directory.node(&name),
            uuid: identity.peer().bound_uuid,
            share: share(self.nodes),
            cgroup: None,
            images: None,
            supervisor: Program::installed(),
        };
        let tls = tls::client_config(&identity, &anchors)?;
        let mut config = launcher::Config::new(self.endpoints(), tls, Role::AGENT, machine);
        config.hostname = Some(name);
        config.features = features(number);
        config.report_interval = REPORT_INTERVAL;
        config.at_shutdown = Workloads::Stop;
        Ok(config)
    }

    /// Until then a START would be refused for want of nodes.
    async fn wait_until_ready(&mut self) -> anyhow::Result<()> {
        let deadline = Instant::now() + READY_DEADLINE;
        let mut client = self.first_client(deadline).await?;
        loop {
            let nodes = client.list(QueryKind::Nodes, None).await?.nodes;
            let ready = nodes.iter().filter(|node| node.status == "READY").count();
            if ready >= self.nodes as usize {
                return Ok(());
            }
            if let Some(ended) = self.launchers.try_join_next() {
                ended?.context("a launcher has ended")?;
                bail!("a launcher has ended");
            }
            if Instant::now() >= deadline {
                bail!(
                    "{ready} of {} launchers are ready after {READY_DEADLINE:?}; see the logs",
                    self.nodes
                );
            }
            sleep(LOOK_EVERY).await;
        }
    }

    /// Waits until a part of it fails; returns why.
    ///
    /// A launcher that ends with an error counts; the first failure is told.
    pub(super) fn failure(&self) -> impl Future<Output = String> + Send + use<> {
        server::told(self.failure.clone())
    }

    /// A session as operator, with a scheduler that begins to lead by then.
    async fn first_client(&self, deadline: Instant) -> anyhow::Result<Client> {
        loop {
            for address in &self.addresses {
                match self.client_of(*address).await {
                    Ok(client) => return Ok(client),
                    Err(error) if Instant::now() >= deadline || self.addresses.len() == 1 => {
                        return Err(error);
                    }
                    Err(_) => {}
                }
            }
            sleep(LOOK_EVERY).await;
        }
    }

    fn endpoints(&self) -> Vec<Endpoint> {
        self.addresses.iter().map(|it| endpoint(*it)).collect()
    }

    /// As `--server` takes them.
    fn servers(&self) -> String {
        let addresses = self.addresses.iter().map(SocketAddr::to_string);
        addresses.collect::<Vec<_>>().join(",")
    }

    /// A session as operator.
    ///
    /// A new connection for each call.
    pub(super) async fn client(&self) -> anyhow::Result<Client> {
        self.client_of(self.addresses[0]).await
    }

    async fn client_of(&self, address: SocketAddr) -> anyhow::Result<Client> {
        let config = ClientConfig {
            server: address.to_string(),
            server_name: None,
            cert: self.certificates.controller.clone(),
            trust: TrustFiles::without_crls(self.certificates.ca.clone()),
            connect_timeout: PATIENCE,
            answer_timeout: PATIENCE,
            last: tls::LastRead::default(),
        };
        Client::connect(&config)
            .await
            .context("cannot connect to the scheduler just started")
    }

    /// Writes how to reach it as a context of `ciaoctl`.
    ///
    /// The context is removed when the result is dropped.
    pub(super) fn write_context(&self, name: &str) -> anyhow::Result<Written> {
        let context = NamedContext {
            server: Some(self.servers()),
            cert: Some(self.certificates.controller.clone()),
            cacert: Some(self.certificates.ca.clone()),
            ..NamedContext::default()
        };
        Written::new(name, context)
    }

    /// The address of the page, whenever there is another one.
    ///
    /// For `tell_next`.
    pub(super) fn pages(&self) -> watch::Receiver<String> {
        self.pages.clone()
    }

    /// What an instance on a node has written.
    ///
    /// By the host name of the node, which is also the name of its directory.
    pub(super) fn output(&self, hostname: &str, instance: &str) -> PathBuf {
        launcher::output_file(&self.directory.join(hostname), instance)
    }

    /// What people need to know: where everything is and, unless the cluster ends by itself soon (`is_brief`), what to paste
    /// into another terminal.
    pub(super) fn greeting(&self, is_brief: bool) -> String {
        let mut text = String::new();
        let _ = writeln!(
            text,
            "{} on {}, {} launchers, all in {}",
            if self.addresses.len() == 1 {
                "scheduler"
            } else {
                "schedulers"
            },
            self.servers(),
            self.nodes,
            self.directory.display()
        );
        let _ = match self.addresses.len() {
            1 => writeln!(text, "page: {}", *self.pages.borrow()),
            _ => writeln!(
                text,
                "page, while the first leads: {}",
                *self.pages.borrow()
            ),
        };
        if is_brief {
            return text;
        }
        let _ = writeln!(text, "to use it from another terminal:");
        let certificates = &self.certificates;
        let _ = writeln!(text, "  export CIAO_SERVER={}", self.servers());
        let _ = writeln!(text, "  export CIAO_HTTP=https://{}", self.http);
        let _ = writeln!(
            text,
            "  export CIAO_CERT={}",
            certificates.controller.display()
        );
        let _ = writeln!(text, "  export CIAO_CACERT={}", certificates.ca.display());
        let _ = writeln!(text, "  {} nodes", ciaoctl());
        let _ = writeln!(text, "over HTTP:");
        let _ = writeln!(
            text,
            "  curl --cacert {} --cert {} https://{}/v1/nodes",
            certificates.ca.display(),
            certificates.viewer.display(),
            self.http
        );
        text
    }

    /// Ends launchers with everything they run, then the scheduler.
    ///
    /// Waits until each launcher has ended its workloads.
    pub(super) async fn stop(mut self) {
        let _ = self.stop.send(true);
        while self.web.join_next().await.is_some() {}
        while let Some(ended) = self.launchers.join_next().await {
            if let Ok(Err(error)) = ended {
                tracing::warn!(
                    event = "launcher_failed",
                    "a launcher ended with an error: {error}"
                );
            }
        }
        drop(self.stop);
        while self.scheduler.join_next().await.is_some() {}
    }
}

impl Certificates {
    /// One for each node, bound to its UUID, beside those that `ciaoctl` and its `load` take.
    ///
    /// In a directory that was kept, old certificates are replaced; nodes keep their UUIDs, which their state
    /// directories name.
    fn make(cluster: &Directory, nodes: u32) -> anyhow::Result<Self> {
        let directory = cluster.certificates();
        std::fs::create_dir_all(&directory)?;
        let spec = Spec::localhost(Role::SCHEDULER);
        let anchor = Anchor::new(&spec)?;
        let ca = directory.join(spec.ca_file_name());
        let scheduler = directory.join(spec.file_name());
        write(&ca, anchor.ca_pem(), PUBLIC_MODE, Existing::Replace)?;
        write(
            &scheduler,
            anchor.certified().pem(),
            PRIVATE_MODE,
            Existing::Replace,
        )?;
        let sign = |spec: Spec| -> anyhow::Result<PathBuf> {
            let path = directory.join(spec.file_name());
            write(
                &path,
                anchor.sign(&spec)?.pem(),
                PRIVATE_MODE,
                Existing::Replace,
            )?;
            Ok(path)
        };
        sign(Spec::localhost(Role::AGENT))?;
        for name in (1..=nodes).map(node_name) {
            // In a directory that was kept the nodes are those of the last time.
            let uuid = launcher::node_uuid(&cluster.node(&name)).unwrap_or_else(Uuid::new_v4);
            sign(node_spec(&name, uuid))?;
        }
        Ok(Self {
            ca,
            scheduler,
            controller: sign(Spec::localhost(Role::CONTROLLER))?,
            viewer: sign(Spec::localhost(Role::VIEWER))?,
            directory,
        })
    }

    /// The file of a node's own certificate.
    ///
    /// The file name does not depend on the UUID.
    fn node(&self, name: &str) -> PathBuf {
        self.directory
            .join(node_spec(name, Uuid::nil()).file_name())
    }
}

/// The certificate of one node, as `ciao-cert -node` makes it.
///
/// For its own name only, in addition to the addresses of localhost.
fn node_spec(name: &str, uuid: Uuid) -> Spec {
    Spec {
        hosts: vec![name.to_owned()],
        uuid: Some(uuid),
        ..Spec::localhost(Role::AGENT)
    }
}

/// Serves in a task until the sender of the first is dropped; the second is told if it fails.
fn serve(
    server: Server,
    (mut last, failed): (watch::Receiver<bool>, watch::Sender<Option<String>>),
    tasks: &mut JoinSet<()>,
) -> anyhow::Result<Several> {
    let addresses = server.local_addrs()?;
    let http = server.http_addrs()?[0];
    tasks.spawn(async move {
        let stop = async move { while last.changed().await.is_ok() {} };
        // The sender of `failed` is watched by `Cluster::failure`, which ends the program.
        if let Err(error) = server.run(stop).await {
            failed.send_replace(Some(error.to_string()));
        }
    });
    Ok(Several { addresses, http })
}

/// Listens on the port asked for; on the default one or, if that is taken, any.
///
/// `http` falls back to any free port by itself; the port for peers only if none was asked for.
fn bind(
    dev: &DevConfig,
    certificates: &Certificates,
    directory: &Directory,
) -> Result<Server, StartError> {
    let port = dev.port;
    let config = |port, http| ServerConfig {
        cert: certificates.scheduler.clone(),
        trust: TrustFiles::without_crls(certificates.ca.clone()),
        listen: vec![(Ipv4Addr::LOCALHOST, port).into()],
        http: vec![(Ipv4Addr::LOCALHOST, http).into()],
        http_cert: None,
        placement: None,
        key_files: tls::KeyFiles::Strict,
        configuration_uri: dev.configuration_uri.clone(),
        node_file: None,
        state_dir: Some(directory.scheduler()),
        images: Some(ImagesConfig::new(directory.images())),
        heartbeat: false,
        require_uuid_binding: false,
        limits: ServerLimits::default(),
        reload: ReloadConfig::default(),
        scheduler: sched_core::Config::new(Uuid::nil()),
    };
    let (mut frames, mut http) = (port.unwrap_or(DEFAULT_PORT), DEFAULT_HTTP_PORT);
    loop {
        match Server::bind(config(frames, http)) {
            Err(StartError::Listen { address, .. }) if address.port() == http && http != 0 => {
                http = 0;
            }
            Err(StartError::Listen { .. }) if port.is_none() && frames != 0 => frames = 0,
            bound => return bound,
        }
    }
}

/// The page for browsers, which needs no certificate of theirs.
///
/// It presents the controller's certificate to the scheduler.
async fn web(http: SocketAddr, certificates: &Certificates) -> anyhow::Result<Web> {
    let identity = tls::load_identity(&certificates.controller)?;
    let anchors = tls::load_anchors(&certificates.ca)?;
    let config = WebConfig {
        listen: own_address(),
        scheduler: endpoint(http),
        tls: tls::client_config(&identity, &anchors)?.into(),
        connect_timeout: PATIENCE,
    };
    Web::bind(config).await.context("cannot serve the page")
}

/// By address: the certificates name the addresses of localhost.
fn endpoint(address: SocketAddr) -> Endpoint {
    Endpoint {
        host: address.ip().to_string(),
        port: address.port(),
        server_name: None,
    }
}

/// One launcher's part of the machine.
///
/// Rounded down, so that the shares together are not more than the machine has. Disk is not divided.
fn share(nodes: u32) -> Share {
    let part = |whole: u64| i64::try_from(whole / u64::from(nodes)).unwrap_or(i64::MAX);
    let memory = rustix::system::sysinfo();
    let bytes = (memory.totalram as u64).saturating_mul(u64::from(memory.mem_unit));
    let cpus = std::thread::available_parallelism().map_or(1, |cpus| cpus.get() as u64);
    Share {
        mem_mb: Some(part(bytes / (1024 * 1024))),
        // At least one each: with more launchers than processors they share them.
        cpus: Some(part(cpus).max(1)),
        disk_mb: None,
    }
}

/// What a launcher says of itself: something to require, to spread over and to count. None of it is of this machine.
///
/// Odd numbers are in zone `a`, even ones in `b`.
fn features(number: u32) -> Features {
    let zone = if number % 2 == 1 { "a" } else { "b" };
    Features {
        labels: [("zone".to_owned(), zone.to_owned())].into(),
        resources: [(FAKE_RESOURCE.to_owned(), FAKE_AMOUNT)].into(),
        ..Features::default()
    }
}

/// How to call `ciaoctl` from here: the program beside this one, or through cargo in a checkout that has not built it.
fn ciaoctl() -> String {
    let beside = std::env::current_exe()
        .ok()
        .map(|path| path.with_file_name("ciaoctl"));
    match beside {
        Some(path) if path.exists() => path.display().to_string(),
        _ => "cargo run --release --locked --bin ciaoctl --".to_owned(),
    }
}

/// Also the node's host name, its directory and part of its certificate's name.
fn node_name(number: u32) -> String {
    format!("node-{number}")
}

#[cfg(test)]
mod tests {
    use super::features;

    #[test]
    fn the_nodes_are_in_two_zones_and_each_has_something_to_count() {
        let zones = [1, 2, 3].map(|number| features(number).labels["zone"].clone());
        assert_eq!(zones, ["a", "b", "a"]);
        assert_eq!(features(1).resources["fake-gpu"], 2);
    }
}
