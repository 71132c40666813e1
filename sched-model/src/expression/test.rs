//! What an expression asks of the values of its key, and whether one value meets it. Whether a node does, which may
//! have several values or none, is for the scheduler to say by [`Test::holds_for`] and [`Test::is_negative`].

use std::cmp::Ordering;
use std::str::FromStr;

/// Numbers of a smaller amount than this are exact in [`Number`] if they are whole: 2⁵³, as of every `f64`.
const EXACT: f64 = 9_007_199_254_740_992.0;

/// What an expression asks of the values of its key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Test {
    /// `= x`: one of the values is this.
    Equal(Word),
    /// `!= x`: none of the values is this.
    NotEqual(Word),
    /// `< n`: one of the values is a smaller number.
    Less(Number),
    /// `<= n`: one of the values is a number that is not larger.
    AtMost(Number),
    /// `> n`: one of the values is a larger number.
    Greater(Number),
    /// `>= n`: one of the values is a number that is not smaller.
    AtLeast(Number),
    /// `in (x, y)`: one of the values is one of these.
    In(Vec<Word>),
    /// `not in (x, y)`: none of the values is one of these.
    NotIn(Vec<Word>),
    /// `exists`: there is a value.
    Exists,
    /// `not exists`: there is none.
    Absent,
}

impl Test {
    /// Whether one value that is there meets the test, or for a [negative](Self::is_negative) one, its positive
    /// counterpart: `!= x` holds for a node exactly if no value of the key is one for which this answers `true`.
    ///
    /// Words are equal by their text, or as numbers if both are bare decimal numbers (`2` and `2.0`). No order holds
    /// for a value that is no number.
    #[must_use]
    pub fn holds_for(&self, value: &str) -> bool {
        match self {
            Self::Equal(_) | Self::NotEqual(_) | Self::In(_) | Self::NotIn(_) => {
                let words = self.words();
                let is_any_number = words.iter().any(|word| word.number.is_some());
                let number = is_any_number.then(|| value.parse().ok()).flatten();
                words.iter().any(|word| word.is(value, number))
            }
            Self::Exists | Self::Absent => true,
            Self::Less(_) | Self::AtMost(_) | Self::Greater(_) | Self::AtLeast(_) => value
                .parse()
                .is_ok_and(|value| self.holds_for_number(value)),
        }
    }

    /// [`Self::holds_for`] of a value that is a number already, such as a count that the scheduler keeps.
    #[must_use]
    pub fn holds_for_number(&self, value: Number) -> bool {
        match self {
            Self::Less(number) => value < *number,
            Self::AtMost(number) => value <= *number,
            Self::Greater(number) => value > *number,
            Self::AtLeast(number) => value >= *number,
            Self::Equal(_) | Self::NotEqual(_) | Self::In(_) | Self::NotIn(_) => {
                self.words().iter().any(|word| word.number == Some(value))
            }
            Self::Exists | Self::Absent => true,
        }
    }

    /// Whether it holds for a node exactly where [`Self::holds_for`] holds for none of the key's values, so also where
    /// the node has none.
    #[must_use]
    pub const fn is_negative(&self) -> bool {
        matches!(self, Self::NotEqual(_) | Self::NotIn(_) | Self::Absent)
    }

    /// The words that a value is compared with; none for other tests than equality.
    #[must_use]
    pub fn words(&self) -> &[Word] {
        match self {
            Self::Equal(word) | Self::NotEqual(word) => std::slice::from_ref(word),
            Self::In(words) | Self::NotIn(words) => words,
            _ => &[],
        }
    }

    /// The only texts for which [`Self::holds_for`] answers `true`, where there is a list of them: of an equality whose
    /// words are no numbers.
    #[must_use]
    pub fn exact_texts(&self) -> Option<impl ExactSizeIterator<Item = &str> + Clone> {
        let words = self.words();
        let exact = !words.is_empty() && words.iter().all(|word| word.number.is_none());
        exact.then(|| words.iter().map(Word::text))
    }

    /// [`Self::exact_texts`] where it is a single one.
    #[must_use]
    pub fn exact_text(&self) -> Option<&str> {
        let mut texts = self.exact_texts()?;
        texts.next().filter(|_| texts.len() == 0)
    }
}

/// A value to compare with: its text, and what number it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Word {
    text: String,
    number: Option<Number>,
}

impl Word {
    /// A word that was written without quotes: a number if it looks like one and is small enough to be exact.
    pub(super) fn bare(text: &str) -> Self {
        let number = text.parse().ok();
        Self {
            text: text.to_owned(),
            number: number.filter(|number: &Number| number.0.abs() < EXACT),
        }
    }

    /// Text that was written in quotes: no number, whatever it looks like.
    pub(super) const fn quoted(text: String) -> Self {
        Self { text, number: None }
    }

    /// The text, without the quotes.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The number that the word is, if it was written without quotes and is one of an amount below 2⁵³.
    #[must_use]
    pub const fn number(&self) -> Option<Number> {
        self.number
    }

    /// Whether it is equal to a value: by text, or by number. `number` is the value as a number, if it is one.
    fn is(&self, value: &str, number: Option<Number>) -> bool {
        self.text == value || self.number.is_some() && number == self.number
    }
}

/// A finite number. Written as an optional sign, digits, and optionally a point with more digits.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Number(f64);

impl Number {
    /// The number, if it is finite.
    #[must_use]
    pub fn new(value: f64) -> Option<Self> {
        // Adding zero makes -0 the same as 0.
        value.is_finite().then_some(Self(value + 0.0))
    }

    /// Its value; finite.
    #[must_use]
    pub const fn value(self) -> f64 {
        self.0
    }
}

impl Eq for Number {}

impl Ord for Number {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.total_cmp(&other.0)
    }
}

impl PartialOrd for Number {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl From<i64> for Number {
    /// The number, or beyond 2⁵³ one next to it.
    fn from(value: i64) -> Self {
        Self(value as f64)
    }
}

/// A text is not a decimal number, or is too large for one: exponents, `inf` and `nan` are none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a decimal number")]
pub struct NotANumber;

impl FromStr for Number {
    type Err = NotANumber;

    fn from_str(text: &str) -> Result<Self, NotANumber> {
        let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
        let (whole, fraction) = unsigned.split_once('.').unwrap_or((unsigned, "0"));
        let is_digits = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
        if !is_digits(whole) || !is_digits(fraction) {
            return Err(NotANumber);
        }
        text.parse().ok().and_then(Self::new).ok_or(NotANumber)
    }
}
