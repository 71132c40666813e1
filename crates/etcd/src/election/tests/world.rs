//! Schedulers, a model of etcd, and what is between them, in simulated time.

use std::collections::BTreeMap;
use std::time::Duration;

use super::super::{Answer, Call, Election, LeaderKey, Output, Term};

/// For how long there are faults.
const FAULTY: Duration = Duration::from_secs(60);

/// For how long it runs without, so that one leads in the end: every fault is over after [`LONGEST_FAULT`].
const CALM: Duration = Duration::from_secs(40);

const LONGEST_FAULT: Duration = Duration::from_secs(12);

/// The deadline of a call.
const DEADLINE: Duration = Duration::from_millis(300);

/// What a world is made of.
#[derive(Debug, Clone, Copy)]
pub(super) struct Settings {
    /// As schedulers know it.
    pub(super) ttl: Duration,
    /// After how long etcd ends a lease.
    pub(super) lease: Duration,
    pub(super) schedulers: usize,
}

/// What happened in a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) leaders: u64,
    pub(super) pauses: u64,
    pub(super) last: Term,
    pub(super) events: u64,
}

enum Event {
    /// A call reaches etcd.
    Request(usize, u64, u64, Call),
    /// An answer reaches a scheduler: its life, and the number of the call.
    Answer(usize, u64, u64, Answer),
    /// A change of the key reaches a scheduler.
    Watch(usize, Option<LeaderKey>, i64),
    Timer(usize),
    Restart(usize),
    /// A lease may have ended.
    Lease,
    Fault,
}

struct Scheduler {
    election: Election,
    /// Which of its processes this is.
    life: u64,
    /// How fast its clock goes, in percent.
    pace: u32,
    /// Until when it is stopped: what reaches it waits.
    stopped: Duration,
    /// Until when what it sends is lost.
    mute: Duration,
    /// Until when what is sent to it is lost.
    deaf: Duration,
    timer: Duration,
}

#[derive(Default)]
struct Etcd {
    revision: i64,
    key: Option<LeaderKey>,
    /// When each lease ends.
    leases: BTreeMap<i64, Duration>,
    /// Until when there is no quorum.
    lost: Duration,
}

pub(super) struct World {
    settings: Settings,
    random: fastrand::Rng,
    is_faulty: bool,
    now: Duration,
    queue: BTreeMap<(Duration, u64), Event>,
    sequence: u64,
    schedulers: Vec<Scheduler>,
    etcd: Etcd,
    found: Found,
}

impl World {
    /// A world with faults.
    pub(super) fn new(seed: u64, settings: Settings) -> Self {
        let mut world = Self::calm(seed, settings);
        world.is_faulty = true;
        for scheduler in &mut world.schedulers {
            scheduler.pace = world.random.u32(95..=105);
        }
        world.after(Duration::ZERO, Event::Fault);
        world
    }

    /// One without.
    pub(super) fn calm(seed: u64, settings: Settings) -> Self {
        let none = Term {
            generation: 0,
            create_revision: 0,
        };
        let scheduler = |_| Scheduler {
            election: Election::new(settings.ttl, Duration::ZERO),
            life: 0,
            pace: 100,
            stopped: Duration::ZERO,
            mute: Duration::ZERO,
            deaf: Duration::ZERO,
            timer: Duration::ZERO,
        };
        let mut world = Self {
            settings,
            random: fastrand::Rng::with_seed(seed),
            is_faulty: false,
            now: Duration::ZERO,
            queue: BTreeMap::new(),
            sequence: 0,
            schedulers: (0..settings.schedulers).map(scheduler).collect(),
            etcd: Etcd::default(),
            found: Found {
                leaders: 0,
                pauses: 0,
                last: none,
                events: 0,
            },
        };
        for place in 0..settings.schedulers {
            world.after(Duration::ZERO, Event::Timer(place));
        }
        world
    }

    /// Runs to the end; what is wrong, if anything is.
    pub(super) fn run(mut self) -> Result<Found, String> {
        while let Some(((at, _), event)) = self.queue.pop_first() {
            if at > FAULTY + CALM {
                break;
            }
            self.now = at;
            self.found.events += 1;
            self.handle(event)?;
            self.check()?;
        }
        let now = self.now;
        let sends = |it: &&Scheduler| it.election.sends_until() > Some(local(now, it.pace));
        match self.schedulers.iter().filter(sends).count() {
            1 => Ok(self.found),
            count => Err(format!("{count} lead in the end")),
        }
    }

    /// At most one may send, stopped or not: its fence does not know of that.
    fn check(&self) -> Result<(), String> {
        let may_send = |(place, it): (usize, &Scheduler)| {
            let until = it.election.sends_until()?;
            (until > local(self.now, it.pace)).then_some(place)
        };
        let senders: Vec<usize> = self
            .schedulers
            .iter()
            .enumerate()
            .filter_map(may_send)
            .collect();
        match senders.len() {
            0 | 1 => Ok(()),
            _ => Err(format!("at {:?} {senders:?} may send", self.now)),
        }
    }

    fn after(&mut self, time: Duration, event: Event) {
        self.sequence += 1;
        self.queue.insert((self.now + time, self.sequence), event);
    }

    /// A time up to `most`.
    fn up_to(&mut self, most: Duration) -> Duration {
        let most = u64::try_from(most.as_micros()).unwrap();
        Duration::from_micros(self.random.u64(0..=most))
    }

    fn handle(&mut self, event: Event) -> Result<(), String> {
        let place = match &event {
            Event::Answer(place, ..) | Event::Watch(place, ..) | Event::Timer(place) => *place,
            Event::Request(place, life, number, call) => {
                self.request(*place, *life, *number, *call);
                return Ok(());
            }
            Event::Restart(place) => {
                self.restart(*place);
                return self.settle(*place);
            }
            Event::Lease => {
                self.end_leases();
                return Ok(());
            }
            Event::Fault => {
                self.fault();
                return Ok(());
            }
        };
        let scheduler = &mut self.schedulers[place];
        if scheduler.stopped > self.now {
            let rest = scheduler.stopped - self.now;
            self.after(rest, event);
            return Ok(());
        }
        let now = local(self.now, scheduler.pace);
        match event {
            Event::Answer(_, life, number, answer) if life == scheduler.life => {
                scheduler.election.answered(now, number, answer);
            }
            Event::Watch(_, key, revision) => scheduler.election.changed(now, key, revision),
            Event::Timer(_) => scheduler.election.tick(now),
            _ => {}
        }
        self.settle(place)
    }

    /// Does what a scheduler wants, and sets its timer.
    fn settle(&mut self, place: usize) -> Result<(), String> {
        while let Some(output) = self.schedulers[place].election.poll_output() {
            match output {
                Output::Call(number, call) => self.send(place, number, call),
                Output::Leads(term) => {
                    self.found.leaders += 1;
                    if term <= self.found.last {
                        return Err(format!("{term} after {}", self.found.last));
                    }
                    self.found.last = term;
                }
                Output::Pauses => self.found.pauses += 1,
                Output::GoesOn => {}
                Output::StepsDown(_) => {
                    let time = self.up_to(Duration::from_secs(2));
                    self.after(time, Event::Restart(place));
                }
            }
        }
        let scheduler = &mut self.schedulers[place];
        if let Some(due) = scheduler.election.next_due() {
            let at = (due * 100).div_f64(f64::from(scheduler.pace));
            let at = at + Duration::from_micros(1);
            if scheduler.timer <= self.now || at < scheduler.timer {
                scheduler.timer = at.max(self.now + Duration::from_micros(1));
                let time = scheduler.timer - self.now;
                self.after(time, Event::Timer(place));
            }
        }
        Ok(())
    }

    /// A process ends, and another begins.
    fn restart(&mut self, place: usize) {
        let scheduler = &mut self.schedulers[place];
        scheduler.life += 1;
        let now = local(self.now, scheduler.pace);
        scheduler.election = Election::new(self.settings.ttl, now);
    }

    /// Sends a call on its way: lost, delayed, doubled. It fails at its deadline, whether or not it arrives later.
    fn send(&mut self, place: usize, number: u64, call: Call) {
        let life = self.schedulers[place].life;
        let times = match self.is_faulty() && self.random.u8(..) < 12 {
            true => 2,
            false => 1,
        };
        for _ in 0..times {
            let time = self.delay();
            if self.schedulers[place].mute <= self.now {
                self.after(time, Event::Request(place, life, number, call));
            }
        }
        self.after(
            DEADLINE,
            Event::Answer(place, life, number, Answer::Unknown),
        );
    }

    /// Mostly some milliseconds, sometimes seconds.
    fn delay(&mut self) -> Duration {
        let most = match self.is_faulty() && self.random.u8(..) < 10 {
            true => 4000,
            false => 10,
        };
        self.up_to(Duration::from_millis(most))
    }

    fn is_faulty(&self) -> bool {
        self.is_faulty && self.now < FAULTY
    }

    fn request(&mut self, place: usize, life: u64, number: u64, call: Call) {
        self.end_leases();
        if self.etcd.lost > self.now {
            return;
        }
        let answer = self.carry_out(call);
        let time = self.delay();
        if self.schedulers[place].deaf <= self.now {
            self.after(time, Event::Answer(place, life, number, answer));
        }
    }

    fn carry_out(&mut self, call: Call) -> Answer {
        let ends = self.now + self.settings.lease;
        let etcd = &mut self.etcd;
        match call {
            Call::Grant => {
                self.sequence += 1;
                let number = i64::try_from(self.sequence).unwrap();
                etcd.leases.insert(number, ends);
                self.after(self.settings.lease, Event::Lease);
                Answer::Granted(number)
            }
            Call::KeepAlive(lease) => match etcd.leases.get_mut(&lease) {
                Some(at) => {
                    *at = ends;
                    self.after(self.settings.lease, Event::Lease);
                    Answer::Alive
                }
                None => Answer::NoSuchLease,
            },
            Call::Read => Answer::Key(etcd.key.clone(), 0),
            Call::Campaign(lease) if !etcd.leases.contains_key(&lease) && etcd.key.is_none() => {
                Answer::NoSuchLease
            }
            Call::Campaign(lease) => match &etcd.key {
                Some(key) => Answer::Key(Some(key.clone()), 0),
                None => {
                    etcd.revision += 1;
                    let create_revision = etcd.revision;
                    let value = Vec::new();
                    self.set_key(Some(LeaderKey {
                        create_revision,
                        lease,
                        value,
                    }));
                    Answer::Won(Term {
                        generation: 0,
                        create_revision,
                    })
                }
            },
            Call::Revoke(lease) => {
                etcd.leases.insert(lease, Duration::ZERO);
                self.end_leases();
                Answer::Unknown
            }
        }
    }

    /// Every scheduler that is reached hears of it, at some time.
    fn set_key(&mut self, key: Option<LeaderKey>) {
        self.etcd.key.clone_from(&key);
        let revision = self.etcd.revision;
        for place in 0..self.schedulers.len() {
            let time = self.delay();
            if self.schedulers[place].deaf <= self.now {
                self.after(time, Event::Watch(place, key.clone(), revision));
            }
        }
    }

    fn end_leases(&mut self) {
        let now = self.now;
        self.etcd.leases.retain(|_, ends| *ends > now);
        if let Some(key) = &self.etcd.key
            && !self.etcd.leases.contains_key(&key.lease)
        {
            self.etcd.revision += 1;
            self.set_key(None);
        }
    }

    /// One fault, and the time of the next.
    fn fault(&mut self) {
        if !self.is_faulty() {
            return;
        }
        let time = self.up_to(LONGEST_FAULT);
        let until = self.now + time;
        let place = self.random.usize(..self.schedulers.len());
        let scheduler = &mut self.schedulers[place];
        match self.random.u8(..7) {
            0 => scheduler.stopped = until,
            1 => scheduler.mute = until,
            2 => scheduler.deaf = until,
            3 => (scheduler.mute, scheduler.deaf) = (until, until),
            // A change of etcd's leader.
            4 => self.etcd.lost = self.now + time / 4,
            // Killed, and started again later.
            5 => {
                scheduler.life += 1;
                scheduler.stopped = until;
                self.after(time, Event::Restart(place));
            }
            _ => {
                let now = local(self.now, scheduler.pace);
                scheduler.election.resign(now);
                // Whatever it does is done as soon as it runs.
                self.after(Duration::ZERO, Event::Timer(place));
            }
        }
        let next = self.up_to(Duration::from_secs(6));
        self.after(next, Event::Fault);
    }
}

/// What a scheduler's clock shows.
fn local(now: Duration, pace: u32) -> Duration {
    now * pace / 100
}
