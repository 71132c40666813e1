//! Which modules of the core name each other: modules that do so in a circle cannot be understood, moved or tested one
//! without the other. There are none.
//!
//! A module is what stands directly in a folder: a file, with the folder of the same name. What counts is a path in the
//! code (`super::x`, `crate::sched::x`, and lists of them in braces), not a call of a method, so that methods of one type
//! in many files are not seen. A type that is named by way of a re-export counts as a use of the folder's own module, which
//! is none of those compared; for components, whose rule is stricter, it counts as a use of the module it is from. Tests at
//! the end of files do not count.

#![allow(clippy::unwrap_used, reason = "a test ends where it fails")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

#[path = "common/modules.rs"]
mod modules;

use modules::{Edges, cycles, sources};

/// The core's folder.
const CORE: &str = "sched-core/src";

/// The folders of the core that own its data, what goes in and comes out, and what both are made of: each names others of
/// these at most.
const COMPONENTS: &[&str] = &[
    "api",
    "cluster",
    "instance",
    "journal",
    "maps",
    "peers",
    "pending",
    "placement",
    "queue",
    "recovery",
    "simulated",
    "slots",
    "sync",
    "timers",
    "tree",
];

/// What components name above them, as measured: who names what. To be shortened whenever one does not any more.
const BREACHES: &[(&str, &str)] = &[];

/// The crates of libraries, and which others of these each is built on.
const CRATES: &[(&str, &[&str])] = &[
    ("ciao-adapter", &["proto-frames"]),
    ("sched-model", &[]),
    ("proto-frames", &["sched-model"]),
    ("sched-core", &["sched-model"]),
];

#[test]
fn no_modules_of_the_core_name_each_other_in_a_circle() {
    let sources = sources(CORE);
    assert!(sources.len() > 5, "the core is where it was");
    let graph = graph(CORE, &sources);
    assert_eq!(
        cycles(&graph),
        Vec::<BTreeSet<&str>>::new(),
        "modules of {CORE} name each other in a circle; have one of them name no other, or take what both need to a module \
         of its own"
    );
}

#[test]
fn components_of_the_core_name_components_alone_and_not_in_a_circle() {
    let sources = sources(CORE);
    let (_, root) = sources.iter().find(|(path, _)| path == "lib").unwrap();
    let graph = graph_with(CORE, &sources, &exports(root));
    let is_component = |name: &str| COMPONENTS.contains(&name);
    let breaches: Vec<(&str, &str)> = COMPONENTS
        .iter()
        .flat_map(|from| graph[*from].iter().map(move |to| (*from, to.as_str())))
        .filter(|(_, to)| !is_component(to))
        .collect();
    assert_eq!(
        breaches, BREACHES,
        "what components of {CORE} name above them is not what BREACHES lists: have them return values, and take what needs \
         several components to `workflow`; shorten the list if there is less"
    );
    let components: Edges = COMPONENTS
        .iter()
        .map(|from| {
            let named = graph[*from].iter().filter(|to| is_component(to));
            ((*from).to_owned(), named.cloned().collect())
        })
        .collect();
    assert_eq!(
        cycles(&components),
        Vec::<BTreeSet<&str>>::new(),
        "components of {CORE} name each other in a circle"
    );
}

/// Types of components that are handed over whole, as the arguments or the result of a verb or as data of an event, and so
/// have fields that others may name. No component's own state is among them. To be shortened whenever one is not needed.
const VALUES: &[&str] = &[
    "Asked",
    "Candidate",
    "Claims",
    "ClusterPayload",
    "DemandChange",
    "Dependency",
    "Derived",
    "Effects",
    "Explanation",
    "Extras",
    "Floor",
    "Found",
    "GroupNow",
    "HistoryEvent",
    "InstanceInfo",
    "KnownInfo",
    "LateEffects",
    "Left",
    "Limits",
    "Loss",
    "LostPlain",
    "Members",
    "MissRules",
    "MoveRequest",
    "NearNow",
    "Need",
    "Output",
    "Placing",
    "Read",
    "RestoredPast",
    "Room",
    "Row",
    "Sample",
    "Sources",
    "StatsOutcome",
    "Terms",
    "Traits",
    "Transit",
    "Tried",
    "TwoMachines",
    "Unconfirmed",
    "Unmovable",
    "UnsentFailure",
    "Unwritten",
    "View",
    "Window",
];

#[test]
fn fields_of_a_component_are_seen_in_its_folder_alone() {
    let sources = sources(CORE);
    let mut seen = BTreeSet::new();
    for (path, text) in &sources {
        let folder = path.split('/').next().unwrap_or_default();
        // What goes in and comes out has no state.
        if COMPONENTS.contains(&folder) && folder != "api" {
            seen.extend(with_seen_fields(text));
        }
    }
    let values: BTreeSet<String> = VALUES.iter().map(|it| (*it).to_owned()).collect();
    assert_eq!(
        seen, values,
        "types of components of {CORE} with fields that all of the core sees, against VALUES: give what keeps state verbs, \
         and take from the list what needs no fields to be seen any more"
    );
}

/// The structs in a file that have fields which more than their folder sees.
fn with_seen_fields(text: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut current = "";
    for line in text.lines() {
        if let Some((_, rest)) = line.split_once("struct ")
            && !line.starts_with([' ', '/'])
        {
            let end = rest.find(|c: char| !c.is_alphanumeric());
            current = &rest[..end.unwrap_or(rest.len())];
        }
        let field = line.strip_prefix("    pub");
        let field = field.map(|rest| rest.strip_prefix("(crate)").unwrap_or(rest));
        let is_seen = field.is_some_and(|rest| {
            let name = rest.strip_prefix(' ').unwrap_or_default();
            let is_name = |c: char| c.is_ascii_lowercase() || c == '_';
            name.split_once(": ")
                .is_some_and(|(name, _)| !name.is_empty() && name.chars().all(is_name))
        });
        if is_seen {
            found.insert(current.to_owned());
        }
    }
    found
}

#[test]
fn a_field_that_more_than_its_folder_sees_is_found() {
    let text = "pub(crate) struct Shut<'a> {\n    kept: &'a u8,\n    pub(super) near: u8,\n}\n\
                pub(crate) struct Open {\n    pub(crate) seen: u8,\n}\n\
                impl Shut<'_> {\n    pub(crate) fn verb(&self, of: u8) {}\n}\n\
                pub struct All {\n    pub seen_by_all: u8,\n}\n";
    let found: Vec<String> = with_seen_fields(text).into_iter().collect();
    assert_eq!(found, ["All", "Open"]);
}

/// The folder of sockets, files, processes and commands.
const OUTER: &str = "src";

/// What a module of [`OUTER`] names of the others at most; each of these lists names what stands below it.
const LAYERS: &[(&str, &[&str])] = &[
    ("cert", &["net"]),
    ("cluster", &["net", "server"]),
    (
        "ctl",
        &[
            "edit",
            "file_list",
            "flags",
            "image_file",
            "net",
            "printable",
            "private",
            "shutdown",
            "start_warnings",
        ],
    ),
    (
        "dev",
        &[
            "cert",
            "ctl",
            "launcher",
            "logging",
            "net",
            "printable",
            "server",
            "shutdown",
        ],
    ),
    ("edit", &[]),
    ("file_list", &[]),
    ("flags", &["line_queue", "net"]),
    ("image_file", &[]),
    (
        "launcher",
        &["file_list", "image_file", "net", "printable", "private"],
    ),
    ("line_queue", &[]),
    ("load", &["flags", "net", "printable"]),
    ("logging", &["line_queue", "printable"]),
    ("net", &["printable", "private"]),
    ("printable", &[]),
    ("private", &[]),
    (
        "server",
        &[
            "edit",
            "image_file",
            "line_queue",
            "logging",
            "net",
            "printable",
            "private",
            "shutdown",
            "start_warnings",
        ],
    ),
    ("shutdown", &["logging"]),
    ("start_warnings", &["printable"]),
];

#[test]
fn modules_outside_the_core_name_what_stands_below_them_alone() {
    let graph = graph(OUTER, &outer_sources());
    let layers: Edges = LAYERS
        .iter()
        .map(|(from, to)| {
            let to = to.iter().map(|it| (*it).to_owned());
            ((*from).to_owned(), to.collect())
        })
        .collect();
    assert_eq!(
        graph, layers,
        "what modules of {OUTER} name of each other is not what LAYERS lists"
    );
    assert_eq!(
        cycles(&graph),
        Vec::<BTreeSet<&str>>::new(),
        "modules of {OUTER} name each other in a circle"
    );
}

/// The sources of the library: the programs are crates of their own, and tests name what they need.
fn outer_sources() -> Vec<(String, String)> {
    let is_part = |path: &str| {
        let is_program = path.starts_with("bin/");
        let is_test = path.ends_with("/tests") || path.contains("/tests/");
        path != "lib" && !is_program && !is_test
    };
    let sources = sources(OUTER).into_iter();
    sources.filter(|(path, _)| is_part(path)).collect()
}

#[test]
fn the_vocabulary_stands_on_nothing_and_the_others_on_it() {
    for (name, below) in CRATES {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(name);
        let manifest = std::fs::read_to_string(path.join("Cargo.toml")).unwrap();
        let named = dependencies(&manifest)
            .into_iter()
            .filter(|it| CRATES.iter().any(|(other, _)| it == other));
        let named: Vec<String> = named.collect();
        assert_eq!(named, *below, "what {name}/Cargo.toml depends on");
    }
}

/// The names under `[dependencies]` of a manifest.
fn dependencies(manifest: &str) -> Vec<String> {
    let section = manifest.split("\n[dependencies]\n").nth(1).unwrap();
    let lines = section.lines().take_while(|line| !line.starts_with('['));
    let names = lines.map(|line| line.split(['.', ' ', '=']).next().unwrap());
    let names = names.filter(|name| !name.is_empty() && !name.starts_with('#'));
    names.map(str::to_owned).collect()
}

/// Which modules that stand directly in the folder name which others of them.
fn graph(folder: &str, sources: &[(String, String)]) -> Edges {
    graph_with(folder, sources, &BTreeMap::new())
}

/// The same, where what is exported under another name counts as the module it is from.
fn graph_with(
    folder: &str,
    sources: &[(String, String)],
    exports: &BTreeMap<String, String>,
) -> Edges {
    let top = |path: &str| path.split('/').next().unwrap().to_owned();
    let modules: BTreeSet<String> = sources.iter().map(|(path, _)| top(path)).collect();
    let mut graph: Edges = modules
        .iter()
        .map(|it| (it.clone(), BTreeSet::new()))
        .collect();
    // `src/sched` is `crate::sched`, and `sched-core/src` is `crate`.
    let own: Vec<&str> = match folder.split_once("src") {
        Some((_, below)) => below.split('/').filter(|it| !it.is_empty()).collect(),
        None => Vec::new(),
    };
    for (path, text) in sources {
        let depth = path.split('/').count();
        for name in named(text, depth, &own) {
            let name = exports.get(&name).cloned().unwrap_or(name);
            if modules.contains(&name) && name != top(path) {
                graph.get_mut(&top(path)).unwrap().insert(name);
            }
        }
    }
    graph
}

/// What the root of a crate exports with `pub use`, and the module that each is from.
fn exports(root: &str) -> BTreeMap<String, String> {
    let lines = root.lines().map(|line| line.split("//").next().unwrap());
    let code = tokens(&lines.collect::<Vec<_>>().join("\n"));
    let mut exports = BTreeMap::new();
    let begins = |at: &usize| code[*at] == "pub" && code.get(at + 1).is_some_and(|it| it == "use");
    for at in (0..code.len()).filter(begins) {
        let module = &code[at + 2];
        let path = code[at + 3..].iter().take_while(|it| *it != ";");
        let names = path.filter(|it| !["::", "{", "}", ","].contains(&it.as_str()));
        exports.extend(names.map(|name| (name.clone(), module.clone())));
    }
    exports
}

/// The first names below the folder, of all paths of a file that stands so deep in it (1 = directly).
fn named(text: &str, depth: usize, own: &[&str]) -> BTreeSet<String> {
    let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap();
    let lines = text.lines().map(|line| line.split("//").next().unwrap());
    let code: Vec<String> = tokens(&lines.collect::<Vec<_>>().join("\n"));
    let mut found = BTreeSet::new();
    let is_path = |at: usize| code.get(at).is_some_and(|it| it == "::");
    let mut at = 0;
    while at < code.len() {
        let begins = at == 0 || code[at - 1] != "::";
        let word = code[at].as_str();
        let mut next = at + 2;
        let is_inside = match word {
            "super" if begins && is_path(at + 1) => {
                let mut up = 1;
                while code.get(next).is_some_and(|it| it == "super") && is_path(next + 1) {
                    (up, next) = (up + 1, next + 2);
                }
                up == depth
            }
            "crate" if begins && is_path(at + 1) => own.iter().all(|part| {
                let is_part = code.get(next).is_some_and(|it| it == part) && is_path(next + 1);
                next += 2;
                is_part
            }),
            _ => false,
        };
        if is_inside {
            found.extend(heads(&code, next));
        }
        at += 1;
    }
    found
}

/// The name at a place, or the first one of each path in the braces there.
fn heads(code: &[String], at: usize) -> Vec<String> {
    if code.get(at).is_none_or(|it| it != "{") {
        return code.get(at).cloned().into_iter().collect();
    }
    let (mut heads, mut depth) = (Vec::new(), 0);
    for at in at..code.len() {
        match code[at].as_str() {
            "{" => depth += 1,
            "}" => depth -= 1,
            word if depth == 1 && ["{", ","].contains(&code[at - 1].as_str()) => {
                heads.push(word.to_owned());
            }
            _ => {}
        }
        if depth == 0 {
            break;
        }
    }
    heads
}

/// Words, `::`, and every other character that is no white space by itself.
fn tokens(code: &str) -> Vec<String> {
    let mut tokens: Vec<String> = Vec::new();
    let mut is_in_word = false;
    for char in code.chars() {
        let is_word = char.is_alphanumeric() || char == '_';
        match tokens.last_mut() {
            Some(last) if is_word && is_in_word => last.push(char),
            Some(last) if char == ':' && last == ":" => last.push(char),
            _ if char.is_whitespace() => {}
            _ => tokens.push(char.to_string()),
        }
        is_in_word = is_word;
    }
    tokens
}

#[test]
fn paths_are_found_however_they_are_written() {
    let sources = [
        ("a", "use super::b::B;\nuse super::{Root, c::{C, d}};\n"),
        (
            "b",
            "fn f() { crate::sched::c::f(); crate::other::a::f(); }\n",
        ),
        (
            "b/inner",
            "use super::super::d;\nuse super::a;\nuse crate::sched::{\n    d::{self, b},\n    e,\n};\n",
        ),
        (
            "c",
            "// use super::a;\nfn f() {}\n#[cfg(test)]\nmod tests {\n    use super::super::a;\n}\n",
        ),
        ("d", "use crate::a;\nuse std::super_::a;\n"),
        (
            "e",
            "use super::e;\npub(super) fn f() { self::a::f(); super::d::f() }\n",
        ),
    ];
    let sources = sources.map(|(path, text)| (path.to_owned(), text.to_owned()));
    let graph = graph("src/sched", &sources);
    let named: Vec<String> = graph
        .iter()
        .map(|(from, to)| {
            let to: Vec<&str> = to.iter().map(String::as_str).collect();
            format!("{from}: {}", to.join(" "))
        })
        .collect();
    assert_eq!(named, ["a: b c", "b: c d e", "c: ", "d: ", "e: d"]);
}

#[test]
fn a_crate_of_its_own_is_its_folder() {
    let sources = [("a", "use crate::b;"), ("b", "use crate::{x, a::A};")];
    let sources = sources.map(|(path, text)| (path.to_owned(), text.to_owned()));
    let graph = graph("sched-core/src", &sources);
    assert_eq!(cycles(&graph), [BTreeSet::from(["a", "b"])]);
}

#[test]
fn what_is_exported_is_of_the_module_that_it_is_from() {
    let root = "mod a;\npub use a::A;\npub use b::{inner::{C, D}, e};\nuse a::hidden;\n";
    let exports = exports(root);
    for (name, module) in [("A", "a"), ("C", "b"), ("D", "b"), ("e", "b")] {
        assert_eq!(exports.get(name).map(String::as_str), Some(module));
    }
    assert_eq!(exports.get("hidden"), None);
    let sources = [("a", "use crate::C;"), ("b", "")];
    let sources = sources.map(|(path, text)| (path.to_owned(), text.to_owned()));
    let graph = graph_with("sched-core/src", &sources, &exports);
    assert_eq!(graph["a"], BTreeSet::from(["b".to_owned()]));
}

#[test]
fn circles_are_told_from_what_leads_into_them() {
    let edges = ["a b", "b c", "c b d", "d", "e f", "f g", "g e", "h h"];
    let graph: Edges = edges
        .iter()
        .map(|edges| {
            let mut names = edges.split(' ').map(str::to_owned);
            (names.next().unwrap(), names.collect())
        })
        .collect();
    let expected = [BTreeSet::from(["b", "c"]), BTreeSet::from(["e", "f", "g"])];
    assert_eq!(cycles(&graph), expected);
}
