//! Where commands print: lines that are [`Printable`] and JSON with everything else escaped. Commands have no other way
//! to a terminal or pipe, so that no text of a peer reaches one as it came.

use std::io::{self, IsTerminal as _, Write};

use serde_json::Value;

use crate::ctl::yaml::yaml;
use crate::printable::{self, Lines, Printable};

/// Standard output and standard error, or what a test reads.
///
/// Commands have it in their `Context`. It buffers nothing itself: the caller
/// hands it a buffered writer, and a command flushes where a reader waits.
pub struct Output<'a> {
    out: &'a mut dyn Write,
    err: &'a mut dyn Write,
    width: Option<usize>,
    /// Set from [`terminal_colours`]; tests leave it off.
    has_colours: bool,
}

/// What empties a terminal's screen and begins at its top.
const CLEAR: &str = "\u{1b}[H\u{1b}[2J";

/// What empties the rest of a terminal's line.
const REST_OF_LINE: &str = "\u{1b}[K";

/// What makes a terminal show a text in bold green.
const GREEN: &str = "\u{1b}[1;32m";

/// The same in bold red.
const RED: &str = "\u{1b}[1;31m";

/// Resets the terminal's attributes.
const PLAIN: &str = "\u{1b}[0m";

/// Whether standard output is a terminal that is to have colours: not with `NO_COLOR`, whatever it says, and not one
/// that knows none.
///
/// Asked once, at the start.
#[must_use]
pub fn terminal_colours() -> bool {
    let is_said = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let is_dumb = std::env::var_os("TERM").is_some_and(|value| value == "dumb");
    io::stdout().is_terminal() && !is_said("NO_COLOR") && !is_dumb
}

/// Narrowest terminal that lists are made to fit.
///
/// A width below it, for example 0 of a terminal that does not know its size, counts as unknown.
const MIN_WIDTH: usize = 20;

/// Characters that a line of standard output may have: as many as `COLUMNS` says, or the terminal has; any number
/// where it is neither.
///
/// A `COLUMNS` that is no number counts as not set.
#[must_use]
pub fn terminal_width() -> Option<usize> {
    let said = std::env::var("COLUMNS").ok();
    let said = said.and_then(|text| text.parse::<usize>().ok());
    let shown = || {
        let out = io::stdout();
        let size = rustix::termios::tcgetwinsize(&out).ok()?;
        out.is_terminal().then_some(usize::from(size.ws_col))
    };
    said.or_else(shown).filter(|width| *width >= MIN_WIDTH)
}

impl<'a> Output<'a> {
    /// Prints to these.
    pub fn new(out: &'a mut dyn Write, err: &'a mut dyn Write) -> Self {
        Self {
            out,
            err,
            width: None,
            has_colours: false,
        }
    }

    /// The same, with lists of so many characters a line.
    #[must_use]
    pub fn with_width(self, width: Option<usize>) -> Self {
        Self { width, ..self }
    }

    /// The same, with colours or without.
    #[must_use]
    pub fn with_colours(self, has_colours: bool) -> Self {
        Self {
            has_colours,
            ..self
        }
    }

    /// How many characters a line of a list may have; `None` = any number.
    #[must_use]
    pub fn width(&self) -> Option<usize> {
        self.width
    }

    /// Prints a line.
    ///
    /// # Errors
    /// The system's, as of all that follow.
    pub fn line(&mut self, line: &Printable) -> io::Result<()> {
        writeln!(self.out, "{line}")
    }

    /// Prints a line that says whether something is good, in colour on a terminal that is to have any.
    ///
    /// # Errors
    /// The system's.
    pub fn verdict(&mut self, line: &Printable, is_good: bool) -> io::Result<()> {
        let colour = if is_good { GREEN } else { RED };
        match self.has_colours {
            true => writeln!(self.out, "{colour}{line}{PLAIN}"),
            false => self.line(line),
        }
    }

    /// Prints lines.
    ///
    /// # Errors
    /// The system's.
    pub fn lines(&mut self, lines: &Lines) -> io::Result<()> {
        lines.iter().try_for_each(|line| self.line(line))
    }

    /// Prints a document for programs, on several lines.
    ///
    /// Characters that are not printable are escaped as JSON escapes, so that the document stays the same for its
    /// reader.
    ///
    /// # Errors
    /// The system's.
    pub fn document(&mut self, value: &Value) -> io::Result<()> {
        writeln!(self.out, "{}", printable::json(format!("{value:#}")))
    }

    /// Prints a document for programs as YAML.
    ///
    /// # Errors
    /// The system's.
    pub fn yaml(&mut self, value: &Value) -> io::Result<()> {
        write!(self.out, "{}", yaml(value))
    }

    /// Clears the screen and begins at its top, if standard output is a terminal.
    ///
    /// # Errors
    /// The system's.
    pub fn clear(&mut self) -> io::Result<()> {
        match self.is_terminal() {
            true => write!(self.out, "{CLEAR}"),
            false => Ok(()),
        }
    }

    /// Prints a line in place of the one that this printed last, if standard output is a terminal.
    ///
    /// # Errors
    /// The system's.
    pub fn progress(&mut self, line: &Printable) -> io::Result<()> {
        if self.is_terminal() {
            write!(self.out, "\r{line}{REST_OF_LINE}")?;
            self.out.flush()?;
        }
        Ok(())
    }

    /// Takes away the line that [`Output::progress`] printed.
    ///
    /// # Errors
    /// The system's.
    pub fn end_progress(&mut self) -> io::Result<()> {
        match self.is_terminal() {
            true => write!(self.out, "\r{REST_OF_LINE}"),
            false => Ok(()),
        }
    }

    /// Prints one of several documents for programs, on a line of its own.
    ///
    /// # Errors
    /// The system's.
    pub fn document_line(&mut self, value: &Value) -> io::Result<()> {
        writeln!(self.out, "{}", printable::json(value.to_string()))
    }

    /// Prints a line on standard error: for the reader, not for a program behind the pipe.
    ///
    /// # Errors
    /// The system's.
    pub fn remark(&mut self, line: &Printable) -> io::Result<()> {
        writeln!(self.err, "ciaoctl: {line}")
    }

    /// Whether standard output is a terminal.
    #[must_use]
    pub fn is_terminal(&self) -> bool {
        io::stdout().is_terminal()
    }

    /// Prints what a workload wrote, as it is. The caller has made it fit for a terminal, or standard output is none.
    ///
    /// Beside [`Output::verbatim`] the only way by which bytes leave unescaped.
    ///
    /// # Errors
    /// The system's.
    pub fn workload(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.out.write_all(bytes)
    }

    /// Prints a document of the operator's as it is, where standard output is no terminal.
    ///
    /// # Errors
    /// The system's.
    pub fn verbatim(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.out.write_all(bytes)
    }

    /// Flushes what was printed so far.
    ///
    /// # Errors
    /// The system's.
    pub fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}
