//! How this side ends a connection.

use std::io;
use std::time::Duration;

use bytes::BytesMut;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::timeout;

/// How long nothing may come from a peer to which this side has closed before its side counts as closed as well: a round
/// trip, within which what was written last is acknowledged.
pub const CLOSE_QUIET: Duration = Duration::from_millis(250);

/// Closes a connection without losing what was written last: a socket that is dropped with unread bytes resets the
/// connection, and the system then throws away what it has not sent yet. So whatever still comes is read and thrown away
/// first. Clients of the original never close their side: once nothing has come for `quiet` it is over.
///
/// Takes as long as the peer goes on sending; to be bounded by the caller.
///
/// # Errors
/// The connection failed first.
pub(crate) async fn close<S: AsyncRead + AsyncWrite + Unpin>(
    stream: &mut S,
    quiet: Duration,
) -> io::Result<()> {
    /// Bytes thrown away at once.
    const DISCARD_LEN: usize = 4 * 1024;
    stream.shutdown().await?;
    let mut discarded = BytesMut::new();
    loop {
        discarded.clear();
        discarded.reserve(DISCARD_LEN);
        let Ok(read) = timeout(quiet, stream.read_buf(&mut discarded)).await else {
            return Ok(());
        };
        if read? == 0 {
            return Ok(());
        }
    }
}
