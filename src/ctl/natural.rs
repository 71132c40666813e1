//! The order of names as people count: `node-2` before `node-10`. Pure.

use std::cmp::Ordering;

/// Compares two names: digits that follow one another are one number, all else goes by its characters.
///
/// Names that count as the same, as `a1` and `a01`, go by their characters, so that the order is always the same.
#[must_use]
pub fn by_name(a: &str, b: &str) -> Ordering {
    let (mut left, mut right) = (a, b);
    while let (Some(one), Some(other)) = (left.chars().next(), right.chars().next()) {
        let order = match (number(left), number(right)) {
            ("", _) | (_, "") => {
                left = &left[one.len_utf8()..];
                right = &right[other.len_utf8()..];
                one.cmp(&other)
            }
            (one, other) => {
                left = &left[one.len()..];
                right = &right[other.len()..];
                by_value(one, other)
            }
        };
        if order.is_ne() {
            return order;
        }
    }
    left.len().cmp(&right.len()).then_with(|| a.cmp(b))
}

/// The digits that a text begins with.
fn number(text: &str) -> &str {
    let end = text.find(|c: char| !c.is_ascii_digit());
    &text[..end.unwrap_or(text.len())]
}

/// Compares numbers of any length.
fn by_value(a: &str, b: &str) -> Ordering {
    let (a, b) = (a.trim_start_matches('0'), b.trim_start_matches('0'));
    a.len().cmp(&b.len()).then_with(|| a.cmp(b))
}

#[cfg(test)]
mod tests {
    use super::by_name;

    #[test]
    fn numbers_in_names_count_as_numbers() {
        let sorted = [
            "",
            "2",
            "10",
            "a",
            "a01",
            "a1",
            "a1b",
            "a2",
            "a2-x10",
            "a10-x9",
            "a10-x010",
            "a99999999999999999999998",
            "a99999999999999999999999",
            "b",
            "é1",
        ];
        let mut names = sorted;
        names.reverse();
        names.sort_by(|a, b| by_name(a, b));
        assert_eq!(names, sorted);
    }
}
