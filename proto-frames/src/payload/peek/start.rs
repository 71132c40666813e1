//! What the scheduler needs to know of a START.

use std::borrow::Cow;

use super::figures::borrowed;
use super::scheduling;
use super::walk::{Found, Place, Sink, walk};
use crate::payload::document::Payload;
use crate::payload::error::PayloadError;
use crate::payload::guard::SMALL;
use crate::payload::scheduling::Scheduling;
use crate::payload::span::Span;
use crate::payload::start::{Start, add_disk};
use sched_model::Digest;
use sched_model::image::MAX_MORE_IMAGES;
use sched_model::value::{Field, Value};

/// A START as far as placing it goes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StartPeek<'a> {
    /// The instance, never empty.
    pub instance_uuid: Cow<'a, str>,
    /// Memory, MiB, not negative.
    pub mem_mb: i64,
    /// Virtual CPUs, not negative.
    pub vcpus: i64,
    /// Local disk, MiB, not negative.
    pub disk_mib: i64,
    /// The node it must run on.
    pub node_id: Option<Cow<'a, str>>,
    /// Host name of the node it must run on.
    pub hostname: Option<Cow<'a, str>>,
    /// Whether it must run on a network node rather than a compute node.
    pub network_node: bool,
    /// Whether it is an existing instance that is to be started again.
    pub restart: bool,
    /// The tenant it belongs to; empty for none.
    pub tenant_uuid: Cow<'a, str>,
    /// Image of a container; empty for none.
    pub docker_image: Cow<'a, str>,
    /// The digest of its program; `None` for none.
    pub image: Option<Digest>,
    /// The digests of the further files that it needs; none without a program.
    pub more_images: Vec<Digest>,
    /// What runs it; empty where it does not say.
    pub vm_type: Cow<'a, str>,
    /// The volumes and the port that it uses, by id, in order of mention; those that are empty are left out.
    pub volumes: Vec<Cow<'a, str>>,
    /// How it is to be placed.
    pub scheduling: Option<Box<Scheduling>>,
}

/// Reads what placing a START needs; the same as [`Start::decode`] says, errors included.
///
/// # Errors
/// As [`Start::decode`].
pub fn start(payload: &[u8]) -> Result<StartPeek<'_>, PayloadError> {
    match quick(payload) {
        Some(peek) => Ok(peek),
        None => Start::decode(payload).map(StartPeek::from),
    }
}

impl From<Start> for StartPeek<'_> {
    /// What `start` would have seen; a disk demand beyond 64 bits, which no decoded START has, is the largest number.
    fn from(mut start: Start) -> Self {
        let not_empty = |text: String| (!text.is_empty()).then_some(Cow::Owned(text));
        let volumes = start
            .storage
            .iter_mut()
            .map(|it| std::mem::take(&mut it.id));
        let port = std::mem::take(&mut start.networking.vnic_uuid);
        let volumes = volumes.chain([port]).filter_map(not_empty).collect();
        Self {
            disk_mib: start.disk_mib().unwrap_or(i64::MAX),
            instance_uuid: Cow::Owned(start.instance_uuid),
            mem_mb: start.requirements.mem_mb,
            vcpus: start.requirements.vcpus,
            node_id: not_empty(start.requirements.node_id),
            hostname: not_empty(start.requirements.hostname),
            network_node: start.requirements.network_node,
            restart: start.restart,
            tenant_uuid: Cow::Owned(start.tenant_uuid),
            docker_image: Cow::Owned(start.docker_image),
            image: start.image.parse().ok(),
            more_images: digests(&start.more_images),
            vm_type: Cow::Owned(start.vm_type),
            volumes,
            scheduling: start.scheduling.map(Box::new),
        }
    }
}

/// Those of these texts that are digests, which all are in a START that was decoded.
fn digests(texts: &[String]) -> Vec<Digest> {
    texts.iter().filter_map(|it| it.parse().ok()).collect()
}

static ROOT: [Field; 1] = [Field {
    key: "start",
    shape: Start::SHAPE,
}];

/// The plain style alone; `None` also for all that [`Start::decode`] refuses.
pub(super) fn quick(payload: &[u8]) -> Option<StartPeek<'_>> {
    let mut sink = StartSink::default();
    walk(payload, &ROOT, SMALL, &mut sink)?;
    sink.end_disk()?;
    let (mut peek, port) = (sink.peek, sink.port);
    peek.volumes.extend(port);
    if let Some(scheduling) = &peek.scheduling {
        scheduling.check().ok()?;
    }
    if peek.image.is_none() && !peek.more_images.is_empty() {
        return None;
    }
    (!peek.instance_uuid.is_empty() && peek.mem_mb >= 0 && peek.vcpus >= 0).then_some(peek)
}

#[derive(Default)]
struct StartSink<'a> {
    peek: StartPeek<'a>,
    /// The disk being read.
    disk: Disk,
    /// Its port, which comes behind the disks wherever it was written.
    port: Option<Cow<'a, str>>,
}

#[derive(Default)]
struct Disk {
    local: bool,
    size: i64,
}

impl StartSink<'_> {
    fn end_disk(&mut self) -> Option<()> {
        let disk = std::mem::take(&mut self.disk);
        if disk.size < 0 {
            return None;
        }
        if disk.local {
            self.peek.disk_mib = add_disk(self.peek.disk_mib, disk.size)?;
        }
        Some(())
    }
}

impl<'a> Sink<'a> for StartSink<'a> {
    fn found(&mut self, at: &Place<'a>, what: Found<'a>) -> Option<()> {
        match at.record {
            "start" => self.direct(at.key, what),
            "requirements" => self.requirement(at.key, what),
            "storage" => self.storage(at.key, what),
            "networking" => self.networking(at.key, what),
            "more_images" => self.more_image(&what),
            // Of few controllers by now: the full parser translates it.
            "requested_resources" => None,
            _ => self.scheduling(at, &what),
        }
    }
}

impl<'a> StartSink<'a> {
    fn direct(&mut self, key: &str, what: Found<'a>) -> Option<()> {
        match (key, what) {
            ("instance_uuid", Found::Text(text)) => self.peek.instance_uuid = borrowed(text)?,
            ("tenant_uuid", Found::Text(text)) => self.peek.tenant_uuid = borrowed(text)?,
            ("docker_image", Found::Text(text)) => self.peek.docker_image = borrowed(text)?,
            ("image", Found::Text(b"")) => self.peek.image = None,
            ("image", Found::Text(text)) => {
                self.peek.image = Some(std::str::from_utf8(text).ok()?.parse().ok()?);
            }
            ("vm_type", Found::Text(text)) => self.peek.vm_type = borrowed(text)?,
            ("restart", Found::Bool(restart)) => self.peek.restart = restart,
            // For the launcher; but it must be one.
            ("time_used", Found::Text(text)) => {
                std::str::from_utf8(text).ok()?.parse::<Span>().ok()?;
            }
            _ => {}
        }
        Some(())
    }

    fn storage(&mut self, key: &str, what: Found<'a>) -> Option<()> {
        match (key, what) {
            (_, Found::Mapping) => return self.end_disk(),
            ("local", Found::Bool(local)) => self.disk.local = local,
            ("size", Found::Int(size)) => self.disk.size = size,
            ("id", Found::Text(id)) if !id.is_empty() => self.peek.volumes.push(borrowed(id)?),
            _ => {}
        }
        Some(())
    }

    fn networking(&mut self, key: &str, what: Found<'a>) -> Option<()> {
        if let ("vnic_uuid", Found::Text(id)) = (key, what) {
            self.port = (!id.is_empty()).then(|| borrowed(id)).flatten();
        }
        Some(())
    }

    fn more_image(&mut self, what: &Found<'a>) -> Option<()> {
        if let Found::Text(text) = what {
            let images = &mut self.peek.more_images;
            if images.len() == MAX_MORE_IMAGES {
                return None;
            }
            images.push(std::str::from_utf8(text).ok()?.parse().ok()?);
        }
        Some(())
    }

    /// Takes it in if it belongs to `scheduling`, which begins with that there is one.
    fn scheduling(&mut self, at: &Place<'a>, what: &Found<'a>) -> Option<()> {
        if matches!(what, Found::Mapping) && at.record == "scheduling" {
            self.peek.scheduling = Some(Box::default());
        }
        match &mut self.peek.scheduling {
            Some(scheduling) => scheduling::found(scheduling, at, what),
            None => Some(()),
        }
    }

    fn requirement(&mut self, key: &str, what: Found<'a>) -> Option<()> {
        let not_empty = |text| {
            let text = std::str::from_utf8(text).ok()?;
            Some((!text.is_empty()).then_some(Cow::Borrowed(text)))
        };
        match (key, what) {
            ("mem_mb", Found::Int(mem_mb)) => self.peek.mem_mb = mem_mb,
            ("vcpus", Found::Int(vcpus)) => self.peek.vcpus = vcpus,
            ("node_id", Found::Text(text)) => self.peek.node_id = not_empty(text)?,
            ("hostname", Found::Text(text)) => self.peek.hostname = not_empty(text)?,
            ("network_node", Found::Bool(network_node)) => self.peek.network_node = network_node,
            _ => {}
        }
        Some(())
    }
}
