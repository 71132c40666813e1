//! Scalars that several files have: nodes, labels, amounts.
//!
//! Each is a wrapper that reads its text, so that a section's field has the checked value and the message is the same
//! wherever such a value may stand.

use proto_frames::Uuid;
use proto_frames::payload::expression::is_name;

use super::values::{scalars, unexpected};
use crate::server::wire::MAX_NAME_LEN;
use sched_core::NodeName;

/// What labels begin with that are the scheduler's own, made from what it knows of a node; a file may not set them.
const RESERVED: &str = "node.";

/// Largest amount that is taken, 2⁵⁰: a million times what any machine has, and sums of it stay in range.
const MAX_AMOUNT: i64 = 1 << 50;

scalars! {
    /// A node, by UUID or host name.
    NodeText(NodeName): "the UUID or host name of a node, of at most 255 bytes", |text| {
        match uuid(text) {
            Some(uuid) => Ok(Self(NodeName::Uuid(uuid))),
            None if is_short(text) => Ok(Self(NodeName::new(text))),
            None => Err(unexpected::<Self>(text)),
        }
    };
    /// A node, by UUID alone.
    NodeUuid(Uuid): "the UUID of a node", |text| {
        uuid(text).map(Self).ok_or_else(|| unexpected::<Self>(text))
    };
    /// The key of a label that is not the scheduler's own.
    LabelKey(Box<str>): "a name of 1 to 128 letters, digits and . _ / -, without 'node.' before it", |text| {
        if is_name(text) && !text.starts_with(RESERVED) {
            Ok(Self(text.into()))
        } else {
            Err(unexpected::<Self>(text))
        }
    };
    /// The value of a label.
    LabelValue(Box<str>): "text of 1 to 255 bytes", |text| {
        if is_short(text) {
            Ok(Self(text.into()))
        } else {
            Err(unexpected::<Self>(text))
        }
    };
    /// The name of a custom resource.
    ResourceName(Box<str>): "a name of 1 to 128 letters, digits and . _ / -", |text| {
        if is_name(text) {
            Ok(Self(text.into()))
        } else {
            Err(unexpected::<Self>(text))
        }
    };
    /// How much of something.
    Amount(i64): "a whole number from 0 to 1125899906842624", |text| match text.parse() {
        Ok(amount @ 0..=MAX_AMOUNT) => Ok(Self(amount)),
        _ => Err(unexpected::<Self>(text)),
    };
}

/// A UUID with hyphens, in small letters or large ones: people copy them from anywhere. `None` for other forms, such as
/// braces or digits without hyphens.
fn uuid(text: &str) -> Option<Uuid> {
    sched_core::canonical_uuid(text)
}

/// The same bound as names from peers have, in bytes; not empty.
fn is_short(text: &str) -> bool {
    (1..=MAX_NAME_LEN).contains(&text.len())
}
