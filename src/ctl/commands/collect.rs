//! `ciaoctl collect`: what ended instances have written, and with `--files` their working directories, fetched into a
//! directory here, several at a time over one connection.
//!
//! ```text
//! DIR/NAME.UUID/        of each instance; UUID alone for one without a name; with .2 and so on for a later run
//!     output            what it wrote; stdout and stderr where its START has them kept apart
//!     files/            its working directory, with --files
//!     end.json          its end as `ciaoctl history -o json` has it, and what is collected; written last
//!     *.part            what is being fetched
//! ```
//!
//! What is there whole is not fetched again: `end.json` says so of an instance, size and time of a file. What was cut off
//! is fetched again from its beginning, in another file that takes the name once it is whole.

mod fetch;

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::time::Duration;

use proto_frames::payload::{EndFilter, EndOutcome, EndedRun, OutputFailure, ReadOutput};
use serde_json::json;
use tokio::time::{Instant, sleep_until};

use self::fetch::{Fetch, Taken};
use crate::ctl::args::CollectArgs;
use crate::ctl::commands::ends::filter;
use crate::ctl::commands::history::ended_id;
use crate::ctl::commands::{CommandError, Context, arrays};
use crate::ctl::exit::Exit;
use crate::printable::{Printable, counted};

/// How often a chunk is asked for again while its node, or the scheduler, serves as many as it does at a time: a minute.
const BUSY_TRIES: u32 = 120;

/// Pause between two of these.
const BUSY_PAUSE: Duration = Duration::from_millis(500);

/// Pause between two lines that say how far it is.
const SHOW_EVERY: Duration = Duration::from_millis(200);

/// Fetches what the selected instances have left.
///
/// # Errors
/// [`CommandError`]: the selection cannot be read, a file here not written, the connection is lost. That the results of an
/// instance cannot be had is said for each, and by the exit code.
pub async fn collect(context: &mut Context<'_>, args: &CollectArgs) -> Result<Exit, CommandError> {
    let selected = selected(context, args).await?;
    std::fs::create_dir_all(&args.directory)?;
    let mut collection = Collection::new(args, selected)?;
    let done = collection.run(context, usize::from(args.parallel)).await;
    context.out.end_progress()?;
    done?;
    collection.print(context, args)?;
    Ok(match collection.failed.is_empty() {
        true => Exit::Done,
        false => Exit::Refused,
    })
}

/// The ends that are meant, the latest of each instance: those of the names, an array standing for its elements, or all that
/// meet the options.
async fn selected(
    context: &mut Context<'_>,
    args: &CollectArgs,
) -> Result<Vec<EndedRun>, CommandError> {
    if args.instance.is_empty() {
        let limit = args.ends.limit.map_or(usize::MAX, |limit| limit as usize);
        let filter = filter(context, &args.ends).await?;
        return latest(context, &filter, limit).await;
    }
    let mut all: Vec<EndedRun> = Vec::new();
    for name in &args.instance {
        if let Some(array) = arrays::meant(&mut context.client, name).await? {
            let of_it = EndFilter {
                array: array.array_uuid,
                ..EndFilter::default()
            };
            all.extend(latest(context, &of_it, usize::MAX).await?);
            continue;
        }
        let id = ended_id(context, name).await?;
        let of_it = EndFilter {
            instance: id,
            ..EndFilter::default()
        };
        let found = latest(context, &of_it, 1).await?;
        if found.is_empty() {
            let why = format!(
                "no end of '{name}' is on record: it has not ended, or that was too long ago"
            );
            return Err(CommandError::Usage(why));
        }
        all.extend(found);
    }
    let mut seen = HashSet::new();
    all.retain(|row| seen.insert(row.instance_uuid.clone()));
    Ok(all)
}

/// The latest end of each instance among those that meet a filter, at most so many.
async fn latest(
    context: &mut Context<'_>,
    filter: &EndFilter,
    limit: usize,
) -> Result<Vec<EndedRun>, CommandError> {
    let (mut rows, mut seen, mut after) = (Vec::new(), HashSet::new(), None);
    while rows.len() < limit {
        let page = context
            .client
            .ends_on_record(filter, after, usize::MAX)
            .await?;
        for row in page.rows {
            if rows.len() < limit && seen.insert(row.instance_uuid.clone()) {
                rows.push(row);
            }
        }
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    Ok(rows)
}

/// What is being collected.
struct Collection {
    waiting: VecDeque<Fetch>,
    /// By the number of the request that each waits for.
    open: BTreeMap<u64, (Fetch, ReadOutput, u32)>,
    /// Those that ask again.
    busy: VecDeque<(Instant, Fetch, ReadOutput, u32)>,
    selected: usize,
    collected: u64,
    /// How many were there already.
    present: u64,
    /// How many never ran, so that there is nothing of them.
    never_ran: u64,
    failed: Vec<(EndedRun, String)>,
    /// What is collected of some, and why the rest is not.
    remarks: Vec<(EndedRun, String)>,
    bytes: u64,
    shown: Option<Instant>,
}

impl Collection {
    fn new(args: &CollectArgs, selected: Vec<EndedRun>) -> Result<Self, CommandError> {
        let mut collection = Self {
            waiting: VecDeque::new(),
            open: BTreeMap::new(),
            busy: VecDeque::new(),
            selected: selected.len(),
            collected: 0,
            present: 0,
            never_ran: 0,
            failed: Vec::new(),
            remarks: Vec::new(),
            bytes: 0,
            shown: None,
        };
        for row in selected {
            if row.outcome == EndOutcome::NotStarted {
                collection.never_ran += 1;
                continue;
            }
            let fetch = Fetch::new(&args.directory, row, args.files)?;
            match fetch.is_done() {
                true => collection.present += 1,
                false => collection.waiting.push_back(fetch),
            }
        }
        Ok(collection)
    }

    async fn run(
        &mut self,
        context: &mut Context<'_>,
        parallel: usize,
    ) -> Result<(), CommandError> {
        loop {
            while self.open.len() + self.busy.len() < parallel
                && let Some(fetch) = self.waiting.pop_front()
            {
                self.go_on(context, fetch).await?;
            }
            if self.open.is_empty() && self.busy.is_empty() {
                return Ok(());
            }
            self.show(context)?;
            let again = self.busy.front().map(|(at, ..)| *at);
            let pause = async {
                match again {
                    Some(at) => sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            let is_open = !self.open.is_empty();
            tokio::select! {
                chunk = context.client.next_output(), if is_open => self.take(context, chunk?).await?,
                () = pause => self.ask_again(context).await?,
            }
        }
    }

    /// Asks for the next that one lacks; it is done if there is none.
    async fn go_on(
        &mut self,
        context: &mut Context<'_>,
        mut fetch: Fetch,
    ) -> Result<(), CommandError> {
        let Some(request) = fetch.next()? else {
            self.collected += 1;
            self.bytes += fetch.bytes();
            if let Some(remark) = fetch.remark() {
                self.remarks.push((fetch.into_row(), remark));
            }
            return Ok(());
        };
        let id = context.client.ask_output(&request).await?;
        self.open.insert(id, (fetch, request, 0));
        Ok(())
    }

    async fn ask_again(&mut self, context: &mut Context<'_>) -> Result<(), CommandError> {
        if let Some((_, fetch, request, tries)) = self.busy.pop_front() {
            let id = context.client.ask_output(&request).await?;
            self.open.insert(id, (fetch, request, tries));
        }
        Ok(())
    }

    /// Takes an answer in.
    async fn take(
        &mut self,
        context: &mut Context<'_>,
        chunk: proto_frames::payload::OutputChunk,
    ) -> Result<(), CommandError> {
        // One that was answered twice is passed over.
        let Some((mut fetch, request, tries)) = self.open.remove(&chunk.part.id) else {
            return Ok(());
        };
        if chunk.part.failure == OutputFailure::Busy && tries < BUSY_TRIES {
            let at = Instant::now() + BUSY_PAUSE;
            self.busy.push_back((at, fetch, request, tries + 1));
            return Ok(());
        }
        match fetch.take(&chunk)? {
            Taken::GoOn => self.go_on(context, fetch).await,
            Taken::Failed(why) => {
                self.failed.push((fetch.into_row(), why));
                Ok(())
            }
        }
    }

    /// Says how far it is, on a terminal.
    fn show(&mut self, context: &mut Context<'_>) -> Result<(), CommandError> {
        if self.shown.is_some_and(|at| at.elapsed() < SHOW_EVERY) {
            return Ok(());
        }
        self.shown = Some(Instant::now());
        let under_way = self.open.values().map(|(fetch, ..)| fetch.bytes());
        let bytes = under_way.fold(self.bytes, u64::saturating_add);
        let failed = match self.failed.len() {
            0 => String::new(),
            count => format!(", {count} failed"),
        };
        let line = format!(
            "{} of {} collected{failed}, {}",
            self.collected + self.present,
            counted(self.selected, "instance"),
            size(bytes)
        );
        Ok(context.out.progress(&Printable::new(line))?)
    }

    fn print(&self, context: &mut Context<'_>, args: &CollectArgs) -> Result<(), CommandError> {
        let name_of = |row: &EndedRun| match &*row.name {
            "" => row.instance_uuid.clone(),
            name => format!("{name} ({})", row.instance_uuid),
        };
        if context.json {
            let why = |(row, why): &(EndedRun, String)| json!({ "instance_uuid": row.instance_uuid, "name": row.name, "detail": why });
            return Ok(context.out.document(&json!({
                "directory": args.directory.to_string_lossy(),
                "collected": self.collected,
                "present": self.present,
                "never_ran": self.never_ran,
                "bytes": self.bytes,
                "failed": self.failed.iter().map(why).collect::<Vec<_>>(),
                "incomplete": self.remarks.iter().map(why).collect::<Vec<_>>(),
            }))?);
        }
        for (row, why) in &self.remarks {
            let line = format!("{}: collected, but {why}", name_of(row));
            context.out.remark(&Printable::new(line))?;
        }
        for (row, why) in &self.failed {
            let line = format!("{}: not collected: {why}", name_of(row));
            context.out.remark(&Printable::new(line))?;
        }
        let mut line = format!(
            "{} collected, {} in {}",
            counted(self.collected, "instance"),
            size(self.bytes),
            args.directory.display()
        );
        let others = [
            (self.present, "there already"),
            (self.never_ran, "never ran"),
            (self.failed.len() as u64, "not collected"),
        ];
        for (count, what) in others.into_iter().filter(|(count, _)| *count > 0) {
            line.push_str(&format!("; {count} {what}"));
        }
        Ok(context.out.line(&Printable::new(line))?)
    }
}

/// Bytes for people: whole MiB from one on.
fn size(bytes: u64) -> String {
    match bytes {
        0..1024 => counted(bytes, "byte"),
        1024..1_048_576 => format!("{} KiB", bytes / 1024),
        _ => format!("{} MiB", bytes / 1_048_576),
    }
}
