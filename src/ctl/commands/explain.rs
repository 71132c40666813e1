//! `ciaoctl explain`, and `start` and `run` with `--dry-run`: what would become of a START, and why.

use serde_json::{Value, json};

use crate::ctl::args::{ExplainArgs, PlacementArgs};
use crate::ctl::client::StartError;
use crate::ctl::commands::{CommandError, Context, instances, nodes, start};
use crate::ctl::exit::Exit;
use crate::ctl::explanation::Explanation;
use crate::ctl::resolve::Candidate;
use crate::ctl::start_file::{DryRun, StartFile, StartRequest};

/// What a START is called that the command line describes.
const DESCRIBED: &str = "request";

/// Reads START files, or makes the START that the command line describes.
///
/// # Errors
/// [`CommandError::StartFile`], for the first file that cannot be used; [`CommandError::Usage`].
pub fn read(args: &ExplainArgs) -> Result<Vec<StartRequest>, CommandError> {
    let mut requests = Vec::new();
    for path in &args.files {
        requests.extend(StartFile::read(path)?.requests(1, start::new_uuid)?);
    }
    if args.files.is_empty() {
        requests.push(described(args, &args.placement)?);
    }
    Ok(requests)
}

/// The START that the command line describes, to be placed so.
fn described(args: &ExplainArgs, placement: &PlacementArgs) -> Result<StartRequest, CommandError> {
    let amounts = (args.mem.unwrap_or(0), args.cpus.unwrap_or(0));
    let start = start::shaped(amounts, &args.shape, placement)?;
    start::request(DESCRIBED.into(), start)
}

/// Asks about each START and prints the answers.
///
/// # Errors
/// [`CommandError`].
pub async fn explain(
    context: &mut Context<'_>,
    requests: &[StartRequest],
    args: &ExplainArgs,
) -> Result<Exit, CommandError> {
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
        Ok(decision) => Ok(Explanation {
            name,
            node: node.cloned(),
            decision,
        }),
        Err(StartError::Failed(failure)) => {
            let count = dry_run.count.unwrap_or(1);
            Ok(Explanation::of_failure(name, count, *failure))
        }
        Err(StartError::Client(error)) => Err(error.into()),
    }
}
