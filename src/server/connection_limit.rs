//! How many connections there are at once, and who may have how many of them.
//!
//! Two things are counted. A connection holds a slot from when it is accepted to its end, whoever it is of
//! ([`ConnectionLimit::slots`], `--max-connections`). Once its handshake is over its certificate is known, and it is
//! admitted to a class, or refused ([`ConnectionLimit::admit`]):
//!
//! - each class but that of readers has a part reserved for it, which no other class can use, so that no number of
//!   dashboards keeps launchers, controllers or operators out, and no number of launchers keeps operators out;
//! - of what its class can still have, one certificate has no more than it leaves free. So one alone gets half, a second
//!   one half of the rest, and one that has none yet gets in as long as there is any. Launchers are left out of that:
//!   those of a whole cluster may share one certificate, and each UUID has one connection.
//!
//! ```text
//! accept ── slot ── gate ── handshake ── admit ──┬── Permit     held to the end of the connection
//!                                                └── LimitReached   answered while a place for that is free, logged, closed
//! ```

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;
use proto_frames::Role;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The SHA-256 of a certificate. Connections that present it count together.
pub(super) type CertificateId = [u8; 32];

/// With fewer connections in all than this, nothing is reserved for controllers and operators: one for each of them
/// would leave nothing for readers.
const FEWEST_TO_DIVIDE: usize = 8;

/// The part of all connections that is reserved for controllers, and for operators: a 32nd each, which is 30 of the 960
/// that a limit of 1024 open files allows. A cluster has a few of either.
const RESERVED_PART: usize = 32;

/// The part of all connections that may be answered at once that they are refused: a 16th.
const REFUSALS_PART: usize = 16;

/// The part of all connections that clients without a certificate may have: a quarter. They are half of the readers at
/// most.
const GUESTS_PART: usize = 4;

/// Whom a connection is of, as far as its number is concerned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum PeerClass {
    /// Launchers, and the original's concentrator agents. Half of all connections are reserved for them.
    Launcher,
    /// Controllers that speak frames.
    Controller,
    /// Operators, by frames or HTTP.
    Operator,
    /// All others: viewers, and clients by HTTP whose certificate or token lets them read at most. Nothing is reserved
    /// for them.
    Reader,
}

/// Every class, in the order of `Admitted::count`.
const CLASSES: [PeerClass; 4] = [
    PeerClass::Launcher,
    PeerClass::Controller,
    PeerClass::Operator,
    PeerClass::Reader,
];

/// The limit of connections, shared by all listeners.
#[derive(Debug)]
pub(super) struct ConnectionLimit {
    /// Connections in all.
    most: usize,
    slots: Arc<Semaphore>,
    /// Permits for connections that are being told that they are refused.
    refusals: Arc<Semaphore>,
    admitted: Mutex<Admitted>,
}

/// Those past their handshakes. The sum of `by_certificate` over a class is its `count`, less clients without a
/// certificate; a certificate without any has no entry.
#[derive(Debug, Default)]
struct Admitted {
    count: [usize; CLASSES.len()],
    guests: usize,
    by_certificate: BTreeMap<(PeerClass, CertificateId), usize>,
}

/// A connection that was admitted; it no longer counts once this is dropped.
#[derive(Debug)]
pub(super) struct Permit {
    limit: Arc<ConnectionLimit>,
    class: PeerClass,
    certificate: Option<CertificateId>,
}

/// Why a connection is not admitted, for its answer and for the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LimitReached {
    class: PeerClass,
    /// Connections of its class.
    count: usize,
    /// Those of them with its certificate; `None` without one.
    own: Option<usize>,
    /// How many more its class could have.
    free: usize,
    /// Connections in all.
    most: usize,
}

impl PeerClass {
    /// The class of a peer that speaks frames, by the roles that it has claimed. One that has several is in the first
    /// that something is reserved for.
    pub(super) fn of(role: Role) -> Self {
        if role.contains(Role::CONTROLLER) {
            Self::Controller
        } else if role.contains(Role::OPERATOR) {
            Self::Operator
        } else if role.intersects(Role::AGENT | Role::NETAGENT | Role::CNCIAGENT) {
            Self::Launcher
        } else {
            Self::Reader
        }
    }

    /// The class of a client of HTTP, by the roles that its certificate grants: only operators do anything there that
    /// readers do not.
    pub(super) fn of_http(granted: Role) -> Self {
        match granted.contains(Role::OPERATOR) {
            true => Self::Operator,
            false => Self::Reader,
        }
    }

    /// How many of `most` connections are reserved for it.
    fn reserved(self, most: usize) -> usize {
        let small = match most {
            0..FEWEST_TO_DIVIDE => 0,
            _ => (most / RESERVED_PART).max(1),
        };
        match self {
            Self::Launcher => most / 2,
            Self::Controller | Self::Operator => small,
            Self::Reader => 0,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Launcher => "launchers",
            Self::Controller => "controllers",
            Self::Operator => "operators",
            Self::Reader => "readers",
        }
    }
}

impl Admitted {
    /// How many more connections this class could have: all, less those of the class, and less what each other one has
    /// or what is reserved for it, whichever is more.
    fn free(&self, class: PeerClass, most: usize) -> usize {
        let used: usize = CLASSES
            .iter()
            .zip(self.count)
            .map(|(&other, count)| match other == class {
                true => count,
                false => count.max(other.reserved(most)),
            })
            .sum();
        most.saturating_sub(used)
    }
}

impl ConnectionLimit {
    /// `most` connections at once.
    pub(super) fn new(most: usize) -> Arc<Self> {
        let most = most.min(Semaphore::MAX_PERMITS);
        Arc::new(Self {
            most,
            slots: Arc::new(Semaphore::new(most)),
            refusals: Arc::new(Semaphore::new((most / REFUSALS_PART).max(1))),
            admitted: Mutex::default(),
        })
    }

    /// Slots for accepted connections, `--max-connections` of them.
    pub(super) fn slots(&self) -> &Arc<Semaphore> {
        &self.slots
    }

    /// Admits a connection past its handshake. `None` is for clients without a certificate, of whom the Placement API
    /// has a limit of its own.
    ///
    /// # Errors
    /// [`LimitReached`]: its class has as many as it may, or its certificate its share of them.
    pub(super) fn admit(
        self: &Arc<Self>,
        class: PeerClass,
        certificate: Option<CertificateId>,
    ) -> Result<Permit, LimitReached> {
        let mut admitted = self.admitted.lock();
        let free = admitted.free(class, self.most);
        let own = certificate.map(|certificate| {
            let own = admitted.by_certificate.get(&(class, certificate));
            own.copied().unwrap_or_default()
        });
        let is_within_share = match own {
            _ if class == PeerClass::Launcher => true,
            Some(own) => own < free,
            None => admitted.guests < (self.most / GUESTS_PART).max(1),
        };
        if free == 0 || !is_within_share {
            return Err(LimitReached {
                class,
                count: admitted.count[class as usize],
                own,
                free,
                most: self.most,
            });
        }
        admitted.count[class as usize] += 1;
        match certificate {
            Some(certificate) => {
                *admitted
                    .by_certificate
                    .entry((class, certificate))
                    .or_default() += 1;
            }
            None => admitted.guests += 1,
        }
        Ok(Permit {
            limit: Arc::clone(self),
            class,
            certificate,
        })
    }

    /// A permit to tell a connection that it is refused; `None` while as many are being told: then it is closed without
    /// an answer, so that those who come again and again do not take up what is reserved for others.
    pub(super) fn refusal(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.refusals).try_acquire_owned().ok()
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut admitted = self.limit.admitted.lock();
        admitted.count[self.class as usize] -= 1;
        let Some(certificate) = self.certificate else {
            admitted.guests -= 1;
            return;
        };
        let key = (self.class, certificate);
        match admitted.by_certificate.get(&key).copied() {
            Some(own @ 2..) => drop(admitted.by_certificate.insert(key, own - 1)),
            _ => drop(admitted.by_certificate.remove(&key)),
        }
    }
}

/// A sentence whose subject is the connection.
impl fmt::Display for LimitReached {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            class,
            count,
            own,
            free,
            most,
        } = *self;
        let name = class.name();
        match own {
            Some(own) if free > 0 => write!(
                f,
                "its certificate has {own} of the {count} connections of {name} already, and the {free} that are left \
                 for them are for other certificates (--max-connections {most})"
            ),
            _ => write!(
                f,
                "there are {count} connections of {name}, and the rest of all {most} is in use or reserved for others \
                 (--max-connections)"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAUNCHERS: CertificateId = [1; 32];
    const VIEWER: CertificateId = [2; 32];
    const OTHER_VIEWER: CertificateId = [3; 32];
    const OPERATOR: CertificateId = [4; 32];

    /// Connections of one certificate, as many as are admitted.
    fn all(
        limit: &Arc<ConnectionLimit>,
        class: PeerClass,
        certificate: CertificateId,
    ) -> Vec<Permit> {
        std::iter::from_fn(|| limit.admit(class, Some(certificate)).ok()).collect()
    }

    #[test]
    fn one_certificate_of_a_reader_keeps_nobody_out_whatever_number_of_connections_there_may_be() {
        for most in FEWEST_TO_DIVIDE..2000 {
            let limit = ConnectionLimit::new(most);
            let held = all(&limit, PeerClass::Reader, VIEWER);
            assert!(!held.is_empty(), "of {most}");
            let other = limit.admit(PeerClass::Reader, Some(OTHER_VIEWER));
            assert!(other.is_ok(), "another reader of {most}");
            let operator = limit.admit(PeerClass::Operator, Some(OPERATOR));
            assert!(operator.is_ok(), "an operator of {most}");
            assert!(
                limit.admit(PeerClass::Controller, Some(OPERATOR)).is_ok(),
                "a controller of {most}"
            );
            let launchers = all(&limit, PeerClass::Launcher, LAUNCHERS);
            assert!(
                launchers.len() >= most / 2,
                "{} launchers of {most}",
                launchers.len()
            );
        }
    }

    #[test]
    fn launchers_with_one_certificate_leave_what_is_reserved_for_controllers_and_operators() {
        let limit = ConnectionLimit::new(960);
        let launchers = all(&limit, PeerClass::Launcher, LAUNCHERS);
        assert_eq!(launchers.len(), 960 - 30 - 30);
        let refused = limit.admit(PeerClass::Reader, Some(VIEWER)).unwrap_err();
        assert_eq!(refused.free, 0);
        let operators = all(&limit, PeerClass::Operator, OPERATOR);
        assert_eq!(operators.len(), 15);
        let another = limit.admit(PeerClass::Operator, Some(VIEWER));
        assert!(another.is_ok());
    }

    #[test]
    fn the_last_place_of_a_class_is_for_a_certificate_that_has_none() {
        let limit = ConnectionLimit::new(100);
        let mut held = Vec::new();
        for number in 0..=u8::MAX {
            let more = all(&limit, PeerClass::Reader, [number; 32]);
            if more.is_empty() {
                break;
            }
            held.push(more);
        }
        // A half, a half of the rest, and so on.
        let shares: Vec<usize> = held.iter().map(Vec::len).collect();
        assert_eq!(shares, [22, 11, 6, 3, 1, 1]);
    }

    #[test]
    fn what_is_given_back_is_admitted_again_and_leaves_no_entry() {
        let limit = ConnectionLimit::new(16);
        let held = all(&limit, PeerClass::Reader, VIEWER);
        let refused = limit.admit(PeerClass::Reader, Some(VIEWER)).unwrap_err();
        let text = refused.to_string();
        assert!(text.contains("connections of readers already"), "{text}");
        drop(held);
        assert!(limit.admit(PeerClass::Reader, Some(VIEWER)).is_ok());
        assert!(limit.admitted.lock().by_certificate.is_empty());
        assert_eq!(limit.admitted.lock().count, [0; CLASSES.len()]);
    }

    #[test]
    fn clients_without_a_certificate_leave_places_for_readers_with_one() {
        let limit = ConnectionLimit::new(100);
        let guests: Vec<Permit> =
            std::iter::from_fn(|| limit.admit(PeerClass::Reader, None).ok()).collect();
        assert_eq!(guests.len(), 25);
        assert!(limit.admit(PeerClass::Reader, Some(VIEWER)).is_ok());
    }

    #[test]
    fn few_connections_are_not_divided_so_that_one_of_each_kind_gets_in() {
        let limit = ConnectionLimit::new(2);
        let controller = limit.admit(PeerClass::Controller, Some(OPERATOR));
        assert!(controller.is_ok());
        assert!(limit.admit(PeerClass::Launcher, Some(LAUNCHERS)).is_ok());
    }
}
