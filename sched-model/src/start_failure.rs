//! StartFailure: a workload could not be started, and why.

use crate::{record, words};

use crate::reason::Reason;

record! {
    /// `{node_uuid, instance_uuid, reason, restart}`, and to native peers `{…, detail, reasons, never, attempts}`.
    pub struct StartFailure {
        /// The node that says so; empty where it is the scheduler.
        node_uuid: String as "node_uuid",
        /// The instance; empty where the START could not be read.
        instance_uuid: String as "instance_uuid",
        /// The reason code.
        reason: StartFailureReason as "reason",
        /// Whether it was an existing instance that was to be started again.
        restart: bool as "restart",
        /// More about it, for people (added by this project).
        detail: Option<String> as "detail" unless empty,
        /// Why nodes did not fit, those that concern most nodes first (added by this project).
        reasons: Vec<Reason> as "reasons" unless empty,
        /// Whether it would not fit even if the nodes were empty: trying again does not help (added by this project).
        never: bool as "never" unless empty,
        /// The nodes it was tried on before, in order, and why each could not start it (added by this project).
        attempts: Vec<AttemptFailed> as "attempts" unless empty,
        /// Number of this end, where its launcher numbers them: the same as in `ended` of STATS (added by this project).
        seq: Option<u64> as "seq" unless empty,
    }
}

record! {
    /// One try to start a workload that failed.
    pub struct AttemptFailed {
        /// The node.
        node_uuid: String as "node_uuid",
        /// The reason code.
        reason: StartFailureReason as "reason",
        /// More about it, for people.
        detail: String as "detail" unless empty,
    }
}

words! {
    /// Why a workload could not be started.
    pub enum StartFailureReason {
        /// No node of the cluster has room.
        FullCloud = "full_cloud",
        /// The node chosen has no room.
        FullComputeNode = "full_cn",
        /// The node chosen is in maintenance.
        NodeMaintenance = "node_maintenance",
        /// No compute node is connected.
        NoComputeNodes = "no_cn",
        /// No network node is connected or has room.
        NoNetworkNodes = "no_net_cn",
        /// The START could not be read.
        InvalidPayload = "invalid_payload",
        /// A value of the START is missing or absurd.
        InvalidData = "invalid_data",
        /// The instance runs already; not fatal.
        AlreadyRunning = "already_running",
        /// The instance exists already; not fatal.
        InstanceExists = "instance_exists",
        /// The image could not be had.
        ImageFailure = "image_failure",
        /// The instance did not come up.
        LaunchFailure = "launch_failure",
        /// The instance's network could not be set up.
        NetworkFailure = "network_failure",
        /// It has waited for room as long as it was to (added by this project).
        QueueTimeout = "queue_timeout",
        /// The scheduler cannot record it on disk, and so could not keep it (added by this project).
        NotRecorded = "not_recorded",
        /// What it was to come after has not ended as it was to, or is not known (added by this project).
        DependencyFailed = "dependency_failed",
    }
}

impl StartFailure {
    /// The failure without the keys and words that this project added, as original controllers know it. Where none of their
    /// words says what is wrong ([`StartFailureReason::NotRecorded`]), `detail` does, which their decoder passes over.
    #[must_use]
    pub fn to_original(&self) -> Self {
        Self {
            node_uuid: self.node_uuid.clone(),
            instance_uuid: self.instance_uuid.clone(),
            reason: self.reason.to_original(),
            restart: self.restart,
            detail: self
                .detail
                .clone()
                .filter(|_| self.reason == StartFailureReason::NotRecorded),
            ..Self::default()
        }
    }
}

impl StartFailureReason {
    /// The word that original controllers know for it: they take one that they do not know for harmless.
    #[must_use]
    pub fn to_original(&self) -> Self {
        match self {
            Self::QueueTimeout | Self::NotRecorded => Self::FullCloud,
            Self::DependencyFailed => Self::LaunchFailure,
            known => known.clone(),
        }
    }

    /// Whether the instance is gone for its controller. Words unknown here are not: original controllers take them so.
    #[must_use]
    pub const fn is_fatal(&self) -> bool {
        !matches!(
            self,
            Self::AlreadyRunning | Self::InstanceExists | Self::Other(_)
        )
    }
}
