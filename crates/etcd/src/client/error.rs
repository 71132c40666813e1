//! Why a call of etcd came to nothing, and what that says about whether it was carried out.

use tonic::{Code, Status};

/// Why there is no client.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// No address was given.
    #[error("no address of etcd was given")]
    NoMember,
    /// An address that cannot be used.
    #[error("cannot use the address of etcd {endpoint}: {why}")]
    Endpoint {
        /// As it was given.
        endpoint: String,
        /// What is wrong with it, or with the certificates for it.
        why: String,
    },
    /// An address with `https`, and no CA to check the member's certificate by.
    #[error("{0} is to be reached by TLS: give the CA of etcd's certificates")]
    NoCa(String),
}

/// Why a call came to nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// There was no answer, or one that does not say whether it was done: what the call changes may be changed, or be
    /// changed later.
    #[error("etcd does not answer: {0}")]
    Unanswered(String),
    /// There is no such lease, or none any more. Nothing was done.
    #[error("etcd knows no such lease")]
    NoSuchLease,
    /// The database is full, or was until its alarm is taken back. Nothing was done.
    #[error(
        "etcd is out of space (alarm NOSPACE): compact and defragment it, then take the alarm back (etcdctl alarm disarm)"
    )]
    NoSpace,
    /// The revision to read from is compacted. Nothing was read.
    #[error("etcd has compacted the revision")]
    Compacted,
    /// The answer is longer than is read.
    #[error("etcd's answer is too long")]
    TooLong,
    /// etcd refuses it, and would refuse it again. Nothing was done.
    #[error("etcd refuses it: {0}")]
    Refused(String),
}

/// Sorted by what a status says about the call. Texts are compared where etcd uses one code for different things; they
/// are those of `api/v3rpc/rpctypes/error.go`, which have not changed since 3.0.
impl From<Status> for Error {
    fn from(status: Status) -> Self {
        let text = status.message();
        match status.code() {
            Code::NotFound if text.contains("lease not found") => Self::NoSuchLease,
            Code::ResourceExhausted if text.contains("space exceeded") => Self::NoSpace,
            Code::OutOfRange if text.contains("compacted") => Self::Compacted,
            Code::OutOfRange if text.contains("message length too large") => Self::TooLong,
            Code::Unavailable
            | Code::DeadlineExceeded
            | Code::Cancelled
            | Code::Unknown
            | Code::Internal
            | Code::Aborted
            | Code::ResourceExhausted => Self::Unanswered(with_causes(&status)),
            _ => Self::Refused(format!("{} ({:?})", text, status.code())),
        }
    }
}

/// Whether etcd takes the token no longer, after it was restarted or the token has expired.
pub(super) fn is_token_refused(status: &Status) -> bool {
    status.code() == Code::Unauthenticated || status.message().contains("invalid auth token")
}

/// An error with what caused it, in one line.
pub(super) fn with_causes(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = match error.downcast_ref::<Status>() {
        Some(status) => status.message().to_owned(),
        None => error.to_string(),
    };
    let mut cause = error.source();
    while let Some(error) = cause {
        let next = error.to_string();
        if !text.contains(&next) {
            text = format!("{text}: {next}");
        }
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use tonic::Status;

    use super::Error;

    #[test]
    fn what_is_not_known_to_be_refused_counts_as_unanswered() {
        let lost = Error::from(Status::unavailable("etcdserver: request timed out"));
        assert!(matches!(lost, Error::Unanswered(_)), "{lost:?}");
        let full = Status::resource_exhausted("etcdserver: mvcc: database space exceeded");
        assert_eq!(Error::from(full), Error::NoSpace);
        let busy = Status::resource_exhausted("etcdserver: too many requests");
        assert!(matches!(Error::from(busy), Error::Unanswered(_)));
        let gone = Status::not_found("etcdserver: requested lease not found");
        assert_eq!(Error::from(gone), Error::NoSuchLease);
        let denied = Error::from(Status::permission_denied("etcdserver: permission denied"));
        assert!(matches!(denied, Error::Refused(_)), "{denied:?}");
    }
}
