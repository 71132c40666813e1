//! What must have ended before an instance is placed: `after` of `start.scheduling`.
//!
//! ```yaml
//! scheduling:
//!   after: [{instance: prepare, end: ok}, {instance: 5f0c2a4e-8d5e-4a0b-9c43-0d9f3a0f6c11, end: any}, {array: sweep}]
//! ```

use crate::{record, words};

/// Most entries of `after`: each is looked up whenever one of them has ended.
pub const MAX_AFTER: usize = 32;

record! {
    /// One instance, or one array, that must have ended.
    pub struct After {
        /// Which instance: its UUID, or its name within the tenant of the START, also of an element that has not begun. Where
        /// there is no such instance, the array that is called so.
        instance: String as "instance" unless empty,
        /// Which array, instead of an instance: its UUID, or its name within the tenant of the START.
        array: String as "array" unless empty,
        /// How; empty for [`AfterEnd::Ok`].
        end: AfterEnd as "end" unless empty,
    }
}

words! {
    /// How an instance or an array must have ended for another instance that comes after it.
    pub enum AfterEnd {
        /// By itself, with exit status 0; an array: all of its elements.
        Ok = "ok",
        /// However it was.
        Any = "any",
        /// In any other way than with exit status 0; an array: at least one of its elements.
        Failed = "failed",
    }
}

impl AfterEnd {
    /// Whether an end satisfies it: `Some(true)` is one with exit status 0, `Some(false)` any other, `None` one of which that
    /// is not known.
    #[must_use]
    pub fn admits(&self, is_ok: Option<bool>) -> bool {
        match self {
            Self::Any => true,
            Self::Failed => is_ok == Some(false),
            Self::Ok | Self::Other(_) => is_ok == Some(true),
        }
    }

    /// Whether it is the usual one.
    #[must_use]
    pub fn is_usual(&self) -> bool {
        matches!(self, Self::Ok | Self::Other(_))
    }
}
