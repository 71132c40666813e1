//! An entry of a ledger: one instance on a node, what it asked for, what it uses, and how certain all that is.
//!
//! An entry computes what it claims; the sums over a node's entries, and what reports change in them, are the ledger's.

use std::ops::{AddAssign, SubAssign};
use std::sync::Arc;
use std::time::Instant;

use sched_model::RunProgress;

use super::sent::{Remains, Resumption};
use super::window::{Sample, Usage, Window};
use crate::api::config::{Accounting, Config};
use crate::api::content::Content;
use crate::api::ids::SessionId;
use crate::api::input::{ConfigurationFlags, InstanceReport, InstanceState};
use crate::api::resources::{MAX_ADOPTED, Resources};
use crate::cluster::columns::Amounts;
use crate::cluster::index::ColumnId;

/// Virtual CPUs that a running instance counts with where it is not known what it asked for: the least that one has.
/// STATS say how busy its CPUs are, not how many there are.
const VCPUS_IF_UNKNOWN: i64 = 1;

/// One instance on a node.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    /// What it asked for; zero where that is not known.
    pub(in crate::cluster) asked: Resources,
    /// Whether `asked` is known: not of an instance on an original launcher that this scheduler did not start.
    pub(in crate::cluster) is_known: bool,
    /// Whether it was restored from records or memory because its node or the scheduler was away, and was not listed
    /// since.
    pub(super) is_remembered: bool,
    /// What else it asked for; `None` for most.
    pub(super) extras: Option<Box<Extras>>,
    /// What it uses, from the latest STATS; 0 while unknown.
    pub(in crate::cluster) used_mem_mib: i64,
    /// What it uses, from the latest STATS; 0 while unknown.
    pub(in crate::cluster) used_disk_mib: i64,
    /// What it used over a window of time, where measured accounting counts by that.
    pub(super) usage: Option<Box<Usage>>,
    /// How certain it is that the instance is there.
    pub(in crate::cluster) claim_state: ClaimState,
    /// When the entry was made.
    pub(in crate::cluster) since: Instant,
    /// The state that its launcher reported last.
    pub(in crate::cluster) reported: Option<InstanceState>,
    /// The session that sent its START, while that is known: it is sent what the launcher reports of the start.
    pub(in crate::cluster) sender: Option<SessionId>,
    /// The latest START that was resent while it ran, until the node has answered it.
    pub(super) repeated: Option<Unconfirmed>,
    /// STARTs of it that were given to the node and of which nothing has been heard. A node says in order what it did:
    /// each of them ends in a failure, or in that the instance is listed or has ended.
    pub(super) open: u32,
    /// Whether a START from before this connection, not among the open ones, may have brought it there.
    pub(super) is_doubted: bool,
    /// Whether it was last listed as being started. The START behind that is not among the open ones any more, and may
    /// still fail.
    pub(super) is_starting: bool,
    /// STATS in a row that should have listed it and did not.
    pub(super) misses: u8,
    /// The latest STATS that listed it, by the ledger's count.
    pub(super) listed_in: u64,
    /// Whether it is managed: then changes that STATS report are handed on to the workflows.
    pub(in crate::cluster) is_managed: bool,
    /// Whether it is suspended, and what is free for others then.
    pub(in crate::cluster) suspension: Suspension,
    /// Whether its launcher may still carry out a RESUME.
    pub(super) resumption: Resumption,
    /// Stops that its launcher was sent over this connection and has neither carried out nor refused.
    pub(super) stops: u8,
    /// Whether one was lost with an earlier connection, or could not be sent.
    pub(super) is_stop_lost: bool,
    /// Whether one that was sent before its START is still to be answered, for the run before.
    pub(super) is_stop_late: bool,
    /// What it leaves where it is ended as was asked for last.
    pub(super) remains: Remains,
    /// The least that it claims, whatever is reported, while an UPDATE of it is under way.
    pub(super) floor: Option<Box<Floor>>,
    /// Its restarts and its time, as its launcher reported last; `None` for most.
    pub(super) run: Option<Box<RunProgress>>,
    /// What tells the START that brought it there from others; `None` where that is not known.
    pub(super) content: Option<Content>,
}

/// The least that an instance claims while it is being changed: the larger of the old and the new amounts.
#[derive(Debug, Clone)]
pub(crate) struct Floor {
    /// Memory, vcpus and disk.
    pub(crate) least: Resources,
    pub(crate) custom: Amounts,
    /// The amounts that its launcher has reported since: they tell whether a late UPDATE was carried out.
    pub(super) said: Option<Resources>,
}

impl Floor {
    /// A floor for which its launcher has reported nothing yet.
    pub(crate) fn new(least: Resources, custom: Amounts) -> Self {
        Self {
            least,
            custom,
            said: None,
        }
    }
}

/// The larger of each amount of custom resources.
pub(crate) fn larger(one: &Amounts, other: &Amounts) -> Amounts {
    let mut all: Vec<_> = one.iter().chain(other.iter()).copied().collect();
    // Of each the largest comes first.
    all.sort_unstable_by_key(|&(column, amount)| (column, std::cmp::Reverse(amount)));
    all.dedup_by_key(|(column, _)| *column);
    all.into()
}

/// What few instances have: custom resources, and a group.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Extras {
    /// Custom resources it asked for.
    pub(crate) custom: Amounts,
    /// The group it is a member of.
    pub(crate) group: Option<Arc<str>>,
}

/// Whether an instance is suspended, and what that frees for others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Suspension {
    /// It is not, or may be resumed any moment.
    #[default]
    None,
    /// By command: its vcpus are free. It keeps its place in its group, unless it had given that up for a preemptor.
    ByCommand,
    /// For a preemptor, and perhaps by command later: its vcpus are free, and so is its place in its group.
    ForPreemptor,
}

/// How many members of a group there are, or how many more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Members {
    /// All of them.
    pub(crate) all: i32,
    /// Those that take a place: all but those that were preempted and are suspended.
    pub(crate) in_place: i32,
}

impl Members {
    /// So many less.
    pub(crate) fn negated(self) -> Self {
        Self {
            all: -self.all,
            in_place: -self.in_place,
        }
    }
}

/// How sure it is that an instance is on its node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ClaimState {
    /// Its room is claimed, and nothing was sent to the node yet.
    Claimed,
    /// Its START was given to the node, which has not listed it yet.
    Placed(Unconfirmed),
    /// As `Placed`, but the connection has ended since.
    InDoubt(Unconfirmed),
    /// The node listed it.
    Running,
}

impl ClaimState {
    /// The START behind it, while that has no outcome.
    pub(super) fn unconfirmed(self) -> Option<Unconfirmed> {
        match self {
            Self::Placed(unconfirmed) | Self::InDoubt(unconfirmed) => Some(unconfirmed),
            Self::Claimed | Self::Running => None,
        }
    }
}

/// A START without an outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Unconfirmed {
    /// The session that is sent the failure if it fails.
    pub(crate) sender: SessionId,
    /// Which START on the node's connection it was, from 1.
    pub(crate) ordinal: u64,
    /// Whether it was a restart; only echoed in failures.
    pub(crate) restart: bool,
}

/// By which rule instances count once they are listed, resource by resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Measured {
    mem: CountsAs,
    disk: CountsAs,
    vcpus: CountsAs,
    window: Window,
}

/// What an instance counts as of one resource once it is listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CountsAs {
    /// What it asked for.
    Asked,
    /// What it used for some time, as soon as that is known.
    Measured,
    /// What the node's figures already show it to use, and nothing beyond: the resource is not limited.
    Used,
}

impl Measured {
    /// As the settings and the cluster configuration say.
    pub(crate) fn new(config: &Config, flags: ConfigurationFlags) -> Self {
        let of = |is_limited: bool| match config.accounting {
            Accounting::Measured => CountsAs::Measured,
            Accounting::Requested if is_limited => CountsAs::Asked,
            Accounting::Requested => CountsAs::Used,
        };
        Self {
            mem: of(flags.mem_limit),
            disk: of(flags.disk_limit),
            vcpus: of(true),
            window: Window {
                length: config.measured_window,
                percentile: config.measured_percentile,
            },
        }
    }
}

/// What instances claim of memory, vcpus and disk, in two sums.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Claims {
    /// What was asked for and is not visible in the figures that the node reports.
    pub(crate) held: Resources,
    /// What was asked for, used or not; nothing of what counts as what is used.
    pub(crate) asked: Resources,
}

impl AddAssign for Claims {
    fn add_assign(&mut self, other: Self) {
        self.held += other.held;
        self.asked += other.asked;
    }
}

impl SubAssign for Claims {
    fn sub_assign(&mut self, other: Self) {
        self.held -= other.held;
        self.asked -= other.asked;
    }
}

impl Entry {
    /// The entry of a START just given to its node.
    pub(crate) fn placed(
        asked: Resources,
        extras: Extras,
        since: Instant,
        unconfirmed: Unconfirmed,
    ) -> Self {
        Self {
            asked,
            is_known: true,
            is_remembered: false,
            extras: extras.boxed(),
            used_mem_mib: 0,
            used_disk_mib: 0,
            usage: None,
            claim_state: ClaimState::Placed(unconfirmed),
            since,
            reported: None,
            sender: Some(unconfirmed.sender),
            repeated: None,
            open: 1,
            is_doubted: false,
            is_starting: false,
            run: None,
            misses: 0,
            listed_in: 0,
            is_managed: false,
            suspension: Suspension::None,
            resumption: Resumption::Answered,
            stops: 0,
            is_stop_late: false,
            is_stop_lost: false,
            remains: Remains::Nothing,
            floor: None,
            content: None,
        }
    }

    /// The same, of a START that is known to be this one.
    pub(crate) fn with_content(mut self, content: Option<Content>) -> Self {
        self.content = content;
        self
    }

    /// What tells the START that brought it there from others; `None` where that is not known.
    pub(crate) fn content(&self) -> Option<Content> {
        self.content
    }

    /// The START behind it, while it has no outcome.
    pub(crate) fn unconfirmed(&self) -> Option<Unconfirmed> {
        self.claim_state.unconfirmed()
    }

    /// The session whose START its node answers next: the latest that has no outcome, else the one that brought it
    /// there.
    pub(crate) fn asker(&self) -> Option<SessionId> {
        let latest = self.repeated.or(self.unconfirmed());
        latest.map(|start| start.sender).or(self.sender)
    }

    /// The entry of an instance whose START is still to be given to its node.
    pub(crate) fn claimed(asked: Resources, extras: Extras, since: Instant) -> Self {
        Self {
            asked,
            is_known: true,
            extras: extras.boxed(),
            claim_state: ClaimState::Claimed,
            ..Self::adopted(since)
        }
    }

    /// The entry of an instance on a node that comes back, from what was known of it before.
    pub(crate) fn remembered(asked: Resources, extras: Extras, since: Instant) -> Self {
        Self {
            asked,
            is_known: true,
            is_remembered: true,
            extras: extras.boxed(),
            ..Self::adopted(since)
        }
    }

    /// The same entry; where it is not known what it asked for, it claims what it uses.
    pub(crate) fn known_if(self, is_known: bool) -> Self {
        Self { is_known, ..self }
    }

    /// The entry of an instance that a node lists and that this scheduler did not start: it claims what it uses.
    pub(super) fn adopted(since: Instant) -> Self {
        let no_one = Unconfirmed {
            sender: SessionId(0),
            ordinal: 0,
            restart: false,
        };
        Self {
            is_known: false,
            claim_state: ClaimState::Running,
            sender: None,
            open: 0,
            ..Self::placed(Resources::ZERO, Extras::default(), since, no_one)
        }
    }

    /// What it asked for; zero where that is not known.
    pub(crate) fn asked(&self) -> Resources {
        self.asked
    }

    /// Whether that is known.
    pub(crate) fn is_known(&self) -> bool {
        self.is_known
    }

    /// Memory that it uses, from the latest STATS; 0 while unknown.
    pub(crate) fn used_mem_mib(&self) -> i64 {
        self.used_mem_mib
    }

    /// Disk that it uses, from the latest STATS; 0 while unknown.
    pub(crate) fn used_disk_mib(&self) -> i64 {
        self.used_disk_mib
    }

    /// Whether its node had it when it was last heard of, also where a START that was sent once more since is in doubt.
    pub(crate) fn may_run(&self) -> bool {
        match self.claim_state {
            ClaimState::Running => true,
            ClaimState::InDoubt(_) => self.listed_in > 0 || self.is_remembered,
            ClaimState::Placed(_) | ClaimState::Claimed => false,
        }
    }

    /// Whether it is known from before its node was away alone: the node has not listed it since.
    pub(crate) fn is_remembered(&self) -> bool {
        self.is_remembered
    }

    /// How certain it is that the instance is on the node.
    pub(crate) fn claim_state(&self) -> ClaimState {
        self.claim_state
    }

    /// When the entry was made.
    pub(crate) fn since(&self) -> Instant {
        self.since
    }

    /// The state that its launcher reported last; `None` before.
    pub(crate) fn reported(&self) -> Option<InstanceState> {
        self.reported
    }

    /// The session that sent its START, while that is known; `None` also for an adopted instance.
    pub(crate) fn sender(&self) -> Option<SessionId> {
        self.sender
    }

    /// Whether it is managed.
    pub(crate) fn is_managed(&self) -> bool {
        self.is_managed
    }

    /// Whether it is suspended: its vcpus are free for others then.
    pub(crate) fn is_suspended(&self) -> bool {
        self.suspension != Suspension::None
    }

    /// Whether it has given up its place in its group: it was preempted and is suspended.
    pub(crate) fn gives_way(&self) -> bool {
        self.suspension == Suspension::ForPreemptor
    }

    /// What it counts for in its group: always as a member, and as one that takes a place unless it gives way.
    pub(super) fn membership(&self) -> Members {
        Members {
            all: 1,
            in_place: i32::from(!self.gives_way()),
        }
    }

    /// The same entry, marked as that of a managed instance.
    pub(crate) fn managed(self) -> Self {
        Self {
            is_managed: true,
            ..self
        }
    }

    /// Custom resources it asked for.
    pub(crate) fn custom(&self) -> &[(ColumnId, i64)] {
        self.extras.as_ref().map_or(&[], |extras| &extras.custom)
    }

    /// Its restarts and its time, as its launcher reported last.
    pub(crate) fn progress(&self) -> Option<&RunProgress> {
        self.run.as_deref()
    }

    /// The group it is a member of.
    pub(crate) fn group(&self) -> Option<&Arc<str>> {
        self.extras.as_ref()?.group.as_ref()
    }

    /// Whether every START of it that the node may have is newer than those its launcher has seen: an end that the
    /// launcher reports belongs to an earlier run then.
    pub(crate) fn is_all_after(&self, starts_seen: u64) -> bool {
        let is_later = |start: Unconfirmed| start.ordinal > starts_seen;
        matches!(self.claim_state, ClaimState::Placed(start) if is_later(start))
            && self.open <= 1
            && !self.is_doubted
    }

    /// Takes in what a STATS says that it uses, where measured accounting is to look back on that.
    pub(super) fn measure(&mut self, report: &InstanceReport, measured: Measured, now: Instant) {
        if measured.vcpus != CountsAs::Measured || report.mem_used_mib < 0 {
            return;
        }
        const ALL: i64 = 100;
        let vcpus = self.asked.vcpus.max(1);
        let share = match report.cpu_used_percent {
            unknown if unknown < 0 => ALL,
            known => known,
        };
        let sample = Sample {
            mem_mib: report.mem_used_mib.min(MAX_ADOPTED),
            cpu_percent: share.saturating_mul(vcpus),
        };
        let age = now.saturating_duration_since(self.since);
        let usage = self.usage.get_or_insert_default();
        usage.note(age, sample, measured.window);
    }

    /// What is free on its node once it is gone from there, as far as it is counted: what it asked for, or where that
    /// does not count what it uses.
    pub(super) fn frees(&self, measured: Measured) -> Resources {
        let asked = self.claims(measured).asked;
        let of = |asked: i64, used: i64, counts_as: CountsAs| match counts_as {
            CountsAs::Asked => asked,
            CountsAs::Measured => asked.max(used),
            CountsAs::Used => used,
        };
        Resources {
            mem_mib: of(asked.mem_mib, self.used_mem_mib, measured.mem),
            vcpus: asked.vcpus,
            disk_mib: of(asked.disk_mib, self.used_disk_mib, measured.disk),
        }
    }

    /// What it asked for; where that is not known what it uses, and [`VCPUS_IF_UNKNOWN`] while it runs.
    fn asked_or_used(&self) -> Resources {
        if self.is_known {
            return self.asked;
        }
        let runs = self.reported.is_some_and(InstanceState::runs);
        let used = Resources {
            mem_mib: self.used_mem_mib,
            vcpus: if runs { VCPUS_IF_UNKNOWN } else { 0 },
            disk_mib: self.used_disk_mib,
        };
        used.clamped(MAX_ADOPTED)
    }

    /// What it claims. Before it is listed, all that it asked for. Once it is listed, by the rule for each resource:
    /// what it asked for, what it used over the window, or nothing beyond what it uses.
    pub(super) fn claims(&self, measured: Measured) -> Claims {
        let is_listed = self.claim_state == ClaimState::Running;
        let all = self.asked_or_used();
        if !is_listed {
            return self.claims_of(Resources {
                mem_mib: all.mem_mib.max(0),
                vcpus: all.vcpus,
                disk_mib: all.disk_mib.max(0),
            });
        }
        let seen = self.usage.as_ref().map(|usage| usage.counted);
        let counted = |asked: i64, seen: Option<i64>, counts_as: CountsAs| match (counts_as, seen) {
            (CountsAs::Used, _) => 0,
            (CountsAs::Measured, Some(seen)) => seen,
            _ => asked.max(0),
        };
        let disk_mib = seen.map(|_| self.used_disk_mib.min(MAX_ADOPTED));
        let mem_mib = seen.map(|it| it.mem_mib);
        let vcpus = seen.map_or(all.vcpus, |it| it.vcpus(all.vcpus));
        self.claims_of(Resources {
            mem_mib: counted(all.mem_mib, mem_mib, measured.mem),
            vcpus,
            disk_mib: counted(all.disk_mib, disk_mib, measured.disk),
        })
    }

    /// Its claims where this much is counted for it: what it uses already is not held, and a suspended instance claims
    /// no vcpus.
    fn claims_of(&self, counted: Resources) -> Claims {
        let asked = Resources {
            vcpus: if self.is_suspended() {
                0
            } else {
                counted.vcpus
            },
            ..counted
        };
        let unused = |asked: i64, used: i64| asked.saturating_sub(used.max(0)).max(0);
        let held = Resources {
            mem_mib: unused(asked.mem_mib, self.used_mem_mib),
            vcpus: asked.vcpus,
            disk_mib: unused(asked.disk_mib, self.used_disk_mib),
        };
        Claims { held, asked }
    }
}

impl Extras {
    pub(super) fn boxed(self) -> Option<Box<Self>> {
        (self != Self::default()).then(|| Box::new(self))
    }
}
