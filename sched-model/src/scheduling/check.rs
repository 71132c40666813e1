//! What makes no sense in `start.scheduling`, named by its key. These are the rules that hold for every scheduler:
//! limits, words, names, and keys that need each other. What depends on the policy or the nodes of one scheduler is
//! checked by that one.
//!
//! A START that fails here is refused as a whole: a condition that was mistyped must not be ignored. Expressions were
//! checked when they were decoded.

use std::ops::RangeInclusive;

use super::after::{After, AfterEnd, MAX_AFTER};
use super::limits::{
    Backoff, MAX_BACKOFF, MAX_GRACE, MAX_RESTART_WINDOW, MAX_RESTARTS, MAX_TIME_LIMIT, MIN_BACKOFF,
    MIN_TIME_LIMIT, RestartPolicy, RestartWhen, Stop, StopSignal,
};
use super::retry::{MAX_RETRIES, MAX_RETRY_ON, RetryPolicy};
use super::{
    Batch, Group, GroupPolicy, MAX_ALTERNATES, MAX_ATTEMPTS, MAX_BATCH, MAX_COUNT, MAX_EXPRESSIONS,
    MAX_INSTANCES_NAMED, MAX_LABELS, MAX_MUST_UNDERSTAND, MAX_NEAR, MAX_PRIORITY, MAX_QUEUE,
    MAX_RESOURCES, Near, OnNodeLoss, Scheduling, VERSION, is_image, is_instance_name, is_name,
};
use crate::cut::shorten;
use crate::error::{Fault, PayloadError};
use crate::span::Span;

/// An error about a key of `start.scheduling`, which it puts the path before: `group.max` becomes
/// `start.scheduling.group.max`.
fn wrong<T>(key: &str, fault: Fault) -> Result<T, PayloadError> {
    Err(PayloadError::new(format!("start.scheduling.{key}"), fault))
}

/// A word that is none of those known; shortened, because it comes from a peer and is quoted in an answer.
fn unknown(word: &str, known: &'static [&'static str]) -> Fault {
    let word = shorten(word);
    Fault::UnknownWord { word, known }
}

/// A number must be in a range.
fn check_range(key: &str, value: i64, range: RangeInclusive<i64>) -> Result<(), PayloadError> {
    if range.contains(&value) {
        return Ok(());
    }
    let (min, max) = range.into_inner();
    wrong(key, Fault::OutOfRange { value, min, max })
}

/// A length of time must be in a range.
fn check_span(key: &str, span: Span, range: RangeInclusive<Span>) -> Result<(), PayloadError> {
    let (min, max) = range.into_inner();
    if span < min {
        return wrong(key, Fault::SpanTooShort { min });
    }
    if span > max {
        return wrong(key, Fault::SpanTooLong { max });
    }
    Ok(())
}

/// A list must not have more entries than this.
fn check_len(key: &str, len: usize, max: usize) -> Result<(), PayloadError> {
    if len > max {
        return wrong(key, Fault::TooManyEntries { max });
    }
    Ok(())
}

/// A name must be there and be one by [`is_name`].
fn check_name(key: &str, name: &str) -> Result<(), PayloadError> {
    match name {
        "" => wrong(key, Fault::Missing),
        name if is_name(name) => Ok(()),
        name => wrong(key, Fault::NotAName(shorten(name))),
    }
}

/// A list of instances: bounded, and each one must be a name. They need not exist.
fn check_instances(key: &str, instances: &[String]) -> Result<(), PayloadError> {
    check_len(key, instances.len(), MAX_INSTANCES_NAMED)?;
    let mut numbered = instances.iter().enumerate();
    numbered.try_for_each(|(index, instance)| check_name(&format!("{key}[{index}]"), instance))
}

impl Scheduling {
    /// Whether it makes sense. Checks keys in the order of the documentation, so the error is always the same for the
    /// same START.
    ///
    /// # Errors
    /// The first thing that makes no sense; its key begins with `start.scheduling`.
    pub fn check(&self) -> Result<(), PayloadError> {
        self.check_version()?;
        if let Some(priority) = self.priority {
            check_range("priority", priority, 0..=MAX_PRIORITY)?;
        }
        if self.queue.is_some_and(|queue| queue > MAX_QUEUE) {
            return wrong("queue", Fault::SpanTooLong { max: MAX_QUEUE });
        }
        check_len("require", self.require.len(), MAX_EXPRESSIONS)?;
        check_len("prefer", self.prefer.len(), MAX_EXPRESSIONS)?;
        self.check_resources()?;
        self.group.as_ref().map_or(Ok(()), Group::check)?;
        check_len("near", self.near.len(), MAX_NEAR)?;
        for (index, near) in self.near.iter().enumerate() {
            near.check(index)?;
        }
        check_instances("same_node", &self.same_node)?;
        check_instances("different_node", &self.different_node)?;
        self.batch.as_ref().map_or(Ok(()), Batch::check)?;
        self.check_losses()?;
        self.check_limits()?;
        self.check_retry()?;
        self.check_after()?;
        self.check_labels()?;
        if !self.image.is_empty() && !is_image(&self.image) {
            return wrong("image", Fault::NotAnImage(shorten(&self.image)));
        }
        if !self.name.is_empty() && !is_instance_name(&self.name) {
            return wrong("name", Fault::NotAnInstanceName(shorten(&self.name)));
        }
        self.check_dry_run()
    }

    /// Labels are names with names, so that each can be written as `KEY=VALUE`.
    fn check_labels(&self) -> Result<(), PayloadError> {
        check_len("labels", self.labels.len(), MAX_LABELS)?;
        let mut labels = self.labels.iter();
        labels.try_for_each(|(key, value)| {
            check_name("labels", key)?;
            check_name(&format!("labels.{key}"), value)
        })
    }

    /// The version must be the one understood here, and every key of `must_understand` must exist.
    fn check_version(&self) -> Result<(), PayloadError> {
        if let Some(version) = self.version.filter(|version| *version != VERSION) {
            let fault = Fault::NotUnderstood {
                version,
                understood: VERSION,
            };
            return wrong("version", fault);
        }
        check_len(
            "must_understand",
            self.must_understand.len(),
            MAX_MUST_UNDERSTAND,
        )?;
        for (index, key) in self.must_understand.iter().enumerate() {
            if !Self::KEYS.contains(&key.as_str()) {
                let fault = Fault::UnknownKey(shorten(key));
                return wrong(&format!("must_understand[{index}]"), fault);
            }
        }
        Ok(())
    }

    /// Amounts of custom resources: names, not negative. 0 asks for nothing.
    fn check_resources(&self) -> Result<(), PayloadError> {
        check_len("resources", self.resources.len(), MAX_RESOURCES)?;
        for (name, amount) in &self.resources {
            if !is_name(name) {
                return wrong("resources", Fault::NotAName(shorten(name)));
            }
            if *amount < 0 {
                return wrong(&format!("resources.{name}"), Fault::Negative(*amount));
            }
        }
        Ok(())
    }

    /// `attempts` and `on_node_loss`.
    fn check_losses(&self) -> Result<(), PayloadError> {
        if let Some(attempts) = self.attempts {
            check_range("attempts", attempts.into(), 1..=MAX_ATTEMPTS.into())?;
        }
        match &self.on_node_loss {
            OnNodeLoss::Other(word) if !word.is_empty() => {
                wrong("on_node_loss", unknown(word, OnNodeLoss::KNOWN))
            }
            _ => Ok(()),
        }
    }

    /// `time_limit`, `stop` and `restart`.
    fn check_limits(&self) -> Result<(), PayloadError> {
        if let Some(limit) = self.time_limit {
            check_span("time_limit", limit, MIN_TIME_LIMIT..=MAX_TIME_LIMIT)?;
        }
        self.stop.as_ref().map_or(Ok(()), Stop::check)?;
        self.restart.as_ref().map_or(Ok(()), RestartPolicy::check)
    }

    /// `retry`, which says itself what is to be done when a node is lost, or not.
    fn check_retry(&self) -> Result<(), PayloadError> {
        let Some(retry) = &self.retry else {
            return Ok(());
        };
        retry.check()?;
        if retry.covers_node_failure() && self.on_node_loss == OnNodeLoss::Restart {
            let other = "on_node_loss: restart, which is the same without a limit";
            return wrong("retry.on", Fault::NotWith { other });
        }
        Ok(())
    }

    /// `after`: bounded, and each entry makes sense.
    fn check_after(&self) -> Result<(), PayloadError> {
        check_len("after", self.after.len(), MAX_AFTER)?;
        let mut numbered = self.after.iter().enumerate();
        numbered.try_for_each(|(index, after)| after.check(index))
    }

    /// `count` and `alternates` need `dry_run: true`: a START itself starts one instance.
    fn check_dry_run(&self) -> Result<(), PayloadError> {
        for (key, number, range) in [
            ("count", self.count, 1..=MAX_COUNT),
            ("alternates", self.alternates, 0..=MAX_ALTERNATES),
        ] {
            let Some(number) = number else {
                continue;
            };
            if !self.dry_run {
                let needs = "dry_run: true";
                return wrong(key, Fault::OnlyWith { needs });
            }
            check_range(
                key,
                number.into(),
                (*range.start()).into()..=(*range.end()).into(),
            )?;
        }
        Ok(())
    }
}

impl Stop {
    /// A known signal and no longer than a launcher waits.
    fn check(&self) -> Result<(), PayloadError> {
        if let StopSignal::Other(word) = &self.signal
            && !word.is_empty()
        {
            return wrong("stop.signal", unknown(word, StopSignal::KNOWN));
        }
        let grace = self.grace.unwrap_or_default();
        check_span("stop.grace", grace, Span::default()..=MAX_GRACE)
    }
}

impl RetryPolicy {
    /// A policy needs to say after which ends.
    fn check(&self) -> Result<(), PayloadError> {
        if self.on.is_empty() {
            return wrong("retry.on", Fault::Missing);
        }
        check_len("retry.on", self.on.len(), MAX_RETRY_ON)?;
        check_range("retry.max", self.most().into(), 1..=MAX_RETRIES.into())
    }
}

impl After {
    /// An entry of `after` names an instance or an array, and a known word for its end.
    fn check(&self, index: usize) -> Result<(), PayloadError> {
        match (self.array.is_empty(), self.instance.is_empty()) {
            (true, _) => check_name(&format!("after[{index}].instance"), &self.instance)?,
            (false, true) => check_name(&format!("after[{index}].array"), &self.array)?,
            (false, false) => {
                let fault = Fault::NotWith { other: "instance" };
                return wrong(&format!("after[{index}].array"), fault);
            }
        }
        match &self.end {
            AfterEnd::Other(word) if !word.is_empty() => {
                let fault = unknown(word, AfterEnd::KNOWN);
                wrong(&format!("after[{index}].end"), fault)
            }
            _ => Ok(()),
        }
    }
}

impl RestartPolicy {
    /// A policy needs to say when, and the rest of it makes sense only where it ever restarts.
    fn check(&self) -> Result<(), PayloadError> {
        match &self.when {
            RestartWhen::Other(word) if word.is_empty() => {
                return wrong("restart.when", Fault::Missing);
            }
            RestartWhen::Other(word) => {
                return wrong("restart.when", unknown(word, RestartWhen::KNOWN));
            }
            RestartWhen::Never if *self != Self::never() => {
                let needs = "when: on-failure or when: always beside it";
                return wrong("restart", Fault::OnlyWith { needs });
            }
            RestartWhen::OnFailure | RestartWhen::Always | RestartWhen::Never => {}
        }
        if let Some(max) = self.max {
            check_range("restart.max", max.into(), 1..=MAX_RESTARTS.into())?;
        }
        let Backoff { first, longest } = self.pauses();
        for pause in [first, longest] {
            check_span("restart.backoff", pause, MIN_BACKOFF..=MAX_BACKOFF)?;
        }
        match (self.window, self.max) {
            (Some(_), None) => wrong("restart.window", Fault::OnlyWith { needs: "max" }),
            (Some(window), _) => {
                let range = Span::from_ms(1000)..=MAX_RESTART_WINDOW;
                check_span("restart.window", window, range)
            }
            (None, _) => Ok(()),
        }
    }

    fn never() -> Self {
        Self {
            when: RestartWhen::Never,
            ..Self::default()
        }
    }
}

impl Group {
    /// A group needs an id and a known policy; `max` makes sense only where members are to be apart.
    fn check(&self) -> Result<(), PayloadError> {
        check_name("group.id", &self.id)?;
        if let GroupPolicy::Other(word) = &self.policy {
            let fault = if word.is_empty() {
                Fault::Missing
            } else {
                unknown(word, GroupPolicy::KNOWN)
            };
            return wrong("group.policy", fault);
        }
        check_name("group.scope", &self.scope)?;
        let Some(max) = self.max else {
            return Ok(());
        };
        if !self.policy.is_anti() {
            let needs = "policy anti-affinity or soft-anti-affinity";
            return wrong("group.max", Fault::OnlyWith { needs });
        }
        check_range("group.max", max.into(), 1..=u32::MAX.into())
    }
}

impl Near {
    /// An entry of `near` needs a label; its index is part of the key in the error.
    fn check(&self, index: usize) -> Result<(), PayloadError> {
        check_name(&format!("near[{index}].label"), &self.label)?;
        check_name(&format!("near[{index}].scope"), &self.scope)
    }
}

impl Batch {
    /// A batch needs an id and a number of STARTs from 1 to [`MAX_BATCH`].
    fn check(&self) -> Result<(), PayloadError> {
        check_name("batch.id", &self.id)?;
        check_range("batch.count", self.count.into(), 1..=MAX_BATCH.into())
    }
}
