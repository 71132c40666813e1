//! Making certificates of the kind SSNTP peers present: a trust anchor, and leaves whose extended key usage carries
//! role OIDs. Used by the program `ciao-cert`, by `ciao-scheduler dev` and by tests; reading and checking peers'
//! certificates is [`crate::net::tls`] and [`crate::net::identity`].
//!
//! [`Spec`] says what a certificate is for, [`Anchor`] makes and signs, [`CertifiedPem`] is the result: one PEM text
//! with the certificate and its private key, as the original's tool writes it.

pub mod anchor;
pub mod crl;
pub mod describe;
pub mod files;
pub mod key;
pub mod spec;

pub use anchor::{Anchor, CertError, CertifiedPem};
pub use crl::RevocationList;
pub use key::KeyAlgorithm;
pub use spec::{Shape, Spec};
