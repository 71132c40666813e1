//! Commands as the core takes them.

use bytes::Bytes;
use proto_frames::payload::{
    AssignPublicIp, AttachVolume, Configuration, Delete, Payload, PayloadError, Query, ReadOutput,
    RefreshCnci, ReleasePublicIp, Watch, output::MAX_TAIL_LINES,
};

use super::inputs::Unusable;
use super::names::{MAX_NAME_LEN, check_names};
use super::{life, starts};
use crate::server::strict::Mistake;
use crate::server::{configuration, rules_file};
use sched_core::{Command, CommandName, ImageCommand, InstanceId, NewConfiguration, Target};

/// The reason given for a public address command whose concentrator's agent is not connected.
const NO_CONCENTRATOR: &str = "no_instance";

/// Bytes of where a query's answer is to go on: an identifier, and what kind of place it stands for.
const MAX_CURSOR_LEN: usize = MAX_NAME_LEN + 32;

type Read = Result<Command, Unusable>;

/// The command of this name with this payload.
pub(super) fn read(name: CommandName, payload: &Bytes) -> Read {
    match name {
        CommandName::Start => Ok(Command::Start(starts::read(payload)?)),
        CommandName::Delete => delete(payload),
        CommandName::AttachVolume => attach_volume(payload),
        CommandName::Suspend => life::suspend(payload),
        CommandName::Resume => life::resume(payload),
        CommandName::Migrate => life::migrate(payload),
        CommandName::Update => life::update(payload),
        CommandName::Evacuate => life::evacuate(payload),
        CommandName::Restore => life::restore(payload),
        CommandName::AssignPublicIp => assign_public_ip(payload),
        CommandName::ReleasePublicIp => release_public_ip(payload),
        CommandName::RefreshCnci => {
            let agent = RefreshCnci::decode(payload)?.cnci_uuid;
            check_names(&[("cnci_uuid", &agent)])?;
            let agent = agent.into();
            Ok(Command::RefreshCnci { agent })
        }
        CommandName::Configure => configure(payload),
        CommandName::Query => query(payload),
        CommandName::Watch => Ok(Command::Watch(Watch::decode(payload)?.topics)),
        CommandName::ReadOutput => read_output(payload),
        // What they say is read where the store is, which answers what it cannot read.
        CommandName::ReadImage => Ok(Command::Image(ImageCommand::Read)),
        CommandName::WriteImage => Ok(Command::Image(ImageCommand::Write)),
        CommandName::DeleteImage => Ok(Command::Image(ImageCommand::Delete)),
        CommandName::ListImages => Ok(Command::Image(ImageCommand::List)),
    }
}

/// The keys of an instance, its node and a volume.
type TargetKeys = [&'static str; 3];

const DELETE_KEYS: TargetKeys = ["delete.instance_uuid", "delete.workload_agent_uuid", ""];

const ATTACH_VOLUME_KEYS: TargetKeys = [
    "attach_volume.instance_uuid",
    "attach_volume.workload_agent_uuid",
    "attach_volume.volume_uuid",
];

fn delete(payload: &[u8]) -> Read {
    let it = Delete::decode(payload)?;
    let target = target(DELETE_KEYS, &it.instance_uuid, it.workload_agent_uuid, "")?;
    Ok(match it.forget {
        true => Command::Forget(target),
        false => Command::Delete(target),
    })
}

fn attach_volume(payload: &[u8]) -> Read {
    let it = AttachVolume::decode(payload)?;
    let (instance, node) = (&it.instance_uuid, it.workload_agent_uuid);
    Ok(Command::AttachVolume {
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

fn assign_public_ip(payload: &[u8]) -> Read {
    let it = AssignPublicIp::decode(payload)?;
    check_names(&[("concentrator_uuid", &it.concentrator_uuid)])?;
    Ok(Command::AssignPublicIp {
        agent: it.concentrator_uuid.as_str().into(),
        otherwise: Box::new(it.failure(NO_CONCENTRATOR)),
    })
}

fn release_public_ip(payload: &[u8]) -> Read {
    let it = ReleasePublicIp::decode(payload)?;
    check_names(&[("concentrator_uuid", &it.concentrator_uuid)])?;
    Ok(Command::ReleasePublicIp {
        agent: it.concentrator_uuid.as_str().into(),
        otherwise: Box::new(it.failure(NO_CONCENTRATOR)),
    })
}

fn configure(payload: &Bytes) -> Read {
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
        tracing::warn!(
            event = "configuration_value_missing",
            "a CONFIGURE has no value for {}",
            missing.join(", ")
        );
    }
    Ok(Command::Configure(Box::new(NewConfiguration {
        original: Configuration::with_defaults(payload)?,
        flags: configuration::flags(&configuration),
        rules,
    })))
}

fn read_output(payload: &[u8]) -> Read {
    let read = ReadOutput::decode(payload)?;
    check_names(&[("read_output.instance_uuid", &read.instance_uuid)])?;
    if read.instance_uuid.is_empty() {
        return Err(PayloadError::missing("read_output.instance_uuid").into());
    }
    if let Some(lines) = read.tail.filter(|lines| *lines > MAX_TAIL_LINES) {
        let detail = format!("read_output.tail: {lines} lines, at most {MAX_TAIL_LINES} are taken");
        return Err(Unusable::Extras(detail));
    }
    Ok(Command::ReadOutput(Box::new(read)))
}

fn query(payload: &[u8]) -> Read {
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
    Ok(Command::Query(Box::new(query)))
}
