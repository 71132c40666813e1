//! Answers to queries: rows of nodes and instances, pages, and what people see of what is placed.

mod claims;
mod conditions;
mod rows;
mod seeing;
mod why;
