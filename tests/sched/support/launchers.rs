//! Model nodes: what really runs on them and what they use, behind connections that take their time.
//!
//! What a node is told and what it says waits in two queues, in order; the simulation decides when something is taken
//! from them. It knows the truth that the scheduler has to guess at, and nothing of the scheduler.

use std::collections::{BTreeMap, VecDeque};

use proto_frames::Kind;
use proto_frames::payload::StartFailureReason;
use sched_core::{
    InstanceReport, InstanceState, Message, NodeExtras, NodeReport, Resources, SessionId,
};

use crate::support::world::{Size, id, report};

/// The custom resource of these nodes.
pub(crate) const GPU: &str = "gpu";

/// Whose launcher a node runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Make {
    /// This project's: says what its instances asked for and how many STARTs it has seen, and takes what it is given.
    Own,
    /// The original's: says neither, and refuses what it has no room for.
    Original,
}

/// What an instance asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Ask {
    pub(crate) base: Resources,
    pub(crate) gpus: i64,
}

impl Ask {
    pub(crate) fn plus(self, other: Self) -> Self {
        Self {
            base: self.base + other.base,
            gpus: self.gpus + other.gpus,
        }
    }

    pub(crate) fn fits_into(&self, capacity: &Self) -> bool {
        capacity.base.covers(&self.base) && capacity.gpus >= self.gpus
    }
}

/// An instance that runs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Running {
    pub(crate) ask: Ask,
    pub(crate) used_mem: i64,
    pub(crate) used_disk: i64,
}

/// What a node says, in order.
#[derive(Debug)]
pub(crate) enum Report {
    Ready(NodeReport),
    Stats(Listing),
    /// The first report of a connection: both frames arrive as one.
    First(NodeReport, Listing),
    Failed(String, StartFailureReason),
    Gone(Kind, String),
    NotThere(String),
}

#[derive(Debug)]
pub(crate) struct Listing {
    pub(crate) starts_seen: Option<u64>,
    pub(crate) extras: Option<NodeExtras>,
    pub(crate) instances: Vec<InstanceReport>,
}

/// One node.
#[derive(Debug)]
pub(crate) struct Launcher {
    pub(crate) number: u64,
    pub(crate) make: Make,
    pub(crate) total: Size,
    pub(crate) extras: Option<NodeExtras>,
    /// What may be asked for on it in all.
    pub(crate) capacity: Ask,
    /// Memory that the machine itself uses.
    pub(crate) overhead: i64,
    pub(crate) running: BTreeMap<String, Running>,
    pub(crate) session: Option<SessionId>,
    pub(crate) inbox: VecDeque<Message>,
    pub(crate) outbox: VecDeque<Report>,
    starts_seen: u64,
    /// Whether it has reported since its inbox was last empty.
    is_behind: bool,
    /// STARTs refused for want of room.
    pub(crate) full: u64,
}

impl Launcher {
    pub(crate) fn new(number: u64, make: Make, total: Size, capacity: Ask) -> Self {
        Self {
            number,
            make,
            total,
            extras: None,
            capacity,
            overhead: 0,
            running: BTreeMap::new(),
            session: None,
            inbox: VecDeque::new(),
            outbox: VecDeque::new(),
            starts_seen: 0,
            is_behind: false,
            full: 0,
        }
    }

    /// What its instances asked for.
    pub(crate) fn asked(&self) -> Ask {
        let asks = self.running.values().map(|running| running.ask);
        asks.fold(Ask::default(), Ask::plus)
    }

    /// Memory and disk that its instances use.
    pub(crate) fn used(&self) -> (i64, i64) {
        let instances = self.running.values();
        instances.fold((0, 0), |(mem, disk), running| {
            (mem + running.used_mem, disk + running.used_disk)
        })
    }

    /// A connection begins.
    pub(crate) fn attach(&mut self, session: SessionId, available: Size) {
        self.session = Some(session);
        self.starts_seen = 0;
        self.is_behind = false;
        self.inbox.clear();
        self.outbox.clear();
        let first = Report::First(self.figures(available), self.listing());
        self.outbox.push_back(first);
    }

    /// Reports. Of an original launcher no one can tell which STARTs it had come to: a START that it leaves unread while
    /// several of its reports arrive is given up as lost. So it comes to what it is told within two reports, and no more
    /// than one of them is on its way at a time.
    pub(crate) fn report(&mut self, available: Size) {
        if self.make == Make::Original {
            let is_on_its_way =
                |said: &Report| matches!(said, Report::Stats(_) | Report::First(..));
            if self.outbox.iter().any(is_on_its_way) {
                return;
            }
            while self.is_behind && !self.inbox.is_empty() {
                self.take_in(false);
            }
            self.is_behind = !self.inbox.is_empty();
        }
        let ready = Report::Ready(self.figures(available));
        self.outbox.push_back(ready);
        let stats = Report::Stats(self.listing());
        self.outbox.push_back(stats);
    }

    /// Takes in the next thing it was told; a START fails if `fails`.
    pub(crate) fn take_in(&mut self, fails: bool) {
        self.is_behind &= self.inbox.len() > 1;
        match self.inbox.pop_front() {
            Some(Message::Start(start)) => {
                let request = start.request;
                let gpus = request.scheduling.as_deref();
                let gpus = gpus.and_then(|scheduling| scheduling.resources.get(GPU));
                let ask = Ask {
                    base: request.asked,
                    gpus: gpus.copied().unwrap_or(0),
                };
                self.start(request.instance.to_string(), ask, fails);
            }
            Some(Message::Targeted(command)) => self.delete(command.target.instance.to_string()),
            _ => {}
        }
    }

    /// An instance ends by itself.
    pub(crate) fn stop(&mut self, name: &str) {
        if self.running.remove(name).is_some() {
            let gone = Report::Gone(Kind::INSTANCE_STOPPED, name.to_owned());
            self.outbox.push_back(gone);
        }
    }

    fn start(&mut self, name: String, ask: Ask, fails: bool) {
        self.starts_seen += 1;
        let has_room = self.asked().plus(ask).fits_into(&self.capacity);
        let failure = if self.running.contains_key(&name) {
            Some(StartFailureReason::AlreadyRunning)
        } else if self.make == Make::Original && !has_room {
            self.full += 1;
            Some(StartFailureReason::FullComputeNode)
        } else if fails {
            Some(StartFailureReason::LaunchFailure)
        } else {
            None
        };
        match failure {
            Some(reason) => self.outbox.push_back(Report::Failed(name, reason)),
            None => {
                let running = Running {
                    ask,
                    used_mem: 0,
                    used_disk: 0,
                };
                self.running.insert(name, running);
            }
        }
    }

    fn delete(&mut self, name: String) {
        self.outbox.push_back(match self.running.remove(&name) {
            Some(_) => Report::Gone(Kind::INSTANCE_DELETED, name),
            None => Report::NotThere(name),
        });
    }

    fn figures(&self, available: Size) -> NodeReport {
        NodeReport {
            mem_available_mib: available.mem,
            disk_available_mb: available.disk,
            hostname: format!("host-{}", self.number).into(),
            extras: self.extras.clone().map(Box::new),
            ..report(self.total)
        }
    }

    fn listing(&self) -> Listing {
        let is_own = self.make == Make::Own;
        let instance = |(name, running): (&String, &Running)| InstanceReport {
            instance: id(name),
            state: InstanceState::Active,
            mem_used_mib: running.used_mem,
            disk_used_mib: running.used_disk,
            cpu_used_percent: 0,
            requested: is_own.then_some(running.ask.base),
            custom: vec![(GPU.into(), running.ask.gpus)],
            run: None,
            group: None,
        };
        Listing {
            starts_seen: is_own.then_some(self.starts_seen),
            extras: self.extras.clone(),
            instances: self.running.iter().map(instance).collect(),
        }
    }
}
