//! What can be wrong with a payload, where, and whether its form or its values are at fault.

use std::fmt;

use crate::cut::shorten;
use crate::expression::{ExpressionProblem, MAX_NAME_LEN};
use crate::scheduling::{MAX_IMAGE_CHARS, MAX_INSTANCE_NAME_LEN};
use crate::span::Span;

/// A payload that was refused: which key, which line, what is wrong with it.
///
/// Prints as `start.requirements.mem_mb, line 12 column 13: negative: -1`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct PayloadError {
    /// Path of the key from the top of the document, such as `start.storage[1].size`; empty where the whole document
    /// is meant.
    pub key: String,
    /// Where the value stands, or for a missing one where the mapping begins that lacks it; `None` where nothing was
    /// parsed at all.
    pub position: Option<Position>,
    /// What is wrong.
    pub fault: Fault,
}

/// A place in a payload, both counted from one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Position {
    /// Line, counted from one.
    pub line: usize,
    /// Column in characters, counted from one.
    pub column: usize,
}

/// What is wrong with a payload or one of its values.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    /// There is no document: no bytes, or only comments.
    #[error("the payload is empty")]
    Empty,
    /// The document is longer than is allowed for its kind.
    #[error("the document has more than {max} bytes")]
    TooLong {
        /// The limit.
        max: usize,
    },
    /// More of what makes parsers slow than is allowed; refused before any parsing.
    #[error("more than {max} {what}")]
    TooMuch {
        /// What there is too much of.
        what: &'static str,
        /// The limit.
        max: usize,
    },
    /// Aliases (`*name`) make the document much larger than it is written.
    #[error("aliases expand to more than twice the document")]
    AliasExpansion,
    /// The document is not YAML, or not YAML this side reads.
    #[error("not valid YAML: {0}")]
    Syntax(String),
    /// The value is of another type than the key takes.
    #[error("expected {expected}, found {found}")]
    WrongType {
        /// What the key takes, in words.
        expected: &'static str,
        /// What is there: the text as written (shortened), or `a mapping` and the like.
        found: String,
    },
    /// A list has more entries than are taken.
    #[error("more than {max} entries")]
    TooManyEntries {
        /// The limit.
        max: usize,
    },
    /// The value is needed, and absent or empty.
    #[error("missing or empty")]
    Missing,
    /// An amount is below zero.
    #[error("negative: {0}")]
    Negative(i64),
    /// An amount, or a sum of amounts, that does not fit 64 bits.
    #[error("too large")]
    TooLarge,
    /// A number outside the range that the key allows.
    #[error("{value} is outside {min} to {max}")]
    OutOfRange {
        /// The number.
        value: i64,
        /// Smallest allowed.
        min: i64,
        /// Largest allowed.
        max: i64,
    },
    /// An expression cannot be read.
    #[error("column {column} of the expression: {problem}")]
    Expression {
        /// Where in the expression, in characters, counted from one.
        column: usize,
        /// What is wrong there.
        problem: ExpressionProblem,
    },
    /// A version of the keys that this side does not understand.
    #[error("version {version} is not understood; this scheduler understands {understood}")]
    NotUnderstood {
        /// What the payload was written for.
        version: u32,
        /// The newest version that is understood.
        understood: u32,
    },
    /// A key that must be understood, and is not.
    #[error("the key `{0}` is not understood")]
    UnknownKey(String),
    /// A key that is not among those of a mapping in which every key has a meaning.
    #[error("no such key; {}", expected_keys(*meant, known))]
    NoSuchKey {
        /// The key that it may have been meant to be.
        meant: Option<&'static str>,
        /// The keys there are.
        known: Vec<&'static str>,
    },
    /// A key that stood in its mapping before: of two values, neither is taken.
    #[error("the key stands twice in its mapping; write it once")]
    DuplicateKey,
    /// A merge key, `<<: *name`, which takes in the keys of another mapping.
    #[error("merge keys (`<<`) are not taken; write out the keys that are meant")]
    MergeKey,
    /// A word that is none of those the key takes.
    #[error("`{word}` is none of {}", known.join(", "))]
    UnknownWord {
        /// The word, shortened.
        word: String,
        /// What the key takes.
        known: &'static [&'static str],
    },
    /// A text that cannot be a name; shortened.
    #[error("`{0}` is no name: names are 1 to {MAX_NAME_LEN} letters, digits and . _ / -")]
    NotAName(String),
    /// A text that cannot be the name of an image; shortened.
    #[error("`{0}` is no image: images are at most {MAX_IMAGE_CHARS} characters without blanks")]
    NotAnImage(String),
    /// A text that an instance cannot be called by; shortened.
    #[error(
        "`{0}` is no name for an instance: those are 1 to {MAX_INSTANCE_NAME_LEN} letters, digits and . _ -, begin with a \
         letter or digit, and are no UUID"
    )]
    NotAnInstanceName(String),
    /// A key that makes sense only beside another.
    #[error("makes sense only with {needs}")]
    OnlyWith {
        /// The key that must be present too.
        needs: &'static str,
    },
    /// The key makes no sense beside another.
    #[error("not together with {other}")]
    NotWith {
        /// The other, and what it says.
        other: &'static str,
    },
    /// A length of time below what the key allows.
    #[error("shorter than {min}")]
    SpanTooShort {
        /// Shortest allowed.
        min: Span,
    },
    /// A length of time beyond what the key allows.
    #[error("longer than {max}")]
    SpanTooLong {
        /// Longest allowed.
        max: Span,
    },
}

impl Fault {
    /// A text where something else is expected.
    #[must_use]
    pub fn wrong_text(expected: &'static str, text: &str) -> Self {
        let found = format!("`{}`", shorten(text));
        Self::WrongType { expected, found }
    }
}

/// The first of these keys whose value is empty, as an error.
///
/// # Errors
/// [`Fault::Missing`] at that key.
pub fn require(values: &[(&str, &String)]) -> Result<(), PayloadError> {
    match values.iter().find(|(_, value)| value.is_empty()) {
        Some((key, _)) => Err(PayloadError::missing(*key)),
        None => Ok(()),
    }
}

/// What a key had to be.
fn expected_keys(meant: Option<&str>, known: &[&str]) -> String {
    match meant {
        Some(meant) => format!("did you mean `{meant}`?"),
        None => format!("expected one of {}", known.join(", ")),
    }
}

/// Which of the protocol's two words for a bad payload applies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PayloadErrorKind {
    /// `invalid_payload`: the bytes could not be read as this payload.
    InvalidPayload,
    /// `invalid_data`: it could be read, but a value is missing or absurd.
    InvalidData,
}

impl PayloadError {
    /// An error about the value at `key`, of unknown place.
    #[must_use]
    pub fn new(key: impl Into<String>, fault: Fault) -> Self {
        Self {
            key: key.into(),
            position: None,
            fault,
        }
    }

    /// The value at `key` is needed, and absent or empty.
    #[must_use]
    pub fn missing(key: impl Into<String>) -> Self {
        Self::new(key, Fault::Missing)
    }

    /// Whether the form or a value is at fault.
    #[must_use]
    pub const fn kind(&self) -> PayloadErrorKind {
        match self.fault {
            Fault::Empty
            | Fault::TooLong { .. }
            | Fault::TooMuch { .. }
            | Fault::AliasExpansion
            | Fault::Syntax(_)
            | Fault::WrongType { .. }
            | Fault::TooManyEntries { .. } => PayloadErrorKind::InvalidPayload,
            Fault::Missing
            | Fault::Negative(_)
            | Fault::TooLarge
            | Fault::OutOfRange { .. }
            | Fault::Expression { .. }
            | Fault::NotUnderstood { .. }
            | Fault::UnknownKey(_)
            | Fault::NoSuchKey { .. }
            | Fault::DuplicateKey
            | Fault::MergeKey
            | Fault::UnknownWord { .. }
            | Fault::NotAName(_)
            | Fault::NotAnImage(_)
            | Fault::NotAnInstanceName(_)
            | Fault::OnlyWith { .. }
            | Fault::NotWith { .. }
            | Fault::SpanTooShort { .. }
            | Fault::SpanTooLong { .. } => PayloadErrorKind::InvalidData,
        }
    }
}

impl fmt::Display for PayloadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_place(f, &self.key, self.position)?;
        fmt::Display::fmt(&self.fault, f)
    }
}

/// Writes `key, line 4 column 20: `, or the part of it that is known, before what is wrong there.
///
/// # Errors
/// The formatter's.
pub fn write_place(
    f: &mut fmt::Formatter<'_>,
    key: &str,
    position: Option<Position>,
) -> fmt::Result {
    match (key, position) {
        ("", None) => Ok(()),
        (key, None) => write!(f, "{key}: "),
        ("", Some(at)) => write!(f, "{at}: "),
        (key, Some(at)) => write!(f, "{key}, {at}: "),
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {} column {}", self.line, self.column)
    }
}

impl PayloadErrorKind {
    /// The word on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::InvalidPayload => "invalid_payload",
            Self::InvalidData => "invalid_data",
        }
    }
}

impl fmt::Display for PayloadErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
