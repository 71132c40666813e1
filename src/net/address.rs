//! Where to connect: host and port as people write them, and the addresses a CA certificate suggests.
