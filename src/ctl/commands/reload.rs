//! `ciaoctl reload`: the scheduler reads its certificates and all other files again.

use proto_frames::payload::{ReloadState, Reloaded};

use crate::ctl::args::ReloadArgs;
use crate::ctl::commands::{CommandError, Context};
use crate::ctl::event::lifecycle::reloaded_json;
use crate::ctl::exit::Exit;
use crate::printable::Printable;

/// Asks for it and says what came of it.
///
/// [`Exit::Refused`] where there is a mistake in a file: file, line and reason are on standard error, and the scheduler
/// goes on as before.
///
/// # Errors
/// [`CommandError`].
pub async fn reload(context: &mut Context<'_>, args: &ReloadArgs) -> Result<Exit, CommandError> {
    let news = context.client.reload(args.force).await?;
    if context.json {
        context.out.document(&reloaded_json(&news))?;
    } else if news.state == ReloadState::Taken {
        let text = "the scheduler has read its files again; new connections are made with them";
        context.out.line(&Printable::new(text))?;
    } else {
        context.out.remark(&Printable::new(refusal(&news)))?;
    }
    Ok(match news.state {
        ReloadState::Taken => Exit::Done,
        _ => Exit::Refused,
    })
}

/// The reason names the file by itself, and most a line.
fn refusal(news: &Reloaded) -> String {
    format!(
        "nothing was taken, and all stays as it was: {}",
        news.reason
    )
}
