//! The list of what is allowed, which only shrinks: one finding a line, sorted.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Takes lines that are not needed any more out of the list.
const UPDATE: &str = "UPDATE_CALL_GRAPH";

/// What differs between the findings and the list.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Difference {
    /// Found and not allowed.
    pub(crate) new: Vec<String>,
    /// Allowed and not found any more.
    pub(crate) over: Vec<String>,
    /// The list as it may be from now on.
    pub(crate) shrunk: Vec<String>,
}

/// Compares findings with a list. A number in the list (`methods 534`) allows less as well, and becomes that.
pub(crate) fn compare(found: &BTreeSet<String>, allowed: &[String]) -> Difference {
    let mut difference = Difference::default();
    let number = |line: &str| line.strip_prefix("methods ").map(str::parse::<usize>);
    for line in allowed {
        let less = match number(line) {
            Some(Ok(most)) => found
                .iter()
                .find(|it| matches!(number(it), Some(Ok(n)) if n <= most)),
            _ => None,
        };
        if let Some(less) = less.filter(|it| *it != line) {
            difference.over.push(line.clone());
            difference.shrunk.push(less.clone());
        } else if found.contains(line) {
            difference.shrunk.push(line.clone());
        } else {
            difference.over.push(line.clone());
        }
    }
    let is_new = |line: &&String| !difference.shrunk.contains(line);
    difference.new = found.iter().filter(is_new).cloned().collect();
    difference.shrunk.sort();
    difference
}

fn path() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/call_graph/allowed.txt")
}

/// Holds the findings against the list beside this file; `why` says more of a finding that is not allowed.
pub(crate) fn check(found: &BTreeSet<String>, why: impl Fn(&str) -> String) {
    let text = std::fs::read_to_string(path()).unwrap();
    let allowed: Vec<String> = text.lines().map(str::to_owned).collect();
    assert!(allowed.is_sorted(), "the list is sorted");
    let difference = compare(found, &allowed);
    let new: Vec<String> = difference.new.iter().map(|it| why(it)).collect();
    assert!(
        new.is_empty(),
        "{} calls, writers or methods that the rules do not allow and the list does not have; the list only shrinks:\n{}",
        new.len(),
        new.join("\n")
    );
    if difference.over.is_empty() {
        return;
    }
    if std::env::var_os(UPDATE).is_some() {
        let lines = difference.shrunk.iter().map(|line| format!("{line}\n"));
        return std::fs::write(path(), lines.collect::<String>()).unwrap();
    }
    panic!(
        "{} lines of the list are not needed any more; {UPDATE}=1 takes them out:\n{}",
        difference.over.len(),
        difference.over.join("\n")
    );
}
