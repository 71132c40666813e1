//! Reading what a workload wrote: one chunk an answer, each asked for once the one before it is dealt with.
//!
//! The commands `logs` and `describe` read with it. The scheduler passes the request on to the launcher of the node.

use std::time::Duration;

use proto_frames::Kind;
use proto_frames::payload::{DeleteOutput, OutputChunk, OutputPart, Payload, ReadOutput};

use super::{Client, ClientError};
use crate::ctl::event::{Event, refused_kind};

/// Longest time until a chunk: above the time after which the scheduler gives up a launcher.
///
/// A request with `follow` takes some seconds while there is no more to read: the launcher waits for output, and then
/// answers with an empty chunk.
const OUTPUT_TIMEOUT: Duration = Duration::from_secs(45);

impl Client {
    /// A chunk of what a workload wrote, or why there is none.
    ///
    /// `id` of the request is ignored and set here. A chunk whose `part` is a failure is an answer too: the caller
    /// looks at it.
    ///
    /// # Errors
    /// [`ClientError`]: there is no answer, or the scheduler does not know the question.
    pub async fn read_output(&mut self, request: &ReadOutput) -> Result<OutputChunk, ClientError> {
        let id = self.ask_output(request).await?;
        self.answer_to(Kind::READ_OUTPUT, Some(id)).await
    }

    /// Asks for a chunk and does not wait for it: [`Client::next_output`] gives it, under the number that is returned.
    ///
    /// `id` of the request is ignored and set here.
    ///
    /// # Errors
    /// [`ClientError::Closed`].
    pub async fn ask_output(&mut self, request: &ReadOutput) -> Result<u64, ClientError> {
        self.last_query = self.last_query.wrapping_add(1);
        let id = u64::from(self.last_query);
        let request = ReadOutput {
            id,
            ..request.clone()
        };
        self.send(Kind::READ_OUTPUT, request.encode()).await?;
        Ok(id)
    }

    /// The next chunk of those that were asked for, in the order in which they come.
    ///
    /// Cancelling it loses nothing. The scheduler answers each request, if its launcher does not, so that a wait without
    /// any answer is a fault.
    ///
    /// # Errors
    /// [`ClientError`]: none came in time, or the scheduler does not know the question.
    pub async fn next_output(&mut self) -> Result<OutputChunk, ClientError> {
        self.answer_to(Kind::READ_OUTPUT, None).await
    }

    /// Has a node delete what an instance that is over has left there: how many runs that were, or why nothing was.
    ///
    /// `id` of the request is ignored and set here.
    ///
    /// # Errors
    /// [`ClientError`]: there is no answer, or the scheduler does not know the command, or not from this peer.
    pub async fn delete_output(
        &mut self,
        request: &DeleteOutput,
    ) -> Result<OutputPart, ClientError> {
        self.last_query = self.last_query.wrapping_add(1);
        let id = u64::from(self.last_query);
        let request = DeleteOutput {
            id,
            ..request.clone()
        };
        self.send(Kind::DELETE_OUTPUT, request.encode()).await?;
        let answer = self.answer_to(Kind::DELETE_OUTPUT, Some(id)).await?;
        Ok(answer.part)
    }

    /// The next answer to what was asked by frames of this kind, or that to the one with this number.
    async fn answer_to(
        &mut self,
        asked: Kind,
        number: Option<u64>,
    ) -> Result<OutputChunk, ClientError> {
        let patience = self.answer_timeout.max(OUTPUT_TIMEOUT);
        let is_it = |chunk: &OutputChunk| number.is_none_or(|number| chunk.part.id == number);
        let answer = self.wait_for("output", patience, |event| match event {
            Event::Output(chunk) if is_it(&chunk) => Ok(Ok(*chunk)),
            Event::Refused(refusal) if refused_kind(&refusal) == asked => Ok(Err(refusal)),
            other => Err(other),
        });
        let refused = |refusal| ClientError::Refused(Box::new(refusal));
        answer.await?.map_err(refused)
    }
}
