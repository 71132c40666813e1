//! StartArray: an array to be started, or something of one to be run once more (added by this project). The START of its
//! elements and their values follow the document as they are, behind the line that ends it:
//!
//! ```text
//! start_array:
//!   indexes: 0-1
//!   running_max: 1
//!   start_bytes: 55
//!   bytes: 62
//! ...
//! start:
//!   instance_uuid: 67d86208-b46c-4465-9018-e14187d4010f
//! one
//! two
//! ```

use bytes::Bytes;
use sched_model::array::{ArrayView, StartArray};

use super::document::payload;
use super::guard::SMALL;
use super::trailing::{Chunk, Part};
use crate::limits::MAX_PAYLOAD_LEN;

payload!(StartArray under "start_array", SMALL);
payload!(ArrayView under "array", SMALL);

/// An array to be started: what it is, and the START of its elements with their values.
pub type ArrayOrder = Chunk<StartArray>;

impl Part for StartArray {
    const BYTES_KEY: &'static str = "start_array.bytes";
    const MAX_BYTES: usize = MAX_PAYLOAD_LEN;
    const EXPECTED_BYTES: &'static str = "as many as follow the document";

    fn bytes(&mut self) -> &mut u64 {
        &mut self.bytes
    }
}

impl Chunk<StartArray> {
    /// An array of this START with these values, one a line.
    #[must_use]
    pub fn of(head: StartArray, start: &[u8], values: &[u8]) -> Self {
        let head = StartArray {
            start_bytes: start.len() as u64,
            ..head
        };
        Self::new(head, Bytes::from([start, values].concat()))
    }

    /// The START of its elements, and their values; `None` where fewer bytes follow than it says.
    #[must_use]
    pub fn parts(&self) -> Option<(Bytes, Bytes)> {
        let at = usize::try_from(self.part.start_bytes).ok()?;
        (at <= self.data.len()).then(|| (self.data.slice(..at), self.data.slice(at..)))
    }
}

#[cfg(test)]
mod tests {
    use super::{ArrayOrder, StartArray};
    use crate::payload::Payload;

    #[test]
    fn a_start_and_values_of_any_bytes_come_out_as_they_went_in() {
        for values in [&b""[..], b"a\nb\n", b"\n...\n[{\xff"] {
            let head = StartArray {
                indexes: "0-1".into(),
                running_max: Some(3),
                ..StartArray::default()
            };
            let start = b"start:\n  instance_uuid: a\n...\nmore";
            let order = ArrayOrder::of(head, start, values);
            let read = ArrayOrder::decode(&order.encode()).expect("it can be read");
            assert_eq!(read, order);
            let (read_start, read_values) = read.parts().expect("it has both");
            assert_eq!((&read_start[..], &read_values[..]), (&start[..], values));
        }
    }

    #[test]
    fn a_start_that_is_longer_than_what_follows_has_no_parts() {
        let mut order = ArrayOrder::of(StartArray::default(), b"ab", b"c");
        order.part.start_bytes = 4;
        assert_eq!(order.parts(), None);
    }
}
