//! Random jobs between false reports: arrays, what comes after others, retries, restarts and time limits, on honest
//! launchers; and liars that say of the same instances that they ended, and how. What becomes of an instance on an honest
//! node is what that node says: it counts once, is retried as often as it may be, and decides what comes after it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use fastrand::Rng;
use proto_frames::Uuid;
use proto_frames::payload::{
    After, AfterEnd, ArrayState, EndFacts, EndWhy, PlacementState, QueryKind, RestartPolicy,
    RestartWhen, RetryPolicy, RunProgress, Span, StartFailure, StartFailureReason,
};
use sched_core::{
    Cause, ElementId, EndHow, EndReport, Explained, IN_DOUBT_TIME, InstanceId, InstanceReport,
    LauncherCommand, Message, Report, SessionId, StartRequest,
};

use super::ends::end;
use super::retrying::able;
use crate::support::durability::durable;
use crate::support::histories::{History, Host, run_histories};
use crate::support::requests::Asking;
use crate::support::world::{Size, World, id, node_uuid, request, running};

const HONEST: u64 = 3;
const LIARS: u64 = 2;
const STEPS: usize = 250;
const ROUNDS: usize = 400;
const ELEMENTS: u32 = 6;
/// Fewer than the core remembers ends of, so that each can be looked up afterwards.
const MAX_ARRAYS: u64 = 6;
const MAX_JOBS: u64 = 40;
/// How a job ends by itself, one as likely as another.
const CODES: [i64; 5] = [0, 0, 1, 2, -9];
/// Seeds that found a defect once.
const FOUND: [u64; 0] = [];

/// What the START of an instance says.
#[derive(Clone)]
struct Job {
    /// How often it may be placed again after exit status 1 or 2.
    retries: u32,
    after: Vec<(String, AfterEnd)>,
    array: Option<Uuid>,
}

/// Where an instance was last, as far as honest launchers know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Last {
    /// With an honest launcher, which has not ended it.
    Lives,
    /// It ended on this honest node, with this exit status; by its time limit or not.
    Ended(SessionId, i64, bool),
    /// A liar was given it: anything may have become of it.
    Open,
}

struct Run {
    world: World,
    chance: Rng,
    controller: SessionId,
    honest: Vec<Host<()>>,
    /// The number of the latest end of each honest launcher.
    ends: Vec<u64>,
    liars: Vec<SessionId>,
    jobs: BTreeMap<String, Job>,
    /// Elements in all and how many at a time, by array.
    arrays: BTreeMap<Uuid, (u32, Option<u32>)>,
    last: BTreeMap<String, Last>,
    /// How often each was given to an honest launcher, and how often to a liar, which may lose it.
    placed: BTreeMap<String, u32>,
    given_away: BTreeMap<String, u32>,
    deleted: BTreeSet<String>,
    /// Those of which the controller was told that their START has failed.
    failed: BTreeSet<String>,
}

#[test]
fn false_reports_change_no_job_of_an_honest_node() {
    run_histories::<Run>(&FOUND, 12, STEPS);
}

impl History for Run {
    fn new(seed: u64) -> Self {
        let (mut world, controller) = World::with(durable()).check_every(8).with_controller();
        let honest = (1..=HONEST).map(|number| Host::new(number, able(&mut world, number)));
        let honest: Vec<_> = honest.collect();
        let liars = (1..=LIARS).map(|number| liar(&mut world, number));
        let liars = liars.collect();
        world.look_away();
        Self {
            world,
            chance: Rng::with_seed(seed),
            controller,
            ends: vec![0; honest.len()],
            honest,
            liars,
            jobs: BTreeMap::new(),
            arrays: BTreeMap::new(),
            last: BTreeMap::new(),
            placed: BTreeMap::new(),
            given_away: BTreeMap::new(),
            deleted: BTreeSet::new(),
            failed: BTreeSet::new(),
        }
    }

    fn step(&mut self) {
        let at = self.chance.usize(..self.honest.len());
        match self.chance.u8(..20) {
            0 => self.start_array(),
            1..3 => self.start_job(),
            3 => self.delete(),
            4..8 => self.take_in(at),
            8..11 => self.end_one(at, None),
            11 => self.report(at, Vec::new()),
            12 => self.liar_reconnects(),
            13..15 => {
                let step = Duration::from_secs(self.chance.u64(..20));
                self.world.advance(step);
            }
            _ => {
                let liar = self.liars[self.chance.usize(..self.liars.len())];
                for _ in 0..self.chance.usize(1..6) {
                    self.lie(liar);
                }
            }
        }
        self.collect();
    }

    fn check(&self) {
        for (&array, &(count, most)) in &self.arrays {
            let names: BTreeSet<String> = (0..count).map(|index| element(array, index)).collect();
            let hosts = self.honest.iter();
            let held = hosts.flat_map(held_by);
            let held = held.filter(|name| names.contains(name)).count();
            let most = most.unwrap_or(count) as usize;
            assert!(held <= most, "{held} of {array} at a time, {most} may be");
        }
    }

    fn come_to_rest(&mut self) {
        for liar in std::mem::take(&mut self.liars) {
            self.world.cut(liar);
        }
        self.collect();
        self.world.advance(IN_DOUBT_TIME * 2);
        self.collect();
        self.give_up_lost();
        for _ in 0..ROUNDS {
            self.collect();
            for at in 0..self.honest.len() {
                while !self.honest[at].told.is_empty() {
                    self.take_in(at);
                }
                self.end_one(at, Some(0));
            }
            self.check();
            self.world.advance(Duration::from_secs(1));
        }
        self.check_ends();
        self.check_arrays();
    }
}

/// A node that says it has room without end.
fn liar(world: &mut World, number: u64) -> SessionId {
    let liar = world.silent_node(HONEST + number);
    world.ready(liar, Size::of_mem(100));
    liar
}

fn element(array: Uuid, index: u32) -> String {
    ElementId { array, index }.instance().to_string()
}

/// What a launcher runs, or was told to.
fn held_by(host: &Host<()>) -> impl Iterator<Item = String> + '_ {
    let told = host.told.iter().filter_map(|message| match message {
        Message::Start(start) => Some(start.request.instance.to_string()),
        _ => None,
    });
    host.has.keys().cloned().chain(told)
}

impl Run {
    /// Launchers get what they were told.
    fn collect(&mut self) {
        for (to, message) in self.world.take_said() {
            let at = self.honest.iter().position(|host| host.session == to);
            if let Message::Start(start) = &message {
                self.is_placed(&start.request.instance.to_string(), at.is_some());
            }
            if let Message::StartFailure(failure) | Message::StartFailureCopy(failure) = &message {
                self.has_failed(failure);
            }
            match (at, &message) {
                (Some(at), Message::Start(_) | Message::LauncherCommand(_)) => {
                    self.honest[at].told.push_back(message);
                }
                (Some(at), Message::Targeted(_)) => self.honest[at].told.push_back(message),
                _ => {}
            }
        }
    }

    /// Of what a START comes after something is known, unless that was deleted: all of it was sent before, and no more than
    /// the core remembers.
    fn has_failed(&mut self, failure: &Explained<StartFailure>) {
        self.failed.insert(failure.payload.instance_uuid.clone());
        if let Cause::OtherUnknown(named) = &failure.cause {
            let name = &failure.payload.instance_uuid;
            assert!(
                self.deleted.contains(&**named),
                "{name} does not know {named}"
            );
        }
    }

    /// A launcher is given an instance.
    fn is_placed(&mut self, name: &str, is_honest: bool) {
        let hosts = self.honest.iter();
        let elsewhere = hosts.flat_map(held_by).any(|held| held == name);
        assert!(!elsewhere, "{name} runs twice");
        let job = self.jobs[name].clone();
        let count = match is_honest {
            true => &mut self.placed,
            false => &mut self.given_away,
        };
        *count.entry(name.to_owned()).or_default() += 1;
        let of = |counts: &BTreeMap<String, u32>| counts.get(name).copied().unwrap_or_default();
        let (placed, most) = (of(&self.placed), 1 + job.retries + of(&self.given_away));
        assert!(placed <= most, "{name} is given out {placed} times");
        for (other, asked) in &job.after {
            let Some(last) = self.last.get(other) else {
                // Its START or that of another element of its array has failed; or it was deleted before it began: of an array
                // that is deleted once more nothing is known but what nodes say.
                let array = self.jobs[other].array;
                let is_of_it = |name: &String| array.is_some() && self.jobs[name].array == array;
                let is_over = self.failed.contains(other) || self.failed.iter().any(is_of_it);
                let is_met = self.deleted.contains(other) || is_over && !asked.is_usual();
                assert!(is_met, "{name} does not wait for {other}, which never ran");
                continue;
            };
            if self.given_away.contains_key(other) {
                continue;
            }
            match *last {
                Last::Open => {}
                Last::Lives => panic!("{name} does not wait for {other}"),
                Last::Ended(_, code, is_over_time) => {
                    let is_ok = code == 0 && !is_over_time;
                    assert!(asked.admits(Some(is_ok)), "{name} after {other}: {last:?}");
                    let is_retried = self.is_retried(other, code, is_over_time);
                    assert!(!is_retried, "{name} comes before the retry of {other}");
                }
            }
        }
        let last = if is_honest { Last::Lives } else { Last::Open };
        self.last.insert(name.to_owned(), last);
    }

    fn is_retried(&self, name: &str, code: i64, is_over_time: bool) -> bool {
        let placed = self.placed.get(name).copied().unwrap_or_default();
        let is_left = placed < 1 + self.jobs[name].retries;
        // Of what a liar had it is open how often it was retried.
        let is_sure = !self.given_away.contains_key(name);
        is_sure
            && is_left
            && [1, 2].contains(&code)
            && !is_over_time
            && !self.deleted.contains(name)
    }

    /// What a START asks for, and the same as the test remembers it.
    fn any_job(&mut self, name: &str) -> (StartRequest, Job) {
        let chance = &mut self.chance;
        let retries = if chance.bool() { chance.u32(1..3) } else { 0 };
        let restart = (chance.u8(..3) == 0).then(|| RestartPolicy {
            when: RestartWhen::OnFailure,
            max: Some(2),
            ..RestartPolicy::default()
        });
        let time_limit = (chance.u8(..3) == 0).then(|| Span::from_ms(chance.u64(1..9) * 1000));
        let known: Vec<&String> = self.jobs.keys().collect();
        let mut after = Vec::new();
        if !known.is_empty() && chance.bool() {
            let other = known[chance.usize(..known.len())].clone();
            let end = [AfterEnd::Ok, AfterEnd::Any, AfterEnd::Failed][chance.usize(..3)].clone();
            after.push((other, end));
        }
        let (mem, priority) = (chance.i64(1..30), chance.i64(40..43));
        let request = request(name, mem)
            .waiting(100_000)
            .priority(priority)
            .placed_as(|it| {
                let on = ["1", "2"].iter().map(|word| word.parse().expect("an end"));
                it.retry = (retries > 0).then(|| RetryPolicy {
                    on: on.collect(),
                    max: Some(retries),
                });
                it.restart = restart;
                it.time_limit = time_limit;
                let others = after.iter().map(|(other, end)| After {
                    instance: other.clone(),
                    end: end.clone(),
                    ..After::default()
                });
                it.after = others.collect();
            });
        let job = Job {
            retries,
            after,
            array: None,
        };
        (request, job)
    }

    fn start_array(&mut self) {
        let number = self.arrays.len() as u64 + 1;
        if number > MAX_ARRAYS {
            return;
        }
        let array = Uuid::from_u128(0xa77a_0000_0000_4000_8000_0000_0000_0000 + u128::from(number));
        let (request, job) = self.any_job(&array.to_string());
        let count = self.chance.u32(1..=ELEMENTS);
        let most = self.chance.bool().then(|| self.chance.u32(1..4));
        self.arrays.insert(array, (count, most));
        for index in 0..count {
            let job = Job {
                array: Some(array),
                ..job.clone()
            };
            self.jobs.insert(element(array, index), job);
        }
        self.world
            .start_array(self.controller, request, (count, most));
    }

    fn start_job(&mut self) {
        let number = self.jobs.len() as u64;
        if number > MAX_JOBS {
            return;
        }
        let name = format!("i{number}");
        let (request, job) = self.any_job(&name);
        self.jobs.insert(name, job);
        self.world.start_as(self.controller, request);
    }

    /// Deletes an array, or an instance that is on an honest node.
    fn delete(&mut self) {
        let nowhere = node_uuid(1);
        if self.chance.u8(..4) == 0 {
            let at = self.chance.usize(..self.arrays.len().max(1));
            let array = self.arrays.keys().nth(at).copied();
            if let Some(array) = array {
                let of_it = self.jobs.iter();
                let of_it = of_it.filter(|(_, job)| job.array == Some(array));
                let names: Vec<_> = of_it.map(|(name, _)| name.clone()).collect();
                self.deleted.extend(names);
                let controller = self.controller;
                self.world
                    .delete_at(controller, &array.to_string(), nowhere);
            }
            return;
        }
        let at = self.chance.usize(..self.honest.len());
        let host = &self.honest[at];
        if let Some(name) = host.has.keys().next().cloned() {
            self.deleted.insert(name.clone());
            self.world.delete(self.controller, &name, host.session);
        }
    }

    /// An honest launcher does the next thing it was told to.
    fn take_in(&mut self, at: usize) {
        match self.honest[at].told.pop_front() {
            Some(Message::Start(start)) => {
                let name = start.request.instance.to_string();
                self.honest[at].seen += 1;
                self.honest[at].has.insert(name, ());
                self.report(at, Vec::new());
            }
            Some(Message::LauncherCommand(command)) => match *command {
                LauncherCommand::Stop(delete) => self.stops(at, &delete.instance_uuid),
                command => panic!("no one asked for {command:?}"),
            },
            Some(Message::Targeted(command)) => {
                self.stops(at, &command.target.instance.to_string());
            }
            _ => {}
        }
    }

    /// An honest launcher is to stop an instance, which somebody has asked for.
    fn stops(&mut self, at: usize, name: &str) {
        if self.honest[at].has.remove(name).is_some() {
            assert!(self.deleted.contains(name), "{name} is to be stopped");
            self.last.insert(name.to_owned(), Last::Open);
            let how = EndHow::Stopped;
            self.tell_end(at, name, (how, Some(-15), None));
        }
    }

    /// Something ends by itself on an honest node, or because its time is over.
    fn end_one(&mut self, at: usize, code: Option<i64>) {
        let host = &mut self.honest[at];
        let drawn = self.chance.usize(..host.has.len().max(1));
        let Some(name) = host.has.keys().nth(drawn).cloned() else {
            return;
        };
        host.has.remove(&name);
        let is_over_time = code.is_none() && self.chance.u8(..6) == 0;
        let code = match code {
            Some(code) => code,
            None if is_over_time => -15,
            None => CODES[self.chance.usize(..CODES.len())],
        };
        let ended = Last::Ended(host.session, code, is_over_time);
        self.last.insert(name.clone(), ended);
        let facts = is_over_time.then(|| {
            Box::new(EndFacts {
                why: EndWhy::TimeLimit,
                ..EndFacts::default()
            })
        });
        let how = match is_over_time {
            true => EndHow::Stopped,
            false => EndHow::Exited,
        };
        self.tell_end(at, &name, (how, Some(code), facts));
    }

    fn tell_end(
        &mut self,
        at: usize,
        name: &str,
        (how, exit_code, facts): (EndHow, Option<i64>, Option<Box<EndFacts>>),
    ) {
        self.ends[at] += 1;
        let ended = EndReport {
            how,
            exit_code,
            facts,
            ..end(self.ends[at], name)
        };
        self.report(at, vec![ended]);
    }

    /// STATS of an honest launcher, which starts some instances again by itself.
    fn report(&mut self, at: usize, ended: Vec<EndReport>) {
        let chance = &mut self.chance;
        let host = &self.honest[at];
        let listed = host.has.keys().map(|name| InstanceReport {
            run: chance.bool().then(|| {
                Box::new(RunProgress {
                    restarts: chance.u32(..3),
                    ..RunProgress::default()
                })
            }),
            ..running(name, 0)
        });
        let (session, seen, listed) = (host.session, host.seen, listed.collect());
        self.world.ends(session, seen, ended, listed);
    }

    fn liar_reconnects(&mut self) {
        let at = self.chance.usize(..self.liars.len());
        self.world.cut(self.liars[at]);
        self.collect();
        self.liars[at] = liar(&mut self.world, at as u64 + 1);
    }

    /// A liar says that an instance has ended, which others have or had, or which was never placed. That it is there is for
    /// another test: nothing tells a copy that is listed from one that runs.
    fn lie(&mut self, liar: SessionId) {
        let at = self.chance.usize(..self.jobs.len().max(1));
        let Some(name) = self.jobs.keys().nth(at).cloned() else {
            return;
        };
        let instance: InstanceId = id(&name);
        let code = CODES[self.chance.usize(..CODES.len())];
        let ended = EndReport {
            how: [EndHow::Exited, EndHow::Stopped, EndHow::Deleted][self.chance.usize(..3)].clone(),
            exit_code: Some(code),
            ..end(self.chance.u64(1..200), &name)
        };
        match self.chance.u8(..5) {
            0 => {
                let told = Box::new(Report::InstanceExited(instance));
                let report = Report::Numbered {
                    seq: self.chance.u64(1..200),
                    exit_code: Some(code),
                    facts: None,
                    told,
                };
                self.world.say(liar, report);
            }
            1 => self.world.say(liar, Report::InstanceDeleted(instance)),
            2 => {
                let report = Report::StartFailed {
                    node: "".into(),
                    instance: Some(instance),
                    reason: StartFailureReason::LaunchFailure,
                    detail: "".into(),
                };
                self.world.say(liar, report);
            }
            _ => {
                let seen = self.chance.u64(..20);
                self.world.ends(liar, seen, vec![ended], Vec::new());
            }
        }
    }

    /// What liars had is lost with their nodes, and would be waited for.
    fn give_up_lost(&mut self) {
        let operator = self.world.operator(&[]);
        let rows = self.world.instances(operator);
        let lost = rows.iter().filter(|row| row.state == PlacementState::Lost);
        for row in lost {
            self.world.forget(operator, &row.instance_uuid);
            // The next of its array may be placed at once.
            self.collect();
        }
    }

    /// What ended on an honest node is listed with its end.
    fn check_ends(&mut self) {
        let runs = self.world.ended("");
        for (name, last) in &self.last {
            let Last::Ended(session, code, is_over_time) = *last else {
                continue;
            };
            // A liar that had it once may say that it had it again.
            // What was deleted while it waited to be placed again has no end of its own.
            let may_be_retried = [1, 2].contains(&code) && !is_over_time;
            let is_open = self.deleted.contains(name) && may_be_retried;
            if self.given_away.contains_key(name) || is_open {
                continue;
            }
            let is_retried = self.is_retried(name, code, is_over_time);
            assert!(!is_retried, "{name} is not retried: {last:?}");
            let node = self.world.uuid_of(session).to_string();
            let of_it = runs.iter().filter(|run| run.instance_uuid == *name);
            let outcome: Vec<_> = of_it.filter(|run| !run.earlier).collect();
            assert_eq!(outcome.len(), 1, "{name}: {last:?}, {outcome:?}");
            assert_eq!(outcome[0].node_uuid, node, "{name}: {last:?}");
            assert_eq!(outcome[0].exit_code, Some(code), "{name}: {last:?}");
        }
    }

    /// Arrays have ended, and what they count is what their elements came to.
    fn check_arrays(&mut self) {
        let views = self.world.page(QueryKind::Arrays, "", None, 1000).arrays;
        for array in self.arrays.keys() {
            let is_there = views.iter().any(|it| it.array_uuid == array.to_string());
            // One that is deleted before any of it began is forgotten.
            let is_deleted = self.deleted.contains(&element(*array, 0));
            assert!(is_there || is_deleted, "{array} is gone");
        }
        for view in views {
            assert_eq!(view.state, ArrayState::Ended, "{view:?}");
            let array: Uuid = view.array_uuid.parse().expect("it is a UUID");
            let (count, _) = self.arrays[&array];
            let names = (0..count).map(|index| element(array, index));
            // One that ended by itself while it was to be deleted counts as deleted, or as ended.
            let ends = names.map(|name| match self.deleted.contains(&name) {
                true => None,
                false => self.last.get(&name),
            });
            let (mut good, mut bad, mut open) = (0, 0, 0);
            for last in ends {
                match last {
                    Some(Last::Ended(_, 0, false)) => good += 1,
                    Some(Last::Ended(..)) => bad += 1,
                    _ => open += 1,
                }
            }
            let is_right = |told: u64, known: u64| (known..=known + open).contains(&told);
            assert!(is_right(view.succeeded, good), "{good} succeeded: {view:?}");
            assert!(is_right(view.failed, bad), "{bad} failed: {view:?}");
            let sum = view.succeeded + view.failed + view.not_started + view.unknown + view.deleted;
            assert_eq!(sum, u64::from(count), "{view:?}");
        }
    }
}
