//! The commands of Funky's socket: a line of text in, a [`Command`] out. Without IO; [`front`](crate::front) reads the
//! bytes.
//!
//! ```text
//! New: <path> priority: <0|1> args: <rest of the line>
//! New: <path>,<path> num_bitstreams: <n> frequencies: <a>,<b> priority: <0|1> args: <rest of the line>
//! Task: <task> Node: <node>
//! Ps: [json]
//! ```
//!
//! The first form and the third are the original's, the second is its successor's, as their front ends write them.
//! Blanks may be missing or many, as for the `sscanf` that read them there. `Ps:` is this project's. A path with a
//! blank in it cannot be written in any form, and one with a comma in it only without `num_bitstreams:`.

use std::path::{Path, PathBuf};

/// Longest command in bytes, and longest arguments of an upload. The original's limit is 400, which long arguments
/// exceed.
pub(crate) const MAX_COMMAND: usize = 64 * 1024;

/// Most files of one task: the successor counts them in a byte.
pub(crate) const MAX_FILES: usize = 255;

/// One command that was understood. Nothing in it has been compared with tasks, nodes or files that exist.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Command {
    /// Run a program as a new task.
    New(New),
    /// Move a task to another node.
    Migrate {
        /// Number of the task, at least 1.
        task: u32,
        /// Number of the node, at least 1, as `ps` lists it.
        node: u32,
    },
    /// List tasks and nodes.
    List {
        /// One line of JSON rather than tables.
        json: bool,
    },
}

/// What a `New:` command says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct New {
    /// One to [`MAX_FILES`] absolute paths on this machine; the first is the program.
    pub(crate) files: Vec<PathBuf>,
    /// How urgent it is.
    pub(crate) priority: Priority,
    /// What else the program is told.
    pub(crate) extras: Extras,
}

/// What a program is told beside its files. Uploads carry the same values in form fields.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Extras {
    /// A frequency for each file, as written: they are numbers to the successor's programs and plain texts here. Empty
    /// in the original's form.
    pub(crate) frequencies: Vec<String>,
    /// Its arguments in one line without blanks at the ends. [`words`] splits it, unless `-one-argument` is set.
    pub(crate) args: String,
}

/// Funky's two classes. A task of the high class may take the place of one of the low class, which goes on later.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) enum Priority {
    /// Written `0`.
    High,
    /// Written `1`.
    Low,
}

/// What is wrong with a command. The text goes to the client after `error: `; what it quotes of the command is cut to a
/// bounded length.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum CommandError {
    /// It is not UTF-8; the number is that of the first byte that is not, from 0.
    #[error("byte {0} of the command is not UTF-8")]
    NotText(usize),
    /// It begins with none of `New:`, `Task:` and `Ps:`.
    #[error(
        "unknown command '{0}': write 'New: PATH priority: 0|1 args: …' or 'Task: NUMBER Node: NUMBER'"
    )]
    Unknown(String),
    /// This keyword is not where it has to be.
    #[error("'{0}' is missing")]
    Missing(&'static str),
    /// A value is not a decimal number within its range.
    #[error("{what} '{text}' is not a number from {min} to {max}")]
    NotANumber {
        /// The keyword before it.
        what: &'static str,
        /// What is there in its place.
        text: String,
        /// Smallest value allowed.
        min: u32,
        /// Largest value allowed.
        max: u32,
    },
    /// A path does not begin with `/`. The client's working directory is not known here.
    #[error("'{0}' is not a full path: begin it with /")]
    Relative(String),
    /// Something follows where the command should end.
    #[error("unexpected '{0}'")]
    Unexpected(String),
    /// `num_bitstreams:` does not say how many files there are.
    #[error("num_bitstreams: says {said}, there are {files} files")]
    Miscounted {
        /// What it says.
        said: u32,
        /// How many paths there are.
        files: usize,
    },
    /// There are more than [`MAX_FILES`] files.
    #[error("{0} files are more than the {MAX_FILES} that a task may have")]
    TooManyFiles(usize),
    /// There are frequencies, and not one for each file.
    #[error("{frequencies} frequencies for {files} files")]
    Frequencies {
        /// How many frequencies.
        frequencies: usize,
        /// How many files.
        files: usize,
    },
    /// This quotation mark is opened and not closed.
    #[error("args: a quotation mark {0} is not closed")]
    Quotes(char),
}

impl Priority {
    /// Reads `0` or `1`, from the socket or from an upload's field.
    ///
    /// # Errors
    /// [`CommandError::NotANumber`].
    pub(crate) fn parse(text: &str) -> Result<Self, CommandError> {
        match number("priority", text, 0, 1)? {
            0 => Ok(Self::High),
            _ => Ok(Self::Low),
        }
    }

    /// The number that stands for it at the socket and in lists.
    pub(crate) const fn number(self) -> u8 {
        match self {
            Self::High => 0,
            Self::Low => 1,
        }
    }

    /// The scheduler's priority for it. The scheduler has 0 to 100; 75 and 25 leave room above, between and below for
    /// work that others start in the same cluster.
    pub(crate) const fn scheduling(self) -> i64 {
        match self {
            Self::High => 75,
            Self::Low => 25,
        }
    }
}

impl Command {
    /// Reads a command: up to the first line end or NUL byte (C programs may write their buffer's end too), or all of
    /// it.
    ///
    /// # Errors
    /// [`CommandError`]: what is wrong, and what to write.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, CommandError> {
        let text =
            std::str::from_utf8(bytes).map_err(|e| CommandError::NotText(e.valid_up_to()))?;
        let line = text.split(['\n', '\0']).next().unwrap_or_default().trim();
        if let Some(rest) = line.strip_prefix("New:") {
            return parse_new(rest).map(Self::New);
        }
        if let Some(rest) = line.strip_prefix("Task:") {
            let (task, rest) = word(rest);
            let node = rest
                .strip_prefix("Node:")
                .ok_or(CommandError::Missing("Node:"))?;
            let (node, rest) = word(node);
            nothing_more(rest)?;
            return Ok(Self::Migrate {
                task: number("Task:", task, 1, u32::MAX)?,
                node: number("Node:", node, 1, u32::MAX)?,
            });
        }
        match line.strip_prefix("Ps:").map(str::trim) {
            Some("") => Ok(Self::List { json: false }),
            Some("json") => Ok(Self::List { json: true }),
            Some(rest) => Err(CommandError::Unexpected(short(rest))),
            None => Err(CommandError::Unknown(short(line))),
        }
    }
}

/// Splits a line at blanks. Quotation marks, `"` or `'`, keep together what is between them and vanish; there is no
/// other way to escape. `a "b c" d'e f'` is `a`, `b c`, `de f`, and `""` is an empty word.
///
/// # Errors
/// [`CommandError::Quotes`].
pub(crate) fn words(text: &str) -> Result<Vec<String>, CommandError> {
    // `word` is the word being read, `open` the quotation mark that it is inside of.
    let (mut words, mut word, mut open) = (Vec::new(), None::<String>, None);
    for c in text.chars() {
        match (open, c) {
            (Some(mark), _) if c == mark => open = None,
            (None, '"' | '\'') => {
                open = Some(c);
                word.get_or_insert_default();
            }
            (None, _) if c.is_whitespace() => words.extend(word.take()),
            _ => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    open.map_or(Ok(words), |mark| Err(CommandError::Quotes(mark)))
}

/// Checks the numbers of files and frequencies against each other and [`MAX_FILES`]. Uploads use it too, whose fields
/// come in any order.
///
/// # Errors
/// [`CommandError::TooManyFiles`] or [`CommandError::Frequencies`].
pub(crate) fn check_counts(files: usize, frequencies: usize) -> Result<(), CommandError> {
    if files > MAX_FILES {
        return Err(CommandError::TooManyFiles(files));
    }
    if frequencies != 0 && frequencies != files {
        return Err(CommandError::Frequencies { frequencies, files });
    }
    Ok(())
}

/// Reads what follows `New:`. Only with `num_bitstreams:` after the path is the path split at commas: in the original's
/// form a comma is part of it.
fn parse_new(rest: &str) -> Result<New, CommandError> {
    let (path, mut rest) = word(rest);
    if path.is_empty() || path == "priority:" {
        return Err(CommandError::Missing("path"));
    }
    let (mut files, mut frequencies) = (vec![path], Vec::new());
    if let Some(after) = rest.strip_prefix("num_bitstreams:") {
        files = path.split(',').collect();
        let (said, after) = word(after);
        let said = number("num_bitstreams:", said, 1, u32::MAX)?;
        if usize::try_from(said) != Ok(files.len()) {
            let files = files.len();
            return Err(CommandError::Miscounted { said, files });
        }
        let after = after
            .strip_prefix("frequencies:")
            .ok_or(CommandError::Missing("frequencies:"))?;
        let (list, after) = word(after);
        frequencies = list.split(',').map(str::to_owned).collect();
        rest = after;
    }
    check_counts(files.len(), frequencies.len())?;
    let rest = rest
        .strip_prefix("priority:")
        .ok_or(CommandError::Missing("priority:"))?;
    let (priority, rest) = word(rest);
    let priority = Priority::parse(priority)?;
    let args = match rest.strip_prefix("args:") {
        Some(args) => args.trim().to_owned(),
        None => nothing_more(rest).map(|()| String::new())?,
    };
    let full = |path: &&str| match Path::new(path) {
        full if full.is_absolute() => Ok(full.to_owned()),
        _ => Err(CommandError::Relative(short(path))),
    };
    Ok(New {
        files: files.iter().map(full).collect::<Result<_, _>>()?,
        priority,
        extras: Extras { frequencies, args },
    })
}

/// The next word, and what follows it without the blanks between. Both are empty at the end of the text.
fn word(text: &str) -> (&str, &str) {
    let text = text.trim_start();
    let end = text.find(char::is_whitespace).unwrap_or(text.len());
    (&text[..end], text[end..].trim_start())
}

/// An error if anything but blanks is left.
fn nothing_more(rest: &str) -> Result<(), CommandError> {
    match rest.trim() {
        "" => Ok(()),
        more => Err(CommandError::Unexpected(short(more))),
    }
}

/// Reads a decimal number from `min` to `max`; `what` is the keyword for the error's text.
fn number(what: &'static str, text: &str, min: u32, max: u32) -> Result<u32, CommandError> {
    let number: Option<u32> = text.trim().parse().ok();
    number
        .filter(|number| (min..=max).contains(number))
        .ok_or_else(|| CommandError::NotANumber {
            what,
            text: short(text),
            min,
            max,
        })
}

/// A text as an error quotes it: at most 60 characters of it, cut between characters.
fn short(text: &str) -> String {
    /// Characters of a text that are quoted.
    const QUOTED: usize = 60;
    match text.char_indices().nth(QUOTED) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test ends where it fails")]

    use super::*;

    fn new(text: &str) -> New {
        match Command::parse(text.as_bytes()) {
            Ok(Command::New(new)) => new,
            other => panic!("{text}: {other:?}"),
        }
    }

    fn error(text: &str) -> String {
        Command::parse(text.as_bytes()).unwrap_err().to_string()
    }

    #[test]
    fn the_original_s_forms_are_read_with_and_without_arguments() {
        let task = new("New: /a/b priority: 0 args: -x  --y=1 z ");
        assert_eq!(task.files, [PathBuf::from("/a/b")]);
        assert_eq!(task.priority, Priority::High);
        assert_eq!(task.extras.args, "-x  --y=1 z");
        for text in [
            "New: /a,b priority: 1",
            "New:/a,b  priority:1\n",
            "New: /a,b priority: 1 args: \r\nmore",
            "New: /a,b priority: 1\0\0\0",
        ] {
            let task = new(text);
            assert_eq!(task.files, [PathBuf::from("/a,b")], "{text}");
            assert_eq!(task.priority, Priority::Low);
            assert_eq!(task.extras, Extras::default(), "{text}");
        }
    }

    #[test]
    fn the_successor_s_form_has_files_and_frequencies() {
        let text = "New: /a,/b num_bitstreams: 2 frequencies: 100,200 priority: 0 args: x y";
        let task = new(text);
        assert_eq!(task.files, [PathBuf::from("/a"), PathBuf::from("/b")]);
        assert_eq!(task.extras.frequencies, ["100", "200"]);
        assert_eq!(task.extras.args, "x y");
        assert_eq!(
            error("New: /a,/b num_bitstreams: 3 frequencies: 1,2,3 priority: 0"),
            "num_bitstreams: says 3, there are 2 files"
        );
        assert_eq!(
            error("New: /a,/b num_bitstreams: 2 frequencies: 1 priority: 0"),
            "1 frequencies for 2 files"
        );
    }

    #[test]
    fn a_migration_has_two_numbers() {
        let migrate = Command::Migrate { task: 7, node: 2 };
        for text in ["Task: 7 Node: 2", "Task:7 Node:2\n", "Task: 7\tNode: 2 "] {
            assert_eq!(
                Command::parse(text.as_bytes()),
                Ok(migrate.clone()),
                "{text}"
            );
        }
        assert!(error("Task: x Node: 2").starts_with("Task: 'x' is not a number"));
        assert!(error("Task: 0 Node: 2").contains("from 1 to"));
        assert!(error("Task: 99999999999 Node: 2").contains("is not a number"));
        assert_eq!(error("Task: 7"), "'Node:' is missing");
    }

    #[test]
    fn what_cannot_be_meant_is_named() {
        assert_eq!(error("New: /a"), "'priority:' is missing");
        assert_eq!(error("New: priority: 1"), "'path' is missing");
        assert_eq!(
            error("New: /a priority: 2"),
            "priority '2' is not a number from 0 to 1"
        );
        assert!(error("New: a priority: 1").contains("not a full path"));
        assert_eq!(error("New: /a priority: 1 arg: x"), "unexpected 'arg: x'");
        assert!(error("Old: /a").starts_with("unknown command 'Old: /a'"));
        assert!(error("").starts_with("unknown command ''"));
        let not_text = Command::parse(b"New: /\xff priority: 1").unwrap_err();
        assert_eq!(not_text.to_string(), "byte 6 of the command is not UTF-8");
        assert!(error(&"ä".repeat(10_000)).len() < 300);
    }

    #[test]
    fn arguments_are_split_at_blanks_but_not_within_quotation_marks() {
        let split = |text: &str| words(text).unwrap();
        assert_eq!(split(" a  b\tc "), ["a", "b", "c"]);
        assert_eq!(
            split(r#"-c "a 'b' c" 'd "e"' f"g h"i """#),
            ["-c", "a 'b' c", "d \"e\"", "fg hi", ""]
        );
        assert!(split("").is_empty());
        assert_eq!(words("it's").unwrap_err(), CommandError::Quotes('\''));
    }
}
