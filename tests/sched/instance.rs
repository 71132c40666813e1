//! Managed instances.

mod lifecycle;
mod walks;
