//! UPDATE: what a running instance asks for is to change (added by this project).

use std::collections::BTreeMap;

use crate::record;

use crate::cut::shorten;
use crate::error::{Fault, PayloadError, require};
use crate::expression::is_name;
use crate::scheduling::{MAX_PRIORITY, MAX_RESOURCES};

record! {
    /// `update: {instance_uuid, workload_agent_uuid, mem_mb, vcpus, disk_mb, resources, priority, move}`. What is absent
    /// stays as it is; to a launcher all of `mem_mb`, `vcpus`, `disk_mb` and `resources` are said.
    pub struct Update {
        /// The instance.
        instance_uuid: String as "instance_uuid",
        /// Its node; to the scheduler, which knows it, it may be empty.
        workload_agent_uuid: String as "workload_agent_uuid",
        /// Memory it is to have, MiB, not negative.
        mem_mb: Option<i64> as "mem_mb" unless empty,
        /// Virtual CPUs it is to have, not negative.
        vcpus: Option<i64> as "vcpus" unless empty,
        /// Local disk it is to have, MiB, not negative.
        disk_mb: Option<i64> as "disk_mb" unless empty,
        /// Further countable resources it is to have, by name, none negative, at most
        /// [`crate::scheduling::MAX_RESOURCES`].
        resources: BTreeMap<String, i64> as "resources" unless empty,
        /// Its priority from now on, 0 to [`crate::scheduling::MAX_PRIORITY`].
        priority: Option<i64> as "priority" unless empty,
        /// Whether it may be moved to another node where its own has no room for the difference.
        may_move: bool as "move" unless empty,
    }
}

impl Update {
    /// Whether it says which instance, and its values make sense.
    ///
    /// # Errors
    /// Names the key that is missing, empty, negative or out of range.
    pub fn check(&self) -> Result<(), PayloadError> {
        require(&[("update.instance_uuid", &self.instance_uuid)])?;
        for (key, amount) in [
            ("mem_mb", self.mem_mb),
            ("vcpus", self.vcpus),
            ("disk_mb", self.disk_mb),
        ] {
            check_amount(key, amount.unwrap_or_default())?;
        }
        self.check_resources()?;
        match self.priority {
            Some(value) if !(0..=MAX_PRIORITY).contains(&value) => {
                let (min, max) = (0, MAX_PRIORITY);
                wrong("priority", Fault::OutOfRange { value, min, max })
            }
            _ => Ok(()),
        }
    }

    /// Whether it asks for nothing to be changed.
    #[must_use]
    pub fn changes_nothing(&self) -> bool {
        let amounts = [self.mem_mb, self.vcpus, self.disk_mb, self.priority];
        self.resources.is_empty() && amounts.iter().all(Option::is_none)
    }

    fn check_resources(&self) -> Result<(), PayloadError> {
        if self.resources.len() > MAX_RESOURCES {
            return wrong("resources", Fault::TooManyEntries { max: MAX_RESOURCES });
        }
        for (name, amount) in &self.resources {
            if !is_name(name) {
                return wrong("resources", Fault::NotAName(shorten(name)));
            }
            check_amount(&format!("resources.{name}"), *amount)?;
        }
        Ok(())
    }
}

fn check_amount(key: &str, amount: i64) -> Result<(), PayloadError> {
    if amount < 0 {
        return wrong(key, Fault::Negative(amount));
    }
    Ok(())
}

/// An error about a key of `update`.
fn wrong<T>(key: &str, fault: Fault) -> Result<T, PayloadError> {
    Err(PayloadError::new(format!("update.{key}"), fault))
}
