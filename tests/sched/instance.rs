//! Managed instances.

mod lifecycle;
