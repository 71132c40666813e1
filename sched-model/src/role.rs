//! Roles: what a peer is, as a bit set, and the certificate OID that grants each.

use std::fmt;
use std::ops::{BitOr, BitOrAssign};

/// A set of SSNTP roles. One launcher can be `AGENT | NETAGENT`. Bits that no role has survive a round trip.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Role(pub u32);

impl Role {
    /// A generic server; unused by the scheduler.
    pub const SERVER: Self = Self(0x01);
    /// A controller: submits and deletes workloads.
    pub const CONTROLLER: Self = Self(0x02);
    /// A launcher on a compute node.
    pub const AGENT: Self = Self(0x04);
    /// The scheduler.
    pub const SCHEDULER: Self = Self(0x08);
    /// A launcher on a network node.
    pub const NETAGENT: Self = Self(0x10);
    /// The agent inside a concentrator instance.
    pub const CNCIAGENT: Self = Self(0x20);
    /// An operator's tool (added by this project, native encoding only); granted by a certificate with the Controller OID.
    pub const OPERATOR: Self = Self(0x40);
    /// One that reads and subscribes, and commands nothing (added by this project, native encoding and HTTP only).
    pub const VIEWER: Self = Self(0x80);

    /// Each role that a certificate can grant: the role, the last arc of its OID under [`Role::OID_PREFIX`], and the
    /// name it has in certificate file names.
    pub const GRANTS: [(Self, u64, &'static str); 7] = [
        (Self::AGENT, 1, "CNAgent"),
        (Self::SCHEDULER, 2, "Scheduler"),
        (Self::CONTROLLER, 3, "Controller"),
        (Self::NETAGENT, 4, "NetworkingAgent"),
        (Self::SERVER, 5, "Server"),
        (Self::CNCIAGENT, 6, "CNCIAgent"),
        (Self::VIEWER, 7, "Viewer"),
    ];

    /// The arcs under which the original registered its role OIDs: 1.3.6.1.4.1.343.8.
    pub const OID_PREFIX: [u64; 8] = [1, 3, 6, 1, 4, 1, 343, 8];

    /// No role at all.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether every role of `other` is in this set.
    #[must_use]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Whether any role of `other` is in this set.
    #[must_use]
    pub const fn intersects(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }
}

impl BitOr for Role {
    type Output = Self;
    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl BitOrAssign for Role {
    fn bitor_assign(&mut self, other: Self) {
        self.0 |= other.0;
    }
}

impl fmt::Display for Role {
    /// The names joined by `|`, unknown bits in hex: `AGENT|NETAGENT`, `0x80`, `NONE`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const NAMES: [(Role, &str); 8] = [
            (Role::SERVER, "SERVER"),
            (Role::CONTROLLER, "CONTROLLER"),
            (Role::AGENT, "AGENT"),
            (Role::SCHEDULER, "SCHEDULER"),
            (Role::NETAGENT, "NETAGENT"),
            (Role::CNCIAGENT, "CNCIAGENT"),
            (Role::OPERATOR, "OPERATOR"),
            (Role::VIEWER, "VIEWER"),
        ];
        if self.is_empty() {
            return f.write_str("NONE");
        }
        let mut rest = self.0;
        let mut separator = "";
        for (role, name) in NAMES {
            if self.contains(role) {
                write!(f, "{separator}{name}")?;
                separator = "|";
                rest &= !role.0;
            }
        }
        if rest != 0 {
            write!(f, "{separator}{rest:#x}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::Role;

    #[test]
    fn prints_names_and_unknown_bits() {
        assert_eq!((Role::AGENT | Role::NETAGENT).to_string(), "AGENT|NETAGENT");
        assert_eq!(Role(0x302).to_string(), "CONTROLLER|0x300");
        assert_eq!(Role(0).to_string(), "NONE");
    }
}
