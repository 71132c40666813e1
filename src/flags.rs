//! Command lines as Go's `flag` package reads them, turned into what `clap` reads; and times on command lines.
//!
//! The original's programs take `-flag value`, `-flag=value` and both with two dashes; deployment scripts use them all.

use std::ffi::OsString;
use std::time::Duration;

/// Gives every single-dash long flag (`-cacert`, `-v=2`) its second dash, up to the first `--`.
///
/// A lone `-`, a negative number and everything after `--` stay as they are. One-letter flags keep one dash only where
/// they are in `short`.
#[must_use]
pub fn double_dashes(args: impl IntoIterator<Item = OsString>, short: &[char]) -> Vec<OsString> {
    let mut done = false;
    let fix = |arg: OsString| {
        if done || arg == "--" {
            done = true;
            return arg;
        }
        let Some(text) = arg.to_str() else { return arg };
        let Some(name) = text.strip_prefix('-') else {
            return arg;
        };
        let mut letters = name.chars();
        match (letters.next(), letters.next()) {
            (None | Some('-' | '0'..='9'), _) => arg,
            (Some(letter), None) if short.contains(&letter) => arg,
            _ => format!("-{text}").into(),
        }
    };
    args.into_iter().map(fix).collect()
}

/// Reads a duration as people write it (`5s`, `1m 30s`).
///
/// # Errors
/// What is wrong with it, and how to write it.
pub fn duration(text: &str) -> Result<Duration, String> {
    humantime::parse_duration(text).map_err(|e| format!("{e}; write it like 500ms, 5s or 10m"))
}

#[cfg(test)]
mod tests {
    use super::double_dashes;

    fn fixed(args: &[&str]) -> Vec<String> {
        double_dashes(args.iter().map(Into::into), &['h'])
            .into_iter()
            .map(|arg| arg.into_string().unwrap())
            .collect()
    }

    #[test]
    fn single_dash_flags_get_their_second() {
        assert_eq!(
            fixed(&["x", "-cacert", "a.pem", "-v=2", "-v", "2"]),
            ["x", "--cacert", "a.pem", "--v=2", "--v", "2"]
        );
    }

    #[test]
    fn everything_else_stays() {
        for arg in ["--cert", "-", "-1", "-h", "file"] {
            assert_eq!(fixed(&["x", arg]), ["x", arg]);
        }
        assert_eq!(fixed(&["x", "--", "-name"]), ["x", "--", "-name"]);
    }
}
