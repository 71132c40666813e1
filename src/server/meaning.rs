//! What a frame's payload says: the few values that matter to the core, parsed outside its lock.

use proto_frames::payload::{
    AssignPublicIp, AssignPublicIpFailure, AttachVolume, AttachVolumeFailure, Configuration,
    Delete, DeleteFailure, DeleteFailureReason, Evacuate, InstanceDeleted, InstanceStopped,
    PayloadError, PayloadErrorKind, Query, RefreshCnci, ReleasePublicIp, Requested, Restore,
    StartFailure, TenantAdded, TenantRemoved, UNKNOWN, UnassignPublicIpFailure, Watch, peek,
};
use proto_frames::{Frame, Kind};

use super::configuration;
use crate::sched::{
    Fault, InstanceId, InstanceReport, InstanceState, Malformed, Meaning, Message, NodeReport,
    Resources, StartRequest, StatsReport, Target,
};

/// The reason given for a public address command whose concentrator's agent is not connected.
const NO_CONCENTRATOR: &str = "no_instance";

/// What a frame says, or why that cannot be told.
pub(super) fn of(frame: &Frame) -> Meaning {
    parse(frame).unwrap_or_else(|(error, instance)| {
        let fault = match error.kind() {
            PayloadErrorKind::InvalidPayload => Fault::Payload,
            PayloadErrorKind::InvalidData => Fault::Data,
        };
        Meaning::Malformed(Malformed {
            fault,
            instance,
            detail: error.to_string(),
        })
    })
}

type Parsed = Result<Meaning, (PayloadError, Option<InstanceId>)>;

fn parse(frame: &Frame) -> Parsed {
    let payload = &frame.payload[..];
    let plain = |error| (error, None);
    match frame.kind {
        Kind::START => start(payload),
        Kind::READY => ready(payload).map_err(plain),
        Kind::STATS => stats(payload).map_err(plain),
        Kind::FULL | Kind::OFFLINE | Kind::MAINTENANCE => Ok(Meaning::Status),
        Kind::DELETE | Kind::ATTACH_VOLUME => targeted(frame.kind, payload),
        Kind::EVACUATE => Evacuate::decode(payload)
            .map(|it| node(it.workload_agent_uuid))
            .map_err(plain),
        Kind::RESTORE => Restore::decode(payload)
            .map(|it| node(it.workload_agent_uuid))
            .map_err(plain),
        Kind::CONFIGURE => Configuration::decode(payload)
            .map(|it| configure(&it))
            .map_err(plain),
        Kind::ASSIGN_PUBLIC_IP
        | Kind::RELEASE_PUBLIC_IP
        | Kind::REFRESH_CNCI
        | Kind::TENANT_ADDED
        | Kind::TENANT_REMOVED => concentrator(frame.kind, payload).map_err(plain),
        Kind::INSTANCE_DELETED => InstanceDeleted::decode(payload)
            .map(|it| gone(&it.instance_uuid))
            .map_err(plain),
        Kind::INSTANCE_STOPPED => InstanceStopped::decode(payload)
            .map(|it| gone(&it.instance_uuid))
            .map_err(plain),
        Kind::START_FAILURE => StartFailure::decode(payload)
            .map(start_failed)
            .map_err(plain),
        Kind::DELETE_FAILURE => DeleteFailure::decode(payload)
            .map(delete_failed)
            .map_err(plain),
        Kind::ATTACH_VOLUME_FAILURE => AttachVolumeFailure::decode(payload)
            .map(|it| Meaning::AttachVolumeFailed {
                node: it.node_uuid.into(),
            })
            .map_err(plain),
        Kind::QUERY => query(payload).map_err(plain),
        Kind::WATCH => Watch::decode(payload)
            .map(|it| Meaning::Watch(it.topics))
            .map_err(plain),
        _ => Ok(Meaning::Opaque),
    }
}

fn start(payload: &[u8]) -> Parsed {
    let start = peek::start(payload).map_err(|error| (error, None))?;
    let asked = Resources {
        mem_mib: start.mem_mb,
        vcpus: start.vcpus,
        disk_mib: start.disk_mib,
    };
    Ok(Meaning::Start(Box::new(StartRequest {
        instance: InstanceId::new(&start.instance_uuid),
        asked,
        network_node: start.network_node,
        node_id: start.node_id.map(Into::into),
        hostname: start.hostname.map(Into::into),
        restart: start.restart,
    })))
}

fn ready(payload: &[u8]) -> Result<Meaning, PayloadError> {
    let ready = peek::ready(payload)?;
    let figures = ready.figures;
    let known = |figure: Option<i64>| figure.unwrap_or(UNKNOWN);
    Ok(Meaning::Ready(Box::new(NodeReport {
        mem_total_mib: known(figures.mem_total_mb),
        mem_available_mib: known(figures.mem_available_mb),
        disk_total_mb: known(figures.disk_total_mb),
        disk_available_mb: known(figures.disk_available_mb),
        load: known(figures.load),
        cpus_online: known(figures.cpus_online),
        hostname: figures.hostname.into(),
    })))
}

fn stats(payload: &[u8]) -> Result<Meaning, PayloadError> {
    let stats = peek::stats(payload)?;
    let instances = stats
        .instances
        .into_iter()
        .map(|it| InstanceReport {
            instance: InstanceId::new(&it.instance_uuid),
            state: InstanceState::from_name(it.state.as_str()),
            mem_used_mib: it.memory_usage_mb,
            disk_used_mib: it.disk_usage_mb,
            requested: it.requested.map(|requested| amounts(&requested)),
        })
        .collect();
    let starts_seen = stats.figures.starts_seen;
    Ok(Meaning::Stats(Box::new(StatsReport {
        node: stats.node_uuid.into(),
        starts_seen,
        instances,
    })))
}

fn amounts(requested: &Requested) -> Resources {
    Resources {
        mem_mib: requested.mem_mb,
        vcpus: requested.vcpus,
        disk_mib: requested.disk_mb,
    }
}

fn targeted(kind: Kind, payload: &[u8]) -> Parsed {
    let (instance, node, volume) = if kind == Kind::DELETE {
        let it = Delete::decode(payload).map_err(|error| (error, None))?;
        (it.instance_uuid, it.workload_agent_uuid, None)
    } else {
        let it = AttachVolume::decode(payload).map_err(|error| (error, None))?;
        (
            it.instance_uuid,
            it.workload_agent_uuid,
            Some(it.volume_uuid),
        )
    };
    let key = if kind == Kind::DELETE {
        "delete"
    } else {
        "attach_volume"
    };
    if instance.is_empty() {
        return Err((PayloadError::missing(format!("{key}.instance_uuid")), None));
    }
    let instance = InstanceId::new(&instance);
    if node.is_empty() {
        let error = PayloadError::missing(format!("{key}.workload_agent_uuid"));
        return Err((error, Some(instance)));
    }
    let target = Target {
        instance,
        node: node.into(),
    };
    Ok(match volume {
        None => Meaning::Delete(target),
        Some(volume) => Meaning::AttachVolume {
            target,
            volume: volume.into(),
        },
    })
}

fn concentrator(kind: Kind, payload: &[u8]) -> Result<Meaning, PayloadError> {
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
    Ok(Meaning::Concentrator {
        agent: agent.into(),
        otherwise: otherwise.map(Box::new),
    })
}

fn configure(configuration: &Configuration) -> Meaning {
    let missing = configuration.missing_values();
    if !missing.is_empty() {
        tracing::warn!("a CONFIGURE has no value for {}", missing.join(", "));
    }
    Meaning::Configure(configuration::flags(configuration))
}

fn query(payload: &[u8]) -> Result<Meaning, PayloadError> {
    let query = Query::decode(payload)?;
    query.checked_limit()?;
    Ok(Meaning::Query(Box::new(query)))
}

fn start_failed(failure: StartFailure) -> Meaning {
    let instance =
        (!failure.instance_uuid.is_empty()).then(|| InstanceId::new(&failure.instance_uuid));
    Meaning::StartFailed {
        node: failure.node_uuid.into(),
        instance,
        reason: failure.reason,
    }
}

fn delete_failed(failure: DeleteFailure) -> Meaning {
    Meaning::DeleteFailed {
        node: failure.node_uuid.into(),
        instance: InstanceId::new(&failure.instance_uuid),
        no_instance: failure.reason == DeleteFailureReason::NoInstance,
    }
}

fn gone(instance: &str) -> Meaning {
    Meaning::InstanceGone(InstanceId::new(instance))
}

fn node(node: String) -> Meaning {
    Meaning::Node { node: node.into() }
}
