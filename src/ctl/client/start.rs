//! STARTs whose answer is waited for: a placement, or the decision of a dry run. Those that are only sent go through
//! `Submitter`.

use bytes::Bytes;
use proto_frames::Kind;
use proto_frames::payload::{CommandRefused, InstancePlaced, PlacementDecision, Topic};

use super::{Client, ClientError, StartError};
use crate::ctl::event::{Event, refused_kind};

impl Client {
    /// Submits a START and waits until it is given to a node. What happens to it there comes as events.
    ///
    /// Subscribes to placements, because a START is confirmed by an event of that topic only. A START that is queued
    /// has no answer within the time: callers that allow queueing follow events instead.
    ///
    /// # Errors
    /// [`StartError`]: no node took it, it was refused, or there was no answer.
    pub async fn start(
        &mut self,
        instance_uuid: &str,
        payload: Bytes,
    ) -> Result<InstancePlaced, StartError> {
        self.watch_also(Topic::Placements)
            .await
            .map_err(ClientError::from)?;
        self.answer_to_start(instance_uuid, payload, |event| match event {
            Event::Placed(placed) if placed.instance_uuid == instance_uuid => Ok(placed),
            other => Err(other),
        })
        .await
    }

    /// Submits a START that is a dry run and waits for the decision.
    ///
    /// No subscription is needed: the decision is an answer to its sender.
    ///
    /// # Errors
    /// [`StartError`]: it was refused, or there was no answer.
    pub async fn decide(
        &mut self,
        instance_uuid: &str,
        payload: Bytes,
    ) -> Result<PlacementDecision, StartError> {
        self.answer_to_start(instance_uuid, payload, |event| match event {
            Event::Decided(decision) if decision.instance_uuid == instance_uuid => Ok(*decision),
            other => Err(other),
        })
        .await
    }

    /// Submits a START and waits for the event that this takes for its answer, for its failure or for its refusal.
    ///
    /// `answer` gives back an event that it does not take, which is then kept. So is what came of another START: a
    /// refusal names its instance, unless the scheduler could not read it.
    async fn answer_to_start<T>(
        &mut self,
        instance_uuid: &str,
        payload: Bytes,
        mut answer: impl FnMut(Event) -> Result<T, Event>,
    ) -> Result<T, StartError> {
        self.submitter()
            .submit(payload)
            .await
            .map_err(ClientError::from)?;
        let is_this = |refused: &CommandRefused| {
            let named = refused.instance_uuid.as_deref();
            refused_kind(refused) == Kind::START && named.is_none_or(|it| it == instance_uuid)
        };
        self.wait_for(
            "answer to START",
            self.answer_timeout,
            |event| match event {
                Event::StartFailure(failure) if failure.instance_uuid == instance_uuid => {
                    Ok(Err(StartError::Failed(failure)))
                }
                Event::Refused(refused) if is_this(&refused) => {
                    Ok(Err(ClientError::Refused(Box::new(refused)).into()))
                }
                other => answer(other).map(Ok),
            },
        )
        .await?
    }
}
