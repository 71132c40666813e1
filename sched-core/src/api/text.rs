//! Texts for people that somebody else has chosen: kept here, repeated to others, and so never longer than a limit.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use sched_model::cut::cut;

/// Bytes of a text for people that are kept of what a peer says; what is beyond is cut off. A sentence or two about why a
/// workload did not start; its whole output is on the node.
pub const MAX_TEXT_LEN: usize = 1024;

/// A text of at most [`MAX_TEXT_LEN`] bytes: it cannot be made otherwise. A longer one is cut between two characters and
/// ends with an ellipsis. A copy shares it.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct ShortText(Arc<str>);

impl ShortText {
    /// The text, or its beginning.
    #[must_use]
    pub fn new(text: &str) -> Self {
        Self(cut(text, MAX_TEXT_LEN).into())
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<&str> for ShortText {
    fn from(text: &str) -> Self {
        Self::new(text)
    }
}

impl From<String> for ShortText {
    fn from(text: String) -> Self {
        if text.len() <= MAX_TEXT_LEN {
            return Self(text.into());
        }
        Self::new(&text)
    }
}

impl From<ShortText> for String {
    fn from(text: ShortText) -> Self {
        text.as_str().into()
    }
}

impl From<ShortText> for Box<str> {
    fn from(text: ShortText) -> Self {
        text.as_str().into()
    }
}

impl Deref for ShortText {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ShortText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for ShortText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

#[cfg(test)]
mod tests {
    use super::{MAX_TEXT_LEN, ShortText};

    #[test]
    fn no_text_is_longer_than_the_limit() {
        let longest = "x".repeat(MAX_TEXT_LEN);
        assert_eq!(ShortText::new(&longest).as_str(), longest);
        for text in ["x".repeat(MAX_TEXT_LEN + 1), "é".repeat(MAX_TEXT_LEN)] {
            for short in [ShortText::new(&text), ShortText::from(text.clone())] {
                assert!(short.len() <= MAX_TEXT_LEN && short.ends_with('…'));
                assert!(text.starts_with(short.trim_end_matches('…')));
            }
        }
    }
}
