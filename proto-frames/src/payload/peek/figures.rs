//! The figures that READY and STATS share.

use std::borrow::Cow;
use std::collections::BTreeMap;

use super::walk::{Found, Place};
use crate::payload::span::Span;

/// What a node says of itself. A figure is `None` where the node does not say it or does not know it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Figures<'a> {
    /// Memory, MiB.
    pub mem_total_mb: Option<i64>,
    /// Memory available now, MiB.
    pub mem_available_mb: Option<i64>,
    /// Disk, in units of 10⁶ bytes.
    pub disk_total_mb: Option<i64>,
    /// Disk available now, in units of 10⁶ bytes.
    pub disk_available_mb: Option<i64>,
    /// Load average over a minute.
    pub load: Option<i64>,
    /// CPUs online.
    pub cpus_online: Option<i64>,
    /// Host name; empty where it does not say.
    pub hostname: Cow<'a, str>,
    /// Labels.
    pub labels: BTreeMap<Cow<'a, str>, Cow<'a, str>>,
    /// Further countable resources, by name.
    pub resources: BTreeMap<Cow<'a, str>, i64>,
    /// What the launcher understands beyond the original.
    pub capabilities: Vec<Cow<'a, str>>,
    /// How many STARTs these figures know of, on this connection.
    pub starts_seen: Option<u64>,
    /// The node whose resources it shares; empty for none.
    pub shares: Cow<'a, str>,
    /// The nodes that share its resources.
    pub shared_by: Vec<Cow<'a, str>>,
    /// Which `vm_type` of STARTs it runs; empty where it does not say.
    pub vm_types: Vec<Cow<'a, str>>,
    /// Volumes and ports that can be reached from it, by id.
    pub volumes: Vec<Cow<'a, str>>,
    /// Why it takes no work although it may have room; empty where it does.
    pub fault: Cow<'a, str>,
    /// Whether that is because it is short of memory.
    pub pressure: bool,
    /// A UUID of the launcher's process; empty where it does not say.
    pub incarnation: Cow<'a, str>,
    /// How long it lets instances run when it is cut off.
    pub lease: Option<Span>,
    /// A number for LeaseRenewed to answer.
    pub lease_seq: Option<u64>,
    /// A number for ReportReceived to answer.
    pub report_seq: Option<u64>,
}

/// A figure, unless it is negative: a node says -1 for what it does not know.
pub(super) fn known(figure: i64) -> Option<i64> {
    (figure >= 0).then_some(figure)
}

impl<'a> Figures<'a> {
    /// Takes in what a walk found, if it is one of these.
    pub(super) fn found(&mut self, at: &Place<'a>, what: Found<'a>) -> Option<()> {
        match (at.outer, at.record, what) {
            ("", "", Found::Int(value)) => self.figure(at.key, value)?,
            ("", "", Found::Text(text)) if at.key == "hostname" => self.hostname = borrowed(text)?,
            ("", "", Found::Text(text)) if at.key == "shares" => self.shares = borrowed(text)?,
            ("", "", Found::Text(text)) if at.key == "fault" => self.fault = borrowed(text)?,
            ("", "", Found::Text(text)) if at.key == "incarnation" => {
                self.incarnation = borrowed(text)?;
            }
            ("", "", Found::Bool(pressure)) if at.key == "pressure" => self.pressure = pressure,
            ("", "", Found::Text(text)) if at.key == "lease" => {
                self.lease = Some(std::str::from_utf8(text).ok()?.parse().ok()?);
            }
            ("", "labels", Found::Text(text)) => {
                self.labels.insert(Cow::Borrowed(at.key), borrowed(text)?);
            }
            ("", "resources", Found::Int(amount)) => {
                self.resources.insert(Cow::Borrowed(at.key), amount);
            }
            ("", "capabilities", Found::Text(text)) => self.capabilities.push(borrowed(text)?),
            ("", "vm_types", Found::Text(text)) => self.vm_types.push(borrowed(text)?),
            ("", "volumes", Found::Text(text)) => self.volumes.push(borrowed(text)?),
            ("", "shared_by", Found::Text(text)) => self.shared_by.push(borrowed(text)?),
            _ => {}
        }
        Some(())
    }

    fn figure(&mut self, key: &str, value: i64) -> Option<()> {
        let figure = match key {
            "mem_total_mb" => &mut self.mem_total_mb,
            "mem_available_mb" => &mut self.mem_available_mb,
            "disk_total_mb" => &mut self.disk_total_mb,
            "disk_available_mb" => &mut self.disk_available_mb,
            "load" => &mut self.load,
            "cpus_online" => &mut self.cpus_online,
            "starts_seen" => {
                self.starts_seen = Some(u64::try_from(value).ok()?);
                return Some(());
            }
            "lease_seq" => {
                self.lease_seq = Some(u64::try_from(value).ok()?);
                return Some(());
            }
            "report_seq" => {
                self.report_seq = Some(u64::try_from(value).ok()?);
                return Some(());
            }
            _ => return Some(()),
        };
        *figure = known(value);
        Some(())
    }
}

/// A word of a walk as text.
pub(super) fn borrowed(word: &[u8]) -> Option<Cow<'_, str>> {
    std::str::from_utf8(word).ok().map(Cow::Borrowed)
}

/// The figures of a decoded [`crate::payload::Ready`] or [`crate::payload::Stats`].
macro_rules! figures_of {
    ($from:expr) => {
        $crate::payload::peek::Figures {
            mem_total_mb: $crate::payload::peek::figures::known($from.mem_total_mb),
            mem_available_mb: $crate::payload::peek::figures::known($from.mem_available_mb),
            disk_total_mb: $crate::payload::peek::figures::known($from.disk_total_mb),
            disk_available_mb: $crate::payload::peek::figures::known($from.disk_available_mb),
            load: $crate::payload::peek::figures::known($from.load),
            cpus_online: $crate::payload::peek::figures::known($from.cpus_online),
            hostname: $from.hostname.into(),
            labels: $from
                .labels
                .into_iter()
                .map(|(key, value)| (key.into(), value.into()))
                .collect(),
            resources: $from
                .resources
                .into_iter()
                .map(|(key, amount)| (key.into(), amount))
                .collect(),
            capabilities: $from.capabilities.into_iter().map(Into::into).collect(),
            starts_seen: $from.starts_seen,
            shares: $from.shares.into(),
            shared_by: $from.shared_by.into_iter().map(Into::into).collect(),
            vm_types: $from.vm_types.into_iter().map(Into::into).collect(),
            volumes: $from.volumes.into_iter().map(Into::into).collect(),
            fault: $from.fault.into(),
            pressure: $from.pressure,
            incarnation: $from.incarnation.into(),
            lease: $from.lease,
            lease_seq: $from.lease_seq,
            report_seq: $from.report_seq,
        }
    };
}

pub(super) use figures_of;
