//! Every limit of `ciaoctl web`, with the reason for it.

use std::time::Duration;

/// Browser connections at once: several browsers with six each. Each has one request at a time, which is fewer than the
/// scheduler takes on one connection (64), so that no request waits for another. Further ones are closed at once.
pub(super) const MAX_CONNECTIONS: usize = 48;

/// Bytes of a request's head: what the scheduler takes. Also what is taken of the head of an answer.
pub(super) const MAX_HEAD: usize = 16 * 1024;

/// Bytes of a request's body: what the scheduler takes. It is read whole before it is passed on, so [`MAX_CONNECTIONS`]
/// of them are the most that is held. 413 beyond.
pub(super) const MAX_BODY: usize = 256 * 1024;

/// How long a request's head may take, and a connection stay without a request.
pub(super) const HEAD_DEADLINE: Duration = Duration::from_secs(30);

/// How long a request's body may take. 408 then.
pub(super) const BODY_DEADLINE: Duration = Duration::from_secs(30);

/// How long the scheduler may take to begin an answer: more than its longest `?wait=`, which is 300 s. How long the
/// answer then goes on has no limit: streams of events never end.
pub(super) const ANSWER_DEADLINE: Duration = Duration::from_secs(310);

/// How often a silent connection to the scheduler is tried, and how long its answer may take. A scheduler that has
/// vanished is noticed after twice this time, and requests under way fail.
pub(super) const PING_EVERY: Duration = Duration::from_secs(10);

/// Bytes of one answer that wait for a browser that does not read: the window of a stream of HTTP/2, beyond which the
/// scheduler does not send.
pub(super) const STREAM_WINDOW: u32 = 64 * 1024;

/// The same of all answers together: more than [`MAX_CONNECTIONS`] times [`STREAM_WINDOW`], so that none holds up
/// another.
pub(super) const CONNECTION_WINDOW: u32 = 4 * 1024 * 1024;

/// How long connections may go on once the program is to end. Short: streams of events would go on for ever, and the
/// user has pressed Ctrl-C.
pub(super) const CLOSING_DEADLINE: Duration = Duration::from_millis(300);

/// Random bytes of a token and of a cookie: 256 bits, which cannot be guessed however many tries there are.
pub(super) const SECRET_BYTES: usize = 32;
