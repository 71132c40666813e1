//! What to write instead, where `clap` only says what is wrong with a command line. Pure.

use std::ffi::OsString;

use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Args as _, Command, Error, ValueEnum};
use proto_frames::payload::similar;

use crate::ctl::args::{GlobalArgs, WaitFor};
use crate::printable::Printable;

/// Adds tips to the error about these arguments, and leaves out of its usage what need not be written.
pub fn advise(error: &mut Error, args: &[OsString]) {
    shorten_usage(error);
    let tip = match error.kind() {
        ErrorKind::UnknownArgument => unexpected(error, args),
        ErrorKind::InvalidSubcommand => no_command(error),
        _ => None,
    };
    if let Some(tip) = tip {
        // Words that look alike are further from what was meant.
        error.remove(ContextKind::SuggestedSubcommand);
        let tip = ContextValue::StyledStrs(vec![tip.into()]);
        error.insert(ContextKind::Suggested, tip);
    }
}

/// `clap` adds to the usage what was given, and takes options for that whose variable is set: it then reads as if they
/// had to be.
fn shorten_usage(error: &mut Error) {
    let Some(usage) = error.get(ContextKind::Usage) else {
        return;
    };
    let mut shorter = usage.to_string();
    for option in GlobalArgs::augment_args(Command::new("")).get_arguments() {
        let Some(long) = option.get_long() else {
            continue;
        };
        let values = option.get_value_names().unwrap_or_default();
        let values: String = values.iter().map(|name| format!(" <{name}>")).collect();
        let takes_value = option.get_action().takes_values();
        let values = if takes_value { values } else { String::new() };
        shorter = shorter.replace(&format!(" --{long}{values} "), " ");
    }
    if shorter != usage.to_string() {
        let shorter = ContextValue::StyledStr(StyledStr::from(shorter));
        error.insert(ContextKind::Usage, shorter);
    }
}

/// About a word where none is expected.
fn unexpected(error: &Error, args: &[OsString]) -> Option<String> {
    let word = text(error, ContextKind::InvalidArg).filter(|word| !word.starts_with('-'))?;
    let follows_wait = |pair: &[OsString]| pair[0] == "--wait" && pair[1] == *word;
    if args.windows(2).any(follows_wait)
        && let Some(meant) = until(word)
    {
        return Some(format!(
            "write --wait={meant}; a value of --wait goes behind '='"
        ));
    }
    let usage = error.get(ContextKind::Usage)?.to_string();
    let word = Printable::new(word);
    usage
        .contains("-- <PROGRAM>")
        .then(|| format!("put -- before the program: ciaoctl run [OPTIONS] -- {word} ..."))
}

/// The value of `--wait` that a word is meant to be. `--wait` alone has a meaning, so that its value is not the next word.
fn until(word: &str) -> Option<String> {
    let values = WaitFor::value_variants().iter();
    let values: Vec<_> = values.filter_map(ValueEnum::to_possible_value).collect();
    let known: Vec<&str> = values.iter().map(|value| value.get_name()).collect();
    similar(word, &known).map(ToOwned::to_owned)
}

/// About a word that is no command.
fn no_command(error: &Error) -> Option<String> {
    let word = text(error, ContextKind::InvalidSubcommand)?;
    let usage = error.get(ContextKind::Usage)?.to_string();
    if usage.contains("ciaoctl describe ") {
        let word = Printable::new(word);
        return Some(format!(
            "say what it is: ciaoctl describe instance {word}, or ciaoctl describe node {word}"
        ));
    }
    let is_slip = error.get(ContextKind::SuggestedSubcommand).is_some();
    for (kind, list) in [("node", "nodes"), ("instance", "instances")] {
        if !is_slip && usage.contains(&format!("ciaoctl {kind} ")) {
            let word = Printable::new(word);
            return Some(format!(
                "to see it: ciaoctl describe {kind} {word}; to see all: ciaoctl {list}"
            ));
        }
    }
    (word == "get").then(|| {
        let lists = "ciaoctl nodes, ciaoctl instances, ciaoctl queue";
        format!("lists are commands of their own: {lists}")
    })
}

/// What the error says of this kind.
fn text(error: &Error, kind: ContextKind) -> Option<&str> {
    match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text),
        _ => None,
    }
}
