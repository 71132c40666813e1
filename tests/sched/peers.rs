//! Peers: who is master, what each may say, what one of them can make the core hold, and what a new master is told.

mod arrays_seen;
mod backups;
mod bounds;
mod connections;
mod floods;
mod images;
mod matrix;
mod random_hostile;
mod random_lists;
mod roles;
mod twins;
