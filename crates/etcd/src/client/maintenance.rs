//! How etcd itself is: its members, and its alarms.

use super::{Client, Error};
use crate::messages::{
    AlarmMember, AlarmRequest, AlarmResponse, CompactionRequest, CompactionResponse, StatusRequest,
    StatusResponse,
};

/// Bytes that a member's database may have unless its `--quota-backend-bytes` says otherwise: 2 GiB, as etcd's guide says.
pub const DEFAULT_QUOTA: u64 = 2 * 1024 * 1024 * 1024;

/// What a member says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemberStatus {
    /// Its version, as `3.4.23`.
    pub version: String,
    /// Bytes of its database file.
    pub db_bytes: u64,
    /// Bytes of that which are in use; the rest is given back by defragmenting.
    pub db_bytes_in_use: u64,
    /// Bytes that its database may have: as it says since 3.6, [`DEFAULT_QUOTA`] before.
    pub db_quota: u64,
    /// Whether it knows of a leader of etcd.
    pub has_leader: bool,
    /// Whether it leads etcd itself, as far as it knows.
    pub is_leader: bool,
}

impl MemberStatus {
    /// Whether this version may confirm a lease that has ended, after its member was cut off from others (etcd 15247):
    /// mended in 3.4.31 and 3.5.13. `false` for a version that is no such number.
    #[must_use]
    pub fn has_lease_fault(&self) -> bool {
        let plain = self.version.split('-').next().unwrap_or_default();
        let mut parts = plain.split('.').map(str::parse::<u32>);
        match (parts.next(), parts.next(), parts.next()) {
            (Some(Ok(3)), Some(Ok(4)), Some(Ok(patch))) => patch < 31,
            (Some(Ok(3)), Some(Ok(5)), Some(Ok(patch))) => patch < 13,
            (Some(Ok(3)), Some(Ok(minor)), _) => minor < 4,
            _ => false,
        }
    }
}

/// What etcd raised an alarm for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Alarm {
    /// A member's database is full: writes are refused until the alarm is taken back.
    #[error(
        "NOSPACE: a member's database is full, and etcd takes no writes: make room (etcdctl compact REVISION, etcdctl \
         defrag), then take the alarm back (etcdctl alarm disarm)"
    )]
    NoSpace,
    /// A member's data differs from that of others.
    #[error("CORRUPT: a member's data differs from that of others: replace that member")]
    Corrupt,
    /// One that this program does not know.
    #[error("an alarm of number {0}")]
    Unknown(i32),
}

impl Client {
    /// What each member says of itself, in the order of their addresses.
    pub async fn statuses(&self) -> Vec<(String, Result<MemberStatus, Error>)> {
        let mut statuses = Vec::new();
        for (place, member) in self.shared.members.iter().enumerate() {
            statuses.push((member.endpoint.clone(), self.status_of(place).await));
        }
        statuses
    }

    async fn status_of(&self, member: usize) -> Result<MemberStatus, Error> {
        let path = "/etcdserverpb.Maintenance/Status";
        let answer: StatusResponse = self.call_at(member, path, StatusRequest {}).await?;
        let bytes = |count: i64| u64::try_from(count).unwrap_or(0);
        let member = answer.header.map_or(0, |header| header.member);
        Ok(MemberStatus {
            version: answer.version,
            db_bytes: bytes(answer.db_size),
            db_bytes_in_use: bytes(answer.db_size_in_use),
            db_quota: match bytes(answer.db_size_quota) {
                0 => DEFAULT_QUOTA,
                quota => quota,
            },
            has_leader: answer.leader != 0,
            is_leader: answer.leader != 0 && answer.leader == member,
        })
    }

    /// Has etcd forget what was overwritten or deleted before this revision; reads and watches of earlier ones fail from
    /// then on. That another was faster is as good.
    ///
    /// # Errors
    /// [`Error`]: no member answers, or the call is refused.
    pub async fn compact(&self, revision: i64) -> Result<(), Error> {
        let path = "/etcdserverpb.KV/Compact";
        let request = CompactionRequest { revision };
        let answer: Result<CompactionResponse, Error> = self.repeated(path, request).await;
        match answer {
            Ok(_) | Err(Error::Compacted) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// The alarms that are raised.
    ///
    /// # Errors
    /// [`Error`]: no member answers, or the call is refused.
    pub async fn alarms(&self) -> Result<Vec<Alarm>, Error> {
        let request = AlarmRequest { action: 0 };
        let path = "/etcdserverpb.Maintenance/Alarm";
        let answer: AlarmResponse = self.repeated(path, request).await?;
        Ok(answer.alarms.into_iter().filter_map(alarm).collect())
    }
}

fn alarm(it: AlarmMember) -> Option<Alarm> {
    match it.alarm {
        0 => None,
        1 => Some(Alarm::NoSpace),
        2 => Some(Alarm::Corrupt),
        other => Some(Alarm::Unknown(other)),
    }
}

#[cfg(test)]
mod tests {
    use super::MemberStatus;

    #[test]
    fn versions_with_the_fault_of_leases_are_known() {
        let is_faulty = |version: &str| {
            let status = MemberStatus {
                version: version.to_owned(),
                db_bytes: 0,
                db_bytes_in_use: 0,
                db_quota: 0,
                has_leader: true,
                is_leader: true,
            };
            status.has_lease_fault()
        };
        for version in ["3.3.27", "3.4.23", "3.4.30", "3.5.12", "3.5.0-rc.1"] {
            assert!(is_faulty(version), "{version}");
        }
        for version in ["3.4.31", "3.5.13", "3.6.0", "3.6.0-alpha.0", "4.0.0", ""] {
            assert!(!is_faulty(version), "{version}");
        }
    }
}
