//! `start.scheduling`: how a START is to be placed, beyond what original controllers can say (added by this project).
//!
//! ```yaml
//! scheduling:
//!   version: 1
//!   must_understand: [group]
//!   priority: 50
//!   queue: 30s
//!   require: ["zone = eu-1", "cpu.model in (zen4, zen5)"]
//!   prefer: ["rack = r7"]
//!   resources: {gpu: 1}
//!   group: {id: web, policy: anti-affinity, scope: node, max: 1}
//!   near: [{label: volume-7, scope: rack, hard: false}]
//!   same_node: [0c7a5f7e-55f1-4f0c-9a53-6f9b7d2f3a01]
//!   different_node: [4cb19522-1e18-439a-883a-f9b2a3a95f5e]
//!   batch: {id: b1, count: 8}
//!   attempts: 3
//!   relocate: true
//!   on_node_loss: restart
//!   time_limit: 10m
//!   stop: {signal: INT, grace: 30s}
//!   restart: {when: on-failure, max: 5, backoff: 1s..5m, window: 1h}
//!   retry: {on: [75, 100-120, signal, node_failure], max: 3}
//!   after: [{instance: 5f0c2a4e-8d5e-4a0b-9c43-0d9f3a0f6c11, end: ok}]
//!   image: ubuntu-24.04
//!   name: web-1
//!   dry_run: true
//!   count: 100
//!   alternates: 2
//! ```
//!
//! All keys are optional. A value that makes no sense refuses the START, and so does a key that is not known here: a
//! condition that is mistyped is not to become none. A launcher ignores what it does not know: the scheduler understood
//! it.

use std::collections::BTreeMap;

use crate::expression::{Expression, is_name};
use crate::span::Span;
use crate::value::Record;
use crate::{record, words};
use after::After;
use limits::{RestartPolicy, RestartWhen, Stop};
use retry::RetryPolicy;

pub mod after;
mod check;
pub mod limits;
pub mod retry;

/// The version of these keys that is understood.
pub const VERSION: u32 = 1;

/// Highest priority; 0 is the lowest.
pub const MAX_PRIORITY: i64 = 100;

/// Longest time to wait for room: 30 days. A START that waits longer is taken for forgotten.
pub const MAX_QUEUE: Span = Span::from_ms(30 * 24 * 3_600_000);

/// Most expressions in `require`, and in `prefer`: each is evaluated on its own.
pub const MAX_EXPRESSIONS: usize = 32;

/// Most resources that one START asks for.
pub const MAX_RESOURCES: usize = 16;

/// Most labels of one START: they are kept with its end.
pub const MAX_LABELS: usize = 8;

/// Most entries of `near`.
pub const MAX_NEAR: usize = 8;

/// Most entries of `same_node`, and of `different_node`: each is looked up for every choice.
pub const MAX_INSTANCES_NAMED: usize = 32;

/// Most further nodes that a dry run is told: each is chosen like the first.
pub const MAX_ALTERNATES: u32 = 100;

/// Most entries of `must_understand`: more than there are keys.
pub const MAX_MUST_UNDERSTAND: usize = 32;

/// Largest batch: all of its STARTs are kept until the last has come.
pub const MAX_BATCH: u32 = 1024;

/// Most nodes that one START is tried on: a workload that ten nodes cannot start is at fault itself.
pub const MAX_ATTEMPTS: u32 = 10;

/// Most instances that one dry run asks about: each is chosen like a START of its own.
pub const MAX_COUNT: u32 = 10_000;

/// Longest name of an image, in characters: what a registry allows for repository, tag and digest together.
pub const MAX_IMAGE_CHARS: usize = 512;

/// Longest name of an instance, in bytes: a label of a host name in the DNS.
pub const MAX_INSTANCE_NAME_LEN: usize = 63;

/// How many of a group may be in one place if `max` does not say it.
pub const DEFAULT_GROUP_MAX: u32 = 1;

/// What one place is if `scope` does not say it.
pub const SCOPE_NODE: &str = "node";

record! {
    /// How a START is to be placed.
    pub struct Scheduling {
        /// The version of these keys that it was written for; only [`VERSION`] in a START that was decoded.
        version: Option<u32> as "version" unless empty,
        /// Keys without which it must not be placed; only ones of [`Scheduling::KEYS`] in a START that was decoded.
        must_understand: Vec<String> as "must_understand" unless empty,
        /// How urgent it is, 0 to [`MAX_PRIORITY`], higher first.
        priority: Option<i64> as "priority" unless empty,
        /// How long it may wait for room, at most [`MAX_QUEUE`]; with 0 or none it fails at once.
        queue: Option<Span> as "queue" unless empty,
        /// What the node must meet, at most [`MAX_EXPRESSIONS`].
        require: Vec<Expression> as "require" unless empty,
        /// What the node had better meet, at most [`MAX_EXPRESSIONS`].
        prefer: Vec<Expression> as "prefer" unless empty,
        /// Further countable resources that it needs, by name, none negative, at most [`MAX_RESOURCES`].
        resources: BTreeMap<String, i64> as "resources" unless empty,
        /// The group it belongs to.
        group: Option<Group> as "group" unless empty,
        /// What it is to be near to, at most [`MAX_NEAR`].
        near: Vec<Near> as "near" unless empty,
        /// Instances by UUID, at most [`MAX_INSTANCES_NAMED`]: it must be on a node that has one of these.
        same_node: Vec<String> as "same_node" unless empty,
        /// Instances by UUID, at most [`MAX_INSTANCES_NAMED`]: it must not be on a node that has one of these.
        different_node: Vec<String> as "different_node" unless empty,
        /// The batch it belongs to.
        batch: Option<Batch> as "batch" unless empty,
        /// On how many nodes it may be tried, 1 to [`MAX_ATTEMPTS`], where the first ones could not start it; with none
        /// on one.
        attempts: Option<u32> as "attempts" unless empty,
        /// Whether it may be moved to another node; with none as the policy says.
        relocate: Option<bool> as "relocate" unless empty,
        /// What is to be done when its node is lost; empty for [`OnNodeLoss::Report`].
        on_node_loss: OnNodeLoss as "on_node_loss" unless empty,
        /// How long it may be there, over all its restarts and moves; suspended time does not count.
        time_limit: Option<Span> as "time_limit" unless empty,
        /// How it is asked to end.
        stop: Option<Stop> as "stop" unless empty,
        /// Whether it is started again on its node when its program has ended.
        restart: Option<RestartPolicy> as "restart" unless empty,
        /// After which ends it is placed again, where it is not started again on its node any more.
        retry: Option<RetryPolicy> as "retry" unless empty,
        /// Instances that must have ended before it is placed, at most [`after::MAX_AFTER`].
        after: Vec<After> as "after" unless empty,
        /// What it is to be found by once it has ended, at most [`MAX_LABELS`]; no node is chosen by them.
        labels: BTreeMap<String, String> as "labels" unless empty,
        /// Whether its standard error is kept apart from its standard output. Launchers that do not know it keep both together.
        split_output: bool as "split_output" unless empty,
        /// The image it runs, as nodes that have it label themselves; empty for none.
        image: String as "image" unless empty,
        /// The name of its instance, beside its UUID; no other living instance of its tenant has that name. Empty for
        /// none.
        name: String as "name" unless empty,
        /// Whether only the decision is wanted: nothing is claimed or started.
        dry_run: bool as "dry_run" unless empty,
        /// Of a dry run, how many instances of this shape it asks about: 1 to [`MAX_COUNT`].
        count: Option<u32> as "count" unless empty,
        /// Of a dry run, how many further nodes are to be named that it could go to instead, best first: at most
        /// [`MAX_ALTERNATES`].
        alternates: Option<u32> as "alternates" unless empty,
    }
}

/// Whether a text may be the name of an instance: 1 to [`MAX_INSTANCE_NAME_LEN`] letters, digits, `.`, `_` and `-`
/// (ASCII), the first of which is a letter or digit. Not a UUID, so that a name and a UUID are never mistaken for one
/// another.
#[must_use]
pub fn is_instance_name(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    let begins = |byte: &u8| byte.is_ascii_alphanumeric();
    name.len() <= MAX_INSTANCE_NAME_LEN
        && name.bytes().all(is_plain)
        && name.as_bytes().first().is_some_and(begins)
        && name.parse::<crate::Uuid>().is_err()
}

record! {
    /// A set of instances that are to be placed together, or apart.
    pub struct Group {
        /// Which; a name.
        id: String as "id",
        /// Together or apart; a known word in a START that was decoded.
        policy: GroupPolicy as "policy",
        /// What one place is: [`SCOPE_NODE`], or a label whose value is the same in one place.
        scope: String as "scope" = SCOPE_NODE.to_owned(),
        /// How many may be in one place, from 1; only where they are to be apart.
        max: Option<u32> as "max" unless empty,
    }
}

words! {
    /// Whether the instances of a group are to be together.
    pub enum GroupPolicy {
        /// All must be in one place.
        Affinity = "affinity",
        /// No place may have more than [`Group::max_in_place`].
        AntiAffinity = "anti-affinity",
        /// They had better be in one place.
        SoftAffinity = "soft-affinity",
        /// No place had better have more than [`Group::max_in_place`].
        SoftAntiAffinity = "soft-anti-affinity",
    }
}

record! {
    /// Something to be near to, such as a volume or a port: a label that nodes have which it can be reached from.
    pub struct Near {
        /// The label.
        label: String as "label",
        /// What near means: on such a node ([`SCOPE_NODE`]), or where this label has the same value as on one.
        scope: String as "scope" = SCOPE_NODE.to_owned(),
        /// Whether it must be so, rather than had better.
        hard: bool as "hard",
    }
}

record! {
    /// A set of STARTs that are placed all at once or not at all.
    pub struct Batch {
        /// Which; a name.
        id: String as "id",
        /// How many there are, 1 to [`MAX_BATCH`].
        count: u32 as "count",
    }
}

words! {
    /// What is to be done about an instance whose node is lost.
    pub enum OnNodeLoss {
        /// Its controller is told.
        Report = "report",
        /// It is started on another node, once its own must have ended it: only nodes with a lease do.
        Restart = "restart",
    }
}

impl Scheduling {
    /// The keys that this version knows.
    pub const KEYS: &'static [&'static str] = &{
        const LEN: usize = <Scheduling as Record>::FIELDS.len();
        let mut keys = [""; LEN];
        let mut at = 0;
        while at < LEN {
            keys[at] = <Self as Record>::FIELDS[at].key;
            at += 1;
        }
        keys
    };

    /// On how many nodes it may be tried.
    #[must_use]
    pub fn max_attempts(&self) -> u32 {
        self.attempts.unwrap_or(1)
    }

    /// Whether it is to be started on another node when its own is lost: without limit, or as one of its retries.
    #[must_use]
    #[inline]
    pub fn restarts_on_node_loss(&self) -> bool {
        self.on_node_loss == OnNodeLoss::Restart
            || (self.retry.as_ref()).is_some_and(RetryPolicy::covers_node_failure)
    }

    /// Whether its launcher has to do something about it while it runs: end it in time, or in a way of its own, start
    /// it again, or say how it ended by itself. Launchers of the original pass over that.
    #[must_use]
    pub fn needs_run_limits(&self) -> bool {
        self.time_limit.is_some()
            || self.stop.is_some()
            || self.restart_policy().is_some()
            || self.retry.is_some()
    }

    /// Whether and how it is started again on its node when its program has ended; `None` where it never is.
    #[must_use]
    pub fn restart_policy(&self) -> Option<&RestartPolicy> {
        let is_any = |restart: &&RestartPolicy| restart.when != RestartWhen::Never;
        self.restart.as_ref().filter(is_any)
    }

    /// How many instances of this shape are asked about; 1 for all but a dry run that says otherwise.
    #[must_use]
    pub fn instances(&self) -> u32 {
        self.count.unwrap_or(1)
    }
}

impl Group {
    /// How many may be in one place, where they are to be apart.
    #[must_use]
    pub fn max_in_place(&self) -> u32 {
        self.max.unwrap_or(DEFAULT_GROUP_MAX)
    }
}

impl GroupPolicy {
    /// Whether the instances are to be apart rather than together.
    #[must_use]
    pub const fn is_anti(&self) -> bool {
        matches!(self, Self::AntiAffinity | Self::SoftAntiAffinity)
    }

    /// Whether it is a preference rather than a requirement.
    #[must_use]
    pub const fn is_soft(&self) -> bool {
        matches!(self, Self::SoftAffinity | Self::SoftAntiAffinity)
    }
}

/// Whether the text may be the name of an image: 1 to [`MAX_IMAGE_CHARS`] characters, none of them a blank or a control
/// character.
fn is_image(text: &str) -> bool {
    (1..=MAX_IMAGE_CHARS).contains(&text.chars().count())
        && !text.contains(|c: char| c.is_whitespace() || c.is_control())
}
