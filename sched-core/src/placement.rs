//! Which node a request gets: filters, weighers, the search, and why no node fits.

pub(crate) mod choose;
pub(crate) mod decide;
pub(crate) mod explain;
pub(crate) mod filters;
pub(crate) mod policy;
pub(crate) mod requests;
pub(crate) mod weighers;
