//! A length of time in a payload: `30s`, `1500ms`, `5m`, `2h`, or `0`. A whole number and one unit; what it may be at
//! most is for the key to say.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use crate::error::Fault;
use crate::value::Text;

/// The units, the longest first, with their milliseconds.
const UNITS: [(&str, u64); 4] = [("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1)];

/// A length of time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span {
    ms: u64,
}

impl Span {
    /// So many milliseconds.
    #[must_use]
    pub const fn from_ms(ms: u64) -> Self {
        Self { ms }
    }

    /// Its milliseconds.
    #[must_use]
    pub const fn ms(self) -> u64 {
        self.ms
    }
}

/// The text is no length of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("expected a whole number and ms, s, m or h, such as 30s")]
pub struct NotASpan;

impl FromStr for Span {
    type Err = NotASpan;

    /// What is too long for 64 bits of milliseconds is the longest span, which no key allows.
    fn from_str(text: &str) -> Result<Self, NotASpan> {
        let digits = text.bytes().take_while(u8::is_ascii_digit).count();
        let (number, unit) = text.split_at(digits);
        if number.is_empty() {
            return Err(NotASpan);
        }
        let number = number.parse().unwrap_or(u64::MAX);
        if unit.is_empty() && number == 0 {
            return Ok(Self::default());
        }
        let known = UNITS.iter().find(|(name, _)| *name == unit);
        let (_, ms) = known.ok_or(NotASpan)?;
        Ok(Self::from_ms(number.saturating_mul(*ms)))
    }
}

impl fmt::Display for Span {
    /// In the longest unit of which it is a whole number.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whole = UNITS
            .iter()
            .find(|(_, ms)| self.ms != 0 && self.ms.is_multiple_of(*ms));
        let (unit, ms) = whole.unwrap_or(&("s", 1000));
        write!(f, "{}{unit}", self.ms / ms)
    }
}

impl Text for Span {
    const EXPECTED: &'static str = "a length of time such as 30s";

    fn parse(text: &str) -> Result<Self, Fault> {
        text.parse()
            .map_err(|NotASpan| Fault::wrong_text(Self::EXPECTED, text))
    }

    fn null() -> Result<Self, Fault> {
        Ok(Self::default())
    }

    fn text(&self) -> Cow<'_, str> {
        Cow::Owned(self.to_string())
    }

    fn is_null(&self) -> bool {
        self.ms == 0
    }
}

#[cfg(test)]
mod tests {
    use super::Span;

    #[test]
    fn spans_are_read_in_every_unit_and_written_in_the_longest_that_fits() {
        for (text, ms, written) in [
            ("0", 0, "0s"),
            ("0ms", 0, "0s"),
            ("30s", 30_000, "30s"),
            ("1500ms", 1500, "1500ms"),
            ("300s", 300_000, "5m"),
            ("5m", 300_000, "5m"),
            ("120m", 7_200_000, "2h"),
            ("99999999999999999999h", u64::MAX, "18446744073709551615ms"),
        ] {
            let span: Span = text.parse().unwrap();
            assert_eq!(
                (span.ms(), span.to_string().as_str()),
                (ms, written),
                "{text}"
            );
        }
        for text in [
            "", "s", "30", "-1s", "+1s", "1.5s", "1 s", "1s1", "1d", "1S", "१s",
        ] {
            assert!(text.parse::<Span>().is_err(), "{text}");
        }
    }
}
