//! Having another of several schedulers lead.

use proto_frames::Kind;
use proto_frames::payload::{LeadershipTransfer, Payload as _, TransferLeadership};

use super::{Client, ClientError};
use crate::ctl::event::{Event, refused_kind};

impl Client {
    /// Has the scheduler that leads hand over to the one that stands by at this address, or to any where it is empty. The
    /// session ends soon after the answer, if that is not a refusal.
    ///
    /// # Errors
    /// [`ClientError`]: it did not answer, or does not know the command.
    pub async fn transfer_leadership(
        &mut self,
        to: &str,
    ) -> Result<LeadershipTransfer, ClientError> {
        let id = self.next_id();
        let to = to.to_owned();
        let payload = TransferLeadership { id, to }.encode();
        self.send(Kind::TRANSFER_LEADERSHIP, payload).await?;
        let answer =
            self.wait_for(
                "answer to the transfer",
                self.answer_timeout,
                |event| match event {
                    Event::Transfer(news) if news.id == id => Ok(Ok(*news)),
                    Event::Refused(refusal)
                        if refused_kind(&refusal) == Kind::TRANSFER_LEADERSHIP =>
                    {
                        Ok(Err(refusal))
                    }
                    other => Err(other),
                },
            );
        let refused = |refusal| ClientError::Refused(Box::new(refusal));
        answer.await?.map_err(refused)
    }
}
