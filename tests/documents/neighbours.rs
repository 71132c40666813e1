//! The tests that the page on neighbours names are there.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use crate::{root, text};

/// The names of all tests of the Rust sources under a folder.
fn tests(folder: &Path, into: &mut BTreeSet<String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let is_built = path.ends_with("target");
        if path.is_dir() && !is_built {
            tests(&path, into);
        } else if path.extension().is_some_and(|it| it == "rs") {
            let source = fs::read_to_string(&path).unwrap();
            let parts: Vec<&str> = source.split("fn ").collect();
            for pair in parts.windows(2) {
                // The attributes are behind the end of what stands before.
                let attributes = pair[0].rsplit("}\n").next().unwrap();
                let is_test = ["#[test]", "::test]", "::test("];
                if is_test.iter().any(|it| attributes.contains(it))
                    && let Some((name, _)) = pair[1].split_once('(')
                {
                    into.insert(name.to_owned());
                }
            }
        }
    }
}

#[test]
fn every_capability_of_a_neighbour_names_tests_that_there_are() {
    let mut known = BTreeSet::new();
    for folder in ["tests", "src", "ciao-funky", "ciao-rik"] {
        tests(&root().join(folder), &mut known);
    }
    let page = text("docs/explanation/neighbours.md");
    let rows: Vec<Vec<&str>> = page
        .lines()
        .filter(|line| line.starts_with("| "))
        .map(|line| line.trim_matches('|').split(" | ").map(str::trim).collect())
        .collect();
    for (letter, count) in [("F", 10), ("R", 11), ("N", 16)] {
        for number in 1..=count {
            let id = format!("{letter}{number}");
            let row = rows.iter().find(|row| row[0] == id);
            let column = row.unwrap_or_else(|| panic!("no row {id}")).get(2);
            let column = column.unwrap_or_else(|| panic!("{id} has no third column"));
            let named: Vec<&str> = column.split('`').skip(1).step_by(2).collect();
            assert!(!named.is_empty(), "{id} names no test");
            for test in named {
                assert!(known.contains(test), "{id}: there is no test {test}");
            }
        }
    }
}
