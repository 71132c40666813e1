//! What the scheduler says of the placement of a START, for people and for programs. Pure: answers in, text out.
//!
//! `explain`, the dry runs of `start` and `run`, and `start --verbose` print with it. The scheduler counts reasons and
//! has already ordered them; what is added here are words for each kind of reason, units, and advice. An example:
//!
//! ```text
//! db.yaml: does not fit now (full_cloud):
//! NODES  REASON                    ASKED  MOST FREE   LARGEST  NEAREST            OUTLOOK
//!    40  without 'zone = eu-1'         -          -         -  -                  never
//!    12  short of memory        4096 MiB    100 MiB  8192 MiB  host-1 (4cb19522)  not now
//! What helps:
//! - `ciaoctl nodes --wide` lists the labels that nodes have
//! - wait until instances have ended, or ask for at most 100 MiB of memory
//! ```

mod nearest;

use proto_frames::payload::{
    DecidedPlacement, InstanceView, PlacementDecision, PlacementState, Reason, ReasonKind,
    StartFailure,
};
use serde_json::{Value, json};

use crate::ctl::exit::Exit;
use crate::ctl::resolve::Candidate;
use crate::ctl::table::{Column, Columns, Style, grid};
use crate::ctl::units::{UNKNOWN, short};
use crate::printable::Lines;

pub use nearest::{nearest_node, shortfall};

/// The answer about one START.
///
/// Made from a `PlacementDecision` by `explain`, or from a failure by [`Explanation::of_failure`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Explanation {
    /// Where the START comes from: a file's name, or words for what the command line describes.
    pub name: String,
    /// The only node that was asked about, if it was one.
    ///
    /// Then the reasons are about this node alone, and the advice is about another node instead of a larger one.
    pub node: Option<Candidate>,
    /// What the scheduler says.
    ///
    /// The answer as it came. Its texts are from the scheduler and are escaped where they are printed.
    pub decision: PlacementDecision,
    /// What the nearest node has too little of, where that is several amounts: from [`shortfall`].
    pub nearest: Option<String>,
    /// What it is about.
    pub of: Of,
}

/// What an explanation is about.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Of {
    /// A START that was tried.
    #[default]
    Start,
    /// An instance that is there, in this state.
    Instance(String),
}

/// Where instances would go: one row for each node.
const PLACEMENTS: Columns = &[
    Column::text("HOST"),
    Column::text("NODE"),
    Column::amount("COUNT"),
];

/// The amounts are in the unit of the START: MiB of memory and disk, else a count. `MOST FREE` and `LARGEST` are the
/// largest free amount and the largest capacity of the nodes that this reason excludes.
const REASONS: Columns = &[
    Column::amount("NODES"),
    Column::text("REASON"),
    Column::amount("ASKED"),
    Column::amount("MOST FREE"),
    Column::amount("LARGEST").dropped(2),
    Column::text("NEAREST").dropped(3),
    Column::text("OUTLOOK"),
];

impl Explanation {
    /// The explanation of a START that failed instead of being decided on, of so many asked about.
    ///
    /// An invalid START, for example, is answered with a StartFailure. It has no placements, so that nothing fits.
    #[must_use]
    pub fn of_failure(name: String, count: u32, failure: StartFailure) -> Self {
        let decision = PlacementDecision {
            instance_uuid: failure.instance_uuid,
            count,
            reason: failure.reason,
            detail: failure.detail.unwrap_or_default(),
            reasons: failure.reasons,
            never: failure.never,
            ..PlacementDecision::default()
        };
        Self {
            name,
            node: None,
            decision,
            nearest: None,
            of: Of::Start,
        }
    }

    /// The explanation of an instance that is listed: why it waits, or where it is.
    #[must_use]
    pub fn of_instance(row: &InstanceView) -> Self {
        let called = match &*row.name {
            "" => row.instance_uuid.clone(),
            name => format!("{name} ({})", short(&row.instance_uuid)),
        };
        let waits = row.state == PlacementState::Waiting;
        let on = DecidedPlacement {
            node_uuid: row.node_uuid.clone(),
            hostname: row.hostname.clone(),
            count: 1,
        };
        let decision = PlacementDecision {
            instance_uuid: row.instance_uuid.clone(),
            count: 1,
            fits: u32::from(!waits),
            placements: if waits { Vec::new() } else { vec![on] },
            detail: row.waits_for.clone(),
            reasons: row.reasons.clone(),
            never: row.never,
            ..PlacementDecision::default()
        };
        Self {
            name: called,
            node: None,
            decision,
            nearest: None,
            of: Of::Instance(row.state.as_str().to_owned()),
        }
    }

    /// How the command that asked ends: done if all of it fits.
    ///
    /// With several asked about, one that does not fit makes it [`Exit::Refused`].
    #[must_use]
    pub fn exit(&self) -> Exit {
        if self.fits() {
            Exit::Done
        } else {
            Exit::Refused
        }
    }

    /// For people, in lines of so many characters where columns can be left out for that; `None` = of any number.
    ///
    /// In this order: the headline, the nodes (if several were asked about), alternate nodes (if asked for), and for
    /// what does not fit the table of reasons and the advice.
    #[must_use]
    pub fn text(&self, width: Option<usize>) -> Lines {
        let decision = &self.decision;
        let mut text = Lines::default();
        text.push(self.headline());
        if decision.count > 1 && !decision.placements.is_empty() {
            text.append(placements(&decision.placements, width));
        }
        if !decision.alternates.is_empty() {
            text.push("Or to, best first:");
            text.append(placements(&decision.alternates, width));
        }
        if self.fits() {
            return text;
        }
        let reasons = self.reasons();
        if reasons.is_empty() {
            return text;
        }
        if decision.fits > 0 {
            text.push(format_args!("The next {}:", self.outlook()));
        }
        text.append(reasons_table(&reasons, width));
        text.append(self.advice(&reasons));
        text
    }

    /// An object with stable names.
    ///
    /// `reason` and `detail` are null where all of it fits; `reasons` is then usually an empty list. `node_uuid` is
    /// the one node that was asked about, not a node of the answer.
    #[must_use]
    pub fn json(&self) -> Value {
        let decision = &self.decision;
        let placement = |it: &DecidedPlacement| json!({"node_uuid": it.node_uuid, "hostname": it.hostname, "count": it.count});
        json!({
            "name": self.name,
            "node_uuid": self.node.as_ref().map(|node| &node.uuid),
            "count": decision.count,
            "fits": decision.fits,
            "placements": decision.placements.iter().map(placement).collect::<Vec<_>>(),
            "alternates": decision.alternates.iter().map(placement).collect::<Vec<_>>(),
            "reason": (!self.fits()).then(|| decision.reason.as_str()),
            "detail": (!self.fits()).then_some(&decision.detail),
            "reasons": reasons_json(&decision.reasons),
            "never": decision.never,
        })
    }

    fn fits(&self) -> bool {
        self.decision.fits >= self.decision.count
    }

    /// The cases, first match first: several asked about and some fit; one fits, and where; refused without reasons,
    /// for example an invalid START; nothing fits on the one node that was asked about; nothing fits anywhere.
    fn headline(&self) -> String {
        let (decision, name) = (&self.decision, &self.name);
        if let Of::Instance(state) = &self.of {
            let why = match &*decision.detail {
                "" => String::new(),
                why => format!(": {why}"),
            };
            return match &decision.placements[..] {
                [on] => format!(
                    "{name}: is {state} on {} ({})",
                    on.hostname,
                    short(&on.node_uuid)
                ),
                _ => format!("{name}: waits{why}"),
            };
        }
        match (&decision.placements[..], &self.node) {
            _ if decision.count > 1 && decision.fits > 0 => {
                let (fits, count) = (decision.fits, decision.count);
                let on = self
                    .node
                    .as_ref()
                    .map_or(String::new(), |it| format!(" on {it}"));
                format!("{name}: {fits} of {count} would fit{on}:")
            }
            ([only], _) => {
                let host = &only.hostname;
                format!("{name}: would go to {host} ({})", short(&only.node_uuid))
            }
            _ if decision.reasons.is_empty() => {
                format!(
                    "{name}: is not placed: {}: {}",
                    decision.reason, decision.detail
                )
            }
            (_, Some(node)) => {
                let ever = if decision.never {
                    "never fits"
                } else {
                    "does not fit now"
                };
                format!("{name}: {ever} on {node} ({}):", decision.reason)
            }
            (_, None) => format!("{name}: {} ({}):", self.outlook(), decision.reason),
        }
    }

    /// `never` is about the nodes as they are: a larger node that joins the cluster changes it.
    fn outlook(&self) -> &'static str {
        if self.decision.never {
            "never fits on the nodes there are"
        } else {
            "does not fit now"
        }
    }

    /// The reasons that are shown. If one node was asked about, the reason that the other nodes are not that node is
    /// left out.
    ///
    /// With one node asked about, the scheduler pins the START to it, and every other node is excluded by that pin. If
    /// that is the only reason, it stays: then the node itself is missing or not usable.
    fn reasons(&self) -> Vec<Reason> {
        let all = &self.decision.reasons;
        let is_pin = |reason: &&Reason| reason.reason == ReasonKind::Pinned;
        if self.node.is_none() || all.iter().all(|reason| is_pin(&reason)) {
            return all.clone();
        }
        all.iter().filter(|it| !is_pin(it)).cloned().collect()
    }

    /// What an operator can do about these reasons.
    fn advice(&self, reasons: &[Reason]) -> Lines {
        let among = match self.node {
            Some(_) => Among::One,
            None => Among::All,
        };
        what_helps(reasons, among, self.nearest.as_deref())
    }
}

/// Rows of [`PLACEMENTS`]; alternates have the same columns.
fn placements(placements: &[DecidedPlacement], width: Option<usize>) -> Lines {
    let row = |it: &DecidedPlacement| {
        let node = short(&it.node_uuid).to_owned();
        vec![it.hostname.clone(), node, it.count.to_string()]
    };
    let rows: Vec<Vec<String>> = placements.iter().map(row).collect();
    grid(PLACEMENTS, &rows, Style::with_headers(width))
}

/// Reasons as a table, as wide as this at most.
///
/// `start --verbose` prints it below the line of an instance that failed.
#[must_use]
pub fn reasons_table(reasons: &[Reason], width: Option<usize>) -> Lines {
    let rows: Vec<Vec<String>> = reasons.iter().map(row).collect();
    grid(REASONS, &rows, Style::with_headers(width))
}

/// Reasons as a list of objects with stable names; what is not known is null.
///
/// The same keys as in the events of `ciaoctl watch --json` and in the results of `start --json`.
#[must_use]
pub fn reasons_json(reasons: &[Reason]) -> Value {
    let text = |text: &String| (!text.is_empty()).then(|| text.clone());
    let object = |it: &Reason| {
        json!({
            "reason": it.reason.as_str(), "what": text(&it.what), "nodes": it.nodes, "asked": it.asked,
            "best": it.best, "capacity": it.capacity, "node_uuid": text(&it.node_uuid),
            "hostname": text(&it.hostname), "never": it.never,
        })
    };
    reasons.iter().map(object).collect()
}

/// The cells of [`REASONS`] for one reason.
fn row(reason: &Reason) -> Vec<String> {
    let amount = |amount: Option<i64>| match amount {
        Some(amount) => with_unit(reason, amount),
        None => UNKNOWN.to_owned(),
    };
    // Where no node has any of it, none is near.
    let has_any = reason.capacity != Some(0);
    let nearest = match (&*reason.hostname, &*reason.node_uuid) {
        ("", uuid) if has_any && !uuid.is_empty() => short(uuid).to_owned(),
        (host, uuid) if has_any && !uuid.is_empty() => format!("{host} ({})", short(uuid)),
        _ => UNKNOWN.to_owned(),
    };
    vec![
        reason.nodes.to_string(),
        words(reason),
        amount(reason.asked),
        amount(reason.best),
        amount(reason.capacity),
        nearest,
        if reason.never { "never" } else { "not now" }.to_owned(),
    ]
}

/// A reason in words that follow the number of nodes.
///
/// It continues the count in the column before: `3` `short of memory`. A kind of reason that this program does not
/// know is shown as the scheduler wrote it, with a remark that says so.
fn words(reason: &Reason) -> String {
    let what = &reason.what;
    match &reason.reason {
        ReasonKind::NotReady if what.is_empty() => "not ready".to_owned(),
        ReasonKind::NotReady => format!("not ready: {what}"),
        ReasonKind::BackedUp => "with a full queue".to_owned(),
        // An older scheduler does not say which.
        ReasonKind::UnknownFigures if what.is_empty() => "with unknown figures".to_owned(),
        ReasonKind::UnknownFigures => match what.rsplit_once(", ") {
            None if what == "vcpus" => "whose vcpus are not known".to_owned(),
            None => format!("whose free {what} is not known"),
            Some((names, last)) => format!("whose free {names} and {last} are not known"),
        },
        ReasonKind::Pinned => "not the node or host asked for".to_owned(),
        ReasonKind::Labels => format!("without '{what}'"),
        ReasonKind::Near => format!("not near '{what}'"),
        ReasonKind::Group => format!("kept out by group '{what}'"),
        ReasonKind::SameNode => "without an instance of same_node".to_owned(),
        ReasonKind::DifferentNode => "with an instance of different_node".to_owned(),
        ReasonKind::Images if what.is_empty() => "reserved for other images".to_owned(),
        ReasonKind::Images => format!("not for image '{what}', which has nodes of its own"),
        ReasonKind::Volumes => format!("without volume or port '{what}'"),
        ReasonKind::Tenants => "reserved for other tenants".to_owned(),
        ReasonKind::VmType => format!("do not run vm_type {}", reason.what),
        ReasonKind::Memory | ReasonKind::Vcpus | ReasonKind::Disk => {
            format!("short of {}", reason.reason)
        }
        ReasonKind::Resource => format!("short of {what}"),
        ReasonKind::Starts => "with too many STARTs under way".to_owned(),
        ReasonKind::Instances => "with too many instances".to_owned(),
        ReasonKind::Other(word) if word == "image-fetch" => match &**what {
            "" => "without its image, which their launchers cannot fetch".to_owned(),
            "more_images" => "whose launchers fetch no further images".to_owned(),
            what => format!("whose launchers cannot fetch {what}"),
        },
        ReasonKind::Other(word) if known_word(word).is_some() => {
            known_word(word).unwrap_or_default().to_owned()
        }
        ReasonKind::Other(word) if what.is_empty() => {
            format!("kept out by filter '{word}', which this ciaoctl does not know")
        }
        ReasonKind::Other(word) => {
            format!("kept out by filter '{word}' ({what}), which this ciaoctl does not know")
        }
    }
}

/// What the scheduler's kinds of reasons mean that have no variant of their own; `None` for one that is newer than this
/// program.
fn known_word(word: &str) -> Option<&'static str> {
    let words = match word {
        "cordoned" => "cordoned",
        "fault" => "with a fault, so that they take no work",
        "lost" => "lost, and may come back",
        "reserved" => "with room that is for others that wait before it",
        "avoid" => "where it was tried already, or which it is to leave",
        "lease" => "without a lease",
        "run-limits" => "whose launchers know no time_limit, stop, restart or retry",
        "load" => "with too high a load",
        "aggregate-instances" => "with as many instances as their aggregate allows",
        "aggregate-starts" => "with as many STARTs under way as their aggregate allows",
        _ => return None,
    };
    Some(words)
}

/// An amount with its unit, exact.
///
/// Memory and disk stay in MiB: rounded to GiB, what is asked for and what is free could look the same while one is
/// too large.
fn with_unit(reason: &Reason, amount: i64) -> String {
    match reason.reason {
        ReasonKind::Memory | ReasonKind::Disk => format!("{amount} MiB"),
        _ => amount.to_string(),
    }
}

/// What an operator can do about these reasons; no lines for those that nothing can be done about.
///
/// Advice that several reasons share is given once. `nearest` is said behind it.
#[must_use]
pub fn what_helps(reasons: &[Reason], among: Among, nearest: Option<&str>) -> Lines {
    let mut lines: Vec<String> = Vec::new();
    let advised = reasons.iter().filter_map(|reason| advice(reason, among));
    for line in advised.chain(nearest.map(ToOwned::to_owned)) {
        if !lines.contains(&line) {
            lines.push(line);
        }
    }
    let mut text = Lines::default();
    if !lines.is_empty() {
        text.push("What helps:");
    }
    for line in lines {
        text.push(format_args!("- {line}"));
    }
    text
}

/// Which nodes a reason is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Among {
    /// The one that was asked about.
    One,
    /// All of the cluster.
    All,
}

/// `None` for reasons that an operator cannot do anything about with a command or another request.
fn advice(reason: &Reason, among: Among) -> Option<String> {
    let line = match &reason.reason {
        ReasonKind::NotReady => {
            "`ciaoctl nodes` says how nodes are; `ciaoctl restore NODE` ends an evacuation"
                .to_owned()
        }
        ReasonKind::UnknownFigures => {
            "a node whose launcher does not report its memory, vcpus and disk takes no work: see its log"
                .to_owned()
        }
        ReasonKind::Pinned => {
            "ask for a node that is connected and of the right kind, compute or network, or for any"
                .to_owned()
        }
        ReasonKind::Labels | ReasonKind::Near => {
            "`ciaoctl nodes --wide` lists the labels that nodes have".to_owned()
        }
        ReasonKind::Group => {
            "`ciaoctl instances --wide` lists where members of the group are".to_owned()
        }
        ReasonKind::Memory | ReasonKind::Vcpus | ReasonKind::Disk | ReasonKind::Resource => {
            return Some(shortage(reason, among));
        }
        ReasonKind::Other(word) => match word.as_str() {
            "cordoned" => "`ciaoctl uncordon NODE` lets a cordoned node take work again; `ciaoctl nodes` lists which are"
                .to_owned(),
            "fault" => "`ciaoctl nodes --wide` says what is wrong with a node that has a fault".to_owned(),
            "lost" => "bring the lost node back (`ciaoctl nodes`), or `ciaoctl node forget NODE` if it never returns"
                .to_owned(),
            "lease" => "`on_node_loss: restart` needs a launcher with a lease".to_owned(),
            _ => return None,
        },
        _ => return None,
    };
    Some(line)
}

/// What to do about a shortage, by whether waiting helps. If no node has any of it, asking for less does not help. If
/// some is free, less of it would fit at once. `best` and `capacity` are `None` where the scheduler does not say them,
/// which is treated as none.
fn shortage(reason: &Reason, among: Among) -> String {
    let name = match reason.reason {
        ReasonKind::Resource => &*reason.what,
        _ => reason.reason.as_str(),
    };
    let (other, empty) = match among {
        Among::One => ("ask about another node", "ask about another node"),
        Among::All => ("add a larger node", "add a node"),
    };
    let at_most = |amount| format!("ask for at most {} of {name}", with_unit(reason, amount));
    match (reason.never, reason.capacity, reason.best) {
        (true, None | Some(0), _) => format!("{empty} that has {name}"),
        (true, Some(capacity), _) => format!("{}, or {other}", at_most(capacity)),
        (false, _, Some(best)) if best > 0 => {
            format!("wait until instances have ended, or {}", at_most(best))
        }
        (false, ..) => format!("wait until instances have ended, or {empty} that has {name} left"),
    }
}

#[cfg(test)]
mod tests;
