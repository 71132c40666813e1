//! Arrays: started, listed, and run once more.

use bytes::Bytes;
use proto_frames::Kind;
use proto_frames::payload::array::StartArray;
use proto_frames::payload::{ArrayOrder, ArrayView, CommandRefused, Payload, QueryKind};

use super::{Client, ClientError, StartError};
use crate::ctl::event::{Event, refused_kind};

impl Client {
    /// Starts an array, and waits until the scheduler has it on record.
    ///
    /// # Errors
    /// [`StartError`]: it was refused, or there was no answer.
    pub async fn start_array(
        &mut self,
        array_uuid: &str,
        order: &ArrayOrder,
    ) -> Result<ArrayView, StartError> {
        self.order_array(array_uuid, order.encode()).await
    }

    /// Has what did not succeed of an array run once more, and waits until the scheduler has that on record.
    ///
    /// # Errors
    /// [`StartError`], likewise.
    pub async fn rerun_array(&mut self, array_uuid: &str) -> Result<ArrayView, StartError> {
        let head = StartArray {
            array_uuid: array_uuid.to_owned(),
            rerun: true,
            ..StartArray::default()
        };
        let order = ArrayOrder::new(head, Bytes::new());
        self.order_array(array_uuid, order.encode()).await
    }

    async fn order_array(
        &mut self,
        array_uuid: &str,
        payload: Bytes,
    ) -> Result<ArrayView, StartError> {
        self.send(Kind::START_ARRAY, payload)
            .await
            .map_err(ClientError::from)?;
        let is_this = |refused: &CommandRefused| refused_kind(refused) == Kind::START_ARRAY;
        self.wait_for(
            "answer to the array",
            self.answer_timeout,
            |event| match event {
                Event::Array(view) if view.array_uuid == array_uuid => Ok(Ok(*view)),
                Event::StartFailure(failure) if failure.instance_uuid == array_uuid => {
                    Ok(Err(StartError::Failed(failure)))
                }
                Event::Refused(refused) if is_this(&refused) => {
                    Ok(Err(ClientError::Refused(Box::new(refused)).into()))
                }
                other => Err(other),
            },
        )
        .await?
    }

    /// The arrays that are called so or have a UUID that begins so, or all; the latest first. None from a scheduler that
    /// knows no arrays.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn arrays(&mut self, matching: Option<&str>) -> Result<Vec<ArrayView>, ClientError> {
        match self.list(QueryKind::Arrays, matching).await {
            Ok(listing) => Ok(listing.arrays),
            Err(ClientError::Query { .. }) => Ok(Vec::new()),
            Err(error) => Err(error),
        }
    }
}
