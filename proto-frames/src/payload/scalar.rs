//! What the text of a scalar means where a number, a truth value or a string is expected, as Go's yaml.v2 has it.
//!
//! Shared by the full parser and the peeks, so that both read `010`, `yes` and `2.0` alike.

/// The whole number that the text stands for: `12`, `+12`, `-1`, `1_000`, `0x1f`, `0b101`, `010` and `0o10` (octal),
/// or a float, of which the fraction is cut off (`2.0`, `1e3`, `1.5`).
pub(super) fn int(text: &str) -> Option<i128> {
    int_of_bytes(text.as_bytes())
}

/// [`int`] of text whose encoding is not looked at before it must be.
pub(super) fn int_of_bytes(text: &[u8]) -> Option<i128> {
    decimal(text).or_else(|| unusual_int(std::str::from_utf8(text).ok()?))
}

/// The truth value that the text stands for, YAML 1.1's words included.
pub(super) fn boolean(text: &str) -> Option<bool> {
    match text {
        "true" | "True" | "TRUE" | "y" | "Y" | "yes" | "Yes" | "YES" | "on" | "On" | "ON" => {
            Some(true)
        }
        "false" | "False" | "FALSE" | "n" | "N" | "no" | "No" | "NO" | "off" | "Off" | "OFF" => {
            Some(false)
        }
        _ => None,
    }
}

/// The common form alone: a minus sign at most, then one to eighteen digits without a leading zero.
fn decimal(text: &[u8]) -> Option<i128> {
    let (value, len) = leading_decimal(text)?;
    (len == text.len()).then_some(value.into())
}

/// The number in the common form that a text begins with, and how many bytes of it that is.
#[inline]
pub(super) fn leading_decimal(text: &[u8]) -> Option<(i64, usize)> {
    /// So many digits fit any 64-bit number.
    const MAX_DIGITS: usize = 18;
    let digits = text.strip_prefix(b"-").unwrap_or(text);
    let (mut value, mut len) = (0_i64, 0);
    while let Some(byte @ b'0'..=b'9') = digits.get(len) {
        if len == MAX_DIGITS {
            return None;
        }
        value = value * 10 + i64::from(byte - b'0');
        len += 1;
    }
    let is_common = len == 1 || len > 1 && digits[0] != b'0';
    let sign_len = text.len() - digits.len();
    let value = if sign_len > 0 { -value } else { value };
    is_common.then_some((value, sign_len + len))
}

fn unusual_int(text: &str) -> Option<i128> {
    let plain: String = text.chars().filter(|c| *c != '_').collect();
    let (negative, digits) = match plain.as_bytes().first()? {
        b'-' => (true, &plain[1..]),
        b'+' => (false, &plain[1..]),
        _ => (false, plain.as_str()),
    };
    if !digits.starts_with(|c: char| c.is_ascii_digit() || c == '.') {
        return None;
    }
    let (radix, body) = match digits.get(..2) {
        Some("0x" | "0X") => (16, &digits[2..]),
        Some("0b" | "0B") => (2, &digits[2..]),
        Some("0o" | "0O") => (8, &digits[2..]),
        _ if digits.len() > 1
            && digits.starts_with('0')
            && digits.bytes().all(|b| b.is_ascii_digit()) =>
        {
            (8, &digits[1..])
        }
        _ => (10, digits),
    };
    let value = if body.starts_with(['+', '-']) {
        None
    } else {
        i128::from_str_radix(body, radix).ok()
    };
    let value = value.or_else(|| {
        if radix == 10 {
            truncated_float(digits)
        } else {
            None
        }
    })?;
    Some(if negative { -value } else { value })
}

/// A float without its fraction, as Go has it, if a 64-bit number holds that.
fn truncated_float(digits: &str) -> Option<i128> {
    /// 2⁶³: from it on a float's whole value fits no signed 64-bit number.
    const LIMIT: f64 = 9_223_372_036_854_775_808.0;
    let float: f64 = digits.parse().ok()?;
    #[expect(
        clippy::cast_possible_truncation,
        reason = "the fraction is not wanted, and the rest is below 2^63"
    )]
    (float < LIMIT).then_some(float as i128)
}

/// Whether text that the YAML parser takes for text, although it looks like a number or a truth value, can only have stood
/// in quotes. Of forms that Go knows and the parser does not (`010`, `1_000`, `yes`) no one can tell.
pub(super) fn was_quoted(text: &str) -> bool {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let is_number = decimal(whole.as_bytes()).is_some()
        && !fraction.is_empty()
        && fraction.bytes().all(|byte| byte.is_ascii_digit());
    is_number || matches!(text, "true" | "True" | "TRUE" | "false" | "False" | "FALSE")
}

#[cfg(test)]
mod tests {
    use super::{boolean, int, was_quoted};

    #[test]
    fn what_looks_like_a_number_and_is_text_was_quoted() {
        for text in ["0", "64", "-1", "1.5", "true", "FALSE"] {
            assert!(was_quoted(text), "{text}");
        }
        for text in ["", "010", "1_000", "yes", "0x1f", "1.", "x", "1.5.2"] {
            assert!(!was_quoted(text), "{text}");
        }
    }

    #[test]
    fn numbers_read_as_go_reads_them() {
        for (text, value) in [
            ("0", 0),
            ("12", 12),
            ("-1", -1),
            ("+7", 7),
            ("010", 8),
            ("-010", -8),
            ("0o17", 15),
            ("0x1F", 31),
            ("0b101", 5),
            ("1_000", 1000),
            ("2.0", 2),
            ("-2.0", -2),
            ("1e3", 1000),
            ("2.5", 2),
            ("-1.9", -1),
            (".5", 0),
            ("00", 0),
            ("18446744073709551615", 18_446_744_073_709_551_615),
        ] {
            assert_eq!(int(text), Some(value), "{text}");
        }
        for text in [
            "", "-", "+", "1e400", "08", "0x", "0x-1", "nan", "inf", ".inf", "--1", "1 2", "a",
            "_", "-_",
        ] {
            assert_eq!(int(text), None, "{text}");
        }
    }

    #[test]
    fn words_for_truth_read_as_go_reads_them() {
        assert_eq!(boolean("yes"), Some(true));
        assert_eq!(boolean("Off"), Some(false));
        assert_eq!(boolean("tRue"), None);
        assert_eq!(boolean("1"), None);
    }
}
