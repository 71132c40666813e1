//! What a START comes after: which instances and arrays it means, and whether these have ended as they were to.

use sched_model::{After, Scheduling};

use crate::api::cause::{Cause, OtherArrayEnd, OtherEnd};
use crate::api::ids::InstanceId;
use crate::api::rules::TenantId;
use crate::api::start::StartRequest;
use crate::arrays::{Array, ElementState};
use crate::instance::Run;
use crate::queue::Dependency;
use crate::sight::Sight;

/// Runs that are over among which one is looked for by name: names of instances that are gone are forgotten before their
/// runs are, and each is compared.
const MAX_RUNS_LOOKED_AT: usize = 10_000;

/// How one instance or array that must have ended is.
#[derive(Debug)]
pub(crate) enum DependencyState {
    /// It has ended as it was to.
    Met,
    /// It has not ended, or that is not known yet.
    Open(Dependency),
    /// That will not come.
    Never(Cause),
}

impl Sight<'_> {
    /// Whether a START comes after others that have not all ended as they were to.
    pub(crate) fn comes_after_others(&self, request: &StartRequest) -> bool {
        let says = |it: &Scheduling| !it.after.is_empty();
        request.scheduling.as_deref().is_some_and(says)
            && !self
                .left_of_start(request)
                .is_ok_and(|left| left.is_empty())
    }

    /// What of those that a START comes after has not ended.
    ///
    /// # Errors
    /// The cause, if something will not come.
    pub(crate) fn left_of_start(&self, request: &StartRequest) -> Result<Vec<Dependency>, Cause> {
        self.left(&request.tenant, said_by(request))
    }

    /// The same of one that waits for others; `None` if it does not, or its START could not be read back from disk.
    pub(crate) fn left_of_dependent(
        &self,
        instance: &InstanceId,
    ) -> Option<Result<Vec<Dependency>, Cause>> {
        let before = self.queue.dependencies(instance)?;
        let request = self.instances.get(instance)?.request()?;
        Some(self.left(&request.tenant, before.iter().cloned()))
    }

    fn left(
        &self,
        tenant: &Option<TenantId>,
        dependencies: impl IntoIterator<Item = Dependency>,
    ) -> Result<Vec<Dependency>, Cause> {
        let mut left = Vec::new();
        for dependency in dependencies {
            match self.dependency_state(tenant, dependency) {
                DependencyState::Met => {}
                DependencyState::Open(dependency) => left.push(dependency),
                DependencyState::Never(cause) => return Err(cause),
            }
        }
        Ok(left)
    }

    /// The latest outcome of an instance counts; one that lives has none.
    fn dependency_state(
        &self,
        tenant: &Option<TenantId>,
        mut dependency: Dependency,
    ) -> DependencyState {
        if !dependency.is_array && !self.is_known_or_was(&dependency.other) {
            match self.instance_called(tenant, &dependency.named) {
                Some(meant) => dependency.other = meant,
                None => dependency.is_array = self.array_meant(tenant, &dependency).is_some(),
            }
        }
        if dependency.is_array {
            return self.array_dependency(tenant, dependency);
        }
        let instance = &dependency.other;
        if self.exists(instance) || self.recovery.expected_on(instance).is_some() {
            return DependencyState::Open(dependency);
        }
        match self.instances.last_run_of(instance) {
            Some(run) if dependency.end.admits(run.is_ok()) => DependencyState::Met,
            Some(run) => DependencyState::Never(Cause::OtherwiseEnded(Box::new(OtherEnd {
                named: dependency.named,
                wanted: dependency.end,
                exit_code: run.exit_code(),
                failed: run.failed().cloned(),
            }))),
            // A node may come back with it, or say how it ended.
            None if self.recovery.is_open() => DependencyState::Open(dependency),
            None => DependencyState::Never(Cause::OtherUnknown(dependency.named)),
        }
    }

    /// An array counts as a whole: it has ended well if all of its elements have.
    fn array_dependency(
        &self,
        tenant: &Option<TenantId>,
        mut dependency: Dependency,
    ) -> DependencyState {
        let Some(array) = self.array_meant(tenant, &dependency) else {
            return DependencyState::Never(Cause::OtherUnknown(dependency.named));
        };
        dependency.other = InstanceId::Uuid(array.id());
        if array.ended_at().is_none() {
            return DependencyState::Open(dependency);
        }
        let count = array.indexes().count();
        let [succeeded, unknown] =
            [ElementState::Succeeded, ElementState::Unknown].map(|it| array.count(it));
        let is_ok = match count - succeeded {
            0 => Some(true),
            others if others > unknown => Some(false),
            _ => None,
        };
        match dependency.end.admits(is_ok) {
            true => DependencyState::Met,
            false => DependencyState::Never(Cause::ArrayOtherwiseEnded(Box::new(OtherArrayEnd {
                named: dependency.named,
                wanted: dependency.end,
                count,
                succeeded,
                unknown,
            }))),
        }
    }

    /// The array of this UUID, or the latest of the tenant that is called so.
    fn array_meant(&self, tenant: &Option<TenantId>, dependency: &Dependency) -> Option<&Array> {
        if let Some(array) = self.array_of(&dependency.other) {
            return Some(array);
        }
        let is_meant =
            |it: &&Array| it.name() == &*dependency.named && it.start().request.tenant == *tenant;
        self.arrays.latest_first(None).find(is_meant)
    }

    /// Whether what an array is made of comes after the array itself, which would never begin.
    pub(crate) fn array_comes_after_itself(&self, request: &StartRequest) -> bool {
        let own_name = request.scheduling.as_deref().map_or("", |it| &it.name);
        said_by(request).any(|it| {
            it.other == request.instance
                || *it.named == *own_name
                    && (it.is_array || self.instance_called(&request.tenant, own_name).is_none())
        })
    }

    fn is_known_or_was(&self, instance: &InstanceId) -> bool {
        self.exists(instance) || self.instances.last_run_of(instance).is_some()
    }

    /// The instance of a tenant that is called so, or was last.
    fn instance_called(&self, tenant: &Option<TenantId>, name: &str) -> Option<InstanceId> {
        if let Some(named) = self.instances.called(tenant, name) {
            return Some(named.clone());
        }
        let runs = self.instances.runs_before(u64::MAX);
        let mut runs = runs.take(MAX_RUNS_LOOKED_AT).map(|(_, run)| run);
        let is_meant = |run: &&Run| run.name() == name && run.owner() == tenant.as_ref();
        runs.find(is_meant).map(|run| run.instance().clone())
    }

    /// What an instance waits for to end; `None` if it does not wait for others.
    pub(crate) fn comes_after(&self, instance: &InstanceId) -> Option<Cause> {
        let left = self.queue.dependencies(instance)?;
        Some(cause_of(left))
    }
}

/// That these are waited for.
pub(crate) fn cause_of(left: &[Dependency]) -> Cause {
    let first = left
        .first()
        .map_or_else(Box::default, |it| it.named.clone());
    Cause::ComesAfter(first, left.len().saturating_sub(1))
}

/// What a START says that it comes after.
fn said_by(request: &StartRequest) -> impl Iterator<Item = Dependency> {
    let said = request
        .scheduling
        .as_deref()
        .map_or(&[][..], |it| &it.after);
    said.iter().map(|after: &After| {
        let is_array = !after.array.is_empty();
        let named = match is_array {
            true => &after.array,
            false => &after.instance,
        };
        Dependency {
            other: InstanceId::new(named),
            is_array,
            named: named.as_str().into(),
            end: after.end.clone(),
        }
    })
}
