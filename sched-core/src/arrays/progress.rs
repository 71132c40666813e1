//! How far an array is, as it is written: how many in a row are so, and a letter for how, such as `120s3f4l373w`.

use std::fmt::Write as _;

use super::ElementState;

/// The letter of each state, in the order of [`ElementState::ALL`].
const LETTERS: [char; ElementState::ALL.len()] = ['w', 'l', 's', 'f', 'n', 'u', 'd'];

/// States as text.
pub(crate) fn to_text(states: &[ElementState]) -> String {
    let mut text = String::new();
    for run in states.chunk_by(|before, state| before == state) {
        let letter = LETTERS[run[0] as usize];
        // Writing to a text does not fail.
        let _ = write!(text, "{}{letter}", run.len());
    }
    text
}

/// The states of a text, as many as an array has elements; `None` if it is no such text.
pub(crate) fn from_text(text: &str, count: u32) -> Option<Vec<ElementState>> {
    let mut states = Vec::with_capacity(count as usize);
    let mut number = String::new();
    for letter in text.chars() {
        let Some(at) = LETTERS.iter().position(|it| *it == letter) else {
            number.push(letter);
            continue;
        };
        let run: usize = std::mem::take(&mut number).parse().ok()?;
        if run > count as usize - states.len() {
            return None;
        }
        states.resize(states.len() + run, ElementState::ALL[at]);
    }
    (number.is_empty() && states.len() == count as usize).then_some(states)
}
