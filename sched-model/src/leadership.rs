//! TransferLeadership and LeadershipTransfer: of several schedulers behind one name another is to lead, and what came of it.

use crate::{record, words};

record! {
    /// `transfer_leadership: {id, to}`; answered by [`LeadershipTransfer`].
    pub struct TransferLeadership {
        /// The sender's number for it, given back in the answer.
        id: u64 as "id",
        /// Where the scheduler is that is to lead, as it is listed; empty for any that stands by.
        to: String as "to" unless empty,
    }
}

record! {
    /// `leadership_transfer: {id, state, from, to, reason}`: the answer to TransferLeadership.
    pub struct LeadershipTransfer {
        /// The number of what this answers.
        id: u64 as "id" unless empty,
        /// What comes of it.
        state: TransferState as "state",
        /// Where the scheduler is that leads until then; empty where there is this one alone.
        from: String as "from" unless empty,
        /// Where the one is that leads next; empty where any of several may.
        to: String as "to" unless empty,
        /// Why it is refused.
        reason: String as "reason" unless empty,
    }
}

words! {
    /// What comes of a transfer.
    pub enum TransferState {
        /// It has begun: the leader ends its sessions, and then its turn.
        Begun = "begun",
        /// The leader goes on as before.
        Refused = "refused",
    }
}
