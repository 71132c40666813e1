//! One of several schedulers behind one name: which of them leads is decided by etcd, and what the leader has to keep is
//! kept there.
//!
//! ```text
//! driver ── the election, its calls and its watch, on a runtime of their own ──▶ Fence, Standing
//! records ── what is written under the term, and read by the next leader
//! store  ── them for the daemon: SharedStore
//! calls  ── what is wanted of etcd, and the election's calls in it
//! keys   ── what is where in etcd
//! maintenance ── the leader compacts etcd, and logs its alarms
//! hand_over ── the leader gives its turn to one that stands by
//! trouble ── what etcd refuses the election, for the log
//! view   ── who leads and who stands by, for operators
//! ```
//!
//! The daemon serves while [`Standing`] is [`Standing::Leader`], refuses everybody while it is a standby, and ends its
//! process once it is over: nothing of a term outlives it.

#[cfg_attr(
    not(feature = "test-support"),
    expect(unreachable_pub, reason = "the simulation sees it with that feature")
)]
mod calls;
mod driver;
mod hand_over;
#[cfg_attr(
    not(feature = "test-support"),
    expect(unreachable_pub, reason = "the simulation sees it with that feature")
)]
mod keys;
mod maintenance;
#[cfg_attr(
    not(feature = "test-support"),
    expect(unreachable_pub, reason = "the simulation sees it with that feature")
)]
mod records;
mod store;
mod trouble;
mod view;

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

pub use ciao_etcd::election::Term;
use ciao_etcd::election::{GIVE_UP_AFTER, Why};
use ciao_etcd::{Client, ConfigError, EtcdConfig};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::AbortHandle;

#[cfg(not(feature = "test-support"))]
use self::calls::Candidate;
use self::driver::Event;
#[cfg(not(feature = "test-support"))]
use self::keys::Keys;
use self::maintenance::Maintenance;
use self::store::EtcdStore;
use crate::net::fence::Fence;
use crate::server::{Schedulers, TakeOver};

#[cfg(feature = "test-support")]
pub use self::calls::{Candidate, EtcdCalls, leader_key};
pub use self::hand_over::LeaderHandOver;
#[cfg(feature = "test-support")]
pub use self::keys::Keys;
#[cfg(feature = "test-support")]
pub use self::records::{Leading, Left, Limits, Records, Written};
pub use self::view::{ClusterView, EtcdMember, Released, new_generation, release, view};

/// How long etcd keeps the key of a leader that it does not hear of, unless the flags say otherwise.
pub const DEFAULT_TTL: Duration = Duration::from_secs(3);

/// The shortest: etcd grants no lease below its own time for an election and a half, 2 s by default.
pub const MIN_TTL: Duration = Duration::from_secs(2);

/// How long one call of the store may take at one member. Longer than those of the election: a transaction that is only
/// slow is of use.
const STORE_CALL: Duration = Duration::from_secs(2);

/// What a scheduler that is one of several is started with.
#[derive(Debug, Clone)]
pub struct ClusterConfig {
    /// The cluster's name.
    pub name: String,
    /// Where etcd is. The deadline is set here.
    pub etcd: EtcdConfig,
    /// See [`DEFAULT_TTL`].
    pub ttl: Duration,
    /// Whether it has etcd forget what was overwritten, while it leads.
    pub is_compacting: bool,
    /// Where this scheduler can be reached, for those whom a standby refuses.
    pub address: String,
}

/// How this scheduler stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Standing {
    /// Another leads, or none.
    Standby,
    /// It leads.
    Leader(Term),
    /// It leads no more, or will not: the process is to end.
    Over(Why),
}

/// This scheduler's part in the cluster.
#[derive(Debug)]
pub struct Cluster {
    config: ClusterConfig,
    keys: Keys,
    fence: Arc<Fence>,
    standing: watch::Receiver<Standing>,
    leader: watch::Receiver<Option<String>>,
    schedulers: Schedulers,
    events: mpsc::UnboundedSender<Event>,
    /// The election.
    driving: AbortHandle,
    runtime: Arc<EtcdRuntime>,
}

/// Where the election runs, so that nothing the daemon does delays it, and calls of the store. It is there for as long as
/// one of both is: a write that waits for etcd while the election ends is refused by that.
#[derive(Debug)]
struct EtcdRuntime(Option<Runtime>);

impl EtcdRuntime {
    fn new() -> io::Result<Self> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(2)
            .thread_name("etcd")
            .enable_all()
            .build()?;
        Ok(Self(Some(runtime)))
    }

    fn get(&self) -> &Runtime {
        self.0.as_ref().expect("it is taken when it is dropped")
    }

    /// Blocks the calling thread, which must be none of a runtime's own.
    fn block_on<T>(&self, future: impl Future<Output = T>) -> T {
        self.get().block_on(future)
    }
}

impl Drop for EtcdRuntime {
    fn drop(&mut self) {
        // In an asynchronous context, too.
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

impl Cluster {
    /// Begins to take part, as a standby.
    ///
    /// # Errors
    /// [`ConfigError`], or the system has no threads for it.
    pub fn join(config: ClusterConfig) -> Result<Self, JoinError> {
        let runtime = EtcdRuntime::new()?;
        let keys = Keys::new(&config.name);
        let fence = Arc::new(Fence::default());
        let (say, standing) = watch::channel(Standing::Standby);
        let (tell, leader) = watch::channel(None);
        let (show, schedulers) = watch::channel(None);
        let (events, incoming) = mpsc::unbounded_channel();
        let mut etcd = config.etcd.clone();
        // A renewal comes every sixth of the TTL: one that is not answered leaves time for the next member.
        etcd.deadline = config.ttl / 10;
        let client = {
            let _on = runtime.get().enter();
            Client::new(etcd)?
        };
        let driver = driver::Driver {
            candidate: Candidate {
                keys: keys.clone(),
                address: config.address.clone(),
                ttl: config.ttl,
            },
            maintenance: Maintenance {
                client: client.clone(),
                keys: keys.clone(),
                cluster: config.name.clone(),
                address: config.address.clone(),
                is_compacting: config.is_compacting,
                show,
            },
            client,
            fence: Arc::clone(&fence),
            say,
            tell,
            events: events.clone(),
        };
        let driving = runtime.get().spawn(driver.run(incoming));
        Ok(Self {
            config,
            keys,
            fence,
            standing,
            leader,
            schedulers,
            events,
            driving: driving.abort_handle(),
            runtime: Arc::new(runtime),
        })
    }

    /// Until when this scheduler may send.
    #[must_use]
    pub fn fence(&self) -> Arc<Fence> {
        Arc::clone(&self.fence)
    }

    /// How it stands.
    #[must_use]
    pub fn standing(&self) -> watch::Receiver<Standing> {
        self.standing.clone()
    }

    /// Where the leader is, as far as that is known.
    #[must_use]
    pub fn leader(&self) -> watch::Receiver<Option<String>> {
        self.leader.clone()
    }

    /// The schedulers behind the name and their etcd, as they were read last: while it leads.
    #[must_use]
    pub fn schedulers(&self) -> Schedulers {
        self.schedulers.clone()
    }

    /// For how long etcd may be silent before a leader steps down: as long as its writes are tried again.
    #[must_use]
    pub fn patience(&self) -> Duration {
        self.config.ttl + GIVE_UP_AFTER
    }

    /// Waits until it leads, or it is over.
    pub async fn turn(&self) -> Standing {
        let mut standing = self.standing();
        let turn = standing.wait_for(|it| *it != Standing::Standby).await;
        turn.map_or(Standing::Over(Why::Requested), |it| it.clone())
    }

    /// Waits until it is over; says why.
    pub async fn over(&self) -> Why {
        let mut standing = self.standing();
        let over = standing
            .wait_for(|it| matches!(it, Standing::Over(_)))
            .await;
        match over.as_deref() {
            Ok(Standing::Over(why)) => *why,
            _ => Why::Requested,
        }
    }

    /// Leads no longer, so that another takes over at once. [`Cluster::over`] ends when etcd knows, or after a second.
    pub fn resign(&self) {
        // A driver that has ended has said so.
        let _ = self.events.send(Event::Resign);
    }

    /// Reads what the scheduler before had acknowledged, for one that leads under this term. Blocks the calling thread,
    /// which must be none of a runtime's own.
    ///
    /// # Errors
    /// etcd does not answer, refuses, or has another leader by now: in words.
    pub fn take_over(&self, term: Term) -> Result<TakeOver, String> {
        let runtime = Arc::clone(&self.runtime);
        let client = self.store_client()?;
        let driver = store::DriverLink {
            events: self.events.clone(),
            standing: self.standing(),
            since: Instant::now(),
        };
        let patience = self.patience();
        let keys = self.keys.clone();
        EtcdStore::take_over((client, runtime), keys, term, (driver, patience))
    }
}

impl Cluster {
    /// How this scheduler, which leads under this term, hands over to another. `drain_deadline`: how long its sessions may take
    /// to end.
    ///
    /// # Errors
    /// As [`Cluster::take_over`].
    pub fn hand_over(
        &self,
        term: Term,
        drain_deadline: Duration,
    ) -> Result<Arc<LeaderHandOver>, String> {
        Ok(Arc::new(LeaderHandOver {
            client: self.store_client()?,
            runtime: Arc::clone(&self.runtime),
            keys: self.keys.clone(),
            address: self.config.address.clone(),
            ttl: self.config.ttl,
            drain_deadline,
            term,
            begun: Notify::new(),
        }))
    }

    /// A client with as much time for each call as the store has.
    fn store_client(&self) -> Result<Client, String> {
        let mut etcd = self.config.etcd.clone();
        etcd.deadline = STORE_CALL;
        let _on = self.runtime.get().enter();
        Client::new(etcd).map_err(|error| error.to_string())
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.fence.set(Duration::ZERO);
        self.driving.abort();
    }
}

/// Why a scheduler takes no part.
#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    /// Addresses or certificates.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// Threads.
    #[error("cannot start the threads for etcd: {0}")]
    Threads(#[from] io::Error),
}
