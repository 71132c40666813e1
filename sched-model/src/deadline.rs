//! How long an operation on instances or nodes may take, as MIGRATE and EVACUATE say it.

use crate::error::{Fault, PayloadError};
use crate::span::Span;

/// Longest time for a move or a drain: 7 days. Who needs longer has forgotten it, and can ask again.
pub const MAX_DEADLINE: Span = Span::from_ms(7 * 24 * 3_600_000);

/// Refuses a deadline beyond [`MAX_DEADLINE`] by its key.
pub(crate) fn check_deadline(key: &str, deadline: Option<Span>) -> Result<(), PayloadError> {
    if deadline.is_some_and(|deadline| deadline > MAX_DEADLINE) {
        return Err(PayloadError::new(
            key,
            Fault::SpanTooLong { max: MAX_DEADLINE },
        ));
    }
    Ok(())
}
