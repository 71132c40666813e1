//! `ciaoctl delete`, `ciaoctl stop` and `ciaoctl instance forget`; also which instance a name means, for other
//! commands.
//!
//! All three send a DELETE, which differs in its flags. A node that cannot carry it out answers with a DeleteFailure;
//! success is told by events. How each instance fares is one `TargetOutcome`:
//!
//! ```text
//! Sent ──▶ Stopped ──▶ Gone
//!   ├────────────────▶ Gone
//!   ├────────────────▶ Deferred    its node is lost and is told when it returns
//!   └────────────────▶ Failed
//! ```

use jiff::Timestamp;
use proto_frames::Uuid;
use proto_frames::payload::{
    ArrayView, Delete, DeleteFailureReason, InstanceView, NodeView, PhaseName, PlacementState,
    QueryKind, Topic,
};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::ctl::args::{InstanceArgs, PlacementArgs};
use crate::ctl::client::Client;
use crate::ctl::commands::confirm::confirm;
use crate::ctl::commands::history::only_called;
use crate::ctl::commands::{CommandError, Context, arrays};
use crate::ctl::event::Event;
use crate::ctl::exit::Exit;
use crate::ctl::resolve::{Candidate, ResolveError, resolve};
use crate::ctl::selection::is_met;
use crate::ctl::units::{short, span_of_ms};
use crate::printable::{Printable, counted};

/// What is done with an instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// It is gone for good.
    ///
    /// Its node deletes it and the scheduler releases its claims.
    Delete,
    /// It leaves its node only.
    ///
    /// Answered by InstanceStopped instead of InstanceDeleted.
    Stop,
    /// The scheduler forgets it; its node, which is lost, may have it.
    ///
    /// For a node that will never return.
    Forget,
}

impl Ending {
    /// For a line: `UUID deleted on node-a`.
    fn done(self) -> &'static str {
        match self {
            Self::Delete => "deleted",
            Self::Stop => "stopped",
            Self::Forget => "forgotten",
        }
    }

    /// For a sentence: `the deletion of 3 instances goes on`.
    fn noun(self) -> &'static str {
        match self {
            Self::Delete => "deletion",
            Self::Stop => "stop",
            Self::Forget => "removal from the list",
        }
    }
}

/// One instance that is to end.
///
/// Kept for each instance of the command, in the order in which they were named or listed.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Target {
    /// The whole UUID, whatever was typed.
    instance_uuid: String,
    /// Empty for one that waits in the queue.
    node_uuid: String,
    /// Empty for one that waits, and where it is not known.
    hostname: String,
    /// Whether its node is lost, so that nothing can be asked of it now.
    is_lost: bool,
    /// How long ago it ended, such as `12s ago`, if it has: what it left on its node is to be deleted.
    ended: Option<String>,
    outcome: TargetOutcome,
}

/// How far that is.
#[derive(Debug, Clone, PartialEq, Eq)]
enum TargetOutcome {
    /// Its node was asked.
    ///
    /// Without `--wait` this is how most end.
    Sent,
    /// It stopped by itself while it was being deleted.
    ///
    /// The deletion itself is still to be confirmed.
    Stopped,
    /// Its node is lost: it will be deleted when that returns.
    ///
    /// Final for this command: with `--wait` it counts as not done.
    Deferred,
    /// Done.
    ///
    /// As far as the scheduler knows. A forgotten instance may still run.
    Gone,
    /// Not done, for this reason.
    ///
    /// For people: the protocol's word or a sentence.
    Failed(String),
}

/// Ends instances.
///
/// Names given: those instances. None given: `--all` or selectors, with a question before anything is sent.
///
/// # Errors
/// [`CommandError`].
pub async fn delete(
    context: &mut Context<'_>,
    args: &InstanceArgs,
    ending: Ending,
) -> Result<Exit, CommandError> {
    if args.instances.is_empty() {
        let targets = selected(context, args, ending).await?;
        return end(context, targets, args.wait, ending).await;
    }
    let (targets, found) = named(context, &args.instances, ending).await?;
    for array in &found {
        arrays::delete(context, array).await?;
    }
    match targets.is_empty() && !found.is_empty() {
        true => Ok(Exit::Done),
        false => end(context, targets, args.wait, ending).await,
    }
}

/// All instances, or those that are selected, after the user has confirmed them.
///
/// The instances are listed once: what starts while the question is open is not included. With `--yes` nothing is
/// asked.
async fn selected(
    context: &mut Context<'_>,
    args: &InstanceArgs,
    ending: Ending,
) -> Result<Vec<Target>, CommandError> {
    let listing = context.client.list(QueryKind::Instances, None).await?;
    let mut views = listing.instances;
    views.retain(|view| args.selector.iter().all(|it| is_met(it, view)));
    if views.is_empty() {
        let none = match args.all {
            true => "there is no instance",
            false => "no instance is selected",
        };
        context.out.remark(&Printable::new(none))?;
        return Ok(Vec::new());
    }
    if !args.yes {
        let mut hosts: Vec<&str> = views.iter().map(|view| view.hostname.as_str()).collect();
        hosts.retain(|host| !host.is_empty());
        hosts.sort_unstable();
        hosts.dedup();
        let (instances, nodes) = (
            counted(views.len(), "instance"),
            counted(hosts.len(), "node"),
        );
        let what = match ending {
            Ending::Delete => format!("delete ends {instances} on {nodes} for good"),
            _ => format!("stop takes {instances} off {nodes}"),
        };
        confirm(context, &what).await?;
    }
    Ok(views.into_iter().map(Target::of).collect())
}

/// The instances and arrays that names mean, each once: all are resolved first, so that a wrong one leaves everything as it is.
///
/// A name that is there twice is one target. One that has ended can be deleted, which deletes what it left on its node.
async fn named(
    context: &mut Context<'_>,
    names: &[String],
    ending: Ending,
) -> Result<(Vec<Target>, Vec<ArrayView>), CommandError> {
    let (mut targets, mut found) = (Vec::<Target>::new(), Vec::new());
    for name in names {
        let target = match instance(&mut context.client, name).await {
            Ok(view) => Target::of(view),
            Err(CommandError::Resolve(not_found @ ResolveError::NotFound { .. })) => {
                let ended = context.client.ended(Some(name)).await?;
                match only_called(name, &ended)? {
                    None if ending == Ending::Delete => {
                        let array = arrays::meant(&mut context.client, name).await?;
                        arrays::add(&mut found, array.ok_or(not_found)?);
                        continue;
                    }
                    None => return Err(not_found.into()),
                    Some(view) => left_by(&mut context.client, view.clone(), ending).await?,
                }
            }
            Err(error) => return Err(error),
        };
        if !targets
            .iter()
            .any(|known| known.instance_uuid == target.instance_uuid)
        {
            targets.push(target);
        }
    }
    Ok((targets, found))
}

/// What an instance that has ended left on its node, as what is to be deleted.
///
/// # Errors
/// [`ResolveError::Ended`] where there can be nothing of it: it ended on no node, or is not to be deleted.
/// [`ResolveError::LeftOnLost`] where its node is not connected.
async fn left_by(
    client: &mut Client,
    view: InstanceView,
    ending: Ending,
) -> Result<Target, CommandError> {
    let when = view.ended_at_ms.map_or_else(|| "before".to_owned(), ago);
    if ending != Ending::Delete || view.node_uuid.is_empty() {
        let (id, ago) = (view.instance_uuid, when);
        return Err(ResolveError::Ended { id, ago }.into());
    }
    let nodes = client
        .list(QueryKind::Nodes, Some(&view.node_uuid))
        .await?
        .nodes;
    let is_there = |node: &NodeView| {
        node.node_uuid == view.node_uuid && !matches!(&*node.status, "LOST" | "EXPECTED")
    };
    if !nodes.iter().any(is_there) {
        let node = match view.hostname.as_str() {
            "" => short(&view.node_uuid).to_owned(),
            host => host.to_owned(),
        };
        let (id, ago) = (view.instance_uuid, when);
        return Err(ResolveError::LeftOnLost { id, ago, node }.into());
    }
    let mut target = Target::of(view);
    (target.is_lost, target.ended) = (false, Some(when));
    Ok(target)
}

/// How long ago a time in milliseconds since 1970 is, by the clock of this machine.
pub(super) fn ago(at_ms: i64) -> String {
    let age = Timestamp::now().as_millisecond().saturating_sub(at_ms);
    format!("{} ago", span_of_ms(age.max(0)))
}

/// Has the scheduler forget instances whose nodes are lost.
///
/// Always waits for the answers, because the scheduler alone decides.
///
/// # Errors
/// [`CommandError`].
pub async fn forget(context: &mut Context<'_>, names: &[String]) -> Result<Exit, CommandError> {
    let (targets, _) = named(context, names, Ending::Forget).await?;
    end(context, targets, true, Ending::Forget).await
}

/// Subscribes before it sends, so that no event is missed. The sync behind the last DELETE makes sure that refusals
/// are taken in even without `--wait`.
async fn end(
    context: &mut Context<'_>,
    mut targets: Vec<Target>,
    waits: bool,
    ending: Ending,
) -> Result<Exit, CommandError> {
    // Only its node knows whether anything is left of what has ended.
    let waits_for = |target: &Target| waits || target.ended.is_some();
    let waits_for_any = waits || targets.iter().any(waits_for);
    if waits_for_any {
        context.client.watch_also(Topic::Instances).await?;
    }
    for target in &targets {
        let delete = Delete {
            instance_uuid: target.instance_uuid.clone(),
            workload_agent_uuid: target.asked_node(),
            stop: ending == Ending::Stop,
            forget: ending == Ending::Forget,
        };
        context.client.delete(&delete).await?;
    }
    if !targets.is_empty() {
        let (what, count) = (ending.noun(), counted(targets.len(), "instance"));
        context.aftermath.text(format!(
            "the {what} of {count} goes on, and cannot be undone"
        ));
    }
    context.client.sync().await?;
    while let Some(event) = context.client.kept_event() {
        observe(&mut targets, &event, ending);
    }
    if waits_for_any {
        wait(context, &mut targets, ending, waits).await?;
    }
    print(context, &targets, ending)?;
    Ok(exit(&targets, waits))
}

/// The instance a name means, as the scheduler lists it; also one that waits for room.
///
/// The query matches host names too; [`resolve`] decides among what it returned.
///
/// # Errors
/// [`CommandError::Resolve`], [`CommandError::Client`].
pub async fn instance(client: &mut Client, name: &str) -> Result<InstanceView, CommandError> {
    let mut listed = client
        .list(QueryKind::Instances, Some(name))
        .await?
        .instances;
    let candidates = listed.iter().map(|view| Candidate {
        uuid: view.instance_uuid.clone(),
        hostname: (!view.name.is_empty()).then(|| view.name.clone()),
        about: about(view),
    });
    let meant = resolve("instance", name, candidates.collect())?;
    listed.retain(|view| view.instance_uuid == meant.uuid);
    listed.pop().ok_or_else(|| {
        let kind = "instance";
        let name = name.to_owned();
        ResolveError::NotFound { kind, name }.into()
    })
}

/// The options with instances by UUID that were given by name or by the beginning of their UUIDs. A whole UUID need
/// not be known.
///
/// For `--same-node` and `--different-node`, which START files have as UUIDs.
///
/// # Errors
/// [`CommandError::Resolve`], for the first that means no instance or several.
pub async fn name_by_uuid(
    client: &mut Client,
    placement: &PlacementArgs,
) -> Result<PlacementArgs, CommandError> {
    let mut named = placement.clone();
    for name in named.same_node.iter_mut().chain(&mut named.different_node) {
        if name.parse::<Uuid>().is_err() {
            *name = instance(client, name).await?.instance_uuid;
        }
    }
    Ok(named)
}

/// What distinguishes an instance if a name is ambiguous: `running on node-a`.
fn about(view: &InstanceView) -> String {
    match view.hostname.as_str() {
        "" => "waiting for room".to_owned(),
        host => format!("{} on {host}", view.state),
    }
}

/// Takes events in until every instance is gone or has failed to go; without `waits` only of those that had ended
/// already.
///
/// Until the time of `--wait` is over at most. Running out of time is no error here: those that are left have their
/// outcome.
async fn wait(
    context: &mut Context<'_>,
    targets: &mut [Target],
    ending: Ending,
    waits: bool,
) -> Result<(), CommandError> {
    let is_open = |target: &Target| {
        matches!(target.outcome, TargetOutcome::Sent | TargetOutcome::Stopped)
            && (waits || target.ended.is_some())
    };
    let deadline = Instant::now() + context.wait;
    while targets.iter().any(is_open) {
        match tokio::time::timeout_at(deadline, context.client.next_event()).await {
            Ok(event) => observe(targets, &event?, ending),
            Err(_) => return Ok(()), // the outcome says which are not done
        }
    }
    Ok(())
}

/// The order of the arms matters: a final outcome never changes; an end that the scheduler only assumes for a lost
/// node counts as deferred; then come confirmations, and last failures.
fn observe(targets: &mut [Target], event: &Event, ending: Ending) {
    let Some(id) = event.instance_uuid() else {
        return;
    };
    let Some(target) = targets.iter_mut().find(|target| target.instance_uuid == id) else {
        return;
    };
    target.outcome = match (event, &target.outcome) {
        (_, TargetOutcome::Gone | TargetOutcome::Deferred | TargetOutcome::Failed(_)) => return,
        // The node is lost and has not reported the end.
        (Event::InstanceDeleted(_) | Event::Transition(_), _)
            if target.is_lost && ending == Ending::Delete && !has_returned(event) =>
        {
            TargetOutcome::Deferred
        }
        (Event::InstanceDeleted(_), _) => TargetOutcome::Gone,
        (Event::Transition(transition), _) if transition.state == PhaseName::Gone => TargetOutcome::Gone,
        (Event::InstanceStopped(_), _) if ending == Ending::Stop => TargetOutcome::Gone,
        (Event::InstanceStopped(_), _) => TargetOutcome::Stopped,
        // It had ended by itself before its node was asked.
        (Event::DeleteFailure(_), TargetOutcome::Stopped) => TargetOutcome::Gone,
        (Event::DeleteFailure(_), _) if target.is_lost => TargetOutcome::Failed(
            "its node is lost, and the scheduler cannot delete it when that returns: delete it again then, or use \
             `ciaoctl instance forget`"
                .to_owned(),
        ),
        (Event::DeleteFailure(failure), _) => TargetOutcome::Failed(failure.reason.to_string()),
        // The detail says what can be done.
        (Event::Refused(refused), _) if target.is_lost => TargetOutcome::Failed(refused.detail.clone()),
        (Event::Refused(refused), _) => {
            TargetOutcome::Failed(format!("{}: {}", refused.reason, refused.detail))
        }
        _ => return,
    };
}

/// Whether an end was reported by its node: such an end has a number or an exit status.
///
/// The scheduler's own assumption has neither.
fn has_returned(event: &Event) -> bool {
    match event {
        Event::InstanceDeleted(deleted) => deleted.seq.is_some() || deleted.exit_code.is_some(),
        Event::Transition(transition) => transition.state != PhaseName::Lost,
        _ => true,
    }
}

/// Without waiting, what was only sent is done. A deferred deletion is done only if it was not waited for.
fn exit(targets: &[Target], waited: bool) -> Exit {
    let of = |target: &Target| match &target.outcome {
        TargetOutcome::Gone => Exit::Done,
        TargetOutcome::Failed(_) if target.ended.is_some() => Exit::NotFound,
        TargetOutcome::Failed(_) => Exit::Refused,
        TargetOutcome::Deferred => [Exit::Done, Exit::Refused][usize::from(waited)],
        TargetOutcome::Sent | TargetOutcome::Stopped => {
            [Exit::Done, Exit::Timeout][usize::from(waited || target.ended.is_some())]
        }
    };
    targets.iter().map(of).fold(Exit::Done, Exit::and)
}

/// One line or object for each, in the order of the targets.
fn print(
    context: &mut Context<'_>,
    targets: &[Target],
    ending: Ending,
) -> Result<(), CommandError> {
    if context.json {
        let rows: Vec<Value> = targets.iter().map(|target| target.json(ending)).collect();
        context.out.document(&json!({ "instances": rows }))?;
        return Ok(());
    }
    for target in targets {
        context.out.line(&target.line(ending))?;
    }
    Ok(())
}

impl Target {
    /// An instance as it is listed.
    ///
    /// Lost by its own state or by that of its node's connection.
    fn of(view: InstanceView) -> Self {
        let is_lost = view.state == PlacementState::Lost
            || view.state == PlacementState::InDoubt
            || PhaseName::from(view.life.as_str()) == PhaseName::Lost;
        Self {
            is_lost,
            instance_uuid: view.instance_uuid,
            node_uuid: view.node_uuid,
            hostname: view.hostname,
            ended: None,
            outcome: TargetOutcome::Sent,
        }
    }

    /// The node that is asked. What waits has none: a DELETE must name one all the same, so that it names the node of
    /// none.
    fn asked_node(&self) -> String {
        if self.node_uuid.is_empty() {
            return Uuid::nil().to_string();
        }
        self.node_uuid.clone()
    }

    /// `outcome` in JSON.
    fn word(&self, ending: Ending) -> &'static str {
        match (&self.outcome, ending) {
            (TargetOutcome::Sent | TargetOutcome::Stopped, _) => "sent",
            (TargetOutcome::Gone, ending) => ending.done(),
            (TargetOutcome::Deferred, _) => "deferred",
            (TargetOutcome::Failed(_), _) => "failed",
        }
    }

    /// Four forms: for one that had ended, for a lost node, for an instance in the queue, which has no host, and for the
    /// others.
    fn line(&self, ending: Ending) -> Printable {
        let (id, host) = (&self.instance_uuid, &self.hostname);
        if let Some(ago) = &self.ended {
            return self.line_of_ended(ago);
        }
        if self.outcome == TargetOutcome::Deferred {
            let node = match host.as_str() {
                "" => short(&self.node_uuid),
                host => host,
            };
            return Printable::new(format_args!(
                "{id} will be deleted when its node {node} returns, which is lost: it may run until then"
            ));
        }
        if ending == Ending::Forget && self.outcome == TargetOutcome::Gone {
            return Printable::new(format_args!(
                "{id} forgotten; its node may have it still, and lists it when it returns"
            ));
        }
        if host.is_empty() {
            return Printable::new(match &self.outcome {
                TargetOutcome::Sent | TargetOutcome::Stopped | TargetOutcome::Deferred => {
                    format!("{id} removal from the queue requested")
                }
                TargetOutcome::Gone => format!("{id} removed from the queue"),
                TargetOutcome::Failed(reason) => format!("{id} not {}: {reason}", ending.done()),
            });
        }
        Printable::new(match &self.outcome {
            TargetOutcome::Sent | TargetOutcome::Stopped | TargetOutcome::Deferred => {
                format!("{id} {} requested on {host}", ending.noun())
            }
            TargetOutcome::Gone => format!("{id} {} on {host}", self.word(ending)),
            TargetOutcome::Failed(reason) => {
                format!("{id} not {} on {host}: {reason}", ending.done())
            }
        })
    }

    /// What became of what one left that had ended.
    fn line_of_ended(&self, ago: &str) -> Printable {
        let id = &self.instance_uuid;
        let host = match self.hostname.as_str() {
            "" => short(&self.node_uuid),
            host => host,
        };
        Printable::new(match &self.outcome {
            TargetOutcome::Gone => format!("{id}: what it left on {host} was deleted"),
            TargetOutcome::Failed(reason)
                if *reason == DeleteFailureReason::NoInstance.as_str() =>
            {
                format!("{id} ended {ago}: nothing that it left is there on {host} to be deleted")
            }
            TargetOutcome::Failed(reason) => {
                format!("{id}: what it left on {host} was not deleted: {reason}")
            }
            TargetOutcome::Sent | TargetOutcome::Stopped | TargetOutcome::Deferred => {
                format!("{id}: {host} was asked to delete what it left, and has not answered")
            }
        })
    }

    fn json(&self, ending: Ending) -> Value {
        let reason = match &self.outcome {
            TargetOutcome::Failed(reason) => Some(reason),
            _ => None,
        };
        json!({
            "instance_uuid": self.instance_uuid,
            "node_uuid": self.node_uuid,
            "hostname": self.hostname,
            "outcome": self.word(ending),
            "reason": reason,
        })
    }
}
