//! Which known word a mistyped one was meant to be.

/// Longest word that is compared, in characters: no key or word of this project is longer.
const MAX_CHARS: usize = 64;

/// The known word that is most like this one, if one is like it: at most a third of its letters are wrong, missing,
/// too many or swapped with the next.
#[must_use]
pub fn similar<'a>(word: &str, known: &[&'a str]) -> Option<&'a str> {
    let word: Vec<char> = word.to_lowercase().chars().take(MAX_CHARS + 1).collect();
    if word.len() > MAX_CHARS {
        return None;
    }
    let distances = known.iter().map(|it| (distance(&word, it), *it));
    let (distance, meant) = distances.min_by_key(|(distance, _)| *distance)?;
    let allowed = (meant.chars().count() / 3).max(1);
    (distance <= allowed).then_some(meant)
}

/// How many letters have to be put in, left out, replaced or swapped with their neighbour to make one of the other.
fn distance(word: &[char], known: &str) -> usize {
    let known: Vec<char> = known.chars().collect();
    let mut before = vec![0; known.len() + 1];
    let mut last: Vec<usize> = (0..=known.len()).collect();
    for (row, letter) in word.iter().enumerate() {
        let mut this = vec![row + 1];
        for (column, other) in known.iter().enumerate() {
            let replaced = last[column] + usize::from(letter != other);
            let least = replaced.min(last[column + 1] + 1).min(this[column] + 1);
            let is_swapped =
                row > 0 && column > 0 && *letter == known[column - 1] && word[row - 1] == *other;
            let swapped = if is_swapped {
                before[column - 1] + 1
            } else {
                least
            };
            this.push(least.min(swapped));
        }
        before = std::mem::replace(&mut last, this);
    }
    last[known.len()]
}

#[cfg(test)]
mod tests {
    use super::similar;

    #[test]
    fn a_slip_of_the_fingers_is_recognised_and_another_word_is_not() {
        let known = ["policy", "require", "prefer", "max", "id"];
        for (word, meant) in [
            ("polcy", Some("policy")),
            ("requires", Some("require")),
            ("Require", Some("require")),
            ("perfer", Some("prefer")),
            ("mx", Some("max")),
            ("placement", None),
            ("", None),
        ] {
            assert_eq!(similar(word, &known), meant, "{word}");
        }
        assert_eq!(similar(&"x".repeat(100_000), &known), None);
        assert_eq!(similar("x", &[]), None);
    }
}
