//! Between frames and the core: what a peer's frame says as a value of the core, and the core's messages as bytes for one
//! peer. Nothing else in the server knows which frame is what, and the core knows of no frame at all.

mod changes;
mod meaning;
mod render;
mod withheld;

pub(super) use self::meaning::{MAX_NAME_LEN, of, of_too_long};
pub(super) use self::render::{cost, encode};
