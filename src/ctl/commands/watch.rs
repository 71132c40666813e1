//! `ciaoctl watch`: events as they come, printed, or each given to a command.
//!
//! Lines carry the time of this machine at which they arrived, not the time at which something happened.

use std::collections::VecDeque;
use std::io;
use std::process::{ExitStatus, Stdio};

use jiff::Zoned;
use proto_frames::payload::Topic;
use serde_json::Value;
use tokio::io::AsyncWriteExt as _;
use tokio::process::{Child, Command};

use crate::ctl::args::{TopicArg, WatchArgs};
use crate::ctl::client::{Client, ClientError};
use crate::ctl::commands::{CommandError, Context};
use crate::ctl::event::Event;
use crate::ctl::exit::Exit;
use crate::ctl::hosts::Hosts;
use crate::net::link::LinkClosed;
use crate::printable::Printable;

/// Events that wait for `--exec` to have run for those before them. Beyond that they are left in the connection, and
/// the scheduler ends it once too much waits there.
const MAX_WAITING: usize = 10_000;

/// Prints events, or runs a command for each, until the connection ends, the reader is gone, or `--count` of them were
/// handled.
///
/// Host names are looked up once for each node and kept. With `--json` one object a line, with the key `time` in UTC.
///
/// # Errors
/// [`CommandError`].
pub async fn watch(context: &mut Context<'_>, args: &WatchArgs) -> Result<Exit, CommandError> {
    let mut topics: Vec<Topic> = args.topics.iter().map(|topic| topic.topic()).collect();
    // The topic of these is not watched by itself: they would never come.
    if args.events.iter().any(|name| name == "stats") && !topics.contains(&Topic::Stats) {
        topics.push(Topic::Stats);
    }
    context.client.watch(&topics).await?;
    let mut hosts = Hosts::default();
    let mut events = Events::default();
    let mut left = args.count.unwrap_or(u64::MAX);
    while left > 0 {
        let event = events.next(&mut context.client).await?;
        let now = Zoned::now();
        let mut object = event.json();
        if !args.events.is_empty() && !args.events.iter().any(|name| object["event"] == **name) {
            continue;
        }
        object["time"] = now.timestamp().to_string().into();
        if let Some(command) = &args.exec {
            let ended = events.run(&mut context.client, command, &object).await;
            if let Some(problem) = problem_of(ended) {
                let line = format_args!("the command for {} {problem}", object["event"]);
                context.out.remark(&Printable::new(line))?;
            }
        } else if context.json {
            context.out.document_line(&object)?;
        } else {
            if let Event::NodeConnected(connected) = &event {
                hosts.forget(&connected.node_uuid); // it may have another name by now
            }
            // Events that come meanwhile are kept by the client, in order.
            let learned = hosts.learn(&mut context.client, event.nodes()).await;
            // Without a name there is still the UUID.
            if let Err(ClientError::Closed(lost)) = learned {
                return Err(lost.into());
            }
            let text = event.line_with(&hosts);
            let line = format_args!("{} {text}", now.strftime("%F %T%.3f"));
            context.out.line(&Printable::new(line))?;
        }
        context.out.flush()?;
        left -= 1;
    }
    Ok(Exit::Done)
}

/// Events that came while a command ran for an earlier one.
#[derive(Default)]
struct Events {
    waiting: VecDeque<Event>,
    /// Why no more come.
    lost: Option<LinkClosed>,
}

impl Events {
    async fn next(&mut self, client: &mut Client) -> Result<Event, LinkClosed> {
        match (self.waiting.pop_front(), self.lost.take()) {
            (Some(event), lost) => {
                self.lost = lost;
                Ok(event)
            }
            (None, Some(lost)) => Err(lost),
            (None, None) => client.next_event().await,
        }
    }

    /// Runs a command for an event to its end, and takes in what comes meanwhile.
    async fn run(
        &mut self,
        client: &mut Client,
        command: &str,
        event: &Value,
    ) -> io::Result<ExitStatus> {
        let mut ended = Box::pin(run_for(command, event));
        loop {
            let may_take = self.lost.is_none() && self.waiting.len() < MAX_WAITING;
            tokio::select! {
                ended = &mut ended => return ended,
                event = client.next_event(), if may_take => match event {
                    Ok(event) => self.waiting.push_back(event),
                    Err(lost) => self.lost = Some(lost),
                },
            }
        }
    }
}

async fn run_for(command: &str, event: &Value) -> io::Result<ExitStatus> {
    let mut child = Command::new("sh")
        .args(["-c", command])
        .envs(variables_of(event))
        .stdin(Stdio::piped())
        .kill_on_drop(true)
        .spawn()?;
    // One that does not read it may end at once.
    let _ = write_to(&mut child, event).await;
    child.wait().await
}

async fn write_to(child: &mut Child, event: &Value) -> io::Result<()> {
    let Some(mut input) = child.stdin.take() else {
        return Ok(());
    };
    tokio::io::copy(&mut format!("{event}\n").as_bytes(), &mut input).await?;
    input.shutdown().await
}

/// `CIAO_EVENT` is its name, and `CIAO_EVENT_KEY` each of its members that is a text, a number or a truth value.
fn variables_of(event: &Value) -> Vec<(String, String)> {
    let members = event.as_object().into_iter().flatten();
    let variable = |(key, value): (&String, &Value)| {
        let value = match value {
            // What no variable can hold is on standard input.
            Value::String(text) if !text.contains('\0') => text.clone(),
            Value::Number(_) | Value::Bool(_) => value.to_string(),
            _ => return None,
        };
        let name = match &**key {
            "event" => "CIAO_EVENT".to_owned(),
            key => format!("CIAO_EVENT_{}", key.to_ascii_uppercase()),
        };
        Some((name, value))
    };
    members.filter_map(variable).collect()
}

/// What there is to say of how a command ended; `None` = nothing.
fn problem_of(ended: io::Result<ExitStatus>) -> Option<String> {
    match ended {
        Ok(status) if status.success() => None,
        Ok(status) => Some(format!("ended with {status}")),
        Err(error) => Some(format!("could not be run: {error}")),
    }
}

impl TopicArg {
    /// One word of the command line is one topic of the protocol.
    fn topic(self) -> Topic {
        match self {
            Self::Nodes => Topic::Nodes,
            Self::Instances => Topic::Instances,
            Self::Failures => Topic::Failures,
            Self::Stats => Topic::Stats,
            Self::Placements => Topic::Placements,
            Self::Scheduler => Topic::Scheduler,
        }
    }
}
