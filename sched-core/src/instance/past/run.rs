//! One run of an instance: what is known of it when it is noted, what becomes known afterwards, and the events it is told
//! by.

use std::borrow::Cow;
use std::time::Instant;

use sched_model::{EndFacts, PhaseName, StartFailureReason, Uuid};

use super::Noted;
use crate::api::cause::Cause;
use crate::api::ids::InstanceId;
use crate::api::rules::TenantId;
use crate::api::text::ShortText;
use crate::instance::history::{History, HistoryEvent};
use crate::instance::names::KnownInfo;
use crate::instance::numbering::RunNumbers;

/// One run of an instance, from its beginning until it was gone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Run {
    instance: InstanceId,
    /// Its number, and the earlier runs that are known of.
    numbers: RunNumbers,
    /// When the scheduler learned of the end; of a restored run converted from wall-clock time.
    at: Instant,
    /// When it ended, as its node has reported.
    ended: Option<Instant>,
    node: Option<Uuid>,
    hostname: ShortText,
    /// What it was called; empty for nothing.
    name: Box<str>,
    /// The tenant whose instance it was, if that is known.
    tenant: Option<TenantId>,
    /// What it ran; empty where that is not known.
    program: Box<str>,
    /// Why its START failed, in the protocol's word, if it never ran.
    failed: Option<StartFailureReason>,
    /// That failure, where no controller was sent it yet.
    unsent: Option<UnsentFailure>,
    exit_code: Option<i64>,
    /// The number that the launcher gave this end; two reports with the same number and node are of the same run.
    end: Option<u64>,
    /// Where it was an element of an array, its index.
    index: Option<u32>,
    /// How often the instance was placed again because its START says so of an end.
    retries: u32,
    /// Whether a command has ended it, where its record says so.
    is_by_command: bool,
    /// What else its launcher knows of it.
    facts: Option<Box<EndFacts>>,
    /// Who asked for its end, where that was by command and is known.
    by: Option<ShortText>,
    story: Story,
}

/// A failure of a START that is still to be sent to controllers. The rest of it is what is known of the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct UnsentFailure {
    /// Whether the START was one of a restart.
    pub(crate) is_restart: bool,
}

/// What became of an instance in one run. Two forms, because most runs are of plain instances and have just two events.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Story {
    /// It was managed, or was restored from disk: all events that are remembered.
    Told(History),
    /// It was a plain instance: its node had it since then, where that is known, until it was gone for this cause. The
    /// events are made from this when they are asked for.
    Plain {
        since: Option<Instant>,
        cause: Cause,
    },
}

impl Run {
    fn new(instance: InstanceId, at: Instant, story: Story) -> Self {
        Self {
            instance,
            numbers: RunNumbers::default(),
            at,
            ended: None,
            node: None,
            hostname: ShortText::default(),
            name: Box::default(),
            tenant: None,
            program: Box::default(),
            failed: None,
            unsent: None,
            exit_code: None,
            end: None,
            index: None,
            retries: 0,
            is_by_command: false,
            facts: None,
            by: None,
            story,
        }
    }

    /// A run of a managed instance, which is gone since `at`.
    pub(in crate::instance) fn managed(
        instance: InstanceId,
        numbers: RunNumbers,
        at: Instant,
        mut history: History,
    ) -> Self {
        history.shrink();
        Self {
            numbers,
            ..Self::new(instance, at, Story::Told(history))
        }
    }

    /// A run of a plain instance: its node had it `since` then, if that is known, and reports `at` that it is gone, and
    /// why.
    pub(crate) fn plain(
        instance: InstanceId,
        (node, hostname): (Uuid, ShortText),
        since: Option<Instant>,
        at: Instant,
        cause: Cause,
    ) -> Self {
        Self {
            node: Some(node),
            hostname,
            ..Self::new(instance, at, Story::Plain { since, cause })
        }
    }

    /// A run that was remembered before a restart. Its numbers are set by the caller where they are known.
    pub(crate) fn restored(
        instance: InstanceId,
        (node, hostname): (Option<Uuid>, ShortText),
        at: Instant,
        (exit_code, end): (Option<i64>, Option<u64>),
        history: History,
    ) -> Self {
        Self {
            node,
            hostname,
            exit_code,
            end,
            ..Self::new(instance, at, Story::Told(history))
        }
    }

    /// The same run, of an instance that was called so and ran this. Empty where that is not known.
    pub(crate) fn called(self, name: &str, program: &str) -> Self {
        Self {
            name: name.into(),
            program: program.into(),
            ..self
        }
    }

    /// It is of an instance of which this is known.
    pub(in crate::instance) fn set_known(&mut self, about: KnownInfo<'_>) {
        self.name = about.name.into();
        self.program = about.program.into();
        self.tenant = about.tenant.cloned();
    }

    /// It has these numbers.
    pub(super) fn set_numbers(&mut self, numbers: RunNumbers) {
        self.numbers = numbers;
    }

    /// The same run, of an instance of this tenant.
    pub(crate) fn of_tenant(self, tenant: Option<&TenantId>) -> Self {
        let tenant = tenant.cloned();
        Self { tenant, ..self }
    }

    /// These asked for its end, if a command ended it.
    pub(crate) fn set_ended_by(&mut self, by: Option<ShortText>) {
        let is_by_command = self.cause().is_some_and(Cause::is_by_command);
        self.by = by.filter(|_| is_by_command);
    }

    /// The same run, restored: this is who asked for its end.
    pub(crate) fn restored_by(self, by: Option<&str>) -> Self {
        let by = by.map(ShortText::new);
        Self { by, ..self }
    }

    /// Who asked for its end, where that was by command and is known.
    pub(crate) fn by(&self) -> Option<&ShortText> {
        self.by.as_ref()
    }

    /// What the instance was called; empty for nothing.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// The tenant whose name that was, if it had one and that is known.
    pub(crate) fn tenant(&self) -> Option<&TenantId> {
        self.owner().filter(|_| !self.name.is_empty())
    }

    /// The tenant whose instance it was, if that is known.
    pub(crate) fn owner(&self) -> Option<&TenantId> {
        self.tenant.as_ref()
    }

    /// What it ran; empty where that is not known.
    pub(crate) fn program(&self) -> &str {
        &self.program
    }

    /// The same of an element of an array, with its index.
    pub(crate) fn of_element(self, index: Option<u32>) -> Self {
        Self { index, ..self }
    }

    /// Where it was an element of an array, its index.
    pub(crate) fn index(&self) -> Option<u32> {
        self.index
    }

    /// The same with these numbers, and the time at which it ended as its node has reported.
    pub(crate) fn numbered(mut self, numbers: RunNumbers, ended: Option<Instant>) -> Self {
        (self.numbers, self.ended) = (numbers, ended);
        self
    }

    /// The same of an instance that was placed again so often because its START says so of an end.
    pub(crate) fn retried(self, retries: u32) -> Self {
        Self { retries, ..self }
    }

    /// How often the instance was placed again because its START says so of an end.
    pub(crate) fn retries(&self) -> u32 {
        self.retries
    }

    /// The same, of which it is known whether a command has ended it. A record does not say the cause otherwise.
    pub(crate) fn by_command(self, is_by_command: bool) -> Self {
        Self {
            is_by_command,
            ..self
        }
    }

    /// Whether a command has ended it.
    pub(crate) fn is_by_command(&self) -> bool {
        let is_command = |cause: &Cause| {
            matches!(
                cause,
                Cause::Deleted
                    | Cause::BeingDeleted
                    | Cause::DeletedWhileLost
                    | Cause::DeletedLost
                    | Cause::Stopped
                    | Cause::Evacuated
                    | Cause::Forgotten
            )
        };
        self.is_by_command || self.cause().is_some_and(is_command)
    }

    /// Whether it ended by itself with exit status 0; `None` where that is not known.
    pub(crate) fn is_ok(&self) -> Option<bool> {
        let is_limited = || {
            self.facts
                .as_ref()
                .is_some_and(|it| !it.why.as_str().is_empty())
        };
        if self.failed.is_some() || self.is_by_command() || is_limited() {
            return Some(false);
        }
        self.exit_code.map(|code| code == 0)
    }

    /// The instance.
    pub(crate) fn instance(&self) -> &InstanceId {
        &self.instance
    }

    /// When the scheduler learned that it was gone.
    pub(crate) fn at(&self) -> Instant {
        self.at
    }

    /// When it ended: as its node has reported, else when the scheduler learned of it.
    pub(crate) fn ended(&self) -> Instant {
        self.ended.unwrap_or(self.at)
    }

    /// The same, only if its node has reported it.
    pub(crate) fn reported_end(&self) -> Option<Instant> {
        self.ended
    }

    /// Its number among the runs of the instance, and the earlier ones that are known of. 0 where it is not known.
    pub(crate) fn numbers(&self) -> &RunNumbers {
        &self.numbers
    }

    /// When it began at the latest, as far as is known: a run that had ended before that is an earlier one.
    pub(crate) fn begun(&self) -> Option<Instant> {
        match &self.story {
            Story::Plain { since, .. } => *since,
            Story::Told(history) => {
                let begun = history.iter().filter(|it| it.what == PhaseName::Running);
                begun.last().map(|event| event.at)
            }
        }
    }

    /// When the first thing happened of all that is remembered of it before its end, such as that it was queued.
    pub(crate) fn first_known(&self) -> Option<Instant> {
        match &self.story {
            Story::Plain { since, .. } => *since,
            Story::Told(history) => {
                let first = history.iter().next();
                first.map(|event| event.at).filter(|at| *at < self.ended())
            }
        }
    }

    /// Whether no node has said how it ended, and this one had it.
    pub(crate) fn is_open_on(&self, node: Uuid) -> bool {
        self.end.is_none() && self.numbers.node() == Some(node)
    }

    /// Whether its START was given up with this node, and the node has not said what became of it.
    pub(crate) fn is_given_up_on(&self, node: Uuid) -> bool {
        self.end.is_none()
            && self.node == Some(node)
            && self.failed == Some(StartFailureReason::LaunchFailure)
    }

    /// Its node has said how it ended, long after it was given up as lost.
    pub(crate) fn complete(&mut self, event: HistoryEvent, hostname: ShortText) {
        if let Some(node) = event.node {
            self.set_node(node, hostname);
        }
        // Its START was given up with its node, and it had begun there all the same.
        self.failed = None;
        match &mut self.story {
            Story::Told(history) => history.note(event),
            Story::Plain { cause, .. } => *cause = event.cause,
        }
    }

    /// Whether its node has said that it ended, and the number of that end is not known yet.
    pub(crate) fn is_without_number(&self) -> bool {
        self.node.is_some() && self.end.is_none()
    }

    /// This node has reported the end of an earlier run of the instance.
    pub(crate) fn note_earlier_over(&mut self, node: Uuid) {
        self.numbers.close(node);
    }

    /// Where it is among the runs of its instance: by number. Runs of which that is not known come first, by the time of
    /// their end.
    pub(super) fn order(&self) -> (u32, Option<Instant>) {
        let number = self.numbers.latest();
        (number, (number == 0).then(|| self.ended()))
    }

    /// The node that said how it ended; `None` = it was on none, or its node has not said.
    pub(crate) fn node(&self) -> Option<Uuid> {
        self.node
    }

    /// The host name of that node.
    pub(crate) fn hostname(&self) -> &ShortText {
        &self.hostname
    }

    /// Its exit status, or minus the signal that ended it; `None` = not known.
    pub(crate) fn exit_code(&self) -> Option<i64> {
        self.exit_code
    }

    /// The number of its end on that node, where its launcher numbers them.
    pub(crate) fn end(&self) -> Option<u64> {
        self.end
    }

    /// Whether more is known of it than its end: its START came here, or it was listed.
    pub(crate) fn was_started_here(&self) -> bool {
        match &self.story {
            Story::Plain { since, .. } => since.is_some(),
            Story::Told(history) => history.iter().any(|event| event.what != PhaseName::Gone),
        }
    }

    /// Whether its node has reported its end, not only that it is not there.
    pub(super) fn is_told_by_node(&self) -> bool {
        self.end.is_some() || self.cause() == Some(&Cause::Ended)
    }

    /// Notes how it ended: the number of its end, its exit status, or minus a signal, and when it ended, as far as that
    /// is known.
    pub(crate) fn set_end(&mut self, end: u64, exit_code: Option<i64>, ended: Option<Instant>) {
        self.end = Some(end);
        self.exit_code = exit_code.or(self.exit_code);
        self.ended = ended.map(|ended| ended.min(self.at)).or(self.ended);
    }

    /// Notes what else its launcher knows of it; what is known already stays where it says nothing.
    pub(crate) fn set_facts(&mut self, facts: Option<&EndFacts>) {
        let Some(facts) = facts else {
            return;
        };
        if self.program.is_empty() {
            self.program = facts.program.as_str().into();
        }
        let facts = EndFacts {
            program: String::new(),
            ..facts.clone()
        };
        self.facts = (facts != EndFacts::default()).then(|| Box::new(facts));
    }

    /// What else its launcher knows of it.
    pub(crate) fn facts(&self) -> Option<&EndFacts> {
        self.facts.as_deref()
    }

    /// Why its START failed, if it never ran.
    pub(crate) fn failed(&self) -> Option<&StartFailureReason> {
        self.failed.as_ref()
    }

    /// The same run, of which nothing came: its START failed for this reason.
    pub(crate) fn not_started(self, failed: Option<StartFailureReason>) -> Self {
        Self { failed, ..self }
    }

    /// Notes that its START failed.
    pub(crate) fn set_failed(&mut self, reason: StartFailureReason) {
        self.failed = Some(reason);
    }

    /// The failure of its START, where no controller was sent it yet.
    pub(crate) fn unsent(&self) -> Option<UnsentFailure> {
        self.unsent
    }

    /// Notes that no controller was sent the failure of its START yet, or that one was.
    pub(crate) fn set_unsent(&mut self, unsent: Option<UnsentFailure>) {
        self.unsent = unsent;
    }

    /// Notes on which node it was when that was given up: how it ended there is not known.
    pub(crate) fn set_lost_on(&mut self, node: Uuid, hostname: ShortText) {
        (self.node, self.hostname) = (Some(node), hostname);
    }

    /// Notes which node has said how it ended.
    pub(crate) fn set_node(&mut self, node: Uuid, hostname: ShortText) {
        self.numbers.close(node);
        (self.node, self.hostname) = (Some(node), hostname);
    }

    /// What became of the instance, oldest first.
    pub(crate) fn events(&self) -> impl Iterator<Item = Cow<'_, HistoryEvent>> {
        let (told, plain) = match &self.story {
            Story::Told(history) => (Some(history), None),
            Story::Plain { since, cause } => (None, Some((*since, cause))),
        };
        let told = told.into_iter().flat_map(History::iter).map(Cow::Borrowed);
        told.chain(plain.into_iter().flat_map(|(since, cause)| {
            let event = |at, what, cause| HistoryEvent {
                at,
                what,
                node: self.node,
                cause,
                run: self.numbers.latest(),
            };
            let (what, why) = match self.failed {
                Some(_) => (PhaseName::Placing, Cause::Plain),
                None => (PhaseName::Running, Cause::KnownSince),
            };
            let began = since.map(|at| event(at, what.clone(), why.clone()));
            let gone = event(self.ended(), PhaseName::Gone, cause.clone());
            began.into_iter().chain([gone]).map(Cow::Owned)
        }))
    }

    /// Why it is over.
    pub(crate) fn cause(&self) -> Option<&Cause> {
        match &self.story {
            Story::Told(history) => history.last().map(|event| &event.cause),
            Story::Plain { cause, .. } => Some(cause),
        }
    }

    /// Bytes that it takes: with its place in both tables, and all that it has on the heap.
    pub(super) fn bytes(&self) -> usize {
        /// The number of the latest run by instance, and that entry's place in the table's index.
        const IN_LATEST: usize = size_of::<(InstanceId, u64)>() + 2 * size_of::<usize>();
        let story = match &self.story {
            Story::Told(history) => history.bytes(),
            Story::Plain { cause, .. } => cause.text_len(),
        };
        let id = match &self.instance {
            InstanceId::Text(text) => 2 * text.len(),
            InstanceId::Uuid(_) | InstanceId::DryRun(_) => 0,
        };
        let tenant = match &self.tenant {
            Some(TenantId::Text(text)) => text.len(),
            _ => 0,
        };
        let texts = tenant + self.hostname.len() + self.name.len() + self.program.len();
        let by = self.by.as_ref().map_or(0, |by| by.as_str().len());
        let facts = self.facts.as_ref();
        let facts = facts.map_or(0, |facts| size_of::<EndFacts>() + facts.heap_len());
        size_of::<Noted>() + IN_LATEST + story + id + texts + by + facts
    }
}
