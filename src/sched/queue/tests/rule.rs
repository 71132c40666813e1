//! The rule against starvation, point by point, and in a small world.
