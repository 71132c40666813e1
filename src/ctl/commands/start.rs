//! `ciaoctl start` and `ciaoctl run`.

use std::time::Duration;

use proto_frames::Uuid;
use proto_frames::payload::{QueryKind, Requirements, Start, Storage, Topic};
use serde_json::{Value, json};
use tokio::time::{Instant, timeout_at};

use crate::ctl::args::{RunArgs, StartArgs, SubmitArgs, WaitFor};
use crate::ctl::client::{Client, ClientError};
use crate::ctl::commands::{CommandError, Context, nodes};
use crate::ctl::exit::Exit;
use crate::ctl::start_file::{StartFile, StartFileError, StartRequest};
use crate::ctl::track::{Tracked, Tracker, Until};

/// First pause between two looks at what runs; each is half as long again as the one before.
const FIRST_LOOK: Duration = Duration::from_millis(100);

/// Longest pause between two looks.
const LAST_LOOK: Duration = Duration::from_secs(5);

/// Up to so many instances are looked at one by one; more, by listing all.
const FEW: usize = 8;

/// Reads START files and gives every instance its UUID.
///
/// # Errors
/// [`StartFileError`], for the first file that cannot be used.
pub fn read(args: &StartArgs) -> Result<Vec<StartRequest>, StartFileError> {
    let mut requests = Vec::new();
    for path in &args.files {
        requests.extend(StartFile::read(path)?.requests(args.submit.count, new_uuid)?);
    }
    Ok(requests)
}

/// Makes STARTs for a program and submits them.
///
/// # Errors
/// [`CommandError`].
pub async fn run(context: &mut Context<'_>, args: &RunArgs) -> Result<Exit, CommandError> {
    let node_id = match &args.node {
        Some(name) => nodes::node(&mut context.client, name).await?.uuid,
        None => String::new(),
    };
    let request = |_| {
        let start = start_of(args, node_id.clone(), new_uuid());
        let name = args.program[0].clone();
        StartRequest {
            name,
            instance_uuid: start.instance_uuid.clone(),
            payload: start.encode(),
        }
    };
    let requests = (0..args.submit.count).map(request).collect();
    submit(context, requests, &args.submit).await
}

/// Submits STARTs, prints what becomes of each, and says how that went.
///
/// # Errors
/// [`CommandError`].
pub async fn submit(
    context: &mut Context<'_>,
    requests: Vec<StartRequest>,
    args: &SubmitArgs,
) -> Result<Exit, CommandError> {
    let until = match args.wait {
        None => Until::Placed,
        Some(WaitFor::Running) => Until::Running,
        Some(WaitFor::Exited) => Until::Exited,
    };
    let patience = if args.wait.is_some() {
        context.wait
    } else {
        context.answer
    };
    let (json, quiet) = (context.json, args.quiet);
    let out = &mut context.out;
    let tracker = follow(
        &mut context.client,
        &requests,
        until,
        patience,
        &mut |tracked| match (json, quiet) {
            (true, _) | (_, true) => Ok(()),
            (false, false) => writeln!(out, "{}", tracked.line()).and_then(|()| out.flush()),
        },
    )
    .await?;
    if json {
        let rows: Vec<Value> = tracker.all().iter().map(Tracked::json).collect();
        writeln!(context.out, "{:#}", json!({ "instances": rows }))?;
    } else if quiet {
        for tracked in tracker.all() {
            writeln!(context.out, "{}", tracked.instance_uuid)?;
        }
    } else {
        for tracked in tracker.open() {
            writeln!(context.out, "{}; gave up waiting", tracked.line())?;
        }
    }
    Ok(tracker.exit())
}

/// Submits STARTs and follows them until all are so far or `patience` is at an end; `changed` hears of every change.
///
/// # Errors
/// [`CommandError::Client`] and what `changed` returns.
pub async fn follow(
    client: &mut Client,
    requests: &[StartRequest],
    until: Until,
    patience: Duration,
    changed: &mut dyn FnMut(&Tracked) -> std::io::Result<()>,
) -> Result<Tracker, CommandError> {
    let deadline = Instant::now() + patience;
    client.watch_also(Topic::Placements).await?;
    if until > Until::Placed {
        // A node can fail to start what it has already reported as pending: the scheduler then takes the START for
        // confirmed and tells only those who hear of all failures.
        client.watch_also(Topic::Failures).await?;
        client.watch_also(Topic::Instances).await?;
    }
    let mut tracker = Tracker::new(requests, until);
    let submitter = client.submitter();
    let sending = async {
        for request in requests {
            submitter.submit(request.payload.clone()).await?;
        }
        Ok::<(), ClientError>(())
    };
    let following = watch_over(client, &mut tracker, until, deadline, changed);
    let (sent, followed) = tokio::join!(sending, following);
    followed?;
    sent?;
    Ok(tracker)
}

/// Takes events in, and looks at what runs from time to time, until all are so far.
async fn watch_over(
    client: &mut Client,
    tracker: &mut Tracker,
    until: Until,
    deadline: Instant,
    changed: &mut dyn FnMut(&Tracked) -> std::io::Result<()>,
) -> Result<(), CommandError> {
    let mut pause = FIRST_LOOK;
    let mut look = Instant::now() + pause;
    while !tracker.is_settled() && Instant::now() < deadline {
        match timeout_at(look.min(deadline), client.next_event()).await {
            Ok(event) => {
                if let Some(tracked) = tracker.observe(&event?) {
                    changed(tracked)?;
                }
            }
            Err(_) if until > Until::Placed => {
                for tracked in look_at(client, tracker).await? {
                    changed(&tracked)?;
                }
            }
            Err(_) => {}
        }
        if Instant::now() >= look {
            pause = (pause * 3 / 2).min(LAST_LOOK);
            look = Instant::now() + pause;
        }
    }
    Ok(())
}

/// Asks the scheduler what it knows of the instances that are still open.
async fn look_at(client: &mut Client, tracker: &mut Tracker) -> Result<Vec<Tracked>, ClientError> {
    let open: Vec<String> = tracker
        .open()
        .map(|tracked| tracked.instance_uuid.clone())
        .collect();
    if open.len() > FEW {
        let listing = client.list(QueryKind::Instances, None).await?;
        let events = observe_kept(client, tracker);
        return Ok([
            events,
            tracker.observe_listing(&listing.instances, |_| true),
        ]
        .concat());
    }
    let mut changed = Vec::new();
    for id in open {
        let listing = client.list(QueryKind::Instances, Some(&id)).await?;
        changed.extend(observe_kept(client, tracker));
        changed.extend(
            tracker.observe_listing(&listing.instances, |tracked| tracked.instance_uuid == id),
        );
    }
    Ok(changed)
}

/// Takes in the events that came before a listing: what they say is older than what it says.
fn observe_kept(client: &mut Client, tracker: &mut Tracker) -> Vec<Tracked> {
    let mut changed = Vec::new();
    while let Some(event) = client.kept_event() {
        changed.extend(tracker.observe(&event).cloned());
    }
    changed
}

/// The START of a program.
fn start_of(args: &RunArgs, node_id: String, instance_uuid: String) -> Start {
    const MIB_PER_GIB: i64 = 1024;
    let local_disk = |gib| Storage {
        local: true,
        ephemeral: true,
        size: gib,
        ..Storage::default()
    };
    Start {
        tenant_uuid: args.tenant.clone(),
        instance_uuid,
        vm_type: "process".into(),
        requirements: Requirements {
            mem_mb: args.mem,
            vcpus: args.cpus,
            node_id,
            ..Requirements::default()
        },
        storage: (args.disk > 0)
            .then(|| local_disk((args.disk + MIB_PER_GIB - 1) / MIB_PER_GIB))
            .into_iter()
            .collect(),
        command: args.program.clone(),
        env: args.env.iter().cloned().collect(),
        working_dir: args.dir.clone().unwrap_or_default(),
        ..Start::default()
    }
}

fn new_uuid() -> String {
    Uuid::new_v4().to_string()
}
