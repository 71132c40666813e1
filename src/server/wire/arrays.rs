//! StartArray: an array as it comes and as it was kept. The START of one element as its launcher is to read it is made in
//! `elements`.
//!
//! ```text
//! start:                              start:
//!   instance_uuid: THE ARRAY'S          instance_uuid: THE ELEMENT'S
//!   command: [sim, "{index}"]           command: [sim, "17"]
//!   scheduling: {name: sweep}           scheduling: {name: sweep-17}
//!                                       env: {CIAO_ARRAY_INDEX: "17", …}
//! ```
//!
//! The text of an element is made when it leaves, outside the core's lock. What could not be made into one is refused when the
//! array comes.

use bytes::Bytes;
use proto_frames::payload::array::{
    INDEX_PLACEHOLDER, Indexes, MAX_ELEMENTS, StartArray, VALUE_PLACEHOLDER,
};
use proto_frames::payload::guard::{SMALL, first_document};
use proto_frames::payload::scheduling::is_instance_name;
use proto_frames::payload::{ArrayOrder, Fault, Payload, PayloadError, Start};
use proto_frames::{Frame, Kind, Uuid};

use super::elements::{added_by_quotes, has_placeholder, of_element};
use super::inputs::Unusable;
use super::{parcels, starts};
use sched_core::{
    ArrayCommand, ArrayStart, Command, ElementId, ElementStart, InstanceId, RestoredStart, Values,
};

/// What the keys that are added to each element take at most, in bytes.
const ADDED: usize = 1024;

/// An array, or what is to be done about one.
pub(super) fn read(payload: &Bytes) -> Result<Command, Unusable> {
    let order = ArrayOrder::decode(payload)?;
    if order.part.rerun {
        return rerun(&order.part);
    }
    if !order.part.array_uuid.is_empty() {
        let needs = "rerun: true";
        return wrong("array_uuid", Fault::OnlyWith { needs });
    }
    let Some((start, values)) = order.parts() else {
        let found = format!("{} of {}", order.part.start_bytes, order.data.len());
        let expected = "no more than the bytes that follow";
        return wrong("start_bytes", Fault::wrong_text(expected, &found));
    };
    let request = starts::read(&start)?;
    let instance = request.instance.clone();
    let InstanceId::Uuid(id) = instance else {
        let expected = "the UUID of the array";
        let error = PayloadError::new(
            "start.instance_uuid",
            Fault::wrong_text(expected, &instance.to_string()),
        );
        return Err(Unusable::from(error).of(Some(instance)));
    };
    let of_array = |unusable: Unusable| unusable.of(Some(instance.clone()));
    let read = checked(&order.part, (id, &start), values).map_err(of_array)?;
    let parcel = parcels::parcel(Frame::new(Kind::START, Uuid::nil(), start));
    Ok(Command::Array(ArrayCommand::Start(Box::new(ArrayStart {
        id,
        indexes: read.0,
        running_max: order.part.running_max,
        start: Box::new(RestoredStart { request, parcel }),
        values: read.1,
    }))))
}

fn rerun(head: &StartArray) -> Result<Command, Unusable> {
    let array = InstanceId::new(&head.array_uuid);
    match array {
        InstanceId::Uuid(_) => Ok(Command::Array(ArrayCommand::Rerun(array))),
        _ => wrong(
            "array_uuid",
            Fault::wrong_text("the UUID of an array", &head.array_uuid),
        ),
    }
}

/// An error about a key of `start_array`.
fn wrong<T>(key: &str, fault: Fault) -> Result<T, Unusable> {
    Err(PayloadError::new(format!("start_array.{key}"), fault).into())
}

/// Indexes and values of an array whose elements can all be started.
fn checked(
    head: &StartArray,
    (id, start): (Uuid, &Bytes),
    values: Bytes,
) -> Result<(Indexes, Values), Unusable> {
    if std::str::from_utf8(&values).is_err() {
        return wrong(
            "bytes",
            Fault::Syntax("the values are not UTF-8".to_owned()),
        );
    }
    let Some(values) = Values::of_lines(values) else {
        return wrong("bytes", Fault::TooLarge);
    };
    let indexes = match head.indexes.as_str() {
        "" => Indexes::first(u32::try_from(values.count()).unwrap_or(u32::MAX)),
        text => match text.parse() {
            Ok(indexes) => indexes,
            Err(fault) => return wrong("indexes", fault),
        },
    };
    if indexes.count() == 0 {
        return wrong("indexes", Fault::Missing);
    }
    if indexes.count() > MAX_ELEMENTS {
        let max = MAX_ELEMENTS as usize;
        return wrong("indexes", Fault::TooManyEntries { max });
    }
    if head.running_max == Some(0) {
        let fault = Fault::OutOfRange {
            value: 0,
            min: 1,
            max: MAX_ELEMENTS.into(),
        };
        return wrong("running_max", fault);
    }
    if values.count() > 0 && values.count() != indexes.count() as usize {
        let found = format!("{} values for {} indexes", values.count(), indexes.count());
        return wrong("indexes", Fault::wrong_text("one value for each", &found));
    }
    check_start((id, start), &indexes, &values)?;
    Ok((indexes, values))
}

/// Whether the START of each element can be made.
fn check_start(
    (id, payload): (Uuid, &Bytes),
    indexes: &Indexes,
    values: &Values,
) -> Result<(), Unusable> {
    let start = Start::decode(payload)?;
    let places = placeholders(&start);
    if places.values > 0 && values.count() == 0 {
        let found = format!("{VALUE_PLACEHOLDER} in the START, and no values");
        return wrong("bytes", Fault::wrong_text("a value for each index", &found));
    }
    let longest = (0..values.count() as u32)
        .map(|it| values.at(it).len())
        .max();
    // A character takes four bytes at most where it is written as an escape.
    let own = 4 * places.values * longest.unwrap_or_default() + 16 * places.indexes;
    let added = ADDED + own + places.quotes;
    let document = first_document(payload, SMALL)?;
    if document.len() + added > SMALL.max_len {
        let max = SMALL.max_len;
        return Err(PayloadError::new("start", Fault::TooLong { max }).into());
    }
    let array_name = start.scheduling.as_ref().map_or("", |it| &it.name);
    let last = ElementStart {
        id: ElementId {
            array: id,
            index: indexes.last(),
        },
        array_name: array_name.into(),
        count: indexes.count(),
        value: Bytes::new(),
    };
    let name = last.name();
    if !name.is_empty() && !is_instance_name(&name) {
        let fault = Fault::NotAnInstanceName(name);
        return Err(PayloadError::new("start.scheduling.name", fault).into());
    }
    let made = of_element(payload, &last).and_then(|text| Start::decode(&text).ok());
    let is_made = made.is_some_and(|made| {
        made.instance_uuid == last.id.instance().to_string()
            && made.command.len() == start.command.len()
    });
    match is_made {
        true => Ok(()),
        false => Err(PayloadError::new(
            "start",
            Fault::wrong_text(
                "mappings under start, start.env and start.scheduling",
                "something else",
            ),
        )
        .into()),
    }
}

/// How often each placeholder stands in a START.
#[derive(Debug, Default)]
struct Places {
    indexes: usize,
    values: usize,
    /// Bytes by which texts with placeholders may grow where they are written again, in quotes.
    quotes: usize,
}

fn placeholders(start: &Start) -> Places {
    let texts = start.command.iter().chain(start.env.values());
    let texts = texts.chain([&start.working_dir]);
    texts.fold(Places::default(), |places, text| Places {
        indexes: places.indexes + text.matches(INDEX_PLACEHOLDER).count(),
        values: places.values + text.matches(VALUE_PLACEHOLDER).count(),
        quotes: match has_placeholder(text) {
            true => places.quotes + added_by_quotes(text),
            false => places.quotes,
        },
    })
}

/// What the longest text of an element may add to that of its array, for queues.
pub(super) fn cost(element: &ElementStart) -> usize {
    ADDED + 4 * element.value.len()
}

#[cfg(test)]
mod tests {
    use proto_frames::Kind;
    use proto_frames::payload::array::StartArray;
    use proto_frames::payload::{ArrayOrder, Payload};

    use super::super::inputs::tests::{input_of, malformed};
    use sched_core::{Command, Input};

    const ARRAY: &str = "67d86208-b46c-4465-9018-e14187d4010f";

    fn template(rest: &str) -> String {
        format!(
            "start:\n  instance_uuid: {ARRAY}\n  vm_type: process\n  unknown: 3\n{rest}  requirements: {{mem_mb: 1, vcpus: 1}}\n"
        )
    }

    fn order(head: StartArray, start: &str, values: &str) -> String {
        let order = ArrayOrder::of(head, start.as_bytes(), values.as_bytes());
        String::from_utf8(order.encode().to_vec()).expect("it is text")
    }

    fn head(indexes: &str) -> StartArray {
        StartArray {
            indexes: indexes.into(),
            ..StartArray::default()
        }
    }

    #[test]
    fn an_array_is_read_with_its_values() {
        let start = template("  command: [sim, '{value}']\n");
        let payload = order(head(""), &start, "a\nb\n");
        let Input::Command {
            command: Command::Array(sched_core::ArrayCommand::Start(array)),
            ..
        } = input_of(Kind::START_ARRAY, &payload)
        else {
            panic!("it can be read");
        };
        assert_eq!(array.id.to_string(), ARRAY);
        assert_eq!(array.indexes.to_string(), "0-1");
        assert_eq!(array.values.at(1), "b");
        assert_eq!(array.start.parcel.payload, start);
    }

    #[test]
    fn what_no_element_can_be_made_of_is_refused_by_its_key() {
        let plain = template("");
        let with_value = template("  command: [sim, '{value}']\n");
        let no_uuid = plain.replace(ARRAY, "web");
        let long = template(&format!("  scheduling: {{name: {}}}\n", "x".repeat(62)));
        let none = StartArray {
            running_max: Some(0),
            ..head("0-1")
        };
        let longest = "x".repeat(100_000);
        for (head, start, values, said) in [
            (head("1-0"), &plain, "", "start_array.indexes"),
            (head(""), &plain, "", "start_array.indexes"),
            (head("0-2"), &plain, "a\n", "start_array.indexes"),
            (head("0-1"), &with_value, "", "start_array.bytes"),
            (none, &plain, "", "start_array.running_max"),
            (head("0-1"), &no_uuid, "", "start.instance_uuid"),
            (head("0-1"), &long, "", "start.scheduling.name"),
            (head("0"), &with_value, &*longest, "start"),
        ] {
            let found = malformed(Kind::START_ARRAY, &order(head, start, values));
            assert!(found.detail.starts_with(said), "{said}: {}", found.detail);
        }
    }
}
