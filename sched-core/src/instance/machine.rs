//! The state machine of one instance: what an event makes of its state. Workflows hand in events through
//! [`Instances::on`](super::Instances::on); which events a phase has is decided in [`lifecycle`](super::lifecycle), and
//! here is what the next state consists of.
//!
//! Everything here is a pure function of state and event: claims, the queue, timers and notifications are the
//! workflows' work, which they do by the [`Effects`] they get back. The functions form a chain by subject (`on`,
//! `on_command`, `on_move`, `on_loss`), because one match over all events would be too long; each passes on the events
//! it does not have.

use std::collections::BTreeSet;
use std::time::Instant;

use sched_model::{PhaseName, Uuid};

use super::{
    AfterLoss, AfterStop, Awaits, DemandChange, LateEffects, Move, MoveRequest, Placing, State,
    SuspendedBy, Transit,
};
use crate::api::ids::{InstanceId, NodeKey, SessionId};
use crate::api::phase::{EventKind, Phase};

/// Something that concerns an instance and decides what it awaits next, with the data the next state needs. Each has
/// the name of its [`EventKind`], where it is described, and of its row in `lifecycle::TRANSITIONS`, which lists when
/// it happens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum LifecycleEvent {
    /// See [`EventKind::Managed`]; so for all.
    Managed,
    Adopted {
        node: NodeKey,
        is_suspended: bool,
    },
    Restored(Before),
    Sought,
    Queued,
    Claimed {
        node: NodeKey,
    },
    Preempts {
        node: NodeKey,
        victims: BTreeSet<InstanceId>,
        /// When the victims that have not left by then count as staying.
        due: Instant,
    },
    VictimAway(InstanceId),
    Given {
        node: NodeKey,
    },
    Listed {
        node: NodeKey,
    },
    StartedAgain,
    StartAwaited,
    Updated {
        change: Box<DemandChange>,
        due: Instant,
    },
    UpdateResumed {
        due: Instant,
    },
    UpdateSettled,
    SuspendAsked {
        by: SuspendedBy,
        /// Whose command it is, to be notified of a failure; `None` where the scheduler decided it.
        asker: Option<SessionId>,
        due: Instant,
    },
    IsSuspended {
        by: SuspendedBy,
    },
    ResumeAsked {
        by: SuspendedBy,
        asker: Option<SessionId>,
        due: Instant,
    },
    Runs,
    Reverted {
        /// Who had it suspended, if its node last reported it as suspended; `None` if it runs.
        suspended: Option<SuspendedBy>,
    },
    Preempted {
        by: InstanceId,
        due: Instant,
    },
    Deleted {
        due: Instant,
    },
    MovePlanned {
        to: NodeKey,
        move_request: Box<MoveRequest>,
        due: Instant,
    },
    MoveBegun {
        is_shipped: bool,
    },
    Retargeted {
        to: NodeKey,
    },
    TargetLost {
        due: Instant,
    },
    LeftForTarget,
    Arrived,
    NodeLost(Loss),
    LossDeferred {
        until: Instant,
    },
    NodeBack {
        node: NodeKey,
        /// Who had it suspended, if the node lists it so.
        suspended: Option<SuspendedBy>,
        /// When a DELETE there counts as failed.
        due: Instant,
    },
    Ended,
}

/// What an instance was before a restart of the scheduler, by its record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Before {
    /// It waited for room.
    Waited {
        /// The one node that it waited for, if only one would do.
        pinned: Option<Uuid>,
    },
    /// It was on a node or on its way there. It counts as lost with that node until the node reports.
    Lost(Loss),
}

/// The loss of an instance's node: the data of [`State::Lost`], as a value that can be built up and changed in parts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Loss {
    /// The node.
    pub(crate) node: Uuid,
    /// When nothing is expected of the node any more: the fencing deadline where there is one, else a time after which
    /// the instance is given up.
    pub(crate) until: Instant,
    /// What follows once `until` has passed, or the node is back.
    pub(crate) then: AfterLoss,
    /// The node that it was being shipped to: it may have arrived.
    pub(crate) bound_for: Option<Uuid>,
    /// What its launcher was told before.
    pub(crate) late: LateEffects,
    /// What it brings along if it was on its way there.
    pub(crate) transit: Transit,
}

/// What a transition means for others: the workflow that caused it acts on these instead of looking at the states
/// itself.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub(crate) struct Effects {
    /// The state by its name on the wire.
    pub(crate) life_state: PhaseName,
    /// The node it is on, or is to be.
    pub(crate) node: Option<NodeKey>,
    /// Whether it may be in the queue in its new state. If not, the workflow takes it out.
    pub(crate) waits: bool,
    /// Whether it waits now, and original controllers were not notified when it left its node: they are to be now.
    pub(crate) is_stop_unannounced: bool,
}

impl Effects {
    /// The effects of going from one state to the next.
    pub(super) fn of(before: &State, state: &State) -> Self {
        Self {
            is_stop_unannounced: state.is_waiting() && before.transit().is_stop_unannounced,
            life_state: state.life_state(),
            node: state.node(),
            waits: state.waits(),
        }
    }
}

impl LifecycleEvent {
    /// The event without its data, as the table of transitions names it.
    pub(crate) fn kind(&self) -> EventKind {
        match self {
            Self::Managed => EventKind::Managed,
            Self::Adopted { .. } => EventKind::Adopted,
            Self::Restored(_) => EventKind::Restored,
            Self::Sought => EventKind::Sought,
            Self::Queued => EventKind::Queued,
            Self::Claimed { .. } => EventKind::Claimed,
            Self::Preempts { .. } => EventKind::Preempts,
            Self::VictimAway(_) => EventKind::VictimAway,
            Self::Given { .. } => EventKind::Given,
            Self::Listed { .. } => EventKind::Listed,
            Self::StartedAgain => EventKind::StartedAgain,
            Self::StartAwaited => EventKind::StartAwaited,
            Self::Updated { .. } => EventKind::Updated,
            Self::UpdateResumed { .. } => EventKind::UpdateResumed,
            Self::UpdateSettled => EventKind::UpdateSettled,
            Self::SuspendAsked { .. } => EventKind::SuspendAsked,
            Self::IsSuspended { .. } => EventKind::IsSuspended,
            Self::ResumeAsked { .. } => EventKind::ResumeAsked,
            Self::Runs => EventKind::Runs,
            Self::Reverted { .. } => EventKind::Reverted,
            Self::Preempted { .. } => EventKind::Preempted,
            Self::Deleted { .. } => EventKind::Deleted,
            Self::MovePlanned { .. } => EventKind::MovePlanned,
            Self::MoveBegun { .. } => EventKind::MoveBegun,
            Self::Retargeted { .. } => EventKind::Retargeted,
            Self::TargetLost { .. } => EventKind::TargetLost,
            Self::LeftForTarget => EventKind::LeftForTarget,
            Self::Arrived => EventKind::Arrived,
            Self::NodeLost(_) => EventKind::NodeLost,
            Self::LossDeferred { .. } => EventKind::LossDeferred,
            Self::NodeBack { .. } => EventKind::NodeBack,
            Self::Ended => EventKind::Ended,
        }
    }
}

impl State {
    /// The first state of an instance that was not managed before; `None` if its lifecycle does not begin so.
    pub(super) fn first(event: LifecycleEvent) -> Option<Self> {
        match event {
            LifecycleEvent::Managed => Some(Self::Seeking {
                transit: Transit::default(),
            }),
            LifecycleEvent::Adopted { node, is_suspended } => Some(
                LateEffects::default().settled(node, is_suspended.then_some(SuspendedBy::Command)),
            ),
            LifecycleEvent::Restored(Before::Waited { pinned }) => Some(Self::Waiting {
                pinned,
                waits_with: 0,
            }),
            LifecycleEvent::Restored(Before::Lost(loss)) => Some(loss.state()),
            _ => None,
        }
    }

    /// The state after an event; `None` where the lifecycle does not have the event in this phase, or ends with it. The
    /// table is asked first, so the arms below need not look at the phase again; where a state lacks what an arm needs,
    /// the `?` in it refuses the event as well.
    pub(super) fn on(&self, event: LifecycleEvent) -> Option<Self> {
        if self.phase().on(event.kind()).is_empty() {
            return None;
        }
        Some(match event {
            LifecycleEvent::Sought => Self::Seeking {
                transit: self.transit(),
            },
            LifecycleEvent::Queued => Self::Waiting {
                pinned: self.transit().pinned,
                waits_with: 0,
            },
            LifecycleEvent::Claimed { node } => placing(node, Awaits::Commit, self.transit()),
            LifecycleEvent::Preempts { node, victims, due } => {
                placing(node, Awaits::Victims(victims, due), self.transit())
            }
            LifecycleEvent::VictimAway(victim) => self.without_victim(&victim)?,
            LifecycleEvent::Given { node } => self.starting(node, false),
            LifecycleEvent::StartedAgain | LifecycleEvent::StartAwaited => {
                self.starting(self.node()?, self.is_stop_sent())
            }
            LifecycleEvent::Listed { node } => LateEffects::default().settled(node, None),
            commanded => return self.on_command(commanded),
        })
    }

    /// Events of instances on a node: commands, and what launchers report of them.
    fn on_command(&self, event: LifecycleEvent) -> Option<Self> {
        Some(match event {
            LifecycleEvent::Updated { change, due } => self.updating(change, due)?,
            LifecycleEvent::UpdateResumed { due } => {
                let change = Box::new(self.change()?.clone());
                self.updating(change, due)?
            }
            LifecycleEvent::SuspendAsked { by, asker, due } => {
                let (node, is_stop_sent) = (self.node()?, self.is_stop_sent());
                match self {
                    // It is suspended already: only the reason changes, and its launcher is sent nothing.
                    Self::Suspended { .. } => self.late().settled(node, Some(by)),
                    _ => Self::Suspending {
                        node,
                        by,
                        asker,
                        is_stop_sent,
                        due,
                    },
                }
            }
            LifecycleEvent::IsSuspended { by } => self.late().settled(self.node()?, Some(by)),
            LifecycleEvent::ResumeAsked { by, asker, due } => Self::Resuming {
                node: self.node()?,
                by,
                asker,
                is_stop_sent: self.is_stop_sent(),
                due,
            },
            LifecycleEvent::UpdateSettled => match *self {
                Self::Stopping { due, .. } => self.stopping(AfterStop::End(None), due)?,
                _ => self.late().settled(self.node()?, None),
            },
            LifecycleEvent::Runs => self.late().settled(self.node()?, None),
            LifecycleEvent::Reverted { suspended } => {
                let late = match self {
                    // A move that began may still end the instance on its node, however late.
                    Self::Migrating { .. } => self.late_on_leaving(),
                    _ => self.late(),
                };
                late.settled(self.node()?, suspended)
            }
            LifecycleEvent::Preempted { by, due } => self.stopping(AfterStop::Wait(by), due)?,
            // On a lost node nothing can be stopped now: it is when the node comes back.
            LifecycleEvent::Deleted { due } => match self.as_loss() {
                Some(loss) => Loss {
                    then: AfterLoss::Delete,
                    ..loss
                }
                .state(),
                None => {
                    let change = self.change().cloned().map(Box::new);
                    self.stopping(AfterStop::End(change), due)?
                }
            },
            moved => return self.on_move(moved),
        })
    }

    /// Events of instances that move between nodes.
    fn on_move(&self, event: LifecycleEvent) -> Option<Self> {
        Some(match event {
            LifecycleEvent::MovePlanned {
                to,
                move_request,
                due,
            } => Self::Migrating {
                from: self.node()?,
                to,
                how: Move::Claimed,
                move_request,
                late: LateEffects {
                    // A stop from before the move counts no more: the move sends its own, and an end that comes is
                    // expected.
                    is_stop_sent: false,
                    ..self.late()
                },
                due,
            },
            LifecycleEvent::MoveBegun { is_shipped } => self.moving(
                None,
                if is_shipped {
                    Move::Shipped
                } else {
                    Move::Cold
                },
            ),
            LifecycleEvent::Retargeted { to } => self.moving(Some(to), Move::Cold),
            LifecycleEvent::TargetLost { due } => {
                let move_request = Box::new(self.move_request()?.clone());
                self.stopping(AfterStop::Again(move_request), due)?
            }
            LifecycleEvent::LeftForTarget => match *self {
                Self::Migrating {
                    to,
                    how: Move::Shipped,
                    ..
                } => self.starting(to, false),
                Self::Migrating { to, .. } => placing(to, Awaits::Commit, Transit::default()),
                _ => return None,
            },
            LifecycleEvent::Arrived => match *self {
                Self::Migrating { to, .. } => LateEffects::default().settled(to, None),
                _ => return None,
            },
            lost => return self.on_loss(lost),
        })
    }

    /// Events of nodes that are lost and come back.
    fn on_loss(&self, event: LifecycleEvent) -> Option<Self> {
        Some(match event {
            LifecycleEvent::NodeLost(loss) => {
                // A DELETE under way outlives the loss: the instance is not to run when the node is back.
                let then = match self.phase() {
                    Phase::Deleting => AfterLoss::Delete,
                    _ => loss.then,
                };
                let late = self.late_on_leaving();
                Loss {
                    then,
                    late,
                    transit: self.transit(),
                    ..loss
                }
                .state()
            }
            LifecycleEvent::LossDeferred { until } => Loss {
                until,
                ..self.as_loss()?
            }
            .state(),
            LifecycleEvent::NodeBack {
                node,
                suspended,
                due,
            } => match self.phase() {
                Phase::LostDeleted => Self::Stopping {
                    node,
                    then: AfterStop::End(None),
                    late: self.late(),
                    due,
                },
                _ => self.late().settled(node, suspended),
            },
            // Lifecycles begin and end with the others.
            _ => return None,
        })
    }

    /// Its START was given to this node, whose confirmation is awaited.
    fn starting(&self, node: NodeKey, is_stop_sent: bool) -> Self {
        placing(node, Awaits::Node { is_stop_sent }, self.transit())
    }

    /// Commands that its launcher was sent in this and earlier states, and may still carry out although they count as
    /// failed.
    fn late(&self) -> LateEffects {
        LateEffects {
            suspended_by: self.suspended_by().cloned(),
            is_stop_sent: self.is_stop_sent(),
        }
    }

    /// The same for one that was to leave its node, or whose node is given up: a stop that was sent for that may still
    /// end it there, however late its report comes.
    fn late_on_leaving(&self) -> LateEffects {
        let mut late = self.late();
        match self {
            Self::Migrating { how, .. } => late.is_stop_sent = *how != Move::Claimed,
            _ => late.is_stop_sent |= self.is_to_go_on(),
        }
        late
    }

    /// Whether it is being stopped for it to be placed again, and not for good.
    fn is_to_go_on(&self) -> bool {
        matches!(self.phase(), Phase::Preempted | Phase::Relocating)
    }

    /// Its launcher is to change it.
    fn updating(&self, change: Box<DemandChange>, due: Instant) -> Option<Self> {
        Some(Self::Updating {
            node: self.node()?,
            change,
            late: self.late(),
            due,
        })
    }

    /// Its launcher is to stop it.
    fn stopping(&self, then: AfterStop, due: Instant) -> Option<Self> {
        let (node, mut late) = (self.node()?, self.late());
        // Should a DELETE have no effect, its end is not its own either.
        late.is_stop_sent |= matches!(then, AfterStop::End(_)) && self.is_to_go_on();
        Some(Self::Stopping {
            node,
            then,
            late,
            due,
        })
    }

    /// The same move at its next stage, to another target if one is given.
    fn moving(&self, target: Option<NodeKey>, how: Move) -> Self {
        let mut moving = self.clone();
        if let Self::Migrating { to, how: so, .. } = &mut moving {
            (*to, *so) = (target.unwrap_or(*to), how);
        }
        moving
    }

    /// The data of [`State::Lost`]; `None` in any other state.
    fn as_loss(&self) -> Option<Loss> {
        match self {
            Self::Lost {
                node,
                until,
                then,
                bound_for,
                late,
                transit,
            } => Some(Loss {
                node: *node,
                until: *until,
                then: *then,
                bound_for: *bound_for,
                late: late.clone(),
                transit: *transit,
            }),
            _ => None,
        }
    }

    /// The same with one victim less to wait for. After the last one, its claim is put on disk.
    fn without_victim(&self, victim: &InstanceId) -> Option<Self> {
        let Self::Placing(Placing {
            node,
            pending_on: Awaits::Victims(victims, due),
            transit,
        }) = self
        else {
            return None;
        };
        let mut left = victims.clone();
        left.remove(victim);
        Some(if left.is_empty() {
            placing(*node, Awaits::Commit, *transit)
        } else {
            placing(*node, Awaits::Victims(left, *due), *transit)
        })
    }
}

impl LateEffects {
    /// The state of rest on a node as the node reports it: suspended, or running.
    fn settled(self, node: NodeKey, suspended: Option<SuspendedBy>) -> State {
        match suspended {
            Some(by) => State::Suspended {
                node,
                by,
                is_stop_sent: self.is_stop_sent,
            },
            None => State::Running { node, late: self },
        }
    }
}

impl Loss {
    /// That of an instance of which nothing is open: it was not being shipped, and its launcher was told nothing that
    /// may yet take effect.
    pub(crate) fn new(node: Uuid, until: Instant, then: AfterLoss) -> Self {
        Self {
            node,
            until,
            then,
            bound_for: None,
            late: LateEffects::default(),
            transit: Transit::default(),
        }
    }

    /// The state with these data.
    fn state(self) -> State {
        State::Lost {
            node: self.node,
            until: self.until,
            then: self.then,
            bound_for: self.bound_for,
            late: self.late,
            transit: self.transit,
        }
    }
}

/// The state of a START that has a node.
fn placing(node: NodeKey, pending_on: Awaits, transit: Transit) -> State {
    State::Placing(Placing {
        node,
        pending_on,
        transit,
    })
}
