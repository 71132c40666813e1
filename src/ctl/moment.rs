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
        "all" => return Ok(Moment::All),
        "now" => return Ok(Moment::Ago(Duration::ZERO)),
        "today" => return Ok(Moment::Day(0)),
        "yesterday" => return Ok(Moment::Day(1)),
        _ => {}
    }
    let ago = text.strip_suffix(" ago").unwrap_or(text);
    if let Ok(ago) = duration(ago) {
        return Ok(Moment::Ago(ago));
    }
    if let Ok(at) = text.parse::<Timestamp>() {
        return Ok(Moment::At(at));
    }
    if let Ok(date) = text.parse::<Date>()
        && !text.contains(['T', ' '])
    {
        return Ok(Moment::Clock(date.into()));
    }
    text.parse::<DateTime>().map(Moment::Clock).map_err(|_| {
        "expected a time such as 2h (ago), today, yesterday, 2026-11-27, '2026-11-27 18:30', 2026-11-27T18:30:00Z, or all"
            .to_owned()
    })
}

impl Moment {
    /// Milliseconds of Unix time, in this zone; `None` for [`Moment::All`], and for what is before 1970.
    ///
    /// # Errors
    /// There is no such time in the zone's calendar.
    pub fn unix_ms(self, now: Timestamp, zone: &TimeZone) -> Result<Option<u64>, String> {
        let out_of_range = |error: jiff::Error| error.to_string();
        let at = match self {
            Self::All => return Ok(None),
            Self::Ago(ago) => {
                let ms = i64::try_from(ago.as_millis()).unwrap_or(i64::MAX);
                return Ok(u64::try_from(now.as_millisecond().saturating_sub(ms)).ok());
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
        Ok(u64::try_from(at.as_millisecond()).ok())
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
    }

    #[test]
    fn what_is_no_moment_is_refused_with_how_to_write_one() {
        for text in ["", "tomorrow-ish", "2026-13-01", "18:30"] {
            let error = moment(text).unwrap_err();
            assert!(error.contains("yesterday"), "{text}: {error}");
        }
    }
}
