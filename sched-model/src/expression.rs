//! An expression: what a workload requires of, or prefers in, a node's labels, numbers and facts.
//!
//! It is one text, and reads, blanks being optional where nothing runs together without them:
//!
//! ```text
//! zone = eu-1              cores >= 32               ssd exists
//! zone != eu-1             load < 2.5                ssd not exists
//! cpu.model in (zen4, zen5)                          rack not in (r1, "rack 2")
//! ```
//!
//! A value is a bare word, or text in double or single quotes, in which a backslash stands before the quote or another
//! backslash. `==` is an error that names `=`. The order operators take a decimal number. What an expression means for
//! a node is in [`Test`]; which labels a node has is the scheduler's business.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use crate::error::Fault;
use crate::value::Text;

mod parse;
mod test;

pub use test::{Number, Test, Word};

/// Longest expression, bytes: [`MAX_VALUES`] words of a dozen letters fit, and an error can still quote it.
pub const MAX_EXPRESSION_LEN: usize = 1024;

/// Most values in a list: each is compared with each value of a node.
pub const MAX_VALUES: usize = 64;

/// Longest key of an expression, and longest name in `start.scheduling`, bytes: long enough for a UUID behind a path.
pub const MAX_NAME_LEN: usize = 128;

/// An expression over the labels, numbers and facts of a node. Equal to another if it is written alike.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Expression {
    key: String,
    test: Test,
    text: String,
}

impl Expression {
    /// The label, number or fact it is about: 1 to [`MAX_NAME_LEN`] bytes for which [`is_name`] holds.
    #[must_use]
    pub fn key(&self) -> &str {
        &self.key
    }

    /// What it asks of the values of its key.
    #[must_use]
    pub const fn test(&self) -> &Test {
        &self.test
    }

    /// The expression as it was written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

/// Whether the text may be a key of an expression, or a name in `start.scheduling`: 1 to [`MAX_NAME_LEN`] letters,
/// digits and `. _ / -`, all ASCII.
#[must_use]
pub fn is_name(text: &str) -> bool {
    (1..=MAX_NAME_LEN).contains(&text.len()) && text.bytes().all(is_name_byte)
}

const fn is_name_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'/' | b'-')
}

impl FromStr for Expression {
    type Err = ExpressionError;

    fn from_str(text: &str) -> Result<Self, ExpressionError> {
        let (key, test) = parse::expression(text)?;
        Ok(Self {
            key: key.to_owned(),
            test,
            text: text.to_owned(),
        })
    }
}

impl fmt::Display for Expression {
    /// As it was written.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Why a text is no expression, and where.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("column {column}: {problem}")]
pub struct ExpressionError {
    /// Where reading stopped, in characters from 1; one more than the text has where it ends too early.
    pub column: usize,
    /// What is wrong there.
    pub problem: ExpressionProblem,
}

/// What is wrong with an expression.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ExpressionProblem {
    /// The text does not begin with a key.
    #[error("expected a key of letters, digits and . _ / -")]
    NoKey,
    /// The key has more than [`MAX_NAME_LEN`] bytes.
    #[error("the key has more than {MAX_NAME_LEN} bytes")]
    LongKey,
    /// The text has more than [`MAX_EXPRESSION_LEN`] bytes.
    #[error("the expression has more than {MAX_EXPRESSION_LEN} bytes")]
    TooLong,
    /// Behind the key there is none of the operators.
    #[error("expected one of = != < <= > >= in, not in, exists, not exists")]
    NoOperator,
    /// Behind the key there is `==`.
    #[error("there is no operator '=='; write '='")]
    DoubleEquals,
    /// Behind `not` there is neither `in` nor `exists`.
    #[error("expected 'in' or 'exists' after 'not'")]
    HalfOperator,
    /// There is no value where one must be.
    #[error("expected a value after '{after}'")]
    NoValue {
        /// The operator, parenthesis or comma before it.
        after: &'static str,
    },
    /// The value of an order operator is no number.
    #[error("expected a number after '{after}'")]
    NoNumber {
        /// The operator.
        after: &'static str,
    },
    /// A list does not begin.
    #[error("expected '(' after '{after}'")]
    NoList {
        /// The operator.
        after: &'static str,
    },
    /// A value of a list is followed by something other than a comma or the closing parenthesis.
    #[error("expected ',' or ')'")]
    OpenList,
    /// A list has too many values.
    #[error("more than {MAX_VALUES} values")]
    ManyValues,
    /// A quote that begins at this column has no end.
    #[error("the quote is not closed")]
    OpenQuote,
    /// A backslash in quotes stands before another character than the quote or a backslash.
    #[error("expected the quote or another backslash after the backslash")]
    Escape,
    /// A complete expression is followed by more text.
    #[error("expected nothing more")]
    Trailing,
}

impl From<ExpressionError> for Fault {
    fn from(error: ExpressionError) -> Self {
        Self::Expression {
            column: error.column,
            problem: error.problem,
        }
    }
}

impl Text for Expression {
    const EXPECTED: &'static str = "an expression";

    fn parse(text: &str) -> Result<Self, Fault> {
        Ok(text.parse::<Self>()?)
    }

    fn text(&self) -> Cow<'_, str> {
        Cow::Borrowed(&self.text)
    }

    fn is_null(&self) -> bool {
        false
    }
}
