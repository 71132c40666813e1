//! Fast readers for the payloads that come in masses: START, READY, STATS.
//!
//! A peek reads the block style that peers really send, in one pass and without building what nobody asks for. On
//! anything else (quotes with escapes, flow style, anchors, odd indentation, repeated keys …) it leaves the document to
//! the full parser. It never reads what the full parser would read otherwise: it checks each value against the same
//! description of the message that the full parser is made from, and property tests hold the two equal.

mod figures;
mod ready;
mod start;
mod stats;
mod walk;

pub use figures::Figures;
pub use ready::{ReadyPeek, ready};
pub use start::{StartPeek, start};
pub use stats::{InstancePeek, StatsPeek, stats};
