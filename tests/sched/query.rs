//! Answers to queries: rows of nodes and instances, pages, and what people see of what is placed.

mod rows;
mod seeing;
