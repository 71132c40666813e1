//! The events of the logs: every line at INFO and above has one, and the page lists them with what their lines say. Those
//! of notices are in a table of their own ([`crate::reference`]).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use crate::generated::hold;
use crate::root;

const LEVELS: [&str; 3] = ["info", "warn", "error"];

/// What lines say whose text is made elsewhere than where they are written.
const MADE_ELSEWHERE: [(&str, &str); 7] = [
    (
        "certificate_problem",
        "what is wrong with a certificate, or soon will be: it ends, or lacks a name",
    ),
    ("key_file_open_to_others", OPEN_TO_OTHERS),
    (
        "no_task_makes_way",
        "which high task waits while which low one runs, and what the scheduler's configuration lacks for that",
    ),
    (
        "panic",
        "what the panic says, where it was, and the backtrace",
    ),
    ("state_file_open_to_others", OPEN_TO_OTHERS),
    (
        "task_changed",
        "the task, as the original's primary prints it",
    ),
    ("token_file_open_to_others", OPEN_TO_OTHERS),
];

const OPEN_TO_OTHERS: &str = "which file other users can read, and what to do";

/// Who writes it, at which levels, and what it says.
#[derive(Default)]
struct Event {
    programs: BTreeSet<&'static str>,
    levels: BTreeSet<&'static str>,
    sentences: BTreeSet<String>,
}

#[test]
fn every_line_of_the_log_has_an_event_that_the_page_lists() {
    let mut events = BTreeMap::new();
    for folder in ["src", "ciao-adapter/src", "ciao-funky/src", "ciao-rik/src"] {
        read(&root().join(folder), &mut events);
    }
    let mut out =
        String::from("| event | written by | level | says |\n| --- | --- | --- | --- |\n");
    let words = |set: &BTreeSet<&str>| set.iter().copied().collect::<Vec<_>>().join(", ");
    for (name, said) in MADE_ELSEWHERE {
        let event = events.get_mut(name);
        let event = event.unwrap_or_else(|| panic!("{name} is not written"));
        event.sentences.insert(said.to_owned());
    }
    for (name, event) in &events {
        assert!(!event.sentences.is_empty(), "{name} is not explained");
        let says: Vec<_> = event.sentences.iter().map(String::as_str).collect();
        let (programs, levels) = (words(&event.programs), words(&event.levels));
        let says = says.join("; ").replace('|', "\\|");
        writeln!(out, "| `{name}` | {programs} | {levels} | {says} |").unwrap();
    }
    hold("docs/reference/log-events.md", &out);
}

/// The events in all files of a folder, but those of the client, whose log is for those who build it.
fn read(folder: &Path, events: &mut BTreeMap<String, Event>) {
    let mut entries: Vec<_> = fs::read_dir(folder).unwrap().map(Result::unwrap).collect();
    entries.sort_by_key(fs::DirEntry::path);
    for entry in entries {
        let path = entry.path();
        let file = path.strip_prefix(root()).unwrap().display().to_string();
        if file.starts_with("src/ctl") || file.contains("tests") {
            continue;
        }
        if path.is_dir() {
            read(&path, events);
        } else if file.ends_with(".rs") {
            let text = fs::read_to_string(&path).unwrap();
            let shipped = text.split("#[cfg(test)]\nmod tests {").next().unwrap();
            of_file(&file, shipped, events);
        }
    }
}

fn of_file(file: &str, text: &str, events: &mut BTreeMap<String, Event>) {
    for level in LEVELS {
        let call = format!("{level}!(");
        for (at, _) in text.match_indices(&call) {
            let is_word = text[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_');
            let line = text[..at].rsplit('\n').next().unwrap();
            if is_word || line.contains("//") {
                continue;
            }
            let inside = text[at + call.len()..].trim_start();
            let number = text[..at].lines().count();
            let rest = inside.strip_prefix("event = ");
            let rest = rest.unwrap_or_else(|| panic!("{file}:{number}: {call} has no event"));
            // Those of notices have theirs from their class.
            let Some((name, rest)) = literal(rest) else {
                continue;
            };
            assert!(
                name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_'),
                "{file}:{number}: {name} is not in snake_case"
            );
            let event = events.entry(name).or_default();
            event.programs.insert(program(file));
            event.levels.insert(level);
            let says = sentence(rest).map(|it| without_values(&it));
            event.sentences.extend(says.filter(|it| it != ELLIPSIS));
        }
    }
}

/// Stands for what differs from line to line.
const ELLIPSIS: &str = "…";

/// A format string as a reader of the log sees it: [`ELLIPSIS`] for each value.
fn without_values(format: &str) -> String {
    let mut text = String::new();
    let mut rest = format;
    while let Some((before, inside)) = rest.split_once('{') {
        let (_, after) = inside.split_once('}').expect("a value's name ends");
        text += before;
        if !text.ends_with(ELLIPSIS) {
            text += ELLIPSIS;
        }
        rest = after;
    }
    text + rest
}

fn program(file: &str) -> &'static str {
    let of = [
        ("src/launcher", "launcher"),
        ("src/bin/ciao-launcher", "launcher"),
        ("src/server", "scheduler"),
        ("src/bin/ciao-scheduler", "scheduler"),
        ("src/dev", "scheduler"),
        ("ciao-adapter", "ciao-funky, ciao-rik"),
        ("ciao-funky", "ciao-funky"),
        ("ciao-rik", "ciao-rik"),
    ];
    let found = of.iter().find(|(begin, _)| file.starts_with(begin));
    found.map_or("all", |(_, program)| *program)
}

/// A string literal at the beginning, without its line continuations, and what follows it.
fn literal(text: &str) -> Option<(String, &str)> {
    let inside = text.strip_prefix('"')?;
    let (mut value, mut chars) = (String::new(), inside.char_indices());
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return Some((value, &inside[at + 1..])),
            '\\' => match chars.next()?.1 {
                '\n' => {
                    let rest = chars.as_str();
                    let blanks = rest.len() - rest.trim_start().len();
                    if let Some(last) = blanks.checked_sub(1) {
                        chars.nth(last);
                    }
                }
                c => value.push(c),
            },
            c => value.push(c),
        }
    }
    None
}

/// The sentence of a call: the first literal that is no field's value.
fn sentence(mut rest: &str) -> Option<String> {
    loop {
        let at = rest.find('"')?;
        let is_value = rest[..at].trim_end().ends_with('=');
        let (text, after) = literal(&rest[at..])?;
        if !is_value {
            return Some(text);
        }
        rest = after;
    }
}
