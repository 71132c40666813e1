//! Arrays: many instances of one START, which differ in their index and in a value (added by this project).

use std::fmt;
use std::str::FromStr;

use uuid::Uuid;

use crate::error::Fault;
use crate::{record, words};

/// Most elements of one array: a state of each is kept in memory, and in the worst case two bytes of each are written with
/// every change.
pub const MAX_ELEMENTS: u32 = 100_000;

/// The highest index: with nine digits every name and every log line has a place for it.
pub const MAX_INDEX: u32 = 999_999_999;

/// What stands for an element's index in its command, its environment and its directory.
pub const INDEX_PLACEHOLDER: &str = "{index}";

/// What stands for its value there.
pub const VALUE_PLACEHOLDER: &str = "{value}";

/// The UUID of an element's instance: it differs from the array's in the first 32 bits alone, which are what people see of
/// it. Of an element's UUID and its index, the array's UUID.
#[must_use]
pub fn element_uuid(array: Uuid, index: u32) -> Uuid {
    Uuid::from_u128(array.as_u128() ^ ((u128::from(index) + 1) << 96))
}

/// The index of the element whose instance has this UUID, were it of this array; `None` if it cannot be one of it.
#[must_use]
pub fn element_index(array: Uuid, instance: Uuid) -> Option<u32> {
    let differs = array.as_u128() ^ instance.as_u128();
    let is_one = differs << 32 == 0;
    u32::try_from(differs >> 96)
        .ok()
        .filter(|_| is_one)?
        .checked_sub(1)
}

record! {
    /// `start_array: {indexes, running_max, start_bytes, bytes}`: a new array; or `{array_uuid, rerun}`: what did not
    /// succeed of one that is there is to run once more.
    pub struct StartArray {
        /// The indexes of its elements, ascending: `0-499`, `1,2,10-20`; empty: from 0, as many as there are values.
        indexes: String as "indexes" unless empty,
        /// How many elements may hold a claim at the same time; `None` = as many as fit.
        running_max: Option<u32> as "running_max" unless empty,
        /// How many of the bytes that follow are the START of each element: its `instance_uuid` is the array's UUID, and
        /// `scheduling.name` the array's name. The others are the values, one a line.
        start_bytes: u64 as "start_bytes" unless empty,
        /// How many bytes follow the document.
        bytes: u64 as "bytes" unless empty,
        /// The array of which something is to run once more.
        array_uuid: String as "array_uuid" unless empty,
        /// Whether what has ended without success of that array is to run once more.
        rerun: bool as "rerun" unless empty,
    }
}

record! {
    /// An array as the scheduler sees it.
    pub struct ArrayView {
        /// The array.
        array_uuid: String as "array_uuid",
        /// What it is called; its elements are called so with `-` and their index behind.
        name: String as "name" unless empty,
        /// Its tenant.
        tenant: String as "tenant_uuid" unless empty,
        /// How far it is.
        state: ArrayState as "state",
        /// The indexes of its elements.
        indexes: String as "indexes",
        /// How many elements it has.
        elements: u64 as "elements",
        /// Those that are not instances yet.
        waiting: u64 as "waiting",
        /// Those that are instances and wait for a node: the array's place in the queue.
        queued: u64 as "queued",
        /// Those that hold a claim on a node.
        running: u64 as "running",
        /// Those that have ended with exit status 0.
        succeeded: u64 as "succeeded",
        /// Those that have ended otherwise.
        failed: u64 as "failed",
        /// Those whose START failed, or whose time to wait was over.
        not_started: u64 as "not_started",
        /// Those of which it is not known how they ended.
        unknown: u64 as "unknown",
        /// Those that were deleted, before they began or later.
        deleted: u64 as "deleted",
        /// How many may hold a claim at the same time; `None` = as many as fit.
        running_max: Option<u64> as "running_max" unless empty,
        /// Its priority.
        priority: i64 as "priority",
        /// When it came, milliseconds of Unix time.
        submitted_at_ms: i64 as "submitted_at_ms",
        /// Until when its elements may wait to begin, milliseconds of Unix time.
        deadline_at_ms: Option<i64> as "deadline_at_ms" unless empty,
        /// When the last of its elements ended, milliseconds of Unix time; `None` = not yet.
        ended_at_ms: Option<i64> as "ended_at_ms" unless empty,
        /// The element that waits for a node, if one does: what keeps it waiting keeps the array.
        queued_instance_uuid: String as "queued_instance_uuid" unless empty,
    }
}

words! {
    /// How far an array is.
    pub enum ArrayState {
        /// None of its elements holds a claim, and some have not ended.
        Waiting = "waiting",
        /// Some hold a claim.
        Running = "running",
        /// All have ended.
        Ended = "ended",
    }
}

impl ArrayView {
    /// Elements that have ended without success.
    #[must_use]
    pub fn not_succeeded(&self) -> u64 {
        self.failed + self.not_started + self.unknown + self.deleted
    }

    /// Elements that have ended.
    #[must_use]
    pub fn ended(&self) -> u64 {
        self.succeeded + self.not_succeeded()
    }
}

/// The indexes of an array's elements, ascending, as ranges.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Indexes {
    /// First and last index of each, and how many elements stand before it.
    ranges: Vec<(u32, u32, u32)>,
}

impl Indexes {
    /// So many, from 0.
    #[must_use]
    pub fn first(count: u32) -> Self {
        let ranges = count.checked_sub(1).map(|last| (0, last, 0));
        Self {
            ranges: ranges.into_iter().collect(),
        }
    }

    /// How many there are.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.ranges
            .last()
            .map_or(0, |(first, last, before)| before + (last - first) + 1)
    }

    /// The index at a position, from 0.
    #[must_use]
    pub fn at(&self, position: u32) -> Option<u32> {
        let range = self.ranges.partition_point(|range| range.2 <= position);
        let (first, last, before) = *self.ranges.get(range.checked_sub(1)?)?;
        Some(first + (position - before)).filter(|index| *index <= last)
    }

    /// The position of an index.
    #[must_use]
    pub fn position(&self, index: u32) -> Option<u32> {
        let range = self.ranges.partition_point(|range| range.0 <= index);
        let (first, last, before) = *self.ranges.get(range.checked_sub(1)?)?;
        (index <= last).then(|| before + (index - first))
    }

    /// The highest.
    #[must_use]
    pub fn last(&self) -> u32 {
        self.ranges.last().map_or(0, |range| range.1)
    }
}

/// What is expected of a list of indexes.
const EXPECTED: &str = "ascending indexes such as 0-499 or 1,2,10-20, of at most nine digits";

impl FromStr for Indexes {
    type Err = Fault;

    fn from_str(text: &str) -> Result<Self, Fault> {
        let wrong = || Fault::wrong_text(EXPECTED, text);
        let mut indexes = Self::default();
        for part in text.split(',') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let number = |text: &str| {
                let is_number =
                    (1..=9).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
                let number = is_number.then(|| text.parse().ok()).flatten();
                number.filter(|number: &u32| *number <= MAX_INDEX)
            };
            let (first, last) = (
                number(first).ok_or_else(wrong)?,
                number(last).ok_or_else(wrong)?,
            );
            let before = indexes.ranges.last().map(|range| range.1);
            if last < first || before.is_some_and(|before| first <= before) {
                return Err(wrong());
            }
            let count = indexes.count();
            if count.saturating_add((last - first).saturating_add(1)) > MAX_ELEMENTS {
                return Err(Fault::TooManyEntries {
                    max: MAX_ELEMENTS as usize,
                });
            }
            indexes.ranges.push((first, last, count));
        }
        Ok(indexes)
    }
}

impl fmt::Display for Indexes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (first, last, _)) in self.ranges.iter().enumerate() {
            if at > 0 {
                f.write_str(",")?;
            }
            match first == last {
                true => write!(f, "{first}")?,
                false => write!(f, "{first}-{last}")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{Indexes, MAX_ELEMENTS, MAX_INDEX, element_index, element_uuid};
    use crate::Uuid;

    #[test]
    fn an_elements_uuid_leads_back_to_its_index() {
        for array in
            [0, 7, u128::MAX, 0xa77a_0000_0000_4000_8000_0000_0000_0001].map(Uuid::from_u128)
        {
            for index in [0, 1, 499, MAX_INDEX] {
                let instance = element_uuid(array, index);
                assert_eq!(element_index(array, instance), Some(index));
                let other = Uuid::from_u128(array.as_u128() ^ 1);
                assert_eq!(element_index(other, instance), None);
            }
            assert_eq!(element_index(array, array), None);
        }
    }

    #[test]
    fn positions_and_indexes_lead_to_each_other() {
        let indexes: Indexes = "0-2,5,7-9".parse().expect("these are indexes");
        let all: Vec<u32> = (0..indexes.count())
            .filter_map(|it| indexes.at(it))
            .collect();
        assert_eq!(all, [0, 1, 2, 5, 7, 8, 9]);
        assert_eq!(indexes.at(7), None);
        for (position, index) in all.iter().enumerate() {
            assert_eq!(indexes.position(*index), Some(position as u32));
        }
        for other in [3, 4, 6, 10] {
            assert_eq!(indexes.position(other), None, "{other}");
        }
        assert_eq!(indexes.to_string(), "0-2,5,7-9");
        assert_eq!(Indexes::first(3).to_string(), "0-2");
        assert_eq!(
            (Indexes::first(0).count(), Indexes::first(0).at(0)),
            (0, None)
        );
    }

    #[test]
    fn what_is_no_list_of_indexes_is_refused() {
        for text in [
            "",
            "a",
            "1-",
            "-1",
            "2-1",
            "1,1",
            "3,2",
            "1,,2",
            " 1",
            "0-4294967296",
            "+1",
        ] {
            assert!(text.parse::<Indexes>().is_err(), "{text}");
        }
        let most = format!("1-{MAX_ELEMENTS}");
        assert_eq!(
            most.parse::<Indexes>().map(|it| it.count()),
            Ok(MAX_ELEMENTS)
        );
        let more = format!("0-{MAX_ELEMENTS}").parse::<Indexes>();
        assert!(more.is_err_and(|fault| fault.to_string().contains("100000")));
    }
}
