//! `ciaoctl logs`: what a workload wrote, read from its node through the scheduler.
//!
//! The launcher answers one chunk for each request; the next request names the run and the offset where that chunk
//! ended. So a run that is replaced while it is read is not mixed with the next one.

use std::time::Duration;

use proto_frames::payload::{OutputChunk, OutputFailure, OutputPart, OutputStream, ReadOutput};
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::ctl::args::LogsArgs;
use crate::ctl::commands::history::ended_id;
use crate::ctl::commands::instances::instance;
use crate::ctl::commands::{CommandError, Context};
use crate::ctl::exit::Exit;
use crate::ctl::neutral::Neutral;
use crate::ctl::resolve::ResolveError;
use crate::printable::{Printable, counted};

/// How often a read that has begun is tried again while the node serves as many readers as it takes.
///
/// With [`BUSY_PAUSE`] between them, half a minute.
const BUSY_TRIES: u32 = 60;

/// Pause between two of these.
const BUSY_PAUSE: Duration = Duration::from_millis(500);

/// Prints what there is of an instance's output, and with `--follow` goes on until it ends.
///
/// On a terminal, control characters are escaped unless `--raw` says otherwise; a file or pipe gets the bytes as they
/// are.
///
/// A failure in the middle is an error too, but what was read before is printed.
///
/// # Errors
/// [`CommandError`]; also where there is no output to be had.
pub async fn logs(context: &mut Context<'_>, args: &LogsArgs) -> Result<Exit, CommandError> {
    let meant = instance(&mut context.client, &args.instance).await;
    let id = match meant {
        Ok(view) => view.instance_uuid,
        // One that is gone is not listed, and may have output.
        Err(CommandError::Resolve(ResolveError::NotFound { .. })) => {
            ended_id(context, &args.instance).await?
        }
        Err(error) => return Err(error),
    };
    let mut request = ReadOutput {
        instance_uuid: id,
        tail: args.tail,
        follow: args.follow,
        stream: match () {
            () if args.stdout => OutputStream::Stdout,
            () if args.stderr => OutputStream::Stderr,
            () => OutputStream::default(),
        },
        ..ReadOutput::default()
    };
    // It carries an incomplete character from one chunk to the next.
    let mut neutral = (context.out.is_terminal() && !args.raw).then(Neutral::default);
    // Without `--follow` it ends where the output ended at first, however fast more is written.
    let (mut until, mut tries) = (None, 0);
    loop {
        let chunk = context.client.read_output(&request).await?;
        let part = &chunk.part;
        if part.failure == OutputFailure::Busy && request.run != 0 && tries < BUSY_TRIES {
            tries += 1;
            sleep(BUSY_PAUSE).await;
            continue;
        }
        tries = 0;
        if part.is_failure() {
            context.out.flush()?;
            return Err(CommandError::NoOutput(Box::new(chunk.part)));
        }
        check_stream(&request, part)?;
        // Of a request for the first byte that is kept, nothing was skipped.
        let is_wanted = request.offset.is_some();
        request = ReadOutput {
            run: part.run,
            offset: Some(part.end()),
            tail: None,
            ..request
        };
        print(context, &chunk, &mut neutral, is_wanted)?;
        let until = *until.get_or_insert(part.total);
        let has_all = !args.follow && (part.end() >= until || part.truncated);
        if part.ended || has_all {
            if part.split && request.stream.as_str().is_empty() {
                let text = "this is its standard output; its standard error is apart (--stderr)";
                context.out.remark(&Printable::new(text))?;
            }
            return Ok(Exit::Done);
        }
    }
}

/// Whether an answer is of the stream that was asked for. A launcher or scheduler of an earlier version knows none, and
/// answers with both.
fn check_stream(request: &ReadOutput, part: &OutputPart) -> Result<(), CommandError> {
    if part.stream == request.stream {
        return Ok(());
    }
    let detail = "the scheduler or the launcher of its node is of an earlier version, which keeps no streams apart";
    let part = request.fail(OutputFailure::NotSupported, detail);
    Err(CommandError::NoOutput(Box::new(part)))
}

/// With `--json` one object a chunk. Flushed after each chunk, for readers that follow.
fn print(
    context: &mut Context<'_>,
    chunk: &OutputChunk,
    neutral: &mut Option<Neutral>,
    is_wanted: bool,
) -> Result<(), CommandError> {
    if context.json {
        context.out.document_line(&json_of(chunk))?;
        return Ok(context.out.flush()?);
    }
    if let Some(remark) = remark(&chunk.part).filter(|_| is_wanted) {
        context.out.flush()?;
        context.out.remark(&Printable::new(remark))?;
    }
    match neutral {
        Some(neutral) => context.out.workload(neutral.show(&chunk.data).as_bytes())?,
        None => context.out.workload(&chunk.data)?,
    }
    Ok(context.out.flush()?)
}

/// What is missing before a chunk, for people.
///
/// Nothing for the first request, which asks for what is kept and not for a certain offset.
fn remark(part: &OutputPart) -> Option<String> {
    if part.truncated {
        return Some("the workload has cut its output; what follows is written since".to_owned());
    }
    (part.skipped > 0).then(|| {
        format!(
            "left out: {}; the output grew faster than it could be read, and its node keeps only the end of it",
            counted(part.skipped, "byte")
        )
    })
}

/// `text` has bytes that are not UTF-8 replaced; a character that is cut by the end of a chunk is among them.
fn json_of(chunk: &OutputChunk) -> Value {
    let part = &chunk.part;
    json!({
        "instance_uuid": part.instance_uuid,
        "offset": part.offset,
        "bytes": part.bytes,
        "total": part.total,
        "skipped": part.skipped,
        "truncated": part.truncated,
        "ended": part.ended,
        "text": String::from_utf8_lossy(&chunk.data),
    })
}

#[cfg(test)]
mod tests {
    use super::{OutputPart, remark};

    #[test]
    fn what_is_left_out_is_counted() {
        let part = |skipped, truncated| OutputPart {
            skipped,
            truncated,
            ..OutputPart::default()
        };
        assert_eq!(remark(&part(0, false)), None);
        let text = remark(&part(7, false)).unwrap();
        assert!(text.starts_with("left out: 7 bytes"), "{text}");
        assert!(remark(&part(0, true)).unwrap().contains("cut"));
    }
}
