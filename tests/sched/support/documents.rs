//! Parts of the documents that are generated from the core.

use std::path::PathBuf;

/// Compares the part of a document between two lines with what it should be, or writes it if `UPDATE_DOCS` is set.
pub(crate) fn holds(document: &str, begin: &str, end: &str, generated: &str) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(document);
    let text = std::fs::read_to_string(&path).expect("the document is there");
    let (before, rest) = text.split_once(begin).expect("the generated part begins");
    let (_, after) = rest.split_once(end).expect("the generated part ends");
    let current = format!("{before}{begin}\n{generated}{end}{after}");
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, &current).expect("the document can be written");
        return;
    }
    assert!(
        text == current,
        "{document} is out of date: UPDATE_DOCS=1 cargo test --locked --test sched documents writes it"
    );
}
