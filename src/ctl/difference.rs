//! How two texts differ, line by line, as `diff -u` shows it: for configurations. Pure.

/// Lines around a change that are shown with it, as in most programs.
const AROUND: usize = 3;

/// Pairs of lines that are compared at most, beyond what both texts begin and end with: a few thousand lines on each
/// side. Of texts that differ more, all lines between are shown as taken out and put in.
const MAX_PAIRS: usize = 16 * 1024 * 1024;

/// One line of two texts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Line<'a> {
    Both(&'a str),
    Old(&'a str),
    New(&'a str),
}

/// The lines that show how the old text becomes the new one; none where they are the same.
#[must_use]
pub fn difference(old: &str, new: &str) -> Vec<String> {
    let old: Vec<&str> = old.lines().collect();
    let new: Vec<&str> = new.lines().collect();
    hunks(&aligned(&old, &new))
}

/// The lines of both, each once where both have it.
fn aligned<'a>(old: &[&'a str], new: &[&'a str]) -> Vec<Line<'a>> {
    let begin = old.iter().zip(new).take_while(|(a, b)| a == b).count();
    let (old_rest, new_rest) = (&old[begin..], &new[begin..]);
    let ends = old_rest.iter().rev().zip(new_rest.iter().rev());
    let end = ends.take_while(|(a, b)| a == b).count();
    let old_middle = &old_rest[..old_rest.len() - end];
    let new_middle = &new_rest[..new_rest.len() - end];
    let mut lines: Vec<Line<'a>> = old[..begin].iter().map(|it| Line::Both(it)).collect();
    lines.extend(middle(old_middle, new_middle));
    lines.extend(
        old_rest[old_rest.len() - end..]
            .iter()
            .map(|it| Line::Both(it)),
    );
    lines
}

/// The same for what lies between the first and the last difference: by the longest common subsequence.
fn middle<'a>(old: &[&'a str], new: &[&'a str]) -> Vec<Line<'a>> {
    let (rows, columns) = (old.len() + 1, new.len() + 1);
    let too_many = rows.saturating_mul(columns) > MAX_PAIRS;
    if too_many || old.is_empty() || new.is_empty() {
        let taken_out = old.iter().map(|it| Line::Old(it));
        return taken_out
            .chain(new.iter().map(|it| Line::New(it)))
            .collect();
    }
    // How long the longest common subsequence of what is left is, from each pair on.
    let mut longest = vec![0_u32; rows * columns];
    for at in (0..old.len()).rev() {
        for to in (0..new.len()).rev() {
            longest[at * columns + to] = if old[at] == new[to] {
                longest[(at + 1) * columns + to + 1] + 1
            } else {
                longest[(at + 1) * columns + to].max(longest[at * columns + to + 1])
            };
        }
    }
    let (mut at, mut to) = (0, 0);
    let mut lines = Vec::with_capacity(old.len() + new.len());
    while at < old.len() || to < new.len() {
        let is_old_first = || longest[(at + 1) * columns + to] >= longest[at * columns + to + 1];
        if at < old.len() && to < new.len() && old[at] == new[to] {
            lines.push(Line::Both(old[at]));
            at += 1;
            to += 1;
        } else if at < old.len() && (to == new.len() || is_old_first()) {
            lines.push(Line::Old(old[at]));
            at += 1;
        } else {
            lines.push(Line::New(new[to]));
            to += 1;
        }
    }
    lines
}

/// The changes with some lines around each.
fn hunks(lines: &[Line<'_>]) -> Vec<String> {
    let is_change = |line: &Line<'_>| !matches!(line, Line::Both(_));
    let changes: Vec<usize> = (0..lines.len())
        .filter(|&at| is_change(&lines[at]))
        .collect();
    let is_near = |at: usize| {
        let next = changes.partition_point(|&change| change + AROUND < at);
        changes
            .get(next)
            .is_some_and(|&change| change <= at + AROUND)
    };
    let (mut old, mut new, mut was_shown) = (1, 1, false);
    let mut shown = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        let is_shown = is_near(at);
        if is_shown && !was_shown {
            shown.push(format!("@@ -{old} +{new} @@"));
        }
        was_shown = is_shown;
        let (sign, text) = match line {
            Line::Both(text) => (' ', text),
            Line::Old(text) => ('-', text),
            Line::New(text) => ('+', text),
        };
        if is_shown {
            shown.push(format!("{sign}{text}"));
        }
        old += usize::from(sign != '+');
        new += usize::from(sign != '-');
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::difference;

    #[test]
    fn what_is_the_same_differs_in_nothing() {
        assert!(difference("a\nb\n", "a\nb\n").is_empty());
        assert!(difference("", "").is_empty());
    }

    #[test]
    fn a_change_is_shown_with_the_lines_around_it() {
        let old = "1\n2\n3\n4\n5\n6\n7\n8\n9\n";
        let new = "1\n2\n3\n4\nfive\n6\n7\n8\n9\n10\n";
        let expected = [
            "@@ -2 +2 @@",
            " 2",
            " 3",
            " 4",
            "-5",
            "+five",
            " 6",
            " 7",
            " 8",
            " 9",
            "+10",
        ];
        assert_eq!(difference(old, new), expected);
    }

    #[test]
    fn every_pair_of_texts_is_turned_into_the_other() {
        let mut chance = fastrand::Rng::with_seed(7);
        for _ in 0..300 {
            let mut text = || -> Vec<String> {
                let len = chance.usize(0..12);
                (0..len).map(|_| chance.u8(0..4).to_string()).collect()
            };
            let (old, new) = (text(), text());
            let (a, b): (Vec<&str>, Vec<&str>) = (
                old.iter().map(String::as_str).collect(),
                new.iter().map(String::as_str).collect(),
            );
            let lines = super::aligned(&a, &b);
            let side = |is_old: bool| -> Vec<&str> {
                let of = |line: &super::Line<'_>| match *line {
                    super::Line::Both(_) => true,
                    super::Line::Old(_) => is_old,
                    super::Line::New(_) => !is_old,
                };
                let texts = lines.iter().filter(|line| of(line));
                texts
                    .map(|line| match line {
                        super::Line::Both(it) | super::Line::Old(it) | super::Line::New(it) => *it,
                    })
                    .collect()
            };
            assert_eq!((side(true), side(false)), (a, b));
        }
    }
}
