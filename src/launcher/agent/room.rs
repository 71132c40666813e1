//! Room: how much of what the node has may be handed out, what of that is left, and whether a workload fits.
//!
//! The scheduler's word on ratios, reserved amounts and accounting counts (NodeCapacity), so that a START for which it
//! counted room is not refused here. Until it is heard on a connection, the launcher's own flags do.

use std::collections::BTreeMap;
use std::time::Instant;

use proto_frames::payload::{Configuration, CountedAs, NodeCapacity, Payload, PayloadError};
use tracing::{info, warn};

use super::ends::MAX_UNRECORDED_ENDS;
use super::instances::Instance;
use super::roster::Sums;
use super::{Agent, Demand, HostFigures, MAX_INSTANCES};

/// What the cluster configuration says is limited; everything unless it says otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Limits {
    mem: bool,
    disk: bool,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            mem: true,
            disk: true,
        }
    }
}

impl Limits {
    /// As the payload of CONNECTED says; one that is empty or cannot be read says nothing.
    pub(super) fn from_configuration(payload: &[u8]) -> Self {
        match Configuration::decode(payload) {
            Ok(cluster) => Self {
                mem: cluster.launcher.mem_limit,
                disk: cluster.launcher.disk_limit,
            },
            Err(error) => {
                warn!(event = "configuration_unreadable", %error, "cluster configuration cannot be read; defaults are used");
                Self::default()
            }
        }
    }
}

/// One resource of the node: what there is, what is offered of it, what instances count as.
#[derive(Debug, Clone, Copy)]
struct Pool {
    total: i64,
    available: i64,
    ratio: f64,
    reserved: i64,
    /// What instances may still come to use.
    held: i128,
    /// What they count as in all.
    counted: i128,
}

impl Pool {
    /// What is left of it, as the scheduler works it out: what is available, scaled, less what is held; and no more than
    /// what is offered in all less what instances count as.
    fn free(self) -> i64 {
        if self.available < 0 {
            return i64::MIN;
        }
        if self.total < 0 {
            let available = self.available.saturating_sub(self.reserved);
            return less(available, self.held);
        }
        let offered = scaled(self.total.saturating_sub(self.reserved), self.ratio);
        let available = self.available.saturating_add(offered - self.total);
        less(available, self.held).min(less(offered, self.counted))
    }
}

impl Agent {
    /// Whether there is room for `demand`; what is lacking if not.
    pub(super) fn check_room(&self, demand: &Demand) -> Result<(), String> {
        if self.instances.sums().live >= MAX_INSTANCES {
            return Err(format!(
                "the node runs {MAX_INSTANCES} instances, its limit"
            ));
        }
        if self.ends.len() >= MAX_UNRECORDED_ENDS {
            return Err(format!(
                "the scheduler has not recorded the ends of {MAX_UNRECORDED_ENDS} instances yet, as many as the node keeps"
            ));
        }
        self.check_amounts(demand)
    }

    /// Whether `demand` is free, for an instance that is here already; what is lacking if not.
    pub(super) fn check_amounts(&self, demand: &Demand) -> Result<(), String> {
        let host = self
            .host
            .as_ref()
            .ok_or("the node has not looked at its resources yet")?;
        let free = self.free(host);
        let lacks = |what: &str, asked: i64, free: i64| match asked > free.max(0) {
            true => Err(format!("{what}: asks {asked}, {} free", free.max(0))),
            false => Ok(()),
        };
        if self.limits.mem {
            lacks("mem_mb", demand.mem_mb, free.mem_mb)?;
        }
        if self.limits.disk {
            lacks("disk_mb", demand.disk_mb, free.disk_mb)?;
        }
        lacks("vcpus", demand.vcpus, free.vcpus)?;
        demand
            .resources
            .iter()
            .try_for_each(|(name, &asked)| lacks(name, asked, self.left_of(name)))
    }

    /// Whether no workload at all fits any more.
    pub(super) fn is_full(&self, host: &HostFigures) -> bool {
        let free = self.free(host);
        self.fault().is_some()
            || (self.limits.mem && free.mem_mb <= 0)
            || free.vcpus <= 0
            || (self.limits.disk && host.disk_total_mb != 0 && host.disk_available_mb == 0)
            || self.instances.sums().live >= MAX_INSTANCES
            || self.ends.len() >= MAX_UNRECORDED_ENDS
    }

    /// Instances that hold what they asked for.
    pub(super) fn live(&self) -> impl Iterator<Item = (&String, &Instance)> {
        self.instances
            .iter()
            .filter(|(_, instance)| instance.is_live())
    }

    /// NodeCapacity: what the scheduler counts by from now on.
    pub(super) fn capacity_received(
        &mut self,
        now: Instant,
        told: Result<Box<NodeCapacity>, PayloadError>,
    ) {
        let told = match told {
            Ok(told) => told,
            Err(error) => {
                return warn!(event = "command_unreadable", %error, "unreadable NodeCapacity ignored");
            }
        };
        let reserved = [
            told.reserved_mem_mb,
            told.reserved_disk_mb,
            told.reserved_cpus,
        ];
        if reserved.into_iter().any(|amount| amount < 0) {
            return warn!(
                event = "capacity_ignored",
                "NodeCapacity ignored: it reserves less than nothing"
            );
        }
        self.limits = Limits {
            mem: told.mem_limit,
            disk: told.disk_limit,
        };
        if self.capacity.as_ref() != Some(&*told) {
            info!(
                event = "capacity_changed",
                cpu_ratio = told.cpu_ratio.value(),
                mem_ratio = told.mem_ratio.value(),
                disk_ratio = told.disk_ratio.value(),
                accounting = told.accounting.as_str(),
                "the scheduler says what this node offers"
            );
            self.capacity = Some(*told);
            // It may have called itself full by other rules.
            self.report_soon(now);
        }
    }

    /// How much of a further resource no instance has; below 0 where a restart gave the node less of it.
    fn left_of(&self, name: &str) -> i64 {
        let all = &self.settings.features.resources;
        let held = self
            .live()
            .map(|(_, instance)| {
                instance.held(|demand| demand.resources.get(name).copied().unwrap_or(0))
            })
            .fold(0_i64, i64::saturating_add);
        all.get(name).copied().unwrap_or(0).saturating_sub(held)
    }

    /// What is not allotted, but for further resources.
    fn free(&self, host: &HostFigures) -> Demand {
        match &self.capacity {
            Some(capacity) => self.free_by(host, capacity),
            None => self.free_by_flags(host),
        }
    }

    /// The same by the launcher's own flags: what is available less what instances may still come to use, so that memory
    /// they use already, which `mem_available_mb` shows, is not counted twice.
    fn free_by_flags(&self, host: &HostFigures) -> Demand {
        let Sums {
            measured,
            unmeasured,
            ..
        } = self.instances.sums();
        let held = measured.plus(unmeasured);
        let vcpus = scaled(host.cpus_online, self.settings.cpu_ratio);
        Demand {
            mem_mb: less(host.mem_available_mb, held.unused_mem),
            disk_mb: less(host.disk_available_mb, held.unused_disk),
            vcpus: less(vcpus, held.vcpus),
            resources: BTreeMap::new(),
        }
    }

    /// The same by the scheduler's rules.
    ///
    /// With measured accounting it counts what runs by a percentile of what that used for some time. Here it counts as
    /// the least that can come of that, what it uses now and one vcpu: this is a check that the rules are kept, and never
    /// refuses what was placed by them.
    fn free_by(&self, host: &HostFigures, capacity: &NodeCapacity) -> Demand {
        let sums = self.instances.sums();
        let (held, measured_vcpus) = match capacity.accounting == CountedAs::Measured {
            true => (sums.unmeasured, sums.measured.vcpus_at_most_one),
            false => (sums.measured.plus(sums.unmeasured), 0),
        };
        let mem = Pool {
            total: host.mem_total_mb,
            available: host.mem_available_mb,
            ratio: capacity.mem_ratio.value(),
            reserved: capacity.reserved_mem_mb,
            held: held.unused_mem,
            counted: held.mem,
        };
        let disk = Pool {
            total: host.disk_total_mb,
            available: host.disk_available_mb,
            ratio: capacity.disk_ratio.value(),
            reserved: capacity.reserved_disk_mb,
            held: held.unused_disk,
            counted: held.disk,
        };
        let cpus = host.cpus_online.saturating_sub(capacity.reserved_cpus);
        let vcpus = scaled(cpus, capacity.cpu_ratio.value());
        Demand {
            mem_mb: mem.free(),
            disk_mb: disk.free(),
            vcpus: less(vcpus, held.vcpus + measured_vcpus),
            resources: BTreeMap::new(),
        }
    }
}

/// What is left of an amount.
fn less(amount: i64, held: i128) -> i64 {
    let left = i128::from(amount) - held;
    i64::try_from(left).unwrap_or(if left < 0 { i64::MIN } else { i64::MAX })
}

/// What so much offers with this ratio.
fn scaled(amount: i64, ratio: f64) -> i64 {
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        reason = "amounts are below 2^53, and a part of one is none"
    )]
    let offered = (amount.max(0) as f64 * ratio) as i64;
    offered
}
