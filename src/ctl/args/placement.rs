//! Options that say where an instance may run and what else it needs: `start.scheduling`, by flags.

use std::time::Duration;

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use humantime::format_duration;
use proto_frames::payload::expression::is_name;
use proto_frames::payload::scheduling::{MAX_ATTEMPTS, MAX_PRIORITY, MAX_QUEUE, SCOPE_NODE};
use proto_frames::payload::{Expression, Group, GroupPolicy, Near, OnNodeLoss, Scheduling, Span};

use super::lifecycle::span;

/// Options of the commands that make a START by themselves.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = super::PLACEMENT)]
pub struct PlacementArgs {
    /// What the node must meet, e.g. 'zone = eu-1', 'cpu.model in (zen4, zen5)', 'ssd exists', 'node.load < 4';
    /// repeatable
    #[arg(long, value_name = "EXPR")]
    pub require: Vec<Expression>,
    /// What the node had better meet; repeatable
    #[arg(long, value_name = "EXPR")]
    pub prefer: Vec<Expression>,
    /// So much of a further resource, e.g. gpu=1; repeatable
    #[arg(long, value_name = "NAME=N", value_parser = amount)]
    pub resource: Vec<(String, i64)>,
    /// Group of instances to be placed together or apart
    #[arg(long, value_name = "ID", requires = "group_policy")]
    pub group: Option<String>,
    /// How the group is placed
    #[arg(
        long,
        value_name = "POLICY",
        requires = "group",
        value_parser = PossibleValuesParser::new(GroupPolicy::KNOWN).map(|word| GroupPolicy::from(&*word))
    )]
    pub group_policy: Option<GroupPolicy>,
    /// What one place is for the group: node, or a label whose value is the same in one place [default: node]
    #[arg(long, value_name = "LABEL", requires = "group")]
    pub group_scope: Option<String>,
    /// How many of the group may be in one place, where they are to be apart [default: 1]
    #[arg(long, value_name = "N", requires = "group")]
    pub group_max: Option<u32>,
    /// Be near nodes with this label: on one, or where the label SCOPE has the same value as on one. It is a preference,
    /// with :hard a requirement; repeatable
    #[arg(long, value_name = "LABEL[:SCOPE][:hard]", value_parser = near)]
    pub near: Vec<Near>,
    /// Only on a node that has one of these instances; repeatable
    #[arg(long, value_name = "INSTANCE")]
    pub same_node: Vec<String>,
    /// Only on a node that has none of these instances; repeatable
    #[arg(long, value_name = "INSTANCE")]
    pub different_node: Vec<String>,
    /// How urgent it is, 0 to 100, higher first: in the queue, and where it may preempt others [default: 50]
    #[arg(long, value_name = "N", help_heading = LIFE, value_parser = clap::value_parser!(i64).range(0..=MAX_PRIORITY))]
    pub priority: Option<i64>,
    /// Wait so long for room where it fits nowhere, for example 10m; at most 30d
    #[arg(long, value_name = "DURATION", help_heading = LIFE, value_parser = queue)]
    pub queue: Option<Span>,
    /// Try it on up to so many nodes, where the first ones cannot start it [default: 1]
    #[arg(long, value_name = "N", help_heading = LIFE, value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_ATTEMPTS)))]
    pub attempts: Option<u32>,
    /// It may be moved to another node, as by `drain`
    #[arg(long, help_heading = LIFE)]
    pub relocate: bool,
    /// What to do when its node is lost: report it, or start it elsewhere once its node must have ended it
    #[arg(
        long,
        value_name = "WHAT",
        help_heading = LIFE,
        value_parser = PossibleValuesParser::new(OnNodeLoss::KNOWN).map(|word| OnNodeLoss::from(&*word))
    )]
    pub on_node_loss: Option<OnNodeLoss>,
}

/// Where the help has the options that outlast the placement.
pub(super) const LIFE: &str = "Life";

impl PlacementArgs {
    /// What they say of a START; `None` for nothing. What must be met must also be understood: a scheduler that has it
    /// switched off is to refuse rather than to ignore it.
    ///
    /// # Errors
    /// A resource is named twice.
    pub fn scheduling(&self) -> Result<Option<Scheduling>, String> {
        let mut scheduling = Scheduling {
            require: self.require.clone(),
            prefer: self.prefer.clone(),
            group: self.group.as_ref().map(|id| self.group(id)),
            near: self.near.clone(),
            same_node: self.same_node.clone(),
            different_node: self.different_node.clone(),
            priority: self.priority,
            queue: self.queue,
            attempts: self.attempts,
            relocate: self.relocate.then_some(true),
            on_node_loss: self.on_node_loss.clone().unwrap_or_default(),
            ..Scheduling::default()
        };
        for (name, amount) in &self.resource {
            if scheduling.resources.insert(name.clone(), *amount).is_some() {
                return Err(format!("--resource: {name} is there twice"));
            }
        }
        let is_strict = |group: &Group| !group.policy.is_soft();
        let strict = [
            ("require", !scheduling.require.is_empty()),
            ("group", scheduling.group.as_ref().is_some_and(is_strict)),
            ("near", scheduling.near.iter().any(|near| near.hard)),
            ("same_node", !scheduling.same_node.is_empty()),
            ("different_node", !scheduling.different_node.is_empty()),
        ];
        let keys = strict.into_iter().filter(|(_, is_strict)| *is_strict);
        scheduling.must_understand = keys.map(|(key, _)| key.to_owned()).collect();
        Ok((scheduling != Scheduling::default()).then_some(scheduling))
    }

    fn group(&self, id: &str) -> Group {
        Group {
            id: id.to_owned(),
            policy: self.group_policy.clone().unwrap_or_default(),
            scope: self.group_scope.as_deref().unwrap_or(SCOPE_NODE).to_owned(),
            max: self.group_max,
        }
    }
}

/// Reads how long to wait for room.
fn queue(text: &str) -> Result<Span, String> {
    match span(text)? {
        long if long > MAX_QUEUE => {
            let max = Duration::from_millis(MAX_QUEUE.ms());
            Err(format!("must be at most {}", format_duration(max)))
        }
        queue => Ok(queue),
    }
}

/// Reads `NAME=N`.
pub(super) fn amount(text: &str) -> Result<(String, i64), String> {
    let read = text.split_once('=').and_then(|(name, amount)| {
        let amount = amount.parse().ok().filter(|amount| *amount >= 0)?;
        is_name(name).then(|| (name.to_owned(), amount))
    });
    read.ok_or_else(|| "write it as NAME=N, with a whole number".into())
}

/// Reads `LABEL[:SCOPE][:hard]`.
fn near(text: &str) -> Result<Near, String> {
    const HARD: &str = "hard";
    let (label, scope, hard) = match text.split(':').collect::<Vec<&str>>()[..] {
        [label] => (label, SCOPE_NODE, false),
        [label, HARD] => (label, SCOPE_NODE, true),
        [label, scope] => (label, scope, false),
        [label, scope, HARD] => (label, scope, true),
        _ => return Err("write it as LABEL, LABEL:SCOPE, LABEL:hard or LABEL:SCOPE:hard".into()),
    };
    match [label, scope].into_iter().find(|name| !is_name(name)) {
        Some(name) => Err(format!(
            "'{name}' is not a name of letters, digits and . _ / -"
        )),
        None => Ok(Near {
            label: label.to_owned(),
            scope: scope.to_owned(),
            hard,
        }),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        placement: PlacementArgs,
    }

    fn scheduling(words: &[&str]) -> Option<Scheduling> {
        let words = std::iter::once("x").chain(words.iter().copied());
        let line = Line::try_parse_from(words).unwrap_or_else(|e| panic!("{e}"));
        line.placement.scheduling().unwrap()
    }

    fn refusal(words: &[&str]) -> String {
        let words = std::iter::once("x").chain(words.iter().copied());
        Line::try_parse_from(words).unwrap_err().to_string()
    }

    #[test]
    fn nothing_said_is_no_scheduling() {
        assert_eq!(scheduling(&[]), None);
    }

    #[test]
    fn every_option_has_its_key_and_conditions_must_be_understood() {
        let line = [
            "--require=zone = eu-1",
            "--prefer=rack = r7",
            "--resource=gpu=2",
            "--group=web",
            "--group-policy=anti-affinity",
            "--group-scope=rack",
            "--group-max=3",
            "--near=volume-7:rack:hard",
            "--near=port-1",
        ];
        let said = scheduling(&line).unwrap();
        assert_eq!(said.require[0].as_str(), "zone = eu-1");
        assert_eq!(said.prefer[0].as_str(), "rack = r7");
        assert_eq!(said.resources["gpu"], 2);
        let group = said.group.unwrap();
        assert_eq!((&*group.id, &*group.scope), ("web", "rack"));
        assert_eq!(
            (group.policy, group.max),
            (GroupPolicy::AntiAffinity, Some(3))
        );
        let near = |near: &Near| (near.label.clone(), near.scope.clone(), near.hard);
        assert_eq!(
            near(&said.near[0]),
            ("volume-7".into(), "rack".into(), true)
        );
        assert_eq!(near(&said.near[1]), ("port-1".into(), "node".into(), false));
        assert_eq!(said.must_understand, ["require", "group", "near"]);
        let preferences = ["--prefer=a = b", "--near=volume-7"];
        assert!(scheduling(&preferences).unwrap().must_understand.is_empty());
    }

    #[test]
    fn what_outlasts_the_placement_is_said_as_well() {
        let line = [
            "--priority=50",
            "--queue=10m",
            "--attempts=3",
            "--relocate",
            "--on-node-loss=restart",
        ];
        let said = scheduling(&line).unwrap();
        assert_eq!((said.priority, said.attempts), (Some(50), Some(3)));
        assert_eq!(said.queue.unwrap().ms(), 600_000);
        assert!(said.relocate == Some(true) && said.restarts_on_node_loss());
        assert!(said.must_understand.is_empty());
    }

    #[test]
    fn a_bad_expression_is_refused_with_its_column() {
        let said = refusal(&["--require=zone = eu-1 x"]);
        assert!(said.contains("column 13: expected nothing more"), "{said}");
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for line in [
            &["--resource=gpu"][..],
            &["--resource=gpu=-1"],
            &["--resource=g p=1"],
            &["--group=web"],
            &["--group=web", "--group-policy=nearby"],
            &["--group-scope=rack"],
            &["--near=a:b:c"],
            &["--near=:rack"],
        ] {
            refusal(line);
        }
        let twice = Line::parse_from(["x", "--resource=gpu=1", "--resource=gpu=2"]);
        assert_eq!(
            twice.placement.scheduling().unwrap_err(),
            "--resource: gpu is there twice"
        );
    }
}
