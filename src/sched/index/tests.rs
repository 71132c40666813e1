//! The index against a plain scan of the same slots.
