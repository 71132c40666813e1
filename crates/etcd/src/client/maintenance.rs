//! How etcd itself is: its members, and its alarms.

use super::{Client, Error};
use crate::messages::{AlarmMember, AlarmRequest, AlarmResponse, StatusRequest, StatusResponse};

/// What a member says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemberStatus {
    /// Its version, as `3.4.23`.
    pub version: String,
    /// Bytes of its database file.
    pub db_bytes: u64,
    /// Bytes of that which are in use; the rest is given back by defragmenting.
    pub db_bytes_in_use: u64,
    /// Whether it knows of a leader of etcd.
    pub has_leader: bool,
}

/// What etcd raised an alarm for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Alarm {
    /// A member's database is full: writes are refused until the alarm is taken back.
    NoSpace,
    /// A member's data differs from that of others.
    Corrupt,
    /// One that this program does not know.
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
        Ok(MemberStatus {
            version: answer.version,
            db_bytes: bytes(answer.db_size),
            db_bytes_in_use: bytes(answer.db_size_in_use),
            has_leader: answer.leader != 0,
        })
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
