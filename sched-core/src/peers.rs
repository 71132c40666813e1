//! Who is connected: sessions, roles, what each may send, and who asked for what.

pub(crate) mod answers;
pub(crate) mod bindings;
pub(crate) mod owner;
pub(crate) mod permissions;
pub(crate) mod session;
