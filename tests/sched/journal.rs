//! What is on disk: what outlives the scheduler, and disks that take no writes.

mod disks;
mod survival;
mod unsent;
