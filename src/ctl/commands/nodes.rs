//! `ciaoctl evacuate` and `ciaoctl restore`, and which node a name means.
//!
//! `evacuate` and `restore` are ciao's own: the launcher stops everything on the node, and comes back. For moving
//! instances see [`super::drain`].

use std::time::Duration;

use proto_frames::payload::{Evacuate, EvacuateMode, NodeView, QueryKind};
use serde_json::json;
use tokio::time::{Instant, sleep, timeout_at};

use crate::ctl::args::{EvacuateArgs, NodeArgs};
use crate::ctl::client::Client;
use crate::ctl::commands::confirm::confirm;
use crate::ctl::commands::{CommandError, Context};
use crate::ctl::exit::Exit;
use crate::ctl::resolve::{Candidate, resolve};
use crate::printable::Printable;

/// How often `--wait` looks at the node: its status changes within a report or two.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// Takes a node out of service, once that is confirmed; with `--wait`, until nothing runs on it.
///
/// Asks before, unless `--yes`, because what it stops is not started again.
///
/// # Errors
/// [`CommandError`].
pub async fn evacuate(
    context: &mut Context<'_>,
    args: &EvacuateArgs,
) -> Result<Exit, CommandError> {
    let node = node(&mut context.client, &args.node.node).await?;
    if !args.yes {
        confirm(
            context,
            &format!("evacuate stops everything on {node} for good; drain moves it to other nodes"),
        )
        .await?;
    }
    let args = &args.node;
    context.client.evacuate(&node.uuid).await?;
    context.aftermath.text(format!(
        "the evacuation of {node} goes on, and what it stops stays so; `ciaoctl restore {}` puts the node back into service",
        node.hostname.as_deref().unwrap_or(&node.uuid)
    ));
    if args.wait {
        let empty = |view: &NodeView| view.status == "MAINTENANCE" && view.instances == 0;
        wait(context, &node, "empty and in maintenance", empty).await?;
    }
    report(
        context,
        &node,
        if args.wait {
            "evacuated"
        } else {
            "asked to evacuate"
        },
    )
}

/// Puts a node back into service; with `--wait`, until it takes work.
///
/// The launcher needs a moment to report again; without `--wait` the command does not wait for that.
///
/// # Errors
/// [`CommandError`].
pub async fn restore(context: &mut Context<'_>, args: &NodeArgs) -> Result<Exit, CommandError> {
    let node = node(&mut context.client, &args.node).await?;
    context.client.restore(&node.uuid).await?;
    if args.wait {
        let serving = |view: &NodeView| matches!(view.status.as_str(), "READY" | "FULL");
        wait(context, &node, "back in service", serving).await?;
    }
    report(
        context,
        &node,
        if args.wait {
            "restored"
        } else {
            "asked to come back"
        },
    )
}

/// Takes a lost node from the list.
///
/// The scheduler refuses it for a node that is connected. What was lost with the node and may start elsewhere only
/// once its lease is over still waits for that.
///
/// # Errors
/// [`CommandError`].
pub async fn forget(context: &mut Context<'_>, name: &str) -> Result<Exit, CommandError> {
    let node = node(&mut context.client, name).await?;
    let evacuate = Evacuate {
        workload_agent_uuid: node.uuid.clone(),
        mode: EvacuateMode::Forget,
        ..Evacuate::default()
    };
    context.client.relocate(&evacuate).await?;
    report(context, &node, "forgotten")
}

/// The node that a host name, a UUID or a unique beginning of one means.
///
/// Other commands resolve `--node`, `--to` and the like with it. Lost nodes can be named too.
///
/// # Errors
/// [`CommandError::Resolve`], [`CommandError::Client`].
pub async fn node(client: &mut Client, name: &str) -> Result<Candidate, CommandError> {
    Ok(node_and_view(client, name).await?.0)
}

/// The same, with what is listed of it.
pub(super) async fn node_and_view(
    client: &mut Client,
    name: &str,
) -> Result<(Candidate, NodeView), CommandError> {
    let listing = client.list(QueryKind::Nodes, Some(name)).await?;
    let candidates = listing.nodes.iter().map(|view| Candidate {
        uuid: view.node_uuid.clone(),
        about: format!("{} {}", view.hostname, view.status),
        hostname: Some(view.hostname.clone()),
    });
    let meant = resolve("node", name, candidates.collect())?;
    let mut views = listing.nodes.into_iter();
    let view = views.find(|view| view.node_uuid == meant.uuid);
    Ok((meant, view.unwrap_or_default()))
}

/// Looks at a node until it is as it should be.
///
/// `what` is for the error if it is not so in time: `node-a (4cb19522) back in service: not within 5m`.
async fn wait(
    context: &mut Context<'_>,
    node: &Candidate,
    what: &str,
    done: impl Fn(&NodeView) -> bool,
) -> Result<(), CommandError> {
    let deadline = Instant::now() + context.wait;
    let client = &mut context.client;
    let looking = async {
        loop {
            let listing = client.list(QueryKind::Nodes, Some(&node.uuid)).await?;
            if listing
                .nodes
                .iter()
                .any(|view| view.node_uuid == node.uuid && done(view))
            {
                return Ok(());
            }
            sleep(LOOK_EVERY).await;
        }
    };
    let late = CommandError::NotInTime {
        what: format!("{node} {what}:"),
        waited: context.wait,
    };
    timeout_at(deadline, looking).await.unwrap_or(Err(late))
}

/// Says what was done to a node.
///
/// `what` is also `outcome` in JSON.
pub(super) fn report(
    context: &mut Context<'_>,
    node: &Candidate,
    what: &str,
) -> Result<Exit, CommandError> {
    if context.json {
        let object = json!({"node_uuid": node.uuid, "hostname": node.hostname, "outcome": what});
        context.out.document(&object)?;
    } else {
        let line = Printable::new(format_args!("{node} {what}"));
        context.out.line(&line)?;
    }
    Ok(Exit::Done)
}
