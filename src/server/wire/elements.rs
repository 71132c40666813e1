//! The START of one element of an array, made of the array's START.
//!
//! That is read and written once for all elements that follow each other: it is cut where they differ ([`Template`]), and
//! each element is the same pieces with its own text between them. An array of 100,000 elements is 100,000 copies of some
//! hundred bytes, where reading and writing YAML took a sixth of the scheduler's time for each.
//!
//! ```text
//! start:                           pieces:  start:↵  instance_uuid: ▯
//!   instance_uuid: THE ARRAY'S              ↵  command:↵  - sim↵  - ▯
//!   command: [sim, "{index}"]               ↵  env:↵    CIAO_ARRAY_INDEX: ▯ …
//! ```
//!
//! Called by the receiver's writer, outside the core's lock.

use std::cell::RefCell;

use bytes::Bytes;
use proto_frames::Uuid;
use proto_frames::payload::array::{INDEX_PLACEHOLDER, VALUE_PLACEHOLDER};
use proto_frames::payload::guard::{SMALL, first_document};
use serde_yaml::{Mapping, Value};

use super::changes::{child, written_again};
use sched_core::ElementStart;

/// Stands where an element has its own text while the rest is written: followed by its number and [`MARK_END`]. With letters
/// added until the START has nothing of that kind.
const MARK: &str = "ciaoelement";

/// Ends the number of a mark.
const MARK_END: &str = "of";

thread_local! {
    /// The template that this thread has used last: elements of an array leave one after the other. It keeps a START in memory, of
    /// 64 KiB at most, twice.
    static LATEST: RefCell<Option<Template>> = const { RefCell::new(None) };
}

/// The START of one element; `None` where the text has no place for what is to be said, which is looked at when the array
/// comes.
pub(super) fn of_element(payload: &Bytes, element: &ElementStart) -> Option<Bytes> {
    LATEST.with_borrow_mut(|latest| {
        let kept = latest.take().filter(|it| it.is_for(payload, element));
        let template = match kept {
            Some(template) => template,
            None => Template::of(payload, element)?,
        };
        latest.insert(template).fill(element)
    })
}

/// The START of an array, cut where its elements differ.
#[derive(Debug)]
struct Template {
    /// What it was made of.
    payload: Bytes,
    array: Uuid,
    array_name: Box<str>,
    count: u32,
    /// Whether an element has a variable with its value.
    with_value: bool,
    pieces: Vec<Piece>,
}

#[derive(Debug)]
enum Piece {
    /// The same for all.
    Same(Bytes),
    /// A scalar that is another one for each.
    Own(Scalar),
}

/// What an element says in its own words.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Scalar {
    /// Its UUID.
    Instance,
    /// What it is called.
    Name,
    /// This text, with its index and its value in place of what stands for them.
    Filled(String),
}

impl Template {
    fn of(payload: &Bytes, element: &ElementStart) -> Option<Self> {
        let document = first_document(payload, SMALL).ok()?;
        let mut root: Value = serde_yaml::from_slice(document).ok()?;
        let mut marks = Marks::unlike(payload, &element.array_name);
        let start = child(root.as_mapping_mut()?, "start")?;
        for key in ["command", "env", "working_dir"] {
            if let Some(found) = start.get_mut(key) {
                marks.cut_all(found);
            }
        }
        start.insert("instance_uuid".into(), marks.cut(Scalar::Instance));
        if !element.array_name.is_empty() {
            child(start, "scheduling")?.insert("name".into(), marks.cut(Scalar::Name));
        }
        let with_value = has_variable(element);
        let env: &mut Mapping = child(start, "env")?;
        for (name, text) in [
            ("CIAO_ARRAY_ID", element.id.array.to_string()),
            ("CIAO_ARRAY_NAME", element.array_name.to_string()),
            ("CIAO_ARRAY_COUNT", element.count.to_string()),
        ] {
            if !text.is_empty() {
                env.insert(name.into(), text.into());
            }
        }
        let index = Scalar::Filled(INDEX_PLACEHOLDER.to_owned());
        env.insert("CIAO_ARRAY_INDEX".into(), marks.cut(index));
        if with_value {
            let value = Scalar::Filled(VALUE_PLACEHOLDER.to_owned());
            env.insert("CIAO_ARRAY_VALUE".into(), marks.cut(value));
        }
        let text = written_again(payload, document, &root)?;
        Some(Self {
            payload: payload.clone(),
            array: element.id.array,
            array_name: element.array_name.clone(),
            count: element.count,
            with_value,
            pieces: marks.pieces(&text)?,
        })
    }

    /// Whether this element's START can be made of it.
    fn is_for(&self, payload: &Bytes, element: &ElementStart) -> bool {
        self.payload == *payload
            && self.array == element.id.array
            && self.array_name == element.array_name
            && self.count == element.count
            && self.with_value == has_variable(element)
    }

    fn fill(&self, element: &ElementStart) -> Option<Bytes> {
        let index = element.id.index.to_string();
        let value = std::str::from_utf8(&element.value).ok()?;
        let mut text = Vec::with_capacity(self.payload.len() + super::arrays::cost(element));
        for piece in &self.pieces {
            match piece {
                Piece::Same(same) => text.extend_from_slice(same),
                Piece::Own(Scalar::Instance) => {
                    quote(&element.id.instance().to_string(), &mut text);
                }
                Piece::Own(Scalar::Name) => quote(&element.name(), &mut text),
                Piece::Own(Scalar::Filled(with)) => quote(&fill(with, &index, value), &mut text),
            }
        }
        Some(text.into())
    }
}

/// Whether there is a variable with its value: a null character ends no variable that a program could read.
fn has_variable(element: &ElementStart) -> bool {
    !element.value.is_empty() && !element.value.contains(&0)
}

/// Scalars that stand in a document as marks.
#[derive(Debug)]
struct Marks {
    /// How each begins.
    mark: String,
    scalars: Vec<Scalar>,
}

impl Marks {
    /// Marks that are found neither in this payload nor in this name.
    fn unlike(payload: &[u8], name: &str) -> Self {
        let mut mark = MARK.to_owned();
        let has =
            |text: &[u8], mark: &str| text.windows(mark.len()).any(|it| it == mark.as_bytes());
        while has(payload, &mark) || has(name.as_bytes(), &mark) {
            mark.push('x');
        }
        Self {
            mark,
            scalars: Vec::new(),
        }
    }

    /// What stands in the document for one.
    fn cut(&mut self, scalar: Scalar) -> Value {
        let number = self.scalars.len();
        self.scalars.push(scalar);
        format!("{}{number}{MARK_END}", self.mark).into()
    }

    /// Cuts every text with a placeholder in a value, a list or a mapping.
    fn cut_all(&mut self, value: &mut Value) {
        match value {
            Value::String(text) if has_placeholder(text) => {
                let text = std::mem::take(text);
                *value = self.cut(Scalar::Filled(text));
            }
            Value::Sequence(values) => values.iter_mut().for_each(|it| self.cut_all(it)),
            Value::Mapping(values) => values.values_mut().for_each(|it| self.cut_all(it)),
            _ => {}
        }
    }

    /// The text cut at its marks. `None` unless each stands in it once.
    fn pieces(self, text: &Bytes) -> Option<Vec<Piece>> {
        let mut scalars: Vec<Option<Scalar>> = self.scalars.into_iter().map(Some).collect();
        let (mut pieces, mut from) = (Vec::new(), 0);
        while let Some(at) = find(&text[from..], self.mark.as_bytes()) {
            let number_at = from + at + self.mark.len();
            let digits = find(&text[number_at..], MARK_END.as_bytes())?;
            let number = std::str::from_utf8(&text[number_at..number_at + digits]).ok()?;
            let scalar = scalars.get_mut(number.parse::<usize>().ok()?)?.take()?;
            pieces.push(Piece::Same(text.slice(from..from + at)));
            pieces.push(Piece::Own(scalar));
            from = number_at + digits + MARK_END.len();
        }
        pieces.push(Piece::Same(text.slice(from..)));
        scalars.iter().all(Option::is_none).then_some(pieces)
    }
}

fn find(text: &[u8], what: &[u8]) -> Option<usize> {
    text.windows(what.len()).position(|it| it == what)
}

/// Whether an element has something else in its place.
pub(super) fn has_placeholder(text: &str) -> bool {
    text.contains(INDEX_PLACEHOLDER) || text.contains(VALUE_PLACEHOLDER)
}

/// A text with the index and the value in place of what stands for them. What a value says is not looked at again.
fn fill(text: &str, index: &str, value: &str) -> String {
    let mut filled = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('{') {
        filled.push_str(&rest[..at]);
        rest = &rest[at..];
        let (placeholder, text) = if rest.starts_with(INDEX_PLACEHOLDER) {
            (INDEX_PLACEHOLDER, index)
        } else if rest.starts_with(VALUE_PLACEHOLDER) {
            (VALUE_PLACEHOLDER, value)
        } else {
            ("{", "{")
        };
        filled.push_str(text);
        rest = &rest[placeholder.len()..];
    }
    filled.push_str(rest);
    filled
}

/// Appends a text as a double-quoted scalar of YAML, on one line (YAML 1.2, section 7.3.1; what is not printable by section
/// 5.1, and what breaks lines by YAML 1.1, section 5.4, as escapes of section 5.7).
fn quote(text: &str, to: &mut Vec<u8>) {
    to.push(b'"');
    for char in text.chars() {
        let escape = match char {
            '"' => "\\\"".to_owned(),
            '\\' => "\\\\".to_owned(),
            '\n' => "\\n".to_owned(),
            '\t' => "\\t".to_owned(),
            ' '..='~' | '\u{a0}'..='\u{2027}' | '\u{202a}'..='\u{d7ff}' => {
                to.extend_from_slice(char.encode_utf8(&mut [0; 4]).as_bytes());
                continue;
            }
            '\u{e000}'..='\u{fefe}' | '\u{ff00}'..='\u{fffd}' | '\u{10000}'.. => {
                to.extend_from_slice(char.encode_utf8(&mut [0; 4]).as_bytes());
                continue;
            }
            '\0'..='\u{9f}' => format!("\\x{:02X}", u32::from(char)),
            _ => format!("\\u{:04X}", u32::from(char)),
        };
        to.extend_from_slice(escape.as_bytes());
    }
    to.push(b'"');
}

/// How much longer a text may become by being quoted, in bytes.
pub(super) fn added_by_quotes(text: &str) -> usize {
    let mut quoted = Vec::with_capacity(text.len() + 2);
    quote(text, &mut quoted);
    quoted.len().saturating_sub(text.len())
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use proptest::prelude::*;
    use proto_frames::Uuid;
    use proto_frames::payload::{Payload, Start};

    use super::{added_by_quotes, fill, of_element};
    use sched_core::{ElementId, ElementStart};

    const ARRAY: &str = "67d86208-b46c-4465-9018-e14187d4010f";

    fn template(rest: &str) -> String {
        format!(
            "start:\n  instance_uuid: {ARRAY}\n  vm_type: process\n  unknown: 3\n{rest}  requirements: {{mem_mb: 1, vcpus: 1}}\n"
        )
    }

    fn element(index: u32, array_name: &str, value: &str) -> ElementStart {
        ElementStart {
            id: ElementId {
                array: ARRAY.parse::<Uuid>().expect("it is a UUID"),
                index,
            },
            array_name: array_name.into(),
            count: 20,
            value: Bytes::copy_from_slice(value.as_bytes()),
        }
    }

    #[test]
    fn an_element_is_a_start_of_its_own_and_keeps_all_else() {
        let start = template(
            "  command: [sim, '{index}', 'a{value}b', '{other}']\n  env: {V: '{value}'}\n  scheduling: {name: sweep}\n",
        );
        let element = element(17, "sweep", "{index}: [\"x\n'");
        let text = of_element(&Bytes::from(start + "...\nmore\n"), &element).expect("it is made");
        assert!(text.ends_with(b"...\nmore\n"));
        assert!(String::from_utf8_lossy(&text).contains("unknown: 3"));
        let made = Start::decode(&text).expect("it can be read");
        assert_eq!(made.command, ["sim", "17", "a{index}: [\"x\n'b", "{other}"]);
        assert_eq!(made.instance_uuid, element.id.instance().to_string());
        assert_eq!(made.scheduling.expect("it has a name").name, "sweep-17");
        let variable = |name: &str| made.env.get(name).map(String::as_str);
        assert_eq!(variable("V"), Some("{index}: [\"x\n'"));
        assert_eq!(variable("CIAO_ARRAY_INDEX"), Some("17"));
        assert_eq!(variable("CIAO_ARRAY_COUNT"), Some("20"));
        assert_eq!(variable("CIAO_ARRAY_NAME"), Some("sweep"));
        assert_eq!(variable("CIAO_ARRAY_ID"), Some(ARRAY));
    }

    #[test]
    fn placeholders_are_replaced_once() {
        for (text, expected) in [
            ("", ""),
            ("{index}", "7"),
            ("{index", "{index"),
            ("{{index}}", "{7}"),
            ("{value}{index}x", "{value}7x"),
        ] {
            assert_eq!(fill(text, "7", "{value}"), expected, "{text}");
        }
    }

    #[test]
    fn a_start_that_has_the_words_of_a_mark_is_cut_at_others() {
        let words = "ciaoelement0of ciaoelementx1of";
        let start = template(&format!("  command: [sim, '{words}', '{{index}}']\n"));
        let named = element(3, "ciaoelementxx1of", "");
        let text = of_element(&start.into(), &named).expect("it is made");
        let made = Start::decode(&text).expect("it can be read");
        assert_eq!(made.command, ["sim", words, "3"]);
        assert_eq!(
            made.scheduling.unwrap_or_default().name,
            "ciaoelementxx1of-3"
        );
    }

    /// Texts with what YAML has a meaning for, and with placeholders.
    fn text() -> impl Strategy<Value = String> {
        let piece = prop_oneof![
            "\\PC{0,6}",
            any::<char>().prop_map(String::from),
            Just("{index}".to_owned()),
            Just("{value}".to_owned()),
            Just("\n - \"'#:\\ \t".to_owned()),
            Just("\u{7f}\u{85}\u{2028}\u{feff}".to_owned()),
        ];
        prop::collection::vec(piece, 0..5).prop_map(|it| it.concat())
    }

    proptest! {
        /// Against the START with its fields replaced one by one.
        #[test]
        fn elements_say_what_their_array_says_with_their_own_in_place(
            words in prop::collection::vec(text(), 1..4),
            variable in text(),
            (name, dir) in (prop_oneof![Just(""), Just("sweep")], text()),
            elements in prop::collection::vec((0_u32..1000, text()), 1..4),
        ) {
            let array = Start {
                instance_uuid: ARRAY.to_owned(),
                command: words,
                env: [("V".to_owned(), variable)].into(),
                working_dir: dir,
                ..Start::default()
            };
            let payload = array.encode();
            // What cannot be read back is refused when it comes.
            let Ok(array) = Start::decode(&payload) else {
                return Ok(());
            };
            for (index, value) in elements {
                let element = element(index, name, &value);
                let text = of_element(&payload, &element).expect("it is made");
                let added = 1024 + array.command.iter().chain(array.env.values()).chain([&array.working_dir])
                    .map(|it| added_by_quotes(it) + it.matches('{').count() * (4 * value.len() + 16))
                    .sum::<usize>();
                prop_assert!(text.len() <= payload.len() + added + 4 * value.len());
                let made = match Start::decode(&text) {
                    Ok(made) => made,
                    // No program could be given it.
                    Err(_) if value.contains('\0') => continue,
                    Err(error) => panic!("{error}: {}", String::from_utf8_lossy(&text)),
                };
                let index = index.to_string();
                let filled = |it: &String| fill(it, &index, &value);
                let command: Vec<_> = array.command.iter().map(filled).collect();
                prop_assert_eq!(made.command, command);
                prop_assert_eq!(made.working_dir, filled(&array.working_dir));
                prop_assert_eq!(&made.env["V"], &filled(&array.env["V"]));
                prop_assert_eq!(&made.env["CIAO_ARRAY_INDEX"], &index);
                let own = made.env.get("CIAO_ARRAY_VALUE").map_or("", String::as_str);
                prop_assert!(own == value || value.contains('\0'));
                prop_assert_eq!(made.instance_uuid, element.id.instance().to_string());
                prop_assert_eq!(made.scheduling.unwrap_or_default().name, element.name());
            }
        }
    }
}
