//! What the documents say, held against what the programs are.
//!
//! Parts of the book are generated ([`generated`]); `UPDATE_DOCS=1 cargo test --locked --test documents` writes them.

#![allow(clippy::unwrap_used, reason = "a test ends where it fails")]

mod book;
mod code;
mod console;
mod examples;
mod generated;
#[path = "../common/guarded.rs"]
mod guarded;
mod help;
mod links;
mod log_events;
mod neighbours;
mod readme;
mod reference;

use std::fs;
use std::path::{Path, PathBuf};

/// The root of the repository.
fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// The text of a file of the repository.
fn text(path: &str) -> String {
    let path = root().join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Every document that people read, by its path from the root: those of the root, the book's, and those beside what they
/// describe.
fn documents() -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir(root()).unwrap() {
        found.extend(document(&entry.unwrap().path()));
    }
    for directory in ["benches", "certs-example", "docs", "examples", "fuzz"] {
        walk(&root().join(directory), &mut found);
    }
    found.sort();
    assert!(found.len() > 30, "the documents are there: {found:?}");
    found
}

fn walk(directory: &Path, found: &mut Vec<String>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() && !path.ends_with("target") && !path.ends_with("corpus") {
            walk(&path, found);
        } else {
            found.extend(document(&path));
        }
    }
}

/// The path from the root, if this is a document.
fn document(path: &Path) -> Option<String> {
    let is_document = path.is_file() && path.extension().is_some_and(|it| it == "md");
    let relative = path.strip_prefix(root()).ok().filter(|_| is_document)?;
    Some(relative.to_str().unwrap().to_owned())
}

/// Whether generated text is to be written rather than compared.
fn is_update() -> bool {
    std::env::var_os("UPDATE_DOCS").is_some()
}

/// The lines of a document that are prose rather than in a fenced block, with their numbers from 1.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut is_fenced = false;
    text.lines().enumerate().filter_map(move |(at, line)| {
        let is_fence = line.trim_start().starts_with("```");
        is_fenced ^= is_fence;
        (!is_fence && !is_fenced).then_some((at + 1, line))
    })
}
