//! `ciaoctl set`: instances of one START file that are kept together under one name.
//!
//! The cluster is the record: a set is the living instances that are called `NAME.VERSION.NUMBER`. So a command that
//! was interrupted is given again, and goes on from what there is.
//!
//! A name is for example `web.3f2a91c0.2`: set `web`, started from a file whose SHA-256 begins with `3f2a91c0`, number
//! 2. Other commands can change such instances at any time, so that every step lists them again.

use proto_frames::payload::{InstanceView, PlacementState, QueryKind};
use sched_model::SetMember;
use serde_json::{Value, json};

use crate::ctl::args::{InstanceArgs, SetCommand, SetName, SubmitArgs, WaitFor};
use crate::ctl::commands::start::{new_uuid, submit};
use crate::ctl::commands::{CommandError, Context, files, instances};
use crate::ctl::exit::Exit;
use crate::ctl::resolve::ResolveError;
use crate::ctl::start_file::StartFile;
use crate::ctl::units::span;
use crate::printable::{Printable, counted};

/// How long another connection is tried for while instances are waited for.
///
/// The same as the default of `start --wait`.
const RECONNECT: std::time::Duration = std::time::Duration::from_secs(30);

/// An instance of a set.
///
/// An instance whose name has the form of a set's, with its parts.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Member {
    /// Eight hex digits, from [`StartFile::version`].
    version: String,
    /// From 0. Two versions can have the same number while a set is being updated.
    number: u32,
    view: InstanceView,
}

/// Does what is to be done with a set.
///
/// Commands other than `create` need a set that exists: a wrong name is an error, not an empty set.
///
/// # Errors
/// [`CommandError`].
pub async fn set(context: &mut Context<'_>, command: &SetCommand) -> Result<Exit, CommandError> {
    match command {
        SetCommand::Create {
            name,
            file,
            replicas,
            strict,
        } => {
            let file = files::read(file, *strict, &mut context.out)?;
            create(context, name, &file, *replicas).await
        }
        SetCommand::Scale {
            name,
            replicas,
            file,
            strict,
        } => {
            let file = file.as_deref();
            let file = file.map(|file| files::read(file, *strict, &mut context.out));
            scale(context, name, *replicas, file.transpose()?.as_ref()).await
        }
        SetCommand::Update {
            name,
            file,
            max_down,
            replicas,
            strict,
        } => {
            let file = files::read(file, *strict, &mut context.out)?;
            let updated = update(context, name, &file, *max_down).await?;
            match replicas {
                Some(replicas) if updated == Exit::Done => {
                    resize(context, name, &file, *replicas).await
                }
                _ => Ok(updated),
            }
        }
        SetCommand::Delete { name } => {
            let members = some(context, name).await?;
            delete(context, &members).await
        }
        SetCommand::Status { name } => {
            let members = some(context, name).await?;
            status(context, &members)
        }
    }
}

/// Refused if an instance of this set is there already, also if it is of another version.
async fn create(
    context: &mut Context<'_>,
    name: &SetName,
    file: &StartFile,
    replicas: u32,
) -> Result<Exit, CommandError> {
    let count = members(context, name).await?.len();
    if count > 0 {
        let count = counted(count as u64, "instance");
        return Err(CommandError::Usage(format!(
            "set {name} has {count} already: scale or update it, or delete it first"
        )));
    }
    start(context, name, file, &[], replicas).await
}

/// Fewer: those with the highest numbers are deleted. More: new ones are started with free numbers, from the same
/// file, whose version must be that of all the others.
async fn scale(
    context: &mut Context<'_>,
    name: &SetName,
    replicas: u32,
    file: Option<&StartFile>,
) -> Result<Exit, CommandError> {
    let all = some(context, name).await?;
    let wanted = replicas as usize;
    if wanted == all.len() {
        let count = counted(all.len() as u64, "instance");
        let done = format_args!("set {name} has {count} already");
        context.out.remark(&Printable::new(done))?;
    }
    if wanted <= all.len() {
        return delete(context, &all[wanted..]).await;
    }
    let Some(file) = file else {
        return Err(CommandError::Usage(format!(
            "set {name} has {}: for more of them, name the file that it was started from",
            counted(all.len() as u64, "instance")
        )));
    };
    let version = file.version();
    if let Some(other) = all.iter().find(|it| it.version != version) {
        return Err(CommandError::Usage(format!(
            "instances of set {name} are of version {}, and the file is {version}: give `ciaoctl set update {name}` first",
            other.version
        )));
    }
    let missing = u32::try_from(wanted - all.len()).unwrap_or(u32::MAX);
    start(context, name, file, &all, missing).await
}

/// In rounds: delete old instances that do not run and up to `max_down` that run, start as many new ones, wait until
/// these run, list again. At most `max_down` instances are down at a time; new ones that do not come up stop the
/// update, and the old ones that are left go on. An old one that cannot be deleted stops it as well: it stays listed,
/// and each further round would start a replacement for it.
async fn update(
    context: &mut Context<'_>,
    name: &SetName,
    file: &StartFile,
    max_down: u32,
) -> Result<Exit, CommandError> {
    let version = file.version();
    loop {
        let all = some(context, name).await?;
        let old: Vec<Member> = all
            .iter()
            .filter(|it| it.version != version)
            .cloned()
            .collect();
        if old.is_empty() {
            context.out.remark(&Printable::new(format_args!(
                "all of set {name} is of version {version}"
            )))?;
            return Ok(Exit::Done);
        }
        // Those that do not run first, then as many of the others as may be down.
        let (idle, running): (Vec<_>, Vec<_>) = old.into_iter().partition(|it| !it.is_running());
        let is_idle_new = |it: &&Member| it.version == version && !it.is_running();
        let down = idle.len() + all.iter().filter(is_idle_new).count();
        // Instances of the new version that do not run count as down, so that a file that does not start stops the
        // update here.
        let room = (max_down as usize).saturating_sub(down);
        let goes: Vec<Member> = idle
            .into_iter()
            .chain(running.into_iter().take(room))
            .collect();
        if goes.is_empty() {
            return Err(CommandError::Usage(format!(
                "set {name} has {} down, and no more than {max_down} may be: see `ciaoctl set status {name}`",
                counted(down as u64, "new instance")
            )));
        }
        // Deleted first: the numbers of those that go are free for the new ones.
        let deleted = delete(context, &goes).await?;
        let (mut left, mut rest) = (0, all);
        rest.retain(|it| !goes.contains(it));
        if deleted != Exit::Done {
            rest = members(context, name).await?;
            let is_left = |it: &&Member| rest.iter().any(|left| left.is_same(it));
            left = goes.iter().filter(is_left).count();
        }
        if left > 0 {
            context.out.remark(&Printable::new(format_args!(
                "{} of set {name} could not be deleted: the update ends, give it again later",
                counted(left, "instance")
            )))?;
        }
        let started = match u32::try_from(goes.len() - left).unwrap_or(u32::MAX) {
            0 => Exit::Done,
            count => start(context, name, file, &rest, count).await?,
        };
        if left > 0 {
            return Ok(deleted.and(started));
        }
        if started != Exit::Done {
            // The file does not start properly: no more instances of it.
            return Ok(started);
        }
    }
}

/// Starts instances of this file until there are `replicas`, or deletes those with the highest numbers.
///
/// Every instance is of this file's version by now.
async fn resize(
    context: &mut Context<'_>,
    name: &SetName,
    file: &StartFile,
    replicas: u32,
) -> Result<Exit, CommandError> {
    let all = members(context, name).await?;
    let wanted = replicas as usize;
    if wanted <= all.len() {
        return delete(context, &all[wanted..]).await;
    }
    let missing = u32::try_from(wanted - all.len()).unwrap_or(u32::MAX);
    start(context, name, file, &all, missing).await
}

/// Starts so many further instances, and waits until they run.
///
/// Numbers that `beside` has are skipped. Ends as `start --wait=running` does: with an error code if one does not come
/// up.
async fn start(
    context: &mut Context<'_>,
    name: &SetName,
    file: &StartFile,
    beside: &[Member],
    count: u32,
) -> Result<Exit, CommandError> {
    let version = file.version();
    let taken = |number: &u32| beside.iter().any(|it| it.number == *number);
    let numbers = (0..).filter(|number| !taken(number)).take(count as usize);
    let requests = numbers
        .map(|number| file.member(new_uuid(), &format!("{name}.{version}.{number}")))
        .collect::<Result<Vec<_>, _>>()?;
    let args = SubmitArgs {
        count: 1,
        wait: Some(WaitFor::Running),
        reconnect: RECONNECT,
        quiet: false,
        verbose: false,
        dry_run: false,
    };
    submit(context, requests, &args).await
}

/// As `ciaoctl delete --yes --wait` does. Nothing for no members.
async fn delete(context: &mut Context<'_>, members: &[Member]) -> Result<Exit, CommandError> {
    let named = members.iter().map(|it| it.view.instance_uuid.clone());
    let args = InstanceArgs {
        instances: named.collect(),
        all: false,
        selector: Vec::new(),
        yes: true,
        wait: true,
        no_wait: false,
    };
    if args.instances.is_empty() {
        if context.json {
            context.out.document(&json!({ "instances": [] }))?;
        }
        return Ok(Exit::Done);
    }
    instances::delete(context, &args, instances::Ending::Delete).await
}

/// One line or object for each member; the exit code does not depend on their states.
fn status(context: &mut Context<'_>, members: &[Member]) -> Result<Exit, CommandError> {
    if context.json {
        let rows: Vec<Value> = members.iter().map(Member::json).collect();
        context.out.document(&json!({ "instances": rows }))?;
        return Ok(Exit::Done);
    }
    for it in members {
        let host = match &*it.view.hostname {
            "" => "no node",
            host => host,
        };
        context.out.line(&Printable::new(format_args!(
            "{} {} {} on {host}",
            it.view.name, it.view.instance_uuid, it.view.state
        )))?;
    }
    Ok(Exit::Done)
}

/// The instances of a set, by number; there must be one.
///
/// An error if there is none, with the form of the names, since a typing error is the usual cause.
async fn some(context: &mut Context<'_>, name: &SetName) -> Result<Vec<Member>, CommandError> {
    let members = members(context, name).await?;
    if members.is_empty() {
        return Err(none_left(context, name).await?.into());
    }
    Ok(members)
}

/// Why a set has no instance: all have ended, as far as the scheduler remembers, or there was none of the name.
async fn none_left(
    context: &mut Context<'_>,
    name: &SetName,
) -> Result<ResolveError, CommandError> {
    let prefix = format!("{name}.");
    let name = name.to_string();
    let ended = context.client.ended(None).await?;
    let ended = ended.into_iter().filter_map(|view| member(&prefix, view));
    let ended: Vec<Member> = ended.collect();
    // The latest is the last.
    let Some(latest) = ended.last() else {
        return Ok(ResolveError::NoSet { name });
    };
    let how = match latest.view.exit_code {
        Some(signal @ ..0) => format!("by signal {}", -signal),
        Some(code) => format!("with exit status {code}"),
        None => "with an exit status that is not known".to_owned(),
    };
    let ago = span(latest.view.age_s);
    Ok(ResolveError::SetEnded {
        name,
        ended: counted(ended.len() as u64, "instance"),
        how: format!("{ago} ago {how}"),
    })
}

/// Lists all instances of the cluster: the scheduler cannot filter by a prefix of names.
async fn members(context: &mut Context<'_>, name: &SetName) -> Result<Vec<Member>, CommandError> {
    let listing = context.client.list(QueryKind::Instances, None).await?;
    let prefix = format!("{name}.");
    let of = |view| member(&prefix, view);
    let mut members: Vec<Member> = listing.instances.into_iter().filter_map(of).collect();
    members.sort_by(|a, b| (a.number, &a.version).cmp(&(b.number, &b.version)));
    Ok(members)
}

/// `None` for a name of another form, for example of an instance that was named by hand.
fn member(prefix: &str, view: InstanceView) -> Option<Member> {
    let of = view
        .name
        .strip_prefix(prefix)
        .and(SetMember::of(&view.name))?;
    let (version, number) = (of.version.to_owned(), of.number);
    Some(Member {
        version,
        number,
        view,
    })
}

impl Member {
    /// The same instance, in whatever state.
    fn is_same(&self, other: &Self) -> bool {
        self.view.instance_uuid == other.view.instance_uuid
    }

    /// Confirmed by its node, whose connection stands.
    fn is_running(&self) -> bool {
        self.view.state == PlacementState::Running
    }

    fn json(&self) -> Value {
        json!({
            "name": self.view.name,
            "version": self.version,
            "instance_uuid": self.view.instance_uuid,
            "state": self.view.state.to_string(),
            "node_uuid": self.view.node_uuid,
            "hostname": self.view.hostname,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_known_by_their_names() {
        let of = |name: &str| {
            let view = InstanceView {
                name: name.to_owned(),
                ..InstanceView::default()
            };
            member("web.", view).map(|it| (it.version, it.number))
        };
        assert_eq!(of("web.0123abcd.7"), Some(("0123abcd".to_owned(), 7)));
        for other in [
            "web",
            "web.1",
            "web.0123abcg.1",
            "web.0123abcd.x",
            "web2.0123abcd.1",
        ] {
            assert_eq!(of(other), None, "{other}");
        }
    }

    #[test]
    fn a_sets_name_leaves_room_for_what_is_behind_it() {
        assert!("web-1".parse::<SetName>().is_ok());
        for bad in ["", "a.b", "-a", "ä", &"x".repeat(41)] {
            assert!(bad.parse::<SetName>().is_err(), "{bad}");
        }
    }
}
