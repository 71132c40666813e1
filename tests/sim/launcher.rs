//! Launchers: the real state machine of each, driven as `launcher::run` drives it, on a simulated machine.

use ciao_scheduler::launcher::agent::{Action, Agent, Command, Input, NodeClock, Workloads};
use proto_frames::{Frame, Message, Term};

use crate::agenda::Event;
use crate::facts::Fact;
use crate::features::Feature;
use crate::machine::AWAY;
use crate::names;
use crate::network::{Link, Peer};
use crate::world::World;

/// A launcher that runs.
#[derive(Debug)]
pub(crate) struct Launcher {
    pub(crate) agent: Agent,
    link: Option<Link>,
    /// It crashes once it has done so many more things.
    pub(crate) crashes_after: Option<u32>,
}

impl Launcher {
    /// Whether its connection stands, as far as it knows.
    pub(crate) fn link(&self) -> Option<Link> {
        self.link
    }
}

impl World {
    /// A launcher starts on a machine and takes up what an earlier one left.
    pub(crate) fn launcher_starts(&mut self, at: usize) {
        // The machine's count goes on while its launcher is away.
        let since = u64::try_from(self.elapsed().as_millis()).unwrap_or(u64::MAX);
        let machine = &mut self.machines[at];
        if machine.launcher.is_some() {
            return;
        }
        if self.settings.has(Feature::OtherLeases) && machine.launchers > 0 {
            machine.draw_times(&mut self.chance, &self.settings);
        }
        machine.launchers += 1;
        let mut agent = Agent::new(machine.agent_settings(&self.settings));
        agent.set_clock(NodeClock {
            at: self.now,
            ms: since,
        });
        let recovered = machine.recover(self.now);
        if let Some(until) = machine.lease_left(self.now) {
            agent.recover_lease(until);
        }
        agent.recover(self.now, machine.maintenance, recovered);
        machine.launcher = Some(Launcher {
            agent,
            link: None,
            crashes_after: None,
        });
        self.note(format_args!("launcher {at} starts"));
        self.launcher_acts(at);
        self.dial(Peer::Machine(at));
    }

    /// A launcher ends at once; its workloads run on.
    pub(crate) fn launcher_crashes(&mut self, at: usize) {
        let Some(launcher) = self.machines[at].launcher.take() else {
            return;
        };
        self.note(format_args!("launcher {at} crashes"));
        let chance = &mut self.chance;
        self.machines[at].cut_short(chance);
        self.launcher_is_gone(at, launcher);
    }

    /// A launcher crashes amidst what it does next.
    pub(crate) fn launcher_crashes_soon(&mut self, at: usize) {
        let after = self.chance.u32(..8);
        if let Some(launcher) = &mut self.machines[at].launcher {
            launcher.crashes_after = Some(after);
        }
    }

    /// A launcher is asked to end.
    pub(crate) fn launcher_is_stopped(&mut self, at: usize, workloads: Workloads) {
        self.note(format_args!("launcher {at} is stopped: {workloads:?}"));
        self.tell_agent(at, Input::Shutdown(workloads));
    }

    /// Hands something to a machine's launcher, if there is one, and does what it wants done.
    pub(crate) fn tell_agent(&mut self, at: usize, input: Input) {
        let now = self.now;
        if let Some(launcher) = &mut self.machines[at].launcher {
            launcher.agent.handle(now, input);
            self.launcher_acts(at);
        }
    }

    /// A frame reaches a launcher.
    pub(crate) fn launcher_receives(&mut self, at: usize, message: Message) {
        match message {
            Message::Connected(connected) => {
                if !self.launcher_admits(at, connected.term) {
                    return;
                }
                self.note(format_args!("launcher {at} is connected"));
                let input = Input::Connected {
                    records_ends: connected.records_ends(),
                    configuration: connected.payload,
                };
                self.tell_agent(at, input);
            }
            Message::Frame(frame) => {
                self.note(format_args!("launcher {at} is told {}", frame.kind));
                if let Some(command) = Command::decode(&frame) {
                    self.tell_agent(at, Input::Command(command));
                }
            }
            Message::Connect(_) => unreachable!("a client's decoder hands out none"),
        }
    }

    /// Whether a launcher takes commands from the scheduler of this term; it dials again if not.
    fn launcher_admits(&mut self, at: usize, term: Option<Term>) -> bool {
        let Err((term, known)) = self.machines[at].terms.admit(term) else {
            let admitted = term.map(|term| Fact::Admitted { machine: at, term });
            self.facts.extend(admitted);
            return true;
        };
        self.note(format_args!(
            "launcher {at} refuses {term}, it knows {known}"
        ));
        if let Some(cluster) = &mut self.cluster {
            cluster.seen.refused += 1;
        }
        let launcher = self.machines[at].launcher.as_mut();
        if let Some(link) = launcher.and_then(|it| it.link.take()) {
            self.let_go(link);
            self.dial(Peer::Machine(at));
        }
        false
    }

    /// A launcher learns that its connection is over, and dials again.
    pub(crate) fn launcher_is_cut_off(&mut self, at: usize, link: Link) {
        let Some(launcher) = &mut self.machines[at].launcher else {
            return;
        };
        if launcher.link == Some(link) {
            launcher.link = None;
            self.tell_agent(at, Input::Disconnected);
            self.dial(Peer::Machine(at));
        }
    }

    /// A launcher opens a connection.
    pub(crate) fn launcher_dials(&mut self, at: usize) {
        let peer = Peer::Machine(at);
        match &self.machines[at].launcher {
            Some(launcher) if launcher.link.is_none() => {}
            _ => return,
        }
        if self.chance.u8(..16) == 0 {
            // It gives up waiting for the answer and dials again, while the first is still on its way.
            let link = self.open(peer);
            self.let_go(link);
        }
        let link = self.open(peer);
        if let Some(launcher) = &mut self.machines[at].launcher {
            launcher.link = Some(link);
        }
    }

    /// Does what a launcher wants done.
    fn launcher_acts(&mut self, at: usize) {
        while let Some(launcher) = &mut self.machines[at].launcher {
            let Some(action) = launcher.agent.poll_action() else {
                break;
            };
            let link = launcher.link;
            match launcher.crashes_after.as_mut() {
                Some(0) => return self.launcher_crashes(at),
                Some(left) => *left -= 1,
                None => {}
            }
            match action {
                Action::Machine(order) => self.perform(at, order),
                Action::Send(message) => {
                    let uuid = names::machine_uuid(at);
                    let frame = Frame::new(message.kind(), uuid, message.payload());
                    if let Some(link) = link {
                        self.send_up(link, frame);
                    }
                }
            }
        }
        if let Some(launcher) = self.machines[at].launcher.take_if(|it| it.agent.is_done()) {
            self.note(format_args!("launcher {at} has ended"));
            self.launcher_is_gone(at, launcher);
        }
    }

    fn launcher_is_gone(&mut self, at: usize, launcher: Launcher) {
        if let Some(link) = launcher.link {
            self.let_go(link);
        }
        let back = self.within_ms(AWAY.as_millis() as u64);
        self.agenda.put(back, Event::LauncherReturns(at));
    }
}
