//! STARTs: what they ask for, as they come and as they were kept.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;
use proto_frames::payload::identifier::usual_form;
use proto_frames::payload::peek;
use proto_frames::{Frame, Kind, Uuid};

use super::inputs::{Unusable, text};
use super::names::{MAX_NAME_LEN, check_host_name, check_names};
use super::{head, parcels};
use sched_core::{
    CommandName, Content, InstanceId, Malformed, Resources, RestoredStart, StartRequest, TenantId,
    VmType,
};

/// Volumes and ports of one START that nodes are looked for by; further ones are passed over in placement and still
/// carried to the launcher.
const MAX_VOLUMES: usize = 32;

/// A START that was taken in before and kept in the store, read again at start. `sender` is who had sent it: the origin
/// of its frame.
///
/// # Errors
/// It cannot be read: possible where limits have changed since. The core then no longer manages the instance.
pub(in crate::server) fn kept(payload: Bytes, sender: Uuid) -> Result<RestoredStart, Malformed> {
    let request = read(&payload)
        .map_err(|unusable| head::name(unusable, CommandName::Start.into(), &payload))?;
    Ok(RestoredStart {
        request,
        parcel: parcels::parcel(Frame::new(Kind::START, sender, payload)),
    })
}

/// What a START asks for: the values that placement needs, checked, from the first document alone. The bytes themselves
/// go to the launcher unchanged, with every key that is not read here.
///
/// Where the image is named three times, the digest of a stored program counts first, then `scheduling.image`, then
/// `docker_image`; all become the text of one label.
///
/// # Errors
/// [`Unusable`], about the instance if its name could be read in spite of it.
pub(super) fn read(payload: &[u8]) -> Result<Arc<StartRequest>, Unusable> {
    let start = peek::start(payload)?;
    check_names(&[("start.instance_uuid", &start.instance_uuid)])?;
    let instance = InstanceId::new(&start.instance_uuid);
    check_names(&[
        (
            "start.requirements.node_id",
            start.node_id.as_deref().unwrap_or_default(),
        ),
        ("start.tenant_uuid", &start.tenant_uuid),
    ])
    .and_then(|()| {
        let hostname = start.hostname.as_deref().unwrap_or_default();
        check_host_name("start.requirements.hostname", hostname)
    })
    .map_err(|unusable| unusable.of(Some(instance.clone())))?;
    let wanted_image = start
        .scheduling
        .as_ref()
        .and_then(|scheduling| text(&scheduling.image));
    let image = wanted_image.or_else(|| text(&start.docker_image));
    let image = match &start.image {
        Some(digest) => Some(digest.short().into()),
        None => image.map(label_of_image),
    };
    let asked = Resources {
        mem_mib: start.mem_mb,
        vcpus: start.vcpus,
        disk_mib: start.disk_mib,
    };
    Ok(Arc::new(StartRequest {
        instance,
        asked,
        network_node: start.network_node,
        node_id: start.node_id.map(Into::into),
        hostname: start.hostname.map(Into::into),
        restart: start.restart,
        tenant: text(&start.tenant_uuid).map(TenantId::new),
        image,
        fetches_image: start.image.is_some(),
        more_images: start
            .more_images
            .iter()
            .map(|it| it.short().into())
            .collect(),
        vm_type: Some(VmType::from_name(&start.vm_type)),
        volumes: volumes(start.volumes),
        scheduling: start.scheduling,
        content: Some(Content::of(payload)),
    }))
}

/// The first of a START's volumes and ports, as many as are looked for. A name that is too long is not looked for,
/// because no node can report it; the START is not refused.
fn volumes(volumes: Vec<Cow<'_, str>>) -> Box<[Box<str>]> {
    let is_possible = |id: &Cow<'_, str>| id.len() <= MAX_NAME_LEN;
    let volumes = volumes.into_iter().filter(is_possible);
    let volumes = volumes.take(MAX_VOLUMES);
    volumes.map(|id| usual_form(&id).into()).collect()
}

/// An image's name as it stands in a label: cut to [`MAX_NAME_LEN`] characters, and each character that no name of a
/// label may have is `_`. So `registry:5000/web@sha256` is `registry_5000/web_sha256`.
pub(in crate::server) fn label_of_image(image: &str) -> Box<str> {
    let plain = |c: char| {
        if c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '/' | '-') {
            c
        } else {
            '_'
        }
    };
    image
        .chars()
        .take(MAX_NAME_LEN)
        .map(plain)
        .collect::<String>()
        .into()
}
