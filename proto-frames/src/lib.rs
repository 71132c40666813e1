//! SSNTP on the wire: frames, their two encodings, and payload types. Bytes in, values out; no IO, no async, no policy.
//!
//! - [`Frame`], [`Connect`], [`Connected`]: what peers say to each other, the same in both encodings.
//! - [`Decoder`] and [`Encoder`]: push bytes, pull messages. A server's decoder finds out by the first byte which
//!   [`Encoding`] its peer speaks.
//! - [`payload`]: the YAML documents that frames carry.
//!
//! The scheduler (`ciao-scheduler`) and its tools build on this crate; it knows nothing of them.

#![forbid(unsafe_code)]

pub mod codec;
pub mod connect;
pub mod frame;
pub mod kind;
pub mod limits;
pub mod payload;
pub mod trace;

pub use codec::{DecodeError, Decoder, Encoder, Encoding, Message, Received, TooLong};
pub use connect::{Connect, Connected, Term};
pub use frame::{Frame, Version};
pub use kind::{FrameType, Kind};
pub use limits::Limits;
pub use sched_model::{Role, Uuid, role};
pub use trace::{Timestamp, Trace, TraceNode};
