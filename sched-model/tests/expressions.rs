//! Expressions: what is read, what it means for a value, and in which words the rest is refused.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

use sched_model::expression::{MAX_EXPRESSION_LEN, MAX_NAME_LEN, MAX_VALUES};
use sched_model::{Expression, Number, Test};

fn read(text: &str) -> Expression {
    text.parse()
        .unwrap_or_else(|error| panic!("{text:?}: {error}"))
}

/// Whether the value meets the test, as it is written.
fn holds(text: &str, value: &str) -> bool {
    read(text).test().holds_for(value)
}

/// The words of an equality.
fn words(text: &str) -> Vec<String> {
    let expression = read(text);
    let words = expression.test().words().iter();
    words.map(|word| word.text().to_owned()).collect()
}

#[test]
fn every_operator_is_read_with_and_without_blanks() {
    let number = |value: i64| Number::from(value);
    for (text, key, test) in [
        ("cores<32", "cores", Test::Less(number(32))),
        ("cores  <=  32", "cores", Test::AtMost(number(32))),
        ("cores>-1", "cores", Test::Greater(number(-1))),
        (" cores >= +32 ", "cores", Test::AtLeast(number(32))),
        ("ssd exists", "ssd", Test::Exists),
        ("ssd  not\texists", "ssd", Test::Absent),
        ("exists exists", "exists", Test::Exists),
        ("not not exists", "not", Test::Absent),
    ] {
        let expression = read(text);
        assert_eq!(
            (expression.key(), expression.test()),
            (key, &test),
            "{text}"
        );
    }
    for text in ["zone=eu-1", "zone = eu-1", "zone='eu-1'"] {
        assert!(matches!(read(text).test(), Test::Equal(_)), "{text}");
        assert_eq!(words(text), ["eu-1"], "{text}");
    }
    assert!(matches!(read("a/b.c_d-e != x").test(), Test::NotEqual(_)));
    assert!(matches!(read("a in(x)").test(), Test::In(_)));
    assert!(matches!(read("a not in ( x , y )").test(), Test::NotIn(_)));
}

#[test]
fn values_are_bare_words_or_text_in_quotes() {
    assert_eq!(words("a in (zen4,zen5 , é:%)"), ["zen4", "zen5", "é:%"]);
    assert_eq!(words(r#"a = "b \"c\" \\ 'd'""#), [r#"b "c" \ 'd'"#]);
    assert_eq!(words(r#"a = 'b \'c\' \\ "d"'"#), [r#"b 'c' \ "d""#]);
    assert_eq!(words("a in (\"\", ' ', \")\")"), ["", " ", ")"]);
    assert_eq!(words(r"a = C:\dir"), [r"C:\dir"]);
}

#[test]
fn equality_is_of_texts_or_of_numbers() {
    for (text, equal, other) in [
        ("a = x", &["x"][..], &["X", "", "x "][..]),
        (
            "a = 2",
            &["2", "2.0", "+2", "02"],
            &["2.", "0x2", "2e0", " 2", "3"],
        ),
        ("a = 0", &["0", "-0", "0.00"], &["", "-"]),
        ("a = -1.50", &["-1.5", "-1.50"], &["1.5"]),
        ("a = \"2\"", &["2"], &["2.0"]),
        ("a = inf", &["inf"], &["infinity", "1e999"]),
        // More than 2^53: a float cannot tell it from its neighbour.
        (
            "a = 9007199254740993",
            &["9007199254740993"],
            &["9007199254740992"],
        ),
        ("a in (x, 2)", &["x", "2.0"], &["y", "3"]),
        ("a in ('')", &[""], &["x"]),
    ] {
        for value in equal {
            assert!(holds(text, value), "{text} of {value:?}");
            assert!(holds(
                &text.replace("a =", "a !=").replace("a in", "a not in"),
                value
            ));
        }
        for value in other {
            assert!(!holds(text, value), "{text} of {value:?}");
        }
    }
}

#[test]
fn order_is_of_numbers_alone() {
    for (text, yes, no) in [
        ("a < 10", "9.99", "10"),
        ("a <= 10", "10.0", "10.01"),
        ("a > 10", "10.01", "10"),
        ("a >= 10", "10", "9"),
        ("a > -1", "0", "-1"),
        ("a < 99999999999999999999", "1", "999999999999999999999"),
    ] {
        assert!(holds(text, yes), "{text} of {yes}");
        assert!(!holds(text, no), "{text} of {no}");
        for text_value in ["", "x", "9x", "nan", "-inf", "0x1", "1e1"] {
            assert!(!holds(text, text_value), "{text} of {text_value:?}");
        }
    }
}

#[test]
fn numbers_the_scheduler_keeps_are_tested_like_their_text() {
    for text in [
        "a = 3",
        "a != 3",
        "a in (x, 3)",
        "a < 3",
        "a <= 3",
        "a > 3",
        "a >= 3",
        "a exists",
    ] {
        let expression = read(text);
        for value in [-3, 0, 2, 3, 4] {
            assert_eq!(
                expression.test().holds_for_number(Number::from(value)),
                expression.test().holds_for(&value.to_string()),
                "{text} of {value}"
            );
        }
    }
    assert_eq!(Number::new(f64::NAN), None);
    assert_eq!(Number::new(f64::INFINITY), None);
    assert_eq!(Number::new(-0.0), Some(Number::from(0)));
}

#[test]
fn negative_tests_answer_for_their_counterpart() {
    for (negative, positive) in [
        ("a != x", "a = x"),
        ("a not in (x, y)", "a in (x, y)"),
        ("a not exists", "a exists"),
    ] {
        let (negative, positive) = (read(negative), read(positive));
        assert!(negative.test().is_negative() && !positive.test().is_negative());
        for value in ["x", "y", "z", ""] {
            assert_eq!(
                negative.test().holds_for(value),
                positive.test().holds_for(value)
            );
        }
    }
    assert!(!read("a < 1").test().is_negative());
}

#[test]
fn texts_to_look_up_are_known_where_no_number_is_among_them() {
    let texts = |text: &str| {
        let expression = read(text);
        let texts = expression.test().exact_texts();
        texts.map(|texts| texts.map(str::to_owned).collect::<Vec<_>>())
    };
    assert_eq!(texts("a = x"), Some(vec!["x".to_owned()]));
    assert_eq!(
        texts("a not in (x, '2')"),
        Some(vec!["x".to_owned(), "2".to_owned()])
    );
    for text in ["a = 2", "a in (x, 2)", "a < 2", "a exists", "a not exists"] {
        assert_eq!(texts(text), None, "{text}");
    }
    assert_eq!(read("a != x").test().exact_text(), Some("x"));
    assert_eq!(read("a in (x, y)").test().exact_text(), None);
    assert_eq!(read("a = 1").test().exact_text(), None);
}

#[test]
fn errors_name_the_column_and_what_was_expected() {
    const KEY: &str = "expected a key of letters, digits and . _ / -";
    const OPERATOR: &str = "expected one of = != < <= > >= in, not in, exists, not exists";
    for (text, column, problem) in [
        ("", 1, KEY),
        ("   ", 4, KEY),
        ("= x", 1, KEY),
        ("é = x", 1, KEY),
        ("zone", 5, OPERATOR),
        ("zone eu-1", 6, OPERATOR),
        ("zone! x", 5, OPERATOR),
        ("zo+ne = x", 3, OPERATOR),
        ("zone IN (a)", 6, OPERATOR),
        ("zone in4 (a)", 6, OPERATOR),
        ("zone =", 7, "expected a value after '='"),
        ("zone = ", 8, "expected a value after '='"),
        ("zone == a", 6, "there is no operator '=='; write '='"),
        ("zone==\"a\"", 5, "there is no operator '=='; write '='"),
        ("zone = = x", 8, "expected a value after '='"),
        ("zone => x", 7, "expected a value after '='"),
        ("zone != (a)", 9, "expected a value after '!='"),
        ("zone = a b", 10, "expected nothing more"),
        ("zone = \"a\"b", 11, "expected nothing more"),
        ("ssd exists now", 12, "expected nothing more"),
        ("zone in (a) b", 13, "expected nothing more"),
        ("cores > many", 9, "expected a number after '>'"),
        ("cores <", 8, "expected a number after '<'"),
        ("cores >= \"3\"", 10, "expected a number after '>='"),
        ("cores <= 1e3", 10, "expected a number after '<='"),
        ("ssd not", 8, "expected 'in' or 'exists' after 'not'"),
        ("ssd not there", 9, "expected 'in' or 'exists' after 'not'"),
        ("zone in a, b", 9, "expected '(' after 'in'"),
        ("zone not in", 12, "expected '(' after 'not in'"),
        ("zone in ()", 10, "expected a value after '('"),
        ("zone in (a,)", 12, "expected a value after ','"),
        ("zone in (a b)", 12, "expected ',' or ')'"),
        ("zone in (a, b", 14, "expected ',' or ')'"),
        ("zone = \"a", 8, "the quote is not closed"),
        ("zone = 'é\\'", 8, "the quote is not closed"),
        ("zone = \"a\\", 8, "the quote is not closed"),
        (
            "zone = \"é\\n\"",
            11,
            "expected the quote or another backslash after the backslash",
        ),
    ] {
        let error = text.parse::<Expression>().unwrap_err();
        assert_eq!(
            error.to_string(),
            format!("column {column}: {problem}"),
            "{text:?}"
        );
    }
}

#[test]
fn expressions_have_limits_that_can_be_reached() {
    let list = |count: usize| format!("a in ({})", vec!["x"; count].join(","));
    assert_eq!(words(&list(MAX_VALUES)).len(), MAX_VALUES);
    let error = list(MAX_VALUES + 1).parse::<Expression>().unwrap_err();
    assert_eq!(error.to_string(), "column 134: more than 64 values");

    let key = |len: usize| format!("  {} exists", "k".repeat(len));
    assert_eq!(read(&key(MAX_NAME_LEN)).key().len(), MAX_NAME_LEN);
    let error = key(MAX_NAME_LEN + 1).parse::<Expression>().unwrap_err();
    assert_eq!(
        error.to_string(),
        "column 3: the key has more than 128 bytes"
    );

    let long = |len: usize| format!("a = {}", "x".repeat(len - 4));
    read(&long(MAX_EXPRESSION_LEN));
    let error = long(MAX_EXPRESSION_LEN + 1)
        .parse::<Expression>()
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "column 1025: the expression has more than 1024 bytes"
    );
    let error = format!("a = 'é{}'", "é".repeat(600))
        .parse::<Expression>()
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "column 515: the expression has more than 1024 bytes"
    );
    assert!("1".repeat(400).parse::<Number>().is_err());
}

/// A value as it may be written, and its text.
fn value() -> impl Strategy<Value = (String, String)> {
    let quote = |text: String, quote: char| {
        let escaped = text
            .replace('\\', r"\\")
            .replace(quote, &format!("\\{quote}"));
        (format!("{quote}{escaped}{quote}"), text)
    };
    prop_oneof![
        "[^\\s\"'(),=!<>]{1,8}".prop_map(|word| (word.clone(), word)),
        ("\\PC{0,8}", select(&['"', '\''][..])).prop_map(move |(text, by)| quote(text, by)),
    ]
}

proptest! {
    #[test]
    fn what_is_written_by_the_rules_is_read_as_meant(
        key in "[A-Za-z0-9._/-]{1,12}",
        operator in select(&["=", "!=", "in", "not in"][..]),
        values in vec(value(), 1..5),
        blanks in select(&["", " ", "  "][..]),
    ) {
        let lists = operator.ends_with("in");
        let values = if lists { values } else { values[..1].to_vec() };
        let written: Vec<&str> = values.iter().map(|(written, _)| written.as_str()).collect();
        let separator = format!("{blanks},{blanks}");
        let text = if lists {
            format!("{key} {operator}{blanks}({blanks}{}{blanks})", written.join(&separator))
        } else {
            format!("{blanks}{key}{blanks}{operator}{blanks}{}{blanks}", written[0])
        };
        let expression = read(&text);
        prop_assert_eq!(expression.key(), key);
        let texts: Vec<&str> = expression.test().words().iter().map(|word| word.text()).collect();
        let meant: Vec<&str> = values.iter().map(|(_, text)| text.as_str()).collect();
        prop_assert_eq!(texts, meant);
        prop_assert_eq!(expression.test().is_negative(), matches!(operator, "!=" | "not in"));
        prop_assert_eq!(expression.to_string(), text);
    }

    #[test]
    fn whatever_is_read_prints_as_it_was_written_and_reads_alike(
        text in "[a-z]{0,3} ?(=|!=|<|>=|in|not in|exists|not exists|[=!<>]{1,3})? ?[-a-z0-9.(),\"'\\\\ é]{0,12}",
    ) {
        match text.parse::<Expression>() {
            Ok(expression) => {
                prop_assert_eq!(expression.to_string(), text.as_str());
                prop_assert_eq!(expression.to_string().parse(), Ok(expression));
            }
            Err(error) => prop_assert!((1..=text.chars().count() + 1).contains(&error.column)),
        }
    }

    #[test]
    fn any_text_is_read_or_refused_at_a_column_it_has(text in any::<String>(), value in any::<String>()) {
        match text.parse::<Expression>() {
            Ok(expression) => {
                let _ = expression.test().holds_for(&value);
            }
            Err(error) => prop_assert!((1..=text.chars().count() + 1).contains(&error.column)),
        }
    }
}
