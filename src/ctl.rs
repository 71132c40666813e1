//! ctl (being written).
