//! Commands as the core takes them.
//!
//! Each payload is decoded by its type's own reader, and its identifiers are checked ([`check_names`]), because the
//! core keeps and repeats them. Everything else that can be wrong with a command (no such instance, not now) is the
//! core's to say. A command that cannot be used is an [`Unusable`], which names the key at fault, and the instance
//! where that much could be read, so that its sender can be told which one failed.

use bytes::Bytes;
use proto_frames::payload::{
    AssignPublicIp, AttachVolume, Configuration, Delete, DeleteOutput, Payload, PayloadError,
    Query, ReadOutput, RefreshCnci, ReleasePublicIp, Reload, TransferLeadership, Watch,
    identifier::make_usual,
    output::{MAX_PATH_LEN, MAX_TAIL_LINES},
};

use super::inputs::Unusable;
use super::names::{MAX_NAME_LEN, check_names};
use super::{arrays, lifecycle, starts};
use crate::server::strict::Mistake;
use crate::server::{configuration, rules_file};
use sched_core::{
    Command, CommandName, ConfigurationCommand, ImageCommand, InstanceId, NewConfiguration, Target,
};

/// The reason given for a public address command whose concentrator's agent is not connected.
const NO_CONCENTRATOR: &str = "no_instance";

/// Longest `query.after` that is taken, in bytes: an identifier, and a mark of what kind of place it stands for.
/// Cursors are made by the core, so that a longer one is none.
const MAX_CURSOR_LEN: usize = MAX_NAME_LEN + 32;

/// A command, or why its payload cannot be used.
type Read = Result<Command, Unusable>;

/// The command of this name with this payload. `payload` is that of a frame, or of a command over HTTP that was encoded
/// for this ([`mod@super::ordered`]). Runs on the connection's task, outside the core's lock.
///
/// # Errors
/// [`Unusable`]: the core decides how the sender is told.
pub(super) fn read(name: CommandName, payload: &Bytes) -> Read {
    match name {
        CommandName::Start => Ok(Command::Start(starts::read(payload)?)),
        CommandName::Delete => delete(payload),
        CommandName::AttachVolume => attach_volume(payload),
        CommandName::Suspend => lifecycle::suspend(payload),
        CommandName::Resume => lifecycle::resume(payload),
        CommandName::Migrate => lifecycle::migrate(payload),
        CommandName::Update => lifecycle::update(payload),
        CommandName::Evacuate => lifecycle::evacuate(payload),
        CommandName::Restore => lifecycle::restore(payload),
        CommandName::AssignPublicIp => assign_public_ip(payload),
        CommandName::ReleasePublicIp => release_public_ip(payload),
        // The frames of concentrators (CNCI) name an agent, to which they are carried.
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
        CommandName::DeleteOutput => delete_output(payload),
        // What they say is read where the store is, which answers what it cannot read.
        CommandName::ReadImage => Ok(Command::Image(ImageCommand::Read)),
        CommandName::WriteImage => Ok(Command::Image(ImageCommand::Write)),
        CommandName::DeleteImage => Ok(Command::Image(ImageCommand::Delete)),
        CommandName::ListImages => Ok(Command::Image(ImageCommand::List)),
        // Likewise: read where the versions are.
        CommandName::ReadConfiguration => Ok(Command::Configuration(ConfigurationCommand::Read)),
        CommandName::WriteConfiguration => Ok(Command::Configuration(ConfigurationCommand::Write)),
        CommandName::StartArray => arrays::read(payload),
        CommandName::Reload => Ok(Command::Reload(Box::new(Reload::decode(payload)?))),
        CommandName::TransferLeadership => {
            let transfer = TransferLeadership::decode(payload)?;
            Ok(Command::TransferLeadership(Box::new(transfer)))
        }
    }
}

/// The paths of the keys of an instance, its node and a volume, as errors name them; an empty one is of a part that the
/// command does not have.
type TargetKeys = [&'static str; 3];

/// A DELETE has no volume.
const DELETE_KEYS: TargetKeys = ["delete.instance_uuid", "delete.workload_agent_uuid", ""];

const ATTACH_VOLUME_KEYS: TargetKeys = [
    "attach_volume.instance_uuid",
    "attach_volume.workload_agent_uuid",
    "attach_volume.volume_uuid",
];

/// DELETE, or its form `forget`: the instance is on a lost node, and the scheduler is not to wait for that node.
fn delete(payload: &[u8]) -> Read {
    let it = Delete::decode(payload)?;
    let target = target(DELETE_KEYS, &it.instance_uuid, it.workload_agent_uuid, "")?;
    Ok(match (it.forget, it.stop) {
        (true, _) => Command::Forget(target),
        (false, true) => Command::Stop(target),
        (false, false) => Command::Delete(target),
    })
}

/// AttachVolume. The volume is only carried on; its name is checked because an AttachVolumeFailure repeats it.
fn attach_volume(payload: &[u8]) -> Read {
    let it = AttachVolume::decode(payload)?;
    let (instance, node) = (&it.instance_uuid, it.workload_agent_uuid);
    Ok(Command::AttachVolume {
        target: target(ATTACH_VOLUME_KEYS, instance, node, &it.volume_uuid)?,
        volume: it.volume_uuid.into(),
    })
}

/// The instance and node that DELETE and AttachVolume name. Both must be there; the name of the volume may be empty.
///
/// # Errors
/// A name that is missing or not taken. Once the instance is known, the error names it.
fn target(
    keys: TargetKeys,
    instance: &str,
    node: String,
    volume: &str,
) -> Result<Target, Unusable> {
    // The instance first: once it is known, every further error is about it.
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

/// AssignPublicIP. The failure is made here, because the core has no use for the rest of the payload: it is sent if the
/// agent is not connected.
fn assign_public_ip(payload: &[u8]) -> Read {
    let it = AssignPublicIp::decode(payload)?;
    check_names(&[("concentrator_uuid", &it.concentrator_uuid)])?;
    Ok(Command::AssignPublicIp {
        agent: it.concentrator_uuid.as_str().into(),
        otherwise: Box::new(it.failure(NO_CONCENTRATOR)),
    })
}

/// ReleasePublicIP, likewise.
fn release_public_ip(payload: &[u8]) -> Read {
    let it = ReleasePublicIp::decode(payload)?;
    check_names(&[("concentrator_uuid", &it.concentrator_uuid)])?;
    Ok(Command::ReleasePublicIp {
        agent: it.concentrator_uuid.as_str().into(),
        otherwise: Box::new(it.failure(NO_CONCENTRATOR)),
    })
}

/// CONFIGURE: a new cluster configuration, as YAML. The parts that matter to the scheduler are read here, strictly, in
/// the same way as those of the file at start ([`crate::server::configuration`]); ciao's own parts leniently.
///
/// Order: length, the document, the scheduler's rules. A mistake found here refuses all of it.
fn configure(payload: &Bytes) -> Read {
    // Before it is parsed, because every peer is sent it on connecting.
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
    // Unlike the file at start, a CONFIGURE without these values is sent to ciao's peers all the same.
    if !missing.is_empty() {
        tracing::warn!(
            event = "configuration_value_missing",
            "a CONFIGURE has no value for {}",
            missing.join(", ")
        );
    }
    Ok(Command::Configure(Box::new(NewConfiguration {
        // ciao's peers read a missing key as zero, so they are sent ciao's defaults for it.
        original: Configuration::with_defaults(payload)?,
        flags: configuration::flags(&configuration),
        rules,
    })))
}

/// ReadOutput: asks for a chunk of what an instance wrote. Instance and number of lines are checked here; an offset
/// beyond the end is the launcher's to answer.
fn read_output(payload: &[u8]) -> Read {
    let mut read = ReadOutput::decode(payload)?;
    make_usual(&mut read.instance_uuid);
    check_names(&[("read_output.instance_uuid", &read.instance_uuid)])?;
    if read.instance_uuid.is_empty() {
        return Err(PayloadError::missing("read_output.instance_uuid").into());
    }
    if let Some(lines) = read.tail.filter(|lines| *lines > MAX_TAIL_LINES) {
        let detail = format!("read_output.tail: {lines} lines, at most {MAX_TAIL_LINES} are taken");
        return Err(Unusable::Extras(detail));
    }
    for (key, path) in [
        ("read_output.file", &read.file),
        ("read_output.after", &read.after),
    ] {
        if path.len() > MAX_PATH_LEN {
            let detail = format!(
                "{key}: {} bytes, at most {MAX_PATH_LEN} are taken",
                path.len()
            );
            return Err(Unusable::Extras(detail));
        }
    }
    Ok(Command::ReadOutput(Box::new(read)))
}

/// DeleteOutput: what an instance has left is to be deleted.
fn delete_output(payload: &[u8]) -> Read {
    let mut delete = DeleteOutput::decode(payload)?;
    make_usual(&mut delete.instance_uuid);
    make_usual(&mut delete.node_uuid);
    check_names(&[
        ("delete_output.instance_uuid", &delete.instance_uuid),
        ("delete_output.node_uuid", &delete.node_uuid),
    ])?;
    if delete.instance_uuid.is_empty() {
        return Err(PayloadError::missing("delete_output.instance_uuid").into());
    }
    Ok(Command::DeleteOutput(delete))
}

/// QUERY. Limit, `match` and cursor are checked here against their limits. What the core cannot answer (an unknown
/// kind, a cursor of another query) is answered by it, in a page.
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
