//! The simulated launchers of a load run: each a connection of its own that says READY, reports once, and notes every
//! START it gets.
//!
//! Nothing is run: a launcher never confirms a START with STATS. Each costs a task, a socket and a small buffer, so
//! that tens of thousands fit one process.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

use parking_lot::Mutex;
use proto_frames::{Frame, Kind, Uuid};
use socket2::SockRef;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::Instant;

use crate::load::labels::Labels;
use crate::load::payloads::{self, RunId};
use crate::load::peer::{Dialer, Peer, PeerError};
use crate::load::record::{Receiver, Recorder};
use crate::load::sources::Spread;

/// Handshakes under way at once.
const PARALLEL_DIALS: usize = 64;

/// Different connect errors that are told apart.
///
/// The rest is counted as `others`.
const MAX_ERRORS: usize = 8;

/// What the simulated launchers are.
///
/// The same for all; what differs between launchers follows from their number.
#[derive(Debug, Clone)]
pub struct LauncherPlan {
    /// How many.
    pub count: usize,
    /// The first so many are cut half way.
    pub victims: usize,
    /// Memory each reports, in MiB.
    pub mem_mib: u64,
    /// The run they belong to.
    pub run: RunId,
    /// From which addresses they connect.
    pub sources: Spread,
    /// What each reports of itself beside its figures.
    pub labels: Labels,
    /// A label that all of them have, if the STARTs of the run require it.
    pub mark: Option<(String, String)>,
}

/// The connected launchers. Dropping it ends them.
///
/// Launchers that could not connect are only in the errors.
#[derive(Debug)]
pub struct Launchers {
    /// One for each connected launcher.
    tasks: JoinSet<()>,
    /// Those of `tasks` that [`Launchers::kill_victims`] ends.
    victims: Vec<AbortHandle>,
    shared: Arc<FleetState>,
}

/// What all launcher tasks know.
///
/// One for the run, behind an `Arc`.
#[derive(Debug)]
struct FleetState {
    plan: LauncherPlan,
    recorder: Arc<Recorder>,
    /// The number of the next launcher to be connected.
    next: AtomicUsize,
    /// Connections that the other side ended.
    cut: AtomicU64,
    /// Text and count, at most [`MAX_ERRORS`] texts and `others`.
    errors: Mutex<BTreeMap<String, u64>>,
    /// STARTs per launcher.
    ///
    /// By number of the launcher.
    received: Vec<AtomicU64>,
    /// Of all that connected, in no particular order.
    nodes: Mutex<Vec<Uuid>>,
}

impl Launchers {
    /// Connects all of them; those that cannot connect by the deadline are counted as errors.
    ///
    /// Returns when each has been tried. Launchers begin to read only then; what the scheduler sends before waits in
    /// the socket.
    pub async fn connect(
        dialer: Dialer,
        plan: LauncherPlan,
        recorder: Arc<Recorder>,
        deadline: Instant,
    ) -> Self {
        let received = (0..plan.count).map(|_| AtomicU64::new(0)).collect();
        let shared = Arc::new(FleetState {
            plan,
            recorder,
            next: AtomicUsize::new(0),
            cut: AtomicU64::new(0),
            errors: Mutex::new(BTreeMap::new()),
            received,
            nodes: Mutex::new(Vec::new()),
        });
        let mut dials = JoinSet::new();
        for _ in 0..PARALLEL_DIALS.min(shared.plan.count) {
            dials.spawn(connect_some(dialer.clone(), shared.clone(), deadline));
        }
        let mut launchers = Self {
            tasks: JoinSet::new(),
            victims: Vec::new(),
            shared,
        };
        while let Some(connected) = dials.join_next().await {
            for (index, peer) in connected.unwrap_or_default() {
                launchers.run(index, peer);
            }
        }
        launchers
    }

    /// How many are connected or were.
    #[must_use]
    pub fn connected(&self) -> usize {
        self.shared.nodes.lock().len()
    }

    /// UUIDs of those that connected.
    #[must_use]
    pub fn nodes(&self) -> Vec<Uuid> {
        self.shared.nodes.lock().clone()
    }

    /// Why others could not connect, and how many each.
    #[must_use]
    pub fn errors(&self) -> BTreeMap<String, u64> {
        self.shared.errors.lock().clone()
    }

    /// Connections that the scheduler ended.
    #[must_use]
    pub fn cut(&self) -> u64 {
        self.shared.cut.load(Relaxed)
    }

    /// The fewest and the most STARTs that one of them received.
    ///
    /// Launchers that did not connect count with 0.
    #[must_use]
    pub fn spread(&self) -> (u64, u64) {
        let counts = || self.shared.received.iter().map(|count| count.load(Relaxed));
        (counts().min().unwrap_or(0), counts().max().unwrap_or(0))
    }

    /// Cuts the connections of the victims, as a crash of theirs would.
    ///
    /// Returns how many there were. A second call cuts none.
    pub fn kill_victims(&mut self) -> usize {
        self.victims.drain(..).map(|victim| victim.abort()).count()
    }

    /// Spawns the task that reads.
    fn run(&mut self, index: usize, peer: Peer) {
        let handle = self.tasks.spawn(listen(index, peer, self.shared.clone()));
        if index < self.shared.plan.victims {
            self.victims.push(handle);
        }
    }
}

/// Connects launchers until none is left to connect.
///
/// Several of these run at the same time and share the counter of numbers.
async fn connect_some(
    dialer: Dialer,
    shared: Arc<FleetState>,
    deadline: Instant,
) -> Vec<(usize, Peer)> {
    let mut connected = Vec::new();
    loop {
        let index = shared.next.fetch_add(1, Relaxed);
        if index >= shared.plan.count {
            return connected;
        }
        let dialled =
            tokio::time::timeout_at(deadline, connect_one(&dialer, &shared.plan, index)).await;
        match dialled.unwrap_or(Err(PeerError::Timeout)) {
            Ok(peer) => {
                shared.nodes.lock().push(peer.uuid);
                connected.push((index, peer));
            }
            Err(e) => {
                let mut errors = shared.errors.lock();
                let full = errors.len() >= MAX_ERRORS;
                let text = e.to_string();
                *errors
                    .entry(if full { "others".into() } else { text })
                    .or_default() += 1;
            }
        }
    }
}

/// READY and one STATS are written together. A victim's socket does not linger: dropping it resets the connection
/// instead of closing it, as a crash of the machine would be seen.
async fn connect_one(
    dialer: &Dialer,
    plan: &LauncherPlan,
    index: usize,
) -> Result<Peer, PeerError> {
    let node = Uuid::new_v4();
    let mut peer = dialer.dial(node, plan.sources.source(index)).await?;
    if index < plan.victims {
        SockRef::from(peer.stream.get_ref().0).set_linger(Some(std::time::Duration::ZERO))?;
    }
    let mut labels = plan.labels.of(index);
    labels.extend(plan.mark.clone());
    let report = payloads::Report {
        node,
        hostname: plan.run.hostname(index),
        mem_mib: plan.mem_mib,
        labels,
    };
    let ready = Frame::new(Kind::READY, node, report.ready());
    let stats = Frame::new(Kind::STATS, node, report.stats());
    peer.send(&[ready, stats]).await?;
    Ok(peer)
}

/// Notes every START until the connection ends.
///
/// An end of the connection counts as cut, unless the task is aborted, as victims are.
async fn listen(index: usize, mut peer: Peer, shared: Arc<FleetState>) {
    let receiver = if index < shared.plan.victims {
        Receiver::Victim
    } else {
        Receiver::Survivor
    };
    let mut last = None;
    while let Ok(frame) = peer.recv().await {
        if frame.kind != Kind::START {
            continue;
        }
        shared.received[index].fetch_add(1, Relaxed);
        match shared.plan.run.seq_in(&frame.payload) {
            Some(seq) => shared.recorder.received(seq, receiver, &mut last),
            None => shared.recorder.foreign(),
        }
    }
    shared.cut.fetch_add(1, Relaxed);
}
