//! launcher (being written).
