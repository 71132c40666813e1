//! `ciaoctl start` and `ciaoctl run`.
//!
//! Both make [`StartRequest`]s and hand them to [`submit`]; `ciaoctl set` and `ciao-scheduler dev` use the same
//! functions. A START file is sent as it is but for the UUID; `run` makes a START of its options.

use std::collections::HashMap;
use std::time::Duration;

use clap::ValueEnum as _;
use proto_frames::Uuid;
use proto_frames::payload::{Payload, Requirements, Start, Storage, Topic, peek};
use tokio::time::Instant;

use crate::ctl::args::{
    PlacementArgs, RunArgs, RunLimitArgs, ShapeArgs, StartArgs, SubmitArgs, WaitFor,
};
use crate::ctl::client::Client;
use crate::ctl::commands::wait::{
    Following, Losses, News, Reconnect, attend, conclude, note, send, tell, watch_over,
};
use crate::ctl::commands::{CommandError, Context, explain, files, instances, nodes};
use crate::ctl::exit::Exit;
use crate::ctl::output::Output;
use crate::ctl::start_file::StartRequest;
use crate::ctl::track::{Tracked, Tracker, Until};
use crate::net::link::{Closing, LinkClosed};
use crate::printable::{Printable, counted};

/// Reads START files and gives every instance its UUID; of a dry run, which asks about all of a kind at once, one each.
///
/// Called before there is a session.
///
/// # Errors
/// [`CommandError::StartFile`], for the first file that cannot be used.
pub fn read(args: &StartArgs, out: &mut Output<'_>) -> Result<Vec<StartRequest>, CommandError> {
    let mut requests = Vec::new();
    for path in &args.files {
        let file = files::read(path, args.strict, out).map_err(|error| match path.to_str() {
            Some(word) if args.submit.wait.is_some() && WaitFor::from_str(word, false).is_ok() => {
                CommandError::Usage(format!("{error}; write --wait={word} if that was meant"))
            }
            _ => error,
        })?;
        requests.extend(file.requests(each(&args.submit), new_uuid)?);
    }
    Ok(requests)
}

/// Makes the STARTs of a program for the node with this UUID, or any if it is empty.
///
/// Called twice: before there is a session, to find errors, and again with the node and the instances resolved.
///
/// # Errors
/// [`CommandError::Usage`]: the options make no START.
pub fn make(args: &RunArgs, node_id: &str) -> Result<Vec<StartRequest>, CommandError> {
    if args.name.is_some() && each(&args.submit) > 1 {
        let text = "--name is for one instance, and --count asks for more";
        return Err(CommandError::Usage(text.to_owned()));
    }
    if let Some(tip) = one_word(args) {
        return Err(CommandError::Usage(tip));
    }
    let mut start = start_of(args)?;
    start.requirements.node_id = node_id.to_owned();
    let image = args.image.map(|image| image.short());
    let name = image.or_else(|| args.program.first().cloned());
    let name = name.unwrap_or_default();
    (0..each(&args.submit))
        .map(|_| request(name.clone(), start.clone()))
        .collect()
}

/// Submits the STARTs of a program.
///
/// Names of nodes and instances in the options are resolved first; then as `start`.
///
/// # Errors
/// [`CommandError`].
pub async fn run(context: &mut Context<'_>, args: &RunArgs) -> Result<Exit, CommandError> {
    let node = match &args.node {
        Some(name) => Some(nodes::node(&mut context.client, name).await?),
        None => None,
    };
    let mut args = args.clone();
    args.placement = instances::name_by_uuid(&mut context.client, &args.placement).await?;
    let requests = make(&args, node.as_ref().map_or("", |node| &node.uuid))?;
    if args.submit.dry_run {
        let dry_run = explain::of_several(args.submit.count, node.as_ref());
        return explain::ask(context, &requests, &dry_run, node.as_ref()).await;
    }
    submit(context, requests, &args.submit).await
}

/// What to write instead of a whole command in one word, such as `'sleep 1'`: no shell splits it on the node. A path may
/// have blanks.
fn one_word(args: &RunArgs) -> Option<String> {
    let [word] = &args.program[..] else {
        return None;
    };
    let is_command =
        args.image.is_none() && !word.contains('/') && word.trim().contains(char::is_whitespace);
    is_command.then(|| {
        format!(
            "no program is called {word:?}, and no shell reads it on the node: give each word by itself (-- {}), or a \
             shell (-- sh -c {word:?})",
            word.trim()
        )
    })
}

/// STARTs that each file or program needs.
///
/// A dry run asks about several with a count in one START.
fn each(args: &SubmitArgs) -> u32 {
    if args.dry_run { 1 } else { args.count }
}

/// Submits STARTs, prints what becomes of each, and says how that went.
///
/// Without `--wait` it ends when every START has been given to a node, queued or refused; with it, when they run or
/// have ended. `--quiet` prints at the end the UUIDs of those that have not failed, and everything else on standard
/// error. STARTs that fail for one reason are a line, and another with how many they are.
///
/// # Errors
/// [`CommandError`].
pub async fn submit(
    context: &mut Context<'_>,
    requests: Vec<StartRequest>,
    args: &SubmitArgs,
) -> Result<Exit, CommandError> {
    if args.dry_run {
        let dry_run = explain::of_several(args.count, None);
        return explain::ask(context, &requests, &dry_run, None).await;
    }
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
    let reconnect = Reconnect {
        after: match args.wait {
            Some(_) => Losses::All,
            None => Losses::InOrder,
        },
        config: context.config.clone(),
        patience: args.reconnect,
    };
    let is_silent = context.json || args.quiet;
    let ids = requests
        .iter()
        .map(|request| request.instance_uuid.as_str());
    context.aftermath.instances(ids);
    let (out, aftermath) = (&mut context.out, &context.aftermath);
    let mut failures = Failures::default();
    let tracker = follow(
        &mut context.client,
        &requests,
        until,
        patience,
        Some(&reconnect),
        &mut |news| {
            note(aftermath, &news);
            let is_repeated = matches!(&news, News::Changed(tracked) if !failures.is_new(tracked));
            let is_silent = is_silent || (is_repeated && !args.verbose);
            tell(out, &news, is_silent, args.verbose)
        },
    )
    .await?;
    if !is_silent && !args.verbose {
        for line in failures.repeated() {
            context.out.line(&line)?;
        }
    }
    match args.quiet && !context.json {
        true => conclude_quietly(context, &tracker),
        false => conclude(context, &tracker),
    }
}

/// The UUIDs of those that have not failed, and on standard error what became of the others.
fn conclude_quietly(context: &mut Context<'_>, tracker: &Tracker) -> Result<Exit, CommandError> {
    for tracked in tracker.all().iter().filter(|it| !it.has_failed()) {
        context.out.line(&Printable::new(&tracked.instance_uuid))?;
    }
    context.out.flush()?;
    let mut failures = Failures::default();
    for tracked in tracker.all().iter().filter(|it| it.was_not_started()) {
        if failures.is_new(tracked) {
            context.out.remark(&tracked.line())?;
        }
    }
    for line in failures.repeated() {
        context.out.remark(&line)?;
    }
    for tracked in tracker.open() {
        let line = format_args!("{}; gave up waiting", tracked.line());
        context.out.remark(&Printable::new(line))?;
    }
    Ok(tracker.exit())
}

/// STARTs that have failed, by why: of many that fail alike one line is printed, and at the end how many more there are.
#[derive(Default)]
struct Failures {
    /// Why, with the place of that in `repeated`.
    seen: HashMap<String, usize>,
    /// The first of each, and how many failed so after it.
    repeated: Vec<(String, u64)>,
}

impl Failures {
    /// Whether this is no failure, or the first of its kind.
    fn is_new(&mut self, tracked: &Tracked) -> bool {
        if !tracked.has_failed() {
            return true;
        }
        let why = tracked.what();
        match self.seen.get(&why) {
            Some(&at) => {
                self.repeated[at].1 += 1;
                false
            }
            None => {
                let first = tracked.instance_uuid.clone();
                self.seen.insert(why, self.repeated.len());
                self.repeated.push((first, 0));
                true
            }
        }
    }

    /// A line for each reason that was there more than once.
    fn repeated(&self) -> impl Iterator<Item = Printable> {
        self.repeated
            .iter()
            .filter(|(_, more)| *more > 0)
            .map(|(first, more)| {
                let more = counted(*more, "more START");
                Printable::new(format_args!("{more} failed for the same reason as {first}"))
            })
    }
}

/// Submits STARTs and follows them until all are so far or `patience` is at an end; `changed` is called for every
/// change.
///
/// Sends and takes answers in at the same time: a scheduler that is slow to read must not keep this program from
/// reading.
///
/// Topics are subscribed to before the first START. If the connection is lost while STARTs are being sent, that is an
/// error, because it is not known which of them arrived, unless the scheduler has closed it in order; then, and if it is lost
/// afterwards, `reconnect` decides.
///
/// # Errors
/// [`CommandError::Client`] and what `changed` returns.
pub async fn follow(
    client: &mut Client,
    requests: &[StartRequest],
    until: Until,
    patience: Duration,
    reconnect: Option<&Reconnect>,
    changed: &mut dyn FnMut(News<'_>) -> std::io::Result<()>,
) -> Result<Tracker, CommandError> {
    let following = Following {
        until,
        since: Instant::now(),
        deadline: Instant::now() + patience,
    };
    let mut tracker = Tracker::new(requests, until);
    let followed = match subscribe(client, requests, until).await {
        Err(lost) => Err(lost.into()),
        Ok(()) => {
            let submitter = client.submitter();
            let sending = send(&submitter, requests);
            let looking = watch_over(client, &mut tracker, following, None, changed);
            match tokio::join!(sending, looking) {
                (Err(lost), _) if lost.how == Closing::InOrder => Err(lost.into()),
                (Ok(()), followed) => followed,
                (sent, followed) => {
                    followed?;
                    return Ok(sent.map(|()| tracker)?);
                }
            }
        }
    };
    let followed = (followed, requests);
    attend(
        client,
        &mut tracker,
        following,
        reconnect,
        followed,
        changed,
    )
    .await?;
    Ok(tracker)
}

/// Subscribes to what says what becomes of them.
async fn subscribe(
    client: &mut Client,
    requests: &[StartRequest],
    until: Until,
) -> Result<(), LinkClosed> {
    let mut wanted = vec![Topic::Placements];
    if until > Until::Placed {
        // A node can fail to start what it has already reported as pending: the scheduler then takes the START for
        // confirmed and tells only those who are subscribed to failures.
        wanted.push(Topic::Failures);
    }
    if until > Until::Placed || requests.iter().any(may_wait) {
        wanted.push(Topic::Instances);
    }
    let mut topics = client.topics().to_vec();
    wanted.retain(|it| !topics.contains(it));
    topics.extend(wanted);
    client.watch(&topics).await
}

/// Whether a START may be queued, so that its queueing has to be subscribed to.
///
/// Only with `scheduling.queue`. Its queueing is told to subscribers of instances.
fn may_wait(request: &StartRequest) -> bool {
    let start = peek::start(&request.payload).ok();
    start
        .and_then(|start| start.scheduling)
        .is_some_and(|scheduling| scheduling.queue.is_some())
}

/// The START of a program.
///
/// With `--image` the words of the program are the arguments of the image.
pub(super) fn start_of(args: &RunArgs) -> Result<Start, CommandError> {
    let mut start = Start {
        image: args.image.map(|it| it.to_string()).unwrap_or_default(),
        more_images: args.more_images.iter().map(ToString::to_string).collect(),
        command: args.program.clone(),
        env: args.env.iter().cloned().collect(),
        working_dir: args.dir.clone().unwrap_or_default(),
        ..shaped(
            (args.mem, args.cpus),
            &args.shape,
            (&args.placement, &args.limits),
        )?
    };
    if let Some(name) = &args.name {
        start
            .scheduling
            .get_or_insert_default()
            .name
            .clone_from(name);
    }
    Ok(start)
}

/// A START that needs so much memory in MiB, so many vcpus, and what the options say.
///
/// Disk is given in MiB and rounded up to GiB, the unit of START. No disk makes no `storage` section.
///
/// # Errors
/// [`CommandError::Usage`].
pub fn shaped(
    (mem_mb, vcpus): (i64, i64),
    args: &ShapeArgs,
    (placement, limits): (&PlacementArgs, &RunLimitArgs),
) -> Result<Start, CommandError> {
    const MIB_PER_GIB: i64 = 1024;
    let local_disk = |gib| Storage {
        local: true,
        ephemeral: true,
        size: gib,
        ..Storage::default()
    };
    let gib = args.disk / MIB_PER_GIB + i64::from(args.disk % MIB_PER_GIB > 0);
    Ok(Start {
        tenant_uuid: args.tenant.clone(),
        vm_type: "process".into(),
        requirements: Requirements {
            mem_mb,
            vcpus,
            ..Requirements::default()
        },
        storage: (gib > 0).then(|| local_disk(gib)).into_iter().collect(),
        scheduling: limits.add_to(placement.scheduling().map_err(CommandError::Usage)?),
        ..Start::default()
    })
}

/// A START as it is sent, with a UUID of its own. It is checked here, so that a wrong name or amount on the command
/// line is refused before anything is sent.
///
/// The START is encoded and read back with the checks that the scheduler applies.
///
/// # Errors
/// [`CommandError::Usage`].
pub fn request(name: String, start: Start) -> Result<StartRequest, CommandError> {
    let start = Start {
        instance_uuid: new_uuid(),
        ..start
    };
    let payload = start.encode();
    // The position in the text is left out: the user has not written that text.
    Start::decode(&payload)
        .map_err(|error| CommandError::Usage(format!("{}: {}", error.key, error.fault)))?;
    Ok(StartRequest {
        name,
        instance_uuid: start.instance_uuid,
        payload,
    })
}

/// A UUID for an instance.
#[must_use]
pub fn new_uuid() -> String {
    Uuid::new_v4().to_string()
}
