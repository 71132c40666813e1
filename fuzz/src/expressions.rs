//! Expressions: what is accepted prints as what it is, and means what a naive reading of it means.

use proto_frames::payload::expression::{MAX_EXPRESSION_LEN, MAX_NAME_LEN, MAX_VALUES, is_name};
use proto_frames::payload::{Expression, Number, Test};

/// Amounts from here on are no numbers in an equality: a float cannot tell neighbours apart.
const EXACT: f64 = 9_007_199_254_740_992.0;

/// The first line is an expression, the others are values of its key; an expression that is made of the same lines (the
/// second is the operator, the others are values) is tried as well.
pub fn expressions(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let lines: Vec<&str> = text.split('\n').collect();
    if let Ok(expression) = lines[0].parse::<Expression>() {
        is_whole(lines[0], &expression);
        prints_as_it_is(&expression);
        for value in &lines[1..] {
            agrees_with_numbers(&expression, value);
        }
    }
    if let [_, operator, words @ ..] = &lines[..] {
        means_what_it_says(operator, words);
    }
}

/// The limits hold for whatever was accepted.
fn is_whole(text: &str, expression: &Expression) {
    assert_eq!(expression.as_str(), text);
    assert!(text.len() <= MAX_EXPRESSION_LEN);
    assert!(is_name(expression.key()) && expression.key().len() <= MAX_NAME_LEN);
    assert!(expression.test().words().len() <= MAX_VALUES);
}

/// The same expression written out again is read as the same.
fn prints_as_it_is(expression: &Expression) {
    let key = expression.key();
    let word = |word: &proto_frames::payload::Word| match word.number() {
        Some(_) => word.text().to_owned(),
        None => quoted(word.text()),
    };
    let list = |words: &[proto_frames::payload::Word]| {
        words.iter().map(word).collect::<Vec<_>>().join(" , ")
    };
    let number = |number: &Number| format!("{:.0}", number.value());
    let (text, is_exact) = match expression.test() {
        Test::Equal(it) => (format!("{key} = {}", word(it)), true),
        Test::NotEqual(it) => (format!("{key}!={}", word(it)), true),
        Test::In(words) => (format!("{key} in({})", list(words)), true),
        Test::NotIn(words) => (format!("{key} not in ({})", list(words)), true),
        Test::Exists => (format!("{key} exists"), true),
        Test::Absent => (format!("{key}\tnot exists"), true),
        Test::Less(it) => (format!("{key}<{}", number(it)), is_integer(it)),
        Test::AtMost(it) => (format!("{key} <={}", number(it)), is_integer(it)),
        Test::Greater(it) => (format!("{key} > {}", number(it)), is_integer(it)),
        Test::AtLeast(it) => (format!("{key}>= {}", number(it)), is_integer(it)),
    };
    if text.len() > MAX_EXPRESSION_LEN {
        return;
    }
    let again: Expression = text
        .parse()
        .unwrap_or_else(|error| panic!("{text:?}: {error}"));
    assert_eq!(again.key(), key);
    if is_exact {
        let (new, old) = (again.test(), expression.test());
        assert_eq!(texts(new), texts(old), "{text:?}");
        assert_eq!(std::mem::discriminant(new), std::mem::discriminant(old));
    }
}

fn is_integer(number: &Number) -> bool {
    number.value().fract() == 0.0
}

fn texts(test: &Test) -> Vec<(&str, Option<Number>)> {
    test.words()
        .iter()
        .map(|word| (word.text(), word.number()))
        .collect()
}

fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

/// A value that is a number is tested alike as a text and as a number.
fn agrees_with_numbers(expression: &Expression, value: &str) {
    let test = expression.test();
    let as_text = test.holds_for(value);
    if let Some(exact) = test.exact_texts() {
        assert_eq!(
            as_text,
            exact.clone().any(|text| text == value),
            "{expression} of {value:?}"
        );
    }
    let Ok(whole) = value.parse::<i64>() else {
        return;
    };
    let is_plain = whole.to_string() == value && whole.unsigned_abs() < 1 << 53;
    let has_texts = test.words().iter().any(|word| word.number().is_none());
    if is_plain && !has_texts {
        assert_eq!(
            as_text,
            test.holds_for_number(Number::from(whole)),
            "{expression} of {value}"
        );
    }
}

/// An expression put together of an operator and words holds for those words for which it plainly should.
fn means_what_it_says(operator: &str, words: &[&str]) {
    let Some((first, rest)) = words.split_first() else {
        return;
    };
    let bare = |text: &&str| number(text).is_some();
    let text = match operator {
        "=" | "!=" if bare(first) => format!("k {operator} {first}"),
        "=" | "!=" => format!("k {operator} {}", quoted(first)),
        "<" | "<=" | ">" | ">=" if bare(first) => format!("k {operator} {first}"),
        "in" | "not in" => {
            let word = |it: &&str| {
                if bare(it) {
                    (*it).to_owned()
                } else {
                    quoted(it)
                }
            };
            let list: Vec<String> = words.iter().map(word).collect();
            format!("k {operator} ({})", list.join(","))
        }
        _ => return,
    };
    if text.len() > MAX_EXPRESSION_LEN
        || words.len() > MAX_VALUES
        || words.iter().any(|it| it.contains(char::is_control))
    {
        return;
    }
    let expression: Expression = text
        .parse()
        .unwrap_or_else(|error| panic!("{text:?}: {error}"));
    for value in words.iter().chain(rest).chain(&["0", "1.0", "-1", "x", ""]) {
        let expected = match operator {
            "=" | "!=" => is_equal(first, value),
            "in" | "not in" => words.iter().any(|word| is_equal(word, value)),
            order => number(value)
                .zip(number(first))
                .is_some_and(|(value, limit)| match order {
                    "<" => value < limit,
                    "<=" => value <= limit,
                    ">" => value > limit,
                    _ => value >= limit,
                }),
        };
        assert_eq!(
            expression.test().holds_for(value),
            expected,
            "{text:?} of {value:?}"
        );
    }
}

fn is_equal(word: &str, value: &str) -> bool {
    let exact = number(word).filter(|number| number.abs() < EXACT);
    word == value || exact.is_some() && number(value) == exact
}

/// A decimal number as the documentation has it: a sign or none, digits, and a point with digits or none.
fn number(text: &str) -> Option<f64> {
    let mut digits = [0, 0];
    let mut part = 0;
    for (at, c) in text.chars().enumerate() {
        match c {
            '+' | '-' if at == 0 => {}
            '.' if part == 0 => part = 1,
            '0'..='9' => digits[part] += 1,
            _ => return None,
        }
    }
    let is_number = digits[0] > 0 && (part == 0 || digits[1] > 0);
    let value: f64 = is_number.then(|| text.parse().ok()).flatten()?;
    value.is_finite().then_some(value)
}
