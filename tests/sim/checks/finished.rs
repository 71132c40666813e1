//! What has finished stays finished, and is reported as what it was: a process that ended by itself, without having been
//! asked to, is not started again unless somebody sends another START; and the outcome of an instance is the end of its
//! last process, also where the end of an earlier one becomes known later.

use std::collections::{BTreeMap, BTreeSet};

use proto_frames::payload::{
    InstanceView, PhaseName, QueryKind, RestartPolicy, RestartWhen, RetryPolicy, Scheduling,
};

use super::Check;
use crate::facts::Fact;
use crate::names;
use crate::world::World;

/// Let off are instances with a START that was taken in while they ran, or came with a batch before they did, of which it
/// is open what it came to; those whose end the scheduler had in memory alone when it crashed; and those of which it is not
/// known when one process ended, once the scheduler has forgotten what it knew. Of what a liar has listed once it was gone
/// the end need not be the outcome.
#[derive(Default)]
pub(super) struct Finished {
    books: BTreeMap<u32, Book>,
    /// Of which two processes may have run at once ([`super::once`]).
    excused: BTreeSet<u32>,
    /// Whether a scheduler without a disk has crashed.
    has_forgotten: bool,
}

/// What has become of one instance.
#[derive(Debug, Default)]
struct Book {
    /// The machine to which it was given last.
    placed: Option<usize>,
    /// How its last process ended, once it has.
    end: Option<End>,
    /// Whether it was to go on after that: it waited, or was given to a machine.
    goes_on: bool,
    /// Whether that came to its end without another process: a START failed, or it was deleted while it waited.
    has_failed: bool,
    /// Whether it was deleted when the scheduler knew of its end already. Where that was a stop, or its START has it started
    /// again, it was to go on, which is said once it is on disk: then "deleted" is what became of it.
    is_deleted_later: bool,
    /// Whether its end was known when the scheduler last said that it is gone: a failure is told later, once it is on disk.
    is_gone_knowing: Option<bool>,
    /// Whether a START was taken in since its last process began for one.
    is_sent_again: bool,
    /// Whether it is not known when one of its processes ended: to a scheduler that has forgotten the others it may be
    /// the last.
    is_untimed: bool,
    /// Whether one was taken in that waited for the rest of its batch: it may fail once an earlier one has run. Whether
    /// that leaves a run of its own depends on whether the START was on disk.
    is_of_batch: bool,
    /// Whether its launcher has ordered it again, and it has not begun since: it may be that it cannot.
    is_respawned: bool,
    /// How often it was placed again because its START says so of its end.
    retries: u32,
    /// Whether it was placed again and that may have been a retry: how it had ended the scheduler had in memory alone when it
    /// crashed, or it was sent again while it lived.
    has_uncounted_retry: bool,
    /// Whether a DELETE of it was taken in since its last process began.
    is_deleted: bool,
    /// Whether a START of it failed since its latest one that came to a process.
    is_given_up: bool,
}

#[derive(Debug, Clone, Copy)]
struct End {
    machine: usize,
    code: i32,
    by_itself: bool,
    /// Whether its time limit ended it.
    is_over_time: bool,
    /// Whether the scheduler knows of it.
    is_known: bool,
    /// Whether it was given to a machine since, before the end was known or for another reason that stands.
    is_superseded: bool,
}

impl Check for Finished {
    fn name(&self) -> &'static str {
        "what has finished stays finished and is reported as what it was"
    }

    fn see(&mut self, fact: &Fact, world: &World) -> Result<(), String> {
        match *fact {
            Fact::Respawned { instance, .. } => self.book(instance).is_respawned = true,
            Fact::ArrayStarted { array } | Fact::ArrayRerun { array } => {
                self.of_array(array, Book::is_sent);
            }
            Fact::ArrayDeleted { array } => {
                let scheduling = world.scheduling_of(names::element(array, 0));
                self.of_array(array, |book| book.is_to_be_deleted(scheduling));
            }
            Fact::Taken { instance, .. } => self.taken(instance, fact),
            Fact::Began { instance, machine } => return self.began(instance, machine),
            Fact::DeleteTaken { instance } => {
                let scheduling = world.scheduling_of(instance);
                self.book(instance).is_to_be_deleted(scheduling);
            }
            Fact::Ended { instance, .. } => self.book(instance).ends(fact),
            Fact::Gone { instance, machine } => {
                if let Some(end) = &mut self.book(instance).end {
                    end.is_known |= end.machine == machine;
                }
            }
            Fact::Placed { instance, machine } => {
                let scheduling = world.scheduling_of(instance);
                return self.placed((instance, machine), scheduling);
            }
            // Before the end is known it is taken for open, and the end is the outcome once it is.
            Fact::Failed { instance, .. } => {
                let book = self.book(instance);
                book.is_sent_again |= std::mem::take(&mut book.is_of_batch);
                let is_known = book.end.is_some_and(|end| end.is_known);
                book.is_given_up = true;
                book.has_failed = book.is_gone_knowing.take().unwrap_or(is_known);
                book.goes_on &= book.has_failed;
            }
            Fact::Turned {
                instance,
                ref state,
            } => self.book(instance).turns(state),
            Fact::SchedulerCrashed { is_durable } => self.crashes(is_durable),
            // What is restored as living had not ended for the disk.
            Fact::SchedulerStarted { ref restored } => {
                for &instance in restored {
                    if let Some(end) = &mut self.book(instance).end {
                        end.is_known = false;
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn at_rest(&mut self, world: &mut World) -> Result<(), String> {
        let runs = world.ask(&QueryKind::Ended).instances;
        let live = world.ask(&QueryKind::Instances).instances;
        let live: BTreeSet<_> = live.into_iter().map(|it| it.instance_uuid).collect();
        for (&instance, book) in &self.books {
            let uuid = names::instance_uuid(instance);
            let is_forgotten = book.is_untimed && self.has_forgotten;
            let is_open = book.is_sent_again
                || is_forgotten
                || book.is_respawned
                || self.excused.contains(&instance);
            let Some(end) = book.end.filter(|end| end.is_known && !is_open) else {
                continue;
            };
            if live.contains(&uuid) {
                continue;
            }
            if self.lacks_retry(book, world.scheduling_of(instance)) {
                let asked = world.scheduling_of(instance);
                return Err(format!("{instance} was not retried: {book:?}, {asked:?}"));
            }
            let of_it = runs.iter().filter(|run| run.instance_uuid == uuid);
            // What a liar has listed once it was gone is a later run, as far as anybody can know.
            let is_lied_about = |run: &&InstanceView| names::machine_of(&run.node_uuid).is_none();
            let is_lied_about = of_it.clone().any(|run| is_lied_about(&run));
            let came: Vec<Outcome> = of_it.map(Outcome::of).collect();
            let last: Vec<&Outcome> = came.iter().filter(|it| !it.is_earlier).collect();
            let has_end = match () {
                // A process that was told to end with its lease may have ended by itself at that moment; how one ended
                // that was placed again and was not begun, or not for long, is not known; and what was to be placed again
                // and was given to no node has only the end that its node says, as that it was stopped by hand.
                () if book.has_failed => last.iter().all(|it| it.code.is_none() || it.is_of(&end)),
                () if book.goes_on => true,
                () if book.is_deleted_later => {
                    last.iter().all(|it| it.code.is_none() || it.is_of(&end))
                }
                () if is_lied_about => came.iter().any(|it| it.is_of(&end)),
                () => last.iter().all(|it| it.is_of(&end)),
            };
            let holds = last.len() == 1 && has_end;
            if !holds {
                return Err(format!("{instance} is {came:?}: {book:?}"));
            }
        }
        Ok(())
    }
}

/// What a run came to, as the scheduler says.
#[derive(Debug)]
struct Outcome {
    machine: Option<usize>,
    code: Option<i64>,
    is_earlier: bool,
}

impl Outcome {
    fn of(run: &InstanceView) -> Self {
        Self {
            machine: names::machine_of(&run.node_uuid),
            code: run.exit_code,
            is_earlier: run.earlier,
        }
    }

    fn is_of(&self, end: &End) -> bool {
        self.machine == Some(end.machine) && self.code == Some(i64::from(end.code))
    }
}

impl End {
    /// Whether its START has it placed again after this end, if not too often.
    fn is_retried(&self, asked: Option<&Scheduling>) -> bool {
        let retry = asked.and_then(|it| it.retry.as_ref());
        let covers = |it: &RetryPolicy| it.covers_exit(self.code.into());
        retry.is_some_and(covers) && !self.is_over_time
    }

    /// Whether its launcher is to start it again after this end, if not too often.
    fn is_restarted(&self, asked: Option<&Scheduling>) -> bool {
        let wants = |it: &RestartPolicy| it.when == RestartWhen::Always || self.code != 0;
        asked
            .and_then(Scheduling::restart_policy)
            .is_some_and(wants)
            && !self.is_over_time
    }
}

impl Book {
    /// Its process ends.
    fn ends(&mut self, fact: &Fact) {
        let Fact::Ended {
            machine,
            code,
            by_itself,
            is_timed,
            is_over_time,
            ..
        } = *fact
        else {
            return;
        };
        self.is_untimed |= !is_timed;
        (self.goes_on, self.has_failed) = (false, false);
        self.end = Some(End {
            machine,
            code,
            by_itself,
            is_over_time,
            is_known: false,
            is_superseded: false,
        });
    }

    /// It is to be started once more: whether that is a run of its own, whose retries count from the first, is open where
    /// it lives.
    fn is_sent(&mut self) {
        self.is_sent_again = true;
        self.has_uncounted_retry |= self.placed.is_some() && self.is_gone_knowing.is_none();
    }

    /// A DELETE of it is taken in.
    fn is_to_be_deleted(&mut self, asked: Option<&Scheduling>) {
        let goes_on = |end: End| !end.by_itself || end.is_retried(asked) || end.is_restarted(asked);
        self.is_deleted = true;
        self.is_deleted_later |= self.end.is_some_and(|end| end.is_known && goes_on(end));
    }

    /// Its next process begins: for a START, or for none where its launcher starts it again.
    fn begins(&mut self) {
        self.end = None;
        self.goes_on = false;
        self.has_failed = false;
        if !self.is_respawned && std::mem::take(&mut self.is_sent_again) {
            self.retries = 0;
            self.is_given_up = false;
        }
        self.is_deleted_later = false;
        self.is_respawned = false;
        self.is_deleted = false;
    }

    /// The scheduler says that it has come to another state.
    fn turns(&mut self, state: &PhaseName) {
        let is_known = self.end.is_some_and(|end| end.is_known);
        self.is_gone_knowing = (*state == PhaseName::Gone).then_some(is_known);
        match state {
            PhaseName::Waiting | PhaseName::Placing => self.goes_on |= self.end.is_some(),
            // The own end of its process is final, whatever was to follow.
            PhaseName::Gone if self.goes_on => {
                let is_final =
                    |end: &End| (end.by_itself || end.is_over_time) && !end.is_superseded;
                self.has_failed = self.end.is_some_and(|end| end.is_known && !is_final(&end));
                self.goes_on = self.has_failed;
            }
            _ => {}
        }
    }
}

impl Finished {
    fn book(&mut self, instance: u32) -> &mut Book {
        self.books.entry(instance).or_default()
    }

    /// Does something to the books of an array's elements.
    fn of_array(&mut self, array: u32, change: impl Fn(&mut Book)) {
        let is_of_it = |it: u32| names::element_of(it).is_some_and(|it| it.0 == array);
        let books = self.books.iter_mut();
        let of_it = books.filter(|(it, _)| is_of_it(**it));
        of_it.for_each(|(_, book)| change(book));
    }

    /// A START of it is taken in.
    fn taken(&mut self, instance: u32, fact: &Fact) {
        let Fact::Taken {
            is_unseen,
            is_of_batch,
            ..
        } = *fact
        else {
            return;
        };
        let book = self.book(instance);
        book.is_sent();
        book.is_of_batch |= is_of_batch;
        // Of which of both its next end is cannot be told.
        let has_ended_unseen = book.end.is_some_and(|end| !end.is_known);
        if is_unseen || has_ended_unseen {
            self.excused.insert(instance);
        }
    }

    fn began(&mut self, instance: u32, machine: usize) -> Result<(), String> {
        let is_excused = self.excused.contains(&instance);
        let book = self.book(instance);
        let is_over = |end: &End| end.is_over_time && end.machine == machine;
        if book.end.as_ref().is_some_and(is_over) && !book.is_sent_again && !is_excused {
            return Err(format!("{instance} begins after its time: {book:?}"));
        }
        book.begins();
        Ok(())
    }

    /// What the disk has is not known.
    fn crashes(&mut self, is_durable: bool) {
        self.has_forgotten |= !is_durable;
        for book in self.books.values_mut() {
            if let Some(end) = &mut book.end {
                end.by_itself = false;
                end.is_known &= is_durable && !book.goes_on;
            }
        }
    }

    /// Whether one that has ended for good was to be placed again instead.
    fn lacks_retry(&self, book: &Book, scheduling: Option<&Scheduling>) -> bool {
        let retry = scheduling.and_then(|it| it.retry.as_ref());
        let (Some(end), Some(retry)) = (&book.end, retry) else {
            return false;
        };
        let is_left = end.by_itself && !end.is_over_time && book.retries < retry.most();
        // How often its node was lost, and what its launcher was to start again and did not, is not known here.
        let is_known =
            !retry.covers_node_failure() && scheduling.is_none_or(|it| it.restart.is_none());
        let is_known = is_known && !book.has_uncounted_retry;
        let is_kept = is_known && !self.has_forgotten && !book.is_deleted && !book.is_given_up;
        is_left && is_kept && !end.is_superseded && retry.covers_exit(end.code.into())
    }

    fn placed(
        &mut self,
        (instance, machine): (u32, usize),
        asked: Option<&Scheduling>,
    ) -> Result<(), String> {
        let is_excused = self.excused.contains(&instance);
        let book = self.book(instance);
        let before = book.placed.replace(machine);
        book.goes_on = book.end.is_some();
        book.has_failed = false;
        let is_over = |end: &End| {
            end.by_itself && end.is_known && !end.is_superseded && before == Some(end.machine)
        };
        let retry = asked.and_then(|it| it.retry.as_ref());
        // What its launcher was to start again goes on elsewhere, where it is preempted or past its lease meanwhile.
        let is_over = book
            .end
            .as_ref()
            .filter(|end| is_over(end) && !end.is_restarted(asked));
        let is_retried = is_over.is_some_and(|end| end.is_retried(asked));
        let is_wrong = is_over.is_some() && !is_retried;
        book.retries += u32::from(is_retried);
        let may_be_retry = |end: &End| !end.is_superseded && end.is_retried(asked);
        book.has_uncounted_retry |= !is_retried && book.end.as_ref().is_some_and(may_be_retry);
        let is_too_often = retry.is_some_and(|it| book.retries > it.most());
        if (is_wrong || is_too_often) && !book.is_sent_again && !is_excused {
            return Err(format!("{instance} is given to {machine} again: {book:?}"));
        }
        if let Some(end) = &mut book.end {
            end.is_superseded = true;
        }
        Ok(())
    }
}

#[test]
fn what_has_finished_is_started_again_by_another_start_alone() {
    let mut finished = Finished::default();
    let machine = 0;
    let ends = |finished: &mut Finished, by_itself| {
        finished.book(1).is_sent_again = false;
        finished.book(1).end = Some(End {
            machine,
            code: 0,
            by_itself,
            is_over_time: false,
            is_known: true,
            is_superseded: false,
        });
    };
    assert_eq!(finished.placed((1, machine), None), Ok(()));
    ends(&mut finished, false);
    assert_eq!(
        finished.placed((1, machine), None),
        Ok(()),
        "it was stopped"
    );
    ends(&mut finished, true);
    assert!(finished.placed((1, 1), None).is_err());
    assert_eq!(
        finished.placed((1, machine), None),
        Ok(()),
        "its end was elsewhere"
    );
    ends(&mut finished, true);
    finished.book(1).is_sent_again = true;
    assert_eq!(
        finished.placed((1, machine), None),
        Ok(()),
        "it was sent again"
    );
    let retry = RetryPolicy {
        on: vec!["1".parse().expect("an end")],
        max: Some(1),
    };
    let asked = Scheduling {
        retry: Some(retry),
        ..Scheduling::default()
    };
    let mut ends_with = |code, expected: bool| {
        ends(&mut finished, true);
        finished.book(1).end.as_mut().expect("it has ended").code = code;
        let placed = finished.placed((1, machine), Some(&asked));
        assert_eq!(placed.is_ok(), expected, "{code}");
    };
    ends_with(0, false);
    ends_with(1, true);
    ends_with(1, false);
}
