//! The program `ciao-cert`.
