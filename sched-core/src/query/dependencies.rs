//! What a START comes after: which instances and arrays it means, and whether these have ended as they were to.

use sched_model::array::element_index;
use sched_model::{After, Indexes, Scheduling};

use crate::api::array::ElementId;
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
        self.resolve(tenant, &mut dependency);
        if dependency.is_array {
            return self.array_dependency(tenant, dependency);
        }
        let instance = &dependency.other;
        let element = self.element_state(&dependency);
        let is_open = self.exists(instance)
            || self.recovery.expected_on(instance).is_some()
            || element.is_some_and(|state| !state.is_over());
        if is_open {
            return DependencyState::Open(dependency);
        }
        let run = self.instances.outcome_of(instance);
        // Of an element its array knows what it came to, so that an end of which nothing else was known does not count.
        let run = run.filter(|run| element.is_none() || run.was_started_here());
        let is_ok = match (run, element) {
            // Its array was sent again since: that run is of an earlier one.
            (_, Some(ElementState::NotStarted | ElementState::Deleted)) => Some(false),
            (Some(run), _) => run.is_ok(),
            // Its run is forgotten, or it never had one.
            (None, Some(ElementState::Succeeded)) => Some(true),
            (None, Some(ElementState::Unknown)) => None,
            (None, Some(_)) => Some(false),
            // A node may come back with it, or say how it ended.
            (None, None) if self.recovery.is_open() => return DependencyState::Open(dependency),
            (None, None) => return DependencyState::Never(Cause::OtherUnknown(dependency.named)),
        };
        if dependency.end.admits(is_ok) {
            return DependencyState::Met;
        }
        DependencyState::Never(Cause::OtherwiseEnded(Box::new(OtherEnd {
            named: dependency.named,
            wanted: dependency.end,
            exit_code: run.and_then(Run::exit_code),
            failed: run.and_then(Run::failed).cloned(),
            never_began: run.is_none() && element == Some(ElementState::NotStarted),
            is_ok,
        })))
    }

    /// Finds out what is named, as far as that is not known yet: an instance by its UUID or its name, an element of an array
    /// by either, though it may not have begun, or an array. Of a name that was used before the instance that lives is meant,
    /// else the element of the latest array that has not ended, else what ended last.
    fn resolve(&self, tenant: &Option<TenantId>, dependency: &mut Dependency) {
        if dependency.is_array || dependency.element.is_some() {
            return;
        }
        if self.exists(&dependency.other) {
            return;
        }
        dependency.element = self.arrays.element(&dependency.other);
        if dependency.element.is_some() || self.instances.last_run_of(&dependency.other).is_some() {
            return;
        }
        // It is a name.
        if let Some(meant) = self.living_called(tenant, &dependency.named) {
            dependency.other = meant.clone();
            return;
        }
        let element = self.element_called(tenant, &dependency.named);
        let is_open = |it: &ElementId| {
            let array = self.arrays.get(it.array);
            array.is_some_and(|array| array.state(it.index).is_some_and(|it| !it.is_over()))
        };
        if let Some(element) = element.filter(is_open) {
            (dependency.other, dependency.element) = (element.instance(), Some(element));
        } else if let Some(meant) = self.instance_called(tenant, &dependency.named) {
            dependency.element = self.arrays.element(&meant);
            dependency.other = meant;
        } else if let Some(element) = element {
            (dependency.other, dependency.element) = (element.instance(), Some(element));
        } else {
            dependency.is_array = self.array_meant(tenant, dependency).is_some();
        }
    }

    /// How far the element is that a START comes after; `None` if it names none, or its array is forgotten.
    fn element_state(&self, dependency: &Dependency) -> Option<ElementState> {
        let element = dependency.element?;
        self.arrays.get(element.array)?.state(element.index)
    }

    /// The element of a tenant's latest array that is called so, as `sweep-3`.
    fn element_called(&self, tenant: &Option<TenantId>, name: &str) -> Option<ElementId> {
        let (array_name, index) = element_name(name)?;
        let has_it = |it: &&Array| {
            it.name() == array_name
                && it.start().request.tenant == *tenant
                && it.state(index).is_some()
        };
        let array = self.arrays.latest_first(None).find(has_it)?;
        Some(array.element(index))
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
    pub(crate) fn array_comes_after_itself(
        &self,
        request: &StartRequest,
        indexes: &Indexes,
    ) -> bool {
        let own_name = request.scheduling.as_deref().map_or("", |it| &it.name);
        let is_own = |other: &InstanceId| match (&request.instance, other) {
            (InstanceId::Uuid(array), InstanceId::Uuid(other)) => {
                let index = element_index(*array, *other);
                array == other || index.is_some_and(|it| indexes.position(it).is_some())
            }
            _ => false,
        };
        let tenant = &request.tenant;
        let is_own_element = |named: &str| {
            element_name(named).is_some_and(|(array, index)| {
                array == own_name && indexes.position(index).is_some()
            })
        };
        said_by(request).any(|it| {
            // A name of an element means its own, unless an instance that lives is called so.
            is_own(&it.other)
                || *it.named == *own_name
                    && (it.is_array || self.instance_called(tenant, own_name).is_none())
                || !it.is_array
                    && is_own_element(&it.named)
                    && self.living_called(tenant, &it.named).is_none()
        })
    }

    /// The instance of a tenant that lives and is called so.
    fn living_called(&self, tenant: &Option<TenantId>, name: &str) -> Option<&InstanceId> {
        let named = self.instances.called(tenant, name);
        named.filter(|it| self.exists(it))
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

/// The name of the array and the index, of the name of an element such as `sweep-3`.
fn element_name(name: &str) -> Option<(&str, u32)> {
    let (array, digits) = name.rsplit_once('-')?;
    // Written as the scheduler writes it: neither `+3` nor `03`.
    let index: u32 = digits.parse().ok()?;
    (!array.is_empty() && index.to_string() == digits).then_some((array, index))
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
            element: None,
            named: named.as_str().into(),
            end: after.end.clone(),
        }
    })
}
