//! What must be on disk before what, and what is taken up again from there.

pub(crate) mod disk;
pub(crate) mod durable;
