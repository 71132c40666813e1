//! START: what a workload is and what it needs.
//!
//! The payload is a stream of YAML documents, of which the first is this one; what follows it (cloud-init data,
//! metadata) is for the launcher.

use std::collections::BTreeMap;

use bytes::Bytes;
use sched_model::image::MAX_MORE_IMAGES;
use sched_model::value::ValueWriter;
use sched_model::{Digest, record};

use super::document::Payload;
use super::emit::Emitter;
use super::error::{Fault, PayloadError};
use super::guard::{self, SMALL};
use super::locate::locate;
use super::read;
use super::requested_resources::RequestedResource;
use super::scheduling::Scheduling;
use super::span::Span;

/// MiB in a GiB: storage is asked for in GiB, accounted in MiB.
pub(super) const MIB_PER_GIB: i64 = 1024;

record! {
    /// A START: `start: {tenant_uuid, instance_uuid, …}`.
    pub struct Start {
        /// The tenant the instance belongs to.
        tenant_uuid: String as "tenant_uuid",
        /// The instance, never empty in a START that was decoded.
        instance_uuid: String as "instance_uuid",
        /// Image of a container.
        docker_image: String as "docker_image",
        /// Firmware of a virtual machine: `efi` or `legacy`.
        fw_type: String as "fw_type",
        /// When the instance is to be started again: `all`, `vm` or `host`.
        persistence: String as "persistence",
        /// What runs it: `qemu`, `docker`, or this project's `process`.
        vm_type: String as "vm_type",
        /// How it is connected.
        networking: Networking as "networking",
        /// Its disks.
        storage: Vec<Storage> as "storage" unless empty,
        /// What it needs of a node.
        requirements: Requirements as "requirements",
        /// Whether an existing instance is to be started again.
        restart: bool as "restart",
        /// The program, as `ciaoctl push` prints its digest: `command` is its arguments then (`vm_type: process`; added by
        /// this project).
        image: String as "image" unless empty,
        /// Further files that it needs, by their digests: at most [`MAX_MORE_IMAGES`], and only beside `image` (added by
        /// this project).
        more_images: Vec<String> as "more_images" unless empty,
        /// Program and arguments (`vm_type: process`; added by this project).
        command: Vec<String> as "command" unless empty,
        /// Environment of the program (added by this project).
        env: BTreeMap<String, String> as "env" unless empty,
        /// Directory the program starts in (added by this project).
        working_dir: String as "working_dir" unless empty,
        /// How it is to be placed (added by this project).
        scheduling: Option<Scheduling> as "scheduling" unless empty,
        /// How much of `scheduling.time_limit` it has used up on other nodes: said by the scheduler when it moves it (added
        /// by this project).
        time_used: Option<Span> as "time_used" unless empty,
        /// What it needs, as STARTs said it until November 2017; empty in one that was decoded, which has it in
        /// `requirements` and `storage`.
        requested_resources: Vec<RequestedResource> as "requested_resources" unless empty,
    }
}

record! {
    /// How an instance is connected to its tenant's network.
    pub struct Networking {
        /// Hardware address of its interface.
        vnic_mac: String as "vnic_mac",
        /// Id of its interface.
        vnic_uuid: String as "vnic_uuid",
        /// Its concentrator instance.
        concentrator_uuid: String as "concentrator_uuid",
        /// Address of the concentrator.
        concentrator_ip: String as "concentrator_ip",
        /// Its subnet.
        subnet: String as "subnet",
        /// Number of the subnet, as text.
        subnet_key: String as "subnet_key",
        /// Id of the subnet.
        subnet_uuid: String as "subnet_uuid",
        /// Its address within the tenant's network.
        private_ip: String as "private_ip",
        /// Whether a public address is assigned to it.
        public_ip: bool as "public_ip",
    }
}

record! {
    /// One disk of an instance.
    pub struct Storage {
        /// Volume, where there is one already.
        id: String as "id" unless empty,
        /// Whether it can be booted from.
        boot: bool as "boot" unless empty,
        /// Place in the boot order.
        boot_index: i64 as "boot_index" unless empty,
        /// Whether it goes when the instance goes.
        ephemeral: bool as "ephemeral" unless empty,
        /// Whether it is on the node's own disk.
        local: bool as "local" unless empty,
        /// Whether it is meant for swapping.
        swap: bool as "swap" unless empty,
        /// Any text.
        tag: String as "tag" unless empty,
        /// Size, GiB.
        size: i64 as "size" unless empty,
    }
}

record! {
    /// What an instance needs of a node.
    pub struct Requirements {
        /// Memory, MiB.
        mem_mb: i64 as "mem_mb",
        /// Virtual CPUs.
        vcpus: i64 as "vcpus",
        /// The node it must run on; empty for any.
        node_id: String as "node_id" unless empty,
        /// Host name of the node it must run on; empty for any.
        hostname: String as "hostname" unless empty,
        /// Whether it must run on a network node rather than a compute node.
        network_node: bool as "network_node" unless empty,
        /// Whether it runs with the host's privileges.
        privileged: bool as "privileged" unless empty,
    }
}

impl Payload for Start {
    /// Reads the first document of a START payload.
    ///
    /// # Errors
    /// Names the key, the place and what is wrong: beside what cannot be read, an empty `instance_uuid`, a negative
    /// amount, local disks that add up to more than 64 bits of MiB, and what makes no sense in `scheduling` or is no key
    /// there.
    fn decode(payload: &[u8]) -> Result<Self, PayloadError> {
        let start = Self::decode_template(payload)?;
        if start.instance_uuid.is_empty() {
            let document = guard::first_document(payload, SMALL)?;
            return Err(locate(document, missing_instance()));
        }
        Ok(start)
    }

    /// Writes the document as original controllers write it, without the ones that may follow it.
    fn encode(&self) -> Bytes {
        let mut out = Emitter::new();
        out.write_field("start", self);
        out.finish()
    }
}

impl Start {
    /// Reads the first document of a START that may have no `instance_uuid` yet: then it is empty.
    ///
    /// # Errors
    /// As [`Start::decode`] otherwise.
    pub fn decode_template(payload: &[u8]) -> Result<Self, PayloadError> {
        let (mut start, unknown): (Self, _) = read::decode_noting("start", payload, SMALL)?;
        let taken = start.take_requested_resources();
        let scheduling = || start.scheduling.as_ref().map_or(Ok(()), Scheduling::check);
        let checked = taken.and_then(|()| start.check_amounts());
        if let Err(error) = checked.and_then(|()| scheduling()) {
            let document = guard::first_document(payload, SMALL)?;
            return Err(locate(document, error));
        }
        unknown.map_or(Ok(start), Err)
    }

    /// Reads the first document of a START that a scheduler has placed, for who is to run it: whether `scheduling` makes
    /// sense was the scheduler's to say, and that of a newer one may make none here.
    ///
    /// # Errors
    /// As [`Start::decode`], but for what makes no sense in `scheduling` or is no key there.
    pub fn decode_placed(payload: &[u8]) -> Result<Self, PayloadError> {
        let mut start: Self = read::decode_under("start", payload, SMALL)?;
        let taken = start.take_requested_resources();
        let named = match start.instance_uuid.as_str() {
            "" => Err(missing_instance()),
            _ => Ok(()),
        };
        let named = named.and(taken);
        if let Err(error) = named.and_then(|()| start.check_amounts()) {
            let document = guard::first_document(payload, SMALL)?;
            return Err(locate(document, error));
        }
        Ok(start)
    }

    /// Disk demand on the node: the sizes of all local disks, MiB; `None` beyond 64 bits.
    #[must_use]
    pub fn disk_mib(&self) -> Option<i64> {
        self.storage
            .iter()
            .filter(|disk| disk.local)
            .try_fold(0_i64, |sum, disk| add_disk(sum, disk.size))
    }

    fn check_amounts(&self) -> Result<(), PayloadError> {
        let not_negative = |key: &str, value: i64| {
            if value < 0 {
                Err(PayloadError::new(key, Fault::Negative(value)))
            } else {
                Ok(())
            }
        };
        not_negative("start.requirements.mem_mb", self.requirements.mem_mb)?;
        not_negative("start.requirements.vcpus", self.requirements.vcpus)?;
        for (index, disk) in self.storage.iter().enumerate() {
            not_negative(&format!("start.storage[{index}].size"), disk.size)?;
        }
        if !self.image.is_empty() && self.image.parse::<Digest>().is_err() {
            return Err(PayloadError::new("start.image", not_a_digest(&self.image)));
        }
        self.check_more_images()?;
        if self.disk_mib().is_none() {
            return Err(PayloadError::new("start.storage", Fault::TooLarge));
        }
        Ok(())
    }

    fn check_more_images(&self) -> Result<(), PayloadError> {
        let key = "start.more_images";
        if self.more_images.is_empty() {
            return Ok(());
        }
        if self.more_images.len() > MAX_MORE_IMAGES {
            let max = MAX_MORE_IMAGES;
            return Err(PayloadError::new(key, Fault::TooManyEntries { max }));
        }
        for (index, image) in self.more_images.iter().enumerate() {
            if image.parse::<Digest>().is_err() {
                return Err(PayloadError::new(
                    format!("{key}[{index}]"),
                    not_a_digest(image),
                ));
            }
        }
        match self.image.as_str() {
            "" => Err(PayloadError::new(key, Fault::OnlyWith { needs: "image" })),
            _ => Ok(()),
        }
    }
}

/// What is wrong with the name of an image that is no digest.
fn not_a_digest(text: &str) -> Fault {
    Fault::wrong_text("sha256: and 64 digits, as `ciaoctl push` prints them", text)
}

fn missing_instance() -> PayloadError {
    PayloadError::missing("start.instance_uuid")
}

/// A disk demand (MiB) with a disk of that size (GiB) added.
pub(super) fn add_disk(sum_mib: i64, size_gib: i64) -> Option<i64> {
    sum_mib.checked_add(size_gib.checked_mul(MIB_PER_GIB)?)
}
