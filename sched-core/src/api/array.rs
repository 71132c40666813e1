//! Arrays as they come in, and their elements as parts of STARTs. What becomes of them is in `arrays`.

use std::sync::Arc;

use bytes::Bytes;
use sched_model::array::element_uuid;
use sched_model::{Indexes, Uuid};

use crate::api::ids::InstanceId;
use crate::api::start::RestoredStart;

/// An array to be started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArrayStart {
    /// The array.
    pub id: Uuid,
    /// The indexes of its elements: at least one.
    pub indexes: Indexes,
    /// How many of them may hold a claim at the same time, at least 1; `None` = as many as fit.
    pub running_max: Option<u32>,
    /// The START of each, as the array's: its instance is the array's UUID, and its name the array's.
    pub start: Box<RestoredStart>,
    /// The value of each, in the order of the indexes; none where they have no values.
    pub values: Values,
}

/// The values of an array's elements: lines of UTF-8.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Values {
    bytes: Bytes,
    /// Where each ends.
    ends: Arc<[u32]>,
}

impl Values {
    /// The lines of a text, without what ends them; an empty text has none. `None` if it is longer than 4 GiB.
    #[must_use]
    pub fn of_lines(bytes: Bytes) -> Option<Self> {
        u32::try_from(bytes.len()).ok()?;
        let is_end = |(_, byte): &(usize, &u8)| **byte == b'\n';
        let ends = bytes.iter().enumerate().filter(is_end);
        let mut ends: Vec<u32> = ends.map(|(at, _)| at as u32).collect();
        if bytes.last().is_some_and(|last| *last != b'\n') {
            ends.push(bytes.len() as u32);
        }
        let ends = ends.into();
        Some(Self { bytes, ends })
    }

    /// How many there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.ends.len()
    }

    /// The value at a position, from 0; empty where there is none.
    #[must_use]
    pub fn at(&self, position: u32) -> Bytes {
        let position = position as usize;
        let Some(&end) = self.ends.get(position) else {
            return Bytes::new();
        };
        let begin = match position.checked_sub(1) {
            None => 0,
            Some(before) => self.ends[before] as usize + 1,
        };
        self.bytes.slice(begin..end as usize)
    }

    /// The text of which they are the lines.
    #[must_use]
    pub fn text(&self) -> &Bytes {
        &self.bytes
    }
}

/// Which element of which array.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ElementId {
    /// The array.
    pub array: Uuid,
    /// Its index.
    pub index: u32,
}

impl ElementId {
    /// The instance that it is once it may run: always the same, so that it can never run twice at a time.
    #[must_use]
    pub fn instance(self) -> InstanceId {
        InstanceId::Uuid(element_uuid(self.array, self.index))
    }
}

/// What a START says as that of one element, and the START of its array does not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ElementStart {
    /// Which one.
    pub id: ElementId,
    /// What its array is called; empty for nothing.
    pub array_name: Box<str>,
    /// How many elements its array has.
    pub count: u32,
    /// Its value: UTF-8, may be empty.
    pub value: Bytes,
}

impl ElementStart {
    /// What it is called: as its array, with `-` and its index behind; empty where that is called nothing.
    #[must_use]
    pub fn name(&self) -> String {
        match &*self.array_name {
            "" => String::new(),
            name => format!("{name}-{}", self.id.index),
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use sched_model::Uuid;

    use super::{ElementId, Values};

    #[test]
    fn values_are_lines() {
        for (text, expected) in [
            ("", &[][..]),
            ("\n", &[""]),
            ("a", &["a"]),
            ("a\n", &["a"]),
            ("a\n\nb", &["a", "", "b"]),
        ] {
            let values = Values::of_lines(Bytes::from_static(text.as_bytes()));
            let values = values.expect("it is short");
            let found: Vec<Bytes> = (0..values.count() as u32).map(|it| values.at(it)).collect();
            assert_eq!(found, expected, "{text:?}");
            assert_eq!(values.at(values.count() as u32), "");
        }
    }

    #[test]
    fn elements_are_instances_of_their_own() {
        let array = Uuid::from_u128(0xffff_fffe_dce9_48d6_b83a_a717_3390_740c);
        let of = |index| ElementId { array, index }.instance();
        let mut all: Vec<_> = (0..1000).map(of).chain([of(999_999_999)]).collect();
        all.push(crate::api::ids::InstanceId::Uuid(array));
        let count = all.len();
        all.sort();
        all.dedup();
        assert_eq!(all.len(), count);
    }
}
