//! Whether a program printed what a page shows, but for what differs from run to run.
//!
//! Identifiers stand for each other: one of the page is the same one of the run wherever it is shown. Times, lengths of
//! time, digests, the machine's disk and load, and what is in columns that are about these ([`VARYING`]) may be anything.
//! So may the width of columns and the order of lines.

use std::collections::HashMap;

/// Columns of tables whose cells differ from run to run.
const VARYING: &[&str] = &[
    "AGE",
    "CONNECTED",
    "DISK FREE",
    "DISK USED",
    "ENDED",
    "LOAD",
    "MEMORY USED",
    "TIME",
    "TIME LEFT",
];

/// What is in lines about progress: how many there are of them, and what they say, is a matter of time.
const PROGRESS: &str = " moving: ";

/// Digits of an identifier that lists show.
const SHORT: usize = 8;

/// Which identifier of the run stands for which of the page; by their first eight digits, with the longest form seen.
#[derive(Clone, Default)]
pub(super) struct Names {
    to_run: HashMap<String, String>,
    to_page: HashMap<String, String>,
}

/// A piece of a line.
#[derive(Debug, PartialEq, Eq)]
enum Token<'a> {
    Text(&'a str),
    Id(&'a str),
    Varying,
}

impl Names {
    /// Whether these lines of a run match all lines of a page, each with one; if so, what their identifiers are is known.
    pub(super) fn matches(&mut self, page: &[String], run: &[String], extra: Extra) -> bool {
        let [page, run] = [page, run].map(lines);
        if extra == Extra::None && page.len() != run.len() {
            return false;
        }
        let mut used = vec![false; run.len()];
        let Some(names) = self.pair(&page, &run, &mut used) else {
            return false;
        };
        *self = names;
        true
    }

    /// Finds a line of the run for the first line of the page, and so on; goes back where the rest has none.
    fn pair(
        &self,
        page: &[Vec<Token<'_>>],
        run: &[Vec<Token<'_>>],
        used: &mut [bool],
    ) -> Option<Self> {
        let Some((first, rest)) = page.split_first() else {
            return Some(self.clone());
        };
        for at in 0..run.len() {
            let mut names = self.clone();
            if used[at] || !names.is_same(first, &run[at]) {
                continue;
            }
            used[at] = true;
            if let Some(all) = names.pair(rest, run, used) {
                return Some(all);
            }
            used[at] = false;
        }
        None
    }

    fn is_same(&mut self, page: &[Token<'_>], run: &[Token<'_>]) -> bool {
        page.len() == run.len()
            && page.iter().zip(run).all(|pair| match pair {
                (Token::Id(page), Token::Id(run)) => self.is_one(page, run),
                (page, run) => page == run,
            })
    }

    fn is_one(&mut self, page: &str, run: &str) -> bool {
        let (short_page, short_run) = (&page[..SHORT], &run[..SHORT]);
        if page.len() != run.len() {
            return false;
        }
        match (self.to_run.get(short_page), self.to_page.get(short_run)) {
            (None, None) => {}
            (Some(known), Some(_)) if known.starts_with(short_run) => {
                if known.len() >= run.len() {
                    return true;
                }
            }
            _ => return false,
        }
        self.note(page, run);
        true
    }

    /// Keeps the longest form of both.
    fn note(&mut self, page: &str, run: &str) {
        for (map, from, to) in [
            (&mut self.to_run, page, run),
            (&mut self.to_page, run, page),
        ] {
            let known = map.entry(from[..SHORT].into()).or_default();
            if known.len() < to.len() {
                *known = to.into();
            }
        }
    }

    /// A command of the page with the identifiers of the run: whole ones, and beginnings of at least four digits.
    pub(super) fn in_run(&self, command: &str) -> String {
        let mut out = String::new();
        for piece in pieces(command) {
            let is_id = piece.len() >= 4 && piece.bytes().all(|b| is_hex(b) || b == b'-');
            let known = self.to_run.iter().find(|(page, _)| {
                let len = piece.len().min(SHORT);
                is_id && page[..len] == piece[..len]
            });
            out.push_str(known.map_or(piece, |(_, run)| run));
        }
        out
    }

    /// A line of the run with the identifiers of the page; what the page has no identifier for keeps its own.
    pub(super) fn in_page(&mut self, line: &str) -> String {
        let mut out = String::new();
        for piece in pieces(line) {
            let Some(id) = is_id(piece).then_some(piece) else {
                out.push_str(piece);
                continue;
            };
            match self.to_page.get(&id[..SHORT]) {
                Some(page) if page.len() >= id.len() => out.push_str(&page[..id.len()]),
                // Lists show the beginning first; what follows it is of the run.
                Some(page) => out.push_str(&format!("{page}{}", &id[page.len()..])),
                None => out.push_str(id),
            }
            let shown = out[out.len() - id.len()..].to_owned();
            self.note(&shown, id);
        }
        out
    }
}

/// Whether a run may print more than a page shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Extra {
    None,
    Allowed,
}

/// Lines as tokens; cells in varying columns of a table, of which the header is there, are no text.
fn lines(lines: &[String]) -> Vec<Vec<Token<'_>>> {
    let mut varying: Vec<bool> = Vec::new();
    let mut all = Vec::new();
    for line in lines.iter().filter(|line| !line.contains(PROGRESS)) {
        let cells: Vec<&str> = line
            .split("  ")
            .map(str::trim)
            .filter(|cell| !cell.is_empty())
            .collect();
        let is_header = cells.len() > 2 && cells.iter().all(|cell| is_title(cell));
        if is_header {
            varying = cells.iter().map(|cell| VARYING.contains(cell)).collect();
        } else if cells.len() < 3 {
            varying.clear();
        }
        let mut tokens = Vec::new();
        for (at, cell) in cells.into_iter().enumerate() {
            if !is_header && varying.get(at) == Some(&true) {
                tokens.push(Token::Varying);
            } else {
                tokens.extend(words(cell));
            }
        }
        all.push(tokens);
    }
    all
}

fn is_title(cell: &str) -> bool {
    cell.chars()
        .all(|c| c.is_ascii_uppercase() || c == ' ' || c == '-')
}

/// The tokens of a cell.
fn words(cell: &str) -> Vec<Token<'_>> {
    let tokens = cell
        .split(' ')
        .filter(|word| !word.is_empty())
        .flat_map(|word| {
            if is_time(word) || is_digest(word) {
                return vec![Token::Varying];
            }
            let piece = |piece| {
                if is_id(piece) {
                    Token::Id(piece)
                } else {
                    Token::Text(piece)
                }
            };
            pieces(word).into_iter().map(piece).collect()
        });
    let mut tokens: Vec<Token<'_>> = tokens.collect();
    // Disk is that of the machine, in GB.
    for at in 1..tokens.len() {
        if tokens[at] == Token::Text("GB") {
            tokens[at - 1] = Token::Varying;
        }
    }
    // `59m 59s` is one length of time.
    tokens.dedup_by(|a, b| *a == Token::Varying && a == b);
    tokens
}

/// Cuts a text where identifiers begin and end.
fn pieces(text: &str) -> Vec<&str> {
    let is_of_id = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    let mut pieces = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let word = rest.find(|c| !is_of_id(c)).unwrap_or(rest.len());
        let end = if word > 0 {
            word
        } else {
            rest.find(is_of_id).unwrap_or(rest.len())
        };
        let (piece, after) = rest.split_at(end);
        pieces.push(piece);
        rest = after;
    }
    pieces
}

fn is_hex(byte: u8) -> bool {
    byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte)
}

/// Whether this is a UUID, or its first eight digits.
fn is_id(piece: &str) -> bool {
    let shape = |(at, byte): (usize, u8)| match at {
        8 | 13 | 18 | 23 => byte == b'-',
        _ => is_hex(byte),
    };
    [SHORT, 36].contains(&piece.len()) && piece.bytes().enumerate().all(shape)
}

/// Whether this is a serial number or a digest, in hexadecimal.
fn is_digest(word: &str) -> bool {
    word.len() >= 32 && word.bytes().all(|byte| is_hex(byte) || byte == b':')
}

/// Whether this is a date, a time, or a length of time.
fn is_time(word: &str) -> bool {
    let word = word.trim_end_matches([',', ';', '.', ':']);
    let is_digit = |c: char| c.is_ascii_digit();
    let parts = word
        .split(['-', ':', '.', 'T', 'Z'])
        .filter(|part| !part.is_empty());
    let is_instant =
        parts.clone().count() > 2 && parts.clone().all(|part| part.chars().all(is_digit));
    let number = word.trim_end_matches(|c: char| c.is_ascii_lowercase());
    let is_number = !number.is_empty() && number.chars().all(|c| is_digit(c) || c == '.');
    let unit = &word[number.len()..];
    is_instant || is_number && ["ms", "s", "m", "h"].contains(&unit)
}

#[test]
fn identifiers_times_and_order_may_differ_and_nothing_else() {
    let page = [
        "0a1b2c3d-0000-4000-8000-000000000001 on node-1 (aaaaaaaa) after 3s",
        "2 of 3",
    ]
    .map(str::to_owned);
    let run = [
        "2 of 3",
        "9f8e7d6c-0000-4000-8000-000000000009 on node-1 (bbbbbbbb) after 12s",
    ]
    .map(str::to_owned);
    let mut names = Names::default();
    assert!(names.matches(&page, &run, Extra::None));
    assert_eq!(
        names.in_run("ciaoctl delete 0a1b"),
        "ciaoctl delete 9f8e7d6c-0000-4000-8000-000000000009"
    );
    assert_eq!(names.in_page("9f8e7d6c, bbbbbbbb"), "0a1b2c3d, aaaaaaaa");
    let other = [
        "2 of 4",
        "9f8e7d6c-0000-4000-8000-000000000009 on node-1 (bbbbbbbb) after 12s",
    ]
    .map(str::to_owned);
    assert!(!names.clone().matches(&page, &other, Extra::None));
    // The same instance is not suddenly another.
    let swapped = [
        "2 of 3",
        "11111111-0000-4000-8000-000000000009 on node-1 (bbbbbbbb) after 12s",
    ]
    .map(str::to_owned);
    assert!(!names.matches(&page, &swapped, Extra::None));
}

#[test]
fn cells_vary_in_some_columns_alone() {
    let page = ["NODE  LOAD  VCPUS", "aaaaaaaa  0  16"].map(str::to_owned);
    let load = ["NODE      LOAD  VCPUS", "bbbbbbbb     7     16"].map(str::to_owned);
    let vcpus = ["NODE  LOAD  VCPUS", "bbbbbbbb  0  15"].map(str::to_owned);
    assert!(Names::default().matches(&page, &load, Extra::None));
    assert!(!Names::default().matches(&page, &vcpus, Extra::None));
}
