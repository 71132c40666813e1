//! Go's `encoding/gob`, for exactly the five structs of SSNTP.
//!
//! A stream is a row of messages: an unsigned length, then a signed type id. A negative id defines a type (its
//! descriptor follows); a positive one is that of the value that follows. What a struct's fields are called and in
//! which order they come is learned from the descriptors ([`types`]); which of them this crate wants is worked out
//! once per type ([`plan`]), so that reading a value compares no names. Fields it does not know are skipped, whatever
//! their type, except interface values.
//!
//! - [`number`]: gob's variable-length integers, and the two ends they are read from and written to.
//! - [`types`]: the descriptors a stream brings, and skipping over values by them.
//! - [`plan`]: from a struct's descriptor to the steps that read its values.
//! - [`read`]: messages in; [`mod@write`]: messages out.

mod number;
mod plan;
mod read;
mod types;
mod write;

pub(super) use read::Reader;
pub(super) use write::Writer;
