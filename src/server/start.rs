//! Bringing the daemon up and taking it down: everything that can fail is tried before anything is served.
//!
//! [`Server::bind`] tries everything that can fail for a reason an operator can mend: certificates, files, addresses.
//! What it opens is given back when it returns an error, and nothing of it is visible to peers, apart from sockets that
//! listen. [`Server::run`] serves until the caller's shutdown future ends, and then lets queues run empty
//! ([`super::hub`]'s `leave`).
//!
//! The order in `bind` matters: the store is opened last, because that may set it aside, which a daemon
//! that cannot start must not do; the core is made after it, because it is given what was kept.

mod sockets;
#[cfg(test)]
mod tests;

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use proto_frames::payload::ConfigurationVersion;
use proto_frames::{Role, Uuid};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tracing::{info, warn};

pub(super) use self::sockets::open_all;
use super::accept::{Listener, Places, Speaks, Ways, accept};
use super::configuration::again::FileRefused;
use super::configuration::opening;
use super::connection_limit::ConnectionLimit;
use super::credentials::{Credentials, Live, Moment};
use super::gate::Gate;
use super::handshake::Acceptor;
use super::http::{self, HttpDoor};
use super::hub::{Hub, STORE_DEADLINE};
use super::images::{self, ImagesConfig};
use super::limits::{RESERVED_FILES, ServerLimits};
use super::node_file::{NodeFile, NodeFileError};
use super::placement::{self, PlacementConfig, PlacementError};
use super::reload::{ReloadConfig, Reloader};
use super::restore::{restore, unix_ms};
use super::shared::{Begun, TakeOver};
use super::standby::Standby;
use super::state::{StateDir, keep_nodes, read_nodes, remember_last};
use super::strict::Mistake;
use super::tasks::{TaskEnded, Tasks};
use super::{expiry, heartbeat, node_file, schedulers, store};
use crate::logging::{Levels, LevelsError};
use crate::net::tls::{self, TlsError, TrustFiles};
use sched_core::{self, About, KnownNode, Scheduler};

/// Everything a daemon is started with. Filled by the flags of `ciao-scheduler`, by `ciao-scheduler dev`, and by tests.
/// Paths are taken as they are; nothing is read before [`Server::bind`].
#[derive(Debug, Clone)]
pub struct ServerConfig {
    /// PEM file with the scheduler's certificate and key.
    pub cert: PathBuf,
    /// Files with the CAs of all peers and their revocation lists.
    pub trust: TrustFiles,
    /// Addresses to listen on; empty = every interface, port [`DEFAULT_PORT`](super::DEFAULT_PORT).
    pub listen: Vec<SocketAddr>,
    /// Addresses to listen on for HTTP; empty = the HTTP door is shut.
    pub http: Vec<SocketAddr>,
    /// PEM file with the certificate and key that the HTTP door presents; `None` = those of `cert`.
    pub http_cert: Option<PathBuf>,
    /// How the Placement API is offered, at addresses of its own and at those of the HTTP door; `None` = not at all.
    pub placement: Option<PlacementConfig>,
    /// What is done about a private key that others can read.
    pub key_files: tls::KeyFiles,
    /// Where the cluster configuration is, which must exist; `None` = at [`super::DEFAULT_URI`], if there is one.
    pub configuration_uri: Option<String>,
    /// File with what counts over what nodes report of themselves.
    pub node_file: Option<PathBuf>,
    /// Directory for what survives the process; `None` = nothing does.
    pub state_dir: Option<PathBuf>,
    /// Where images are kept, and how many; `None` = none are.
    pub images: Option<ImagesConfig>,
    /// Whether to print a line a second about the cluster.
    pub heartbeat: bool,
    /// Whether only certificates bound to a UUID are let in.
    pub require_uuid_binding: bool,
    /// Limits of connections and queues.
    pub limits: ServerLimits,
    /// What has files read again while it runs.
    pub reload: ReloadConfig,
    /// Settings of the core; its UUID and expected nodes are filled in at start.
    pub scheduler: sched_core::Config,
}

/// Why a daemon cannot be started. Each names the file or address at fault, because that is what the operator has to
/// change. The program exits with it; nothing has been served.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// Certificate, key or CA.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The certificate is not a scheduler's: no peer would stay connected.
    #[error(
        "{} grants {granted}, not SCHEDULER: launchers and controllers would refuse it; give a scheduler's certificate, as \
         ciao-cert -anchor -role scheduler makes it", path.display()
    )]
    NotAScheduler {
        /// The certificate's file.
        path: PathBuf,
        /// What it grants.
        granted: Role,
    },
    /// An address cannot be listened on.
    #[error("cannot listen on {address}: {source}{}", hint(source))]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The system's reason.
        source: io::Error,
    },
    /// The Placement API cannot be offered.
    #[error(transparent)]
    Placement(#[from] PlacementError),
    /// The state directory cannot be used.
    #[error("cannot use the state directory {}: {source}", path.display())]
    StateDir {
        /// The directory.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// The directory of images cannot be used.
    #[error("cannot use the directory of images (--blob-dir) {}: {source}", path.display())]
    BlobDir {
        /// The directory.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// The cluster configuration cannot be read, or is wrong.
    #[error("cannot use the cluster configuration {uri}: {mistake}")]
    Configuration {
        /// Where the configuration is.
        uri: String,
        /// What is wrong with it.
        mistake: Mistake,
    },
    /// The versions of the cluster configuration that are kept cannot be used.
    #[error(
        "cannot use the cluster configuration that is kept in {}: {why}; move the file away to begin with that of \
         --configuration-uri again", path.display()
    )]
    StoredConfiguration {
        /// The file in the state directory.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// The cluster configuration's file is not taken when it is read again.
    #[error(transparent)]
    ConfigurationFile(#[from] FileRefused),
    /// The node file cannot be used.
    #[error("cannot use the node file {}: {source}", path.display())]
    NodeFile {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: NodeFileError,
    },
    /// The file of log levels cannot be used.
    #[error("cannot use the log levels in {}: {source}", path.display())]
    LogLevels {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: LevelsError,
    },
}

/// What to do about an address that cannot be listened on, where that is known.
fn hint(source: &io::Error) -> &'static str {
    match source.kind() {
        io::ErrorKind::AddrInUse => {
            "; another process listens there: give another port (--listen or --http, with dev --port)"
        }
        io::ErrorKind::PermissionDenied => "; ports below 1024 need a privilege",
        _ => "",
    }
}

/// A daemon that listens and has not begun to serve. Its addresses are known ([`Server::local_addrs`]), so that a
/// caller that asked for port 0 can tell others. Peers that connect already wait in the kernel's backlog.
#[derive(Debug)]
pub struct Server {
    /// The core and all queues.
    hub: Arc<Hub>,
    /// Bound and listening, but no connection is accepted yet.
    listeners: Vec<Listener>,
    /// What SSNTP handshakes need.
    acceptor: Acceptor,
    /// Reads files again.
    reloader: Reloader,
    /// `None` without `--http`.
    http: Option<http::Acceptor>,
    /// `None` where the Placement API is not offered.
    placement: Option<placement::Door>,
    /// `None` without `--state-dir`: then the list of nodes is not kept.
    state_dir: Option<StateDir>,
    /// Whether a heartbeat is printed.
    heartbeat: bool,
}

impl Server {
    /// Loads certificates, opens the state directory and the sockets. Nothing is accepted yet.
    ///
    /// # Errors
    /// [`StartError`]: the first thing that fails.
    pub fn bind(config: ServerConfig) -> Result<Self, StartError> {
        let listeners = |config: &ServerConfig| open_all(config);
        Self::bind_with(config, listeners, None)
    }

    /// The same for one of several schedulers, which leads from now on: with the sockets that it had as a standby, and
    /// with what the one before had acknowledged. A state directory then has the history alone. Blocks the calling thread
    /// for as long as the shared store takes, which must not be one that runs tasks.
    ///
    /// # Errors
    /// [`StartError`]: the first thing that fails.
    pub fn take_over(
        config: ServerConfig,
        standby: Standby,
        found: TakeOver,
    ) -> Result<Self, StartError> {
        let begun = found.begin(config.state_dir.as_deref());
        let begun = begun.map_err(|source| StartError::StateDir {
            path: config.state_dir.clone().unwrap_or_default(),
            source,
        })?;
        Self::bind_with(config, |_| Ok(standby.listeners), Some(begun))
    }

    fn bind_with(
        config: ServerConfig,
        listeners: impl FnOnce(&ServerConfig) -> Result<Vec<Listener>, StartError>,
        found: Option<Begun>,
    ) -> Result<Self, StartError> {
        // Before they are read: what changes from now on is seen.
        let watched = Reloader::look(&config);
        // 1. What it shows of itself and whom it lets in, which everything else needs.
        let credentials = Credentials::load(&config, Moment::Start)?;
        // 2. The state directory: the UUID by which peers know this scheduler across restarts, and the nodes that are
        //    expected back.
        let mut scheduler = config.scheduler.clone();
        let in_state_dir = |source| StartError::StateDir {
            path: config.state_dir.clone().unwrap_or_default(),
            source,
        };
        let state_dir = identify(&config, found.as_ref(), &credentials, &mut scheduler);
        let state_dir = state_dir.map_err(in_state_dir)?;
        // 3. What operators wrote about nodes.
        let nodes = config.node_file.as_deref().map(load_nodes).transpose()?;
        if let Some(nodes) = &nodes {
            scheduler.nodes.clone_from(&nodes.rules);
        }
        // 4. The addresses. From here on a client can connect, and waits in the kernel.
        let listeners = listeners(&config)?;
        let (uuid, limits) = (scheduler.uuid, config.limits.clone());
        // 5. The cluster configuration. A mistake in it is as fatal as one in a certificate.
        let uri = config.configuration_uri.clone();
        let versions = opening::versions(config.state_dir.as_deref(), found.as_ref())?;
        let (configuration, cluster) = opening::open(uri, versions)?;
        scheduler.about = about(&config, &credentials, configuration.view());
        let credentials = Live::new(credentials);
        let acceptor = Acceptor {
            credentials: Arc::clone(&credentials),
            limits: Arc::new(limits.clone()),
            require_binding: config.require_uuid_binding,
        };
        let images = config.images.as_ref().map(open_images).transpose()?;
        // Last of all, because it writes.
        let is_durable = found.is_some() || config.state_dir.is_some();
        let store = match (found, &config.state_dir) {
            (Some(found), history) => {
                let store = found.restore(&mut scheduler, history.as_deref());
                Some(store.map_err(in_state_dir)?.with_history(limits.history))
            }
            (None, Some(directory)) => {
                let store = restore(directory, &mut scheduler).map_err(in_state_dir)?;
                Some(store.with_history(limits.history))
            }
            (None, None) => None,
        };
        log_restart_state(&scheduler, is_durable);
        let now = Instant::now();
        scheduler.start_unix_ms = unix_ms();
        // The core reads no clock: it is given this moment, and later one for each input batch.
        let hub = Arc::new(Hub::new(
            Scheduler::new(scheduler, cluster, now),
            uuid,
            limits,
        ));
        hub.reloads.note_start(unix_ms() / 1000);
        keep(&hub, store, configuration, images).map_err(in_state_dir)?;
        if let (Some(nodes), Some(keeper)) = (nodes, hub.configuration()) {
            keeper.set_node_file(&nodes.path, nodes.document);
        }
        let door = || placement::Door::new(&hub, &credentials);
        let placement = config.placement.as_ref().map(|_| door());
        let is_http_offered = !config.http.is_empty();
        let http = is_http_offered.then(|| {
            let door = HttpDoor::open(&hub, &credentials);
            http::Acceptor::new(Arc::clone(&credentials), door, placement.clone())
        });
        let heartbeat = config.heartbeat;
        Ok(Self {
            reloader: Reloader::new(config, &credentials, &hub, watched),
            hub,
            listeners,
            acceptor,
            http,
            placement,
            state_dir,
            heartbeat,
        })
    }

    /// The addresses it listens on, with real ports.
    ///
    /// Ports are those that the system chose where 0 was given.
    ///
    /// # Errors
    /// The system's.
    pub fn local_addrs(&self) -> io::Result<Vec<SocketAddr>> {
        self.addresses(Speaks::Ssntp)
    }

    /// The addresses it listens on for HTTP, with real ports.
    ///
    /// Empty where the HTTP API is not offered.
    ///
    /// # Errors
    /// The system's.
    pub fn http_addrs(&self) -> io::Result<Vec<SocketAddr>> {
        self.addresses(Speaks::Http)
    }

    /// The addresses of its own at which it offers the Placement API, with real ports.
    ///
    /// Those without TLS first, then those with it. Without those of the HTTP door.
    ///
    /// # Errors
    /// The system's.
    pub fn placement_addrs(&self) -> io::Result<Vec<SocketAddr>> {
        let mut addresses = self.addresses(Speaks::Placement)?;
        addresses.extend(self.addresses(Speaks::PlacementTls)?);
        Ok(addresses)
    }

    /// The addresses for HTTP where it is below [`PLACEMENT_PATH`](super::PLACEMENT_PATH), with real ports: all or none.
    ///
    /// # Errors
    /// The system's.
    pub fn mounted_placement_addrs(&self) -> io::Result<Vec<SocketAddr>> {
        match self.placement {
            Some(_) => self.http_addrs(),
            None => Ok(Vec::new()),
        }
    }

    fn addresses(&self, speaks: Speaks) -> io::Result<Vec<SocketAddr>> {
        let listeners = self.listeners.iter().filter(|it| it.speaks == speaks);
        listeners.map(|it| it.socket.local_addr()).collect()
    }

    /// The scheduler's own UUID.
    #[must_use]
    pub fn uuid(&self) -> Uuid {
        self.hub.uuid
    }

    /// Serves until `shutdown` ends; then stops accepting, and gives what is queued some time to leave.
    ///
    /// Consumes the server: a daemon is run once. `shutdown` is a signal in the program and a channel in tests.
    ///
    /// # Errors
    /// [`TaskEnded`]: a part without which the daemon would only look alive. Nothing is told to anybody then, as after
    /// a crash, because what the core knows may not be so; but what it had decided is on disk.
    pub async fn run(self, shutdown: impl Future<Output = ()>) -> Result<(), TaskEnded> {
        let hub = Arc::clone(&self.hub);
        let state_dir = self.state_dir.clone();
        serve(&hub, self.tasks(), state_dir, shutdown).await
    }

    /// Everything that runs as long as the daemon. Also raises the limit of open files, because the number of
    /// connections is derived from it. A task that ends, for whatever reason, ends the daemon ([`Tasks`]).
    fn tasks(self) -> Tasks {
        let limits = &self.hub.limits;
        raise_open_files();
        // Read after the limit was raised.
        let connections = limits.max_connections.unwrap_or_else(connections_allowed);
        let places = Places {
            gate: Gate::new(limits.max_handshakes, limits.handshake_share),
            connections: ConnectionLimit::new(connections),
        };
        let hub = || Arc::clone(&self.hub);
        let mut tasks = Tasks::default();
        // Readers of the event stream are woken by one task instead of by the core's lock holder.
        if let Some(http) = &self.http {
            let pump = Arc::clone(&http.door).pump();
            tasks.spawn("wake readers of events", pump);
        }
        let tokens = self.reloader.follow_tokens();
        if let Some(tokens) = tokens {
            tasks.spawn("read tokens again", tokens);
        }
        tasks.spawn("read files again", self.reloader.run());
        tasks.spawn("hand over", schedulers::hand_over(hub()));
        let ways = Ways {
            frames: self.acceptor,
            http: self.http,
            placement: self.placement,
        };
        let accept = accept(self.listeners, hub(), ways, places);
        tasks.spawn("accept connections", accept);
        let timekeeper = hub();
        tasks.spawn("keep time", async move { timekeeper.keep_time().await });
        // Without a state directory there is nowhere to keep the list.
        if let Some(directory) = self.state_dir {
            tasks.spawn("remember nodes", keep_nodes(hub(), directory));
        }
        let notes = hub();
        let sum_up = async move { notes.notices().sum_up().await };
        tasks.spawn("sum up the log", sum_up);
        tasks.spawn("watch certificates", expiry::watch(hub()));
        if self.heartbeat {
            tasks.spawn("heartbeat", heartbeat::beat(hub()));
        }
        // These two are no tasks of their own: they end if the store's thread or a session has failed in a way that the
        // core cannot be told of.
        tasks.watch("write the store", self.hub.store_failure());
        tasks.watch("end sessions", self.hub.failure());
        tasks
    }
}

/// Runs until the caller wants to stop, or a task ends that must not. Tasks are dropped, which ends accepting, before
/// sessions are finished: nothing new comes in while queues run empty.
async fn serve(
    hub: &Arc<Hub>,
    mut tasks: Tasks,
    state_dir: Option<StateDir>,
    shutdown: impl Future<Output = ()>,
) -> Result<(), TaskEnded> {
    // An end that was not requested: only the store is closed, so that what was decided is on disk. Peers are told
    // nothing, as after a crash.
    tokio::select! {
        () = shutdown => {}
        ended = tasks.first_end() => {
            hub.close_store(STORE_DEADLINE).await;
            hub.notices().finish();
            return Err(ended);
        }
    }
    drop(tasks);
    let nodes = hub.begin_shutdown();
    tokio::join!(hub.leave(), remember_last(state_dir, nodes));
    hub.notices().finish();
    Ok(())
}

/// Starts the threads of the store, the configuration and the images. They need the hub, to report what is on disk; so
/// they begin once it is there.
fn keep(
    hub: &Arc<Hub>,
    store: Option<store::Opened>,
    configuration: opening::Opened,
    images: Option<images::Opened>,
) -> io::Result<()> {
    if let Some(store) = store {
        hub.keep_in(store)?;
    }
    hub.keep_configuration_in(configuration)?;
    hub.answer_about_ends();
    if let Some(images) = images {
        hub.keep_images_in(images)?;
    }
    Ok(())
}

/// Opens the state directory, or what is in its place, and gives the core's settings the UUID by which peers know this
/// scheduler and the nodes that are expected back.
fn identify(
    config: &ServerConfig,
    found: Option<&Begun>,
    credentials: &Credentials,
    scheduler: &mut sched_core::Config,
) -> io::Result<Option<StateDir>> {
    if let Some(Begun { uuid, found }) = found {
        scheduler.uuid = *uuid;
        scheduler.known_nodes = read_nodes(&String::from_utf8_lossy(&found.nodes));
        return Ok(Some(StateDir::shared(Arc::clone(&found.store))));
    }
    let Some(path) = &config.state_dir else {
        // The same certificate, the same scheduler.
        scheduler.uuid = Uuid::new_v5(&Uuid::NAMESPACE_OID, &credentials.fingerprint);
        return Ok(None);
    };
    let directory = StateDir::open(path)?;
    scheduler.uuid = directory.own_uuid()?;
    scheduler.known_nodes = directory.nodes();
    Ok(Some(directory))
}

fn open_images(config: &ImagesConfig) -> Result<images::Opened, StartError> {
    images::Opened::open(config).map_err(|source| StartError::BlobDir {
        path: config.directory.clone(),
        source,
    })
}

/// Two lines in the log that explain what a restart does: how long STARTs may wait, or that all state is gone.
fn log_restart_state(scheduler: &sched_core::Config, has_state_dir: bool) {
    // Nodes that were lost before the restart already are not waited for.
    let is_expected = |node: &&KnownNode| node.lost_since_ms.is_none();
    let count = scheduler.known_nodes.iter().filter(is_expected).count();
    if count > 0 {
        let time = scheduler.recovery_window;
        info!(
            event = "nodes_expected",
            "nodes connected before the restart: {count}; STARTs that fit nowhere wait for them, at most {time:?}"
        );
    }
    if !has_state_dir {
        info!(
            event = "state_in_memory",
            "no --state-dir: state is in memory only, and ends with the process"
        );
    }
}

/// What is said of the process to who asks how it is.
fn about(
    config: &ServerConfig,
    credentials: &Credentials,
    configuration: Option<ConfigurationVersion>,
) -> About {
    let levels = config.reload.levels.as_ref();
    About {
        version: crate::VERSION.to_owned(),
        certificates: credentials.certificates.clone(),
        log_levels: levels.map(Levels::words).unwrap_or_default(),
        configuration,
        reload_refused: None,
    }
}

/// Reads the node file.
///
/// # Errors
/// [`StartError::NodeFile`].
pub(super) fn load_nodes(path: &Path) -> Result<NodeFile, StartError> {
    node_file::load(path).map_err(|source| StartError::NodeFile {
        path: path.to_owned(),
        source,
    })
}

/// Raises the soft limit of open files to the hard one. Best effort: without it, fewer connections are accepted.
pub(super) fn raise_open_files() {
    let limit = getrlimit(Resource::Nofile);
    if let Err(error) = setrlimit(
        Resource::Nofile,
        Rlimit {
            current: limit.maximum,
            maximum: limit.maximum,
        },
    ) {
        warn!(
            event = "file_limit_not_raised",
            "cannot raise the limit of open files: {error}"
        );
    }
}

/// Connections that the limit of open files allows. At least one, however low the limit is.
fn connections_allowed() -> usize {
    let files = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    usize::try_from(files.saturating_sub(RESERVED_FILES))
        .unwrap_or(usize::MAX)
        .max(1)
}
