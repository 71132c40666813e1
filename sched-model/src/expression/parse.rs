//! The parser of expressions: reads a text once from left to right, without going back, so that its time is linear in a
//! text that is bounded before ([`MAX_EXPRESSION_LEN`]). The first thing that cannot go on ends it, with its column and
//! a problem that names what was expected.
//!
//! ```text
//!  expression = key test
//!  test       = ("=" | "!=") value | ("<" | "<=" | ">" | ">=") number
//!             | ["not"] "in" "(" value {"," value} ")" | ["not"] "exists"
//!  value      = bare word | "'" text "'" | '"' text '"'
//! ```
//!
//! What the parts mean is in `test`; printing is not needed, since an expression keeps its text.

use super::test::{Number, Test, Word};
use super::{
    ExpressionError, ExpressionProblem as Problem, MAX_EXPRESSION_LEN, MAX_NAME_LEN, MAX_VALUES,
    is_name_byte,
};

/// Key and test of a whole expression.
///
/// # Errors
/// The first problem and its column, counted in characters from 1. Text after a complete expression is an error too.
pub(super) fn expression(text: &str) -> Result<(&str, Test), ExpressionError> {
    let mut rest = Rest { text, at: 0 };
    if text.len() > MAX_EXPRESSION_LEN {
        let mut ends = (0..=MAX_EXPRESSION_LEN).rev();
        rest.at = ends.find(|at| text.is_char_boundary(*at)).unwrap_or(0);
        return Err(rest.error(Problem::TooLong));
    }
    let key = rest.key()?;
    let test = rest.test()?;
    rest.skip_blanks();
    if rest.peek().is_some() {
        return Err(rest.error(Problem::Trailing));
    }
    Ok((key, test))
}

/// Symbols that are operators, longer ones before those they begin with. `==` is none: it is listed to be reported as
/// such.
const SYMBOLS: [&str; 7] = ["==", "!=", "<=", ">=", "=", "<", ">"];

/// The text and how far it was read; each method reads one part and moves on.
struct Rest<'a> {
    text: &'a str,
    /// Bytes read; always between two characters.
    at: usize,
}

impl<'a> Rest<'a> {
    /// The key: as many name characters as there are.
    fn key(&mut self) -> Result<&'a str, ExpressionError> {
        self.skip_blanks();
        let start = self.at;
        let key = self.take_while(|c| u8::try_from(c).is_ok_and(is_name_byte));
        let problem = match key.len() {
            0 => Problem::NoKey,
            len if len > MAX_NAME_LEN => Problem::LongKey,
            _ => return Ok(key),
        };
        self.at = start;
        Err(self.error(problem))
    }

    /// The operator with its operand. Words are operators only if they stand alone: `inside` is not `in`.
    fn test(&mut self) -> Result<Test, ExpressionError> {
        self.skip_blanks();
        if let Some(symbol) = SYMBOLS
            .into_iter()
            .find(|symbol| self.left().starts_with(symbol))
        {
            if symbol == "==" {
                return Err(self.error(Problem::DoubleEquals));
            }
            self.at += symbol.len();
            return Ok(match symbol {
                "=" => Test::Equal(self.value(symbol)?),
                "!=" => Test::NotEqual(self.value(symbol)?),
                "<" => Test::Less(self.number(symbol)?),
                "<=" => Test::AtMost(self.number(symbol)?),
                ">" => Test::Greater(self.number(symbol)?),
                _ => Test::AtLeast(self.number(symbol)?),
            });
        }
        let start = self.at;
        match self.take_while(is_bare) {
            "in" => self.list("in").map(Test::In),
            "exists" => Ok(Test::Exists),
            "not" => self.negated(),
            _ => {
                self.at = start;
                Err(self.error(Problem::NoOperator))
            }
        }
    }

    /// What may follow `not`.
    fn negated(&mut self) -> Result<Test, ExpressionError> {
        self.skip_blanks();
        let start = self.at;
        match self.take_while(is_bare) {
            "in" => self.list("not in").map(Test::NotIn),
            "exists" => Ok(Test::Absent),
            _ => {
                self.at = start;
                Err(self.error(Problem::HalfOperator))
            }
        }
    }

    /// A list in parentheses: 1 to [`MAX_VALUES`] values, no comma at the end.
    fn list(&mut self, operator: &'static str) -> Result<Vec<Word>, ExpressionError> {
        self.skip_blanks();
        if !self.take('(') {
            return Err(self.error(Problem::NoList { after: operator }));
        }
        let mut words = vec![self.value("(")?];
        loop {
            self.skip_blanks();
            if self.take(')') {
                return Ok(words);
            }
            if self.peek() == Some(',') && words.len() == MAX_VALUES {
                return Err(self.error(Problem::ManyValues));
            }
            if !self.take(',') {
                return Err(self.error(Problem::OpenList));
            }
            words.push(self.value(",")?);
        }
    }

    /// A decimal number, without quotes.
    fn number(&mut self, operator: &'static str) -> Result<Number, ExpressionError> {
        self.skip_blanks();
        let start = self.at;
        self.take_while(is_bare).parse().map_err(|_| {
            self.at = start;
            self.error(Problem::NoNumber { after: operator })
        })
    }

    /// A value: a bare word or a text in quotes. `after` is what it follows, for the error.
    fn value(&mut self, after: &'static str) -> Result<Word, ExpressionError> {
        self.skip_blanks();
        match self.peek() {
            Some(quote @ ('"' | '\'')) => self.quoted(quote),
            Some(first) if is_bare(first) => Ok(Word::bare(self.take_while(is_bare))),
            _ => Err(self.error(Problem::NoValue { after })),
        }
    }

    /// A text in quotes, which may be empty. A backslash may stand before the quote or a backslash, and before nothing
    /// else. An open quote is reported where it begins.
    fn quoted(&mut self, quote: char) -> Result<Word, ExpressionError> {
        let start = self.at;
        self.take(quote);
        let mut text = String::new();
        while let Some(c) = self.peek() {
            self.at += c.len_utf8();
            if c == quote {
                return Ok(Word::quoted(text));
            }
            if c != '\\' {
                text.push(c);
                continue;
            }
            match self.peek() {
                Some(escaped) if escaped == quote || escaped == '\\' => {
                    self.take(escaped);
                    text.push(escaped);
                }
                Some(_) => return Err(self.error(Problem::Escape)),
                None => break,
            }
        }
        self.at = start;
        Err(self.error(Problem::OpenQuote))
    }

    /// What is not read yet.
    fn left(&self) -> &'a str {
        &self.text[self.at..]
    }

    /// The next character, not read.
    fn peek(&self) -> Option<char> {
        self.left().chars().next()
    }

    /// Goes past the character if it is the next one.
    fn take(&mut self, wanted: char) -> bool {
        let there = self.left().starts_with(wanted);
        if there {
            self.at += wanted.len_utf8();
        }
        there
    }

    /// Reads characters as long as they are part of something; may read none.
    fn take_while(&mut self, is_part: impl Fn(char) -> bool) -> &'a str {
        let left = self.left();
        let len = left.find(|c| !is_part(c)).unwrap_or(left.len());
        self.at += len;
        &left[..len]
    }

    fn skip_blanks(&mut self) {
        self.take_while(char::is_whitespace);
    }

    /// A problem at the place that was reached.
    fn error(&self, problem: Problem) -> ExpressionError {
        ExpressionError {
            column: self.text[..self.at].chars().count() + 1,
            problem,
        }
    }
}

/// Whether the character may stand in a word without quotes.
fn is_bare(c: char) -> bool {
    !c.is_whitespace() && !matches!(c, '"' | '\'' | '(' | ')' | ',' | '=' | '!' | '<' | '>')
}
