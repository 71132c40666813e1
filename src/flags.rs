//! Command lines as Go's `flag` package reads them, turned into what `clap` reads; amounts and times on command lines; and
//! what is said where a command line cannot be read.
//!
//! The original's programs take `-flag value`, `-flag=value` and both with two dashes; deployment scripts use them all.

use std::ffi::OsString;
use std::fmt::Display;
use std::io::{self, ErrorKind, Write as _};
use std::path::PathBuf;
use std::process::exit;
use std::time::Duration;

use clap::builder::{OsStr, Resettable};
use clap::{Args, Parser, ValueEnum};

use crate::line_queue::line_queue;
use crate::net::tls::{StaleCrls, TrustFiles};

/// The original's default CA certificate.
pub const DEFAULT_CACERT: &str = "/etc/pki/ciao/CAcert-server-localhost.pem";

/// Which certificates are revoked, as the daemons take it.
#[derive(Debug, Clone, Default, Args)]
pub struct CrlFlags {
    /// Revocation lists (CRLs) of the CAs in the CA file, PEM or DER: a file, or a directory whose files are all read; may be
    /// repeated [default: none, and nothing is revoked]
    #[arg(long, value_name = "FILE|DIR")]
    pub crl: Vec<PathBuf>,
    /// What becomes of a CA's certificates in new connections when its list goes out of date while it is in use
    #[arg(
        long,
        value_enum,
        value_name = "ACTION",
        default_value = "refuse",
        requires = "crl"
    )]
    pub crl_expired: CrlExpired,
}

/// What is done about a list that goes out of date while it is in use. One that is when it is read is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum CrlExpired {
    /// Refuse the certificates of its CA until there is a new list.
    #[default]
    Refuse,
    /// Log a warning and go on with the old list.
    Warn,
}

impl CrlFlags {
    /// With the CA file, all that says whose certificates are believed.
    #[must_use]
    pub fn trust(&self, ca: PathBuf) -> TrustFiles {
        TrustFiles {
            ca,
            crls: self.crl.clone(),
            stale_crls: self.crl_expired.into(),
        }
    }
}

impl From<CrlExpired> for StaleCrls {
    fn from(action: CrlExpired) -> Self {
        match action {
            CrlExpired::Refuse => Self::Refuse,
            CrlExpired::Warn => Self::Warn,
        }
    }
}

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
    let write = "write it like 500ms, 5s or 10m";
    humantime::parse_duration(text).map_err(|error| match error {
        // Where in the text it is wrong does not help.
        humantime::DurationError::NumberExpected(_)
        | humantime::DurationError::InvalidCharacter(_) => write.to_owned(),
        error => format!("{error}; {write}"),
    })
}

/// Reads a whole number of at least `min`.
pub fn at_least<N: TryFrom<i64>>(min: i64) -> impl Fn(&str) -> Result<N, String> + Clone {
    move |text| {
        let number = text.parse::<i64>().map_err(|error| match error.kind() {
            std::num::IntErrorKind::PosOverflow => "too large".to_owned(),
            _ => "must be a whole number".to_owned(),
        })?;
        if number < min {
            return Err(format!("must be at least {min}"));
        }
        N::try_from(number).map_err(|_| "too large".to_owned())
    }
}

/// Reads an amount of memory or disk of at least `min` MiB: `512`, `512MiB`, `1.5GiB`, `1TiB`. It is a whole number of
/// MiB, rounded up.
pub fn mebibytes<N: TryFrom<i64>>(min: i64) -> impl Fn(&str) -> Result<N, String> + Clone {
    move |text| {
        let mib = bytes(text, MIB)?.div_ceil(MIB);
        let mib = i64::try_from(mib).map_err(|_| "too large".to_owned())?;
        if mib < min {
            return Err(format!("must be at least {min}"));
        }
        N::try_from(mib).map_err(|_| "too large".to_owned())
    }
}

/// Reads an amount of disk, a number alone in MiB, and gives it in the unit in which nodes report theirs, 10⁶ bytes,
/// rounded down.
///
/// # Errors
/// How to write it.
pub fn reported_disk(text: &str) -> Result<i64, String> {
    match bytes(text, MIB)? / MEGABYTE {
        0 => Err("must be at least 1".to_owned()),
        mb => i64::try_from(mb).map_err(|_| "too large".to_owned()),
    }
}

/// Bytes of a MiB.
const MIB: u128 = 1 << 20;

/// Bytes of the unit in which nodes report their disk.
const MEGABYTE: u128 = 1_000_000;

/// Most digits of an amount, on either side of the point: with the largest unit it is far from an overflow.
const MAX_DIGITS: usize = 18;

/// Reads an amount in bytes; a number without unit counts as so many of `unit`.
fn bytes(text: &str, unit: u128) -> Result<u128, String> {
    let wrong = || "write it like 512, 512MiB or 2GiB".to_owned();
    let end = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, word) = text.split_at(end);
    let unit = match word.trim().to_ascii_lowercase().as_str() {
        "" => unit,
        "mib" => MIB,
        "gib" => MIB << 10,
        "tib" => MIB << 20,
        _ if text.starts_with('-') => return Err("must not be negative".to_owned()),
        "k" | "m" | "g" | "t" | "kb" | "mb" | "gb" | "tb" => {
            return Err(format!("{:?} is no unit here; {}", word.trim(), wrong()));
        }
        _ => return Err(wrong()),
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    let digits = |text: &str| match text.len() {
        1..=MAX_DIGITS => text.parse::<u128>().map_err(|_| wrong()),
        0 => Err(wrong()),
        _ => Err("too large".to_owned()),
    };
    // Digits only: the scale is 10 to the number of them.
    let scale = 10_u128.pow(u32::try_from(fraction.len().min(MAX_DIGITS)).unwrap_or_default());
    Ok(digits(whole)? * unit + (digits(fraction)? * unit).div_ceil(scale))
}

/// Reads a command line. One that cannot be read ends the program with exit code 2 and says how to write it; a help text
/// that cannot be written ends it with `output_failed`.
pub fn parse<P: Parser>(args: impl IntoIterator<Item = OsString>, output_failed: i32) -> P {
    parse_advised(args, output_failed, |_, _| {})
}

/// The same, where `advise` says what to do beside what clap says is wrong with these arguments.
pub fn parse_advised<P: Parser>(
    args: impl IntoIterator<Item = OsString>,
    output_failed: i32,
    advise: impl Fn(&mut clap::Error, &[OsString]),
) -> P {
    let args: Vec<OsString> = args.into_iter().collect();
    let mut command = without_empty_variables(P::command());
    let parsed = command
        .try_get_matches_from_mut(&args)
        .and_then(|mut matches| P::from_arg_matches_mut(&mut matches))
        .map_err(|error| error.format(&mut command));
    parsed.unwrap_or_else(|mut error| {
        advise(&mut error, &args);
        match error.print().and_then(|()| io::stdout().flush()) {
            Err(failed) if failed.kind() != ErrorKind::BrokenPipe && !error.use_stderr() => {
                complain(
                    P::command().get_name(),
                    format_args!("cannot write the output: {failed}"),
                );
                exit(output_failed)
            }
            // With standard error gone, the exit code is all that is left to say.
            _ => exit(error.exit_code()),
        }
    })
}

/// Takes environment variables that are set and empty for ones that are not set, as scripts mean them (`CIAO_CERTS=`).
fn without_empty_variables(command: clap::Command) -> clap::Command {
    let is_empty = |arg: &clap::Arg| {
        let value = arg.get_env().and_then(std::env::var_os);
        value.is_some_and(|value| value.is_empty())
    };
    command
        .mut_args(|arg| match is_empty(&arg) {
            true => arg.env(Resettable::<OsStr>::Reset),
            false => arg,
        })
        .mut_subcommands(without_empty_variables)
}

/// An error with its causes, each that its text does not say already.
#[must_use]
pub fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let said = error.to_string();
        if !text.contains(&said) {
            text = format!("{text}: {said}");
        }
        cause = error.source();
    }
    text
}

/// Says something on standard error, if that is there: a program whose standard error is gone or full, or a pipe that
/// nobody reads, goes on. It waits for a second at most: a daemon that has failed is to end, so that it is started again.
pub fn complain(program: &str, what: impl Display) {
    let line = format!("{program}: {what}\n");
    // In a thread: another one, which writes the log, may be held up with the lock of standard error.
    match line_queue("complaint", usize::MAX, io::stderr()) {
        Ok((mut queue, _)) => {
            let _ = queue.write_all(line.as_bytes());
            queue.drain();
        }
        // The system has no thread left.
        Err(_) => drop(io::stderr().write_all(line.as_bytes())),
    }
}

#[cfg(test)]
mod tests {
    use super::{at_least, double_dashes, mebibytes, reported_disk, with_causes};

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

    #[test]
    fn amounts_have_binary_units_and_are_mebibytes_without() {
        let read = mebibytes::<i64>(1);
        for (text, mib) in [
            ("512", 512),
            ("512MiB", 512),
            ("2GiB", 2048),
            ("2 gib", 2048),
            ("1.5GiB", 1536),
            ("0.5", 1),
            ("1TiB", 1 << 20),
        ] {
            assert_eq!(read(text), Ok(mib), "{text}");
        }
        for (text, said) in [
            ("0", "must be at least 1"),
            ("-5", "must not be negative"),
            (
                "2GB",
                "\"GB\" is no unit here; write it like 512, 512MiB or 2GiB",
            ),
            ("2G", "no unit here"),
            ("much", "write it like"),
            ("1.2.3", "write it like"),
            (".5", "write it like"),
            ("1e9", "write it like"),
            ("99999999999999999999", "too large"),
            ("999999999999999999TiB", "too large"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.contains(said), "{text}: {error}");
        }
        assert_eq!(mebibytes::<u8>(0)("256").unwrap_err(), "too large");
        for (text, mb) in [("500000", 524_288), ("1GiB", 1073), ("1.5", 1)] {
            let read = reported_disk(text);
            assert_eq!(read, Ok(mb), "{text}");
        }
    }

    #[test]
    fn a_cause_is_told_once() {
        #[derive(Debug, thiserror::Error)]
        #[error("{text}")]
        struct Failed {
            text: &'static str,
            source: std::io::Error,
        }
        for (text, told) in [
            ("cannot read a: no such file", "cannot read a: no such file"),
            ("cannot read a", "cannot read a: no such file"),
        ] {
            let source = std::io::Error::other("no such file");
            assert_eq!(with_causes(&Failed { text, source }), told);
        }
    }

    #[test]
    fn numbers_say_what_they_must_be() {
        let read = at_least::<i64>(1);
        assert_eq!(read("7"), Ok(7));
        assert_eq!(read("0").unwrap_err(), "must be at least 1");
        assert_eq!(read("x").unwrap_err(), "must be a whole number");
        assert_eq!(read("9223372036854775808").unwrap_err(), "too large");
    }
}
