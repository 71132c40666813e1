//! Links between documents lead somewhere, and so do their anchors.

use std::collections::{BTreeSet, HashMap};
use std::path::{Component, Path, PathBuf};

use crate::{documents, prose, root, text};

#[test]
fn links_between_documents_lead_somewhere() {
    let mut dead = Vec::new();
    let mut seen = 0;
    for name in documents() {
        for link in links(&text(&name)) {
            if link.contains("://") || link.starts_with("mailto:") {
                continue;
            }
            seen += 1;
            let (path, anchor) = link.split_once('#').unwrap_or((&link, ""));
            let target = if path.is_empty() {
                name.clone()
            } else {
                resolve(&name, path)
            };
            if !root().join(&target).exists() {
                dead.push(format!("{name}: {link}: there is no {target}"));
            } else if !anchor.is_empty() && !anchors(&text(&target)).contains(anchor) {
                dead.push(format!("{name}: {link}: {target} has no such heading"));
            }
        }
    }
    assert!(seen > 50, "links are found");
    assert!(dead.is_empty(), "dead links:\n{}", dead.join("\n"));
}

/// Where a link leads, from the root.
fn resolve(document: &str, link: &str) -> String {
    let mut at = PathBuf::from(document);
    at.pop();
    for part in Path::new(link).components() {
        match part {
            Component::ParentDir => assert!(at.pop(), "{document}: {link} leaves the repository"),
            Component::CurDir => {}
            part => at.push(part),
        }
    }
    at.to_str().unwrap().to_owned()
}

/// The targets of a document's links.
pub(crate) fn links(document: &str) -> Vec<String> {
    let mut text = String::new();
    for (_, line) in prose(document) {
        text.push_str(&without_code(line));
        text.push('\n');
    }
    let targets = text.split("](").skip(1);
    let targets = targets.filter_map(|rest| rest.split(')').next());
    targets.map(str::to_owned).collect()
}

/// A line without what it quotes as code.
fn without_code(line: &str) -> String {
    let parts = line.split('`').enumerate();
    let prose = parts.filter(|(at, _)| at % 2 == 0).map(|(_, part)| part);
    prose.collect()
}

/// The anchors of a document's headings, as forges and mdBook make them.
fn anchors(document: &str) -> BTreeSet<String> {
    let mut times: HashMap<String, u32> = HashMap::new();
    let headings = prose(document).filter_map(|(_, line)| {
        let title = line.trim_start_matches('#');
        let is_heading = title.len() < line.len() && title.starts_with(' ');
        is_heading.then(|| title.trim())
    });
    headings
        .map(|title| {
            let slug = slug(title);
            let before = times.entry(slug.clone()).or_default();
            *before += 1;
            match *before {
                1 => slug,
                nth => format!("{slug}-{}", nth - 1),
            }
        })
        .collect()
}

fn slug(title: &str) -> String {
    let kept = title.chars().filter_map(|c| match c {
        ' ' => Some('-'),
        c if c.is_alphanumeric() || c == '-' || c == '_' => Some(c.to_ascii_lowercase()),
        _ => None,
    });
    kept.collect()
}

#[test]
fn anchors_are_those_of_headings_and_not_of_comments_in_code() {
    let document = "# A `b-c`: d?\n```sh\n# not this\n```\n## Same\n## Same\n";
    let expected = ["a-b-c-d", "same", "same-1"].map(str::to_owned);
    assert_eq!(anchors(document), BTreeSet::from(expected));
}

#[test]
fn links_are_found_but_in_code() {
    let document = "[a](b.md#c) and `[no](x.md)`\n```text\n[no](y.md)\n```\n[two\nlines](d.md)\n";
    assert_eq!(links(document), ["b.md#c", "d.md"]);
}
