//! An operator that watches the scheduler from beginning to end, without a network between: what the scheduler itself says
//! of what it decides, at the moment in which it does.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use ciao_scheduler::server::sim_support;
use proto_frames::payload::{
    Delete, DrainProgress, DrainState, Evacuate, EvacuateMode, InstanceStateEvent, InstanceView,
    NodeView, Payload, PhaseName, PlacementState, Query, QueryKind, QueryResult,
    StartFailureReason, Topic, Watch,
};
use proto_frames::{Frame, Kind, Role, Uuid};
use sched_core::{Hello, Input, Message, SessionId};

use crate::controller;
use crate::facts::{Fact, News, NodeRow, Row, Waiting};
use crate::liar;
use crate::names::{self, OBSERVER};
use crate::network::Peer;
use crate::work::Amounts;
use crate::world::World;

/// The operator's connection with the scheduler that runs.
#[derive(Debug, Default)]
pub(crate) struct Observer {
    pub(crate) session: Option<SessionId>,
    /// The answer to its query.
    answer: Option<QueryResult>,
    /// Instances that were given room while others waited, and what they are given it for.
    given: Vec<(u32, i64, usize, For)>,
    is_asking: bool,
    /// When an instance came to another state last.
    pub(crate) turned: Option<Instant>,
    /// Whether the core was handed a second input before its actions on the first were taken.
    pub(crate) has_later_input: bool,
    /// Instances that are suspended.
    suspended: BTreeSet<u32>,
    /// Instances that have room already, on a node or on their way to one: by instance, the machine with the room.
    has_room: BTreeMap<u32, usize>,
}

/// What room is given for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum For {
    Start,
    Resume,
}

impl World {
    /// The operator connects and watches.
    pub(crate) fn observe(&mut self) {
        self.sessions += 1;
        let session = SessionId(self.sessions);
        self.observer.session = Some(session);
        let hello = Hello::native(OBSERVER, Role::OPERATOR);
        self.hand_in(Input::Connect { session, hello });
        let topics = vec![Topic::Nodes, Topic::Instances, Topic::Failures];
        let watch = Watch { topics };
        self.operate(Kind::WATCH, watch.encode());
    }

    /// The operator sends a frame.
    fn operate(&mut self, kind: Kind, payload: bytes::Bytes) {
        let Some(session) = self.observer.session else {
            return;
        };
        let frame = Frame::new(kind, OBSERVER, payload);
        self.hand_in(sim_support::input(session, frame));
    }

    /// The operator has a node forgotten that is lost.
    pub(crate) fn forget_node(&mut self, node: Uuid) {
        self.note(format_args!("{node} is to be forgotten"));
        let evacuate = Evacuate {
            workload_agent_uuid: node.to_string(),
            mode: EvacuateMode::Forget,
            ..Evacuate::default()
        };
        self.operate(Kind::EVACUATE, evacuate.encode());
    }

    /// The operator looks at what is listed.
    pub(crate) fn look_at_lists(&mut self) {
        if self.core.is_none() {
            return;
        }
        let rows = self.ask(&QueryKind::Instances).instances;
        let nodes = self.ask(&QueryKind::Nodes).nodes;
        // What liars alone list is on no machine and takes no capacity.
        let rows = rows
            .iter()
            .filter(|row| names::liar_of(&row.node_uuid).is_none());
        let rows = rows.filter_map(|row| {
            Some(Row {
                instance: names::instance_of(&row.instance_uuid)?,
                machine: names::machine_of(&row.node_uuid),
                is_lost: matches!(row.state, PlacementState::Lost | PlacementState::InDoubt),
                name: row.name.clone(),
            })
        });
        let nodes = nodes.iter().filter_map(|node| {
            Some(NodeRow {
                machine: names::machine_of(&node.node_uuid)?,
                status: node.status.clone(),
                instances: node.instances,
            })
        });
        let rows: Vec<Row> = rows.collect();
        let away = (0..self.machines.len())
            .filter(|&at| self.network.session_of(Peer::Machine(at)).is_none());
        let is_twice = |instance: &u32| {
            let on_it = self.machines.iter().filter(|it| {
                it.has(*instance)
                    || it.knows(*instance)
                    || self.network.has_start_for(it.number, *instance)
            });
            let on_it = on_it.map(|it| Some(it.number));
            let listed = rows.iter().filter(|row| row.instance == *instance);
            let places: BTreeSet<_> = on_it.chain(listed.map(|row| row.machine)).collect();
            places.len() > 1
        };
        let twice = self.starts.keys().copied().filter(is_twice).collect();
        self.facts.push(Fact::Looked {
            rows,
            nodes: nodes.collect(),
            away: away.collect(),
            twice,
        });
    }

    /// The operator gives up one of the instances that are listed as lost, if there are any.
    pub(crate) fn forget_lost(&mut self, drawn: u64) {
        if self.core.is_none() {
            return;
        }
        let rows = self.ask(&QueryKind::Instances).instances;
        let lost = rows.iter().filter(|row| row.state == PlacementState::Lost);
        let lost: Vec<u32> = lost
            .filter_map(|row| names::instance_of(&row.instance_uuid))
            .collect();
        if lost.is_empty() {
            return;
        }
        let instance = lost[drawn as usize % lost.len()];
        self.note(format_args!("{instance} is given up"));
        let forget = Delete {
            instance_uuid: names::instance_uuid(instance),
            forget: true,
            ..Delete::default()
        };
        self.facts.push(Fact::GivenUp { instance });
        self.operate(Kind::DELETE, forget.encode());
    }

    /// The scheduler says something to the operator.
    pub(crate) fn observed(&mut self, message: Message) {
        match message {
            Message::QueryResult(rows) => self.observer.answer = Some(rows.payload),
            Message::InstanceState(event) => self.turned(&event),
            Message::StartFailure(failure) | Message::StartFailureCopy(failure) => {
                let detail = failure.detail.clone().unwrap_or_default();
                if let Some(instance) = names::instance_of(&failure.instance_uuid)
                    && failure.reason == StartFailureReason::DependencyFailed
                {
                    self.note(format_args!("{instance} is not started: {detail}"));
                    self.facts.push(Fact::DependencyFailed { instance, detail });
                }
            }
            Message::ArrayState(view) => {
                if let Some(array) = names::array_of(&view.array_uuid) {
                    self.note(format_args!("array {array}: {view:?}"));
                    self.facts.push(Fact::ArrayTold { array, view });
                }
            }
            Message::InstanceQueued(event) => {
                if let Some(instance) = names::instance_of(&event.instance_uuid) {
                    self.note(format_args!("{instance} is queued: {}", event.detail));
                    let is_after = is_after_others(&event.detail);
                    self.facts.push(Fact::Queued { instance, is_after });
                }
            }
            Message::CommandFailure(failure) => {
                let instance = names::instance_of(&failure.instance_uuid);
                let (command, reason) = (failure.command.as_str(), failure.reason.as_str());
                let why = &failure.detail;
                self.note(format_args!("{command} of {instance:?}: {reason}: {why}"));
            }
            Message::DrainProgress(progress) => self.drained(&progress),
            Message::Forward(parcel) if !liar::is_of_liar(&sim_support::frame_of(&parcel)) => {
                let frame = sim_support::frame_of(&parcel);
                let machine = names::machine_of(&frame.origin.to_string());
                if let (Some(machine), Some(seq)) = (machine, controller::end_of(&frame)) {
                    let instance = controller::news_of(&frame).map(|(instance, _)| instance);
                    self.facts.push(Fact::Told {
                        machine,
                        seq,
                        instance,
                    });
                }
                if let Some((instance, News::Failed)) = controller::news_of(&frame) {
                    self.see_failure(instance);
                }
            }
            _ => {}
        }
    }

    fn turned(&mut self, event: &InstanceStateEvent) {
        let Some(instance) = names::instance_of(&event.instance_uuid) else {
            return;
        };
        let machine = names::machine_of(&event.node_uuid);
        let (state, why) = (event.state.as_str(), &event.detail);
        let to = names::machine_of(&event.target_node_uuid);
        self.observer.turned = Some(self.now);
        self.note(format_args!(
            "{instance} is {state} on {machine:?} to {to:?}: {why}"
        ));
        let has_room = &mut self.observer.has_room;
        let is_known = match (&event.state, machine, to) {
            (PhaseName::Placing, Some(machine), _) => {
                has_room.insert(instance, machine) == Some(machine)
            }
            // It may turn out that its node was never told to: then it is on its way as before.
            (PhaseName::Stopping, Some(machine), _) => {
                has_room.insert(instance, machine) == Some(machine)
            }
            // The room it goes to is claimed for it when the move begins, and it goes there once it has stopped. Who
            // came to wait meanwhile, of whatever priority, came too late for that room.
            (PhaseName::Migrating | PhaseName::Updated, _, Some(to)) => {
                has_room.insert(instance, to) == Some(to)
            }
            // Where it ends on its node while a START of it is on its way there, its room stays claimed for that START.
            // An instance that has lost its room waits before it is given any while others wait.
            (
                PhaseName::Running
                | PhaseName::Suspending
                | PhaseName::Suspended
                | PhaseName::Resuming
                | PhaseName::Updated,
                Some(machine),
                _,
            ) => has_room.insert(instance, machine) == Some(machine),
            _ => has_room.remove(&instance).is_some(),
        };
        // One that was to be suspended, and was not, has its vcpus still.
        let was_suspended = self.observer.suspended.remove(&instance);
        if event.state == PhaseName::Suspended {
            self.observer.suspended.insert(instance);
        }
        let purpose = match event.state {
            PhaseName::Placing => Some(For::Start).filter(|_| !is_known),
            PhaseName::Resuming => Some(For::Resume).filter(|_| was_suspended),
            _ => None,
        };
        if let (Some(purpose), Some(priority), Some(machine)) = (purpose, event.priority, machine) {
            let given = (instance, priority, machine, purpose);
            self.observer.given.push(given);
        }
        self.facts.push(Fact::Turned {
            instance,
            state: event.state.clone(),
        });
    }

    fn drained(&mut self, progress: &DrainProgress) {
        let Some(machine) = names::machine_of(&progress.node_uuid) else {
            return;
        };
        let state = &progress.state;
        let (moved, total) = (progress.moved, progress.total);
        let (moving, left) = (progress.moving, progress.left);
        self.note(format_args!(
            "drain of {machine}: {}, {moved} of {total} moved, {moving} moving, {left} left: {}",
            state.as_str(),
            progress.detail
        ));
        self.facts.push(Fact::DrainCounted {
            total,
            moved,
            ended: progress.ended,
            moving,
            left,
        });
        if *state == DrainState::Done {
            self.facts.push(Fact::Drained { machine });
        }
    }

    /// Where room was given to somebody: who still waits, and what is left.
    pub(crate) fn look_at_waiting(&mut self) {
        if self.observer.is_asking {
            return;
        }
        let given = std::mem::take(&mut self.observer.given);
        // Where the scheduler itself ended connections, an instance may have begun to wait after the room was given: who
        // waits is known as of the last input alone.
        if std::mem::take(&mut self.observer.has_later_input) || given.is_empty() {
            return;
        }
        let queue = self.ask(&QueryKind::Queue).instances;
        let waiting: Vec<Waiting> = queue.iter().filter_map(|row| self.waiting(row)).collect();
        if waiting.is_empty() {
            return;
        }
        let nodes = self.ask(&QueryKind::Nodes).nodes;
        let held = self.ask(&QueryKind::Instances).instances;
        for (instance, priority, machine, purpose) in given {
            let uuid = names::instance_uuid(instance);
            // A liar's node may have a row of its own, with whatever amounts.
            let is_there = |row: &&InstanceView| names::machine_of(&row.node_uuid) == Some(machine);
            let mut rows = held.iter().filter(|row| row.instance_uuid == uuid);
            let row = rows.find(is_there);
            let node = nodes
                .iter()
                .find(|it| names::machine_of(&it.node_uuid) == Some(machine));
            // On a node that calls itself full victims may have what one asks for and another does not; on one that is
            // cordoned a suspended instance may be resumed, and none that waits may start.
            let node = node.filter(|node| node.status == "READY" && !node.cordoned);
            let (Some(row), Some(node)) = (row, node) else {
                continue;
            };
            let asked = amounts(row);
            let taken = match purpose {
                // The room of its own copy, which is yet to be stopped there, is claimed already.
                For::Start if self.sight[machine].has.contains(&instance) => Amounts::default(),
                For::Start => asked,
                For::Resume => Amounts {
                    vcpus: asked.vcpus,
                    ..Amounts::default()
                },
            };
            self.facts.push(Fact::Given {
                instance,
                priority,
                asked,
                room: free(node).plus(taken),
                waiting: waiting.clone(),
            });
        }
    }

    /// One that waits to be started and may run anywhere: of others only the core can say whether room was theirs.
    pub(crate) fn waiting(&self, row: &InstanceView) -> Option<Waiting> {
        let instance = names::instance_of(&row.instance_uuid)?;
        let is_tried = row.attempts.is_some_and(|attempts| attempts > 0);
        let may_run_anywhere = self.is_without_scheduling(instance) && !is_tried;
        (row.life == PhaseName::Waiting.as_str() && may_run_anywhere).then(|| Waiting {
            instance,
            priority: row.priority.unwrap_or_default(),
            asked: amounts(row),
        })
    }

    /// What the scheduler says of one instance.
    pub(crate) fn ask_for(&mut self, instance: u32) -> Option<InstanceView> {
        self.observer.is_asking = true;
        let query = Query {
            what: QueryKind::Instances,
            matching: Some(names::instance_uuid(instance)),
            ..Query::default()
        };
        self.operate(Kind::QUERY, query.encode());
        let answer = self.observer.answer.take();
        self.observer.is_asking = false;
        answer.and_then(|answer| answer.instances.into_iter().next())
    }

    /// Everything that the scheduler answers to a query, over all pages.
    pub(crate) fn ask(&mut self, what: &QueryKind) -> QueryResult {
        self.observer.is_asking = true;
        let mut all = QueryResult::default();
        let mut query = Query {
            what: what.clone(),
            ..Query::default()
        };
        loop {
            self.operate(Kind::QUERY, query.encode());
            let page = self.observer.answer.take();
            let page = page.expect("a query is answered at once");
            assert_eq!(page.error, None);
            all.nodes.extend(page.nodes);
            all.instances.extend(page.instances);
            all.arrays.extend(page.arrays);
            query.after = page.next;
            if query.after.is_none() {
                break;
            }
        }
        self.observer.is_asking = false;
        all
    }
}

/// Whether what the scheduler says of one that waits is that others are to end before.
pub(crate) fn is_after_others(detail: &str) -> bool {
    detail.starts_with("waits for ") && detail.contains(" to end")
}

/// What an instance asks for, as the scheduler says.
pub(crate) fn amounts(row: &InstanceView) -> Amounts {
    Amounts {
        mem: row.mem_mb,
        vcpus: row.vcpus,
        disk: row.disk_mb,
        gpus: row.resources.values().sum(),
    }
}

/// What a node offers, as the scheduler says.
pub(crate) fn free(row: &NodeView) -> Amounts {
    Amounts {
        mem: row.mem_free_mb,
        vcpus: row.vcpus_free,
        disk: row.disk_free_mb,
        gpus: row.resources_free.values().sum(),
    }
}
