//! The lifecycle of a managed instance: what an event makes of a state. An event that a phase does not have is refused by
//! the table of instances, which alone changes states.
//!
//! A phase is a state without its data, except for what decides how an instance may go on: a claim that is not on disk
//! yet is not a START on its way, and an instance that is being deleted is not one that is stopped to be placed again.
//!
//! All here is a pure function of state and event: claims, the queue, timers and notifications are the workflows' work,
//! which they do by the [`Effects`] they get back. It is one match over phase and event, in parts by subject (`next`,
//! `on_command`, `on_stop`, `on_move`, `on_loss`), each of which passes on what it does not have. The tests run every event in
//! every phase, and the book's page of states is generated so. To add an event: a variant of [`LifecycleEvent`], an arm
//! here, and a sample in `samples`.

use std::time::Instant;

use super::{
    AfterLoss, AfterStop, Awaits, Before, DemandChange, Effects, LateEffects, LifecycleEvent, Loss,
    Move, Placing, State, SuspendedBy, Transit,
};
use crate::api::ids::{InstanceId, NodeKey};
use crate::api::phase::Phase;

use LifecycleEvent as Event;

impl State {
    /// The phase it belongs to.
    pub(crate) fn phase(&self) -> Phase {
        match self {
            Self::Seeking { .. } => Phase::Seeking,
            Self::Waiting { .. } => Phase::Waiting,
            Self::Placing(Placing { pending_on, .. }) => match pending_on {
                Awaits::Commit => Phase::Claimed,
                Awaits::Victims(..) => Phase::Preempting,
                Awaits::Node { .. } => Phase::Starting,
            },
            Self::Running { .. } => Phase::Running,
            Self::Updating { .. } => Phase::Updating,
            Self::Suspending { .. } => Phase::Suspending,
            Self::Suspended { .. } => Phase::Suspended,
            Self::Resuming { .. } => Phase::Resuming,
            Self::Stopping { then, .. } => match then {
                AfterStop::Wait(_) => Phase::Preempted,
                AfterStop::Again(_) => Phase::Relocating,
                AfterStop::End(_) => Phase::Deleting,
            },
            Self::Migrating { how, .. } => match how {
                Move::Claimed => Phase::MoveClaimed,
                Move::Cold => Phase::MoveStopping,
                Move::Shipped => Phase::Shipping,
            },
            Self::Lost { then, .. } => match then {
                AfterLoss::Restart | AfterLoss::Replace | AfterLoss::Forget => Phase::Lost,
                AfterLoss::Delete => Phase::LostDeleted,
            },
        }
    }
    /// The first state of an instance that was not managed before; `None` if its lifecycle does not begin so.
    pub(super) fn first(event: Event) -> Option<Self> {
        match event {
            Event::Managed => Some(Self::Seeking {
                transit: Transit::default(),
            }),
            Event::Adopted { node, is_suspended } => Some(
                LateEffects::default().settled(node, is_suspended.then_some(SuspendedBy::Command)),
            ),
            Event::Restored(Before::Waited { pinned }) => Some(Self::Waiting {
                pinned,
                waits_with: 0,
            }),
            Event::Restored(Before::Lost(loss)) => Some(loss.state()),
            _ => None,
        }
    }

    /// The state after an event, and what follows for others; `None` where the lifecycle does not have the event in this
    /// phase.
    pub(super) fn on(&self, event: Event) -> Option<(Self, Effects)> {
        let run = event.run();
        let state = self.next(event)?;
        let effects = Effects::of(self, &state, run);
        Some((state, effects))
    }

    /// The state after an event, first of what is on its way to a node.
    fn next(&self, event: Event) -> Option<Self> {
        use Phase::{
            Claimed, Deleting, Lost, Preempted, Preempting, Relocating, Resuming, Running, Seeking,
            Starting, Suspended, Suspending, Updating, Waiting,
        };
        Some(match (self.phase(), event) {
            (
                Waiting | Claimed | Preempting | Starting | Running | Updating | Suspending
                | Suspended | Resuming | Preempted | Relocating | Lost,
                Event::Sought,
            ) => Self::Seeking {
                transit: self.transit(),
            },
            (Seeking, Event::Queued) => Self::Waiting {
                pinned: self.transit().pinned,
                waits_with: 0,
            },
            (Seeking | Waiting, Event::Claimed { node }) => {
                placing(node, Awaits::Commit, self.transit())
            }
            (Seeking | Waiting, Event::Preempts { node, victims, due }) => {
                placing(node, Awaits::Victims(victims, due), self.transit())
            }
            (Preempting, Event::VictimAway(victim)) => self.without_victim(&victim)?,
            (Seeking | Claimed, Event::Given { node }) => self.starting(node, false),
            (Running | Updating | Suspending | Suspended | Resuming, Event::StartedAgain)
            | (Deleting, Event::StartAwaited) => self.starting(self.node()?, self.is_stop_sent()),
            (Seeking | Waiting | Claimed | Preempting | Starting, Event::Listed { node }) => {
                LateEffects::default().settled(node, None)
            }
            (phase, event) => return self.on_command(phase, event),
        })
    }

    /// Commands to launchers that change or suspend it, and what launchers report of them.
    fn on_command(&self, phase: Phase, event: Event) -> Option<Self> {
        use Phase::{Deleting, Resuming, Running, Suspended, Suspending, Updating};
        let node = self.node();
        Some(match (phase, event) {
            (Running, Event::Updated { change, due }) => self.updating(change, due)?,
            (Deleting, Event::UpdateResumed { due }) => {
                let change = Box::new(self.change()?.clone());
                self.updating(change, due)?
            }
            (Deleting, Event::UpdateSettled) => self.stopping(AfterStop::End(None), self.due()?)?,
            // It is suspended already: only the reason changes, and its launcher is sent nothing.
            (Suspended, Event::SuspendAsked { by, .. }) => self.late().settled(node?, Some(by)),
            (Running, Event::SuspendAsked { by, asker, due }) => Self::Suspending {
                node: node?,
                by,
                asker,
                is_stop_sent: self.is_stop_sent(),
                due,
            },
            (Suspending | Running, Event::IsSuspended { by }) => {
                self.late().settled(node?, Some(by))
            }
            (Suspended | Running, Event::ResumeAsked { by, asker, due }) => Self::Resuming {
                node: node?,
                by,
                asker,
                is_stop_sent: self.is_stop_sent(),
                due,
            },
            (Updating, Event::UpdateSettled) | (Resuming | Suspended, Event::Runs) => {
                self.late().settled(node?, None)
            }
            (phase, event) => return self.on_stop(phase, event),
        })
    }

    /// Commands to end it, and commands that came to nothing.
    fn on_stop(&self, phase: Phase, event: Event) -> Option<Self> {
        use Phase::{
            Deleting, Lost, LostDeleted, MoveClaimed, MoveStopping, Preempted, Relocating,
            Resuming, Running, Shipping, Starting, Suspended, Suspending, Updating,
        };
        Some(match (phase, event) {
            (Running | Suspended, Event::Preempted { by, due }) => {
                self.stopping(AfterStop::Wait(by), due)?
            }
            // On a lost node nothing can be stopped now: it is when the node comes back.
            (Lost | LostDeleted, Event::Deleted { .. }) => Loss {
                then: AfterLoss::Delete,
                ..self.as_loss()?
            }
            .state(),
            (
                Starting | Running | Updating | Suspending | Suspended | Resuming | Preempted
                | Relocating | Deleting,
                Event::Deleted { due },
            ) => {
                let change = self.change().cloned().map(Box::new);
                self.stopping(AfterStop::End(change), due)?
            }
            (
                Suspending | Resuming | Preempted | Relocating | Deleting,
                Event::Reverted { suspended },
            ) => self.late().settled(self.node()?, suspended),
            // A move that began may still end the instance on its node, however late.
            (MoveClaimed | MoveStopping | Shipping, Event::Reverted { suspended }) => {
                self.late_on_leaving().settled(self.node()?, suspended)
            }
            (phase, event) => return self.on_move(phase, event),
        })
    }

    /// Moves between nodes.
    fn on_move(&self, phase: Phase, event: Event) -> Option<Self> {
        use Phase::{MoveClaimed, MoveStopping, Running, Shipping, Suspended};
        let target = match *self {
            Self::Migrating { to, .. } => Some(to),
            _ => None,
        };
        Some(match (phase, event) {
            (
                Running | Suspended,
                Event::MovePlanned {
                    to,
                    move_request,
                    due,
                },
            ) => Self::Migrating {
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
            (MoveClaimed, Event::MoveBegun { is_shipped: true }) => {
                self.moving(target?, Move::Shipped)
            }
            (MoveClaimed, Event::MoveBegun { .. }) => self.moving(target?, Move::Cold),
            (MoveStopping, Event::Retargeted { to }) => self.moving(to, Move::Cold),
            (MoveStopping | Shipping, Event::TargetLost { due }) => {
                let move_request = Box::new(self.move_request()?.clone());
                self.stopping(AfterStop::Again(move_request), due)?
            }
            (MoveClaimed | MoveStopping, Event::LeftForTarget) => {
                placing(target?, Awaits::Commit, Transit::default())
            }
            (Shipping, Event::LeftForTarget) => self.starting(target?, false),
            (MoveClaimed | MoveStopping | Shipping, Event::Arrived) => {
                LateEffects::default().settled(target?, None)
            }
            (phase, event) => return self.on_loss(phase, event),
        })
    }

    /// Nodes that are lost and come back.
    fn on_loss(&self, phase: Phase, event: Event) -> Option<Self> {
        use Phase::{
            Deleting, Lost, LostDeleted, MoveClaimed, MoveStopping, Preempted, Relocating,
            Resuming, Running, Shipping, Starting, Suspended, Suspending, Updating,
        };
        Some(match (phase, event) {
            // A DELETE under way outlives the loss: the instance is not to run when the node is back.
            (Deleting, Event::NodeLost(loss)) => self.lost(Loss {
                then: AfterLoss::Delete,
                ..loss
            }),
            (
                Starting | Running | Updating | Suspending | Suspended | Resuming | Preempted
                | Relocating | MoveClaimed | MoveStopping | Shipping,
                Event::NodeLost(loss),
            ) => self.lost(loss),
            (Lost | LostDeleted, Event::LossDeferred { until }) => Loss {
                until,
                ..self.as_loss()?
            }
            .state(),
            (LostDeleted, Event::NodeBack { node, due, .. }) => Self::Stopping {
                node,
                then: AfterStop::End(None),
                late: self.late(),
                due,
            },
            (
                Lost,
                Event::NodeBack {
                    node, suspended, ..
                },
            ) => self.late().settled(node, suspended),
            _ => return None,
        })
    }

    /// Its node is lost.
    fn lost(&self, loss: Loss) -> Self {
        Loss {
            late: self.late_on_leaving(),
            transit: self.transit(),
            ..loss
        }
        .state()
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

    /// The same move at its next stage.
    fn moving(&self, target: NodeKey, how: Move) -> Self {
        let mut moving = self.clone();
        if let Self::Migrating { to, how: so, .. } = &mut moving {
            (*to, *so) = (target, how);
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

/// The state of a START that has a node.
fn placing(node: NodeKey, pending_on: Awaits, transit: Transit) -> State {
    State::Placing(Placing {
        node,
        pending_on,
        transit,
    })
}
