//! Numbers that the environment has for tests, such as a seed.

use std::env::{self, VarError};

/// What a variable of the environment says, if it is set.
pub(crate) fn number(variable: &str) -> Option<u64> {
    match env::var(variable) {
        Ok(text) => Some(text.parse().expect("the variable is a number")),
        Err(VarError::NotPresent) => None,
        Err(error) => panic!("{variable}: {error}"),
    }
}
