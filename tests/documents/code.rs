//! What documents name of the code is there: files, modules, types and functions.

use std::collections::HashSet;
use std::fs;
use std::path::Path;

use crate::{documents, prose, root, text};

/// Beginnings of paths that name a file or a folder of the repository.
const FOLDERS: &[&str] = &[
    "benches/",
    "ciao-adapter/",
    "ciao-funky/",
    "ciao-rik/",
    "docs/",
    "examples/",
    "fuzz/",
    "proto-frames/",
    "sched-core/",
    "sched-model/",
    "src/",
    "tests/",
];

/// What is quoted as code in the prose of a document: the line, and the text.
fn quoted(document: &str) -> Vec<(usize, String)> {
    let mut all = Vec::new();
    for (number, line) in prose(document) {
        let texts = line.split('`').skip(1).step_by(2);
        all.extend(texts.map(|text| (number, text.to_owned())));
    }
    all
}

#[test]
fn files_that_documents_name_are_there() {
    let mut missing = Vec::new();
    let mut seen = 0;
    for name in documents() {
        // What was there when something was changed is told there; figures name what they were taken with.
        if ["CHANGELOG.md", "benches/README.md"].contains(&&*name) {
            continue;
        }
        let is_path = |it: &str| {
            FOLDERS.iter().any(|folder| it.starts_with(folder)) && !it.contains(['*', ' '])
        };
        for (number, path) in quoted(&text(&name)) {
            if !is_path(&path) {
                continue;
            }
            seen += 1;
            let is_there = [path.clone(), format!("{path}.rs")]
                .iter()
                .any(|path| root().join(path).exists());
            if !is_there {
                missing.push(format!("{name}:{number}: {path}"));
            }
        }
    }
    assert!(seen > 30, "paths are found");
    assert!(missing.is_empty(), "no such file:\n{}", missing.join("\n"));
}

/// Every word of the sources.
fn words() -> HashSet<String> {
    let mut words = HashSet::new();
    for folder in [
        "src",
        "proto-frames/src",
        "sched-core/src",
        "sched-model/src",
        "tests",
    ] {
        read(&root().join(folder), &mut words);
    }
    words
}

fn read(folder: &Path, words: &mut HashSet<String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        words.extend(path.file_stem().map(|it| it.to_str().unwrap().to_owned()));
        if path.is_dir() {
            read(&path, words);
        } else if path.extension().is_some_and(|it| it == "rs") {
            let text = fs::read_to_string(&path).unwrap();
            let found = text.split(|c: char| !c.is_alphanumeric() && c != '_');
            words.extend(found.map(str::to_owned));
        }
    }
}

/// Pages in which every quoted name is one of the code, also without its module.
const ABOUT_CODE_ALONE: &[&str] = &[
    "docs/explanation/path-of-a-start.md",
    "docs/explanation/paths-through-the-core.md",
    "docs/explanation/tasks-and-locks.md",
];

#[test]
fn names_of_code_in_documents_are_in_the_code() {
    let words = words();
    let mut missing = Vec::new();
    let mut seen = 0;
    let is_about_code =
        |name: &&String| name.starts_with("docs/explanation/") || !name.contains('/');
    for name in documents().iter().filter(is_about_code) {
        if name == "CHANGELOG.md" {
            continue;
        }
        for (number, quote) in quoted(&text(name)) {
            let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
            let is_of_code = quote.contains("::") || ABOUT_CODE_ALONE.contains(&&**name);
            if !is_of_code || !quote.chars().all(is_name) {
                continue;
            }
            seen += 1;
            let mut parts = quote.split("::");
            if !parts.all(|part| words.contains(part)) {
                missing.push(format!("{name}:{number}: {quote}"));
            }
        }
    }
    assert!(seen > 50, "names are found");
    assert!(
        missing.is_empty(),
        "not in the code:\n{}",
        missing.join("\n")
    );
}

/// Lines of Rust without comments and empty lines.
fn without_comments(code: &str) -> Vec<&str> {
    let lines = code.lines();
    lines
        .filter(|line| !line.trim().is_empty() && !line.trim_start().starts_with("//"))
        .collect()
}

#[test]
fn the_filter_that_is_shown_is_the_file() {
    const FILTER: &str = "sched-core/src/placement/filters/load.rs";
    let document = text("CONTRIBUTING.md");
    let (_, shown) = document.split_once(FILTER).expect("it is named");
    let (_, shown) = shown.split_once("```rust\n").expect("it is shown");
    let (shown, _) = shown.split_once("```").expect("the block has an end");
    assert_eq!(without_comments(shown), without_comments(&text(FILTER)));
}

#[test]
fn tests_that_contributing_names_are_there() {
    let document = text("CONTRIBUTING.md");
    let mut seen = 0;
    for line in document.lines().filter(|line| line.contains("--test ")) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let at = words.iter().position(|word| *word == "--test");
        let [Some(program), Some(filter)] =
            [1, 2].map(|step| words.get(at.expect("it is there") + step))
        else {
            continue;
        };
        let (program, filter) = (
            program.trim_matches('`'),
            filter.trim_matches(['`', '.', ',']),
        );
        let names_tests = filter.starts_with(|c: char| c.is_ascii_alphabetic());
        let folder = root().join("tests").join(program);
        if !names_tests || !folder.is_dir() {
            continue;
        }
        let mut files = rust_files(&folder);
        // A program's file may stand beside its folder.
        files.extend(Some(folder.with_extension("rs")).filter(|file| file.is_file()));
        let module = filter.split("::").next().unwrap_or_default();
        let is_there = files.iter().any(|file| {
            let code = fs::read_to_string(file).expect("it can be read");
            let mut lines = code.lines().map(str::trim);
            lines.any(|line| {
                let name = ["fn ", "async fn ", "mod "]
                    .iter()
                    .find_map(|it| line.strip_prefix(it));
                name.is_some_and(|name| name.contains(module))
            })
        });
        assert!(
            is_there,
            "no test of tests/{program} has {filter} in its name: {line}"
        );
        seen += 1;
    }
    assert!(seen >= 4, "{seen} commands name tests");
}

/// All files of Rust below a folder.
fn rust_files(folder: &Path) -> Vec<std::path::PathBuf> {
    let entries = fs::read_dir(folder).expect("it can be read");
    let paths = entries.map(|entry| entry.expect("it can be read").path());
    paths
        .flat_map(|path| match path.is_dir() {
            true => rust_files(&path),
            false => vec![path],
        })
        .filter(|path| path.extension().is_some_and(|it| it == "rs"))
        .collect()
}
