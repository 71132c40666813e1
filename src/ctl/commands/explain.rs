//! `ciaoctl explain`, and `start` and `run` with `--dry-run`: what would become of a START, and why.
//!
//! A dry run is a START with `scheduling.dry_run`: the scheduler decides as for the real one, claims nothing, and
//! answers with a PlacementDecision. The UUID in it is only there to match the answer.

use proto_frames::payload::{Payload, PlacementDecision, QueryKind, Start};
use serde_json::{Value, json};

use crate::ctl::args::{ExplainArgs, PlacementArgs};
use crate::ctl::client::{Client, StartError};
use crate::ctl::commands::{CommandError, Context, arrays, files, instances, nodes, start};
use crate::ctl::exit::Exit;
use crate::ctl::explanation::{Explanation, Of, nearest_node, shortfall};
use crate::ctl::output::Output;
use crate::ctl::resolve::{Candidate, ResolveError};
use crate::ctl::start_file::{DryRun, StartRequest};
use crate::printable::Printable;

/// The name of a START that the command line describes.
///
/// It stands where an answer otherwise has the name of a file.
const DESCRIBED: &str = "request";

/// Reads START files, or makes the START that the command line describes.
///
/// Before a session exists, so that a wrong file or option costs no connection. What the command line describes is
/// made here once to be checked, and again in [`explain`], where names of instances can be resolved.
///
/// # Errors
/// [`CommandError::StartFile`], for the first file that cannot be used; [`CommandError::Usage`].
pub fn read(args: &ExplainArgs, out: &mut Output<'_>) -> Result<Vec<StartRequest>, CommandError> {
    let mut requests = Vec::new();
    for path in &args.files {
        let file = files::read(path, args.strict, out)?;
        requests.extend(file.requests(1, start::new_uuid)?);
    }
    if args.files.is_empty() && args.instance.is_none() {
        requests.push(described(args, &args.placement)?);
    }
    Ok(requests)
}

/// The START that the command line describes, to be placed so.
///
/// Amounts that are not given are 0: then only the other requirements decide.
fn described(args: &ExplainArgs, placement: &PlacementArgs) -> Result<StartRequest, CommandError> {
    let amounts = (args.mem.unwrap_or(0), args.cpus.unwrap_or(0));
    let start = start::shaped(amounts, &args.shape, (placement, &args.limits))?;
    start::request(DESCRIBED.into(), start)
}

/// Asks about each START and prints the answers.
///
/// Resolves the names of nodes and instances first. The exit code is [`Exit::Done`] only if everything that was asked
/// about would fit.
///
/// # Errors
/// [`CommandError`].
pub async fn explain(
    context: &mut Context<'_>,
    requests: &[StartRequest],
    args: &ExplainArgs,
) -> Result<Exit, CommandError> {
    if let Some(name) = &args.instance {
        return explain_instance(context, name).await;
    }
    let node = match &args.node {
        Some(name) => Some(nodes::node(&mut context.client, name).await?),
        None => None,
    };
    let described = if args.files.is_empty() {
        let placement = instances::name_by_uuid(&mut context.client, &args.placement).await?;
        vec![described(args, &placement)?]
    } else {
        Vec::new()
    };
    let requests = if args.files.is_empty() {
        &described
    } else {
        requests
    };
    let dry_run = DryRun {
        alternates: args.alternates,
        count: args.count,
        node_id: node.as_ref().map(|node| node.uuid.clone()),
    };
    ask(context, requests, &dry_run, node.as_ref()).await
}

/// Says why an instance waits, as the scheduler has it: by the START that it was given, of which nothing is asked here.
///
/// # Errors
/// [`CommandError`].
async fn explain_instance(context: &mut Context<'_>, name: &str) -> Result<Exit, CommandError> {
    let meant = match instances::instance(&mut context.client, name).await {
        Err(CommandError::Resolve(not_found @ ResolveError::NotFound { .. })) => {
            match arrays::meant(&mut context.client, name).await? {
                None => return Err(not_found.into()),
                // What keeps the element that waits keeps the array.
                Some(array) if !array.queued_instance_uuid.is_empty() => {
                    let queued = &array.queued_instance_uuid;
                    instances::instance(&mut context.client, queued).await?
                }
                Some(array) => {
                    let line = arrays::why_not_queued(&array);
                    context.out.line(&Printable::new(line))?;
                    return Ok(Exit::Done);
                }
            }
        }
        found => found?,
    };
    // Asked for by its whole UUID, it comes with all reasons.
    let uuid = &meant.instance_uuid;
    let listing = context
        .client
        .list(QueryKind::Instances, Some(uuid))
        .await?;
    let mut rows = listing.instances.into_iter();
    let row = rows.find(|it| it.instance_uuid == *uuid).unwrap_or(meant);
    let explanation = Explanation::of_instance(&row);
    if context.json {
        let answer = explanation.json();
        context.out.document(&json!({ "explanations": [answer] }))?;
    } else {
        let width = context.out.width();
        context.out.lines(&explanation.text(width))?;
    }
    Ok(explanation.exit())
}

/// The question about so many of each START, on one node or any.
#[must_use]
pub fn of_several(count: u32, node: Option<&Candidate>) -> DryRun {
    DryRun {
        count: Some(count),
        node_id: node.map(|node| node.uuid.clone()),
        ..DryRun::default()
    }
}

/// Asks this of each START and prints the answers; `node` is the one node it asks about.
///
/// One after the other, each with a round trip. A failure that is not an answer, such as a lost connection, ends the
/// command; the answers before it were printed, except with `--json`, where there is one document at the end.
///
/// # Errors
/// [`CommandError`].
pub async fn ask(
    context: &mut Context<'_>,
    requests: &[StartRequest],
    dry_run: &DryRun,
    node: Option<&Candidate>,
) -> Result<Exit, CommandError> {
    let mut exit = Exit::Done;
    let mut answers: Vec<Value> = Vec::new();
    for request in requests {
        let explanation = ask_once(context, request, dry_run, node).await?;
        exit = exit.and(explanation.exit());
        if context.json {
            answers.push(explanation.json());
        } else {
            let width = context.out.width();
            context.out.lines(&explanation.text(width))?;
            context.out.flush()?;
        }
    }
    if context.json {
        context.out.document(&json!({ "explanations": answers }))?;
    }
    Ok(exit)
}

/// A StartFailure is an answer too: the scheduler refuses an invalid START with one instead of deciding.
async fn ask_once(
    context: &mut Context<'_>,
    request: &StartRequest,
    dry_run: &DryRun,
    node: Option<&Candidate>,
) -> Result<Explanation, CommandError> {
    let name = request.name.clone();
    let payload = dry_run
        .ask(&request.payload)
        .map_err(|error| CommandError::Usage(format!("{name}: {error}")))?;
    let answer = context.client.decide(&request.instance_uuid, payload).await;
    match answer {
        Ok(decision) => {
            let nearest = nearest(&mut context.client, &request.payload, &decision).await;
            Ok(Explanation {
                name,
                node: node.cloned(),
                decision,
                nearest,
                of: Of::Start,
            })
        }
        Err(StartError::Failed(failure)) => {
            let count = dry_run.count.unwrap_or(1);
            Ok(Explanation::of_failure(name, count, *failure))
        }
        Err(StartError::Client(error)) => Err(error.into()),
    }
}

/// What the nearest node has too little of. It is an addition to the answer, which stands also where the node is not
/// listed any more or cannot be asked for.
async fn nearest(
    client: &mut Client,
    start: &[u8],
    decision: &PlacementDecision,
) -> Option<String> {
    let uuid = nearest_node(decision)?;
    let listing = client.list(QueryKind::Nodes, Some(uuid)).await.ok()?;
    let node = listing.nodes.iter().find(|node| node.node_uuid == uuid)?;
    shortfall(&Start::decode(start).ok()?, node)
}
