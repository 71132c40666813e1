//! Asking before something is done that cannot be undone.

use std::io::{BufRead as _, IsTerminal as _, Read as _};

use crate::ctl::commands::{CommandError, Context};
use crate::printable::Printable;

/// Longest answer that is read to a question, in bytes.
///
/// A file as standard input must not be read whole; only a terminal is asked, but it can be pasted into.
const MAX_ANSWER_LEN: u64 = 64;

/// Says what is about to happen and asks whether it is to, where there is somebody to ask.
///
/// Anything but `y`, `Y` and `yes` means no, also the end of the input.
///
/// # Errors
/// [`CommandError::Usage`]: it is not to, or there is no terminal to ask at.
pub(super) async fn confirm(context: &mut Context<'_>, what: &str) -> Result<(), CommandError> {
    if !std::io::stdin().is_terminal() {
        let advice = format!("{what}; say --yes if that is meant");
        return Err(CommandError::Usage(advice));
    }
    let question = Printable::new(format_args!("{what}. Go on? [y/N]"));
    context.out.remark(&question)?;
    // On a thread of its own, so that the session goes on meanwhile.
    let answer = tokio::task::spawn_blocking(|| {
        let mut answer = String::new();
        let mut stdin = std::io::stdin().lock().take(MAX_ANSWER_LEN);
        stdin.read_line(&mut answer).map(|_| answer)
    });
    let answer = answer.await.map_err(std::io::Error::other)??;
    match answer.trim() {
        "y" | "Y" | "yes" => Ok(()),
        _ => Err(CommandError::Usage("nothing was done".to_owned())),
    }
}
