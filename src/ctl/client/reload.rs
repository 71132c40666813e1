//! Having the scheduler read its files again.

use proto_frames::Kind;
use proto_frames::payload::{Payload as _, Reload, Reloaded};

use super::{Client, ClientError};
use crate::ctl::event::{Event, refused_kind};

impl Client {
    /// Has the scheduler read its certificates and all other files again, and waits for what comes of it.
    ///
    /// With `force` a configuration from the file is taken although a newer one was set by command.
    ///
    /// A mistake in a file is no error of this call: the answer says it.
    ///
    /// # Errors
    /// [`ClientError`]: it did not answer, or does not know the command.
    pub async fn reload(&mut self, force: bool) -> Result<Reloaded, ClientError> {
        let id = self.next_id();
        self.send(Kind::RELOAD, Reload { id, force }.encode())
            .await?;
        let answer = self.wait_for(
            "answer to the reload",
            self.answer_timeout,
            |event| match event {
                Event::Reloaded(news) if news.id == id => Ok(Ok(*news)),
                Event::Refused(refusal) if refused_kind(&refusal) == Kind::RELOAD => {
                    Ok(Err(refusal))
                }
                other => Err(other),
            },
        );
        let refused = |refusal| ClientError::Refused(Box::new(refusal));
        answer.await?.map_err(refused)
    }
}
