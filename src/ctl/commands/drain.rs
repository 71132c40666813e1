//! `ciaoctl cordon`, `uncordon` and `drain`: taking a node out of service without stopping what it runs.
//!
//! All three change the scheduler's table of nodes through EVACUATE and RESTORE with a mode; ciao's own EVACUATE,
//! which stops everything, is in [`nodes`]. A cordon takes effect with the answer; a drain goes on at the scheduler
//! and is followed here by events:
//!
//! ```text
//! node-a (4cb19522) moving: 1 of 4 moved, 2 on their way, 1 left
//! node-a (4cb19522) moving: 3 of 4 moved, 1 on their way, 0 left
//! node-a (4cb19522) drained: 4 moved
//! ```

use std::collections::BTreeSet;
use std::time::Duration;

use indexmap::IndexMap;
use proto_frames::Kind;
use proto_frames::payload::{
    CommandFailure, CommandFailureReason, DrainProgress, DrainState, Evacuate, EvacuateMode,
    LifecycleCommand, Restore, RestoreMode, Topic, UnmovableInstance,
};
use serde_json::json;
use tokio::time::{Instant, timeout_at};

use crate::ctl::args::{CordonArgs, DrainArgs};
use crate::ctl::commands::lifecycle::{checked, patience};
use crate::ctl::commands::{CommandError, Context, nodes};
use crate::ctl::event::lifecycle::{
    drain as progress_text, drain_counts, drain_done, drain_json, unmovable_label,
};
use crate::ctl::event::{Event, refused_kind};
use crate::ctl::exit::Exit;
use crate::ctl::resolve::Candidate;
use crate::printable::{Lines, Printable};

/// Keeps new instances from a node.
///
/// What runs there goes on. A node that is cordoned already is no error.
///
/// # Errors
/// [`CommandError`].
pub async fn cordon(context: &mut Context<'_>, args: &CordonArgs) -> Result<Exit, CommandError> {
    let node = nodes::node(&mut context.client, &args.node).await?;
    let evacuate = Evacuate {
        workload_agent_uuid: node.uuid.clone(),
        mode: EvacuateMode::Cordon,
        ..Evacuate::default()
    };
    context.client.relocate(&evacuate).await?;
    nodes::report(context, &node, "cordoned")
}

/// Lets a cordoned node have new instances again.
///
/// Also ends a drain of the node where it is. Of a node that was not cordoned it says so; that is no error, and the same
/// outcome for programs.
///
/// # Errors
/// [`CommandError`].
pub async fn uncordon(context: &mut Context<'_>, args: &CordonArgs) -> Result<Exit, CommandError> {
    let (node, view) = nodes::node_and_view(&mut context.client, &args.node).await?;
    let restore = Restore {
        workload_agent_uuid: node.uuid.clone(),
        mode: RestoreMode::Uncordon,
    };
    context.client.uncordon(&restore).await?;
    // Asked for in any case: it may have been cordoned since it was listed.
    let outcome = match view.cordoned || context.json {
        true => "uncordoned",
        false => "was not cordoned",
    };
    nodes::report(context, &node, outcome)
}

/// What a drain is asked for.
///
/// From `--check` and `--abort`, which exclude each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Goal {
    /// To move everything.
    ///
    /// Over when everything has gone, or when the scheduler gives up or the drain is aborted.
    Move,
    /// To say which instances would fit elsewhere.
    ///
    /// Changes nothing on the node. Over with the first state [`DrainState::Checking`].
    Check,
    /// To be ended.
    ///
    /// What has moved stays moved, and the node stays cordoned.
    Abort,
}

/// Moves a node's instances to others, and shows how far that is.
///
/// The exit code is [`Exit::Done`] only if everything moved (or would, or the drain was ended); [`Exit::Refused`] if
/// something was left; [`Exit::Timeout`] if this program stopped waiting, while the drain goes on.
///
/// With a deadline the wait lasts a little longer than it, so that the scheduler's own end of the drain is seen.
///
/// # Errors
/// [`CommandError`].
pub async fn drain(context: &mut Context<'_>, args: &DrainArgs) -> Result<Exit, CommandError> {
    let goal = match (args.check, args.abort) {
        (true, _) => Goal::Check,
        (_, true) => Goal::Abort,
        _ => Goal::Move,
    };
    let node = nodes::node(&mut context.client, &args.node).await?;
    let evacuate = Evacuate {
        workload_agent_uuid: node.uuid.clone(),
        mode: match goal {
            Goal::Move => EvacuateMode::Relocate,
            Goal::Check => EvacuateMode::Check,
            Goal::Abort => EvacuateMode::Abort,
        },
        deadline: args.deadline,
        parallel: args.parallel,
    };
    checked(evacuate.check())?;
    if !args.no_wait {
        context.client.watch_also(Topic::Nodes).await?;
        context.client.watch_also(Topic::Failures).await?;
    }
    context.client.relocate(&evacuate).await?;
    if goal == Goal::Move {
        let host = node.hostname.as_deref().unwrap_or(&node.uuid);
        context.aftermath.text(format!(
            "the drain of {node} goes on; `ciaoctl drain {host} --abort` ends it, and `ciaoctl uncordon {host}` lets the \
             node have new instances again"
        ));
    }
    if args.no_wait {
        return nodes::report(context, &node, "asked to drain");
    }
    let patience = match goal {
        Goal::Move => patience(context, args.deadline),
        Goal::Check | Goal::Abort => context.answer,
    };
    let mut drain = Drain {
        goal,
        node,
        last: None,
        failure: None,
    };
    follow(context, &mut drain, patience).await?;
    print_end(context, &drain)?;
    Ok(drain.exit())
}

/// Takes events in and shows news until the drain is over.
///
/// With `--json` nothing is printed here: only the end is one document.
async fn follow(
    context: &mut Context<'_>,
    drain: &mut Drain,
    patience: Duration,
) -> Result<(), CommandError> {
    let deadline = Instant::now() + patience;
    while !drain.is_over() {
        let Ok(event) = timeout_at(deadline, context.client.next_event()).await else {
            break; // the end says that it is not over
        };
        let line = drain.observe(&event?);
        if let Some(line) = line.filter(|_| !context.json) {
            context.out.line(&line)?;
            context.out.flush()?;
        }
    }
    Ok(())
}

/// One document or some lines, by what the command was asked for.
fn print_end(context: &mut Context<'_>, drain: &Drain) -> Result<(), CommandError> {
    if context.json {
        context.out.document(&drain.json())?;
        return Ok(());
    }
    context.out.lines(&drain.end())?;
    Ok(())
}

/// A drain that is followed, without IO.
///
/// [`Drain::observe`] takes the events in; the exit code and the last lines follow from what is stored here.
#[derive(Debug)]
struct Drain {
    goal: Goal,
    node: Candidate,
    /// The latest progress that came; `None` before the first.
    last: Option<DrainProgress>,
    /// Why it failed as a whole, and the exit code for that.
    ///
    /// Its text is for people. It ends the drain for this program, also if progress was seen before.
    failure: Option<(String, Exit)>,
}

impl Drain {
    /// A failure, or a state that answers the goal.
    fn is_over(&self) -> bool {
        self.failure.is_some() || self.state().is_some_and(|state| self.is_end(state))
    }

    fn state(&self) -> Option<&DrainState> {
        self.last.as_ref().map(|last| &last.state)
    }

    /// Whether this state answers what was asked for.
    fn is_end(&self, state: &DrainState) -> bool {
        match self.goal {
            Goal::Check => *state == DrainState::Checking,
            Goal::Move | Goal::Abort => state.is_over(),
        }
    }

    /// Takes an event in; a line for people where it is news of this drain.
    ///
    /// Four kinds of events concern it: progress of this node, failed commands on this node (the drain itself, or the
    /// move of one of its instances), the loss of the node, and a refused EVACUATE. The last line, which
    /// [`Drain::end`] makes, is not printed here as well.
    fn observe(&mut self, event: &Event) -> Option<Printable> {
        match event {
            Event::Drain(progress) if progress.node_uuid == self.node.uuid => {
                let is_news = self.last.as_ref() != Some(&**progress);
                let last = self.last.replace((**progress).clone());
                let is_end = self.is_over();
                // What fits nowhere else is named once, and again where it is others. A check only counts it.
                let are_named = last.is_some_and(|last| {
                    last.state != DrainState::Checking && instances(&last) == instances(progress)
                });
                let text = if are_named {
                    drain_counts
                } else {
                    progress_text
                };
                let line = format!("{} {}", self.node, text(progress));
                (is_news && !is_end).then(|| Printable::new(line))
            }
            Event::CommandFailure(failure) if failure.node_uuid == self.node.uuid => {
                if failure.command == LifecycleCommand::Drain {
                    self.failure = Some((failure_text(failure), failure_exit(failure)));
                    return None;
                }
                Some(event.line()) // of an instance that was to be moved
            }
            Event::NodeDisconnected(gone) if gone.node_uuid == self.node.uuid => Some(event.line()),
            Event::Refused(refused) if refused_kind(refused) == Kind::EVACUATE => {
                let why = format!("{}: {}", refused.reason, refused.detail);
                self.failure = Some((why, Exit::Refused));
                None
            }
            _ => None,
        }
    }

    /// In this order: a failure has its own code; without a state that answers the goal it is a timeout; a check is done
    /// if everything would fit; an abort is done if the drain is over in any way; a drain is done only in the state
    /// `done`.
    fn exit(&self) -> Exit {
        if let Some((_, exit)) = &self.failure {
            return *exit;
        }
        // A check may have seen only the progress of a drain that was under way before.
        let Some(last) = self.last.as_ref().filter(|last| self.is_end(&last.state)) else {
            return Exit::Timeout;
        };
        let is_done = match self.goal {
            Goal::Check => last.unmovable_count == 0,
            Goal::Abort => true,
            Goal::Move => last.state == DrainState::Done,
        };
        if is_done { Exit::Done } else { Exit::Refused }
    }

    /// The last lines: how it ended, and what fits nowhere else.
    ///
    /// Instances that fit nowhere else are listed with the reason. The scheduler names a limited number of them; the
    /// rest is counted.
    fn end(&self) -> Lines {
        let node = &self.node;
        let mut lines = Lines::default();
        if let Some((why, _)) = &self.failure {
            lines.push(format_args!("{node} not drained: {why}"));
            return lines;
        }
        let Some(last) = &self.last else {
            lines.push(format_args!("{node} asked to drain; gave up waiting"));
            return lines;
        };
        // Those that fit nowhere else follow on lines of their own.
        let progress = drain_counts(last);
        lines.push(match (self.goal, &last.state) {
            (Goal::Check, DrainState::Checking) => check_text(node, last),
            (Goal::Check, _) => format!("{node} {progress}; gave up waiting for the check"),
            (_, DrainState::Done) if last.total == 0 => format!("{node} drained: nothing to move"),
            (_, DrainState::Done) => format!("{node} drained: {}", drain_done(last)),
            _ if self.is_over() => format!("{node} {progress}"),
            _ => format!("{node} {progress}; gave up waiting, it goes on"),
        });
        for (why, instances) in by_reason(&last.unmovable) {
            match instances.as_slice() {
                [only] => lines.push(format_args!("  {only}  {why}")),
                several => {
                    lines.push(format_args!("  {why}:"));
                    for instance in several {
                        lines.push(format_args!("    {instance}"));
                    }
                }
            }
        }
        let named = u32::try_from(last.unmovable.len()).unwrap_or(u32::MAX);
        if let more @ 1.. = last.unmovable_count.saturating_sub(named) {
            lines.push(format_args!("  and {more} more"));
        }
        lines
    }

    /// `reason` is null unless the drain failed as a whole; `progress` is null before the first progress.
    fn json(&self) -> serde_json::Value {
        let last = self.last.as_ref().map(|last| {
            let mut progress = drain_json(last);
            if let Some(object) = progress.as_object_mut() {
                object.remove("event");
            }
            progress
        });
        json!({
            "node_uuid": self.node.uuid,
            "hostname": self.node.hostname,
            "is_over": self.is_over(),
            "progress": last,
            "reason": self.failure.as_ref().map(|(why, _)| why),
        })
    }
}

/// Those that fit nowhere else, whatever the reason is by now.
fn instances(progress: &DrainProgress) -> BTreeSet<&str> {
    let unmovable = progress.unmovable.iter();
    unmovable.map(|it| it.instance_uuid.as_str()).collect()
}

/// Instances that cannot be moved by why, in the order of the first of each: many have the same reason, which is long.
fn by_reason(unmovable: &[UnmovableInstance]) -> IndexMap<&str, Vec<String>> {
    let mut all = IndexMap::<_, Vec<_>>::new();
    for it in unmovable {
        all.entry(&*it.detail)
            .or_default()
            .push(unmovable_label(it));
    }
    all
}

/// `node-a (4cb19522): 2 of 40 will not fit:`; the instances follow on lines of their own.
fn check_text(node: &Candidate, last: &DrainProgress) -> String {
    let (total, unmovable) = (last.total, last.unmovable_count);
    match unmovable {
        0 if total == 0 => format!("{node}: nothing to move"),
        0 => format!("{node}: all {total} fit elsewhere"),
        _ => format!("{node}: {unmovable} of {total} will not fit:"),
    }
}

/// The protocol's word for the reason, and the detail if there is one.
fn failure_text(failure: &CommandFailure) -> String {
    match failure.detail.as_str() {
        "" => failure.reason.to_string(),
        detail => format!("{}: {detail}", failure.reason),
    }
}

/// A drain that ran into its own deadline is a timeout; every other failure is a refusal.
fn failure_exit(failure: &CommandFailure) -> Exit {
    match failure.reason {
        CommandFailureReason::Timeout => Exit::Timeout,
        _ => Exit::Refused,
    }
}

#[cfg(test)]
mod tests {
    use proto_frames::payload::{NodeDisconnected, NodeType};

    use super::*;

    fn end(drain: &Drain) -> Vec<String> {
        drain.end().iter().map(ToString::to_string).collect()
    }

    fn unmovable(instance: &str, why: &str) -> UnmovableInstance {
        UnmovableInstance {
            instance_uuid: instance.into(),
            detail: why.into(),
            ..UnmovableInstance::default()
        }
    }

    fn drain(goal: Goal) -> Drain {
        let node = Candidate {
            uuid: "4cb19522-aaaa".into(),
            hostname: Some("a".into()),
            about: String::new(),
        };
        Drain {
            goal,
            node,
            last: None,
            failure: None,
        }
    }

    fn progress(state: DrainState, moved: u32) -> Event {
        Event::Drain(Box::new(DrainProgress {
            node_uuid: "4cb19522-aaaa".into(),
            state,
            total: 4,
            moved,
            left: 4 - moved,
            ..DrainProgress::default()
        }))
    }

    #[test]
    fn a_drain_is_shown_until_it_is_done() {
        let mut drain = drain(Goal::Move);
        assert_eq!(drain.exit(), Exit::Timeout);
        let line = drain.observe(&progress(DrainState::Moving, 1));
        let expected = "a (4cb19522) moving: 1 of 4 moved, 0 on their way, 3 left";
        assert_eq!(line.unwrap(), expected);
        assert_eq!(
            drain.observe(&progress(DrainState::Moving, 1)),
            None,
            "no news"
        );
        let gave_up = format!("{expected}; gave up waiting, it goes on");
        assert_eq!(end(&drain), [gave_up]);
        drain.observe(&progress(DrainState::Done, 4));
        assert!(drain.is_over());
        assert_eq!(end(&drain), ["a (4cb19522) drained: 4 moved"]);
        assert_eq!(drain.exit(), Exit::Done);
    }

    #[test]
    fn what_fits_nowhere_else_is_named_once_while_a_drain_goes_on() {
        let moving = |moved, unmovable| {
            Event::Drain(Box::new(DrainProgress {
                node_uuid: "4cb19522-aaaa".into(),
                state: DrainState::Moving,
                total: 4,
                moved,
                left: 4 - moved,
                unmovable_count: 1,
                unmovable,
                ..DrainProgress::default()
            }))
        };
        let mut drain = drain(Goal::Move);
        let mut line = |moved, unmovable| {
            let line = drain.observe(&moving(moved, vec![unmovable])).unwrap();
            line.to_string()
        };
        assert!(line(1, unmovable("i1", "pinned")).ends_with("; 1 fits nowhere else: i1 (pinned)"));
        assert!(line(2, unmovable("i1", "short of memory")).ends_with("; 1 fits nowhere else"));
        assert!(line(3, unmovable("i2", "pinned")).ends_with(": i2 (pinned)"));
    }

    #[test]
    fn a_drain_that_waits_names_what_it_found_to_fit_nowhere_else_before_it_began() {
        let event = |state| {
            Event::Drain(Box::new(DrainProgress {
                node_uuid: "4cb19522-aaaa".into(),
                state,
                total: 2,
                left: 2,
                unmovable_count: 2,
                unmovable: vec![unmovable("i1", "no room"), unmovable("i2", "pinned")],
                ..DrainProgress::default()
            }))
        };
        let mut drain = drain(Goal::Move);
        drain.observe(&event(DrainState::Checking));
        let line = drain.observe(&event(DrainState::Moving)).unwrap();
        assert!(line.ends_with(": i1 (no room), i2 (pinned)"), "{line}");
    }

    #[test]
    fn a_drain_that_leaves_something_or_is_ended_by_others_is_not_done() {
        for state in [DrainState::Incomplete, DrainState::Aborted] {
            let mut drain = drain(Goal::Move);
            drain.observe(&progress(state, 3));
            assert!(drain.is_over());
            assert_eq!(drain.exit(), Exit::Refused);
        }
        let mut drain = drain(Goal::Abort);
        assert!(drain.observe(&progress(DrainState::Moving, 1)).is_some());
        assert!(!drain.is_over());
        drain.observe(&progress(DrainState::Aborted, 1));
        assert_eq!(drain.exit(), Exit::Done, "that was asked for");
    }

    #[test]
    fn a_check_names_what_fits_nowhere_else() {
        let mut check = drain(Goal::Check);
        check.observe(&progress(DrainState::Checking, 0));
        assert_eq!(end(&check), ["a (4cb19522): all 4 fit elsewhere"]);
        assert_eq!(check.exit(), Exit::Done);
        let empty = |state| {
            Event::Drain(Box::new(DrainProgress {
                node_uuid: "4cb19522-aaaa".into(),
                state,
                detail: "nothing to move".into(),
                ..DrainProgress::default()
            }))
        };
        let mut check = drain(Goal::Check);
        check.observe(&empty(DrainState::Checking));
        assert_eq!(end(&check), ["a (4cb19522): nothing to move"]);
        let mut moved = drain(Goal::Move);
        let line = moved.observe(&empty(DrainState::Checking)).unwrap();
        assert_eq!(line, "a (4cb19522) checking: nothing to move");
        moved.observe(&empty(DrainState::Done));
        assert_eq!(end(&moved), ["a (4cb19522) drained: nothing to move"]);
        let mut check = drain(Goal::Check);
        check.observe(&Event::Drain(Box::new(DrainProgress {
            node_uuid: "4cb19522-aaaa".into(),
            state: DrainState::Checking,
            total: 40,
            unmovable: vec![
                unmovable("i1", "no gpu"),
                unmovable("i2", "pinned"),
                unmovable("i3", "no gpu"),
            ],
            unmovable_count: 5,
            ..DrainProgress::default()
        })));
        let expected = [
            "a (4cb19522): 5 of 40 will not fit:",
            "  no gpu:",
            "    i1",
            "    i3",
            "  i2  pinned",
            "  and 2 more",
        ];
        assert_eq!(end(&check), expected);
        assert_eq!(check.exit(), Exit::Refused);
        assert_eq!(check.json()["progress"]["misfit_count"], 5);
    }

    #[test]
    fn a_check_that_has_no_answer_in_time_is_a_timeout() {
        // Of a drain that was under way when the check was asked for.
        for state in [DrainState::Moving, DrainState::Done, DrainState::Incomplete] {
            let mut check = drain(Goal::Check);
            check.observe(&progress(state, 1));
            assert!(!check.is_over());
            assert_eq!(check.exit(), Exit::Timeout);
            let end = end(&check);
            assert!(
                end[0].ends_with("; gave up waiting for the check"),
                "{end:?}"
            );
        }
    }

    #[test]
    fn a_drain_that_fails_as_a_whole_says_why() {
        let failure = |command, reason| {
            Event::CommandFailure(Box::new(CommandFailure {
                command,
                node_uuid: "4cb19522-aaaa".into(),
                instance_uuid: "i1".into(),
                reason,
                detail: "why".into(),
            }))
        };
        let mut drain = drain(Goal::Move);
        let one = failure(LifecycleCommand::Migrate, CommandFailureReason::NoRoom);
        assert!(drain.observe(&one).is_some());
        let gone = Event::NodeDisconnected(NodeDisconnected {
            node_uuid: "4cb19522-aaaa".into(),
            node_type: NodeType::Compute,
        });
        assert!(drain.observe(&gone).is_some());
        assert!(
            !drain.is_over(),
            "one instance, or a connection, is not all"
        );
        drain.observe(&failure(
            LifecycleCommand::Drain,
            CommandFailureReason::Timeout,
        ));
        assert_eq!(end(&drain), ["a (4cb19522) not drained: timeout: why"]);
        assert_eq!(drain.exit(), Exit::Timeout);
    }
}
