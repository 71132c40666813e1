//! What really happened, as checks see it: told by the world as it happens, true whatever the peers believe.

use std::collections::BTreeSet;

use proto_frames::Term;
use proto_frames::payload::{ArrayView, PhaseName};

use crate::network::Server;
use crate::work::Amounts;

/// One thing that happened. Instances, machines and controllers by number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Fact {
    /// A controller has put a START of this instance on its connection.
    Sent { instance: u32 },
    /// The scheduler took in a START. `is_unseen`: the instance ran already, or was about to, on a machine of which the
    /// scheduler could not know what runs there. `is_of_batch`: it may wait for others, while its instance goes on as it
    /// was.
    Taken {
        instance: u32,
        is_unseen: bool,
        is_of_batch: bool,
    },
    /// The scheduler took in a DELETE of a controller.
    DeleteTaken { instance: u32 },
    /// The scheduler is to start an array, which it may have or have had.
    ArrayStarted { array: u32 },
    /// The scheduler is to run once more what did not succeed of an array.
    ArrayRerun { array: u32 },
    /// The scheduler is to delete an array.
    ArrayDeleted { array: u32 },
    /// The scheduler said how far an array is.
    ArrayTold { array: u32, view: Box<ArrayView> },
    /// The scheduler gave a START to this machine's launcher.
    Placed { instance: u32, machine: usize },
    /// A START has failed, as the scheduler says or passes on. `is_lost`: the machine it was given to last was out of
    /// the scheduler's sight.
    Failed { instance: u32, is_lost: bool },
    /// The scheduler said of one that waits for others that these will not end as it asks: this is the one it names.
    DependencyFailed { instance: u32, detail: String },
    /// A launcher's StartFailure reached the scheduler that says that the instance is there already.
    Refused { instance: u32 },
    /// A launcher's word that an instance is gone from its machine reached the scheduler.
    Gone { instance: u32, machine: usize },
    /// A launcher's STATS reached the scheduler.
    Listed { machine: usize, instances: Vec<u32> },
    /// A launcher ordered a process, on a machine that was evacuated or not.
    Ordered {
        instance: u32,
        machine: usize,
        is_evacuated: bool,
    },
    /// A process began.
    Began { instance: u32, machine: usize },
    /// A launcher ordered a process again that had ended.
    Respawned { instance: u32, machine: usize },
    /// A process ended, with this code; `by_itself`: no stop had been requested; `is_timed`: an exit file says when;
    /// `is_over_time`: because its time limit was reached.
    Ended {
        instance: u32,
        machine: usize,
        code: i32,
        by_itself: bool,
        is_timed: bool,
        is_over_time: bool,
    },
    /// A launcher dropped all it knew of an instance, which ran or not.
    Forgotten {
        instance: u32,
        machine: usize,
        is_alive: bool,
    },
    /// A frame that told a controller of this was lost, or there was none to be told.
    Unheard { instance: u32 },
    /// The scheduler told the end of an instance on a machine that has this number there; of which, if that can be read.
    Told {
        machine: usize,
        seq: u64,
        instance: Option<u32>,
    },
    /// A controller was let in by the scheduler.
    Connected { controller: usize },
    /// A controller learnt what became of a START, or of an instance.
    Heard {
        controller: usize,
        instance: u32,
        news: News,
    },
    /// The scheduler told that an instance waits: for room or the like, or for others to end.
    Queued { instance: u32, is_after: bool },
    /// An instance that the scheduler manages has come to another state.
    Turned { instance: u32, state: PhaseName },
    /// The scheduler gave room to an instance, to be started or resumed, while others waited: what it asks for; how much
    /// room there was, without what it now holds; and who still waits that may run anywhere.
    Given {
        instance: u32,
        priority: i64,
        asked: Amounts,
        room: Amounts,
        waiting: Vec<Waiting>,
    },
    /// An operator looked at what the scheduler lists; `away`: machines with which no connection stands.
    Looked {
        rows: Vec<Row>,
        nodes: Vec<NodeRow>,
        away: BTreeSet<usize>,
        /// Instances that are on a machine, or on their way to one, and on another as well, or listed elsewhere.
        twice: BTreeSet<u32>,
    },
    /// An operator gave up an instance of a lost node.
    GivenUp { instance: u32 },
    /// The scheduler said that a machine is drained.
    Drained { machine: usize },
    /// The scheduler said how far a drain is: instances in all, those that have left and how many of them had ended, those
    /// on their way, and those that are left.
    DrainCounted {
        total: u32,
        moved: u32,
        ended: u32,
        moving: u32,
        left: u32,
    },
    /// A controller was told what a liar said of an instance that was not its own.
    Fooled { controller: usize, instance: u32 },
    /// A scheduler started: the instances that were on its disk.
    SchedulerStarted { restored: Vec<u32> },
    /// The scheduler crashed: what it had in memory alone is gone.
    SchedulerCrashed { is_durable: bool },
    /// A scheduler has begun to write a frame, under this term; the revision at which the leader's key was made that there
    /// is then.
    Left { term: Term, leader: Option<u64> },
    /// A launcher has a connection with the scheduler of this term.
    Admitted { machine: usize, term: Term },
    /// A frame of the scheduler of this term has reached a launcher.
    Commanded { machine: usize, term: Term },
    /// etcd has carried a write of records out; who has made the leader's key that there is.
    Recorded { by: Server, leads: Option<Server> },
    /// A scheduler has read what the one before has left; `is_whole`: all that was acknowledged, and of what was not all of
    /// a write or nothing.
    TookOver { is_whole: bool },
}

/// An instance as it is listed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) instance: u32,
    /// `None`: it is on no node, or on one that is no machine.
    pub(crate) machine: Option<usize>,
    /// Whether it is said to be lost, or in doubt: its node has not confirmed it.
    pub(crate) is_lost: bool,
    pub(crate) name: String,
}

/// A node as it is listed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NodeRow {
    pub(crate) machine: usize,
    pub(crate) status: String,
    /// How many instances it is said to have.
    pub(crate) instances: i64,
}

/// Who waits for room.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Waiting {
    pub(crate) instance: u32,
    pub(crate) priority: i64,
    pub(crate) asked: Amounts,
}

/// What a controller learns of an instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum News {
    /// A START failed.
    Failed,
    /// A START failed because the instance is there already.
    There,
    /// It runs, or is about to.
    Listed,
    /// It is no longer there.
    Gone,
}
