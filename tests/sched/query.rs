//! Answers to queries: rows of nodes and instances, pages, and what people see of what is placed.

mod claims;
mod rows;
mod seeing;
