//! The core's calls, by name and type: flows call no other flow, files call each other in no circle, an effect does one
//! thing, one place writes several components.
//!
//! The sources are parsed, and the type of what a method is called on is followed through parameters, fields, results,
//! patterns and closures as far as that is possible without a compiler; `call_graph/walk.rs` does that. A method call on
//! a type that is not known counts as a call of every method of the core by that name and number of arguments. Not seen
//! are calls that no source has: `Drop`, conversions by `?` and `into`, and formatting. What a macro of the core defines
//! is not seen either, so that only `api`, whose functions call nothing, may define macros.
//!
//! What is not as it should be is in `call_graph/allowed.txt`. That list only shrinks: what is found and not in it is an
//! error, and so is what is in it and not found any more, which `UPDATE_CALL_GRAPH=1` takes out.
//!
//! `cargo test --test call_graph counts -- --ignored --nocapture` prints the counts by which two versions are compared.

#![allow(clippy::unwrap_used, reason = "a test ends where it fails")]

#[path = "call_graph/build.rs"]
mod build;
#[path = "call_graph/callees.rs"]
mod callees;
#[path = "call_graph/convert.rs"]
mod convert;
#[path = "call_graph/foreign.rs"]
mod foreign;
#[path = "call_graph/graph.rs"]
mod graph;
#[path = "call_graph/index.rs"]
mod index;
#[path = "call_graph/list.rs"]
mod list;
#[path = "common/modules.rs"]
mod modules;
#[path = "call_graph/patterns.rs"]
mod patterns;
#[path = "call_graph/planted.rs"]
mod planted;
#[path = "call_graph/report.rs"]
mod report;
#[path = "call_graph/rules.rs"]
mod rules;
#[path = "call_graph/source.rs"]
mod source;
#[path = "call_graph/types.rs"]
mod types;
#[path = "call_graph/walk.rs"]
mod walk;

use index::Index;
use walk::Calls;

#[test]
fn calls_of_the_core_are_as_the_rules_say() {
    let sources = source::of_the_core();
    assert!(sources.len() > 100, "the core is where it was");
    let index = build::index(&sources);
    let calls = walk::calls(&index);
    let found = rules::findings(&index, &calls);
    list::check(&found, |finding| explained(&index, &calls, finding));
}

/// A finding with the calls that make it.
fn explained(index: &Index<'_>, calls: &Calls, finding: &str) -> String {
    /// Calls that are named of one finding.
    const NAMED: usize = 4;
    let Some((from, to)) = finding
        .split_once(' ')
        .and_then(|(_, it)| it.split_once(" -> "))
    else {
        return finding.to_owned();
    };
    let is_it = |(a, b): &&(usize, usize)| index.fns[*a].file == from && index.fns[*b].file == to;
    let made = calls.edges.iter().filter(is_it).take(NAMED);
    let made: Vec<String> = made
        .map(|(a, b)| format!("{} calls {}", index.fns[*a].name, index.fns[*b].name))
        .collect();
    format!("{finding} ({})", made.join(", "))
}

#[test]
fn macros_of_the_core_are_in_api() {
    let defines = |source: &&source::Source| source.text.contains("macro_rules!");
    let sources = source::of_the_core();
    let elsewhere: Vec<&str> = sources
        .iter()
        .filter(defines)
        .map(|source| source.path.as_str())
        .filter(|path| !path.starts_with("api/"))
        .collect();
    assert_eq!(elsewhere, Vec::<&str>::new());
}

#[test]
#[ignore = "prints counts, and finds nothing"]
fn counts() {
    let sources = source::of_the_core();
    let index = build::index(&sources);
    let calls = walk::calls(&index);
    print!("{}", report::table(&sources, &index, &calls));
    if std::env::var_os("CALL_GRAPH_UNKNOWN").is_some() {
        for (caller, name) in &calls.unknown {
            println!("{}: {name}", index.label(*caller));
        }
    }
}
