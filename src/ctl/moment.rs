//! A moment as people write it: how long ago, a day, a date with or without a time.

use std::time::Duration;

use jiff::civil::{Date, DateTime};
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan as _};

use crate::flags::duration;

/// A moment, before it is known what time it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    /// Before all.
    All,
    /// So long ago.
    Ago(Duration),
    /// The beginning of the day so many days ago.
    Day(u8),
    /// A time on the reader's clock.
    Clock(DateTime),
    /// A time with its zone.
    At(Timestamp),
}

/// Reads a moment.
///
/// # Errors
/// How to write it.
pub fn moment(text: &str) -> Result<Moment, String> {
    match text {
        "all" => Ok(Moment::All),
        text => end(text).map_err(|usage| format!("{usage}, or all")),
    }
}

/// Reads a moment before which something was: not [`Moment::All`], before which nothing was.
///
/// # Errors
/// How to write it.
pub fn end(text: &str) -> Result<Moment, String> {
    match text {
        "now" => return Ok(Moment::Ago(Duration::ZERO)),
        "today" => return Ok(Moment::Day(0)),
        "yesterday" => return Ok(Moment::Day(1)),
        _ => {}
    }
    let ago = text.strip_suffix(" ago").unwrap_or(text);
    if let Ok(ago) = duration(ago) {
        return Ok(Moment::Ago(ago));
    }
    // With the name of a zone, which would be passed over.
    let is_annotated = text.contains('[');
    if let Ok(at) = text.parse::<Timestamp>()
        && !is_annotated
    {
        return Ok(Moment::At(at));
    }
    if let Ok(date) = text.parse::<Date>()
        && !is_annotated
        && !text.contains(['T', ' '])
    {
        return Ok(Moment::Clock(date.into()));
    }
    let at = text.parse::<DateTime>().ok();
    at.filter(|_| !is_annotated)
        .map(Moment::Clock)
        .ok_or_else(|| {
            "expected a time such as 2h (ago), today, yesterday, 2026-11-27, '2026-11-27 18:30', 2026-11-27T18:30:00Z"
                .to_owned()
        })
}

impl Moment {
    /// Milliseconds of Unix time, in this zone: 0 for what is before 1970, `None` for [`Moment::All`].
    ///
    /// # Errors
    /// There is no such time in the zone's calendar.
    pub fn unix_ms(self, now: Timestamp, zone: &TimeZone) -> Result<Option<u64>, String> {
        let out_of_range = |error: jiff::Error| error.to_string();
        let at = match self {
            Self::All => return Ok(None),
            Self::Ago(ago) => {
                let ms = i64::try_from(ago.as_millis()).unwrap_or(i64::MAX);
                let at = now.as_millisecond().saturating_sub(ms);
                return Ok(Some(u64::try_from(at).unwrap_or(0)));
            }
            Self::Day(days) => {
                let today = now.to_zoned(zone.clone()).date();
                let day = today
                    .checked_sub(i64::from(days).days())
                    .map_err(out_of_range)?;
                day.to_zoned(zone.clone())
                    .map_err(out_of_range)?
                    .timestamp()
            }
            Self::Clock(at) => at.to_zoned(zone.clone()).map_err(out_of_range)?.timestamp(),
            Self::At(at) => at,
        };
        Ok(Some(u64::try_from(at.as_millisecond()).unwrap_or(0)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 2026-11-27 18:30 in UTC.
    fn at(text: &str) -> Option<u64> {
        let now: Timestamp = "2026-11-27T18:30:00Z".parse().unwrap();
        let zone = TimeZone::fixed(jiff::tz::offset(1));
        moment(text).unwrap().unix_ms(now, &zone).unwrap()
    }

    fn utc(text: &str) -> Option<u64> {
        let at: Timestamp = text.parse().unwrap();
        u64::try_from(at.as_millisecond()).ok()
    }

    #[test]
    fn moments_are_read_in_words_lengths_of_time_and_dates_of_the_readers_zone() {
        for (text, expected) in [
            ("2h", "2026-11-27T16:30:00Z"),
            ("2h ago", "2026-11-27T16:30:00Z"),
            ("now", "2026-11-27T18:30:00Z"),
            ("today", "2026-11-26T23:00:00Z"),
            ("yesterday", "2026-11-25T23:00:00Z"),
            ("2026-11-20", "2026-11-19T23:00:00Z"),
            ("2026-11-20 18:30", "2026-11-20T17:30:00Z"),
            ("2026-11-20T18:30:15", "2026-11-20T17:30:15Z"),
            ("2026-11-20T18:30:00Z", "2026-11-20T18:30:00Z"),
        ] {
            assert_eq!(at(text), utc(expected), "{text}");
        }
        assert_eq!(at("all"), None);
        // Nothing was before that, which is not the same as no limit.
        for text in ["1960-01-01", "100y", "1960-01-01T00:00:00Z"] {
            assert_eq!(at(text), Some(0), "{text}");
        }
    }

    #[test]
    fn what_is_no_moment_is_refused_with_how_to_write_one() {
        for text in [
            "",
            "tomorrow-ish",
            "2026-13-01",
            "18:30",
            "2026-11-20T18:30[Asia/Tokyo]",
            "2026-11-20[Asia/Tokyo]",
            "2026-11-20T18:30:00Z[Asia/Tokyo]",
        ] {
            let error = moment(text).unwrap_err();
            assert!(error.contains("yesterday"), "{text}: {error}");
        }
        assert!(moment("18:30").unwrap_err().ends_with("or all"));
        let error = end("all").unwrap_err();
        assert!(!error.contains("or all"), "{error}");
    }
}
