//! Which ends are wanted.

use proto_frames::Uuid;
use proto_frames::payload::cut::shorten;
use proto_frames::payload::{EndFilter, EndOutcome};

use super::row::{EndRow, Id};

/// A filter that can be tried.
#[derive(Debug)]
pub(in crate::server) struct Wanted<'a> {
    /// By the clock of the core, as the times of ends are.
    since_ms: u64,
    until_ms: u64,
    /// By the clock of the system, as it was when ends were put on record.
    oldest_ms: u64,
    /// Words of [`EndOutcome`]; `None` for any.
    outcomes: Option<Vec<&'static str>>,
    tenant: Option<Id<'a>>,
    node: Option<Node<'a>>,
    name: Pattern<'a>,
    program: Pattern<'a>,
    instance: Option<Id<'a>>,
    by: Pattern<'a>,
    /// Keys, and the values that they must have, if any.
    labels: Vec<(&'a str, Option<&'a str>)>,
    array: Option<Uuid>,
}

#[derive(Debug)]
enum Node<'a> {
    Uuid(Uuid),
    Hostname(&'a str),
}

#[derive(Debug)]
enum Pattern<'a> {
    Any,
    Is(&'a str),
    Begins(&'a str),
    Has(&'a str),
}

impl<'a> Wanted<'a> {
    /// Of ends that were put on record at `oldest_ms` or later, which unix time in milliseconds is.
    ///
    /// # Errors
    /// There is no such state: what there is instead.
    pub(in crate::server) fn new(filter: &'a EndFilter, oldest_ms: u64) -> Result<Self, String> {
        let id = |text: &'a str| (!text.is_empty()).then(|| Id::of_any_case(text));
        let node = match &*filter.node {
            "" => None,
            node => Some(Uuid::try_parse(node).map_or(Node::Hostname(node), Node::Uuid)),
        };
        let array =
            match &*filter.array {
                "" => None,
                array => Some(Uuid::try_parse(array).map_err(|_| {
                    format!("array: '{}' is not the UUID of an array", shorten(array))
                })?),
            };
        Ok(Self {
            array,
            since_ms: filter.since_ms.unwrap_or(0),
            until_ms: filter.until_ms.unwrap_or(u64::MAX),
            oldest_ms,
            outcomes: outcomes(&filter.state)?,
            tenant: id(&filter.tenant),
            node,
            name: Pattern::new(&filter.name),
            program: Pattern::new(&filter.program),
            instance: id(&filter.instance),
            by: Pattern::new_part(&filter.by),
            labels: filter.labels.iter().map(|it| label(it)).collect(),
        })
    }

    /// Ends that were put on record before this moment are not wanted.
    pub(super) fn noted_since_ms(&self) -> u64 {
        self.since_ms.max(self.oldest_ms)
    }

    /// Whether an end is wanted.
    pub(super) fn admits(&self, row: &EndRow<'_>) -> bool {
        let is_on = |node: &Node<'_>| match node {
            Node::Uuid(uuid) => row.node == Some(*uuid),
            Node::Hostname(name) => row.hostname == *name,
        };
        (self.since_ms..self.until_ms).contains(&row.ended_ms)
            && row.noted_ms >= self.oldest_ms
            && self
                .outcomes
                .as_ref()
                .is_none_or(|wanted| wanted.contains(&row.outcome))
            && self.tenant.is_none_or(|tenant| tenant == row.tenant)
            && self
                .instance
                .is_none_or(|instance| instance == row.instance)
            && self.node.as_ref().is_none_or(is_on)
            && self.array.is_none_or(|array| row.array() == Some(array))
            && self.name.meets(row.name)
            && self.program.meets_program(row.program)
            && self.by.meets(row.by)
            && self.labels.iter().all(|(key, value)| {
                row.labels()
                    .any(|(has, is)| has == *key && value.is_none_or(|value| value == is))
            })
    }
}

/// A label that is wanted: `KEY=VALUE`, or `KEY`.
fn label(text: &str) -> (&str, Option<&str>) {
    match text.split_once('=') {
        Some((key, value)) => (key, Some(value)),
        None => (text, None),
    }
}

/// The outcomes that a word stands for.
fn outcomes(word: &str) -> Result<Option<Vec<&'static str>>, String> {
    if word.is_empty() {
        return Ok(None);
    }
    let outcome = EndOutcome::from(word);
    let known = EndOutcome::KNOWN.iter().copied();
    let wanted: Vec<&str> = match outcome {
        EndOutcome::Failed => known
            .filter(|word| EndOutcome::from(*word).is_failure())
            .collect(),
        EndOutcome::Other(_) => {
            return Err(format!(
                "state: '{word}' is none; there are {}",
                EndOutcome::KNOWN.join(", ")
            ));
        }
        outcome => known.filter(|word| *word == outcome.as_str()).collect(),
    };
    Ok(Some(wanted))
}

impl<'a> Pattern<'a> {
    fn new(text: &'a str) -> Self {
        match (text, text.strip_suffix('*')) {
            ("", _) => Self::Any,
            (_, Some(beginning)) => Self::Begins(beginning),
            (whole, None) => Self::Is(whole),
        }
    }

    /// The same; behind a `*` stands a part of the text.
    fn new_part(text: &'a str) -> Self {
        match text.strip_prefix('*') {
            Some(part) => Self::Has(part.strip_suffix('*').unwrap_or(part)),
            None => Self::new(text),
        }
    }

    fn meets(&self, text: &str) -> bool {
        match self {
            Self::Any => true,
            Self::Is(whole) => text == *whole,
            Self::Begins(beginning) => text.starts_with(beginning),
            Self::Has(part) => text.contains(part),
        }
    }

    /// The same; the first word of a program is enough, with or without its directories.
    fn meets_program(&self, text: &str) -> bool {
        let word = text.split(' ').next().unwrap_or_default();
        let file = word.rsplit('/').next().unwrap_or_default();
        self.meets(text) || matches!(self, Self::Is(wanted) if [word, file].contains(wanted))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_is_wanted_if_it_meets_all_that_is_asked() {
        let row = EndRow {
            instance: Id::new("a"),
            name: "nightly-1",
            program: "/usr/bin/render --all",
            tenant: Id::new("2491851d-dce9-48d6-b83a-a717417072ce"),
            node: Some(Uuid::from_u128(7)),
            hostname: "n7",
            outcome: "oom",
            ended_ms: 1000,
            ..EndRow::default()
        };
        let node = Uuid::from_u128(7).to_string();
        let capitals = node.to_uppercase();
        let cases: [(&str, &str, bool); 19] = [
            ("state", "failed", true),
            ("state", "oom", true),
            ("state", "succeeded", false),
            ("tenant", "2491851d-dce9-48d6-b83a-a717417072ce", true),
            ("tenant", "2491851D-DCE9-48D6-B83A-A717417072CE", true),
            ("tenant", "other", false),
            ("node", &node, true),
            ("node", &capitals, true),
            ("node", "n7", true),
            ("node", "n8", false),
            ("name", "nightly-1", true),
            ("name", "nightly-*", true),
            ("name", "nightly", false),
            ("program", "render", true),
            ("program", "/usr/bin/render", true),
            ("program", "/usr/bin/render --*", true),
            ("program", "bin", false),
            ("instance", "a", true),
            ("instance", "b", false),
        ];
        for (key, value, expected) in cases {
            let mut filter = EndFilter::default();
            let field = match key {
                "state" => &mut filter.state,
                "tenant" => &mut filter.tenant,
                "node" => &mut filter.node,
                "name" => &mut filter.name,
                "program" => &mut filter.program,
                _ => &mut filter.instance,
            };
            value.clone_into(field);
            let wanted = Wanted::new(&filter, 0).unwrap();
            assert_eq!(wanted.admits(&row), expected, "{key} {value}");
        }
    }

    #[test]
    fn who_ended_it_is_wanted_by_a_part_and_all_labels_that_are_named_must_be_there() {
        let row = EndRow {
            by: "operator CN=alice",
            labels: "project=apollo\nrun=7\n".into(),
            ..EndRow::default()
        };
        let admits = |by: &str, labels: &[&str]| {
            let filter = EndFilter {
                by: by.to_owned(),
                labels: labels.iter().map(|&it| it.to_owned()).collect(),
                ..EndFilter::default()
            };
            Wanted::new(&filter, 0).unwrap().admits(&row)
        };
        for by in ["", "operator CN=alice", "operator*", "*alice", "*CN=a*"] {
            assert!(admits(by, &[]), "{by}");
        }
        for by in ["alice", "controller*", "*bob"] {
            assert!(!admits(by, &[]), "{by}");
        }
        assert!(admits("", &["run=7", "project"]));
        assert!(!admits("", &["run=7", "project=gemini"]));
        assert!(!admits("", &["owner"]));
    }

    #[test]
    fn times_are_from_since_to_before_until_and_never_older_than_is_kept() {
        let row = |ended_ms| EndRow {
            ended_ms,
            ..EndRow::default()
        };
        let filter = EndFilter {
            since_ms: Some(1000),
            until_ms: Some(2000),
            ..EndFilter::default()
        };
        let wanted = Wanted::new(&filter, 0).unwrap();
        let admitted = [999, 1000, 1999, 2000].map(|at| wanted.admits(&row(at)));
        assert_eq!(admitted, [false, true, true, false]);
        // How old they are is by when they were put on record.
        let kept = Wanted::new(&filter, 1500).unwrap();
        let noted = |noted_ms| EndRow {
            noted_ms,
            ..row(1400)
        };
        assert!(!kept.admits(&noted(1499)));
        assert!(kept.admits(&noted(1500)));
    }

    #[test]
    fn a_state_that_there_is_not_is_named_with_those_that_there_are() {
        let filter = EndFilter {
            state: "faled".to_owned(),
            ..EndFilter::default()
        };
        let error = Wanted::new(&filter, 0).unwrap_err();
        assert!(
            error.contains("'faled'") && error.contains("succeeded"),
            "{error}"
        );
    }
}
