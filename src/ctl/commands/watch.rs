//! `ciaoctl watch`: events as they come.

use jiff::Zoned;
use proto_frames::payload::Topic;

use crate::ctl::args::{TopicArg, WatchArgs};
use crate::ctl::commands::{CommandError, Context};
use crate::ctl::exit::Exit;
use crate::printable::Printable;

/// Prints events until the connection ends, nobody reads on, or `--count` of them were printed.
///
/// # Errors
/// [`CommandError`].
pub async fn watch(context: &mut Context<'_>, args: &WatchArgs) -> Result<Exit, CommandError> {
    let topics: Vec<Topic> = args.topics.iter().map(|topic| topic.topic()).collect();
    context.client.watch(&topics).await?;
    let mut left = args.count.unwrap_or(u64::MAX);
    while left > 0 {
        let event = context.client.next_event().await?;
        let now = Zoned::now();
        if context.json {
            let mut object = event.json();
            object["time"] = now.timestamp().to_string().into();
            context.out.document_line(&object)?;
        } else {
            let line = format_args!("{} {}", now.strftime("%F %T%.3f"), event.line());
            context.out.line(&Printable::new(line))?;
        }
        context.out.flush()?;
        left -= 1;
    }
    Ok(Exit::Done)
}

impl TopicArg {
    fn topic(self) -> Topic {
        match self {
            Self::Nodes => Topic::Nodes,
            Self::Instances => Topic::Instances,
            Self::Failures => Topic::Failures,
            Self::Stats => Topic::Stats,
            Self::Placements => Topic::Placements,
        }
    }
}
