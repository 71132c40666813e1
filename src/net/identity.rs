//! Who a peer is, as its certificate says: the roles it grants and the UUID it is bound to, if any.
