//! What must hold, each in a file of its own: after every step, at rest, and when everything is deleted.

mod after;
mod apart;
mod arrays;
mod books;
mod capacity;
mod core;
mod drains;
mod ends;
mod finished;
mod fooled;
mod forgotten;
mod leaders;
mod listed;
mod lost;
mod once;
mod order;
mod outcomes;
mod restarts;

use std::time::Duration;

use crate::facts::Fact;
use crate::world::World;

/// How long what the scheduler says may be on its way to a controller at rest: some times the longest latency.
pub(crate) const IN_FLIGHT: Duration = Duration::from_secs(2);

/// Something that must hold. An `Err` says what does not.
pub(crate) trait Check {
    /// What must hold, as a sentence.
    fn name(&self) -> &'static str;

    /// Sees what happened; the world is as after the whole step.
    fn see(&mut self, _fact: &Fact, _world: &World) -> Result<(), String> {
        Ok(())
    }

    /// Looks at the world after a step.
    fn after_step(&mut self, _world: &World) -> Result<(), String> {
        Ok(())
    }

    /// Looks at the world at rest: everybody is back and connected, and everything that takes time has had it.
    fn at_rest(&mut self, _world: &mut World) -> Result<(), String> {
        Ok(())
    }

    /// Looks at the world at rest after everything was deleted.
    fn when_empty(&mut self, _world: &mut World) -> Result<(), String> {
        Ok(())
    }

    /// Instances that it let off.
    fn excused(&self) -> u64 {
        0
    }
}

/// All checks of one run.
pub(crate) struct Checks {
    checks: Vec<Box<dyn Check>>,
    began: u64,
}

impl Checks {
    pub(crate) fn all() -> Self {
        Self {
            checks: vec![
                Box::new(core::Core::default()),
                Box::new(capacity::Capacity),
                Box::new(apart::Apart::default()),
                Box::new(once::Once::default()),
                Box::new(forgotten::Forgotten),
                Box::new(outcomes::Outcomes::default()),
                Box::new(lost::Lost::default()),
                Box::new(ends::Ends::default()),
                Box::new(finished::Finished::default()),
                Box::new(listed::Listed::default()),
                Box::new(order::Order::default()),
                Box::new(arrays::Arrays::default()),
                Box::new(after::After::default()),
                Box::new(restarts::Restarts::default()),
                Box::new(drains::Drains),
                Box::new(fooled::Fooled),
                Box::new(leaders::Leaders::default()),
                Box::new(books::Books),
            ],
            began: 0,
        }
    }

    pub(crate) fn after_step(&mut self, world: &mut World) {
        let facts = std::mem::take(&mut world.facts);
        for fact in &facts {
            self.began += u64::from(matches!(fact, Fact::Began { .. }));
            self.each(|check| check.see(fact, world));
        }
        self.each(|check| check.after_step(world));
    }

    pub(crate) fn at_rest(&mut self, world: &mut World) {
        self.each(|check| check.at_rest(world));
    }

    pub(crate) fn when_empty(&mut self, world: &mut World) {
        self.each(|check| check.when_empty(world));
    }

    /// Processes that began.
    pub(crate) fn began(&self) -> u64 {
        self.began
    }

    /// Instances that some check let off.
    pub(crate) fn excused(&self) -> u64 {
        self.checks.iter().map(|check| check.excused()).sum()
    }

    fn each(&mut self, mut ask: impl FnMut(&mut dyn Check) -> Result<(), String>) {
        for check in &mut self.checks {
            if let Err(error) = ask(check.as_mut()) {
                panic!("{}: {error}", check.name());
            }
        }
    }
}
