//! Rows of instances, in the four forms that commands show: as `instances` lists them, with more columns (`--wide`),
//! together with those that have ended (`--all`), and as `queue` lists them.
//!
//! All forms show an [`InstanceView`], which is what the scheduler answers to a query, and give the same JSON.

use proto_frames::payload::{InstanceView, PlacementState, RunProgress};
use serde_json::{Value, json};

use super::{Column, Columns, Form, Row, Wide, known, list, of};
use crate::ctl::status::exit_of;
use crate::ctl::units::{UNKNOWN, count, mebibytes, megabytes, span, span_of_ms};

/// The columns that stay on every terminal are the UUID, the state, the host and why it waits.
impl Row for InstanceView {
    const LIST: &'static str = "instances";
    const COLUMNS: Columns = &[
        // In the order of the ranks, PROGRAM goes first and NAME last.
        Column::text("INSTANCE"),
        Column::text("NAME").dropped(1),
        Column::text("PROGRAM").dropped(10),
        Column::text("STATE"),
        Column::text("REPORTED").dropped(8),
        Column::text("HOST"),
        Column::text("NODE").dropped(7),
        Column::amount("MEMORY USED").dropped(5),
        Column::amount("DISK USED").dropped(6),
        Column::amount("VCPUS").dropped(4),
        Column::amount("PRIORITY").dropped(3),
        Column::amount("ATTEMPTS").dropped(9),
        Column::amount("AGE").dropped(2),
        Column::text("WHY"),
    ];

    fn id(&self) -> &str {
        &self.instance_uuid
    }

    fn name(&self) -> &str {
        match &*self.name {
            "" => &self.instance_uuid,
            name => name,
        }
    }

    fn other_id(&self) -> Option<&str> {
        Some(&self.node_uuid)
    }

    fn cells(&self, id: &dyn Fn(&str) -> String) -> Vec<String> {
        vec![
            id(&self.instance_uuid),
            or_unknown(self.name.clone()),
            or_unknown(self.program.clone()),
            state(self).to_owned(),
            self.reported.clone().unwrap_or_else(|| UNKNOWN.into()),
            or_unknown(self.hostname.clone()),
            // Empty for an instance that waits: a prefix of nothing is nothing.
            or_unknown(id(&self.node_uuid)),
            of(&mebibytes(self.mem_used_mb), &mebibytes(self.mem_mb)),
            of(&megabytes(self.disk_used_mb), &mebibytes(self.disk_mb)),
            count(self.vcpus),
            priority(self),
            attempts(self),
            span(self.age_s),
            why(self, id),
        ]
    }

    fn json(&self) -> Value {
        // The protocol leaves out empty texts; JSON output has null for them, so that every object has all keys.
        let text = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        json!({
            "instance_uuid": self.instance_uuid,
            "node_uuid": self.node_uuid,
            "hostname": self.hostname,
            "state": self.state.as_str(),
            "reported": self.reported,
            "mem_mb": known(self.mem_mb),
            "vcpus": known(self.vcpus),
            "disk_mb": known(self.disk_mb),
            "mem_used_mb": known(self.mem_used_mb),
            "disk_used_mb": known(self.disk_used_mb),
            "age_s": known(self.age_s),
            "group": text(&self.group),
            "resources": self.resources,
            "priority": self.priority,
            "attempts": self.attempts,
            "retries": self.retries,
            "retries_max": self.retries_max,
            "life": text(&self.life),
            "waits_for": text(&self.waits_for),
            "blocked_by": text(&self.blocked_by),
            "position": self.position,
            "deadline_ms": self.deadline_ms,
            "target_node_uuid": text(&self.target_node_uuid),
            "began_at_ms": self.began_at_ms,
            "ended_at_ms": self.ended_at_ms,
            "exit_code": self.exit_code,
            "failed": self.failed,
            "run": self.run,
            "earlier": self.earlier,
            "name": text(&self.name),
            "tenant_uuid": text(&self.tenant),
            "program": text(&self.program),
            "array_uuid": text(&self.array_uuid),
            "array_index": self.array_index,
            "progress": self.progress.as_deref().map(progress_json),
        })
    }
}

/// Restarts and time of an instance, with all keys.
fn progress_json(progress: &RunProgress) -> Value {
    json!({
        "restarts": progress.restarts,
        "last_exit_code": progress.last_exit_code,
        "next_try_ms": progress.next_try_ms,
        "time_used_ms": progress.time_used_ms,
        "time_limit_ms": progress.time_limit_ms,
        "cpus": (!progress.cpus.is_empty()).then(|| progress.cpus.clone()),
        "unpinned": progress.unpinned,
    })
}

/// When it is started again, after how many times and what: `restarts in 15s, after 4 and exit 1`; `None` where it does not
/// wait for that.
fn next_try(view: &InstanceView) -> Option<String> {
    let progress = view.progress.as_deref()?;
    let next = i64::try_from(progress.next_try_ms?).ok()?;
    let last = progress.last_exit_code;
    let last = last.map_or_else(String::new, |code| {
        format!(" and exit {}", exit_of(Some(code), None))
    });
    Some(format!(
        "restarts in {}, after {}{last}",
        span_of_ms(next),
        progress.restarts
    ))
}

/// The usual columns by a short name, for the same reason as `NODE` of the table of nodes.
const INSTANCE: Columns = InstanceView::COLUMNS;

/// The group and the custom resources are only here: most instances have neither.
impl Form for Wide<InstanceView> {
    type Of = InstanceView;
    const COLUMNS: Columns = &[
        INSTANCE[0],
        INSTANCE[1],
        INSTANCE[2],
        INSTANCE[3],
        INSTANCE[4],
        INSTANCE[5],
        INSTANCE[6],
        INSTANCE[7],
        INSTANCE[8],
        INSTANCE[9],
        INSTANCE[10],
        INSTANCE[11],
        INSTANCE[12],
        INSTANCE[13],
        Column::text("GROUP"),
        Column::text("RESOURCES"),
    ];

    fn row(&self) -> &InstanceView {
        &self.0
    }

    fn cells(&self, id: &dyn Fn(&str) -> String) -> Vec<String> {
        let resources = self.0.resources.iter();
        let group = [&self.0.group]
            .into_iter()
            .filter(|group| !group.is_empty());
        let mut cells = self.0.cells(id);
        cells.extend([
            list(group.cloned()),
            list(resources.map(|(name, amount)| format!("{name} {amount}"))),
        ]);
        cells
    }
}

/// An instance among others that have ended.
///
/// The list has columns for the exit status and the time of the end instead of those for what is used, which an ended
/// instance no longer has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WithEnded(pub InstanceView);

/// `AGE` is a dash for what has ended, `EXIT` and `ENDED` for what has not: `age_s` counts from the end in the first
/// case and from when the scheduler learned of the instance in the second.
impl Form for WithEnded {
    type Of = InstanceView;
    const COLUMNS: Columns = &[
        Column::text("INSTANCE"),
        Column::text("NAME").dropped(1),
        Column::text("RUN").dropped(8),
        Column::text("STATE"),
        Column::text("EXIT"),
        Column::text("HOST"),
        Column::text("NODE").dropped(7),
        Column::amount("AGE").dropped(6),
        Column::text("ENDED").dropped(2),
        Column::text("WHY"),
    ];

    fn row(&self) -> &InstanceView {
        &self.0
    }

    fn cells(&self, id: &dyn Fn(&str) -> String) -> Vec<String> {
        let view = &self.0;
        // `age_s` is the time since the end then.
        let has_ended = view.state == PlacementState::Ended;
        let exit = if has_ended && view.failed.is_none() {
            exit_of(view.exit_code, Some(&view.node_uuid))
        } else {
            UNKNOWN.into()
        };
        let age = if has_ended {
            UNKNOWN.into()
        } else {
            span(view.age_s)
        };
        let ended = if has_ended {
            format!("{} ago", span(view.age_s))
        } else {
            UNKNOWN.into()
        };
        vec![
            id(&view.instance_uuid),
            or_unknown(view.name.clone()),
            or_unknown(view.run.map(|run| run.to_string()).unwrap_or_default()),
            state(view).to_owned(),
            exit,
            or_unknown(view.hostname.clone()),
            or_unknown(id(&view.node_uuid)),
            age,
            ended,
            match (view.run.filter(|_| view.earlier), why(view, id)) {
                (Some(run), why) if why.is_empty() => format!("run {run}, an earlier one"),
                (Some(run), why) => format!("run {run}, an earlier one: {why}"),
                (None, why) => why,
            },
        ]
    }
}

/// An instance as the queue has it.
///
/// The name of the node is not there, because nothing in the queue has one. The amounts are what is asked for, since
/// nothing is used yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Queued(pub InstanceView);

/// Position, priority, the time that is left and the reason always stay: they are what the list is for.
impl Row for Queued {
    const LIST: &'static str = "queue";
    const COLUMNS: Columns = &[
        Column::amount("POSITION"),
        Column::text("INSTANCE"),
        Column::text("NAME").dropped(1),
        Column::amount("PRIORITY"),
        Column::amount("MEMORY").dropped(2),
        Column::amount("DISK").dropped(5),
        Column::amount("VCPUS").dropped(3),
        Column::amount("ATTEMPTS").dropped(6),
        Column::amount("TIME LEFT"),
        Column::amount("AGE").dropped(4),
        Column::text("WHY"),
    ];

    fn id(&self) -> &str {
        self.0.id()
    }

    fn cells(&self, id: &dyn Fn(&str) -> String) -> Vec<String> {
        let view = &self.0;
        let position = view.position.map(|position| position.to_string());
        vec![
            or_unknown(position.unwrap_or_default()),
            id(&view.instance_uuid),
            or_unknown(view.name.clone()),
            priority(view),
            mebibytes(view.mem_mb),
            mebibytes(view.disk_mb),
            count(view.vcpus),
            attempts(view),
            view.deadline_ms.map_or_else(|| UNKNOWN.into(), span_of_ms),
            span(view.age_s),
            why(view, id),
        ]
    }

    fn json(&self) -> Value {
        self.0.json()
    }
}

/// `failed` where its START failed, so that it never ran. Else the state of its lifecycle, such as `suspended`, where the scheduler manages the instance; else the state of its
/// placement, such as `running`. The first says more, and is empty for instances that are not managed.
fn state(view: &InstanceView) -> &str {
    if view.failed.is_some() {
        return "failed";
    }
    match view.life.as_str() {
        "" => view.state.as_str(),
        life => life,
    }
}

/// A dash where the scheduler does not have its START, for example for an adopted instance.
fn priority(view: &InstanceView) -> String {
    view.priority
        .map_or_else(|| UNKNOWN.into(), |priority| priority.to_string())
}

/// How many nodes it was tried on. A dash for what is not managed.
fn attempts(view: &InstanceView) -> String {
    view.attempts
        .map_or_else(|| UNKNOWN.into(), |attempts| attempts.to_string())
}

/// Why it waits, where it moves to, or for how long its loss is waited out; nothing for most.
///
/// `to 4cb19522: drain` for one that is moved by a drain; `try 2 of 3` before it where it was placed again after it had
/// ended.
fn why(view: &InstanceView, id: &dyn Fn(&str) -> String) -> String {
    if view.state == PlacementState::Lost
        && let Some(left) = view.deadline_ms
    {
        let why = Some(view.waits_for.as_str()).filter(|why| !why.is_empty());
        let why = why.unwrap_or("its node is lost");
        return format!("given up in {}: {why}", span_of_ms(left));
    }
    let why = match (view.waits_for.as_str(), view.target_node_uuid.as_str()) {
        ("", "") => next_try(view).unwrap_or_default(),
        (why, "") => why.to_owned(),
        ("", target) => format!("to {}", id(target)),
        (why, target) => format!("to {}: {why}", id(target)),
    };
    match retry(view) {
        Some(retry) if why.is_empty() => retry,
        Some(retry) => format!("{retry}: {why}"),
        None => why,
    }
}

/// Which of its tries this is, where its START has it placed again after some ends and it was: `try 2 of 3`.
#[must_use]
pub fn retry(view: &InstanceView) -> Option<String> {
    let most = view.retries_max.filter(|_| view.retries > 0)?;
    let all = u64::from(most) + 1;
    Some(format!("try {} of {all}", u64::from(view.retries) + 1))
}

/// For cells: see the list of texts in the table of nodes about why none is empty.
pub(super) fn or_unknown(text: String) -> String {
    if text.is_empty() {
        return UNKNOWN.into();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_what_is_lost_with_its_node_the_time_that_is_left_is_shown() {
        let view = InstanceView {
            state: PlacementState::Lost,
            deadline_ms: Some(9_000),
            ..InstanceView::default()
        };
        let shown = why(&view, &|id| id.to_owned());
        assert_eq!(shown, "given up in 9s: its node is lost");
    }

    #[test]
    fn of_what_is_tried_again_it_is_shown_which_try_it_is() {
        let view = |retries, waits_for: &str| InstanceView {
            retries,
            retries_max: Some(2),
            waits_for: waits_for.to_owned(),
            ..InstanceView::default()
        };
        let shown = |view: &InstanceView| why(view, &|id| id.to_owned());
        assert_eq!(shown(&view(0, "no room")), "no room");
        assert_eq!(shown(&view(1, "no room")), "try 2 of 3: no room");
        assert_eq!(shown(&view(2, "")), "try 3 of 3");
        let queued = Queued(view(1, "no room")).cells(&|id| id.to_owned());
        assert_eq!(
            queued.last().map(String::as_str),
            Some("try 2 of 3: no room")
        );
        let json = view(1, "").json();
        assert_eq!(
            (&json["retries"], &json["retries_max"]),
            (&json!(1), &json!(2))
        );
    }

    #[test]
    fn disk_that_is_used_is_converted_to_the_unit_of_what_was_asked_for() {
        let view = InstanceView {
            disk_used_mb: 10_000,
            disk_mb: 20_480,
            ..InstanceView::default()
        };
        let cells = view.cells(&|id| id.to_owned());
        assert!(
            cells.contains(&"9.3 GiB / 20.0 GiB".to_owned()),
            "{cells:?}"
        );
    }
}
