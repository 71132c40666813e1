//! Every limit of `ciaoctl web`, with the reason for it.

use std::time::Duration;

/// Browser connections at once: several browsers with six each. Each has one request at a time, which is fewer than the
/// scheduler takes on one connection (64), so that no request waits for another.
pub(super) const MAX_CONNECTIONS: usize = 48;

/// Bytes of a request's head: what the scheduler takes.
pub(super) const MAX_HEAD: usize = 16 * 1024;

/// Bytes of a request's body: what the scheduler takes.
pub(super) const MAX_BODY: usize = 256 * 1024;

/// How long a request's head may take, and a connection stay without a request.
pub(super) const HEAD_DEADLINE: Duration = Duration::from_secs(30);

/// How long a request's body may take.
pub(super) const BODY_DEADLINE: Duration = Duration::from_secs(30);

/// How long the scheduler may take to begin an answer: more than its longest `?wait=`.
pub(super) const ANSWER_DEADLINE: Duration = Duration::from_secs(310);

/// How often a silent connection to the scheduler is tried, and how long its answer may take.
pub(super) const PING_EVERY: Duration = Duration::from_secs(10);

/// Bytes of one answer that wait for a browser that does not read.
pub(super) const STREAM_WINDOW: u32 = 64 * 1024;

/// The same of all answers together: [`MAX_CONNECTIONS`] of them, so that none holds up another.
pub(super) const CONNECTION_WINDOW: u32 = 4 * 1024 * 1024;

/// How long connections may go on once the program is to end.
pub(super) const CLOSING_DEADLINE: Duration = Duration::from_millis(300);

/// Random bytes of a token and of a cookie.
pub(super) const SECRET_BYTES: usize = 32;
