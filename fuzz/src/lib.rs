//! What the fuzz targets do with an input: each reads it as the programs read it, and then insists on something. A
//! function here is one target; `targets/` makes programs of them. See README.md.
//!
//! A target panics where what it insists on does not hold. Inputs are bytes as they come from the wire or a disk, with
//! at most a byte or two in front that choose between ways to read them, so that a corpus is readable and real payloads
//! are seeds.

pub mod configuration;
pub mod expressions;
pub mod frames;
pub mod payloads;
pub mod printers;
pub mod store;

/// The first byte, which chooses, and the rest.
fn choice(data: &[u8]) -> Option<(usize, &[u8])> {
    data.split_first()
        .map(|(first, rest)| (usize::from(*first), rest))
}
