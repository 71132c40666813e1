//! Random reports of hostile nodes between the work of honest ones: they take STARTs and refuse them, list and end what
//! others have, flood, and come and go. What honest nodes have stays as it is, the scheduler never spins, and what hostile
//! nodes made it remember goes with them.

use std::collections::BTreeMap;
use std::time::Duration;

use fastrand::Rng;
use proto_frames::Kind;
use proto_frames::payload::StartFailureReason;
use sched_core::{
    Capabilities, IN_DOUBT_TIME, InstanceReport, InstanceState, Message, NodeExtras, NodeReport,
    Report, Resources, SessionId,
};

use crate::support::histories::{History, run_histories};
use crate::support::requests::Asking;
use crate::support::sending::kind_in;
use crate::support::world::{Size, World, id, node_uuid, report, request, running};

const HONEST: u64 = 3;
const LIARS: u64 = 2;
const STEPS: usize = 250;
/// Ticks at one moment after which the scheduler counts as spinning: it has far less to do here.
const MAX_TICKS: usize = 64;
/// What any custom resource or label may be called.
const NAMES: u32 = 40;

struct Run {
    world: World,
    chance: Rng,
    controller: SessionId,
    honest: Vec<SessionId>,
    liars: Vec<SessionId>,
    /// Where honest nodes have what.
    has: BTreeMap<String, SessionId>,
    count: usize,
}

#[test]
fn false_reports_do_not_change_other_nodes_instances() {
    run_histories::<Run>(&[], 8, STEPS);
}

impl History for Run {
    fn new(seed: u64) -> Self {
        let (mut world, controller) = World::new().check_every(8).with_controller();
        let honest = (1..=HONEST).map(|number| world.node_with(number, 2000));
        let honest = honest.collect();
        let liars = (1..=LIARS).map(|number| world.silent_node(HONEST + number));
        let liars = liars.collect();
        world.look_away();
        Self {
            world,
            chance: Rng::with_seed(seed),
            controller,
            honest,
            liars,
            has: BTreeMap::new(),
            count: 0,
        }
    }

    fn step(&mut self) {
        match self.chance.u8(..16) {
            0..3 => self.start(),
            3 => self.end_one(),
            4..6 => self.honest_report(),
            6 => self.liar_reconnects(),
            7 => self.pass_time(),
            _ => {
                let at = self.chance.usize(..self.liars.len());
                for _ in 0..self.chance.usize(1..8) {
                    self.lie(self.liars[at]);
                }
            }
        }
        self.collect();
    }

    fn come_to_rest(&mut self) {
        self.check_honest();
        self.liars_leave();
    }
}

impl Run {
    /// Honest nodes run what they are given, liars do what they like with it; nothing is told twice.
    fn collect(&mut self) {
        let mut seen = Vec::new();
        for (to, message) in self.world.take_said() {
            match message {
                Message::Start(start) => seen.push((to, start.request.instance.to_string())),
                Message::LauncherCommand(order) => {
                    assert!(
                        !self.honest.contains(&to),
                        "an honest node is told {order:?}"
                    );
                }
                Message::Forward(parcel) if to == self.controller => {
                    assert!(kind_in(&parcel) != Kind::STATS || !parcel.payload.is_empty());
                }
                _ => {}
            }
        }
        for (to, name) in seen {
            if self.honest.contains(&to) {
                let earlier = self.has.insert(name.clone(), to);
                assert!(earlier.is_none_or(|it| it == to), "{name} runs twice");
            } else {
                assert!(!self.has.contains_key(&name), "{name} runs twice");
            }
        }
    }

    fn start(&mut self) {
        let again = self.chance.u8(..4) == 0;
        if !again {
            self.count += 1;
        }
        let number = if again {
            self.chance.usize(..=self.count)
        } else {
            self.count
        };
        let (name, mem) = (format!("i{number}"), self.chance.i64(1..200));
        let start = if number % 2 == 0 {
            request(&name, mem).movable()
        } else {
            request(&name, mem)
        };
        self.world.start_as(self.controller, start);
    }

    fn end_one(&mut self) {
        let at = self.chance.usize(..self.has.len().max(1));
        if let Some((name, node)) = self.has.iter().nth(at).map(|(it, at)| (it.clone(), *at)) {
            self.has.remove(&name);
            self.world.gone(node, Kind::INSTANCE_DELETED, &name);
        }
    }

    fn honest_report(&mut self) {
        let at = self.chance.usize(..self.honest.len());
        let node = self.honest[at];
        let on = self.has.iter().filter(|(_, it)| **it == node);
        let listed = on.map(|(name, _)| running(name, 0)).collect();
        self.world.stats(node, listed);
    }

    fn liar_reconnects(&mut self) {
        let at = self.chance.usize(..self.liars.len());
        self.world.cut(self.liars[at]);
        self.collect();
        self.liars[at] = self.world.silent_node(HONEST + 1 + at as u64);
    }

    /// Time passes; the scheduler must not ask to be ticked over and over without getting on.
    fn pass_time(&mut self) {
        let step = Duration::from_secs(self.chance.u64(..40));
        let before = self.world.ticks();
        self.world.advance(step);
        let most = MAX_TICKS + step.as_secs() as usize * 8;
        assert!(self.world.ticks() - before < most, "the scheduler spins");
    }

    fn any_name(&mut self) -> String {
        let at = self.chance.usize(..self.has.len().max(1));
        let known = self.has.keys().nth(at).cloned();
        known.unwrap_or_else(|| "unknown".to_owned())
    }

    fn lie(&mut self, liar: SessionId) {
        let name = self.any_name();
        let instance = || id(&name);
        let report = match self.chance.u8(..8) {
            0 => Report::Ready(Box::new(self.absurd())),
            1 => Report::InstanceDeleted(instance()),
            2 => Report::InstanceCutOff(instance()),
            3 => Report::StartFailed {
                node: "".into(),
                instance: self.chance.bool().then(instance),
                reason: StartFailureReason::LaunchFailure,
                detail: "x".repeat(1000).into(),
            },
            4 => Report::DeleteFailed {
                node: "".into(),
                instance: instance(),
                no_instance: self.chance.bool(),
            },
            5 => Report::Full,
            _ => return self.flood(liar),
        };
        self.world.say(liar, report);
    }

    /// Lists what others have, and much that no one has.
    fn flood(&mut self, liar: SessionId) {
        let mut listed: Vec<InstanceReport> = Vec::new();
        for _ in 0..self.chance.usize(..30) {
            let name = if self.chance.bool() {
                self.any_name()
            } else {
                format!("fake-{}", self.chance.u32(..2000))
            };
            let amount = [0, i64::MAX, i64::MIN, 7][self.chance.usize(..4)];
            listed.push(InstanceReport {
                state: [InstanceState::Active, InstanceState::Exited][self.chance.usize(..2)],
                mem_used_mib: amount,
                requested: self.chance.bool().then_some(Resources {
                    mem_mib: amount,
                    vcpus: amount,
                    disk_mib: amount,
                }),
                custom: vec![(format!("r{}", self.chance.u32(..NAMES)).into(), amount)],
                group: Some(format!("g{}", self.chance.u32(..NAMES)).into()),
                ..running(&name, 0)
            });
        }
        // What honest nodes have not listed yet, and no one has any more, is theirs that list it first: leave it out.
        listed.retain(|it| {
            let name = it.instance.to_string();
            name.starts_with("fake-") || self.has.contains_key(&name)
        });
        let seen = self.chance.bool().then(|| self.chance.u64(..));
        self.world.stats_seen(liar, seen, listed);
    }

    fn absurd(&mut self) -> NodeReport {
        let chance = &mut self.chance;
        let names = |prefix: &str, chance: &mut Rng| -> Box<str> {
            format!("{prefix}{}", chance.u32(..NAMES)).into()
        };
        let labels = (0..chance.usize(..20)).map(|_| (names("l", chance), names("v", chance)));
        let labels = labels.collect();
        let resources = (0..chance.usize(..20)).map(|_| (names("r", chance), i64::MAX));
        let resources = resources.collect();
        NodeReport {
            mem_total_mib: i64::MAX,
            mem_available_mib: [i64::MAX, 0, -5][chance.usize(..3)],
            extras: Some(Box::new(NodeExtras {
                labels,
                resources,
                capabilities: Capabilities::SUSPEND.and(Capabilities::MIGRATE),
                ..NodeExtras::default()
            })),
            ..report(Size::default())
        }
    }

    /// What honest nodes have is where it was, as an operator is told.
    fn check_honest(&mut self) {
        let operator = self.world.operator(&[]);
        let rows = self.world.instances(operator);
        for (name, node) in &self.has {
            let uuid = self.world.uuid_of(*node).to_string();
            let mut of_it = rows.iter().filter(|row| row.instance_uuid == *name);
            assert!(of_it.any(|row| row.node_uuid == uuid), "{name} is lost");
        }
    }

    /// Once liars are given up, nothing is left of what they said but the names of resources.
    fn liars_leave(&mut self) {
        for liar in std::mem::take(&mut self.liars) {
            self.world.cut(liar);
        }
        self.world.advance(IN_DOUBT_TIME * 2);
        self.collect();
        self.check_honest();
        let operator = self.world.operator(&[]);
        let rows = self.world.instances(operator);
        let liars: Vec<String> = (1..=LIARS)
            .map(|number| node_uuid(HONEST + number).to_string())
            .collect();
        let of_liars = rows.iter().filter(|row| liars.contains(&row.node_uuid));
        // What was there is lost with it, and remembered for a while.
        let kept = of_liars.filter(|row| row.state.as_str() != "lost");
        assert_eq!(kept.count(), 0);
        let entries = self.world.scheduler.entries();
        let most = 4 * self.count + 64;
        assert!(
            entries < most,
            "{entries} entries for {} STARTs",
            self.count
        );
    }
}
