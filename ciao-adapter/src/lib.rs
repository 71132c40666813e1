//! What the adapters of a `ciao-scheduler` have in common: programs that take the requests of another system's clients
//! and are themselves clients of the scheduler.
//!
//! - [`flags`]: the command line, with the flags of all adapters; [`exit_code`]: how its program ends;
//!   [`raise_open_files`]: how many connections it may have.
//! - [`store`]: what an adapter keeps over a restart, in one redb file. The adapter says which tables there are.
//! - [`family`]: what the UUIDs of one adapter's instances begin with.
//! - [`sent`]: when a START was sent, over a restart.
//! - [`session`]: the connection with the scheduler, kept for as long as the adapter runs. The adapter says what is sent.
//! - [`tracking`]: how far instances are, from events and listings.
//!
//! It decides nothing. Which instances there are and what becomes of them is known to the `coordinator` of each adapter,
//! `ciao-funky` and `ciao-rik`, and of these it knows nothing.

mod exit;
pub mod family;
mod files;
pub mod flags;
pub mod sent;
pub mod session;
pub mod store;
pub mod tracking;

pub use exit::exit_code;
pub use files::raise_open_files;
