//! A ratio of overcommitment in a payload: a decimal number above 0, such as `1.5`. What is written reads back as the
//! same number, so that both sides multiply by the same one.

use std::borrow::Cow;
use std::fmt;

use sched_model::Fault;
use sched_model::value::Text;

/// Largest ratio: no machine offers more than this many times what it has.
pub const MAX_RATIO: f64 = 1000.0;

/// A number above 0, at most [`MAX_RATIO`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Ratio(f64);

impl Ratio {
    /// As much as there is.
    pub const ONE: Self = Self(1.0);

    /// The ratio, if the number is one.
    #[must_use]
    pub fn new(value: f64) -> Option<Self> {
        (value > 0.0 && value <= MAX_RATIO).then_some(Self(value))
    }

    /// Its value.
    #[must_use]
    pub const fn value(self) -> f64 {
        self.0
    }
}

// It is never NaN.
impl Eq for Ratio {}

impl Default for Ratio {
    fn default() -> Self {
        Self::ONE
    }
}

impl fmt::Display for Ratio {
    /// The fewest digits that stand for this number alone.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Text for Ratio {
    const EXPECTED: &'static str = "a number above 0, at most 1000";

    fn parse(text: &str) -> Result<Self, Fault> {
        let ratio = text.parse().ok().and_then(Self::new);
        ratio.ok_or_else(|| Fault::wrong_text(Self::EXPECTED, text))
    }

    fn null() -> Result<Self, Fault> {
        Ok(Self::ONE)
    }

    fn text(&self) -> Cow<'_, str> {
        Cow::Owned(self.to_string())
    }

    fn is_null(&self) -> bool {
        *self == Self::ONE
    }
}

#[cfg(test)]
mod tests {
    use sched_model::value::Text;

    use super::Ratio;

    #[test]
    fn what_is_written_reads_back_as_the_same_number() {
        for value in [1.0, 1.5, 16.0, 1000.0, 0.1, 1.0 / 3.0, f64::MIN_POSITIVE] {
            let ratio = Ratio::new(value).unwrap();
            assert_eq!(Ratio::parse(&ratio.to_string()), Ok(ratio));
        }
    }

    #[test]
    fn what_multiplies_nothing_is_no_ratio() {
        for text in ["", "0", "-1", "nan", "inf", "1000.1", "1e9", "x"] {
            assert!(Ratio::parse(text).is_err(), "{text}");
        }
    }
}
