//! Devices: which units of a custom resource each instance has, so that no two use the same.
//!
//! ```text
//! --resource gpu=4          indices 0 to 3
//! START with {gpu: 2}       the two lowest that are free; its program is told CIAO_RESOURCE_GPU=0,2
//!                           and in each variable of --device-variable gpu=NAME
//! UPDATE to {gpu: 3}        one more, at the end of its list; the program that runs is not told
//! UPDATE to {gpu: 1}        gives up what it got last: of what its program was told, the highest
//! ```
//! An instance has them as long as it claims them: from its START until its end, also while it is suspended. They are in its
//! record, so that the next launcher gives them to no other instance. What a node has less of than before stays whose it
//! was.
//!
//! Only where programs are run: what runs nothing, or has others run it, has no program to tell.

use std::collections::{BTreeMap, BTreeSet};

use proto_frames::payload::Start;
use serde::{Deserialize, Serialize};

use super::instances::Instance;
use super::{Agent, Runs};

/// Most units of a custom resource that a node tells apart. With more of it there, it is an amount, such as huge pages.
/// No machine has as many accelerators, and a variable that lists all of them is shorter than 1 KiB.
pub const MAX_DEVICES: u16 = 256;

/// What the variables begin with that tell a program its devices.
const PREFIX: &str = "CIAO_RESOURCE_";

/// The devices of one instance: their indices by resource, in the order in which it got them.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Devices(BTreeMap<String, Vec<u16>>);

impl Devices {
    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The indices of one resource, in the order in which the instance got them.
    #[must_use]
    pub fn of(&self, resource: &str) -> &[u16] {
        self.0.get(resource).map(Vec::as_slice).unwrap_or_default()
    }

    /// The variables of the environment in which a program that starts now reads which devices it has: one for each
    /// resource, and those that libraries look at, which are empty where it has none of theirs.
    pub(super) fn variables(&self, also: &[DeviceVariable]) -> BTreeMap<String, String> {
        let all = |indices: &[u16], name: &dyn Fn(u16) -> String| {
            let sorted: BTreeSet<u16> = indices.iter().copied().collect();
            let names: Vec<String> = sorted.into_iter().map(name).collect();
            names.join(",")
        };
        let resources = self.0.iter();
        let mut variables: BTreeMap<String, String> = resources
            .map(|(resource, indices)| (variable(resource), all(indices, &|it| it.to_string())))
            .collect();
        for of in also {
            let value = variables.entry(of.name.clone()).or_default();
            let more = all(self.of(&of.resource), &|index| of.unit(index));
            if !value.is_empty() && !more.is_empty() {
                value.push(',');
            }
            value.push_str(&more);
        }
        variables
    }
}

/// A variable of the environment that libraries look at to see which devices a program may use, such as
/// `CUDA_VISIBLE_DEVICES`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceVariable {
    /// Its name.
    pub name: String,
    /// The resource whose units it lists.
    pub resource: String,
    /// What each unit is called, by index; empty where that is its index.
    pub units: Vec<String>,
}

impl DeviceVariable {
    fn unit(&self, index: u16) -> String {
        match self.units.get(usize::from(index)) {
            Some(name) => name.clone(),
            None => index.to_string(),
        }
    }
}

/// The variable that tells the devices of a resource.
fn variable(resource: &str) -> String {
    let plain = |it: char| match it.is_ascii_alphanumeric() {
        true => it.to_ascii_uppercase(),
        false => '_',
    };
    PREFIX.chars().chain(resource.chars().map(plain)).collect()
}

impl Agent {
    /// What the START says, and over it what the instance is told of its devices.
    pub(super) fn variables(&self, start: &Start) -> BTreeMap<String, String> {
        let mut variables = start.env.clone();
        if let Some(instance) = self.instances.get(&start.instance_uuid) {
            let told = &self.settings.features.device_variables;
            variables.extend(instance.devices.variables(told));
        }
        variables
    }

    /// Refuses resources that one instance asks for and one variable would tell, whether or not this node tells them.
    pub(super) fn check_names(&self, asked: &BTreeMap<String, i64>) -> Result<(), String> {
        let mut told: BTreeMap<String, &String> = BTreeMap::new();
        for (resource, _) in asked.iter().filter(|(_, amount)| **amount > 0) {
            let variable = variable(resource);
            if let Some(other) = told.get(&variable).filter(|_| self.passes_devices()) {
                return Err(format!(
                    "{other} and {resource} would both be told as {variable}; ask for one of them"
                ));
            }
            told.insert(variable, resource);
        }
        Ok(())
    }

    /// Gives an instance as many devices as it claims, the lowest that are free, and takes back those beyond. Whether
    /// that changed anything.
    ///
    /// What is admitted always finds enough: no more is claimed in all than there is, and no instance has more than it
    /// claims.
    pub(super) fn assign_devices(&mut self, id: &str) -> bool {
        let Some(instance) = self.instances.get_mut(id) else {
            return false;
        };
        let before = instance.devices.clone();
        instance.return_devices();
        for (resource, claimed) in instance.claims() {
            self.add_devices(id, resource, claimed);
        }
        let after = self.instances.get(id).map(|instance| &instance.devices);
        after != Some(&before)
    }

    /// Gives an instance further devices of a resource, until it has so many or none is free.
    fn add_devices(&mut self, id: &str, resource: String, claimed: usize) {
        let holders = self.live().map(|(_, holder)| holder.devices.of(&resource));
        let taken: BTreeSet<u16> = holders.flatten().copied().collect();
        let free = (0..self.devices_in_all(&resource)).filter(|index| !taken.contains(index));
        if let Some(instance) = self.instances.get_mut(id) {
            let lacking = claimed.saturating_sub(instance.devices.of(&resource).len());
            let mut more = free.take(lacking).peekable();
            if more.peek().is_some() {
                instance.devices.0.entry(resource).or_default().extend(more);
            }
        }
    }

    /// After a restart, once all are there again: gives devices to those that earlier launchers gave none.
    pub(super) fn assign_recovered_devices(&mut self) {
        for id in self.ids(Instance::is_live) {
            if self.assign_devices(&id) {
                self.persist(&id);
            }
        }
    }

    /// How many units of the resource this node tells apart.
    fn devices_in_all(&self, resource: &str) -> u16 {
        let all = self.settings.features.resources.get(resource);
        let all = all.filter(|_| self.passes_devices());
        let all = all.and_then(|&all| u16::try_from(all).ok());
        all.filter(|all| *all <= MAX_DEVICES).unwrap_or(0)
    }

    /// Whether programs are run here, to which devices can be passed.
    fn passes_devices(&self) -> bool {
        self.settings.runs == Runs::Processes
    }
}

impl Instance {
    /// Gives up the devices beyond what it claims, those first that it got last; all of them, and its processors, once it
    /// has ended.
    pub(super) fn return_devices(&mut self) {
        let mut devices = std::mem::take(&mut self.devices);
        devices.0.retain(|resource, indices| {
            indices.truncate(self.claim(resource));
            !indices.is_empty()
        });
        self.devices = devices;
        if !self.is_live() {
            self.cpus.0.clear();
        }
    }

    /// What it claims of each resource; while that changes, the more of the two.
    fn claims(&self) -> Vec<(String, usize)> {
        let demands = [Some(&self.demand), self.update.as_ref()];
        let names = demands.into_iter().flatten();
        let names: BTreeSet<&String> = names.flat_map(|it| it.resources.keys()).collect();
        names
            .into_iter()
            .map(|name| (name.clone(), self.claim(name)))
            .collect()
    }

    fn claim(&self, resource: &str) -> usize {
        if !self.is_live() {
            return 0;
        }
        let claimed = self.held(|demand| demand.resources.get(resource).copied().unwrap_or(0));
        usize::try_from(claimed).unwrap_or(0)
    }
}
