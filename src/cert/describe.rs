//! A certificate as text for people: what `ciao-cert -dump` prints.
