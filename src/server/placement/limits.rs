//! Every limit of the Placement API, with the reason for it. Those of heads of requests and of silent connections are
//! those of the HTTP door (`http/limits.rs`); connections count against `--max-connections` as well.

use std::time::Duration;

/// Connections at once; for a further one another has to leave that has shown no token, or it is closed at once. Nova's
/// schedulers keep one for each of their workers. Without it, requests without a token could take all connections of the
/// daemon.
pub(super) const MAX_CONNECTIONS: usize = 64;

/// How long a token that was shown keeps its connection's place: longer than any answer takes. Somebody whose token is
/// withdrawn could keep it for ever otherwise, over HTTP/2.
pub(super) const TOKEN_COUNTS_FOR: Duration = Duration::from_secs(300);

/// Requests that are worked on at once, until their answers are taken; further ones wait. An answer has a few hundred
/// bytes for each node, so that some hundred megabytes are the most with a hundred thousand nodes.
pub(super) const MAX_REQUESTS: usize = 8;

/// How long a client may take for an answer; its connection is ended then, so that those who read slowly do not keep
/// all [`MAX_REQUESTS`] for ever. The answer about a hundred thousand nodes comes in time over 10 Mbit/s.
pub(super) const WRITE_DEADLINE: Duration = Duration::from_secs(60);

/// Bytes of an answer that are handed to its connection at a time. They are copied into its buffer, which takes about as
/// many (`MAX_HEAD` of the HTTP door).
pub(super) const BODY_PIECE: usize = 16 * 1024;

/// Candidates of one answer, whatever is asked for: ten times what Nova asks for. Also the number without a `limit`.
pub(super) const MAX_CANDIDATES: usize = 10_000;

/// Rows of nodes that are read while the core's lock is held once.
pub(super) const ROWS_PER_STEP: usize = 200;

/// Bytes of the file of tokens. No more are read, whatever the path leads to.
pub(super) const MAX_TOKENS_LEN: u64 = 64 * 1024;

/// Tokens in it: each is compared with what a request presents, all of them for each request.
pub(super) const MAX_TOKENS: usize = 256;

/// Resources, traits and aggregates that one request names, all together: each is tried on each node. 400 beyond.
pub(super) const MAX_NAMED: usize = 64;

/// Labels that may stand behind one trait: as names of traits know no case and few signs, several can be called the
/// same. Of more, the first count.
pub(super) const MAX_LABELS_PER_TRAIT: usize = 64;

/// Bytes of a fault's detail, before what is not shown is escaped: some sentences list all groups of a request, and what
/// a client has sent is repeated up to [`MAX_NAME_LEN`] each time.
pub(super) const MAX_DETAIL: usize = 4096;

/// Bytes of a trait's or a resource class's name, as in Placement; labels that would have longer ones are no traits.
pub(super) const MAX_NAME_LEN: usize = 255;
