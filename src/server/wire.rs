//! Between frames and the core: what a peer's frame says as a value of the core, and the core's messages as bytes for
//! one peer. Which frame is which command or report stands in [`kinds`] alone; the core knows of no frame at all.
//!
//! Inbound, a frame becomes an [`Input`](sched_core::Input) of the core:
//!
//! - [`inputs`] is the one way in; [`kinds`] gives the command or report that the frame is; [`commands`], [`reports`]
//!   and what they use ([`starts`], [`life`], [`ends`], [`node_extras`]) read the payload; [`names`] checks
//!   identifiers; [`head`] finds the instance in a payload that cannot be read.
//! - [`parcels`] turns the frame itself into what the core carries on.
//! - [`mod@ordered`] does the same for commands that come over HTTP.
//!
//! Outbound, a message of the core becomes a frame for one peer:
//!
//! - [`render`] writes it; [`changes`] and [`withheld`] edit forwarded payloads where they no longer apply;
//!   [`refusals`] words refusals; [`events`] shows messages to the HTTP API as values instead.
//!
//! Everything here is a pure function of its arguments, and runs on the task of a connection: inbound before the core's
//! lock is taken, outbound when the receiver's writer comes to the message.
//!
//! ```text
//! bytes ─decoder─▶ Frame ─inputs─▶ Input{Command | Report | Malformed | Unknown, Parcel} ─▶ core
//! core ─▶ Message ─cost─▶ outbox of the receiver ─encode─▶ bytes
//! ```
//!
//! A new kind of frame is added in [`kinds`] in both directions, in [`commands`] or [`reports`] as a reader, and in
//! [`render`] if the scheduler sends it.

mod arrays;
mod changes;
mod commands;
mod elements;
mod ends;
mod events;
mod head;
mod inputs;
mod kinds;
mod lifecycle;
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
pub(super) use self::refusals::{PeerAddress, twin};
pub(super) use self::render::{Own, cost, encode};
pub(super) use self::starts::{kept, label_of_image};
