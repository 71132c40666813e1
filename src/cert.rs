//! cert (being written).
