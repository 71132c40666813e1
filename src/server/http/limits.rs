//! Every limit of the HTTP door, with the reason for it. Limits of connections and handshakes are not here: the door
//! shares them with SSNTP (`server/limits.rs`), as it shares `--progress-deadline`, within which a peer has to take
//! what is written, and `--controller-budget`. Also used by the Placement API: [`MAX_HEAD`], [`HEAD_DEADLINE`] and
//! [`SEND_BUFFER`].

use std::time::Duration;

/// Bytes of a request's head, and of what is read and written in one go on a connection of HTTP/1.1: a browser's
/// headers are some 2 KiB. It bounds what a connection takes that stalls in the middle of either.
pub(super) const MAX_HEAD: usize = 16 * 1024;

/// Bytes of a request's body: what the document of a START, and of a cluster configuration, may have. A longer one is
/// refused with 413.
pub(super) const MAX_BODY: usize = 256 * 1024;

/// How long a request's body may take to come, so that a trickle of bytes does not hold a body's memory for ever; each
/// chunk of an image may take as long. 408 then. The same for throwing away a body that is not wanted.
pub(super) const BODY_DEADLINE: Duration = Duration::from_secs(30);

/// How long nothing may come of a body that is thrown away before its client is taken for one that waits for the answer.
pub(super) const DISCARD_PAUSE: Duration = Duration::from_secs(1);

/// How long a connection of HTTP/1.1 may take for a request's head, and stay without a request. It is closed then.
pub(in crate::server) const HEAD_DEADLINE: Duration = Duration::from_secs(30);

/// How long a client of HTTP/1.1 that has shut its sending half gets what it asked for: some longer than [`MAX_WAIT`]. It
/// may have left, which nothing shows until something is written to it; a stream that it followed would keep its place
/// for ever.
pub(super) const HALF_CLOSED_DEADLINE: Duration = Duration::from_secs(330);

/// Requests under way at once on a connection of HTTP/2. `ciaoctl web` passes all requests of its browsers on over one
/// connection, and allows fewer than this.
pub(super) const MAX_STREAMS: u32 = 64;

/// Bytes that wait on one stream of HTTP/2 for its reader. With [`MAX_STREAMS`] a client that does not read makes the
/// scheduler hold 1 MiB.
pub(super) const STREAM_BUFFER: usize = 16 * 1024;

/// Bytes of a request's body that may be on their way on one stream of HTTP/2.
pub(super) const STREAM_WINDOW: u32 = 64 * 1024;

/// The same of a whole connection: four bodies at once, however many streams there are.
pub(super) const CONNECTION_WINDOW: u32 = 256 * 1024;

/// How often a silent connection of HTTP/2 is asked whether its peer is still there, and how long the answer may take.
/// A client that has vanished is noticed after twice this time.
pub(super) const PING_EVERY: Duration = Duration::from_secs(20);

/// Rows asked of the core while its lock is held once: well below a millisecond.
pub(super) const ROWS_PER_STEP: u32 = 200;

/// Lists that go on, and their instances or nodes, remembered so that none is on two pages: 64 bytes each, some 8 MiB in
/// all. A list of as many that wait or are lost is remembered whole; one that has more, or was given up, may show some twice.
pub(super) const MAX_SHOWN: usize = 131_072;

/// Steps of one page, so that at most 10 000 rows are tried with its selectors. A selector that few rows meet is not to
/// keep a request going for ever: what was found by then is answered, with where to go on.
pub(super) const MAX_STEPS: usize = 50;

/// Selectors of one request: each is tried on each row.
pub(super) const MAX_SELECTORS: usize = 16;

/// Longest `?wait=`. Longer ones are refused with 400 rather than cut short.
pub(super) const MAX_WAIT: Duration = Duration::from_secs(300);

/// Requests that wait for the outcome of a command at once; further ones are answered at once with 202. Each looks at
/// the core every [`LOOK_EVERY`].
pub(super) const MAX_WAITING: usize = 1024;

/// The same of one certificate: a quarter, as of answers with output.
pub(super) const MAX_WAITING_PER_CALLER: usize = MAX_WAITING / 4;

/// How often a request that waits looks how things stand, beside whenever something happens. Not all changes of a row
/// make an event.
pub(super) const LOOK_EVERY: Duration = Duration::from_millis(200);

/// How long a request waits for a node's answer where only that tells whether there was anything to be done, also without
/// `?wait=`: what a program has patience for, and far more than a node takes that is not stopped.
pub(super) const NODE_ANSWERS_WITHIN: Duration = Duration::from_secs(10);

/// How long a command waits until what its connection has sent before has left for the launchers. 503 then.
pub(super) const BUDGET_DEADLINE: Duration = Duration::from_secs(10);

/// Answers of the core that one request keeps unread; a command has at most a handful. Further ones are dropped.
pub(super) const MAX_ANSWERS: usize = 16;

/// STARTs remembered by instance, to know the same one when it comes again: 100 bytes each, some 6 MiB in all. The
/// documentation of the HTTP API names the number.
pub(super) const MAX_POSTED: usize = 65_536;

/// Answers with output of workloads under way at once: each has a session, and a chunk of 64 KiB at most, so 16 MiB in
/// all. 503 then.
pub(super) const MAX_OUTPUTS: usize = 256;

/// The same of one certificate: a page follows a handful, and one client is not to take all places.
pub(super) const MAX_OUTPUTS_PER_CALLER: usize = 64;

/// Uploads of images under way at once: half of what the store of images takes, so that pushes by SSNTP have the other.
/// Each holds two chunks of 64 KiB at most. 503 then.
pub(super) const MAX_UPLOADS: usize = 32;

/// The same of one certificate.
pub(super) const MAX_UPLOADS_PER_CALLER: usize = 8;

/// How often an upload that has begun hands a chunk in once more where as much is asked of the store of images as may
/// be. With [`STORE_BUSY_PAUSE`] that is half a minute, after which it is answered 503.
pub(super) const STORE_BUSY_TRIES: u32 = 60;

/// Pause between two of these tries.
pub(super) const STORE_BUSY_PAUSE: Duration = Duration::from_millis(500);

/// Bytes that the kernel keeps for a client that does not read (it takes twice as much memory for them): beyond what it
/// is left to itself, 2.5 MB on Linux, writing for a hundred clients that have stalled would cost a second of processor
/// time. Set on the listening sockets, from which connections have it.
pub(in crate::server) const SEND_BUFFER: usize = 128 * 1024;

/// Bytes of events handed to a stream in one go. A chunk ends with the event that reaches this length.
pub(super) const EVENT_CHUNK: usize = 8 * 1024;

/// Events looked at in one go for one stream, which is how long the ring's lock is held for it.
pub(super) const EVENTS_PER_LOOK: usize = 64;

/// How often a stream without events says that it is still there, so that neither end nor anything between takes it for
/// dead.
pub(super) const EVENT_HEARTBEAT: Duration = Duration::from_secs(15);

/// How long the core may take to answer before `/readyz` says that it does not.
pub(super) const READY_WITHIN: Duration = Duration::from_secs(1);
