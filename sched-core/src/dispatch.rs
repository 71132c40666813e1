//! Which workflow an input goes to: the matches over commands and reports, over what is due, over what the disk says, and
//! over the states of what a node lists. They decide nothing; one reads here what there is.

mod disk;
mod listed;
mod messages;
pub(crate) mod time;
