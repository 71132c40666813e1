//! `ciaoctl instance forget --data`: what instances that are over have left on their nodes is deleted.

use proto_frames::payload::{DeleteOutput, OutputPart, QueryKind};
use serde_json::json;

use crate::ctl::args::ForgetArgs;
use crate::ctl::commands::confirm::confirm;
use crate::ctl::commands::history::ended_id;
use crate::ctl::commands::instances::instance;
use crate::ctl::commands::{CommandError, Context};
use crate::ctl::exit::Exit;
use crate::ctl::resolve::ResolveError;
use crate::printable::{Printable, counted};

/// Deletes what instances have left, on every node that is known to have output of them. All names are resolved first, so
/// that a wrong one leaves everything as it is. One that is not over is refused by the scheduler, and by its node.
///
/// # Errors
/// [`CommandError`]; that something could not be deleted is said for each, and by the exit code.
pub async fn forget(context: &mut Context<'_>, args: &ForgetArgs) -> Result<Exit, CommandError> {
    let mut ids: Vec<String> = Vec::new();
    for name in &args.instances {
        let id = match instance(&mut context.client, name).await {
            Ok(view) => view.instance_uuid,
            Err(CommandError::Resolve(ResolveError::NotFound { .. })) => {
                ended_id(context, name).await?
            }
            Err(error) => return Err(error),
        };
        if !ids.contains(&id) {
            ids.push(id);
        }
    }
    if !args.yes {
        let what = format!(
            "forget --data deletes output and working directory of {} on their nodes for good",
            counted(ids.len(), "instance")
        );
        confirm(context, &what).await?;
    }
    let mut exit = Exit::Done;
    for id in &ids {
        if !forget_one(context, id).await? {
            exit = Exit::Refused;
        }
    }
    Ok(exit)
}

/// Deletes what one instance has left, and says how much that was; whether all of it is deleted.
async fn forget_one(context: &mut Context<'_>, id: &str) -> Result<bool, CommandError> {
    let listing = context.client.list(QueryKind::History, Some(id)).await;
    let outputs = listing.map(|listing| listing.outputs).unwrap_or_default();
    let mut nodes: Vec<String> = outputs.into_iter().map(|it| it.node_uuid).collect();
    nodes.sort_unstable();
    nodes.dedup();
    if nodes.is_empty() {
        // The one that the scheduler takes for the right one; it may know of none.
        nodes.push(String::new());
    }
    let (mut deleted, mut refused) = (0, None);
    for node_uuid in nodes {
        let request = DeleteOutput {
            instance_uuid: id.to_owned(),
            node_uuid,
            ..DeleteOutput::default()
        };
        let part = context.client.delete_output(&request).await?;
        match part.deleted {
            Some(runs) if !part.is_failure() => deleted += runs,
            _ => refused = Some(part),
        }
    }
    say(context, id, deleted, refused.as_ref())?;
    Ok(refused.is_none())
}

fn say(
    context: &mut Context<'_>,
    id: &str,
    deleted: u64,
    refused: Option<&OutputPart>,
) -> Result<(), CommandError> {
    if context.json {
        let document = json!({
            "instance_uuid": id,
            "deleted": deleted,
            "failure": refused.map(|part| part.failure.as_str()),
            "detail": refused.map(|part| &*part.detail),
        });
        return Ok(context.out.document_line(&document)?);
    }
    if deleted > 0 {
        let what = counted(deleted, "run");
        let line = Printable::new(format_args!("{id} what {what} had left is deleted"));
        context.out.line(&line)?;
    } else if refused.is_none() {
        let line = Printable::new(format_args!("{id} had left nothing on its node"));
        context.out.line(&line)?;
    }
    if let Some(part) = refused {
        let line = Printable::new(format_args!("{id} not deleted: {}", part.detail));
        context.out.remark(&line)?;
    }
    Ok(())
}
