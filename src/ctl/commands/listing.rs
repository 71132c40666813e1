//! `ciaoctl nodes`, `instances`, `controllers`.

use proto_frames::payload::QueryKind;

use crate::ctl::args::ListArgs;
use crate::ctl::commands::{CommandError, Context};
use crate::ctl::exit::Exit;
use crate::ctl::table::{Row, Style, document, ids, table};

/// Lists the nodes.
///
/// # Errors
/// [`CommandError`].
pub async fn nodes(context: &mut Context<'_>, args: &ListArgs) -> Result<Exit, CommandError> {
    let listing = context
        .client
        .list(QueryKind::Nodes, args.matching.as_deref())
        .await?;
    print(context, args, &listing.nodes)
}

/// Lists the instances.
///
/// # Errors
/// [`CommandError`].
pub async fn instances(context: &mut Context<'_>, args: &ListArgs) -> Result<Exit, CommandError> {
    let listing = context
        .client
        .list(QueryKind::Instances, args.matching.as_deref())
        .await?;
    print(context, args, &listing.instances)
}

/// Lists the controllers and operators.
///
/// # Errors
/// [`CommandError`].
pub async fn controllers(context: &mut Context<'_>, args: &ListArgs) -> Result<Exit, CommandError> {
    let listing = context
        .client
        .list(QueryKind::Controllers, args.matching.as_deref())
        .await?;
    print(context, args, &listing.controllers)
}

fn print<R: Row>(
    context: &mut Context<'_>,
    args: &ListArgs,
    rows: &[R],
) -> Result<Exit, CommandError> {
    let style = Style {
        headers: !args.no_headers,
        full_ids: args.full,
    };
    if context.json {
        writeln!(context.out, "{:#}", document(rows))?;
    } else if args.quiet {
        context.out.write_all(ids(rows).as_bytes())?;
    } else {
        context.out.write_all(table(rows, style).as_bytes())?;
    }
    Ok(Exit::Done)
}
