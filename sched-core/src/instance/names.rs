//! What instances are called beside their UUIDs, what they run and since when: as their STARTs said it, or their launchers.
//! A name is that of one living instance of its tenant.
//!
//! What is known of one that is gone is not looked for: it is overwritten, or left out once there is too much of that. So
//! who asks says which instances live.

use std::time::Instant;

use crate::api::ids::InstanceId;
use crate::api::rules::TenantId;
use crate::maps::Map;

/// Instances of which something is known, living or not: those of a cluster of 4096 nodes with 64 instances each. Of further
/// ones name and program are not shown; their names are not held against others.
pub const MAX_NAMED: usize = 262_144;

/// Below so many it is not looked for what is gone.
const PRUNE_ABOVE: usize = 4096;

/// What is known of one instance.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct InstanceInfo {
    /// What it is called; empty for nothing.
    pub(crate) name: Box<str>,
    /// Its tenant, if it has one.
    pub(crate) tenant: Option<TenantId>,
    /// What it runs, for people; empty where that is not known.
    pub(crate) program: Box<str>,
    /// Since when it is there, if its launcher has said so.
    pub(crate) since: Option<Instant>,
}

/// All that is known.
#[derive(Debug, Default)]
pub(super) struct Names {
    abouts: Map<InstanceId, InstanceInfo>,
    by_name: Map<(Option<TenantId>, Box<str>), InstanceId>,
    /// How many there were when those that are gone were left out last.
    pruned_to: usize,
}

impl Names {
    /// Something is known of an instance; what was known before is left where this says nothing.
    pub(super) fn note(&mut self, instance: &InstanceId, about: InstanceInfo) {
        if self.abouts.len() >= MAX_NAMED && !self.abouts.contains_key(instance) {
            return;
        }
        let known = self.abouts.entry(instance.clone()).or_default();
        if !about.name.is_empty() {
            let key = (about.tenant.clone(), about.name.clone());
            self.by_name.insert(key, instance.clone());
            (known.name, known.tenant) = (about.name, about.tenant);
        }
        if !about.program.is_empty() {
            known.program = about.program;
        }
        known.since = about.since.or(known.since);
    }

    /// The instance that was called so last, whether or not it lives.
    pub(super) fn holder(&self, tenant: &Option<TenantId>, name: &str) -> Option<&InstanceId> {
        if self.by_name.is_empty() {
            return None;
        }
        self.by_name.get(&(tenant.clone(), name.into()))
    }

    pub(super) fn get(&self, instance: &InstanceId) -> Option<&InstanceInfo> {
        self.abouts.get(instance)
    }

    /// Whether it is time to leave out what is gone: there is twice as much as then.
    pub(super) fn is_to_prune(&self) -> bool {
        self.abouts.len() > PRUNE_ABOVE.max(2 * self.pruned_to)
    }

    /// Leaves out what is gone.
    pub(super) fn prune(&mut self, lives: impl Fn(&InstanceId) -> bool) {
        self.abouts.retain(|instance, _| lives(instance));
        self.by_name.retain(|_, instance| lives(instance));
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
        assert_eq!((&*about.name, &*about.program), ("web", "nginx"));
        assert_eq!(names.holder(&None, "web"), Some(&a));
        assert_eq!(names.holder(&None, "other"), None);
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
        assert_eq!((names.len(), names.holder(&None, "n7")), (1, Some(&seven)));
        assert_eq!(names.holder(&None, "n8"), None);
    }
}
