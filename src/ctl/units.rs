//! Amounts, spans and identifiers as people read them.
//!
//! Everything here is pure and for people; JSON has plain numbers. Memory is in powers of 1024, as START asks for it;
//! nodes report disk in units of 10⁶ bytes. A negative figure is not known and becomes [`UNKNOWN`].

use std::collections::HashMap;
use std::time::Duration;

/// Shown where a figure is not known (-1 on the wire).
pub const UNKNOWN: &str = "-";

/// Shortest beginning of a UUID that tables show.
///
/// Eight hex digits: the first group of a UUID.
const MIN_PREFIX: usize = 8;

/// An amount of memory given in MiB: `512 MiB`, `1.5 GiB`; negative amounts are unknown.
#[must_use]
pub fn mebibytes(mib: i64) -> String {
    scaled(mib, &["MiB", "GiB", "TiB", "PiB", "EiB"])
}

/// An amount of disk given in units of 10⁶ bytes, as nodes report theirs, shown as [`mebibytes`] are.
///
/// Converted to MiB first, rounded down.
#[must_use]
pub fn megabytes(mb: i64) -> String {
    const MIB: i128 = 1 << 20;
    if mb < 0 {
        return UNKNOWN.into();
    }
    let mib = i128::from(mb) * 1_000_000 / MIB;
    mebibytes(i64::try_from(mib).unwrap_or(i64::MAX))
}

/// A count; negative ones are unknown.
///
/// Also for percentages and positions.
#[must_use]
pub fn count(n: i64) -> String {
    if n < 0 { UNKNOWN.into() } else { n.to_string() }
}

/// A span of whole seconds with its two largest units: `42s`, `3m 5s`, `2h 10m`, `4d 1h`; negative ones are unknown.
///
/// The smaller unit is left out if it is 0: `2h`, not `2h 0m`.
#[must_use]
pub fn span(seconds: i64) -> String {
    const UNITS: [(i64, &str); 4] = [(86_400, "d"), (3_600, "h"), (60, "m"), (1, "s")];
    if seconds < 0 {
        return UNKNOWN.into();
    }
    let largest = UNITS
        .iter()
        .position(|(size, _)| seconds >= *size)
        .unwrap_or(UNITS.len() - 1);
    let (size, unit) = UNITS[largest];
    match UNITS
        .get(largest + 1)
        .map(|(next, name)| (seconds % size / next, name))
    {
        Some((rest, next)) if rest > 0 => format!("{}{unit} {rest}{next}", seconds / size),
        _ => format!("{}{unit}", seconds / size),
    }
}

/// A span of milliseconds, as [`span`] shows it; a second that has begun counts.
///
/// Negative ones are 0, unlike in [`span`]: they are deadlines that have passed.
#[must_use]
pub fn span_of_ms(ms: i64) -> String {
    const MS: i64 = 1_000;
    span(ms.max(0).div_euclid(MS) + i64::from(ms.max(0) % MS > 0))
}

/// A duration to the precision people care for: `850ms`, `1.2s`, `2m 5s`.
///
/// Rounded down.
#[must_use]
pub fn elapsed(duration: Duration) -> String {
    match duration.as_millis() {
        ms @ 0..1_000 => format!("{ms}ms"),
        ms @ 1_000..60_000 => format!("{}.{}s", ms / 1_000, ms % 1_000 / 100),
        ms => span(i64::try_from(ms / 1_000).unwrap_or(i64::MAX)),
    }
}

/// The first eight characters of an identifier, for messages in which it is not the only thing.
///
/// Not necessarily unique: [`unique_prefix_len`] is for tables.
#[must_use]
pub fn short(id: &str) -> &str {
    id.char_indices()
        .nth(MIN_PREFIX)
        .map_or(id, |(end, _)| &id[..end])
}

/// The shortest length, at least eight, at which all of `ids` still differ (as far as they do at all).
///
/// Equal identifiers count as one. Each length is tried in one walk over all of them; real UUIDs differ at the first.
#[must_use]
pub fn unique_prefix_len<'a>(ids: impl Iterator<Item = &'a str> + Clone) -> usize {
    let longest = ids
        .clone()
        .map(|id| id.chars().count())
        .max()
        .unwrap_or(MIN_PREFIX);
    (MIN_PREFIX..longest)
        .find(|len| {
            let mut seen: HashMap<&str, &str> = HashMap::new();
            ids.clone()
                .all(|id| *seen.entry(prefix(id, *len)).or_insert(id) == id)
        })
        .unwrap_or(longest)
}

/// The first `len` characters of `id`.
///
/// All of it if it is shorter. Characters, not bytes, since identifiers of peers need not be ASCII.
#[must_use]
pub fn prefix(id: &str, len: usize) -> &str {
    id.char_indices().nth(len).map_or(id, |(end, _)| &id[..end])
}

/// At most `len` characters of a text, and an ellipsis where there were more.
///
/// The ellipsis is one more character.
#[must_use]
pub fn elide(text: &str, len: usize) -> String {
    let shown = prefix(text, len);
    if shown.len() == text.len() {
        text.to_owned()
    } else {
        format!("{shown}…")
    }
}

/// One decimal below 100, none above and none for the smallest unit. `units` are steps of 1024.
#[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
fn scaled(amount: i64, units: &[&str]) -> String {
    const STEP: f64 = 1024.0;
    if amount < 0 {
        return UNKNOWN.into();
    }
    let (mut value, mut unit) = (amount as f64, 0);
    while value >= STEP && unit + 1 < units.len() {
        value /= STEP;
        unit += 1;
    }
    let digits = usize::from(unit > 0 && value < 100.0);
    format!("{value:.digits$} {}", units[unit])
}

/// When something that lasts so many seconds more ends, or has ended: below 0 it is over.
#[must_use]
pub fn end_of(left_s: i64) -> String {
    match left_s {
        left @ 0.. => format!("ends in {}", span(left)),
        over => format!("ended {} ago", span(over.saturating_neg())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_take_the_unit_that_keeps_them_short() {
        assert_eq!(mebibytes(0), "0 MiB");
        assert_eq!(mebibytes(512), "512 MiB");
        assert_eq!(mebibytes(1536), "1.5 GiB");
        assert_eq!(mebibytes(163_840), "160 GiB");
        assert_eq!(mebibytes(1 << 40), "1.0 EiB");
        assert_eq!(mebibytes(i64::MAX), "8388608 EiB");
        assert_eq!(megabytes(256_000), "238 GiB");
        assert_eq!(megabytes(1_500_000), "1.4 TiB");
        assert_eq!(megabytes(-1), "-");
        assert_eq!(mebibytes(-1), "-");
    }

    #[test]
    fn spans_show_their_two_largest_units() {
        for (seconds, text) in [
            (0, "0s"),
            (59, "59s"),
            (60, "1m"),
            (185, "3m 5s"),
            (7_800, "2h 10m"),
            (349_200, "4d 1h"),
            (-1, "-"),
        ] {
            assert_eq!(span(seconds), text);
        }
        assert_eq!(
            [-1, 0, 1, 1000, 1001].map(span_of_ms),
            ["0s", "0s", "1s", "1s", "2s"]
        );
        assert_eq!(elapsed(Duration::from_millis(850)), "850ms");
        assert_eq!(elapsed(Duration::from_millis(1_290)), "1.2s");
        assert_eq!(elapsed(Duration::from_secs(125)), "2m 5s");
    }

    #[test]
    fn prefixes_grow_until_all_identifiers_differ() {
        let len = |ids: &[&str]| unique_prefix_len(ids.iter().copied());
        assert_eq!(len(&[]), 8);
        assert_eq!(len(&["0123456789", "1123456789"]), 8);
        assert_eq!(len(&["0123456789", "0123456799"]), 9);
        assert_eq!(
            len(&["0123456789", "0123456789"]),
            8,
            "the same one twice is no clash"
        );
        assert_eq!(prefix("ééééééééé", 8), "éééééééé");
        assert_eq!(short("abc"), "abc");
        assert_eq!(
            (elide("abcd", 4), elide("abcde", 4)),
            ("abcd".into(), "abcd…".into())
        );
    }
}
