//! `start.requested_resources`: how a START said what it needs until ciao's payloads changed in November 2017.
//!
//! ```text
//! requested_resources:                       requirements:
//! - {type: vcpus, value: 2}                    vcpus: 2
//! - {type: mem_mb, value: 512}          =      mem_mb: 512
//! - {type: network_node, value: 1}             network_node: true
//! - {type: disk_mb, value: 2000}             storage: [{local: true, ephemeral: true, size: 2}]
//! ```
//!
//! It is read as the keys that followed it. What has none, as `physical_network`, refuses the START: it would go where it
//! cannot run.

use sched_model::cut::shorten;
use sched_model::record;

use super::error::{Fault, PayloadError};
use super::start::{MIB_PER_GIB, Start, Storage};

/// The kinds of resources that have a key of today, or need none.
const KNOWN: &[&str] = &["vcpus", "mem_mb", "disk_mb", "network_node", "compute_node"];

record! {
    /// A resource that an instance is to have.
    pub struct RequestedResource {
        /// Which one.
        kind: String as "type",
        /// How much of it; 1 or 0 where it is the kind of node.
        value: i64 as "value",
        /// The name of a network.
        value_string: String as "value_string" unless empty,
        /// Whether it must be there. The original's scheduler does not look at it.
        mandatory: bool as "mandatory",
    }
}

impl Start {
    /// Moves what `requested_resources` has to the keys of today. Where both say an amount the larger one counts.
    ///
    /// # Errors
    /// A kind that has no key of today, a negative amount, or a kind of node that is neither 0 nor 1.
    pub(super) fn take_requested_resources(&mut self) -> Result<(), PayloadError> {
        for (at, it) in std::mem::take(&mut self.requested_resources)
            .iter()
            .enumerate()
        {
            let wrong = |key: &str, fault| {
                PayloadError::new(format!("start.requested_resources[{at}].{key}"), fault)
            };
            let requirements = &mut self.requirements;
            let is_kind_of_node = matches!(&*it.kind, "network_node" | "compute_node");
            let fault = match it.value {
                value @ ..0 => Some(Fault::Negative(value)),
                value @ 2.. if is_kind_of_node => Some(Fault::OutOfRange {
                    value,
                    min: 0,
                    max: 1,
                }),
                _ => None,
            };
            if let Some(fault) = fault {
                return Err(wrong("value", fault));
            }
            match &*it.kind {
                "vcpus" => requirements.vcpus = requirements.vcpus.max(it.value),
                "mem_mb" => requirements.mem_mb = requirements.mem_mb.max(it.value),
                "disk_mb" => self.take_disk(it.value),
                "network_node" => requirements.network_node |= it.value == 1,
                "compute_node" => {}
                other => {
                    let word = shorten(other);
                    return Err(wrong("type", Fault::UnknownWord { word, known: KNOWN }));
                }
            }
        }
        Ok(())
    }

    /// Has local disks of so many MiB in all; sizes are whole GiB.
    fn take_disk(&mut self, disk_mib: i64) {
        let lacking = disk_mib.saturating_sub(self.disk_mib().unwrap_or(i64::MAX));
        if lacking > 0 {
            self.storage.push(Storage {
                local: true,
                ephemeral: true,
                size: lacking.div_euclid(MIB_PER_GIB)
                    + i64::from(lacking.rem_euclid(MIB_PER_GIB) > 0),
                ..Storage::default()
            });
        }
    }
}
