//! Names of instances, what they run and since when, as their STARTs or their launchers reported. A name belongs to one
//! living instance of a tenant.
//!
//! Entries of instances that are gone are not removed at once: they are overwritten, or pruned when the table has
//! doubled. So the caller has to check whether an instance that it finds is still there.

use std::time::Instant;

use sched_model::SetMember;

use crate::api::ids::InstanceId;
use crate::api::rules::TenantId;
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
    /// Entries that were left by the latest pruning.
    pruned_to: usize,
}

impl Names {
    /// Notes what is known of an instance. Empty fields leave what was known; a name has its tenant with it. Another
    /// instance that was called so, and is gone, has the name no longer, also if it turns out to be there after all: its
    /// runs that are over keep the name that they had.
    pub(super) fn note(&mut self, instance: &InstanceId, about: InstanceInfo) {
        if self.abouts.len() >= MAX_NAMED && !self.abouts.contains_key(instance) {
            return;
        }
        if !about.name.is_empty() {
            let key = (about.tenant.clone(), about.name.clone());
            let before = self.by_name.insert(key, instance.clone());
            if let Some(before) = before.filter(|before| before != instance) {
                self.take_name(&before, &about.name);
            }
        }
        let known = self.abouts.entry(instance.clone()).or_default();
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

    /// An instance is called so no longer, if it is.
    fn take_name(&mut self, instance: &InstanceId, name: &str) {
        let known = self.abouts.get_mut(instance);
        if let Some(rest) = known.and_then(|known| known.rest.as_mut())
            && *rest.name == *name
        {
            rest.name = "".into();
        }
    }

    /// The instance that was last called so, whether or not it is still there.
    pub(super) fn instance_named(
        &self,
        tenant: &Option<TenantId>,
        name: &str,
    ) -> Option<&InstanceId> {
        if self.by_name.is_empty() {
            return None;
        }
        self.by_name.get(&(tenant.clone(), name.into()))
    }

    /// What is known of an instance.
    pub(super) fn get(&self, instance: &InstanceId) -> Option<KnownInfo<'_>> {
        self.abouts.get(instance).map(Known::info)
    }

    /// Instances, living or not, that are called as members of a set are. Walks over all names.
    pub(super) fn named_like_set(&self, set: &str) -> impl Iterator<Item = &InstanceId> {
        let is_of = move |known: &Known| {
            SetMember::of(known.name()).is_some_and(|member| member.set == set)
        };
        let found = self.abouts.iter().filter(move |(_, known)| is_of(known));
        found.map(|(instance, _)| instance)
    }

    /// Whether it is time to prune: there are twice as many entries as after the latest pruning. So pruning costs O(1)
    /// per entry.
    pub(super) fn is_to_prune(&self) -> bool {
        self.abouts.len() > PRUNE_ABOVE.max(2 * self.pruned_to)
    }

    /// Removes entries of instances that are gone.
    pub(super) fn prune(&mut self, exists: impl Fn(&InstanceId) -> bool) {
        self.abouts.retain(|instance, _| exists(instance));
        self.by_name.retain(|_, instance| exists(instance));
        self.pruned_to = self.abouts.len();
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.abouts.len().max(self.by_name.len())
    }
}

#[cfg(test)]
mod tests {
    use super::{InstanceId, InstanceInfo, Names, PRUNE_ABOVE};

    fn called(name: &str) -> InstanceInfo {
        InstanceInfo {
            name: name.into(),
            ..InstanceInfo::default()
        }
    }

    #[test]
    fn what_is_said_later_counts_and_what_is_not_said_stays() {
        let mut names = Names::default();
        let a = InstanceId::new("a");
        names.note(&a, called("web"));
        names.note(
            &a,
            InstanceInfo {
                program: "nginx".into(),
                ..InstanceInfo::default()
            },
        );
        let about = names.get(&a).unwrap();
        assert_eq!((about.name, about.program), ("web", "nginx"));
        assert_eq!(names.instance_named(&None, "web"), Some(&a));
        assert_eq!(names.instance_named(&None, "other"), None);
    }

    #[test]
    fn a_name_is_one_instance_s_at_a_time() {
        let mut names = Names::default();
        let (a, b) = (InstanceId::new("a"), InstanceId::new("b"));
        names.note(&a, called("web"));
        names.note(&b, called("web"));
        assert_eq!(names.get(&a).unwrap().name, "");
        assert_eq!(names.get(&b).unwrap().name, "web");
        names.note(&b, called("other"));
        names.note(&a, called("web"));
        assert_eq!(names.get(&b).unwrap().name, "other");
        assert_eq!(names.instance_named(&None, "web"), Some(&a));
    }

    #[test]
    fn what_is_gone_is_left_out_once_there_is_too_much() {
        let mut names = Names::default();
        for number in 0..=PRUNE_ABOVE {
            let name = number.to_string();
            names.note(&InstanceId::new(&name), called(&format!("n{name}")));
        }
        assert!(names.is_to_prune());
        let seven = InstanceId::new("7");
        names.prune(|instance| *instance == seven);
        assert!(!names.is_to_prune());
        assert_eq!(
            (names.len(), names.instance_named(&None, "n7")),
            (1, Some(&seven))
        );
        assert_eq!(names.instance_named(&None, "n8"), None);
    }
}
