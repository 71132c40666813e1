//! What a frame's payload says: the few values that matter to the core, parsed outside its lock.

use bytes::Bytes;
use proto_frames::payload::Fault::{AliasExpansion, Syntax};
use proto_frames::payload::guard::{SMALL, first_document};
use proto_frames::payload::{
    AssignPublicIp, AssignPublicIpFailure, AttachVolume, AttachVolumeFailure, Configuration,
    Delete, DeleteFailure, DeleteFailureReason, InstanceDeleted, InstanceStopped, Payload,
    PayloadError, PayloadErrorKind, Query, RefreshCnci, ReleasePublicIp, Requested, StartFailure,
    TenantAdded, TenantRemoved, UNKNOWN, UnassignPublicIpFailure, Watch, peek,
};
use proto_frames::{Frame, Kind};
use serde::Deserialize;

use self::names::{BadName, check_host_name, check_names};
use crate::server::strict::Mistake;
use crate::server::{configuration, rules_file};
use sched_core::{
    Fault, InstanceId, InstanceReport, InstanceState, Malformed, Meaning, Message,
    NewConfiguration, NodeReport, Resources, StartRequest, StatsReport, Target, TenantId, VmType,
    canonical_uuid,
};

mod ends;
mod head;
mod life;
mod names;
mod node_extras;

pub(in crate::server) use self::head::of_too_long;

/// The reason given for a public address command whose concentrator's agent is not connected.
const NO_CONCENTRATOR: &str = "no_instance";

/// Bytes of an identifier or host name that are taken: what a host name may have (RFC 1035), and seven times a UUID.
/// They are kept for each instance, and repeated in answers and log lines.
pub(in crate::server) const MAX_NAME_LEN: usize = 255;

/// Bytes of where a query's answer is to go on: an identifier, and what kind of place it stands for.
const MAX_CURSOR_LEN: usize = MAX_NAME_LEN + 32;

/// What a frame says, or why that cannot be told.
pub(in crate::server) fn of(frame: &Frame) -> Meaning {
    parse(frame).unwrap_or_else(|unusable| Meaning::Malformed(head::name(unusable, &frame.payload)))
}

type Parsed = Result<Meaning, Unusable>;

/// What is wrong with a payload.
#[derive(Debug)]
enum Unusable {
    Payload(PayloadError, Option<InstanceId>),
    /// An identifier or host name is not taken: its key, and why.
    Name(&'static str, BadName, Option<InstanceId>),
    /// A label or a custom resource cannot be what it is said to be: in words.
    Extras(String),
    /// The scheduler's own part of a configuration cannot be used.
    Configuration(Mistake),
}

impl From<PayloadError> for Unusable {
    fn from(error: PayloadError) -> Self {
        Self::Payload(error, None)
    }
}

impl From<Unusable> for Malformed {
    fn from(unusable: Unusable) -> Self {
        match unusable {
            Unusable::Payload(error, instance) => Self {
                fault: match error.kind() {
                    PayloadErrorKind::InvalidPayload => Fault::Payload,
                    PayloadErrorKind::InvalidData => Fault::Data,
                },
                instance,
                detail: error.to_string().into(),
            },
            Unusable::Extras(detail) => Self {
                fault: Fault::Data,
                instance: None,
                detail: detail.into(),
            },
            Unusable::Configuration(mistake) => Self {
                fault: Fault::Data,
                instance: None,
                detail: mistake.to_string().into(),
            },
            Unusable::Name(key, bad, instance) => Self {
                fault: Fault::Data,
                instance,
                detail: format!("{key}: {bad}").into(),
            },
        }
    }
}

impl Unusable {
    /// The same about this instance.
    fn of(self, instance: Option<InstanceId>) -> Self {
        match self {
            Self::Payload(error, _) => Self::Payload(error, instance),
            Self::Name(key, bad, _) => Self::Name(key, bad, instance),
            Self::Extras(_) | Self::Configuration(_) => self,
        }
    }
}

fn parse(frame: &Frame) -> Parsed {
    let payload = &frame.payload[..];
    match frame.kind {
        Kind::START => start(payload),
        Kind::READY => ready(payload),
        Kind::STATS => stats(frame),
        Kind::FULL | Kind::OFFLINE | Kind::MAINTENANCE => Ok(Meaning::Status),
        Kind::DELETE | Kind::ATTACH_VOLUME => targeted(frame.kind, payload),
        Kind::EVACUATE
        | Kind::RESTORE
        | Kind::SUSPEND
        | Kind::RESUME
        | Kind::MIGRATE
        | Kind::UPDATE
        | Kind::COMMAND_FAILURE
        | Kind::INSTANCE_STATE => life::of(frame.kind, payload),
        Kind::CONFIGURE => configure(&frame.payload),
        Kind::ASSIGN_PUBLIC_IP
        | Kind::RELEASE_PUBLIC_IP
        | Kind::REFRESH_CNCI
        | Kind::TENANT_ADDED
        | Kind::TENANT_REMOVED => concentrator(frame.kind, payload),
        Kind::INSTANCE_DELETED => {
            let it = InstanceDeleted::decode(payload)?;
            let meaning = gone("instance_deleted.instance_uuid", &it.instance_uuid)?;
            Ok(ends::numbered(it.seq, meaning))
        }
        Kind::INSTANCE_STOPPED => {
            let it = InstanceStopped::decode(payload)?;
            let meaning = gone("instance_stopped.instance_uuid", &it.instance_uuid)?;
            let meaning = match meaning {
                Meaning::InstanceGone(instance) if it.cut_off => Meaning::InstanceCutOff(instance),
                meaning => meaning,
            };
            Ok(ends::numbered(it.seq, meaning))
        }
        Kind::START_FAILURE => start_failed(StartFailure::decode(payload)?),
        Kind::DELETE_FAILURE => delete_failed(DeleteFailure::decode(payload)?),
        Kind::ATTACH_VOLUME_FAILURE => {
            let it = AttachVolumeFailure::decode(payload)?;
            check_names(&[
                ("attach_volume_failure.node_uuid", &it.node_uuid),
                ("attach_volume_failure.instance_uuid", &it.instance_uuid),
            ])?;
            Ok(Meaning::AttachVolumeFailed {
                node: it.node_uuid.into(),
                instance: InstanceId::new(&it.instance_uuid),
            })
        }
        Kind::QUERY => query(payload),
        Kind::WATCH => Ok(Meaning::Watch(Watch::decode(payload)?.topics)),
        _ => Ok(Meaning::Opaque),
    }
}

fn start(payload: &[u8]) -> Parsed {
    let start = peek::start(payload).map_err(|error| {
        let instance = instance_named(payload, &error);
        Unusable::from(error).of(instance)
    })?;
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
    let asked = Resources {
        mem_mib: start.mem_mb,
        vcpus: start.vcpus,
        disk_mib: start.disk_mib,
    };
    Ok(Meaning::Start(Box::new(StartRequest {
        instance,
        asked,
        network_node: start.network_node,
        node_id: start.node_id.map(Into::into),
        hostname: start.hostname.map(Into::into),
        restart: start.restart,
        tenant: text(&start.tenant_uuid).map(TenantId::new),
        image: image.map(label_of_image),
        vm_type: Some(VmType::from_name(&start.vm_type)),
        scheduling: start.scheduling,
        avoid: Vec::new(),
    })))
}

/// An image's name as it stands in a label: what no name of a label may have is `_`.
fn label_of_image(image: &str) -> Box<str> {
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

fn text(text: &str) -> Option<&str> {
    (!text.is_empty()).then_some(text)
}

/// The instance that an unusable START is about, where that much can be read: its sender is to know which one failed.
/// A document that as a whole is at fault, by its form or its weight, is not looked at again.
fn instance_named(payload: &[u8], error: &PayloadError) -> Option<InstanceId> {
    #[derive(Deserialize)]
    struct Document {
        start: Named,
    }
    #[derive(Deserialize)]
    struct Named {
        instance_uuid: String,
    }
    if matches!(error.fault, AliasExpansion | Syntax(_)) {
        return None;
    }
    let document = first_document(payload, SMALL).ok()?;
    let document: Document = serde_yaml::from_slice(document).ok()?;
    let name = document.start.instance_uuid;
    let is_name = !name.is_empty() && check_names(&[("start.instance_uuid", &name)]).is_ok();
    is_name.then(|| InstanceId::new(&name))
}

fn ready(payload: &[u8]) -> Parsed {
    let ready = peek::ready(payload)?;
    let figures = ready.figures;
    check_host_name("hostname", &figures.hostname)?;
    let known = |figure: Option<i64>| figure.unwrap_or(UNKNOWN);
    Ok(Meaning::Ready(Box::new(NodeReport {
        mem_total_mib: known(figures.mem_total_mb),
        mem_available_mib: known(figures.mem_available_mb),
        disk_total_mb: known(figures.disk_total_mb),
        disk_available_mb: known(figures.disk_available_mb),
        load: known(figures.load),
        cpus_online: known(figures.cpus_online),
        extras: node_extras::of(&figures)?,
        hostname: figures.hostname.into(),
    })))
}

fn stats(frame: &Frame) -> Parsed {
    let mut stats = peek::stats(&frame.payload)?;
    let node = canonical_uuid(&stats.node_uuid).unwrap_or(frame.origin);
    let ends = ends::of(&mut stats, node)?;
    check_names(&[("node_uuid", &stats.node_uuid)])?;
    check_host_name("hostname", &stats.figures.hostname)?;
    for it in &stats.instances {
        check_names(&[("instances.instance_uuid", &it.instance_uuid)])?;
        node_extras::check_instance(it)?;
    }
    let instances = stats
        .instances
        .into_iter()
        .map(|it| InstanceReport {
            instance: InstanceId::new(&it.instance_uuid),
            state: InstanceState::from_name(it.state.as_str()),
            mem_used_mib: it.memory_usage_mb,
            disk_used_mib: it.disk_usage_mb,
            requested: it.requested.as_ref().map(amounts),
            custom: it.requested.map(custom).unwrap_or_default(),
            group: text(&it.group).map(Into::into),
        })
        .collect();
    let starts_seen = stats.figures.starts_seen;
    let lease_seq = stats.figures.lease_seq;
    Ok(Meaning::Stats(Box::new(StatsReport {
        node: stats.node_uuid.into(),
        starts_seen,
        lease_seq,
        extras: node_extras::of(&stats.figures)?,
        instances,
        ends,
    })))
}

fn amounts(requested: &Requested) -> Resources {
    Resources {
        mem_mib: requested.mem_mb,
        vcpus: requested.vcpus,
        disk_mib: requested.disk_mb,
    }
}

fn custom(requested: Requested) -> Vec<(Box<str>, i64)> {
    let resources = requested.resources.into_iter();
    resources
        .map(|(name, amount)| (name.into(), amount))
        .collect()
}

/// The keys of an instance, its node and a volume.
type TargetKeys = [&'static str; 3];

const DELETE_KEYS: TargetKeys = ["delete.instance_uuid", "delete.workload_agent_uuid", ""];

const ATTACH_VOLUME_KEYS: TargetKeys = [
    "attach_volume.instance_uuid",
    "attach_volume.workload_agent_uuid",
    "attach_volume.volume_uuid",
];

fn targeted(kind: Kind, payload: &[u8]) -> Parsed {
    if kind == Kind::DELETE {
        let it = Delete::decode(payload)?;
        let target = target(DELETE_KEYS, &it.instance_uuid, it.workload_agent_uuid, "")?;
        return Ok(Meaning::Delete(target));
    }
    let it = AttachVolume::decode(payload)?;
    let (instance, node) = (&it.instance_uuid, it.workload_agent_uuid);
    Ok(Meaning::AttachVolume {
        target: target(ATTACH_VOLUME_KEYS, instance, node, &it.volume_uuid)?,
        volume: it.volume_uuid.into(),
    })
}

fn target(
    keys: TargetKeys,
    instance: &str,
    node: String,
    volume: &str,
) -> Result<Target, Unusable> {
    check_names(&[(keys[0], instance)])?;
    if instance.is_empty() {
        return Err(PayloadError::missing(keys[0]).into());
    }
    let instance = InstanceId::new(instance);
    let of_instance = |unusable: Unusable| unusable.of(Some(instance.clone()));
    if node.is_empty() {
        return Err(of_instance(PayloadError::missing(keys[1]).into()));
    }
    check_names(&[(keys[1], &node), (keys[2], volume)]).map_err(of_instance)?;
    Ok(Target {
        instance,
        node: node.into(),
    })
}

fn concentrator(kind: Kind, payload: &[u8]) -> Parsed {
    let (agent, otherwise) = match kind {
        Kind::ASSIGN_PUBLIC_IP => {
            let it = AssignPublicIp::decode(payload)?;
            let failure = AssignPublicIpFailure {
                concentrator_uuid: it.concentrator_uuid.clone(),
                tenant_uuid: it.tenant_uuid,
                instance_uuid: it.instance_uuid,
                public_ip: it.public_ip,
                private_ip: it.private_ip,
                vnic_mac: it.vnic_mac,
                reason: NO_CONCENTRATOR.to_owned(),
            };
            (
                it.concentrator_uuid,
                Some(Message::AssignPublicIpFailure(Box::new(failure))),
            )
        }
        Kind::RELEASE_PUBLIC_IP => {
            let it = ReleasePublicIp::decode(payload)?;
            let failure = UnassignPublicIpFailure {
                concentrator_uuid: it.concentrator_uuid.clone(),
                tenant_uuid: it.tenant_uuid,
                instance_uuid: it.instance_uuid,
                public_ip: it.public_ip,
                private_ip: it.private_ip,
                vnic_mac: it.vnic_mac,
                reason: NO_CONCENTRATOR.to_owned(),
            };
            (
                it.concentrator_uuid,
                Some(Message::UnassignPublicIpFailure(Box::new(failure))),
            )
        }
        Kind::TENANT_ADDED => (TenantAdded::decode(payload)?.concentrator_uuid, None),
        Kind::TENANT_REMOVED => (TenantRemoved::decode(payload)?.concentrator_uuid, None),
        _ => (RefreshCnci::decode(payload)?.cnci_uuid, None),
    };
    let key = if kind == Kind::REFRESH_CNCI {
        "cnci_uuid"
    } else {
        "concentrator_uuid"
    };
    check_names(&[(key, &agent)])?;
    Ok(Meaning::Concentrator {
        agent: agent.into(),
        otherwise: otherwise.map(Box::new),
    })
}

fn configure(payload: &Bytes) -> Parsed {
    if payload.len() > configuration::MAX_LEN {
        let mistake = format!(
            "{} bytes, at most {} are taken: every peer that connects is sent it",
            payload.len(),
            configuration::MAX_LEN
        );
        return Err(Unusable::Configuration(Mistake::whole(mistake)));
    }
    let configuration = Configuration::decode(payload)?;
    let rules = rules_file::read(payload).map_err(Unusable::Configuration)?;
    let missing = configuration.missing_values();
    if !missing.is_empty() {
        tracing::warn!("a CONFIGURE has no value for {}", missing.join(", "));
    }
    Ok(Meaning::Configure(Box::new(NewConfiguration {
        original: Configuration::with_defaults(payload)?,
        flags: configuration::flags(&configuration),
        rules,
    })))
}

fn query(payload: &[u8]) -> Parsed {
    let query = Query::decode(payload)?;
    query.checked_limit()?;
    check_names(&[("query.match", query.matching.as_deref().unwrap_or_default())])?;
    let cursor_len = query.after.as_ref().map_or(0, String::len);
    if cursor_len > MAX_CURSOR_LEN {
        let detail = format!(
            "query.after: {cursor_len} bytes, no answer's 'next' has more than {MAX_CURSOR_LEN}"
        );
        return Err(Unusable::Extras(detail));
    }
    Ok(Meaning::Query(Box::new(query)))
}

fn start_failed(failure: StartFailure) -> Parsed {
    check_names(&[
        ("start_failure.node_uuid", &failure.node_uuid),
        ("start_failure.instance_uuid", &failure.instance_uuid),
    ])?;
    let instance =
        (!failure.instance_uuid.is_empty()).then(|| InstanceId::new(&failure.instance_uuid));
    let told = Meaning::StartFailed {
        node: failure.node_uuid.into(),
        instance,
        reason: failure.reason,
        detail: failure.detail.unwrap_or_default().into(),
    };
    Ok(ends::numbered(failure.seq, told))
}

fn delete_failed(failure: DeleteFailure) -> Parsed {
    check_names(&[
        ("delete_failure.node_uuid", &failure.node_uuid),
        ("delete_failure.instance_uuid", &failure.instance_uuid),
    ])?;
    Ok(Meaning::DeleteFailed {
        node: failure.node_uuid.into(),
        instance: InstanceId::new(&failure.instance_uuid),
        no_instance: failure.reason == DeleteFailureReason::NoInstance,
    })
}

fn gone(key: &'static str, instance: &str) -> Parsed {
    check_names(&[(key, instance)])?;
    Ok(Meaning::InstanceGone(InstanceId::new(instance)))
}

#[cfg(test)]
mod tests {
    use proto_frames::{Frame, Kind, Uuid};

    use super::{MAX_NAME_LEN, of};
    use sched_core::{Fault, InstanceId, Malformed, Meaning};

    fn malformed(kind: Kind, payload: &str) -> Malformed {
        let frame = Frame::new(kind, Uuid::nil(), payload.as_bytes().to_vec());
        match of(&frame) {
            Meaning::Malformed(malformed) => malformed,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_start_with_a_bad_value_is_refused_by_its_instance() {
        let web = Some(InstanceId::new("web-1"));
        for (bad, fault) in [("mem_mb: -1", Fault::Data), ("vcpus: many", Fault::Payload)] {
            let payload = format!("start:\n  instance_uuid: web-1\n  requirements:\n    {bad}\n");
            let both = format!("{payload}---\nother: [\n");
            for payload in [payload, both] {
                let found = malformed(Kind::START, &payload);
                assert_eq!((found.fault, &found.instance), (fault, &web), "{payload}");
            }
        }
        for nameless in [
            "start: [",
            "start: {instance_uuid: ''}",
            "",
            "start:\n  vcpus: x\n",
            "start:\n  instance_uuid: two words\n  requirements:\n    mem_mb: -1\n",
        ] {
            assert_eq!(
                malformed(Kind::START, nameless).instance,
                None,
                "{nameless}"
            );
        }
    }

    #[test]
    fn what_no_start_can_ask_for_is_refused_of_an_instance_as_well() {
        let stats = |rest: &str| format!("instances:\n- instance_uuid: a\n{rest}");
        let requested = |resources: &str| {
            stats(&format!(
                "  requested:\n    mem_mb: 1\n    vcpus: 1\n    disk_mb: 1\n    resources:\n{resources}"
            ))
        };
        let many: String = (0..17).map(|at| format!("      r{at}: 1\n")).collect();
        let long = "x".repeat(129);
        for (payload, said) in [
            (stats(&format!("  group: {long}\n")), "instances.group: "),
            (stats("  group: \"a b\"\n"), "instances.group: "),
            (
                requested(&format!("      {long}: 1\n")),
                "instances.requested.resources: a name",
            ),
            (
                requested(&many),
                "instances.requested.resources: 17 entries",
            ),
        ] {
            let found = malformed(Kind::STATS, &payload);
            assert_eq!(found.fault, Fault::Data, "{payload}");
            assert!(found.detail.starts_with(said), "{}", found.detail);
        }
        let good = requested("      gpu: 1\n") + "  group: web\n";
        let frame = Frame::new(Kind::STATS, Uuid::nil(), good.into_bytes());
        assert!(matches!(of(&frame), Meaning::Stats(_)));
    }

    #[test]
    fn names_that_are_too_long_are_refused_by_their_key() {
        let long = "x".repeat(MAX_NAME_LEN + 1);
        for (kind, key, payload) in [
            (
                Kind::START,
                "start.instance_uuid",
                format!("start:\n  instance_uuid: {long}\n"),
            ),
            (
                Kind::START,
                "start.requirements.hostname",
                format!("start:\n  instance_uuid: a\n  requirements:\n    hostname: {long}\n"),
            ),
            (Kind::READY, "hostname", format!("hostname: {long}\n")),
            (
                Kind::STATS,
                "instances.instance_uuid",
                format!("instances:\n- instance_uuid: {long}\n"),
            ),
            (
                Kind::DELETE,
                "delete.workload_agent_uuid",
                format!("delete:\n  instance_uuid: a\n  workload_agent_uuid: {long}\n"),
            ),
            (
                Kind::EVACUATE,
                "evacuate.workload_agent_uuid",
                format!("evacuate:\n  workload_agent_uuid: {long}\n"),
            ),
        ] {
            let found = malformed(kind, &payload);
            assert_eq!(found.fault, Fault::Data);
            assert!(
                found.detail.starts_with(&format!("{key}: 256 bytes")),
                "{}",
                found.detail
            );
        }
        let longest = "x".repeat(MAX_NAME_LEN);
        let payload = format!("start:\n  instance_uuid: {longest}\n");
        let frame = Frame::new(Kind::START, Uuid::nil(), payload.into_bytes());
        assert!(matches!(of(&frame), Meaning::Start(_)));
    }
}
