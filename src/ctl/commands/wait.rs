//! `ciaoctl wait`, and how `start` and `run` follow what they started: by events and looks, also over a lost
//! connection.
//!
//! ```text
//!           ┌─ watch_over: events, and looks at the list ─┐
//! start ───▶│                                             │──▶ settled, or out of time ──▶ conclude
//! wait      └──────────── attend: connect again ◀─────────┘
//!                         when the connection is lost
//! ```
//!
//! A look is a query for the instances that are still open: it finds what an event did not tell, for example because
//! it came while there was no connection.

use std::collections::HashSet;
use std::time::Duration;

use proto_frames::Uuid;
use proto_frames::payload::{ArrayView, InstanceView, QueryKind, Topic};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, timeout_at};

use crate::ctl::aftermath::Aftermath;
use crate::ctl::args::WaitArgs;
use crate::ctl::client::{Client, ClientConfig, ClientError, Submitter};
use crate::ctl::commands::history::{latest_called, remark_reach};
use crate::ctl::commands::instances::instance;
use crate::ctl::commands::{CommandError, Context, arrays};
use crate::ctl::exit::Exit;
use crate::ctl::explanation::{Among, reasons_table, what_helps};
use crate::ctl::output::Output;
use crate::ctl::start_file::StartRequest;
use crate::ctl::track::{Absence, Stage, Tracked, Tracker, Until};
use crate::net::link::{Closing, LinkClosed};
use crate::printable::Printable;

/// First pause between two looks at what runs; each is half as long again as the one before.
///
/// It is early, so that the end of a short workload is found soon if no event told it.
const FIRST_LOOK: Duration = Duration::from_millis(100);

/// Longest pause between two looks.
///
/// Each look is a query to the scheduler: a command that waits for hours must cost it little.
const LAST_LOOK: Duration = Duration::from_secs(5);

/// Up to so many instances are looked at one by one; more, by listing all.
///
/// Beyond that a single query of all instances is cheaper than one for each.
const FEW: usize = 8;

/// Pause between two tries to connect again, or to find an instance whose node may be on its way back.
///
/// Short against the default of `--reconnect`, long against a refused connection.
const TRY_PAUSE: Duration = Duration::from_millis(500);

/// How often STARTs are sent again that were not read: a leader hands over seldom, and a scheduler that closes each connection on
/// them is not to be asked for ever.
const MAX_RESENDS: u32 = 2;

/// Tolerance when the end of an instance is compared with the time since which it is followed: ages are whole seconds.
const AGE_MARGIN: Duration = Duration::from_secs(2);

/// How to connect again when the connection is lost.
///
/// Without `--wait` only after a connection that the scheduler has ended in order, as one does that hands over to another: any
/// other loss is an error then.
#[derive(Debug, Clone)]
pub struct Reconnect {
    /// After which losses.
    pub after: Losses,
    /// How to connect.
    pub config: ClientConfig,
    /// For how long to try, and how long nodes may take to come back after that.
    ///
    /// Zero means that a lost connection is not made up for.
    pub patience: Duration,
}

/// Losses of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Losses {
    /// All.
    All,
    /// Where the scheduler has closed it in order.
    InOrder,
}

/// What a caller that follows instances is told.
///
/// Handed to the callback of `start::follow`, which prints it or not.
#[derive(Debug)]
pub enum News<'a> {
    /// The stage of an instance has changed.
    Changed(&'a Tracked),
    /// A remark about the connection.
    ///
    /// For people: that it was lost, or stands again.
    Connection(String),
}

/// How instances are followed.
///
/// The same for all connections of one command.
#[derive(Debug, Clone, Copy)]
pub(super) struct Following {
    /// How far.
    pub(super) until: Until,
    /// Since when.
    ///
    /// An end before that was of an earlier run with the same UUID.
    pub(super) since: Instant,
    /// How long at most.
    pub(super) deadline: Instant,
}

/// An error of it, such as a closed pipe, ends the command.
type Changed<'a> = &'a mut dyn FnMut(News<'_>) -> std::io::Result<()>;

/// Waits until instances have ended.
///
/// Names are resolved after the subscription, so that no end is missed in between. An instance that has ended already
/// is reported at once.
///
/// # Errors
/// [`CommandError`].
pub async fn wait(context: &mut Context<'_>, args: &WaitArgs) -> Result<Exit, CommandError> {
    let topics = [Topic::Placements, Topic::Failures, Topic::Instances];
    context.client.watch(&topics).await?;
    let since = Instant::now();
    let mut views: Vec<InstanceView> = Vec::new();
    let mut found = Vec::new();
    for name in &args.instances {
        match latest(context, name, args.reconnect).await? {
            Meant::Instance(view) => {
                let is_there = |it: &InstanceView| it.instance_uuid == view.instance_uuid;
                if !views.iter().any(is_there) {
                    views.push(*view);
                }
            }
            Meant::Array(view) => arrays::add(&mut found, *view),
        }
    }
    let of_arrays = match found.is_empty() {
        true => Exit::Done,
        false => arrays::follow(context, found, args.reconnect).await?,
    };
    if views.is_empty() {
        return Ok(of_arrays);
    }
    let following = Following {
        until: Until::Exited,
        since,
        deadline: since + context.wait,
    };
    let mut tracker = Tracker::attached(&views);
    let reconnect = Reconnect {
        after: Losses::All,
        config: context.config.clone(),
        patience: args.reconnect,
    };
    let is_silent = context.json;
    let open = tracker.open().map(|it| it.instance_uuid.as_str());
    context.aftermath.instances(open);
    let (out, aftermath) = (&mut context.out, &context.aftermath);
    for tracked in tracker.all() {
        tell(out, &News::Changed(tracked), is_silent, false)?;
    }
    let changed: Changed<'_> = &mut |news| {
        note(aftermath, &news);
        tell(out, &news, is_silent, false)
    };
    let client = &mut context.client;
    let followed = watch_over(client, &mut tracker, following, None, changed).await;
    attend(
        client,
        &mut tracker,
        following,
        Some(&reconnect),
        (followed, &[]),
        changed,
    )
    .await?;
    Ok(arrays::worse(of_arrays, conclude(context, &tracker)?))
}

/// What a name means.
enum Meant {
    Instance(Box<InstanceView>),
    Array(Box<ArrayView>),
}

/// What a name means: an instance that is listed, or else the latest that has ended, or else an array. An instance that is named in full may be
/// on a node that is on its way back.
///
/// Only a whole UUID is waited for: the beginning of one, or a name, could fit another instance by then.
async fn latest(
    context: &mut Context<'_>,
    name: &str,
    patience: Duration,
) -> Result<Meant, CommandError> {
    let give_up = Instant::now() + patience;
    let is_whole = name.parse::<Uuid>().is_ok();
    loop {
        let error = match instance(&mut context.client, name).await {
            Err(CommandError::Resolve(error)) => error,
            // It may be stopped, and go on: the connection stands.
            Err(CommandError::Client(ClientError::NoAnswer { .. })) if Instant::now() < give_up => {
                continue;
            }
            found => return found.map(|view| Meant::Instance(Box::new(view))),
        };
        let known = context.client.ended_history(Some(name)).await?;
        if let Some(view) = latest_called(context, name, &known.instances)? {
            return Ok(Meant::Instance(Box::new(view.clone())));
        }
        if let Some(array) = arrays::meant(&mut context.client, name).await? {
            return Ok(Meant::Array(Box::new(array)));
        }
        if !is_whole || Instant::now() + TRY_PAUSE >= give_up {
            remark_reach(context, &known)?;
            return Err(error.into());
        }
        sleep(TRY_PAUSE).await;
    }
}

/// Notes which instances no longer go on.
///
/// So that Ctrl-C names only those that really go on.
pub(super) fn note(aftermath: &Aftermath, news: &News<'_>) {
    if let News::Changed(tracked) = news
        && tracked.has_ended()
    {
        aftermath.ended(&tracked.instance_uuid);
    }
}

/// Prints news as they come.
///
/// `is_silent` suppresses the lines for instances; remarks about the connection always go to standard error.
pub(super) fn tell(
    out: &mut Output<'_>,
    news: &News<'_>,
    is_silent: bool,
    verbose: bool,
) -> std::io::Result<()> {
    match news {
        News::Connection(text) => out.remark(&Printable::new(text)),
        News::Changed(_) if is_silent => Ok(()),
        News::Changed(tracked) => {
            out.line(&tracked.line())?;
            if verbose && !tracked.reasons().is_empty() {
                out.lines(&reasons_table(tracked.reasons(), out.width()))?;
                out.lines(&what_helps(tracked.reasons(), Among::All, None))?;
            }
            out.flush()
        }
    }
}

/// Prints what is left to say, and says how it all went.
///
/// Those that did not get far enough have the remark that they were not waited for any longer.
pub(super) fn conclude(context: &mut Context<'_>, tracker: &Tracker) -> Result<Exit, CommandError> {
    if context.json {
        let rows: Vec<Value> = tracker.all().iter().map(Tracked::json).collect();
        context.out.document(&json!({ "instances": rows }))?;
    } else {
        for tracked in tracker.open() {
            let line = format_args!("{}; gave up waiting", tracked.line());
            context.out.line(&Printable::new(line))?;
        }
    }
    Ok(tracker.exit())
}

/// Goes on to follow instances where the connection was lost, `followed` being how the first connection went.
///
/// A query without an answer in time is a loss as well: a scheduler that is stopped, or a network that is gone, closes
/// nothing. Each loss of the connection has its own time to connect again. Afterwards the tracker knows that events may be
/// missing, and nodes get the same time to come back with their instances, because the scheduler may have been
/// restarted.
///
/// Where the scheduler has closed it in order, those of `requests` of which nothing has come and that are not known afterwards
/// are sent again, [`MAX_RESENDS`] times at most: it has not read them. None is once a connection was lost in another way.
///
/// Other errors, and a loss without `reconnect`, are returned.
pub(super) async fn attend(
    client: &mut Client,
    tracker: &mut Tracker,
    mut following: Following,
    reconnect: Option<&Reconnect>,
    (mut followed, requests): (Result<(), CommandError>, &[StartRequest]),
    changed: Changed<'_>,
) -> Result<(), CommandError> {
    let mut resends = MAX_RESENDS;
    while let Some(lost) = loss(&followed) {
        if lost.how != Closing::InOrder {
            // What was sent before may have been read, whatever becomes of later connections.
            resends = 0;
        }
        let is_unread = resends > 0;
        let meant = |it: &&Reconnect| {
            let is_included = it.after == Losses::All || is_unread;
            !it.patience.is_zero() && is_included
        };
        let Some(reconnect) = reconnect.filter(meant) else {
            return followed;
        };
        let (waited, lost_at) = (reconnect.patience, Instant::now());
        let patience = humantime::format_duration(waited);
        changed(News::Connection(format!(
            "{lost}; connecting again, for {patience} at most"
        )))?;
        let topics = client.topics().to_vec();
        let Some(again) = again(reconnect).await else {
            return Err(CommandError::NotBack { lost, waited });
        };
        *client = again;
        changed(News::Connection("connected again".to_owned()))?;
        tracker.reattach();
        // The time without a connection is none in which anything could have come.
        following.deadline += lost_at.elapsed();
        resends -= u32::from(is_unread);
        followed = match watch_again(client, tracker, &topics, following, is_unread, changed).await
        {
            Ok(()) => {
                let unread = match is_unread {
                    true => unanswered(tracker, requests),
                    false => Vec::new(),
                };
                let back_by = Some(Instant::now() + reconnect.patience);
                let submitter = client.submitter();
                let sending = send(&submitter, &unread);
                let looking = watch_over(client, tracker, following, back_by, changed);
                let (sent, followed) = tokio::join!(sending, looking);
                followed.and(sent.map_err(CommandError::from))
            }
            Err(error) => Err(error),
        };
    }
    followed
}

/// Subscribes on a new connection. Where STARTs are to be sent again, it looks before which of them are known after all: a
/// scheduler that closes in order may have taken one in that it did not answer any more.
async fn watch_again(
    client: &mut Client,
    tracker: &mut Tracker,
    topics: &[Topic],
    following: Following,
    is_to_look: bool,
    changed: Changed<'_>,
) -> Result<(), CommandError> {
    client.watch(topics).await?;
    if is_to_look {
        let within = following.since.elapsed() + AGE_MARGIN;
        for tracked in look_at(client, tracker, Absence::MayReturn, within).await? {
            changed(News::Changed(&tracked))?;
        }
    }
    Ok(())
}

/// Those of which nothing has come.
fn unanswered(tracker: &Tracker, requests: &[StartRequest]) -> Vec<StartRequest> {
    let open = tracker.open().filter(|it| it.stage == Stage::Sent);
    let open: HashSet<&str> = open.map(|it| it.instance_uuid.as_str()).collect();
    let is_open = |it: &&StartRequest| open.contains(it.instance_uuid.as_str());
    requests.iter().filter(is_open).cloned().collect()
}

/// Sends STARTs, in their order.
pub(super) async fn send(
    submitter: &Submitter,
    requests: &[StartRequest],
) -> Result<(), LinkClosed> {
    for request in requests {
        submitter.submit(request.payload.clone()).await?;
    }
    Ok(())
}

/// The connection that was lost, if that is why instances could not be followed any more.
pub(super) fn loss(followed: &Result<(), CommandError>) -> Option<LinkClosed> {
    match followed {
        Err(CommandError::Client(ClientError::Closed(lost))) => Some(lost.clone()),
        Err(CommandError::Client(silent @ ClientError::NoAnswer { .. })) => {
            Some(LinkClosed::unclear(silent.to_string()))
        }
        _ => None,
    }
}

/// Another session, if there is one in time.
///
/// Errors of single tries are not reported: they are expected while a scheduler restarts.
pub(super) async fn again(reconnect: &Reconnect) -> Option<Client> {
    let give_up = Instant::now() + reconnect.patience;
    loop {
        match timeout_at(give_up, Client::connect(&reconnect.config)).await {
            Ok(Ok(client)) => return Some(client),
            Ok(Err(_)) if Instant::now() + TRY_PAUSE < give_up => sleep(TRY_PAUSE).await,
            _ => return None,
        }
    }
}

/// Takes events in, and looks at what runs from time to time, until all are so far. Until `back_by`, if that is given,
/// nodes may come back with what is not listed.
///
/// Returns when all are settled or the time is over; the tracker says which. There are no looks while only placement
/// is waited for: that is answered by events alone.
pub(super) async fn watch_over(
    client: &mut Client,
    tracker: &mut Tracker,
    following: Following,
    back_by: Option<Instant>,
    changed: Changed<'_>,
) -> Result<(), CommandError> {
    let deadline = following.deadline;
    let mut pause = FIRST_LOOK;
    let mut look = Instant::now() + pause;
    while !tracker.is_settled() && Instant::now() < deadline {
        match timeout_at(look.min(deadline), client.next_event()).await {
            Ok(event) => {
                if let Some(tracked) = tracker.observe(&event?) {
                    changed(News::Changed(tracked))?;
                }
            }
            Err(_) if following.until > Until::Placed => {
                let absence = match back_by.filter(|back_by| Instant::now() < *back_by) {
                    Some(_) => Absence::MayReturn,
                    None => Absence::Final,
                };
                let within = following.since.elapsed() + AGE_MARGIN;
                for tracked in look_at(client, tracker, absence, within).await? {
                    changed(News::Changed(&tracked))?;
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
///
/// The order is: list, take in the events that came before, and if something is missing look among those that have
/// ended. A listing is taken in last, so that an end with an exit status wins over mere absence.
async fn look_at(
    client: &mut Client,
    tracker: &mut Tracker,
    absence: Absence,
    within: Duration,
) -> Result<Vec<Tracked>, ClientError> {
    let open = tracker
        .open()
        .map(|tracked| Some(tracked.instance_uuid.clone()));
    let open: Vec<Option<String>> = open.collect();
    let scopes = if open.len() > FEW { vec![None] } else { open };
    let mut changed = Vec::new();
    for scope in scopes {
        let concerns = |it: &Tracked| scope.as_ref().is_none_or(|id| it.instance_uuid == *id);
        let listing = client.list(QueryKind::Instances, scope.as_deref()).await?;
        changed.extend(observe_kept(client, tracker));
        if tracker.misses(&listing.instances, concerns) {
            let ended = client.ended_within(scope.as_deref(), within).await?;
            changed.extend(observe_kept(client, tracker));
            changed.extend(tracker.observe_ended(&ended, within));
        }
        changed.extend(tracker.observe_listing(&listing.instances, absence, concerns));
    }
    Ok(changed)
}

/// Takes in the events that came before a listing: what they say is older than what it says.
///
/// Returns those that changed, as copies, because the tracker goes on changing.
fn observe_kept(client: &mut Client, tracker: &mut Tracker) -> Vec<Tracked> {
    let mut changed = Vec::new();
    while let Some(event) = client.kept_event() {
        changed.extend(tracker.observe(&event).cloned());
    }
    changed
}
