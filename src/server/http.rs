//! The HTTP door: the second way in beside [`session`](super::session), for people's tools and programs that speak
//! HTTP.
//!
//! ```text
//! accept ── gate ── TLS ──┬── session   frames
//!                         └── serve     HTTP/1.1 and 2: routes ── read, events       (VIEWER, OPERATOR)
//!                                                             └── commands, starts   (OPERATOR)
//! ```
//!
//! A request becomes a [`Call`](self::call::Call) once its sender's role, its origin, its parameters and its body's
//! length are checked; the handler of its route makes an answer or a [`Problem`](self::problem::Problem) of it.
//!
//! - [`routes`] is the table of all routes: method, path, who may, parameters, bodies, answers. The router, the role
//!   check and the OpenAPI document ([`openapi`]) are made from it, so that none of them knows more than the others.
//! - [`serve`] has connections and the way of a request to its handler; [`progress`] ends those that take nothing, and
//!   [`presence`] those whose client has left.
//! - Reading takes the core's lock in steps of a few rows ([`read`], [`status`], [`mod@metrics`]); what is read is
//!   turned into JSON outside it ([`json`]). No list shows an instance on two of its pages ([`listings`]).
//! - Commands go to the core as those of peers do: each connection that sends one has a session of an operator
//!   ([`caller`]), and what the core answers comes to the request that asked ([`commands`], [`starts`]).
//! - Output of workloads is fetched from launchers while it is answered ([`output`]), by a limited number of readers
//!   ([`shares`]).
//! - Images are asked of their store through the core, as peers of SSNTP do ([`images`]); one that is uploaded is the
//!   only body that is not read whole before its handler runs ([`unread`]).
//! - [`page`] is what browsers show, from the program's own files; it uses the routes like any other client.
//! - The Placement API is below a path of its own, if it is offered; clients without a certificate get no further
//!   ([`mounted`]).
//! - Events are those that a subscriber is sent, kept in a [`ring`] with numbers, which [`events`] tells and
//!   [`interest`] sorts by what streams want. A session of the scheduler's own, a viewer, receives them.
//! - What a request may cost is bounded in [`limits`].
//!
//! Every answer about the cluster says as `sequence` behind which event it holds, so that a client can read a list and
//! then follow what changes without a gap.

mod arrays;
mod asking;
mod call;
mod caller;
mod commands;
mod configuration;
mod events;
mod history;
mod images;
mod interest;
mod json;
mod limits;
mod listings;
mod metrics;
mod mounted;
mod openapi;
mod output;
mod page;
mod presence;
mod probes;
mod problem;
mod progress;
mod read;
mod refusals;
mod reload;
mod revoked;
mod ring;
mod routes;
mod serve;
mod shares;
mod starts;
mod status;
mod unread;

pub(super) use self::limits::{HEAD_DEADLINE, SEND_BUFFER};
pub(super) use self::progress::Progress;
pub(super) use self::refusals::{refuse, stand_by};
pub(super) use self::serve::{Acceptor, HttpDoor, http_1, until_leaving};
