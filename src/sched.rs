//! The scheduler as a pure state machine (being put together).
