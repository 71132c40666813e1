//! Between frames and the core: what a peer's frame says as a value of the core, and the core's messages as bytes for one
//! peer. Which frame is which command or report stands in [`kinds`] alone; the core knows of no frame at all.

mod changes;
mod commands;
mod ends;
mod events;
mod head;
mod inputs;
mod kinds;
mod life;
mod names;
mod node_extras;
mod ordered;
mod parcels;
mod refusals;
mod render;
mod reports;
mod starts;
mod withheld;

pub(super) use self::events::{EventVisitor, opened, visit};
pub(super) use self::inputs::{input, too_long};
pub(super) use self::kinds::kind_of;
pub(super) use self::names::MAX_NAME_LEN;
pub(super) use self::ordered::{Ordered, checked_start, ordered, start_of_json};
pub(super) use self::parcels::{frame_of, parcel};
pub(super) use self::refusals::refused;
pub(super) use self::refusals::{Place, twin};
pub(super) use self::render::{cost, encode};
pub(super) use self::starts::{kept, label_of_image};
