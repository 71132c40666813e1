//! The book's table of contents names every page, once.

use crate::links::links;
use crate::{documents, text};

#[test]
fn every_page_is_in_the_table_of_contents() {
    let mut listed: Vec<String> = links(&text("docs/SUMMARY.md"))
        .into_iter()
        .map(|link| format!("docs/{link}"))
        .collect();
    listed.sort();
    let mut pages = documents();
    pages.retain(|page| page.starts_with("docs/") && page != "docs/SUMMARY.md");
    assert_eq!(listed, pages, "docs/SUMMARY.md and the pages in docs");
}

#[test]
fn every_page_begins_with_its_title() {
    for page in documents() {
        let text = text(&page);
        assert!(text.starts_with("# "), "{page} does not begin with a title");
        let titles = crate::prose(&text).filter(|(_, line)| line.starts_with("# "));
        let is_summary = page == "docs/SUMMARY.md";
        assert!(is_summary || titles.count() == 1, "{page}: one title");
    }
}
