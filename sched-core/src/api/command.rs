//! What controllers and operators ask for.

use std::sync::Arc;

use sched_model::{
    AssignPublicIpFailure, DeleteOutput, Evacuate, Migrate, Query, ReadOutput, Reload, Restore,
    Topic, TransferLeadership, UnassignPublicIpFailure, Update,
};

use crate::api::array::ArrayStart;
use crate::api::ids::InstanceId;
use crate::api::input::NewConfiguration;
use crate::api::sent::CommandName;
use crate::api::start::StartRequest;

/// A command, with the few of its values that matter here.
#[derive(Debug)]
pub enum Command {
    /// START.
    Start(Arc<StartRequest>),
    /// DELETE.
    Delete(Target),
    /// DELETE that leaves on the node what a restart there needs.
    Stop(Target),
    /// DELETE of an instance that the scheduler is to forget because its node is lost.
    Forget(Target),
    /// AttachVolume.
    AttachVolume {
        /// Instance and node.
        target: Target,
        /// The volume, as the payload writes it.
        volume: Box<str>,
    },
    /// SUSPEND.
    Suspend(Target),
    /// RESUME.
    Resume(Target),
    /// MIGRATE.
    Migrate(Box<Migrate>),
    /// UPDATE.
    Update(Box<Update>),
    /// EVACUATE.
    Evacuate(Box<Evacuate>),
    /// Restore.
    Restore(Box<Restore>),
    /// AssignPublicIP.
    AssignPublicIp {
        /// The concentrator's agent that it is for, as the payload writes it.
        agent: Box<str>,
        /// What the sender is told if the agent is not there.
        otherwise: Box<AssignPublicIpFailure>,
    },
    /// ReleasePublicIP.
    ReleasePublicIp {
        /// The concentrator's agent that it is for, as the payload writes it.
        agent: Box<str>,
        /// What the sender is told if the agent is not there.
        otherwise: Box<UnassignPublicIpFailure>,
    },
    /// RefreshCNCI.
    RefreshCnci {
        /// The concentrator's agent that it is for, as the payload writes it.
        agent: Box<str>,
    },
    /// CONFIGURE with a well-formed payload.
    Configure(Box<NewConfiguration>),
    /// QUERY.
    Query(Box<Query>),
    /// WATCH: the topics wanted from now on.
    Watch(Vec<Topic>),
    /// ReadOutput.
    ReadOutput(Box<ReadOutput>),
    /// DeleteOutput.
    DeleteOutput(DeleteOutput),
    /// Something for the store of images, which is not the core's: it says who may ask.
    Image(ImageCommand),
    /// Something about the versions of the cluster configuration, which are not the core's: it says who may ask.
    Configuration(ConfigurationCommand),
    /// StartArray.
    Array(ArrayCommand),
    /// RELOAD.
    Reload(Box<Reload>),
    /// TransferLeadership.
    TransferLeadership(Box<TransferLeadership>),
}

/// What is asked about the versions of the cluster configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConfigurationCommand {
    /// ReadConfiguration.
    Read,
    /// WriteConfiguration.
    Write,
}

/// What is to become of an array.
#[derive(Debug)]
pub enum ArrayCommand {
    /// It is to be started.
    Start(Box<ArrayStart>),
    /// It is there, and what did not succeed of it is to run once more.
    Rerun(InstanceId),
}

/// What is asked of the store of images.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ImageCommand {
    /// ReadImage.
    Read,
    /// WriteImage.
    Write,
    /// DeleteImage.
    Delete,
    /// ListImages.
    List,
}

impl Command {
    /// Its name.
    #[must_use]
    pub fn name(&self) -> CommandName {
        match self {
            Self::Start(_) => CommandName::Start,
            Self::Delete(_) | Self::Stop(_) | Self::Forget(_) => CommandName::Delete,
            Self::AttachVolume { .. } => CommandName::AttachVolume,
            Self::Suspend(_) => CommandName::Suspend,
            Self::Resume(_) => CommandName::Resume,
            Self::Migrate(_) => CommandName::Migrate,
            Self::Update(_) => CommandName::Update,
            Self::Evacuate(_) => CommandName::Evacuate,
            Self::Restore(_) => CommandName::Restore,
            Self::AssignPublicIp { .. } => CommandName::AssignPublicIp,
            Self::ReleasePublicIp { .. } => CommandName::ReleasePublicIp,
            Self::RefreshCnci { .. } => CommandName::RefreshCnci,
            Self::Configure(_) => CommandName::Configure,
            Self::Query(_) => CommandName::Query,
            Self::Watch(_) => CommandName::Watch,
            Self::ReadOutput(_) => CommandName::ReadOutput,
            Self::DeleteOutput(_) => CommandName::DeleteOutput,
            Self::Image(ImageCommand::Read) => CommandName::ReadImage,
            Self::Image(ImageCommand::Write) => CommandName::WriteImage,
            Self::Image(ImageCommand::Delete) => CommandName::DeleteImage,
            Self::Image(ImageCommand::List) => CommandName::ListImages,
            Self::Configuration(ConfigurationCommand::Read) => CommandName::ReadConfiguration,
            Self::Configuration(ConfigurationCommand::Write) => CommandName::WriteConfiguration,
            Self::Array(_) => CommandName::StartArray,
            Self::Reload(_) => CommandName::Reload,
            Self::TransferLeadership(_) => CommandName::TransferLeadership,
        }
    }

    /// The instance that its sender is told it was about, if it is refused because of who that is.
    pub(crate) fn instance(&self) -> Option<&InstanceId> {
        match self {
            Self::Start(request) => Some(&request.instance),
            Self::Array(ArrayCommand::Start(new)) => Some(&new.start.request.instance),
            Self::Array(ArrayCommand::Rerun(array)) => Some(array),
            Self::Delete(target)
            | Self::Stop(target)
            | Self::Forget(target)
            | Self::Suspend(target)
            | Self::Resume(target)
            | Self::AttachVolume { target, .. } => Some(&target.instance),
            _ => None,
        }
    }
}

/// An instance on a node, as a command names them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// The instance.
    pub instance: InstanceId,
    /// The node as the payload writes it.
    pub node: Box<str>,
}
