//! Payload types: the YAML documents that frames carry.
