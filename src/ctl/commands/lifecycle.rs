//! `ciaoctl suspend`, `resume`, `migrate` and `update`: a command on one instance, followed to its end.
//!
//! Each command resolves the names, checks the payload here, sends it, and then follows an [`Operation`] until it is
//! over. `--no-wait` only reports a refusal.

use std::collections::BTreeMap;
use std::time::Duration;

use proto_frames::payload::{
    InstanceView, LifecycleCommand, Migrate, QueryKind, Resume, Span, Suspend, Topic, Update,
};
use serde_json::json;
use tokio::time::{Instant, timeout_at};

use crate::ctl::args::{LifecycleArgs, MigrateArgs, UpdateArgs};
use crate::ctl::client::LifecycleOrder;
use crate::ctl::commands::instances::instance;
use crate::ctl::commands::{CommandError, Context, nodes};
use crate::ctl::exit::Exit;
use crate::ctl::operation::{NodeRef, Operation};
use crate::printable::Printable;

/// How often the scheduler's list is looked at, in case an event never comes.
///
/// Each look is a query to the scheduler.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Suspends an instance.
///
/// [`Exit::Timeout`] means that it may still be suspended later.
///
/// # Errors
/// [`CommandError`].
pub async fn suspend(
    context: &mut Context<'_>,
    args: &LifecycleArgs,
) -> Result<Exit, CommandError> {
    let instance = instance(&mut context.client, &args.instance).await?;
    let order = LifecycleOrder::Suspend(Suspend {
        instance_uuid: instance.instance_uuid.clone(),
        workload_agent_uuid: instance.node_uuid.clone(),
    });
    let operation = Operation::new(LifecycleCommand::Suspend, &instance, None);
    let patience = context.answer;
    carry_out(context, &order, operation, args, patience).await
}

/// Resumes a suspended instance.
///
/// # Errors
/// [`CommandError`].
pub async fn resume(context: &mut Context<'_>, args: &LifecycleArgs) -> Result<Exit, CommandError> {
    let instance = instance(&mut context.client, &args.instance).await?;
    let order = LifecycleOrder::Resume(Resume {
        instance_uuid: instance.instance_uuid.clone(),
        workload_agent_uuid: instance.node_uuid.clone(),
    });
    let operation = Operation::new(LifecycleCommand::Resume, &instance, None);
    let patience = context.answer;
    carry_out(context, &order, operation, args, patience).await
}

/// Moves an instance to another node.
///
/// Without `--to` the scheduler chooses the node. An instance in the queue is only told where to go.
///
/// # Errors
/// [`CommandError`].
pub async fn migrate(context: &mut Context<'_>, args: &MigrateArgs) -> Result<Exit, CommandError> {
    let instance = instance(&mut context.client, &args.life.instance).await?;
    let target = match &args.to {
        Some(name) => Some(nodes::node(&mut context.client, name).await?),
        None => None,
    };
    let target = target.map(|node| NodeRef {
        node_uuid: node.uuid,
        hostname: node.hostname.unwrap_or_default(),
    });
    let migrate = Migrate {
        instance_uuid: instance.instance_uuid.clone(),
        workload_agent_uuid: instance.node_uuid.clone(),
        target_node_uuid: target.clone().unwrap_or_default().node_uuid,
        deadline: args.deadline,
    };
    checked(migrate.check())?;
    let patience = patience(context, args.deadline);
    let operation = Operation::new(LifecycleCommand::Migrate, &instance, target);
    carry_out(
        context,
        &LifecycleOrder::Migrate(migrate),
        operation,
        &args.life,
        patience,
    )
    .await
}

/// Changes what an instance asks for.
///
/// What is not given stays as it is. With `--may-move` it can take as long as a migration.
///
/// # Errors
/// [`CommandError`].
pub async fn update(context: &mut Context<'_>, args: &UpdateArgs) -> Result<Exit, CommandError> {
    let resources = resources(args)?;
    let instance = instance(&mut context.client, &args.life.instance).await?;
    let update = Update {
        instance_uuid: instance.instance_uuid.clone(),
        workload_agent_uuid: instance.node_uuid.clone(),
        mem_mb: args.mem_mb,
        vcpus: args.vcpus,
        disk_mb: args.disk_mb,
        resources,
        priority: args.priority,
        may_move: args.may_move,
    };
    checked(update.check())?;
    let operation = Operation::new(LifecycleCommand::Update, &instance, None);
    let patience = if args.may_move {
        context.wait
    } else {
        context.answer
    };
    carry_out(
        context,
        &LifecycleOrder::Update(update),
        operation,
        &args.life,
        patience,
    )
    .await
}

/// How long to follow something that has this deadline at the scheduler: until then, and as long as an answer may take.
///
/// No deadline, or one of 0, means as long as `--timeout` allows.
pub(super) fn patience(context: &Context<'_>, deadline: Option<Span>) -> Duration {
    match deadline.filter(|deadline| deadline.ms() > 0) {
        Some(deadline) => Duration::from_millis(deadline.ms()).saturating_add(context.answer),
        None => context.wait,
    }
}

/// A value that the scheduler would refuse is an error of the command line.
pub(super) fn checked(
    check: Result<(), proto_frames::payload::PayloadError>,
) -> Result<(), CommandError> {
    check.map_err(|error| CommandError::Usage(error.to_string()))
}

/// The amounts are what the instance is to have, not differences. A name given twice is an error instead of the last
/// one winning.
fn resources(args: &UpdateArgs) -> Result<BTreeMap<String, i64>, CommandError> {
    let mut resources = BTreeMap::new();
    for (name, amount) in &args.resource {
        if resources.insert(name.clone(), *amount).is_some() {
            let twice = format!("--resource: {name} is there twice");
            return Err(CommandError::Usage(twice));
        }
    }
    Ok(resources)
}

/// Sends a command and shows what becomes of it, until it is over or `patience` is at an end.
///
/// Subscribes before sending: the first event can come at once. Once the command is accepted, Ctrl-C says that it goes
/// on.
async fn carry_out(
    context: &mut Context<'_>,
    order: &LifecycleOrder,
    mut operation: Operation,
    args: &LifecycleArgs,
    patience: Duration,
) -> Result<Exit, CommandError> {
    if !args.no_wait {
        context.client.watch_also(Topic::Instances).await?;
        context.client.watch_also(Topic::Failures).await?;
    }
    context.client.order(order).await?;
    context.aftermath.text(operation.aftermath());
    if args.no_wait {
        // What came together with the confirmation of the command may end it already.
        while let Some(event) = context.client.kept_event() {
            operation.observe(&event);
        }
        print_end(context, &operation, "")?;
        return Ok(if operation.is_over() {
            operation.exit()
        } else {
            Exit::Done
        });
    }
    follow(context, &mut operation, patience).await?;
    let late = if operation.is_over() {
        ""
    } else {
        "; gave up waiting, it may still be done"
    };
    print_end(context, &operation, late)?;
    Ok(operation.exit())
}

/// Takes events in, and looks at the list from time to time, until the command is over.
///
/// A line for each change, except the last one, which [`print_end`] prints. Nodes that have no name yet are looked up
/// as they appear.
async fn follow(
    context: &mut Context<'_>,
    operation: &mut Operation,
    patience: Duration,
) -> Result<(), CommandError> {
    let deadline = Instant::now() + patience;
    let mut look = Instant::now() + LOOK_EVERY;
    while !operation.is_over() && Instant::now() < deadline {
        let is_news = match timeout_at(look.min(deadline), context.client.next_event()).await {
            Ok(event) => operation.observe(&event?),
            Err(_) if Instant::now() >= deadline => false,
            Err(_) => {
                look = Instant::now() + LOOK_EVERY;
                look_at(context, operation).await?
            }
        };
        for node in operation.unnamed() {
            let listing = context.client.list(QueryKind::Nodes, Some(&node)).await?;
            for view in listing.nodes.iter().filter(|view| view.node_uuid == node) {
                operation.name(&node, &view.hostname);
            }
        }
        if is_news && !operation.is_over() && !context.json {
            context.out.line(&operation.line())?;
            context.out.flush()?;
        }
    }
    Ok(())
}

/// Events that arrived before the listing are taken in first, because what they say is older.
async fn look_at(
    context: &mut Context<'_>,
    operation: &mut Operation,
) -> Result<bool, CommandError> {
    let id = operation.instance_uuid().to_owned();
    let listing = context.client.list(QueryKind::Instances, Some(&id)).await?;
    let mut is_news = false;
    // What came before the list is older than what it says.
    while let Some(event) = context.client.kept_event() {
        is_news |= operation.observe(&event);
    }
    let is_it = |view: &&InstanceView| view.instance_uuid == id;
    Ok(operation.look(listing.instances.iter().find(is_it)) || is_news)
}

/// `late` is a remark behind the line, for a command that was not over in time.
fn print_end(
    context: &mut Context<'_>,
    operation: &Operation,
    late: &str,
) -> Result<(), CommandError> {
    if context.json {
        let document = json!({ "instances": [operation.json()] });
        context.out.document(&document)?;
    } else {
        let line = Printable::new(format_args!("{}{late}", operation.line()));
        context.out.line(&line)?;
    }
    Ok(())
}
