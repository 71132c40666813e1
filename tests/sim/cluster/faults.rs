//! What goes wrong with schedulers, with etcd, and between them.

use std::time::Duration;

use fastrand::Rng;

use super::{AWAY_MS, ClusterEvent};
use crate::agenda::Event;
use crate::network::Server;
use crate::world::World;

/// Longest time that a fault lasts, in ms: longer than a leader waits for etcd.
const LONGEST_MS: u64 = 12_000;

/// For how long the place of a leader that hands over is kept for others.
const HAND_OVER: Duration = Duration::from_secs(8);

impl World {
    /// Something goes wrong, drawn by `chance`.
    pub(crate) fn cluster_fails(&mut self, chance: &mut Rng) {
        let time = Duration::from_millis(chance.u64(..LONGEST_MS));
        let until = self.now + time;
        let count = self.cluster_mut().processes.len();
        let any = chance.usize(..count);
        // Mostly the one that leads.
        let place = match chance.u8(..4) {
            0 => any,
            _ => self.network.serving.place,
        };
        let fault = chance.u8(..14);
        let server = self.cluster_mut().processes[place].server;
        let elapsed = self.elapsed();
        let clock = self.cluster_mut().processes[place].clock(elapsed);
        let process = &mut self.cluster_mut().processes[place];
        match fault {
            0 => process.mute = Some(until),
            1 => process.deaf = Some(until),
            2 => (process.mute, process.deaf) = (Some(until), Some(until)),
            3 => {
                process.stopped = Some(until);
                let event = ClusterEvent::GoesOn(server);
                self.agenda.put(until, Event::Cluster(event));
            }
            4 => process.cut_off = Some(until),
            5 => {
                // Half of them hand over in order.
                if time.as_millis().is_multiple_of(2) {
                    let now = self.now;
                    self.cluster_mut().etcd.reserve(now, server, HAND_OVER);
                }
                let process = &mut self.cluster_mut().processes[place];
                if let Some(election) = &mut process.election {
                    election.resign(clock);
                }
                self.settle(server);
            }
            6 => {
                let etcd = &mut self.cluster_mut().etcd;
                etcd.lost_until = Some(until);
                etcd.extend_leases(until);
            }
            7 => self.cluster_mut().etcd.full_until = Some(until),
            8 => process.blind = Some(until),
            9 => self.cluster_mut().etcd.compacts_until = Some(until),
            10 => self.cluster_mut().etcd.raise_generation(),
            // What ends its lease in its place: it has crashed, and not just been replaced.
            11 => self.process_is_released(server),
            _ => self.process_crashes(server),
        }
        self.note(format_args!("fault {fault} of {server:?} for {time:?}"));
        if fault == 4 {
            self.cut_off(server);
        }
    }

    /// The process of a scheduler crashes, and its lease is ended for it.
    fn process_is_released(&mut self, server: Server) {
        self.process_crashes(server);
        self.cluster_mut().etcd.release(server);
        self.follow_etcd();
    }

    /// The process of a scheduler crashes, and is started again.
    pub(crate) fn process_crashes(&mut self, server: Server) {
        self.process_ends(server);
        let at = self.within_ms(AWAY_MS);
        let event = ClusterEvent::Starts(server.place);
        self.agenda.put(at, Event::Cluster(event));
    }
}
