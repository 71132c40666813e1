//! Controllers: they send STARTs and commands, and each keeps what it hears. Which STARTs were sent all of them know, as
//! from a database that they share.

mod orders;

use std::collections::{BTreeMap, BTreeSet};

use proto_frames::payload::{
    Delete, Evacuate, InstanceDeleted, InstanceStopped, Payload, Restore, Start, StartFailure, peek,
};
use proto_frames::{Encoding, Frame, Kind, Message};

use crate::agenda::Event;
use crate::facts::{Fact, News};
use crate::liar;
use crate::names;
use crate::network::{Link, Peer};
use crate::work;
use crate::world::World;

/// How long a controller is away after a crash, at most, in ms.
const AWAY_MS: u64 = 10_000;

/// One controller.
#[derive(Debug)]
pub(crate) struct Controller {
    pub(crate) encoding: Encoding,
    is_up: bool,
    link: Option<Link>,
    /// Whether CONNECTED came on that connection.
    is_connected: bool,
    pub(crate) view: View,
}

/// What a controller makes of what it heard since it came up.
#[derive(Debug, Default)]
pub(crate) struct View {
    /// What runs on each machine, by its latest STATS.
    pub(crate) on: BTreeMap<usize, BTreeSet<u32>>,
    /// Failures of STARTs, by instance.
    failed: BTreeMap<u32, u32>,
}

/// A START as the controllers remember it.
#[derive(Debug)]
pub(crate) struct Sent {
    pub(crate) start: Start,
    /// Whether it was asked for on a machine of its own later.
    pub(crate) is_pinned: bool,
    /// Whether it is a job, which ends by itself.
    pub(crate) is_job: bool,
    /// How often it was sent.
    pub(crate) times: u32,
}

impl Controller {
    pub(crate) fn new(encoding: Encoding) -> Self {
        Self {
            encoding,
            is_up: false,
            link: None,
            is_connected: false,
            view: View::default(),
        }
    }

    /// Its connection, if frames can be sent on it.
    pub(crate) fn link(&self) -> Option<Link> {
        self.link.filter(|_| self.is_connected)
    }
}

impl View {
    /// The machines that list an instance.
    pub(crate) fn machines_of(&self, instance: u32) -> impl Iterator<Item = usize> {
        let with_it = self.on.iter();
        with_it
            .filter(move |(_, instances)| instances.contains(&instance))
            .map(|(machine, _)| *machine)
    }
}

impl World {
    pub(crate) fn controller_starts(&mut self, number: usize) {
        let controller = &mut self.controllers[number];
        if !controller.is_up {
            controller.is_up = true;
            controller.view = View::default();
            self.dial(Peer::Controller(number));
        }
    }

    pub(crate) fn controller_crashes(&mut self, number: usize) {
        let controller = &mut self.controllers[number];
        if !std::mem::take(&mut controller.is_up) {
            return;
        }
        controller.is_connected = false;
        let link = controller.link.take();
        self.note(format_args!("controller {number} crashes"));
        if let Some(link) = link {
            self.let_go(link);
        }
        let back = self.within_ms(AWAY_MS);
        self.agenda.put(back, Event::ControllerReturns(number));
    }

    pub(crate) fn controller_dials(&mut self, number: usize) {
        let controller = &self.controllers[number];
        if controller.is_up && controller.link.is_none() {
            let link = self.open(Peer::Controller(number));
            self.controllers[number].link = Some(link);
        }
    }

    pub(crate) fn controller_is_cut_off(&mut self, number: usize, link: Link) {
        let controller = &mut self.controllers[number];
        if controller.link == Some(link) {
            controller.link = None;
            controller.is_connected = false;
            self.dial(Peer::Controller(number));
        }
    }

    /// A controller connects again without having lost its connection, which the scheduler ends then.
    pub(crate) fn controller_connects_twice(&mut self, number: usize) {
        if self.controllers[number].link().is_some() {
            let link = self.open(Peer::Controller(number));
            let controller = &mut self.controllers[number];
            controller.is_connected = false;
            if let Some(older) = controller.link.replace(link) {
                self.note(format_args!(
                    "controller {number} leaves {older:?} for {link:?}"
                ));
            }
        }
    }

    /// Sends a START that was not sent before.
    pub(crate) fn start(&mut self, number: usize, instance: u32, start: Start) {
        self.starts.insert(
            instance,
            Sent {
                start,
                is_pinned: false,
                is_job: false,
                times: 0,
            },
        );
        self.start_again(number, instance, false);
    }

    /// Sends a START once more, as it was or as a restart.
    pub(crate) fn start_again(&mut self, number: usize, instance: u32, restart: bool) {
        if let Some(sent) = self.starts.get_mut(&instance) {
            sent.start.restart = restart;
            let payload = work::payload(&sent.start);
            self.send_start(number, instance, payload);
        }
    }

    /// Sends a START once more, as one of a batch.
    pub(crate) fn start_again_in_batch(
        &mut self,
        number: usize,
        instance: u32,
        id: u32,
        count: u32,
    ) {
        if let Some(sent) = self.starts.get(&instance) {
            let payload = work::payload(&work::in_batch(sent.start.clone(), id, count));
            self.send_start(number, instance, payload);
        }
    }

    fn send_start(&mut self, number: usize, instance: u32, payload: bytes::Bytes) {
        let Some(sent) = self.starts.get_mut(&instance) else {
            return;
        };
        if let Some(link) = self.controllers[number].link() {
            sent.times += 1;
            self.note(format_args!("controller {number} starts {instance}"));
            self.facts.push(Fact::Sent { instance });
            self.send_up(
                link,
                Frame::new(Kind::START, Peer::Controller(number).uuid(), payload),
            );
        }
    }

    /// Has an instance deleted, or removed from its machine only.
    pub(crate) fn delete(&mut self, number: usize, instance: u32, machine: usize, stop: bool) {
        let delete = Delete {
            instance_uuid: names::instance_uuid(instance),
            workload_agent_uuid: names::machine_uuid(machine).to_string(),
            stop,
            ..Delete::default()
        };
        self.note(format_args!(
            "controller {number} deletes {instance} on {machine}"
        ));
        self.command(number, Kind::DELETE, delete.encode());
    }

    pub(crate) fn evacuate(&mut self, number: usize, machine: usize) {
        let evacuate = Evacuate {
            workload_agent_uuid: names::machine_uuid(machine).to_string(),
            ..Evacuate::default()
        };
        self.note(format_args!("controller {number} evacuates {machine}"));
        self.command(number, Kind::EVACUATE, evacuate.encode());
    }

    pub(crate) fn restore(&mut self, number: usize, machine: usize) {
        let restore = Restore {
            workload_agent_uuid: names::machine_uuid(machine).to_string(),
            ..Restore::default()
        };
        self.note(format_args!("controller {number} restores {machine}"));
        self.command(number, Kind::RESTORE, restore.encode());
    }

    pub(crate) fn command(&mut self, number: usize, kind: Kind, payload: bytes::Bytes) {
        if let Some(link) = self.controllers[number].link() {
            self.send_up(
                link,
                Frame::new(kind, Peer::Controller(number).uuid(), payload),
            );
        }
    }

    /// A frame reaches a controller.
    pub(crate) fn controller_receives(&mut self, number: usize, message: Message) {
        let frame = match message {
            Message::Connected(_) => {
                self.controllers[number].is_connected = true;
                self.facts.push(Fact::Connected { controller: number });
                return;
            }
            Message::Frame(frame) => frame,
            Message::Connect(_) => unreachable!("a client's decoder hands out none"),
        };
        if liar::is_of_liar(&frame) {
            return self.controller_hears_liar(number, &frame);
        }
        if frame.kind == Kind::STATS {
            return self.controller_hears_stats(number, &frame);
        }
        if let Some((instance, news)) = news_of(&frame) {
            self.note(format_args!(
                "controller {number} hears of {instance}: {news:?}"
            ));
            if news == News::Failed {
                *self.controllers[number]
                    .view
                    .failed
                    .entry(instance)
                    .or_default() += 1;
            }
            self.heard(number, instance, news);
        }
    }

    fn controller_hears_stats(&mut self, number: usize, frame: &Frame) {
        let stats = peek::stats(&frame.payload).expect("launchers write STATS well");
        let machine = names::machine_of(&stats.node_uuid).expect("machines are named here");
        let instances = stats.instances.iter();
        let listed: BTreeSet<u32> = instances
            .filter_map(|it| names::instance_of(&it.instance_uuid))
            .collect();
        let view = &mut self.controllers[number].view;
        let before = view.on.insert(machine, listed.clone()).unwrap_or_default();
        for &instance in listed.difference(&before) {
            self.heard(number, instance, News::Listed);
        }
        for instance in listed {
            // Everybody was told that it failed, and here it is: its node was lost for too long, and came back with it.
            let has_failed = self.controllers[number].view.failed.get(&instance);
            let sent = self.starts.get(&instance).map(|sent| sent.times);
            if sent.is_some() && has_failed >= sent.as_ref() && self.master() == Some(number) {
                self.delete(number, instance, machine, false);
            }
        }
    }

    fn heard(&mut self, controller: usize, instance: u32, news: News) {
        let fact = Fact::Heard {
            controller,
            instance,
            news,
        };
        self.facts.push(fact);
    }
}

/// The number of the end that a frame tells.
pub(crate) fn end_of(frame: &Frame) -> Option<u64> {
    let payload = &frame.payload;
    match frame.kind {
        Kind::START_FAILURE => StartFailure::decode(payload).ok()?.seq,
        Kind::INSTANCE_STOPPED => InstanceStopped::decode(payload).ok()?.seq,
        Kind::INSTANCE_DELETED => InstanceDeleted::decode(payload).ok()?.seq,
        _ => None,
    }
}

/// What a frame says became of an instance; STATS, which speak of many, aside.
pub(crate) fn news_of(frame: &Frame) -> Option<(u32, News)> {
    let payload = &frame.payload;
    let (uuid, news) = match frame.kind {
        Kind::START_FAILURE => {
            let failure = StartFailure::decode(payload).ok()?;
            let news = match failure.reason.is_fatal() {
                true => News::Failed,
                false => News::There,
            };
            (failure.instance_uuid, news)
        }
        Kind::INSTANCE_STOPPED => {
            let gone = InstanceStopped::decode(payload).ok()?;
            (gone.instance_uuid, News::Gone)
        }
        Kind::INSTANCE_DELETED => {
            let gone = InstanceDeleted::decode(payload).ok()?;
            (gone.instance_uuid, News::Gone)
        }
        _ => return None,
    };
    Some((names::instance_of(&uuid)?, news))
}
