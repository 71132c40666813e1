//! `--heartbeat`: one line a second about controllers and compute nodes, in the original's words.
//!
//! Scripts that read the original's heartbeat read this one: columns, tabs and words are the same.

use std::fmt::Write as _;
use std::io::Write as _;
use std::sync::Arc;
use std::time::Duration;

use jiff::Zoned;
use proto_frames::Uuid;
use tokio::time::{MissedTickBehavior, interval};

use super::hub::Hub;
use crate::line_queue::{LineQueue, line_queue};
use sched_core::{Heartbeat, HeartbeatNode};

/// Controllers shown, as the original.
const MAX_CONTROLLERS: usize = 2;

/// Compute nodes shown, as the original.
const MAX_NODES: usize = 4;

/// Lines between two column headers, as the original.
const HEADER_EVERY: u64 = 22;

/// Most bytes of lines that wait while standard error is not read, a minute's or more; later ones are dropped.
const MAX_WAITING_BYTES: usize = 16 << 10;

/// Prints the heartbeat to standard error; ends never. A reading of the core a second, under its lock for as long as it
/// takes to copy a handful of rows. A thread of its own writes, because writing waits where a terminal was stopped or a
/// pipe is not read. Without a thread for it there is no heartbeat, and the log says so.
pub(super) async fn beat(hub: Arc<Hub>) {
    let mut out = match line_queue("heartbeat", MAX_WAITING_BYTES, std::io::stderr()) {
        Ok((out, _)) => out,
        Err(error) => {
            tracing::error!(event = "heartbeat_failed", "there is no heartbeat: {error}");
            return std::future::pending().await;
        }
    };
    let mut second = interval(Duration::from_secs(1));
    second.set_missed_tick_behavior(MissedTickBehavior::Delay);
    for count in 0u64.. {
        second.tick().await;
        let time = Zoned::now().strftime("%Y/%m/%d %H:%M:%S").to_string();
        if count.is_multiple_of(HEADER_EVERY) {
            say(&mut out, &time, HEADER);
        }
        let state = hub.read(|scheduler| scheduler.heartbeat(MAX_CONTROLLERS, MAX_NODES));
        say(&mut out, &time, &line(&state));
    }
}

/// Where standard error is gone there is no reader, which harms nothing else.
fn say(out: &mut LineQueue, time: &str, text: &str) {
    // In one piece: each piece that is written waits as a line of its own.
    let _ = out.write_all(format!("{time} {text}\n").as_bytes());
}

/// Above the first column of controllers and the first of nodes.
const HEADER: &str = "Controllers\t\t\t\t\tCompute Nodes";

/// One line, without its time. Separated from the time so that tests need no clock.
fn line(state: &Heartbeat) -> String {
    if state.controller_count == 0 && state.node_count == 0 {
        return "** idle / disconnected **".to_owned();
    }
    let mut text = String::new();
    if state.controllers.is_empty() {
        text.push_str(" -no Controller- ");
    }
    // As many as the original writes, so that the nodes stand below their heading.
    let tabs = match state.controllers.len() {
        0 => 5,
        1 => 4,
        _ => 2,
    };
    for (at, (uuid, is_master)) in state.controllers.iter().enumerate() {
        let separator = if at == 0 { "" } else { ", " };
        let role = if *is_master { "MASTER" } else { "BACKUP" };
        let _ = write!(text, "{separator}controller-{}:{role}", short(uuid));
    }
    add_rest(&mut text, state.controller_count - state.controllers.len());
    text.extend(std::iter::repeat_n('\t', tabs));
    if state.nodes.is_empty() {
        text.push_str(" -no Compute Nodes-");
    }
    for (at, node) in state.nodes.iter().enumerate() {
        let separator = if at == 0 { "" } else { ", " };
        text.push_str(separator);
        add_node(&mut text, node);
    }
    add_rest(&mut text, state.node_count - state.nodes.len());
    text
}

/// Its UUID's beginning, its status, what is free of its memory, and its load: zeros where it has not reported, as the
/// original has them. `*` marks the node that was used last.
fn add_node(text: &mut String, node: &HeartbeatNode) {
    let mark = if node.is_most_recently_used { "*" } else { "" };
    let _ = write!(
        text,
        "node-{}:{}{mark}",
        short(&node.uuid),
        node.status.name()
    );
    let (free, total, load) = node.figures.unwrap_or_default();
    let _ = write!(text, ":{free}/{total},{load}");
}

/// What is not shown, as a number.
fn add_rest(text: &mut String, rest: usize) {
    if rest > 0 {
        let _ = write!(text, ", +{rest} more");
    }
}

/// The first eight digits: enough to tell nodes apart at a glance.
fn short(uuid: &Uuid) -> String {
    uuid.simple().to_string()[..8].to_owned()
}

#[cfg(test)]
mod tests {
    use super::{Heartbeat, HeartbeatNode, Uuid, line};
    use sched_core::NodeStatus;

    fn node(first: u32, is_most_recently_used: bool) -> HeartbeatNode {
        HeartbeatNode {
            uuid: Uuid::from_fields(first, 0, 0, &[0; 8]),
            status: NodeStatus::Ready,
            is_most_recently_used,
            figures: Some((141_312, 163_840, 2)),
        }
    }

    #[test]
    fn shows_both_sides_and_counts_what_it_leaves_out() {
        let state = Heartbeat {
            controllers: vec![
                (Uuid::from_fields(0x2a7c_3e1d, 0, 0, &[0; 8]), true),
                (Uuid::from_fields(0x91bd_0f3a, 0, 0, &[0; 8]), false),
            ],
            controller_count: 2,
            nodes: vec![node(0x4cb1_9522, true), node(0x6be5_6328, false)],
            node_count: 9,
        };
        assert_eq!(
            line(&state),
            "controller-2a7c3e1d:MASTER, controller-91bd0f3a:BACKUP\t\t\
             node-4cb19522:READY*:141312/163840,2, node-6be56328:READY:141312/163840,2, +7 more"
        );
    }

    #[test]
    fn a_node_without_a_report_has_figures_as_every_other() {
        let silent = HeartbeatNode {
            status: NodeStatus::Connected,
            figures: None,
            ..node(0x4cb1_9522, false)
        };
        let state = Heartbeat {
            nodes: vec![silent],
            node_count: 1,
            ..Heartbeat::default()
        };
        let line = line(&state);
        assert!(line.ends_with("\tnode-4cb19522:CONNECTED:0/0,0"), "{line}");
    }

    #[test]
    fn says_which_side_is_missing() {
        assert_eq!(line(&Heartbeat::default()), "** idle / disconnected **");
        let nodes = Heartbeat {
            nodes: vec![node(1, false)],
            node_count: 1,
            ..Heartbeat::default()
        };
        assert!(line(&nodes).starts_with(" -no Controller- \t\t\t\t\tnode-00000001:READY:"));
        let controllers = Heartbeat {
            controllers: vec![(Uuid::nil(), true)],
            controller_count: 1,
            ..Heartbeat::default()
        };
        assert_eq!(
            line(&controllers),
            "controller-00000000:MASTER\t\t\t\t -no Compute Nodes-"
        );
    }
}
