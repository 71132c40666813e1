//! Names of instances, what they run and since when, as their STARTs or their launchers reported. A name belongs to one
//! living instance of a tenant.
//!
//! Entries of instances that are gone are not removed at once: they are overwritten, or pruned when the table has
//! doubled. So the caller has to check whether an instance that it finds is still there.

use std::time::Instant;

use sched_model::SetMember;

use super::Instances;
use crate::api::ids::InstanceId;
use crate::api::rules::TenantId;
use crate::api::text::ShortText;
use crate::maps::Map;

/// Instances of which something is known, living or not: those of a cluster of 4096 nodes with 64 instances each. For
/// further ones name and program are not shown, and their names are not reserved.
pub const MAX_NAMED: usize = 262_144;

/// Below this many entries nothing is pruned.
const PRUNE_ABOVE: usize = 4096;

/// What was reported of one instance.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct InstanceInfo {
    /// What it is called; empty for nothing.
    pub(crate) name: Box<str>,
    /// Its tenant, if it has one and that is known.
    pub(crate) tenant: Option<TenantId>,
    /// What it runs, for people; empty where that is not known.
    pub(crate) program: Box<str>,
    /// Since when it is there, if its launcher has said so.
    pub(crate) since: Option<Instant>,
}

/// What is known of one instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct KnownInfo<'a> {
    /// What it is called; empty for nothing.
    pub(crate) name: &'a str,
    /// Its tenant, if it has one and that is known.
    pub(crate) tenant: Option<&'a TenantId>,
    /// What it runs, for people; empty where that is not known.
    pub(crate) program: &'a str,
    /// Since when it is there, if its launcher has said so.
    pub(crate) since: Option<Instant>,
}

/// An entry of the table. Those of an original controller have a tenant and nothing else, and there are many of them: 64
/// bytes each with its key.
#[derive(Debug, Default)]
struct Known {
    tenant: Option<TenantId>,
    rest: Option<Box<Rest>>,
}

/// The fields of [`KnownInfo`] that most have not.
#[derive(Debug, Default)]
struct Rest {
    name: Box<str>,
    program: Box<str>,
    since: Option<Instant>,
    /// Who has asked for its end, where that was by command.
    ended_by: Option<ShortText>,
}

impl Known {
    fn info(&self) -> KnownInfo<'_> {
        let rest = self.rest.as_deref();
        KnownInfo {
            name: self.name(),
            tenant: self.tenant.as_ref(),
            program: rest.map_or("", |rest| &rest.program),
            since: rest.and_then(|rest| rest.since),
        }
    }

    fn name(&self) -> &str {
        self.rest.as_deref().map_or("", |rest| &rest.name)
    }
}

/// The table and its index by tenant and name.
#[derive(Debug, Default)]
pub(super) struct Names {
    abouts: Map<InstanceId, Known>,
    by_name: Map<(Option<TenantId>, Box<str>), InstanceId>,
    /// Whether the end of any was asked for: most clusters' instances end by themselves, and are not looked up.
    has_enders: bool,
    /// Entries that were left by the latest pruning.
    pruned_to: usize,
}

impl Instances {
    /// Notes what is known of an instance. Empty fields leave what was known; a name has its tenant with it. Another
    /// instance that was called so, and is gone, has the name no longer, also if it turns out to be there after all: its
    /// runs that are over keep the name that they had.
    pub(crate) fn note_about(&mut self, instance: &InstanceId, about: InstanceInfo) {
        if self.names.abouts.len() >= MAX_NAMED && !self.names.abouts.contains_key(instance) {
            return;
        }
        if !about.name.is_empty() {
            let key = (about.tenant.clone(), about.name.clone());
            let before = self.names.by_name.insert(key, instance.clone());
            if let Some(before) = before.filter(|before| before != instance) {
                self.names.take_name(&before, &about.name);
            }
        }
        let known = self.names.abouts.entry(instance.clone()).or_default();
        if !about.name.is_empty() {
            known.rest.get_or_insert_default().name = about.name;
            known.tenant = about.tenant;
        } else if about.tenant.is_some() {
            known.tenant = about.tenant;
        }
        if !about.program.is_empty() {
            known.rest.get_or_insert_default().program = about.program;
        }
        if about.since.is_some() {
            known.rest.get_or_insert_default().since = about.since;
        }
    }

    /// Notes who has asked for the end of an instance: the latest counts.
    pub(crate) fn note_ended_by(&mut self, instance: &InstanceId, who: ShortText) {
        if self.names.abouts.len() < MAX_NAMED || self.names.abouts.contains_key(instance) {
            let known = self.names.abouts.entry(instance.clone()).or_default();
            known.rest.get_or_insert_default().ended_by = Some(who);
            self.names.has_enders = true;
        }
    }

    /// Who has asked for it, once: a later run of the instance ends by others.
    pub(super) fn take_ended_by(&mut self, instance: &InstanceId) -> Option<ShortText> {
        if !self.names.has_enders {
            return None;
        }
        let known = self.names.abouts.get_mut(instance)?;
        known.rest.as_mut()?.ended_by.take()
    }

    /// The instance that was last called so, whether or not it is still there.
    pub(crate) fn called(&self, tenant: &Option<TenantId>, name: &str) -> Option<&InstanceId> {
        if self.names.by_name.is_empty() {
            return None;
        }
        self.names.by_name.get(&(tenant.clone(), name.into()))
    }

    /// Name, program and start time of an instance, whether or not it still exists.
    pub(crate) fn about(&self, instance: &InstanceId) -> Option<KnownInfo<'_>> {
        if self.names.abouts.is_empty() {
            return None;
        }
        self.names.abouts.get(instance).map(Known::info)
    }

    /// Instances, living or not, that are called as members of a set are. Walks over all names.
    pub(crate) fn named_like_set(&self, set: &str) -> impl Iterator<Item = &InstanceId> {
        let is_of = move |known: &Known| {
            SetMember::of(known.name()).is_some_and(|member| member.set == set)
        };
        let found = self
            .names
            .abouts
            .iter()
            .filter(move |(_, known)| is_of(known));
        found.map(|(instance, _)| instance)
    }

    /// Whether it is time to prune: there are twice as many entries as after the latest pruning. So pruning costs O(1)
    /// per entry.
    pub(crate) fn has_old_names(&self) -> bool {
        self.names.abouts.len() > PRUNE_ABOVE.max(2 * self.names.pruned_to)
    }

    /// Drops the names of instances that are gone: neither managed here nor placed, as `is_placed` says.
    pub(crate) fn forget_old_names(&mut self, is_placed: impl Fn(&InstanceId) -> bool) {
        let managed = &self.managed;
        let exists = |instance: &InstanceId| managed.contains_key(instance) || is_placed(instance);
        self.names.abouts.retain(|instance, _| exists(instance));
        self.names.by_name.retain(|_, instance| exists(instance));
        self.names.pruned_to = self.names.abouts.len();
    }

    /// Instances of which it is known what they are.
    #[cfg(any(test, feature = "test-support"))]
    pub(crate) fn named_count(&self) -> usize {
        self.names.abouts.len().max(self.names.by_name.len())
    }
}

impl Names {
    /// An instance is called so no longer, if it is.
    fn take_name(&mut self, instance: &InstanceId, name: &str) {
        let known = self.abouts.get_mut(instance);
        if let Some(rest) = known.and_then(|known| known.rest.as_mut())
            && *rest.name == *name
        {
            rest.name = "".into();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{InstanceId, InstanceInfo, Instances, PRUNE_ABOVE};

    fn called(name: &str) -> InstanceInfo {
        InstanceInfo {
            name: name.into(),
            ..InstanceInfo::default()
        }
    }

    #[test]
    fn what_is_said_later_counts_and_what_is_not_said_stays() {
        let mut names = Instances::default();
        let a = InstanceId::new("a");
        names.note_about(&a, called("web"));
        names.note_about(
            &a,
            InstanceInfo {
                program: "nginx".into(),
                ..InstanceInfo::default()
            },
        );
        let about = names.about(&a).unwrap();
        assert_eq!((about.name, about.program), ("web", "nginx"));
        assert_eq!(names.called(&None, "web"), Some(&a));
        assert_eq!(names.called(&None, "other"), None);
    }

    #[test]
    fn a_name_is_one_instance_s_at_a_time() {
        let mut names = Instances::default();
        let (a, b) = (InstanceId::new("a"), InstanceId::new("b"));
        names.note_about(&a, called("web"));
        names.note_about(&b, called("web"));
        assert_eq!(names.about(&a).unwrap().name, "");
        assert_eq!(names.about(&b).unwrap().name, "web");
        names.note_about(&b, called("other"));
        names.note_about(&a, called("web"));
        assert_eq!(names.about(&b).unwrap().name, "other");
        assert_eq!(names.called(&None, "web"), Some(&a));
    }

    #[test]
    fn what_is_gone_is_left_out_once_there_is_too_much() {
        let mut names = Instances::default();
        for number in 0..=PRUNE_ABOVE {
            let name = number.to_string();
            names.note_about(&InstanceId::new(&name), called(&format!("n{name}")));
        }
        assert!(names.has_old_names());
        let seven = InstanceId::new("7");
        names.forget_old_names(|instance| *instance == seven);
        assert!(!names.has_old_names());
        assert_eq!(
            (names.named_count(), names.called(&None, "n7")),
            (1, Some(&seven))
        );
        assert_eq!(names.called(&None, "n8"), None);
    }
}
