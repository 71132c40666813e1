//! `ciaoctl watch`: events as they come.
//!
//! Lines carry the time of this machine at which they arrived, not the time at which something happened.

use jiff::Zoned;
use proto_frames::payload::Topic;

use crate::ctl::args::{TopicArg, WatchArgs};
use crate::ctl::client::ClientError;
use crate::ctl::commands::{CommandError, Context};
use crate::ctl::event::Event;
use crate::ctl::exit::Exit;
use crate::ctl::hosts::Hosts;
use crate::printable::Printable;

/// Prints events until the connection ends, the reader is gone, or `--count` of them were printed.
///
/// Host names are looked up once for each node and kept. With `--json` one object a line, with the key `time` in UTC.
///
/// # Errors
/// [`CommandError`].
pub async fn watch(context: &mut Context<'_>, args: &WatchArgs) -> Result<Exit, CommandError> {
    let topics: Vec<Topic> = args.topics.iter().map(|topic| topic.topic()).collect();
    context.client.watch(&topics).await?;
    let mut hosts = Hosts::default();
    let mut left = args.count.unwrap_or(u64::MAX);
    while left > 0 {
        let event = context.client.next_event().await?;
        let now = Zoned::now();
        if context.json {
            let mut object = event.json();
            object["time"] = now.timestamp().to_string().into();
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
