//! The vocabulary that the scheduler's core and its wire share, defined once. No IO, no format, no policy.
//!
//! - [`value`] and [`record!`], [`words!`]: how a type says which keys it has, for any format to read and write.
//! - [`PayloadError`]: what is wrong with a value, and at which key.
//! - [`Scheduling`], [`Expression`]: what a START asks for.
//!
//! `proto-frames` reads and writes these types and re-exports them; `sched-core` decides with them. Neither knows the
//! other.

#![forbid(unsafe_code)]

pub mod cut;
pub mod deadline;
pub mod error;
pub mod expression;
pub mod role;
pub mod scheduling;
pub mod span;
pub mod value;

mod declare;

pub use deadline::MAX_DEADLINE;
pub use error::{Fault, PayloadError, PayloadErrorKind, Position};
pub use expression::{Expression, ExpressionError, ExpressionProblem, Number, Test, Word};
pub use role::Role;
pub use scheduling::{Batch, Group, GroupPolicy, Near, OnNodeLoss, Scheduling};
pub use span::Span;
pub use uuid::Uuid;
