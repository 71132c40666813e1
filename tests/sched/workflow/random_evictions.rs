//! Random STARTs of all priorities on nodes that are too small for them, with launchers that take their time, refuse, are
//! cut off and come back: no node is ever given more than it has, no instance runs twice, and in the end no one has been
//! forgotten. And the same where some are members of groups that are to be apart and a controller suspends, resumes and
//! moves some: no node ever runs too many of a group.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use fastrand::Rng;
use proto_frames::Kind;
use proto_frames::payload::{
    CommandFailureReason, Group, GroupPolicy, LifecycleCommand, PhaseName, StartFailureReason,
};
use sched_core::{
    InstanceReport, LauncherCommand, Message, Resources, SessionId, StartRequest, TargetedCommand,
};

use crate::support::histories::{History, Host, run_histories};
use crate::support::preemption::{frozen, sized};
use crate::support::requests::Asking;
use crate::support::words::group;
use crate::support::world::{Size, World, running};

const MEM: i64 = 1000;
const CPUS: i64 = 8;
/// So many of the three launchers, the first ones, can suspend.
const ABLE: u64 = 2;
const STEPS: usize = 250;
/// What a node can hold after all has come to rest, many times over.
const ROUNDS: usize = 400;
/// Seeds that found a defect once.
const FOUND: [u64; 6] = [334, 369, 711, 1606, 1816, 7698];

/// The same with members.
const MEMBERS_FOUND: [u64; 1] = [28];

/// An instance on a launcher.
struct Guest {
    asked: Resources,
    group: Option<Group>,
    is_suspended: bool,
}

/// A history; with `MEMBERS` most instances are members of groups that are to be apart, and there are commands.
struct Run<const MEMBERS: bool> {
    world: World,
    chance: Rng,
    controller: SessionId,
    hosts: Vec<Host<Guest>>,
    /// Started, and not known to be gone, with their priorities.
    open: BTreeMap<String, i64>,
    /// The groups of those that are members of one.
    groups: BTreeMap<String, Group>,
    /// How far each of them is, as the controller was told.
    lives: BTreeMap<String, PhaseName>,
    /// Those that some launcher could not start: they do not go back to its node.
    refused: BTreeSet<String>,
    /// What was just commanded to resume, which does not depend on who waits.
    commanded: Option<String>,
    count: usize,
}

#[test]
fn whichever_peer_leaves_no_one_is_forgotten_and_no_node_has_too_much() {
    run_histories::<Run<false>>(&FOUND, 25, STEPS);
}

#[test]
fn no_node_runs_more_members_of_a_group_than_are_to_be_in_one_place() {
    run_histories::<Run<true>>(&MEMBERS_FOUND, 40, STEPS);
}

impl<const MEMBERS: bool> History for Run<MEMBERS> {
    fn new(seed: u64) -> Self {
        let (world, controller) = World::with_preemption().with_controller();
        let mut run = Self {
            world,
            chance: Rng::with_seed(seed),
            controller,
            hosts: Vec::new(),
            open: BTreeMap::new(),
            groups: BTreeMap::new(),
            lives: BTreeMap::new(),
            refused: BTreeSet::new(),
            commanded: None,
            count: 0,
        };
        for number in 1..=3 {
            let session = run.connect(number);
            run.hosts.push(Host::new(number, session));
            run.report(run.hosts.len() - 1);
        }
        run
    }

    fn step(&mut self) {
        let host = self.chance.usize(..self.hosts.len());
        match self.chance.u8(..if MEMBERS { 25 } else { 20 }) {
            0..5 => self.start(),
            5..12 => self.work(host),
            12..15 => self.report(host),
            15 => self.end_one(host),
            16 => self.delete_one(),
            17 => self.cut_off(host),
            18 => self
                .world
                .advance(Duration::from_secs(self.chance.u64(..20))),
            19 => self.world.advance(Duration::from_millis(1)),
            _ => self.command(),
        }
        self.listen();
    }

    /// No launcher has more than it can hold, nor runs too many of a group, and nothing runs twice.
    fn check(&self) {
        let mut seen = BTreeSet::new();
        for host in &self.hosts {
            let (mut mem, mut cpus) = (0, 0);
            let mut members: BTreeMap<&str, Vec<&String>> = BTreeMap::new();
            for (name, guest) in &host.has {
                assert!(seen.insert(name), "{name} is on two nodes");
                mem += guest.asked.mem_mib;
                cpus += if guest.is_suspended {
                    0
                } else {
                    guest.asked.vcpus
                };
                if let Some(group) = guest.group.as_ref().filter(|_| !guest.is_suspended) {
                    let members = members.entry(&group.id).or_default();
                    members.push(name);
                    let most = group.max_in_place() as usize;
                    assert!(members.len() <= most, "{members:?} of {group:?}");
                }
            }
            assert!(mem <= MEM && cpus <= CPUS, "{mem} MiB, {cpus} vcpus");
        }
    }

    /// Whatever runs ends, whatever waits has its turn.
    fn come_to_rest(&mut self) {
        for _ in 0..ROUNDS {
            // What is suspended by command goes on by command alone.
            let suspended = |(_, state): &(&String, &PhaseName)| **state == PhaseName::Suspended;
            let suspended: Vec<_> = self.lives.iter().filter(suspended).collect();
            let names: Vec<String> = suspended
                .into_iter()
                .map(|(name, _)| name.clone())
                .collect();
            for name in names.into_iter().filter(|_| MEMBERS) {
                self.resume(name);
            }
            for at in 0..self.hosts.len() {
                while !self.hosts[at].told.is_empty() {
                    self.work(at);
                    self.listen();
                    self.check();
                }
                self.report(at);
                self.end_one(at);
                self.listen();
            }
            self.world.advance(Duration::from_secs(5));
            self.listen();
            if self.open.is_empty() && self.hosts.iter().all(|host| host.has.is_empty()) {
                return;
            }
        }
        panic!("{:?} never came to an end", self.open);
    }
}

impl<const MEMBERS: bool> Run<MEMBERS> {
    fn connect(&mut self, number: u64) -> SessionId {
        let session = self.world.silent_node(number);
        if number <= ABLE {
            self.world.ready_able(session, MEM, CPUS);
        } else {
            let size = Size {
                mem: MEM,
                cpus: CPUS,
                ..Size::default()
            };
            self.world.ready(session, size);
        }
        session
    }

    fn start(&mut self) {
        self.count += 1;
        let name = format!("i{}", self.count);
        let priority = 20 * self.chance.i64(0..6);
        let mut start: StartRequest = sized(&name, 100 * self.chance.i64(0..7), priority);
        start.asked.vcpus = self.chance.i64(1..=CPUS);
        if self.chance.bool() {
            start = start.waiting(3600);
        }
        if MEMBERS && self.chance.u8(..4) > 0 {
            let kind = self.chance.u32(..3);
            start = start.of_group(&Group {
                max: (kind == 0).then_some(2),
                ..group(&format!("g{kind}"), GroupPolicy::AntiAffinity)
            });
            // It depends on the place as a rule whether it has room.
            start.asked.vcpus = self.chance.i64(0..=3);
            start.asked.mem_mib /= 4;
            let id = start.scheduling.as_ref().and_then(|it| it.group.clone());
            self.groups.extend(id.map(|group| (name.clone(), group)));
        }
        self.open.insert(name, priority);
        self.world.start_as(self.controller, start);
    }

    /// The controller suspends, resumes or moves one that it started.
    fn command(&mut self) {
        let names: Vec<String> = self.open.keys().cloned().collect();
        let Some(name) = self.chance.choice(names) else {
            return;
        };
        match self.chance.u8(..5) {
            0..2 => self.world.ask_suspend(self.controller, &name),
            2..4 => self.resume(name),
            _ => self.world.migrate(self.controller, &name, None),
        }
    }

    fn resume(&mut self, name: String) {
        self.world.ask_resume(self.controller, &name);
        self.commanded = Some(name);
        self.listen();
    }

    /// What everybody was told is taken in.
    fn listen(&mut self) {
        for (to, message) in self.world.take_said() {
            if to == self.controller {
                match message {
                    Message::StartFailure(failure) => {
                        self.open.remove(&failure.instance_uuid);
                    }
                    Message::InstanceState(event) => {
                        self.lives(event.payload.instance_uuid, event.payload.state);
                    }
                    _ => {}
                }
            } else if let Some(host) = self.hosts.iter_mut().find(|it| it.session == to) {
                host.told.push_back(message);
            }
        }
        self.commanded = None;
    }

    /// An instance has come to another state. What was suspended to leave is not resumed while anything of higher
    /// priority waits: every node could run everything, but what it could not start, and but members of groups, of which
    /// there may be enough. A member is resumed where there are not, so that those of its own group count.
    fn lives(&mut self, name: String, state: PhaseName) {
        if state == PhaseName::Gone {
            self.open.remove(&name);
            self.lives.remove(&name);
            return;
        }
        let before = self.lives.insert(name.clone(), state.clone());
        let is_commanded = self.commanded.as_ref() == Some(&name);
        if !is_commanded && (before, state) == (Some(PhaseName::Suspended), PhaseName::Resuming) {
            let group_of = |name: &String| self.groups.get(name).map(|group| &group.id);
            let mut others = self.open.iter();
            let higher = others.find(|(other, priority)| {
                **priority > self.open[&name]
                    && !self.refused.contains(*other)
                    && self.lives.get(*other) == Some(&PhaseName::Waiting)
                    && group_of(other).is_none_or(|group| Some(group) == group_of(&name))
            });
            assert_eq!(higher, None, "{name} is resumed and they wait");
        }
    }

    /// A launcher does the next thing it was told.
    fn work(&mut self, at: usize) {
        let host = &mut self.hosts[at];
        let (session, fails) = (host.session, self.chance.u8(..12) == 0);
        match host.told.pop_front() {
            Some(Message::Start(start)) => {
                let name = start.request.instance.to_string();
                host.seen += 1;
                if fails {
                    self.refused.insert(name.clone());
                    let reason = StartFailureReason::LaunchFailure;
                    return self.world.start_failed(session, &name, reason);
                }
                let guest = Guest {
                    asked: start.request.asked,
                    group: self.groups.get(&name).cloned(),
                    is_suspended: false,
                };
                assert!(host.has.insert(name, guest).is_none(), "it has it");
            }
            Some(Message::LauncherCommand(order)) => self.carry_out(at, *order, fails),
            Some(Message::Targeted(command)) => self.remove(at, &command),
            _ => {}
        }
    }

    fn carry_out(&mut self, at: usize, order: LauncherCommand, fails: bool) {
        let host = &mut self.hosts[at];
        let session = host.session;
        let (name, command, suspends) = match order {
            LauncherCommand::Suspend(order) => {
                (order.instance_uuid, LifecycleCommand::Suspend, true)
            }
            LauncherCommand::Resume(order) => {
                (order.instance_uuid, LifecycleCommand::Resume, false)
            }
            LauncherCommand::Stop(order) => {
                return match host.has.remove(&order.instance_uuid) {
                    Some(_) => self.world.stopped(session, &order.instance_uuid),
                    None => self.world.has_none(session, &order.instance_uuid),
                };
            }
            other => panic!("{other:?}"),
        };
        let Some(guest) = host.has.get_mut(&name) else {
            let reason = CommandFailureReason::NoInstance;
            return self.world.cannot(session, command, &name, reason);
        };
        if guest.is_suspended == suspends {
            let reason = CommandFailureReason::WrongState;
            self.world.cannot(session, command, &name, reason);
        } else if fails {
            let reason = CommandFailureReason::Failed;
            self.world.cannot(session, command, &name, reason);
        } else {
            guest.is_suspended = suspends;
            if suspends {
                self.world.suspended(session, &name);
            } else {
                self.world.resumed(session, &name);
            }
        }
    }

    fn remove(&mut self, at: usize, command: &TargetedCommand) {
        let name = command.target.instance.to_string();
        let host = &mut self.hosts[at];
        let session = host.session;
        match host.has.remove(&name) {
            Some(_) => self.world.gone(session, Kind::INSTANCE_DELETED, &name),
            None => self.world.has_none(session, &name),
        }
    }

    fn report(&mut self, at: usize) {
        let host = &self.hosts[at];
        let row = |(name, guest): (&String, &Guest)| InstanceReport {
            requested: Some(guest.asked),
            group: guest.group.as_ref().map(|group| group.id.as_str().into()),
            ..if guest.is_suspended {
                frozen(name)
            } else {
                running(name, 0)
            }
        };
        let rows = host.has.iter().map(row).collect();
        self.world.stats_seen(host.session, Some(host.seen), rows);
    }

    /// Something that runs ends by itself.
    fn end_one(&mut self, at: usize) {
        let host = &mut self.hosts[at];
        let mut runs = host.has.iter().filter(|(_, guest)| !guest.is_suspended);
        let Some(name) = runs.next().map(|(name, _)| name.clone()) else {
            return;
        };
        host.has.remove(&name);
        self.world.stopped(host.session, &name);
    }

    fn delete_one(&mut self) {
        let open = self.open.keys().cloned().collect::<Vec<_>>();
        if let Some(name) = self.chance.choice(open) {
            let node = self.hosts[0].session;
            self.world.delete(self.controller, &name, node);
        }
    }

    /// A launcher's connection ends: what it was told and has not done is lost or was never written.
    fn cut_off(&mut self, at: usize) {
        self.listen();
        let (session, number) = (self.hosts[at].session, self.hosts[at].number);
        let told: Vec<Message> = self.hosts[at].told.drain(..).collect();
        let unsent = if self.chance.bool() { told } else { Vec::new() };
        self.world.cut_returning(session, unsent);
        self.listen();
        let new = self.connect(number);
        let host = &mut self.hosts[at];
        (host.session, host.seen) = (new, 0);
        self.report(at);
    }
}
