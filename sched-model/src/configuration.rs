//! The cluster configuration and its versions, as operators read and replace it (added by this project): what is asked
//! of the scheduler, and its answers. The configuration itself follows the document as it is.

use crate::{record, words};

/// Largest configuration taken, in bytes: every peer that connects is sent it.
pub const MAX_CONFIGURATION_LEN: usize = 1024 * 1024;

/// Versions that the scheduler keeps: the one in force and those before it.
pub const MAX_CONFIGURATION_VERSIONS: usize = 16;

/// Instances that an answer names which would not be placed where they are; the others are counted.
pub const MAX_AFFECTED: usize = 100;

/// Longest note of a version, in bytes: a line for people.
pub const MAX_CONFIGURATION_NOTE_LEN: usize = 256;

record! {
    /// `read_configuration: {id, version, file, nodes}`; answered by [`ConfigurationPart`].
    pub struct ReadConfiguration {
        /// The sender's number for it, given back in the answer.
        id: u64 as "id",
        /// The version that is wanted; with none the one in force.
        version: Option<u64> as "version" unless empty,
        /// Whether the scheduler's own file is wanted instead, as it is now.
        file: bool as "file" unless empty,
        /// Whether the node file is wanted instead of the configuration: as it was read last, or with `file` as it is now.
        nodes: bool as "nodes" unless empty,
    }
}

record! {
    /// `write_configuration: {id, check, nodes, if_version, note, bytes}`, with the configuration behind it; answered by
    /// [`ConfigurationPart`].
    pub struct WriteConfiguration {
        /// The sender's number for it, given back in the answer.
        id: u64 as "id",
        /// Whether only what would come of it is wanted: nothing is changed.
        check: bool as "check" unless empty,
        /// Whether it is a node file that is checked; it is changed by no command.
        nodes: bool as "nodes" unless empty,
        /// The version that has to be in force; otherwise nothing is changed.
        if_version: Option<u64> as "if_version" unless empty,
        /// What it is for, in a line for people.
        note: String as "note" unless empty,
        /// How many bytes follow the document.
        bytes: u64 as "bytes" unless empty,
    }
}

record! {
    /// `configuration: {id, version, current, versions, …, failure, detail, bytes}`: the answer, with the configuration that
    /// was asked for behind it.
    pub struct ConfigurationPart {
        /// The number of what this answers.
        id: u64 as "id",
        /// The version that this is about; 0 for none: a file, a configuration that is only checked, or the defaults.
        version: u64 as "version" unless empty,
        /// The version in force; 0 while there is none.
        current: u64 as "current" unless empty,
        /// The versions that are kept, newest first; only in the answer to ReadConfiguration.
        versions: Vec<ConfigurationVersion> as "versions" unless empty,
        /// Where the scheduler's own file is; only in the answer to ReadConfiguration.
        file: String as "file" unless empty,
        /// Whether this is about the node file.
        nodes: bool as "nodes" unless empty,
        /// Whether versions outlive the scheduler.
        kept: bool as "kept" unless empty,
        /// What is in it that counts for nothing, in a line each for people.
        warnings: Vec<String> as "warnings" unless empty,
        /// Instances that would not be placed where they are; only in the answer to a check.
        affected: Vec<AffectedInstance> as "affected" unless empty,
        /// How many more there are.
        more_affected: u64 as "more_affected" unless empty,
        /// How many were looked at.
        checked: u64 as "checked" unless empty,
        /// Why it was not done; empty where it was.
        failure: ConfigurationFailure as "failure" unless empty,
        /// More about that, for people.
        detail: String as "detail" unless empty,
        /// How many bytes follow the document.
        bytes: u64 as "bytes" unless empty,
    }
}

record! {
    /// A version of the configuration that is kept.
    pub struct ConfigurationVersion {
        /// Its number, from 1.
        version: u64 as "version",
        /// Since when it was in force, milliseconds of Unix time.
        at_ms: u64 as "at_ms",
        /// Where it is from.
        source: ConfigurationSource as "source",
        /// Who set it: the subject of a certificate; where it is from a file, that file.
        by: String as "by",
        /// What it is for.
        note: String as "note" unless empty,
        /// How many bytes it has.
        bytes: u64 as "bytes" unless empty,
    }
}

words! {
    /// Where a version is from.
    pub enum ConfigurationSource {
        /// The scheduler's own file.
        File = "file",
        /// An operator's command.
        Command = "command",
        /// CONFIGURE of a controller.
        Controller = "controller",
    }
}

record! {
    /// An instance that would not be placed where it is.
    pub struct AffectedInstance {
        /// The instance.
        instance_uuid: String as "instance_uuid",
        /// Its name; empty for none.
        name: String as "name" unless empty,
        /// The node that has it.
        node_uuid: String as "node_uuid",
        /// The host name of that node.
        hostname: String as "hostname" unless empty,
        /// What speaks against it, in a line for people.
        reason: String as "reason",
    }
}

words! {
    /// Why something was not done with the configuration.
    pub enum ConfigurationFailure {
        /// What was sent makes no sense, or is mistaken.
        InvalidData = "invalid_data",
        /// Another version is in force than the sender takes for it.
        Conflict = "conflict",
        /// There is no such version, or no file.
        NotFound = "not_found",
        /// As much is asked for as may be at a time.
        Busy = "busy",
        /// It cannot be read or written.
        Failed = "failed",
    }
}

impl ConfigurationPart {
    /// That it was not done, and why.
    #[must_use]
    pub fn fail(id: u64, failure: ConfigurationFailure, detail: impl Into<String>) -> Self {
        Self {
            id,
            failure,
            detail: detail.into(),
            ..Self::default()
        }
    }

    /// Whether it says why something was not done.
    #[must_use]
    pub fn is_failure(&self) -> bool {
        !self.failure.as_str().is_empty()
    }
}
