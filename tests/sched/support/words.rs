//! What STARTs ask for and nodes say of themselves beyond the original's figures: values for it, and verbs that send them.
//!
//! The world they are said in, and what is older than they are, is in `world`.

use proto_frames::payload::{
    Expression, Group, GroupPolicy, Near, PlacementDecision, ReasonKind, Scheduling, StartFailure,
};
use sched_core::{
    Command, ConfigurationFlags, Message, NewConfiguration, NodeExtras, NodeReport, Report, Rules,
    SessionId, StartRequest, StatsReport,
};

use crate::support::world::{Size, World, report, request};

/// Expressions as a START writes them.
pub(crate) fn expressions(texts: &[&str]) -> Vec<Expression> {
    let parse = |text: &&str| text.parse().expect("the test writes it well");
    texts.iter().map(parse).collect()
}

/// A START that says this about its placement.
pub(crate) fn asking(name: &str, mem: i64, scheduling: Scheduling) -> StartRequest {
    StartRequest {
        scheduling: Some(Box::new(scheduling)),
        ..request(name, mem)
    }
}

/// A START that requires this of its node.
pub(crate) fn requiring(name: &str, mem: i64, texts: &[&str]) -> StartRequest {
    let scheduling = Scheduling {
        require: expressions(texts),
        ..Scheduling::default()
    };
    asking(name, mem, scheduling)
}

/// A START that would like this of its node.
pub(crate) fn preferring(name: &str, mem: i64, texts: &[&str]) -> StartRequest {
    let scheduling = Scheduling {
        prefer: expressions(texts),
        ..Scheduling::default()
    };
    asking(name, mem, scheduling)
}

/// A START that needs so much of a custom resource.
pub(crate) fn needing(name: &str, mem: i64, resource: &str, amount: i64) -> StartRequest {
    let scheduling = Scheduling {
        resources: [(resource.to_owned(), amount)].into(),
        ..Scheduling::default()
    };
    asking(name, mem, scheduling)
}

/// A START that has to be near to what this label stands for, or would like to be.
pub(crate) fn near(name: &str, label: &str, scope: &str, hard: bool) -> StartRequest {
    let scheduling = Scheduling {
        near: vec![Near {
            label: label.to_owned(),
            scope: scope.to_owned(),
            hard,
        }],
        ..Scheduling::default()
    };
    asking(name, 1, scheduling)
}

/// A group over nodes, one in each place where they are to be apart.
pub(crate) fn group(id: &str, policy: GroupPolicy) -> Group {
    Group {
        id: id.to_owned(),
        policy,
        ..Group::default()
    }
}

/// A START of a member of a group.
pub(crate) fn member(name: &str, group: &Group) -> StartRequest {
    let scheduling = Scheduling {
        group: Some(group.clone()),
        ..Scheduling::default()
    };
    asking(name, 1, scheduling)
}

/// The same, to be decided and not done, for so many instances.
pub(crate) fn tried(start: StartRequest, count: u32) -> StartRequest {
    let scheduling = Scheduling {
        dry_run: true,
        count: Some(count),
        ..start.scheduling.as_deref().cloned().unwrap_or_default()
    };
    StartRequest {
        scheduling: Some(Box::new(scheduling)),
        ..start
    }
}

/// Labels that a node reports.
pub(crate) fn labels(pairs: &[(&str, &str)]) -> NodeExtras {
    NodeExtras {
        labels: boxed(pairs),
        ..NodeExtras::default()
    }
}

/// Custom resources that a node reports.
pub(crate) fn resources(amounts: &[(&str, i64)]) -> NodeExtras {
    NodeExtras {
        resources: amounts
            .iter()
            .map(|(name, amount)| ((*name).into(), *amount))
            .collect(),
        ..NodeExtras::default()
    }
}

/// Labels as rules and reports keep them.
pub(crate) fn boxed(pairs: &[(&str, &str)]) -> Vec<(Box<str>, Box<str>)> {
    let pair = |(key, value): &(&str, &str)| ((*key).into(), (*value).into());
    pairs.iter().map(pair).collect()
}

/// How many nodes each reason kept from fitting, in the order given.
pub(crate) fn counts(failure: &StartFailure) -> Vec<(ReasonKind, i64)> {
    let reasons = failure.reasons.iter();
    reasons
        .map(|reason| (reason.reason.clone(), reason.nodes))
        .collect()
}

impl World {
    /// A READY whose figures are changed so.
    pub(crate) fn ready_as(&mut self, node: SessionId, change: impl FnOnce(&mut NodeReport)) {
        let mut report = NodeReport {
            hostname: format!("host-{}", node.0).into(),
            ..report(Size::default())
        };
        change(&mut report);
        self.say(node, Report::Ready(Box::new(report)));
    }

    /// A READY of a node of the usual size that says this of itself.
    pub(crate) fn ready_with(&mut self, node: SessionId, extras: NodeExtras) {
        self.ready_as(node, |report| report.extras = Some(Box::new(extras)));
    }

    /// A node of the usual size that takes work, has said what runs on it, and has these labels.
    pub(crate) fn labelled(&mut self, number: u64, pairs: &[(&str, &str)]) -> SessionId {
        let node = self.silent_node(number);
        self.ready_with(node, labels(pairs));
        self.stats(node, Vec::new());
        node
    }

    /// A STATS without instances that says this of the node.
    pub(crate) fn stats_saying(&mut self, node: SessionId, extras: NodeExtras) {
        let report = StatsReport {
            is_plain: true,
            node: self.uuid_of(node).to_string().into(),
            extras: Some(Box::new(extras)),
            ..StatsReport::default()
        };
        self.say(node, Report::Stats(Box::new(report)));
    }

    /// This CONFIGURE.
    pub(crate) fn configure_as(&mut self, controller: SessionId, new: NewConfiguration) {
        let command = Command::Configure(Box::new(new));
        self.say(controller, command);
    }

    /// A CONFIGURE with these rules, or without any.
    pub(crate) fn configure(&mut self, controller: SessionId, rules: Option<Rules>) {
        let new = NewConfiguration {
            flags: ConfigurationFlags::default(),
            rules,
            ..NewConfiguration::default()
        };
        self.configure_as(controller, new);
    }

    /// The StartFailure that a START is answered with, which must be all that is said.
    pub(crate) fn refused(&mut self, controller: SessionId, start: StartRequest) -> StartFailure {
        self.look_away();
        self.start_as(controller, start);
        let told = self.told_once(controller);
        self.nothing_else();
        match told {
            Message::StartFailure(failure) => StartFailure::clone(&failure),
            other => panic!("{other:?} instead of a failure"),
        }
    }

    /// The decision that a dry run is answered with, which must be all that is said.
    pub(crate) fn decided(
        &mut self,
        controller: SessionId,
        start: StartRequest,
    ) -> PlacementDecision {
        self.look_away();
        self.start_as(controller, start);
        let told = self.told_once(controller);
        self.nothing_else();
        match told {
            Message::PlacementDecision(decision) => decision.payload,
            other => panic!("{other:?} instead of a decision"),
        }
    }

    /// Of some nodes those on which a START of this kind may run, in their order; nothing is claimed.
    pub(crate) fn fitting(
        &mut self,
        controller: SessionId,
        start: StartRequest,
        nodes: &[SessionId],
    ) -> Vec<SessionId> {
        // As the search goes round, each that fits is found, were it alone, and twice over if all do.
        let count = 2 * u32::try_from(nodes.len()).expect("a test has few nodes");
        let decision = self.decided(controller, tried(start, count));
        let is_found = |node: &&SessionId| {
            let uuid = self.uuid_of(**node).to_string();
            let mut found = decision.placements.iter();
            found.any(|placement| placement.node_uuid == uuid)
        };
        nodes.iter().filter(is_found).copied().collect()
    }
}
