//! dev (being written).
