//! Reports as the core takes them.
//!
//! Three things happen to every report: it is decoded, its identifiers and lists are checked against the limits of what
//! the core keeps of a node, and what the core needs is taken out of it. The core carries the frame itself as it came.
//! READY and STATS are read by fast readers (`proto_frames::payload::peek`), which a property test in `proto-frames`
//! holds equal to the strict ones.

use std::borrow::Cow;
use std::net::IpAddr;
use std::time::Duration;

use proto_frames::Frame;
use proto_frames::payload::{
    AttachVolumeFailure, DeleteFailure, DeleteFailureReason, InstanceDeleted, InstanceStopped,
    OutputChunk, Payload, Requested, StartFailure, Stats, TenantAdded, TenantRemoved, UNKNOWN,
    Workloads, cut::cut, peek, scheduling::is_instance_name,
};

use super::inputs::{Unusable, text};
use super::names::{check_host_name, check_names};
use super::{ends, lifecycle, node_extras};
use sched_core::{
    InstanceId, InstanceReport, InstanceState, MAX_INSTANCES_PER_NODE, NodeReport, Report,
    ReportName, Resources, ShortText, StatsReport, TenantId, Workload,
};

/// Addresses of one node that are kept; more than a machine has networks. Further ones are dropped without a word.
const MAX_ADDRESSES: usize = 64;

/// A report, or why its payload cannot be used.
type Read = Result<Report, Unusable>;

/// The report of this name in this frame. FULL, OFFLINE and MAINTENANCE have no payload: the sender's session says
/// which node it is. Whether the sender may speak for the node that a payload names is decided in the core. Reports
/// that are only carried on to controllers (public addresses, traces) are not decoded at all.
///
/// # Errors
/// [`Unusable`]: the report changes nothing then, and the core logs it.
pub(super) fn read(name: ReportName, frame: &Frame) -> Read {
    let payload = &frame.payload[..];
    match name {
        ReportName::Ready => ready(payload),
        ReportName::Stats => stats(frame),
        ReportName::Full => Ok(Report::Full),
        ReportName::Offline => Ok(Report::Offline),
        ReportName::Maintenance => Ok(Report::Maintenance),
        // Concentrators' agents report tenants; the core carries the report on.
        ReportName::TenantAdded => {
            let agent = TenantAdded::decode(payload)?.concentrator_uuid;
            check_names(&[("concentrator_uuid", &agent)])?;
            let agent = agent.into();
            Ok(Report::TenantAdded { agent })
        }
        ReportName::TenantRemoved => {
            let agent = TenantRemoved::decode(payload)?.concentrator_uuid;
            check_names(&[("concentrator_uuid", &agent)])?;
            let agent = agent.into();
            Ok(Report::TenantRemoved { agent })
        }
        // Ends of instances, with a number where the launcher numbers them ([`ends`]).
        ReportName::InstanceDeleted => {
            let it = InstanceDeleted::decode(payload)?;
            let instance = instance("instance_deleted.instance_uuid", &it.instance_uuid)?;
            Ok(ends::numbered(
                it.seq,
                (it.exit_code, it.facts),
                Report::InstanceDeleted(instance),
            ))
        }
        ReportName::InstanceStopped => {
            let it = InstanceStopped::decode(payload)?;
            let instance = instance("instance_stopped.instance_uuid", &it.instance_uuid)?;
            let told = if it.cut_off {
                Report::InstanceCutOff(instance)
            } else if it.exited && it.exit_code.is_some() {
                Report::InstanceExited(instance)
            } else {
                Report::InstanceStopped(instance)
            };
            Ok(ends::numbered(it.seq, (it.exit_code, it.facts), told))
        }
        ReportName::StartFailure => start_failed(StartFailure::decode(payload)?),
        ReportName::DeleteFailure => delete_failed(DeleteFailure::decode(payload)?),
        ReportName::AttachVolumeFailure => {
            let it = AttachVolumeFailure::decode(payload)?;
            check_names(&[
                ("attach_volume_failure.node_uuid", &it.node_uuid),
                ("attach_volume_failure.instance_uuid", &it.instance_uuid),
            ])?;
            Ok(Report::AttachVolumeFailed {
                node: it.node_uuid.into(),
                instance: InstanceId::new(&it.instance_uuid),
            })
        }
        ReportName::CommandFailure => lifecycle::command_failed(payload),
        ReportName::InstanceState => lifecycle::instance_state(payload),
        ReportName::KeptRuns => ends::kept_runs(payload),
        ReportName::Workloads => workloads(payload),
        ReportName::Output => Ok(Report::Output(OutputChunk::decode(payload)?.part.read)),
        ReportName::ConcentratorInstanceAdded => Ok(Report::ConcentratorInstanceAdded),
        ReportName::PublicIpAssigned => Ok(Report::PublicIpAssigned),
        ReportName::PublicIpUnassigned => Ok(Report::PublicIpUnassigned),
        ReportName::AssignPublicIpFailure => Ok(Report::AssignPublicIpFailed),
        ReportName::UnassignPublicIpFailure => Ok(Report::UnassignPublicIpFailed),
        ReportName::TraceReport => Ok(Report::TraceReport),
    }
}

/// Bytes that are kept of what a node says about a program, which is shown in a table; the rest is cut at a character's
/// boundary.
pub(super) const MAX_PROGRAM_LEN: usize = 64;

/// Workloads: what the instances of a node are, of which the scheduler may not have the STARTs: name, tenant, program
/// and age. The text of a program is cut; anything else that is not as it must be refuses the report.
fn workloads(payload: &[u8]) -> Read {
    let told = Workloads::decode(payload)?;
    let count = told.instances.len();
    if count > MAX_INSTANCES_PER_NODE {
        return Err(Unusable::Extras(format!(
            "workloads.instances: {count} entries, at most {MAX_INSTANCES_PER_NODE} are taken"
        )));
    }
    let workload = |it: proto_frames::payload::Workload| {
        check_names(&[
            ("workloads.instances.instance_uuid", &it.instance_uuid),
            ("workloads.instances.tenant_uuid", &it.tenant_uuid),
        ])?;
        // An empty text is an instance without a name.
        if !it.name.is_empty() && !is_instance_name(&it.name) {
            return Err(Unusable::Extras(
                "workloads.instances.name: not the name of an instance".to_owned(),
            ));
        }
        Ok(Workload {
            instance: InstanceId::new(&it.instance_uuid),
            name: it.name.into(),
            tenant: text(&it.tenant_uuid).map(TenantId::new),
            program: cut(&it.program, MAX_PROGRAM_LEN).into(),
            age: Duration::from_secs(it.age_s),
        })
    };
    let all = told.instances.into_iter().map(workload);
    Ok(Report::Workloads(all.collect::<Result<_, Unusable>>()?))
}

/// The instance that a report names by this key. An empty name is taken: the core knows no such instance.
fn instance(key: &'static str, name: &str) -> Result<InstanceId, Unusable> {
    check_names(&[(key, name)])?;
    Ok(InstanceId::new(name))
}

/// READY: what a node has in all. A figure that it does not report is `UNKNOWN` (-1), which fits nothing, rather than
/// an error.
fn ready(payload: &[u8]) -> Read {
    let ready = peek::ready(payload)?;
    let figures = ready.figures;
    check_host_name("hostname", &figures.hostname)?;
    let known = |figure: Option<i64>| figure.unwrap_or(UNKNOWN);
    Ok(Report::Ready(Box::new(NodeReport {
        mem_total_mib: known(figures.mem_total_mb),
        mem_available_mib: known(figures.mem_available_mb),
        disk_total_mb: known(figures.disk_total_mb),
        disk_available_mb: known(figures.disk_available_mb),
        load: known(figures.load),
        cpus_online: known(figures.cpus_online),
        extras: node_extras::of(&figures)?,
        hostname: ShortText::new(&figures.hostname),
        addresses: addresses(&ready.addresses),
    })))
}

/// The first addresses of a node that are any. At most [`MAX_ADDRESSES`]. Texts that are no addresses are passed over.
fn addresses(said: &[Cow<'_, str>]) -> Box<[IpAddr]> {
    let addresses = said.iter().filter_map(|it| it.parse().ok());
    addresses.take(MAX_ADDRESSES).collect()
}

/// STATS: what a node has left, and what runs on it; sent by every launcher every few seconds, so the fast reader is
/// tried first. `is_plain` is kept, because a STATS in that style can have rows cut out of its text
/// ([`super::withheld`]).
///
/// One bad name anywhere refuses all of it: part of a list of instances would look as if the others had ended.
fn stats(frame: &Frame) -> Read {
    // The fast reader takes the usual style alone; anything else is decoded in full.
    let plain = peek::plain_stats(&frame.payload);
    let is_plain = plain.is_some();
    let mut stats = match plain {
        Some(stats) => stats,
        None => Stats::decode(&frame.payload)?.into(),
    };
    let ends = ends::of(&mut stats, frame.origin)?;
    check_names(&[("node_uuid", &stats.node_uuid)])?;
    check_host_name("hostname", &stats.figures.hostname)?;
    for it in &stats.instances {
        check_names(&[("instances.instance_uuid", &it.instance_uuid)])?;
        node_extras::check_instance(it)?;
    }
    let instances = stats
        // One row for each instance. Amounts are as its node reports them, and unknown where it reports none.
        .instances
        .into_iter()
        .map(|it| InstanceReport {
            instance: InstanceId::new(&it.instance_uuid),
            state: InstanceState::from_name(it.state.as_str()),
            mem_used_mib: it.memory_usage_mb,
            disk_used_mib: mib_of_mb(it.disk_usage_mb),
            cpu_used_percent: it.cpu_usage,
            requested: it.requested.as_ref().map(amounts),
            custom: it.requested.map(custom).unwrap_or_default(),
            group: text(&it.group).map(Into::into),
            run: it.run,
        })
        .collect();
    let starts_seen = stats.figures.starts_seen;
    let (lease_seq, report_seq) = (stats.figures.lease_seq, stats.figures.report_seq);
    Ok(Report::Stats(Box::new(StatsReport {
        node: stats.node_uuid.into(),
        starts_seen,
        lease_seq,
        report_seq,
        extras: node_extras::of(&stats.figures)?,
        instances,
        ends,
        is_plain,
    })))
}

/// An amount of disk in MiB, as the core counts, of one in units of 10⁶ bytes, as the wire has what instances use. Less
/// than one is none; negative, for what is not known, stays.
fn mib_of_mb(mb: i64) -> i64 {
    const MB: i128 = 1_000_000;
    const MIB: i128 = 1 << 20;
    let mib = i128::from(mb) * MB / MIB;
    match mb {
        ..0 => mb,
        _ => i64::try_from(mib).unwrap_or(i64::MAX),
    }
}

/// The amounts that a node says an instance asked for; it knows them from the START, which the scheduler may not have.
/// MiB, count and MiB, as the keys say.
fn amounts(requested: &Requested) -> Resources {
    Resources {
        mem_mib: requested.mem_mb,
        vcpus: requested.vcpus,
        disk_mib: requested.disk_mb,
    }
}

/// Its custom resources, by name, in the order of their names.
fn custom(requested: Requested) -> Vec<(Box<str>, i64)> {
    let resources = requested.resources.into_iter();
    resources
        .map(|(name, amount)| (name.into(), amount))
        .collect()
}

/// StartFailure. `detail` is the launcher's own text and passes as it is. An exit code is not part of it.
fn start_failed(failure: StartFailure) -> Read {
    check_names(&[
        ("start_failure.node_uuid", &failure.node_uuid),
        ("start_failure.instance_uuid", &failure.instance_uuid),
    ])?;
    // A launcher that could not read the START names no instance: the core looks for the one START that it can be.
    let instance =
        (!failure.instance_uuid.is_empty()).then(|| InstanceId::new(&failure.instance_uuid));
    let told = Report::StartFailed {
        node: failure.node_uuid.into(),
        instance,
        reason: failure.reason,
        detail: failure.detail.unwrap_or_default().into(),
    };
    Ok(ends::numbered(failure.seq, (None, None), told))
}

/// DeleteFailure. Of the reasons the core needs only whether the node has no such instance.
fn delete_failed(failure: DeleteFailure) -> Read {
    check_names(&[
        ("delete_failure.node_uuid", &failure.node_uuid),
        ("delete_failure.instance_uuid", &failure.instance_uuid),
    ])?;
    Ok(Report::DeleteFailed {
        node: failure.node_uuid.into(),
        instance: InstanceId::new(&failure.instance_uuid),
        no_instance: failure.reason == DeleteFailureReason::NoInstance,
    })
}

#[cfg(test)]
mod tests {
    use super::mib_of_mb;

    #[test]
    fn disk_that_is_used_is_counted_in_mib() {
        assert_eq!(mib_of_mb(-1), -1, "not known");
        assert_eq!([0, 1, 2, 1_048_576].map(mib_of_mb), [0, 0, 1, 1_000_000]);
        assert_eq!(mib_of_mb(i64::MAX), 8_796_093_022_207_999_999);
    }
}
